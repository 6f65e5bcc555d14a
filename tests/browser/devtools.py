"""A headless Chromium, driven through the two pipes of its DevTools: no port, no driver, no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
"""What the browser is called, where it is installed."""
PATIENCE = 60.0
"""Seconds after which an answer is taken never to come."""

Json = dict[str, Any]


def installed() -> str | None:
    """The path of a browser, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser process with one page; `profile` is a new folder that it may fill."""

    def __init__(self, program: str, profile: Path) -> None:
        ours_in, its_out = os.pipe()
        its_in, ours_out = os.pipe()
        # The browser reads from 3 and writes to 4; whatever these were here is out of the way first.
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (its_in, its_out)]
        os.close(its_in)
        os.close(its_out)
        self._in, self._out = ours_in, ours_out
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec "$@" 3<&{moved[0]} 4>&{moved[1]}',
                "bash",
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=moved,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in moved:
            os.close(end)
        self._held = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[Json] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        self._send("Browser.close", {})
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)
            os.close(self._out)

    # --- a page ---------------------------------------------------------------------------------------

    def open(self, page: Path, *, width: int, height: int, scheme: str) -> None:
        """Shows a file on a screen of that size, in the `light` or the `dark` colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(time.monotonic() + PATIENCE)

    def value(self, expression: str) -> Any:  # noqa: ANN401  # JSON
        """What an expression of JavaScript is worth on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def requests(self) -> list[str]:
        """The addresses asked for since the page was opened."""
        asked = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in asked]

    def picture(self, path: Path) -> None:
        """A picture of the whole page."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    # --- the protocol ---------------------------------------------------------------------------------

    def call(self, method: str, **parameters: object) -> Json:
        """The browser's answer to a command."""
        number = self._send(method, parameters)
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._take(deadline)
            if message.get("id") == number:
                assert "error" not in message, message
                result: Json = message["result"]
                return result

    def _send(self, method: str, parameters: Json) -> int:
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._number

    def _take(self, deadline: float) -> Json:
        """The next message; an event is kept."""
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {PATIENCE:g} s"
            data = os.read(self._in, 1 << 16)
            assert data, "the browser has ended"
            self._held += data
        text, _, self._held = self._held.partition(b"\0")
        message: Json = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message
