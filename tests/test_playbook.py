import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_agent import codefiles, playbook
from bisect_agent.errors import PlaybookError, Problem, UsageError
from bisect_agent.model import Configuration, EnvFactor, Kind, Limits, LogWitness, Playbook, Role

CASES = Path(__file__).parent / "cases" / "playbooks"
OURS = {"HOME": "/home/me", "PATH": "/usr/bin", "LANG": "C.UTF-8", "HF_TOKEN": "hf_secret", "EDITOR": "vi"}

JOB = """\
playbook: 1
kind: job
launch: exec python3 job.py "$@"
factors:
  compile: {flags: {off: [], on: [--compile, 64]}}
  kernel: {env: KERNEL, levels: {new: 1, stock: 0, unset: null}}
  graphs: {flags: {on: [], off: [--no-graphs]}}
bad: {compile: on}
"""

SERVER = """\
playbook: 1
title: the server dies when it compiles
target:
  ports: [30000, 30001]
  env: {HF_TOKEN: "${HF_TOKEN}", WHERE: "${HOME}/x"}
  pass: [EDITOR]
launch: |
  exec python3 server.py "$@"
factors:
  compile: {flags: {off: [], on: [--compile]}}
  kernel:  {env: KERNEL, levels: {mma: 1, stock: 0}, witness: {log: "sparse kernel: {level}"}}
good: {kernel: stock}
bad: {compile: on, kernel: stock}
hypotheses: [torch-compile-capture]
observe:
  ready: {log: ready to roll, http: /health}
  request:
    path: /generate
    json: {text: hello, top: 1, warm: 0.5, stop: null, code: "1"}
    expect: same-as-good
  signatures: [{id: mine, role: root, pattern: 'MyError: .+', fatal: true, phase_matters: true}]
  ignore: [rope_parameters]
  phases: [{name: capture, begin: Capture begins, quiet: 2m, limit: 1h, progress: 'graph [0-9]+'}]
limits: {start: 1h30m, quiet: 90s, stop: 0.5s, trials: 7}
restore: none
"""

UNKNOWN_GROUP = 2**31 - 7

TEXT = st.characters(
    codec="utf-8", exclude_categories=("Cc", "Cn", "Co", "Cs", "Zl", "Zp"), exclude_characters="$"
)
"""What may stand in YAML without an escape, and takes nothing from our environment."""

Load = Callable[..., Playbook]


def saved(folder: Path, text: str | bytes) -> Path:
    """A playbook of that text, which only its owner can write."""
    path = folder / "playbook.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o644)
    return path


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a text as a playbook in `tmp_path`."""
    return lambda text, **pins: playbook.load(saved(tmp_path, text), pins=pins, ours=OURS)


def complaint(path: Path) -> str:
    """What is said of the playbook at `path`, without the folder's name."""
    with pytest.raises(PlaybookError) as caught:
        playbook.load(path, ours=OURS)
    return str(caught.value).replace(f"{path.parent}/", "")


# --- what is said of a bad one ----------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda case: case.stem)
def test_every_mistake_is_told_with_its_place_and_its_remedy(case: Path, tmp_path: Path) -> None:
    """The whole text shown for each playbook of tests/cases/playbooks is the one beside it."""
    expected = case.with_suffix(".expected").read_text()
    assert expected == complaint(saved(tmp_path, case.read_bytes())) + "\n"


def test_a_folder_is_no_playbook(tmp_path: Path) -> None:
    """The remedy names the file that a person may have meant."""
    assert "the playbook is a folder" in complaint(tmp_path)
    assert f"{tmp_path.name}/playbook.yaml" in complaint(tmp_path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """The system's reason is shown."""
    assert "cannot be read: No such file or directory" in complaint(tmp_path / "none.yaml")


def test_a_binary_file_is_no_playbook(tmp_path: Path) -> None:
    """A NUL byte never comes from an editor."""
    assert "playbook.yaml:1:1: the playbook is a binary file" in complaint(saved(tmp_path, b"\x7fELF\0"))


def test_bytes_that_are_not_utf8_are_pointed_at(tmp_path: Path) -> None:
    """Line and column are those of the first bad byte."""
    said = complaint(saved(tmp_path, b"playbook: 1\ntitle: \xff\n"))
    assert "playbook.yaml:2:8: the playbook is not UTF-8: line 2 holds the byte 0xff" in said


def test_a_playbook_of_more_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    """Nobody writes such a file by hand, and reading it takes long."""
    assert "has 1048577 bytes, more than 1048576" in complaint(saved(tmp_path, "#" * (1024 * 1024 + 1)))


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_playbook_that_others_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    """A playbook is code: whoever can write it can run what they like as us."""
    path = saved(tmp_path, JOB)
    path.chmod(mode)
    said = complaint(path)
    assert f"can be written by others (mode {mode:04o})" in said
    assert "try: chmod go-w" in said


def test_a_playbook_that_a_shared_group_can_write_is_refused(tmp_path: Path) -> None:
    """Only a group that is its owner's own, without other members, is nobody else."""
    path = saved(tmp_path, JOB)
    seen = list(path.stat())
    seen[stat.ST_MODE], seen[stat.ST_GID] = 0o100664, UNKNOWN_GROUP
    with pytest.raises(codefiles.UnusableFile, match="can be written by others"):
        codefiles._check_status(path, os.stat_result(seen))


def test_a_launch_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """The launch file is run as well, so it is held to the same."""
    launch = tmp_path / "launch.sh"
    launch.write_text('exec python3 job.py "$@"\n')
    launch.chmod(0o666)
    path = saved(tmp_path, JOB.replace('launch: exec python3 job.py "$@"', "launch_file: launch.sh"))
    assert "playbook.yaml:3:14: the launch file launch.sh can be written by others" in complaint(path)


def test_a_secret_written_out_is_not_repeated(tmp_path: Path) -> None:
    """The message about a secret must not spread it."""
    path = saved(tmp_path, JOB.replace("kind: job", "kind: job\ntarget: {env: {API_KEY: sk-1234}}"))
    assert "sk-1234" not in complaint(path)


@settings(deadline=None)
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_no_bytes_make_anything_but_a_playbook_error(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is in the file, the error is one for a person."""
    complaint(saved(tmp_path_factory.mktemp("any"), data))


@settings(deadline=None)
@given(data=st.data())
def test_no_damage_to_a_playbook_makes_anything_but_a_playbook_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A playbook with a piece cut out or replaced loads, or is complained about in the order of lines."""
    begin = data.draw(st.integers(0, len(SERVER)))
    end = data.draw(st.integers(begin, min(len(SERVER), begin + 20)))
    piece = data.draw(st.text("{}[]:,\"'|>&*!- \n\tax1", max_size=4))
    problems: tuple[Problem, ...] = ()
    try:
        playbook.load(saved(tmp_path_factory.mktemp("any"), SERVER[:begin] + piece + SERVER[end:]), ours=OURS)
    except PlaybookError as error:
        problems = error.problems
    places = [(problem.line, problem.column) for problem in problems]
    assert sorted(places) == places


# --- what is made of a good one ---------------------------------------------------------------------


def test_a_server_has_what_its_playbook_says(load: Load, tmp_path: Path) -> None:
    """Every key ends where the model has it."""
    loaded = load(SERVER)
    assert loaded.title == "the server dies when it compiles"
    assert loaded.kind is Kind.SERVER
    assert loaded.target.ports == (30000, 30001)
    assert loaded.target.cwd == str(tmp_path)
    assert loaded.target.folder is None
    assert loaded.target.passed == ("EDITOR",)
    assert loaded.launch == 'exec python3 server.py "$@"\n'
    assert loaded.factor("kernel") == EnvFactor(
        name="kernel",
        env="KERNEL",
        levels={"mma": "1", "stock": "0"},
        witness=LogWitness(log="sparse kernel: {level}"),
    )
    assert loaded.observe.ready_log == "ready to roll"
    assert loaded.observe.ready_http == "/health"
    assert loaded.observe.ignore == ("rope_parameters",)
    (phase,) = loaded.observe.phases
    assert ("capture", 120, 3600, "graph [0-9]+") == (phase.name, phase.quiet, phase.limit, phase.progress)
    assert loaded.restore == "none"


def test_good_and_bad_are_the_defaults_and_what_they_have_otherwise(load: Load) -> None:
    """The first level listed is the default."""
    loaded = load(SERVER)
    assert loaded.good == Configuration({"compile": "off", "kernel": "stock"})
    assert loaded.bad == Configuration({"compile": "on", "kernel": "stock"})


def test_the_own_signatures_stand_apart_from_the_shipped_ones(load: Load) -> None:
    """Where the two differ, the reader of logs must know which is the person's own."""
    loaded = load(SERVER)
    (mine,) = loaded.observe.signatures
    assert (mine.id, mine.role, mine.fatal, mine.phase_matters) == ("mine", Role.ROOT, True, True)
    assert "mine" not in {signature.id for signature in loaded.signatures}


def test_a_request_is_json_with_the_types_that_yaml_says(load: Load) -> None:
    """Numbers and null without quotes are JSON's; what stands in quotes is text."""
    request = load(SERVER).observe.request
    assert request is not None
    assert request.body is not None
    expected = {"text": "hello", "top": 1, "warm": 0.5, "stop": None, "code": "1"}
    assert expected == json.loads(request.body)
    assert (request.same_as_good, request.expect) == (True, None)


def test_limits_are_seconds_over_the_defaults(load: Load) -> None:
    """What is not said keeps the default of the kind."""
    expected = Limits(start=5400, quiet=90, request=60, stop=0.5, trials=7, wall=28800)
    assert expected == load(SERVER).limits


def test_a_job_is_bounded_by_an_hour_and_restores_nothing(load: Load) -> None:
    """The defaults of a job differ from those of a server."""
    loaded = load(JOB)
    assert loaded.limits == Limits(start=3600, quiet=300, request=60, stop=10, trials=40, wall=28800)
    assert loaded.restore == "none"
    assert loaded.title == "playbook"


def test_a_flaky_failure_has_an_error_and_a_larger_budget(load: Load) -> None:
    """Runs are repeated; what the playbook says of its limits stands all the same."""
    loaded = load(JOB + "confidence: {error: 0.05}\n")
    own = load(JOB + "confidence: {error: .05}\nlimits: {trials: 7}\n")
    assert (0.05, 120, 7) == (loaded.error, loaded.limits.trials, own.limits.trials)
    assert load(JOB).error is None


def test_a_server_restores_good_unless_told_otherwise(load: Load) -> None:
    """The machine must not be left without its server."""
    assert load(SERVER.replace("restore: none\n", "")).restore == "good"


def test_all_factors_equal_in_both_are_suspects_by_default(load: Load) -> None:
    """A factor that nobody changed may still be part of the cause."""
    assert load(JOB).suspects == ("kernel", "graphs")


def test_suspects_limits_the_equal_factors_that_are_flipped(load: Load) -> None:
    """Naming a factor that differs anyway changes nothing."""
    assert load(JOB + "suspects: [graphs, compile]\n").suspects == ("graphs",)


def test_a_pin_sets_a_level_in_both_and_lifts_the_suspicion(load: Load) -> None:
    """What a person pins is no longer varied."""
    loaded = load(JOB, kernel="stock")
    assert (loaded.good["kernel"], loaded.bad["kernel"]) == ("stock", "stock")
    assert loaded.suspects == ("graphs",)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"kernl": "stock"}, "--set kernl=stock: no factor is called `kernl`\n  try: did you mean `kernel`?"),
        (
            {"kernel": "old"},
            "--set kernel=old: `kernel` has no level `old`\n  try: one of: new, stock, unset",
        ),
        (
            {"compile": "on"},
            "with --set compile=on, `good` and `bad` are the same\n  try: leave one difference free",
        ),
    ],
)
def test_a_pin_that_does_not_fit_is_told(pin: dict[str, str], said: str, load: Load) -> None:
    """A wrong command line is no mistake of the file."""
    with pytest.raises(UsageError) as caught:
        load(JOB, **pin)
    assert said == str(caught.value)


def test_level_names_and_values_stay_as_they_are_written(load: Load) -> None:
    """YAML would make other values of some of these words."""
    written = "{on: off, yes: no, 1: 007, 0.50: 1_000, 1e3: 0x1F, ~: TRUE, null: '~'}"
    factor = load(JOB.replace("{new: 1, stock: 0, unset: null}", written)).factor("kernel")
    expected = {
        "on": "off",
        "yes": "no",
        "1": "007",
        "0.50": "1_000",
        "1e3": "0x1F",
        "~": "TRUE",
        "null": "~",
    }
    assert expected == factor.levels


@given(value=st.text(TEXT).filter(lambda value: value != "1"))  # the other level's
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_level_in_quotes_is_any_text(value: str, load: Load) -> None:
    """What stands between quotes reaches the variable unchanged."""
    quoted = "'" + value.replace("'", "''") + "'"
    factor = load(JOB.replace("stock: 0", f"stock: {quoted}")).factor("kernel")
    assert isinstance(factor, EnvFactor)
    assert value == factor.levels["stock"]


@given(hours=st.integers(0, 99), minutes=st.integers(0, 99), seconds=st.integers(1, 99))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int, load: Load) -> None:
    """Hours, minutes and seconds, in this order."""
    limits = load(f"{JOB}limits: {{wall: {hours}h{minutes}m{seconds}s}}\n").limits
    assert 3600 * hours + 60 * minutes + seconds == limits.wall


def test_a_launch_file_is_read_from_beside_the_playbook(load: Load, tmp_path: Path) -> None:
    """Nothing is looked up after loading."""
    launch = tmp_path / "launch.sh"
    launch.write_text('exec python3 job.py "$@"\n')
    launch.chmod(0o755)
    loaded = load(JOB.replace('launch: exec python3 job.py "$@"', "launch_file: launch.sh"))
    assert launch.read_text() == loaded.launch


def test_paths_of_the_target_are_seen_from_the_playbook(load: Load, tmp_path: Path) -> None:
    """A relative path must not depend on where the command is typed."""
    target = load(JOB.replace("kind: job", "kind: job\ntarget: {cwd: here, folder: /var/there}")).target
    assert (str(tmp_path / "here"), "/var/there") == (target.cwd, target.folder)


def test_pass_is_known_inside_and_beside_target(load: Load) -> None:
    """Both ways to write it add up."""
    loaded = load(JOB.replace("kind: job", "kind: job\npass: [A, B]\ntarget: {pass: [B, C]}"))
    assert loaded.target.passed == ("A", "B", "C")


def test_a_family_speaks_of_the_factors_of_the_playbook(load: Load) -> None:
    """Roles are found by the factors' names; a role nobody plays is named as missing."""
    claims = {claim.id: claim for claim in load(SERVER).hypotheses}
    assert claims["kernel-specific"].involves == ("kernel",)
    assert claims["kernel-specific"].missing == ()
    assert claims["stack-wide"].involves == ("compile",)
    assert claims["stack-wide"].missing == ("capture",)


def test_with_gives_a_role_to_a_factor_of_another_name(load: Load) -> None:
    """The person's own word goes before the family's list of names."""
    text = (
        JOB + "hypotheses: [{family: torch-compile-capture, with: {capture: graphs, inner_graphs: kernel}}]\n"
    )
    claims = {claim.id: claim for claim in load(text).hypotheses}
    assert claims["compile-against-capture"].involves == ("compile", "graphs")
    assert claims["double-capture"].involves == ("compile", "kernel")
    assert claims["kernel-specific"].missing == ("kernel",)


# --- what an attempt gets ---------------------------------------------------------------------------


def test_the_environment_is_ours_in_part_the_target_s_and_the_levels_(load: Load) -> None:
    """Nothing else of our environment leaks into an attempt."""
    loaded = load(SERVER)
    expected = {
        "HOME": "/home/me",
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "HF_TOKEN": "hf_secret",
        "WHERE": "/home/me/x",
        "EDITOR": "vi",
        "KERNEL": "0",
    }
    assert expected == playbook.environment(loaded, loaded.bad, OURS)


def test_a_null_level_unsets_the_variable(load: Load) -> None:
    """Unset is not the same as empty, also where the target sets the variable."""
    loaded = load(JOB.replace("kind: job", "kind: job\ntarget: {env: {KERNEL: 2}}"), kernel="unset")
    assert "KERNEL" not in playbook.environment(loaded, loaded.bad, OURS)


def test_a_reference_that_is_gone_is_told(load: Load) -> None:
    """A run resumed from another shell must not start with an empty secret."""
    loaded = load(SERVER)
    with pytest.raises(UsageError, match=r"takes \$\{HF_TOKEN\} from our environment"):
        playbook.environment(loaded, loaded.good, {"HOME": "/home/me"})


def test_arguments_are_the_flags_in_the_playbook_s_order(load: Load) -> None:
    """Factors without flags at their level add nothing."""
    loaded = load(JOB, graphs="off")
    assert playbook.arguments(loaded, loaded.bad) == ("--compile", "64", "--no-graphs")
    assert playbook.arguments(loaded, loaded.good) == ("--no-graphs",)


def test_what_comes_from_our_environment_is_secret_and_not_kept(load: Load) -> None:
    """The playbook that is written down holds the name; HOME is no secret."""
    loaded = load(SERVER)
    assert playbook.secrets_of(loaded, OURS) == {"HF_TOKEN": "hf_secret"}
    assert "hf_secret" not in loaded.model_dump_json()


def test_what_is_passed_under_a_secret_s_name_is_masked(load: Load) -> None:
    """A name tells; an ordinary variable that is passed stays readable."""
    loaded = load(JOB.replace("kind: job", "kind: job\ntarget: {pass: [HF_TOKEN, EDITOR, API_KEY]}"))
    assert playbook.secrets_of(loaded, OURS) == {"HF_TOKEN": "hf_secret"}


def test_what_the_playbook_marks_is_masked_passed_or_not(tmp_path: Path) -> None:
    """A name need not tell; and what only turns something on is no secret, whatever its name is."""
    ours = {**OURS, "DATABASE": "pg://db", "OTHER": "a value", "USE_API_KEY": "true", "FLAG": "False"}
    text = JOB.replace(
        "kind: job",
        "kind: job\nsecrets: [OTHER]\n"
        'target: {secrets: [DATABASE], pass: [USE_API_KEY, OTHER], env: {F: "${FLAG}"}}',
    )
    loaded = playbook.load(saved(tmp_path, text), ours=ours)
    assert playbook.secrets_of(loaded, ours) == {"OTHER": "a value", "DATABASE": "pg://db"}


def test_a_secret_in_a_file_beside_the_playbook_is_refused(tmp_path: Path) -> None:
    """A launch file is copied and shown like the playbook itself."""
    launch = saved(tmp_path, "exec python3 job.py --header 'Authorization: Bearer not-a-real-token-1'\n")
    launch.rename(tmp_path / "job.sh")
    path = saved(tmp_path, JOB.replace('launch: exec python3 job.py "$@"', "launch_file: job.sh"))
    assert "playbook.yaml:3:14: the launch file job.sh holds what looks like a secret" in complaint(path)


def test_a_playbook_survives_being_written_down(load: Load) -> None:
    """`verify` reads it back from the run folder."""
    loaded = load(SERVER)
    assert loaded == Playbook.model_validate_json(loaded.model_dump_json())
