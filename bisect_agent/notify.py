"""Tells people how a run or a night has ended, through apprise: by mail, chat, phone, or a web hook.

An address holds a secret, so it is a value of our environment, called by its variable's name. What goes
wrong is returned and never raised: a message that nobody gets changes nothing of what was found.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal
from urllib.parse import unquote

from bisect_agent.secrets import SHORTEST, Masker

PATIENCE = 60.0
"""Seconds that one message may take; who has not answered by then is not waited for."""

_LONGEST = 200
"""Characters of a service's complaint that are shown."""


@dataclass(frozen=True)
class Message:
    """What is told, as plain text; `tone` is how a service may colour it."""

    title: str
    body: str
    tone: Literal["success", "warning", "failure"]


def installed() -> bool:
    """Whether apprise is there: with its services it is larger than the rest, and few need it."""
    return find_spec("apprise") is not None


def knows(address: str) -> bool:
    """Whether apprise can make something of an address."""
    from apprise import Apprise  # It takes a while to import.

    return bool(Apprise().add(address))


def send(message: Message, addresses: Mapping[str, str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Tells every address, with all secrets masked; returns a sentence for each that was not told."""
    hidden = {*secrets, *addresses.values()}
    masker = Masker(hidden)
    shown = Message(masker.mask(message.title), masker.mask(message.body), message.tone)
    failed = {name: _failure(shown, address) for name, address in addresses.items()}
    return tuple(
        f"nobody was told through ${{{name}}}: {Masker({*hidden, *_parts(addresses[name])}).mask(why)}"
        for name, why in failed.items()
        if why
    )


def _failure(message: Message, address: str) -> str:
    """Why an address was not told; empty where it was. In a thread, for some services answer never."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(_told(message, address)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return said[0] if said else f"no answer within {PATIENCE:g} s"


def _told(message: Message, address: str) -> str:
    """Sends it; returns the first line of what apprise says against it."""
    from apprise import Apprise, AppriseAsset, LogCapture, NotifyFormat, NotifyType

    # Nothing of it is kept on a disk.
    to = Apprise(asset=AppriseAsset(app_id="bisect-agent", storage_mode="memory"))
    with LogCapture(fmt="%(message)s") as log:  # type: ignore[no-untyped-call]
        try:
            well = to.add(address) and to.notify(
                message.body,
                title=message.title,
                notify_type=NotifyType(message.tone),
                body_format=NotifyFormat.TEXT,
            )
        except Exception as error:
            return type(error).__name__  # What it says may be a part of the address.
        lines = log.getvalue().strip().splitlines()
    return "" if well else (lines or ["the service did not take it"])[0][:_LONGEST]


def _parts(address: str) -> set[str]:
    """What a complaint may quote of an address: all of it but the scheme, whole words of it too."""
    _, _, rest = address.partition("://")
    words = {*re.split(r"[/?&=@:#,;+]", rest), *re.findall(r"\w+", rest)}
    return {part for word in words for part in (word, unquote(word)) if len(part) >= SHORTEST}
