"""Every kind of factor, and every command of a playbook's own, on programs of a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path

from bisect_agent.errors import ExitCode
from bisect_agent.model import Setting
from tests.e2e.agent import Agent, Finished, events, finished, listens, post, tiny, wait_for

JOB = """
import json, os, pathlib, sys
said = json.loads(pathlib.Path("conf.json").read_text()) if os.path.exists("conf.json") else {}
print("conf", said, "arguments", sys.argv[1:], "caches", os.environ.get("TRITON_CACHE_DIR"), flush=True)
cache = pathlib.Path(os.environ.get("TRITON_CACHE_DIR", "cache"))
found = sorted(path.name for path in cache.glob("*"))
cache.mkdir(parents=True, exist_ok=True)
(cache / "compiled").touch()
if said.get("broken") or "flash" in sys.argv or "--broken" in sys.argv or ("--stale" in sys.argv and found):
    raise ValueError(f"broken by {sorted(said)} with {found}")
"""


def investigated(agent: Agent, playbook: str, *options: str) -> Finished:
    """A job's playbook, carried out; the files that it names lie beside it."""
    folder = agent.home / "job"
    folder.mkdir(exist_ok=True)
    (folder / "job.py").write_text(JOB)
    path = folder / "playbook.yaml"
    path.write_text(textwrap.dedent(playbook))
    return finished(agent, agent.run(path, "--json", *options))


def launched(run: Finished, name: str) -> list[str]:
    """What the environments of a run's attempts, in order, give a variable."""
    files = sorted((run.folder / "trials").glob("*/1/env"), key=lambda path: path.parent.parent.name)
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def test_a_file_is_written_before_each_start_and_put_back_in_the_end(agent: Agent) -> None:
    """The cause is the file's level; afterwards the file is what it was, with its mode."""
    before = agent.home / "job" / "conf.json"
    before.parent.mkdir()
    before.write_text('{"of": "the owners"}')
    before.chmod(0o640)
    (before.parent / "broken.json").write_text('{"broken": true}')
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          conf:
            file: {path: conf.json, levels: {fine: {text: '{}'}, broken: {from: broken.json}, none: null}}
        bad: {conf: broken}
        """,
    )
    assert (ExitCode.CONCLUDED, (Setting(factor="conf", level="broken"),)) == (run.code, run.verdict().cause)
    assert ('{"of": "the owners"}', 0o640) == (before.read_text(), before.stat().st_mode & 0o777)
    assert ["files-put-back"] == [e["kind"] for e in events(run.folder) if e["kind"] == "files-put-back"]
    assert run.command("verify").end() == ExitCode.CONCLUDED


def test_a_file_that_was_not_there_is_gone_in_the_end(agent: Agent) -> None:
    """A factor's file is nobody's but ours, so nothing of it stays."""
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          conf: {file: {path: sub/../conf.json, levels: {none: null, broken: {text: '{"broken": 1}'}}}}
        bad: {conf: broken}
        """,
    )
    assert run.code == ExitCode.CONCLUDED
    assert not (agent.home / "job" / "conf.json").exists()


def test_an_option_is_accused_where_some_other_value_heals(agent: Agent) -> None:
    """Three values, one of which fails; an option without a value is not given."""
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          backend: {option: {name: --backend, levels: [triton, flash, native]}}
          page: {option: {name: --page-size, levels: {default: null, big: 64}}}
        bad: {backend: flash}
        """,
    )
    assert (Setting(factor="backend", level="flash"),) == run.verdict().cause
    log = next((run.folder / "trials").glob("t01-good/1/server.log")).read_text()
    assert "arguments ['--backend', 'triton'] " in log


def test_a_launch_script_can_be_what_is_varied(agent: Agent) -> None:
    """The script of a level is what is started, and what is kept beside the log."""
    folder = agent.home / "job"
    folder.mkdir()
    (folder / "old.sh").write_text('exec python3 job.py "$@"\n')
    (folder / "new.sh").write_text('exec python3 job.py --broken "$@"\n')
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        factors:
          start: {script: {old: old.sh, new: new.sh}}
          extra: {flags: {off: [], on: [--extra]}}
        bad: {start: new}
        """,
    )
    assert (Setting(factor="start", level="new"),) == run.verdict().cause
    scripts = [
        next((run.folder / "trials").glob(f"{name}/1/launch.sh")).read_text()
        for name in ("t01-good", "t02-bad")
    ]
    assert [(folder / "old.sh").read_text(), (folder / "new.sh").read_text()] == scripts


def test_an_ordered_factor_is_bisected_to_the_first_level_that_fails(agent: Agent) -> None:
    """Eight versions, of which the last three fail: found in three runs, with the pair next to each other."""
    versions = ", ".join(f"v{n}: {'--broken' if n > 5 else '--fine'}" for n in range(1, 9))
    run = investigated(
        agent,
        f"""\
        playbook: 1
        kind: job
        launch: exec python3 job.py $VERSION
        factors:
          version: {{env: VERSION, levels: {{{versions}}}, ordered: true}}
        bad: {{version: v8}}
        """,
    )
    verdict = run.verdict()
    levels = {trial.id: trial.configuration["version"] for trial in verdict.trials}
    assert (Setting(factor="version", level="v6"),) == verdict.cause
    assert [("v6", "v5")] == [(levels[pair.failing], levels[pair.passing]) for pair in verdict.pairs]
    assert len(verdict.trials) <= 7
    assert run.command("verify").end() == ExitCode.CONCLUDED


def test_every_cause_is_found_where_that_is_asked_for(agent: Agent) -> None:
    """Two settings, each of which is enough: both are named, each with pairs of its own."""
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          a: {flags: {off: [], on: [--broken]}}
          b: {option: {name: --backend, levels: [triton, flash]}}
        bad: {a: on, b: flash}
        causes: all
        """,
    )
    causes = set(run.verdict().causes)
    assert {(Setting(factor="a", level="on"),), (Setting(factor="b", level="flash"),)} == causes
    assert run.command("verify").end() == ExitCode.CONCLUDED


def test_a_configuration_that_cannot_be_is_never_run(agent: Agent) -> None:
    """The bounds of the playbook keep it from being planned, and the verdict says what stays open."""
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          a: {flags: {off: [], on: [--broken]}}
          b: {option: {name: --backend, levels: [triton, native]}, requires: {native: {a: off}}}
        bad: {a: on}
        """,
    )
    verdict = run.verdict()
    assert (Setting(factor="a", level="on"),) == verdict.cause
    assert not any(t.configuration["a"] == "on" and t.configuration["b"] == "native" for t in verdict.trials)
    assert any("b=native requires a=off" in gap for gap in verdict.unknown)


def test_every_attempt_begins_with_empty_caches_and_they_are_gone_afterwards(agent: Agent) -> None:
    """A cache that an attempt leaves behind would decide the next one; shared, it does."""
    playbook = """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          stale: {flags: {off: [], on: [--stale]}}
        bad: {stale: on}
        caches: fresh
        """
    run = investigated(agent, playbook)
    folders = launched(run, "TRITON_CACHE_DIR")
    assert ExitCode.NOTHING_TO_BISECT == run.code
    assert len(folders) == len(set(folders)) == 4
    assert [] == [folder for folder in folders if Path(folder).exists()]


def test_a_shared_cache_stays_what_it_was(agent: Agent) -> None:
    """Without `caches`, and without a profile, no variable is set: what `good` compiled, `bad` finds."""
    run = investigated(
        agent,
        """\
        playbook: 1
        kind: job
        launch: exec python3 job.py "$@"
        factors:
          stale: {flags: {off: [], on: [--stale]}}
        bad: {stale: on}
        """,
    )
    assert (ExitCode.CONCLUDED, []) == (run.code, launched(run, "TRITON_CACHE_DIR"))


# --- the owners' server -----------------------------------------------------------------------------

START = """\
cd {folder}
setsid nohup python3 server.py --port {port} &
echo $! >owners.pid
"""


def owners(agent: Agent, *edits: tuple[str, str]) -> tuple[Path, int]:
    """The tiny server, and a start script of its owners' that leaves it running and holds its output."""
    server = tiny(agent.home, *edits)
    folder = server.playbook.parent
    (folder / "start.sh").write_text(START.format(folder=folder, port=server.port))
    return server.playbook, server.port


def brought_up(playbook: Path, port: int) -> int:
    """The process of the owners' server, as soon as it listens."""
    subprocess.run(["/bin/bash", "start.sh"], cwd=playbook.parent, check=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: listens(port), "the owners' server")
    return owners_pid(playbook)


def owners_pid(playbook: Path) -> int:
    """The process that the owners' start script has started last."""
    return int((playbook.parent / "owners.pid").read_text())


STOPPED = ("target:\n", "target:\n  stop: kill $(cat owners.pid)\n")
BROUGHT_BACK = ("limits:", "restore: {command: bash start.sh}\nlimits:")


def test_the_owners_server_is_ended_once_and_brought_back(agent: Agent) -> None:
    """Their command ends it before the first start; theirs starts it again, and it answers as `good` did."""
    playbook, port = owners(agent, STOPPED, BROUGHT_BACK)
    first = brought_up(playbook, port)
    run = finished(agent, agent.run(playbook, "--json"))
    second = owners_pid(playbook)
    try:
        assert run.code == ExitCode.CONCLUDED, run.stderr
        assert first != second
        assert post(port, "/generate", {})[0] == 200
        assert run.verdict().good_restored.ok is True
        told = [
            (e["purpose"], e["code"], e["wrong"]) for e in events(run.folder) if e["kind"] == "command-run"
        ]
        assert [("stop", 0, ""), ("restore", 0, "")] == told
        assert run.command("verify").end() == ExitCode.CONCLUDED
    finally:
        os.kill(second, signal.SIGTERM)


def test_a_stop_that_does_not_stop_is_said_at_once(agent: Agent) -> None:
    """Exit 4 with how the command ended and who has the port; the owners' server is left alone."""
    playbook, port = owners(
        agent, ("target:\n", "target:\n  stop: echo no such unit; exit 5\n"), BROUGHT_BACK
    )
    pid = brought_up(playbook, port)
    run = finished(agent, agent.run(playbook, "--json"))
    os.kill(pid, signal.SIGTERM)
    assert run.code == ExitCode.TARGET
    assert (
        f"`target.stop` came to exit code 5, and port {port} is held by pid {pid}" in run.verdict().stopped_by
    )
    assert "no such unit" in run.verdict().stopped_by
    assert ["command-run"] == [
        e["kind"] for e in events(run.folder) if e["kind"] in {"command-run", "launching"}
    ]


def test_an_interrupt_is_obeyed_while_ports_are_waited_for(agent: Agent) -> None:
    """A stop that ends well and stops nothing is not waited out: Ctrl-C is heard, exit 130."""
    playbook, port = owners(agent, ("target:\n", "target:\n  stop: touch stopped\n"), BROUGHT_BACK)
    pid = brought_up(playbook, port)
    command = agent.run(playbook, "--json")
    wait_for((playbook.parent / "stopped").exists, "the stop command")
    command.send(signal.SIGINT)
    run = finished(agent, command)
    os.kill(pid, signal.SIGTERM)
    assert run.code == ExitCode.INTERRUPTED


def test_a_restore_that_brings_nothing_back_is_exit_code_6(agent: Agent) -> None:
    """A command that ends well proves nothing: the server must be seen to serve."""
    server = tiny(agent.home, ("limits: {start: 60s,", "restore: {command: 'true'}\nlimits: {start: 3s,"))
    run = finished(agent, agent.run(server.playbook, "--json"))
    assert run.code == ExitCode.NOT_RESTORED
    assert run.verdict().good_restored.ok is False
    assert (
        "no process" in run.verdict().good_restored.reason or "nobody" in run.verdict().good_restored.reason
    )


def test_what_a_server_says_of_itself_is_a_witness(agent: Agent) -> None:
    """The server's own report shows each level in effect, and is kept beside the log."""
    witness = 'witness: {log: "the kernel is {level}"}'
    server = tiny(agent.home, (witness, "witness: {http: /info, contains: 'kernel {level}'}"))
    text = (server.playbook.parent / "server.py").read_text()
    reports = text.replace('f"hello {TOKEN} {HOSTILE}"', 'f"hello kernel " + os.environ.get("KERNEL", "")')
    (server.playbook.parent / "server.py").write_text(reports)
    run = finished(agent, agent.run(server.playbook, "--json"))
    assert run.code == ExitCode.CONCLUDED
    answers = [json.loads(p.read_text()) for p in (run.folder / "trials").glob("*/1/witness-info-*.txt")]
    assert {"text": "hello kernel fast"} in answers
    assert run.command("verify").end() == ExitCode.CONCLUDED
