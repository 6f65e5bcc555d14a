"""What a playbook would run, and whether it could now: read-only, starts nothing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

from bisect_agent import playbook
from bisect_agent.errors import TargetError, UsageError
from bisect_agent.evidence import accused
from bisect_agent.hosts import Host
from bisect_agent.hosts.local import LocalHost
from bisect_agent.model import Configuration, Playbook
from bisect_agent.secrets import Masker
from bisect_agent.serving import busy
from bisect_agent.target.launcher import Launcher, bash_complaint


def check(path: Path, pins: Mapping[str, str]) -> Iterator[str]:
    """The lines of the check.

    Raises:
        PlaybookError: the playbook cannot be used.
        UsageError: bash cannot read the launch script.
        TargetError: it could not run now: a port is taken.
    """
    resolved = playbook.load(path, pins=pins)
    ours = dict(os.environ)
    masker = Masker(playbook.secrets_of(resolved, ours).values())
    yield f"{path}: {resolved.title}"
    yield f"a {resolved.kind} on {resolved.target.host}, in {resolved.target.cwd}, " + (
        f"ports {', '.join(map(str, resolved.target.ports))}" if resolved.target.ports else "no port"
    )
    yield "the launch script, run by bash:"
    yield from (f"    {masker.mask(line)}" for line in resolved.launch.splitlines())
    for name, configuration in (("good", resolved.good), ("bad", resolved.bad)):
        yield f"{name}: {accused(configuration.settings())}"
        yield f"    {masker.mask(_command(resolved, configuration, ours))}"
    yield f"then one change a run from bad: {', '.join(_flipped(resolved)) or 'none'}"
    for hypothesis in resolved.hypotheses:
        missing = (
            f" (undecided: no factor plays {', '.join(hypothesis.missing)})" if hypothesis.missing else ""
        )
        yield f"hypothesis {hypothesis.id}: {hypothesis.claim}{missing}"
    for factor in resolved.factors:
        if factor.witness is None:
            yield f"note: {factor.name} has no witness: a change of it that does not heal will not count"
    limits = resolved.limits
    yield (
        f"limits: start {limits.start:g} s, quiet {limits.quiet:g} s, request {limits.request:g} s,"
        f" stop {limits.stop:g} s, {limits.trials} attempts, wall {limits.wall:g} s;"
        f" restore: {resolved.restore}"
    )
    _could_run(resolved)
    yield (
        "it can run: the script parses, and the ports are free"
        if resolved.target.ports
        else ("it can run: the script parses")
    )


def _command(resolved: Playbook, configuration: Configuration, ours: Mapping[str, str]) -> str:
    """The environment that the factors set, and the arguments, as one would type them."""
    plain = playbook.environment(resolved, configuration, ours)
    names = sorted(f.env for f in resolved.factors if f.kind == "env")
    sets = [f"{name}={shlex.quote(plain[name])}" if name in plain else f"-u {name}" for name in names]
    flags = shlex.join(playbook.arguments(resolved, configuration))
    return f"env {' '.join(sets)} launch {flags}".rstrip() if sets else f"launch {flags}".rstrip()


def _flipped(resolved: Playbook) -> list[str]:
    return [s.factor for s in resolved.bad.differs(resolved.good)] + list(resolved.suspects)


def check_script(host: Host, resolved: Playbook) -> None:
    """The launch script must be one that bash can read.

    Raises:
        UsageError: it is not; with what bash says.
    """
    if said := bash_complaint(host, resolved.launch.encode()):
        raise UsageError(f"bash cannot read the launch script: {said}", "correct `launch` in the playbook")


def _could_run(resolved: Playbook) -> None:
    host = LocalHost()
    check_script(host, resolved)
    launcher = Launcher(host, str(resources.files("bisect_agent.target")), sys.executable)
    if taken := busy(launcher, resolved.target.ports):
        raise TargetError(taken, "stop that server, or give the playbook another port")
