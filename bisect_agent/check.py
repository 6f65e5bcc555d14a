"""What a playbook would run, and whether it could now: read-only, starts nothing."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bisect_agent import playbook
from bisect_agent.between import fingerprint
from bisect_agent.clock import SystemClock
from bisect_agent.edge import Edge
from bisect_agent.errors import BisectError, TargetError, UsageError
from bisect_agent.evidence import accused
from bisect_agent.hosts import Host
from bisect_agent.hosts.reach import reach
from bisect_agent.model import (
    FIRST,
    Asked,
    Command,
    Configuration,
    EnvFactor,
    FileFactor,
    Playbook,
    ScriptFactor,
)
from bisect_agent.secrets import Masker
from bisect_agent.serving import busy
from bisect_agent.survey import ask
from bisect_agent.target.launcher import CALL, Launcher, Setback, bash_complaint


def check(path: Path, pins: Mapping[str, str], signatures: Path | None = None) -> Iterator[str]:
    """The lines of the check.

    Raises:
        PlaybookError: the playbook cannot be used.
        UsageError: bash cannot read the launch script, or its program refuses an argument.
        TargetError: it could not run now: a port is taken.
    """
    resolved = playbook.load(path, pins=pins, signatures=signatures)
    ours = dict(os.environ)
    secret = playbook.secrets_of(resolved, ours)
    masker = Masker(secret.values())
    yield f"{path}: {resolved.title}"
    for number, target in resolved.targets.items():
        what = f"a {resolved.kind}" if number == FIRST else f"the same, as target {number},"
        ports = f"ports {', '.join(map(str, target.ports))}" if target.ports else "no port"
        yield f"{what} on {target.host}, in {target.cwd}, {ports}"
    if resolved.others:
        yield "a target takes part once `good` has worked and `bad` has failed on it"
    for title, script in _scripts(resolved):
        yield f"{title}, run by bash:"
        yield from (f"    {masker.mask(line)}" for line in script.splitlines())
    yield from _commands(resolved, masker)
    for name, configuration in (("good", resolved.good), ("bad", resolved.bad)):
        yield f"{name}: {accused(configuration.settings())}"
        yield f"    {masker.mask(_command(resolved, configuration, ours))}"
    yield f"then one change a run from bad: {', '.join(_flipped(resolved)) or 'none'}"
    for hypothesis in resolved.hypotheses:
        missing = (
            f" (undecided: no factor plays {', '.join(hypothesis.missing)})" if hypothesis.missing else ""
        )
        yield f"hypothesis {hypothesis.id}: {hypothesis.claim}{missing}"
    limits = resolved.limits
    yield (
        f"limits: start {limits.start:g} s, quiet {limits.quiet:g} s, request {limits.request:g} s,"
        f" stop {limits.stop:g} s, {limits.trials} attempts, wall {limits.wall:g} s, lease {limits.lease:g} s"
    )
    if secret:
        yield f"shown nowhere: the value of {', '.join(secret)}"
    with masking(resolved), ExitStack() as stack:
        hosts = [stack.enter_context(reach(target.host)) for target in resolved.targets.values()]
        there = playbook.placed(resolved, *(host.home for host in hosts))
        asked = Asked()
        for number, host in enumerate(hosts, FIRST):
            ours = playbook.environment_for(host.environment, os.environ)
            could = _could_run(host, there.at(number), ours)
            asked = could if number == FIRST else asked
    for factor in resolved.factors:
        read = isinstance(factor, EnvFactor) and factor.env in asked.reads
        if factor.witness is None and not read and not isinstance(factor, ScriptFactor):
            yield f"note: {factor.name} has no witness: a change of it that does not heal will not count"
    yield from _told(asked)
    yield (
        "it can run: the script parses, and the ports are free"
        if resolved.target.ports
        else ("it can run: the script parses")
    )


@contextmanager
def masking(resolved: Playbook) -> Iterator[None]:
    """Masks a playbook's secrets in the error that ends what is done for it."""
    try:
        yield
    except BisectError as error:
        masker = Masker(playbook.secrets_of(resolved, os.environ).values())
        error.message, error.remedy = masker.mask(error.message), masker.mask(error.remedy)
        raise


def _scripts(resolved: Playbook) -> Iterator[tuple[str, str]]:
    """Every launch script, and what it is."""
    factor = next((f for f in resolved.factors if isinstance(f, ScriptFactor)), None)
    if factor is None:
        yield "the launch script", resolved.launch
    else:
        for level, script in factor.levels.items():
            yield f"the launch script of {factor.name}={level}", script


def _commands(resolved: Playbook, masker: Masker) -> Iterator[str]:
    """What else is run or written there, beside the launch script."""
    if resolved.target.stop is not None:
        yield f"before the first start, once: {masker.mask(resolved.target.stop)}"
    for factor in resolved.factors:
        if isinstance(factor, FileFactor):
            yield f"before each start, {factor.path} is written; in the end it is put back"
    if resolved.error is not None:
        often = f"{resolved.error:g}"
        yield f"the failure may be flaky: runs are repeated until a verdict is wrong as seldom as {often}"
    if resolved.caches:
        yield f"every attempt begins with empty caches: {', '.join(resolved.caches)}"
    if resolved.cached == "shared" and resolved.profile is not None:
        yield "all attempts share the caches of the machine: what one compiled, the next one finds"
    for path in resolved.target.code:
        yield f"an attempt counts only while this code stays as it is: {path}"
    if isinstance(resolved.restore, Command):
        yield f"in the end: {masker.mask(resolved.restore.command)}, which must bring a server that answers"
    else:
        yield f"in the end: restore: {resolved.restore}"
    if resolved.notify:
        yield f"then apprise tells: {', '.join(f'${{{name}}}' for name in resolved.notify)}"


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
    for script in playbook.scripts(resolved):
        if said := bash_complaint(host, script.encode()):
            raise UsageError(
                f"bash cannot read the launch script: {said}", "correct the launch script of the playbook"
            )


def _could_run(host: Host, resolved: Playbook, ours: Mapping[str, str]) -> Asked:
    """Whether it could run now, and what the stack says of itself; the folder for that is removed again."""
    check_script(host, resolved)
    if host.run(("test", "-d", resolved.target.cwd), timeout=CALL).returncode:
        found = f"the launch script is to run in {resolved.target.cwd}, and there is no such folder"
        raise UsageError(f"{found} on {host.name}", "correct `target.cwd`, or make it")
    folder = f"{host.home}/.bisect-agent/check-{secrets.token_hex(4)}"
    launcher = Launcher(host, folder, host.python)
    try:
        launcher.install()
        if taken := busy(launcher, resolved.target.ports):
            raise TargetError(taken, "stop that server, or give the playbook another port")
        values = tuple(playbook.secrets_of(resolved, ours).values())
        edge = Edge(host, launcher, folder, host.python, SystemClock(), ours, values)
        fingerprint(resolved, edge)
        return ask(resolved, edge) if resolved.profile is not None else Asked()
    except Setback as setback:
        raise TargetError(setback.trouble.detail, "look at the target, then check again") from setback
    finally:
        with suppress(Setback, TargetError):
            launcher.discard(folder)


def _told(asked: Asked) -> Iterator[str]:
    """What the stack says of itself, line by line.

    Raises:
        UsageError: it would refuse an argument.
    """
    for source in asked.sources:
        yield f"looked into {source}"
    yield from (f"note: {note}" for note in asked.notes if not note.wrong)
    if wrong := [str(note) for note in asked.notes if note.wrong]:
        raise UsageError("; ".join(wrong), "correct the factor, or leave it out")
