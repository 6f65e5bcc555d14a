"""Launch scripts that start what would not be ours, and innocent ones that look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent.launches import complaints, left_behind, words

DETACHING = [
    ("docker run -d --gpus all img", "docker run -d"),
    ("docker run --rm -it img", "docker run"),
    ("sudo -E docker run --detach img", "docker run -d"),
    ("/usr/bin/docker --context gpu container start sgl", "docker start"),
    ("docker exec sgl python3 server.py", "docker exec"),
    ("docker compose -f x.yaml up -d", "docker compose up -d"),
    ("docker-compose up", "docker-compose up"),
    ("podman run img", "podman run"),
    ("systemctl restart sgl", "systemctl restart"),
    ("sudo systemctl --user start sgl", "systemctl start"),
    ("systemctl enable --now sgl", "systemctl enable"),
    ("systemd-run --user python3 server.py", "systemd-run"),
    ("service sgl start", "service sgl start"),
    ("tmux -L mine new-session -d 'python3 server.py'", "tmux new-session"),
    ("screen -dmS sgl python3 server.py", "screen -dm"),
    ("screen -S sgl -d -m python3 server.py", "screen -dm"),
    ("kubectl -n test apply -f server.yaml", "kubectl apply"),
    ("sbatch job.sh", "sbatch"),
    ("echo python3 server.py | at now", "at"),
]


@pytest.mark.parametrize(("script", "found"), DETACHING)
def test_a_launch_that_lets_go_of_what_it_starts_is_refused(script: str, found: str) -> None:
    """Once, with what was found and what to write."""
    (complaint,) = complaints(script)
    assert (1, True) == (complaint.line, found in complaint.found)
    assert complaint.remedy


BEHIND = [
    "nohup python3 server.py > log 2>&1 &",
    "python3 server.py &\necho $! > pid",
    "python3 server.py 2>&1 | tee log &",
    "( python3 server.py & )",
    "(cd /srv; python3 server.py) &",
    "{ python3 server.py; } &",
    "for n in 1 2; do python3 server.py $n & done",
    "python3 server.py & disown",
]


@pytest.mark.parametrize("script", BEHIND)
def test_a_program_that_nobody_waits_for_is_named(script: str) -> None:
    """It is ours, and is ended; but where a server is meant to stay, the script must stay with it."""
    behind = left_behind(script)
    assert behind is not None
    assert "is sent to the background" in behind.found
    assert () == complaints(script)


@pytest.mark.parametrize(
    "script",
    [
        "set -e\n\nexec {}\n",
        "# first\n\nif true; then {}; fi",
        "A=1 \\\n  B=2\ncase $1 in start) {};; esac",
        "cat <<EOF\nEOF\nID=$({})",
        'x="\n"\necho "`{}`"',
        "x='\n'\ntimeout -k 5 10 env A=b nice -n 5 {}",
        '\n\nbash -lc "{}"',
        "\n\nsudo sh -c '{}'",
        "\n\neval {}",
        "f() {{\n\n{}; }}",
        "a && \\\n b ||\n{}",
        "\n\ncat <({})",
    ],
)
def test_it_is_found_wherever_a_command_can_stand(script: str) -> None:
    """At its own line, the third."""
    assert [complaint.line for complaint in complaints(script.format("docker run -d img"))] == [3]


INNOCENT = [
    'exec python3 server.py "$@"',
    "# docker run -d img",
    "exec python3 server.py # docker run -d img",
    'echo "use docker run -d"',
    "echo 'docker run -d; systemctl start x'",
    "cat <<EOF > note\ndocker run -d img\nEOF\nexec python3 server.py",
    "cat <<-'END'\n\tdocker run -d img\n\tEND\nexec python3 server.py",
    "/opt/docker/run -d",
    "exec python3 server.py --name docker run -d > tmux 2>&1",
    "python3 docker run -d",
    "python3 -c \"import os; os.system('docker run -d')\"",
    "docker ps -q && docker pull img",
    "docker rm -f old; exec python3 server.py",
    "command -v docker > /dev/null || exit 1",
    "CMD=(docker run -d img)",
    'CMD="docker run -d img"',
    "for x in docker run -d; do echo $x; done",
    "[[ $x == docker && run == -d ]]",
    "case docker in run) exec python3 server.py;; esac",
    "alias d='docker run -d'",
    'exec python3 server.py "${docker:-run -d}"',
    "tmux kill-session -t new || true",
    "systemctl stop sgl; exec python3 server.py",
    "systemctl is-active sgl",
    "systemd-run --scope python3 server.py",
    "screen -ls",
    "kubectl get pods",
    "atq",
    "nohup python3 server.py",
    "exec setsid python3 server.py",
    "setsid python3 server.py > log 2>&1 & wait",
    "setsid --fork python3 server.py",
    "python3 server.py & wait",
    "python3 server.py &\nwait $!",
    "python3 server.py & sleep infinity",
    'python3 metrics.py &\nexec python3 server.py "$@"',
    "python3 server.py & PID=$!\ntail -f log --pid $PID",
    "python3 server.py 2>&1 >&2 &> log",
    "python3 server.py &>> log",
    'python3 server.py <<< "docker run -d"',
    "a && b",
    "((a & b)); x=$((1 & 2)); exec python3 server.py",
    'export A="a & b"',
    "trap 'kill $!' EXIT; python3 server.py",
    "echo \\\ndocker run -d",
]


@pytest.mark.parametrize("script", INNOCENT)
def test_a_launch_that_keeps_what_it_starts_is_not(script: str) -> None:
    """Comments, quoted text, heredocs, paths, and what looks like a command or a `&`."""
    assert (complaints(script), left_behind(script)) == ((), None)


WORDS = st.from_regex(r"[A-Za-z0-9_./,:@%+-]{1,12}", fullmatch=True)
DANGEROUS = st.sampled_from([script.replace("\n", "; ") for script, _ in DETACHING])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=6), max_size=6))
def test_a_program_with_plain_words_never_complains(commands: list[list[str]]) -> None:
    """Whatever the words are, as long as the program is one's own."""
    assert complaints("\n".join(" ".join(["python3", *said]) for said in commands)) == ()


@given(DANGEROUS)
def test_what_is_quoted_commented_or_a_document_never_complains(script: str) -> None:
    """It is text there, and nothing runs it."""
    quoted = script.replace("'", "")
    assert (
        complaints(f"echo '{quoted}'\n# {script}\ncat <<'THE END'\n{script}\nTHE END\nexec python3 x") == ()
    )


@given(DANGEROUS, st.lists(WORDS, max_size=4))
def test_a_dangerous_command_complains_after_any_innocent_one(script: str, said: list[str]) -> None:
    """What stands before does not hide it."""
    assert [2] == [complaint.line for complaint in complaints(f"{' '.join(['echo', *said])}\n{script}")]


@given(st.text(alphabet=st.sampled_from("ab \n\t;&|<>(){}[]'\"`$\\#=-E"), max_size=60))
def test_every_text_is_read_to_its_end(script: str) -> None:
    """A script that no shell would take is no reason to fail, or to hang."""
    complaints(script)
    words(script)


@pytest.mark.parametrize("nested", ["$(", "${", "a=(", "(", "`\\", '"$(', "eval ", "<("])
def test_a_script_nested_without_end_is_read(nested: str) -> None:
    """It cannot exhaust the stack."""
    complaints(nested * 500 + "python3 server.py")


def test_the_words_of_a_script_are_without_quotes_comments_and_targets() -> None:
    """What the shell fills in stays as it is written."""
    script = 'A=1 exec x --port "$P" --a=b \\\n  --c "d e" 2>&1 > log # f\ny $(z 1)'
    assert words(script) == (
        "A=1",
        "exec",
        "x",
        "--port",
        "$P",
        "--a=b",
        "--c",
        "d e",
        "z",
        "1",
        "y",
        "$(z 1)",
    )
