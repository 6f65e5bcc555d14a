"""Hosts over SSH, with a real OpenSSH server: keys, ways, and links that break in the middle of a word."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_agent import errors, tail
from bisect_agent.hosts import Completed
from bisect_agent.hosts.address import Address
from bisect_agent.hosts.ssh import SshHost
from bisect_agent.hosts.trust import accept, offered
from tests.hosts.conformance import eventually, lives
from tests.hosts.sshd import Sshd, keygen, know, network, server

HASTE = 1.5
"""Seconds until a link is dead, for tests that wait for it."""
SLACK = 3.0
"""Seconds that a busy machine may add."""


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A server."""
    with server() as running:
        yield running


# --- who it is --------------------------------------------------------------------------------------


def test_a_host_is_called_as_it_was_written(sshd: Sshd) -> None:
    """Every sentence about it begins so."""
    assert "box" == sshd.host(address="ssh://box").name


def test_it_tells_where_its_user_lives_and_which_python_answers(sshd: Sshd) -> None:
    """So that our files find a place there, and our programs a Python."""
    host = sshd.host()
    assert (str(Path.home()), True) == (host.home, os.access(host.python, os.X_OK))


@given(
    user=st.none() | st.from_regex(r"[a-z_][a-z0-9._-]{0,8}", fullmatch=True),
    host=st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True),
    port=st.none() | st.integers(1, 65535),
    scheme=st.sampled_from(["", "ssh://"]),
)
def test_an_address_has_a_host_and_maybe_a_user_and_a_port(
    user: str | None, host: str, port: int | None, scheme: str
) -> None:
    """Whatever is left out is left to ssh_config."""
    text = scheme + (f"{user}@" if user else "") + host + (f":{port}" if port else "")
    assert Address(host, user, port) == Address.parse(text)


@pytest.mark.parametrize("text", ["", "ssh://", "-oProxyCommand=id", "a b", "h:0", "h:65536", "h/p", "u@v@h"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Before anything is reached."""
    with pytest.raises(errors.UsageError, match="is no address of a host"):
        Address.parse(text)


def test_an_ipv6_address_stands_in_brackets() -> None:
    """It has colons of its own."""
    assert Address("::1", "me", 22) == Address.parse("ssh://me@[::1]:22")


# --- keys of hosts ----------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_until_a_person_accepts_it(sshd: Sshd) -> None:
    """The error shows the fingerprint, and the command that accepts it."""
    config = sshd.config(UserKnownHostsFile=str(sshd.folder / "new" / "known_hosts"))
    fingerprint = _fingerprint(sshd.folder / "hostkey.pub")
    with pytest.raises(errors.TargetError, match="is not known: ssh-ed25519") as refused:
        sshd.host(config).stat("/")
    assert fingerprint in refused.value.message
    assert "bisect-agent trust box" == refused.value.remedy
    offer = offered("box", config)
    assert ("unknown", f"ssh-ed25519 {fingerprint}") == (offer.state, offer.key)
    accept(offer)
    assert "known" == offered("box", config).state
    assert sshd.host(config).stat("/")


def test_a_changed_key_is_never_accepted(sshd: Sshd, tmp_path: Path) -> None:
    """It says so aloud, and `trust` does not write it either."""
    keygen(tmp_path / "other")
    know(tmp_path / "known_hosts", sshd.port, tmp_path / "other.pub")
    config = sshd.config(UserKnownHostsFile=str(tmp_path / "known_hosts"))
    with pytest.raises(errors.TargetError, match="HAS CHANGED") as refused:
        sshd.host(config).stat("/")
    assert "ssh-keygen -R" in refused.value.remedy
    assert not isinstance(refused.value, errors.Unreachable)
    with pytest.raises(errors.TargetError, match="holds another key"):
        accept(offered("box", config))


def test_a_name_may_have_several_keys(sshd: Sshd, tmp_path: Path) -> None:
    """One name may stand for several machines; hashed names count too."""
    keygen(tmp_path / "other")
    know(tmp_path / "known_hosts", sshd.port, tmp_path / "other.pub")
    with (tmp_path / "known_hosts").open("a") as file:
        file.write((sshd.folder / "known_hosts").read_text())
    hash_names = ("/usr/bin/env", "ssh-keygen", "-q", "-H", "-f", tmp_path / "known_hosts")
    subprocess.run(hash_names, check=True, capture_output=True)
    hashed = (tmp_path / "known_hosts").read_text()
    assert "127.0.0.1" not in hashed
    (tmp_path / "known_hosts").write_text(f"broken line\n{hashed}")
    assert sshd.host(sshd.config(UserKnownHostsFile=str(tmp_path / "known_hosts"))).stat("/")


# --- who we are -------------------------------------------------------------------------------------


def test_a_key_that_is_not_accepted_is_named(sshd: Sshd, tmp_path: Path) -> None:
    """With the command that would make it accepted."""
    keygen(tmp_path / "id")
    with pytest.raises(errors.TargetError, match=f"refused {tmp_path}/id") as refused:
        sshd.host(sshd.config(IdentityFile=str(tmp_path / "id"))).stat("/")
    assert refused.value.remedy.startswith("ssh-copy-id")


def test_a_locked_key_works_through_the_agent(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the error says what to do."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    shutil.copy(sshd.folder / "id", tmp_path / "id")
    subprocess.run(
        ("/usr/bin/env", "ssh-keygen", "-q", "-p", "-N", "secret", "-f", tmp_path / "id"), check=True
    )
    config = sshd.config(IdentityFile=str(tmp_path / "id"))
    with pytest.raises(errors.TargetError, match="is locked by a passphrase") as refused:
        sshd.host(config).stat("/")
    assert "ssh-add" in refused.value.remedy
    with subprocess.Popen(
        ("/usr/bin/env", "ssh-agent", "-D", "-a", tmp_path / "agent"), stdout=subprocess.DEVNULL
    ) as agent:
        eventually((tmp_path / "agent").exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(("/usr/bin/env", "ssh-add", "-q", sshd.folder / "id"), check=True, capture_output=True)
        shutil.copy(sshd.folder / "id.pub", tmp_path / "id.pub")
        assert sshd.host(config).stat("/")
        agent.terminate()


# --- the way ----------------------------------------------------------------------------------------


def test_the_way_may_lead_through_a_jump_host(sshd: Sshd) -> None:
    """As ssh_config says, in files that it includes too."""
    (sshd.folder / "jump").write_text(f"Host inner\n  ProxyJump box\n{sshd.config('plain').read_text()}")
    config = sshd.folder / "including"
    config.write_text("Include jump\n")
    assert 3 == sshd.host(config, "inner").run(("sh", "-c", "exit 3"), timeout=10).returncode


def test_a_jump_that_leads_back_is_a_mistake(sshd: Sshd) -> None:
    """The host stands for its own jump host."""
    with pytest.raises(errors.TargetError, match="ProxyJump leads back"):
        SshHost("box", config=sshd.config(ProxyJump="box"))


def test_another_kind_of_proxy_is_refused(sshd: Sshd) -> None:
    """Rather than a way that was not meant."""
    with pytest.raises(errors.TargetError, match="ProxyCommand"):
        SshHost("box", config=sshd.config(ProxyCommand="nc %h %p"))


def test_a_name_without_an_address_is_a_sentence(sshd: Sshd) -> None:
    """Nothing is known of the target, so nothing is concluded."""
    with pytest.raises(errors.Unreachable, match=r"box: there is no address of a\.invalid"):
        sshd.host(sshd.config(HostName="a.invalid")).stat("/")


def test_a_port_that_nobody_listens_on_is_a_sentence(sshd: Sshd) -> None:
    """It names host and port."""
    with pytest.raises(
        errors.Unreachable, match=r"box: 127\.0\.0\.1 port 1 cannot be reached: Connection refused"
    ):
        sshd.host(sshd.config(Port="1")).stat("/")


def test_a_server_of_another_kind_is_a_sentence(sshd: Sshd) -> None:
    """Whatever it says, or does not."""
    with subprocess.Popen(
        (sys.executable, "-c", _SPEAKS_HTTP), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as stranger:
        assert stranger.stdout
        host = sshd.host(sshd.config(Port=stranger.stdout.readline().decode().strip()))
        with pytest.raises(errors.Unreachable, match="accepts connections, but does not let us in"):
            host.stat("/")


def test_a_target_without_python_is_a_sentence(sshd: Sshd) -> None:
    """With what the shell said."""
    host = SshHost("box", config=sshd.config(), python="no-such-python")
    with pytest.raises(errors.TargetError, match=r"does not start there \(exit status 127\): .*not found"):
        host.stat("/")
    host.close()


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "fish", "tcsh"])
def test_any_login_shell_will_do_and_may_talk(shell: str) -> None:
    """It only starts Python; what it prints before is no answer of ours."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    talk = f'{program} -c \'printf "welcome to = . +"\'; exec {program} -c "$SSH_ORIGINAL_COMMAND"'
    with server(ForceCommand=talk) as talkative:
        assert Completed(3, b"", b"") == talkative.host().run(("sh", "-c", "exit 3"), timeout=10)


def test_few_sessions_mean_that_commands_wait_for_each_other() -> None:
    """One for files and one for commands are enough."""
    with server(MaxSessions="2") as narrow:
        host = narrow.host()
        said: list[bytes] = []
        command = ("sh", "-c", "sleep 0.1; echo here")
        threads = [
            threading.Thread(target=lambda: said.append(host.run(command, timeout=10).stdout))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [b"here\n"] * 3 == said


def test_a_single_session_is_too_few() -> None:
    """The error names the setting."""
    with server(MaxSessions="1") as narrow, pytest.raises(errors.TargetError, match="one session") as refused:
        narrow.host().run(("true",), timeout=10)
    assert "MaxSessions" in refused.value.remedy


# --- links that break -------------------------------------------------------------------------------


def test_a_command_that_may_have_run_is_not_run_again(sshd: Sshd, tmp_path: Path) -> None:
    """The end of the stream is not the end of the command; afterwards the host can be asked again."""
    host = sshd.host()
    runs = tmp_path / "runs"
    failed = _in_thread(
        lambda: host.run(("sh", "-c", f"echo run >>{runs}; sleep 0.4; echo end >>{runs}"), timeout=30)
    )
    eventually(runs.exists)
    sshd.cut()
    error = failed()
    assert isinstance(error, errors.Unreachable)
    assert "no answer to `run sh`: the connection was ended" in str(error)
    assert 0 == host.run(("true",), timeout=10).returncode
    eventually(lambda: runs.read_text().endswith("end\n"))
    assert "run\nend\n" == runs.read_text()


def test_reading_goes_on_where_the_link_broke(sshd: Sshd, tmp_path: Path) -> None:
    """Every byte comes, once and in order, over any number of connections."""
    data = os.urandom(1 << 19)
    (tmp_path / "log").write_bytes(data)
    host = sshd.host()
    read = b""
    while len(read) < len(data):
        if len(read) % (1 << 18) == 1 << 16:
            sshd.cut()
        more = host.read(str(tmp_path / "log"), len(read), 1 << 16)
        assert more
        read += more
    assert data == read


def test_what_was_started_outlives_the_link(sshd: Sshd) -> None:
    """A server does not hang on the connection that started it, and the start returns at once."""
    host = sshd.host()
    begun = time.monotonic()
    pid = int(host.run(("sh", "-c", "setsid sleep 60 & echo $!"), timeout=10).stdout)
    assert time.monotonic() - begun < SLACK
    sshd.cut()
    assert host.stat("/")
    assert lives(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_link_on_which_nothing_comes_back_is_dead_soon(sshd: Sshd) -> None:
    """For who reads and for who waits for a command, though every byte that we send is acknowledged."""
    reader, asker = sshd.host(silence=HASTE), sshd.host(silence=HASTE)
    assert 0 == asker.run(("true",), timeout=10).returncode
    assert reader.stat("/")
    failed = _in_thread(lambda: asker.run(("sleep", "60"), timeout=60))
    with sshd.hole():
        begun = time.monotonic()
        with pytest.raises(
            errors.Unreachable, match=r"no answer to `look at /`: nothing was heard for 1.5 s"
        ):
            reader.stat("/")
        assert isinstance(failed(), errors.Unreachable)
        assert time.monotonic() - begun < HASTE + SLACK
        assert reader.stat("/")


def test_a_network_that_swallows_everything_is_noticed(tmp_path: Path) -> None:
    """Nobody says that the link is dead: no packet comes back. When some do again, so does the host."""
    with network() as net, server(net) as behind:
        host = behind.host(silence=HASTE)
        part = host.put(str(tmp_path / "file"), b"data")
        with net.hole():
            begun = time.monotonic()
            with pytest.raises(errors.Unreachable):
                host.run(("sleep", "60"), timeout=60)
            assert time.monotonic() - begun < HASTE + SLACK
        eventually(lambda: answers(host, part))


def answers(host: SshHost, path: str) -> bool:
    """Whether a host can be asked again."""
    try:
        return host.stat(path) is not None
    except errors.Unreachable:
        return False


def test_a_long_silent_command_is_no_dead_link(sshd: Sshd) -> None:
    """It is heard of all the time."""
    host = sshd.host(silence=0.8)
    assert b"done\n" == host.run(("sh", "-c", "sleep 1.1; echo done"), timeout=10).stdout


def test_a_dead_link_behind_a_jump_host_is_noticed(sshd: Sshd) -> None:
    """The connection to the jump host is well; what is sent is more than any buffer on the way holds."""
    (sshd.folder / "far").write_text(f"Host inner\n  ProxyJump box\n{sshd.config('plain').read_text()}")
    host = sshd.host(sshd.folder / "far", "inner", silence=HASTE)
    before = sshd.sessions()
    host.stat("/")
    serving = [pid for pid in sshd.sessions() if pid not in before]
    with sshd.hole(serving[len(serving) // 2 :]):  # those that began later
        begun = time.monotonic()
        with pytest.raises(errors.Unreachable, match="no answer to `write"):
            host.put("/nowhere/file", bytes(8 << 20))
        assert time.monotonic() - begun < HASTE + SLACK


def test_what_a_dead_link_was_asked_is_not_done_later(sshd: Sshd, tmp_path: Path) -> None:
    """The request lies in a frozen session; the next link ends whoever would carry it out."""
    others = set(sshd.sessions())
    host, path = sshd.host(silence=HASTE), tmp_path / "file"
    part = host.put(str(path), b"late")
    frozen = set(sshd.sessions()) - others
    with sshd.hole(sorted(frozen)):
        with pytest.raises(errors.Unreachable):
            host.rename(part, str(path))
        assert host.stat(part)
    eventually(lambda: not frozen & set(sshd.sessions()))
    assert not path.exists()


def test_another_machine_of_the_same_name_is_not_the_target(tmp_path: Path) -> None:
    """What runs on the first one would be missed on the second, and started there again."""
    if os.geteuid():
        pytest.skip("only root can make a machine of another name")
    node = tmp_path / "node"
    as_node = f'hostname $(cat {node}); eval "$SSH_ORIGINAL_COMMAND"'
    with server(ForceCommand=f"unshare --uts sh -c '{as_node}'") as balanced:
        node.write_text("gpu-a")
        host = balanced.host()
        assert b"gpu-a\n" == host.run(("uname", "-n"), timeout=10).stdout
        balanced.cut()
        node.write_text("gpu-b")
        with pytest.raises(errors.TargetError, match="now gpu-b answers, not gpu-a"):
            host.stat("/")


# --- how fast ---------------------------------------------------------------------------------------


def test_a_fast_log_is_followed_closely(sshd: Sshd, tmp_path: Path) -> None:
    """20 MB/s, seen within 2 s, a megabyte at a time."""
    first = b"# the attempt\n"
    log = tmp_path / "log"
    with subprocess.Popen((sys.executable, "-c", _WRITES, log, first)) as writer:
        eventually(log.exists)
        follower = tail.Tail(sshd.host(), str(log), first)
        behind, seen = 0.0, 0
        while seen < 20 << 20:
            poll = follower.poll()
            if isinstance(poll, tail.NewBytes):
                seen += len(poll.data)
                stamp = poll.data.rfind(b"\n", 0, poll.data.rfind(b"\n"))
                behind = max(behind, time.time() - float(poll.data[stamp + 1 : stamp + 18]))
        writer.kill()
    assert behind < 2


# --- the far side -----------------------------------------------------------------------------------


def test_an_old_python_can_read_the_far_side() -> None:
    """Targets have what they have."""
    source = resources.files("bisect_agent.hosts").joinpath("far.py").read_text()
    assert ast.parse(source, feature_version=(3, 6))


_SPEAKS_HTTP = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    with server.accept()[0] as connection:
        connection.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
"""

_WRITES = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as log:
    log.write(sys.argv[2].encode())
    began, written = time.monotonic(), 0
    while True:
        block = b"".join(b"%017.6f %s\\n" % (time.time(), b"x" * 981) for _ in range(200))
        log.write(block)
        written += len(block)
        time.sleep(max(0, began + written / 20e6 - time.monotonic()))
"""


def _fingerprint(public: Path) -> str:
    shown = subprocess.run(
        ("/usr/bin/env", "ssh-keygen", "-l", "-f", public), check=True, capture_output=True, text=True
    )
    return shown.stdout.split()[1]


def _in_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Begins a call, and gives what waits for its error or its answer."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except errors.BisectError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def ended() -> object:
        thread.join()
        return found[0]

    return ended
