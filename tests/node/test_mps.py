"""MPS control daemons: which are trusted, who can be drained by them, and how a drain ends, with real processes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from tests.node.support import DEAD_LEADER, cannot_run, need_root, no_threads, python, sleepers, stat_line, wait_until
from tests.stub.mps import SOCKETS, MpsDaemon, build_control
from watchdog.clock import Bell
from watchdog.core.model import Now, ProcessKey
from watchdog.core.mps import DrainableClient, Drained
from watchdog.core.policy import Draining
from watchdog.node.mps import MpsControl
from watchdog.node.mps_control import ControlDaemon, InvalidAnswerError, find_program, inspect_mps, resolve_below
from watchdog.node.mps_limits import parse_limit, parse_limits
from watchdog.node.mps_pipes import (
    MpsError,
    NoPipeError,
    SilentError,
    UntrustedPipeError,
    check_listener,
    check_pipe,
    find_pipes,
)
from watchdog.node.procfs import Procfs

OURS = os.getuid()
SERVER, OTHER_SERVER = 4000000, 4000001
GPU = "GPU-11111111-0000-0000-0000-000000000000"


def key_of(pid: int) -> ProcessKey:
    return ProcessKey(pid=pid, start_ticks=Procfs().stat(pid).start_ticks)


def at(seconds: float) -> Now:
    return Now(boottime_s=seconds, wall_s=seconds, boot_id="b")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_control(tmp_path_factory.mktemp("bin"))


def is_busy() -> bool:
    """Whether a control's thread is at work."""
    return any(thread.name == "mps" for thread in threading.enumerate())


@dataclass
class Rig:
    """A control daemon on a trusted pipe, real processes as its clients, and what drains them."""

    daemon: MpsDaemon
    pipe: Path
    control: MpsControl
    bell: Bell
    keys: list[ProcessKey]
    settings: Draining
    now_s: float = 0.0
    gpus: dict[ProcessKey, frozenset[str]] = field(default_factory=dict)

    def query(self, *keys: ProcessKey, after_s: float = 30.0) -> None:
        """Refresh with these clients, or all, and wait for what comes of it."""
        self.now_s += after_s
        listed = keys or tuple(self.keys)
        self.control.refresh({key: self.gpus.get(key, frozenset()) for key in listed}, at(self.now_s), gpus=1)
        wait_until(lambda: not is_busy())

    def drain(self, *clients: DrainableClient) -> list[tuple[Drained, str]]:
        """Drain these clients, or all, and wait for the results."""
        clients = clients or self.control.drainable
        self.control.drain(7, clients)
        wait_until(lambda: not is_busy())
        results = self.control.pop_results()
        assert [result.request_id for result in results] == [7] * len(clients)
        return [(result.drained, result.reason) for result in sorted(results, key=lambda result: result.key)]


@pytest.fixture
def rig(tmp_path: Path, program: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Its timeout is long, so that a slow machine changes no result; `impatient` gives a test one to wait for."""
    pipe = tmp_path / "mps" / "nvidia.com" / "gpu" / "pipe"
    timeout_s = getattr(request, "param", 30.0)
    settings = Draining(control=str(program), pipe=(f"{tmp_path}/mps/*/pipe",), timeout_s=timeout_s)
    bell, daemon = Bell(), MpsDaemon()
    with sleepers(2) as started, daemon.listen(pipe):
        keys = [key_of(process.pid) for process in started]
        daemon.servers = {SERVER: [key.pid for key in keys]}
        control = MpsControl(bell, Procfs(), settings, trusted_uid=OURS)
        yield Rig(daemon, pipe, control, bell, keys, settings)
        control.close()
        wait_until(lambda: not is_busy())
    bell.close()


IMPATIENT_S = 1.0
impatient = pytest.mark.parametrize("rig", [IMPATIENT_S], indirect=True)


def test_who_can_be_drained(rig: Rig) -> None:
    """Only processes that the driver lists as clients count, each with its server; no other PID does."""
    rig.daemon.servers = {SERVER: [rig.keys[0].pid, os.getpid()], OTHER_SERVER: [rig.keys[1].pid]}
    assert (rig.control.drainable, rig.control.gaps) == ((), ())
    rig.query()
    assert {(client.key, client.server_pid, client.pipe) for client in rig.control.drainable} == {
        (rig.keys[0], SERVER, str(rig.pipe)),
        (rig.keys[1], OTHER_SERVER, str(rig.pipe)),
    }
    assert (rig.bell.silence(), rig.control.gaps) == (True, ())
    rig.control.refresh({rig.keys[1]: frozenset()}, at(rig.now_s))
    assert [client.key for client in rig.control.drainable] == [rig.keys[1]]
    rig.control.refresh({}, at(rig.now_s))
    assert rig.control.drainable == ()


def test_how_often_a_daemon_is_asked(rig: Rig) -> None:
    """Equal clients are asked about every 30 s, changed ones after 2 s, and without clients nothing is asked."""
    commands = rig.daemon.commands
    rig.control.refresh({}, at(0))
    rig.query()
    asked = len(commands)
    for after_s, keys, is_asked in ((29, rig.keys, False), (1, rig.keys, True), (1, rig.keys[:1], False)):
        rig.query(*keys, after_s=after_s)
        assert (len(commands) > asked) is is_asked
        asked = len(commands)
    rig.query(*rig.keys[:1], after_s=1)
    assert len(commands) > asked
    assert rig.daemon.most_at_once == 1


def test_a_drain_takes_the_clients_work(rig: Rig) -> None:
    """Each client is drained by `terminate_client SERVER CLIENT`, one after the other, and `0` is success."""
    rig.query()
    rig.bell.silence()
    assert rig.drain() == [(Drained.DONE, "")] * 2
    assert [line for line in rig.daemon.commands if line.startswith("term")] == [
        f"terminate_client {SERVER} {key.pid}" for key in sorted(rig.keys)
    ]
    assert (rig.bell.silence(), rig.daemon.most_at_once) == (True, 1)
    assert rig.control.drainable == ()  # until they make contexts again


def _answer(answer: str) -> Callable[[Rig], None]:
    return lambda rig: rig.daemon.answers.update(terminate_client=answer)


def _move(rig: Rig) -> None:
    _answer("1\n")(rig)
    rig.daemon.servers = {OTHER_SERVER: [key.pid for key in rig.keys]}


REFUSED: dict[str, tuple[Callable[[Rig], object], Drained, str]] = {
    "another answer": (_answer("805\n"), Drained.REFUSED, "answered '805'"),
    "a message": (_answer("Failed\nto terminate\x1b[2J\n"), Drained.REFUSED, r"answered 'Failed to terminate\\x1b[2J'"),
    "no answer": (_answer(""), Drained.UNKNOWN, "answered ''"),
    "0 and more": (_answer("0\n0\n"), Drained.REFUSED, "answered '0 0'"),
    "too much": (_answer("0" * 100_000), Drained.UNKNOWN, "more than 65536 bytes"),
    "another server's": (_move, Drained.REFUSED, f"client of another server, {OTHER_SERVER}"),
    "silent": (
        lambda rig: setattr(rig.daemon, "silences", "terminate_client"),
        Drained.UNKNOWN,
        "did not answer terminate_client",
    ),
    "silent all along": (lambda rig: setattr(rig.daemon, "is_silent", True), Drained.REFUSED, "did not answer get_dev"),
    "gone": (lambda rig: (rig.pipe / "control").unlink(), Drained.REFUSED, "no MPS control daemon listens"),
    "no longer trusted": (lambda rig: rig.pipe.chmod(0o777), Drained.REFUSED, "is writable by other users"),
    "dead": (lambda rig: _bury(rig.pipe), Drained.REFUSED, "was not reached: Connection refused"),
}


def _bury(pipe: Path) -> None:
    """Leave a socket behind on which nobody listens."""
    (pipe / "control").unlink()
    script = "import socket; socket.socket(socket.AF_UNIX).bind('control')"
    subprocess.run(["python3", "-c", script], cwd=pipe, check=True)


@pytest.mark.parametrize(
    ("rig", "case"),
    [(IMPATIENT_S if "silent" in case else 30.0, case) for case in REFUSED],
    indirect=["rig"],
    ids=REFUSED,
)
def test_a_drain_that_fails(rig: Rig, case: str) -> None:
    """No other answer counts as success; after a failure nothing else is drained, and no process is left."""
    change, drained, why = REFUSED[case]
    rig.query()
    change(rig)
    (first, reason), second = rig.drain()
    assert (first, second[0]) == (drained, Drained.REFUSED)
    assert why in reason
    assert second[1] == f"not tried, because process {min(rig.keys).pid} could not be drained"
    assert len([line for line in rig.daemon.commands if line.startswith("term")]) <= 1
    assert {child.pid for child in psutil.Process().children()} == {key.pid for key in rig.keys}


def test_one_call_at_a_time(rig: Rig) -> None:
    """A drain behind a query waits for its answer, on the same thread, and is not sent if it is not wanted any more."""
    rig.query()
    client, gate, wanted = rig.control.drainable[0], threading.Event(), True
    rig.daemon.delay, asked = gate, len(rig.daemon.commands)
    rig.now_s += 30
    rig.control.refresh(dict.fromkeys(rig.keys, frozenset[str]()), at(rig.now_s))
    wait_until(lambda: len(rig.daemon.commands) > asked)
    assert rig.control.is_querying(client.pipe)
    rig.control.drain(1, (client,))
    rig.control.drain(2, (client,), lambda: wanted)
    wanted = False
    assert [thread.name for thread in threading.enumerate()].count("mps") == 1
    gate.set()
    wait_until(lambda: not is_busy())
    assert {result.request_id: result.drained for result in rig.control.pop_results()} == {
        1: Drained.DONE,
        2: Drained.REFUSED,
    }
    assert rig.daemon.most_at_once == 1


def test_a_drain_comes_before_the_next_query(rig: Rig) -> None:
    """Clients that come and go all the time, at a slow daemon, leave an action that has waited for a query its turn."""
    rig.query()
    for _ in range(2):
        rig.daemon.delay = threading.Event()
        rig.now_s += 3
        rig.control.refresh(dict.fromkeys(rig.keys[:1], frozenset[str]()), at(rig.now_s))
        wait_until(lambda: rig.control.is_querying(str(rig.pipe)))
        rig.daemon.delay.set()
        wait_until(lambda: not is_busy())
        rig.bell.silence()
        asked = len(rig.daemon.commands)
        rig.query(after_s=3)
        assert len(rig.daemon.commands) == asked
        rig.query(after_s=3)
        assert len(rig.daemon.commands) > asked


@impatient
def test_servers(rig: Rig) -> None:
    """A server that a daemon has named stays known while that daemon is silent, by its start time too."""
    server = key_of(os.getpid())
    rig.daemon.servers = {server.pid: [rig.keys[0].pid], SERVER: []}
    for is_silent in (False, True):
        rig.daemon.is_silent = is_silent
        rig.query()
        assert rig.control.servers == {server}
    rig.control.configure(None)
    assert rig.control.servers == frozenset()


def test_a_client_that_needs_no_drain(rig: Rig) -> None:
    """A client that has ended, whose PID is another process's, or that its server no longer has, may be ended."""
    rig.query()
    first, second = rig.control.drainable
    recycled = DrainableClient(key=ProcessKey(pid=first.key.pid, start_ticks=1), server_pid=SERVER, pipe=first.pipe)
    assert rig.drain(recycled) == [(Drained.DONE, "it had ended by then")]
    assert not any(line.startswith("term") for line in rig.daemon.commands)
    rig.daemon.servers[SERVER].remove(second.key.pid)
    assert rig.drain(second) == [(Drained.DONE, "it is no longer an MPS client")]


@pytest.mark.parametrize(
    ("answer", "is_again"),
    [(None, True), ("Unknown command\n", False), ("[0] 00:00.0, NVIDIA H100\n{pid}\n", False), ("", False)],
)
def test_a_drained_client_is_asked_for_again_only_with_new_contexts(
    rig: Rig, answer: str | None, is_again: bool
) -> None:
    """It stays listed; unless its contexts are known to be new, a second request would stop its neighbours' work."""
    client = rig.keys[0]
    rig.query()
    if answer is not None:
        rig.daemon.answers["get_device_client_list"] = answer.format(pid=client.pid)
    for made in ([2, 3], [2, 4]):
        (drained,) = (each for each in rig.control.drainable if each.key == client)
        assert rig.drain(drained) == [(Drained.DONE, "")]
        rig.query()
        assert client.pid in rig.daemon.servers[SERVER]
        assert client not in {each.key for each in rig.control.drainable}
        ((refused, why),) = rig.drain(drained)
        assert (refused, "asked for before" in why) == (Drained.REFUSED, True)
        rig.daemon.contexts[client.pid] = made
        rig.query()
        assert (client in {each.key for each in rig.control.drainable}) is is_again
        if not is_again:
            break
    assert rig.daemon.stalled == []


@pytest.mark.parametrize("rig", [IMPATIENT_S], indirect=True)
@pytest.mark.parametrize("how", ["no answer", "an earlier daemon"])
def test_a_client_that_may_have_been_asked_for(rig: Rig, how: str) -> None:
    """It is neither drained nor asked for again, and named with what to do, until it is known to have new contexts."""
    client = rig.keys[0]
    rig.query()
    if how == "no answer":
        (known,) = (each for each in rig.control.drainable if each.key == client)
        rig.daemon.silences = "terminate_client"
        assert [drained for drained, _ in rig.drain(known)] == [Drained.UNKNOWN]
        rig.daemon.silences = ""
    else:
        rig.control.asked.assume_asked([client])
    asked = [line for line in rig.daemon.commands if line.startswith("term")]
    rig.query()
    assert client not in {each.key for each in rig.control.drainable}
    (gap,) = rig.control.gaps
    assert (gap.what, gap.problem.remedy) == (
        f"MPS client {client.pid}", f"end it by hand (kill {client.pid}), or wait until it ends",
    )  # fmt: skip
    rig.daemon.contexts[client.pid] = [1, 2]
    rig.query()
    assert client in {each.key for each in rig.control.drainable}
    assert rig.control.gaps == ()
    assert [line for line in rig.daemon.commands if line.startswith("term")] == asked


def test_a_context_that_is_made_during_the_drain(rig: Rig) -> None:
    """Whether it was ended too is not known, so the client is neither drained nor asked for again."""
    rig.query()
    client = rig.control.drainable[0]
    rig.daemon.afterwards = lambda pid: rig.daemon.contexts.update({pid: [1, 2]})
    assert rig.drain(client) == [(Drained.UNKNOWN, "it has made another context at the same moment")]
    rig.query()
    assert client not in rig.control.drainable


def test_a_drained_client_is_watched_closely(rig: Rig) -> None:
    """It may become a client again at any moment, and must not be signalled then."""
    rig.query()
    (drained, _), _ = rig.drain()
    assert drained is Drained.DONE
    rig.query(after_s=2)
    asked = len(rig.daemon.commands)
    rig.query(after_s=2)
    assert len(rig.daemon.commands) > asked


def test_a_client_whose_first_thread_has_ended(rig: Rig) -> None:
    """It still runs, so it must be drained before any signal."""
    with python(DEAD_LEADER) as process:
        client = key_of(process.pid)
        wait_until(lambda: Procfs().stat(client.pid).exiting)
        rig.daemon.servers[SERVER].append(client.pid)
        rig.query(client)
        rig.drain(rig.control.drainable[0])
        assert f"terminate_client {SERVER} {client.pid}" in rig.daemon.commands


def test_a_stopped_client(rig: Rig) -> None:
    """Draining it would stop its neighbours' work: it can't be drained until it continues."""
    rig.query()
    client = rig.control.drainable[0]
    os.kill(client.key.pid, signal.SIGSTOP)
    ((refused, why),) = rig.drain(client)
    assert (refused, "it is stopped" in why) == (Drained.REFUSED, True)
    for number, can in ((0, False), (signal.SIGCONT, True)):
        os.kill(client.key.pid, number)
        wait_until(lambda can=can: (Procfs().stat(client.key.pid).state != "T") is can)  # type: ignore[misc]
        rig.query()
        assert (client in rig.control.drainable) is can
        assert [gap.what for gap in rig.control.gaps] == ([] if can else [f"MPS client {client.key.pid}"])
    assert rig.daemon.stalled == []


@pytest.mark.parametrize("silent", ["get_server_list", "get_client_list"])
@pytest.mark.parametrize("answer", ["", "Server not responding\n"])
def test_an_empty_list_is_no_proof(rig: Rig, silent: str, answer: str) -> None:
    """A client that is in no list may still be one, unless its server lists others or has ended."""
    with sleepers(1) as (server,):
        rig.daemon.servers = {server.pid: [key.pid for key in rig.keys]}
        rig.query()
        first, second = rig.control.drainable
        rig.daemon.answers = {"terminate_client": answer, silent: ""}
        assert [drained for drained, _ in rig.drain(first)] == [Drained.UNKNOWN]
        server.kill()
        server.wait()
        assert rig.drain(second) == [(Drained.DONE, "its MPS server had ended by then")]


@impatient
def test_a_daemon_that_hangs_holds_up_nobody(rig: Rig, tmp_path: Path) -> None:
    """A drain returns at once, and another pipe's daemon is asked while the first one does not answer."""
    other = MpsDaemon(servers={SERVER + 5: [rig.keys[1].pid]})
    rig.daemon.servers = {SERVER: [rig.keys[0].pid]}
    with other.listen(tmp_path / "mps" / "nvidia.com" / "gpu.shared" / "pipe"):
        rig.query()
        rig.daemon.silences = "terminate_client"
        rig.control.drain(1, rig.control.drainable)
        results: dict[ProcessKey, Drained] = {}
        while len(results) < 2:
            results.update({result.key: result.drained for result in rig.control.pop_results()})
    assert results == {rig.keys[0]: Drained.UNKNOWN, rig.keys[1]: Drained.DONE}


def test_a_client_that_two_daemons_name(rig: Rig, tmp_path: Path) -> None:
    """Point 36: whose client it is is not known, so that it can't be drained; others can."""
    with MpsDaemon(servers={OTHER_SERVER: [rig.keys[0].pid]}).listen(tmp_path / "mps/nvidia.com/gpu.shared/pipe"):
        rig.query()
        assert [client.key for client in rig.control.drainable] == [rig.keys[1]]


def test_without_a_thread_it_is_asked_again(rig: Rig) -> None:
    """A node that has no room for another thread at the moment does not end draining for good."""
    with no_threads("mps"):
        rig.control.refresh(dict.fromkeys(rig.keys, frozenset()), at(rig.now_s))
    rig.query(after_s=0.1)
    assert len(rig.control.drainable) == 2
    with no_threads("mps"):
        rig.control.drain(7, rig.control.drainable)
    results = rig.control.pop_results()
    assert [(result.drained, "no thread" in result.reason) for result in results] == [(Drained.REFUSED, True)] * 2
    assert rig.bell.silence()
    with no_threads("mps", after=1):  # that of the search
        rig.query()
    rig.query(after_s=2.0)
    assert rig.drain() == [(Drained.DONE, "")] * 2


@pytest.mark.slow
@impatient
def test_back_off(rig: Rig) -> None:
    """A daemon that does not answer is reported, offers nobody, and is asked at ever longer intervals."""
    rig.query()
    rig.daemon.is_silent = True
    rig.query()
    assert rig.control.drainable == ()
    (gap,) = rig.control.gaps
    assert (gap.reason.value, gap.what) == ("mps", str(rig.pipe))
    assert "did not answer get_server_list within 1s" in gap.problem.cause
    counts = []
    for _ in range(8):
        before = len(rig.daemon.commands)
        rig.query(after_s=30)
        counts.append(len(rig.daemon.commands) - before)
    assert counts == [1, 1, 1, 0, 1, 0, 0, 1]
    rig.daemon.is_silent = False
    rig.query(after_s=400)
    assert (len(rig.control.drainable), rig.control.gaps) == (2, ())


@pytest.mark.parametrize("answer", ["\x00\xff\n", "Not a list\n", "0\n", "-5\n", f"{2**22 + 1}\n", "9" * 70000])
def test_garbage(rig: Rig, answer: str) -> None:
    """An answer that is no list of PIDs is reported and offers nobody."""
    rig.daemon.answers["get_client_list"] = answer
    rig.query()
    (gap,) = rig.control.gaps
    assert rig.control.drainable == ()
    assert "answered get_client_list 4000000 with" in gap.problem.cause
    assert gap.problem.cause.isprintable()
    assert len(str(gap.problem)) < 500


def test_a_server_that_ends_between_two_questions(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of the other servers can be drained all the same, and nothing is reported."""
    rig.daemon.servers = {OTHER_SERVER: [rig.keys[0].pid], SERVER: [rig.keys[1].pid]}

    def answer(command: list[str]) -> str:
        if command == ["get_client_list", str(OTHER_SERVER)]:
            del rig.daemon.servers[OTHER_SERVER]
            return "Server not found\n"
        return MpsDaemon.answer(rig.daemon, command)

    monkeypatch.setattr(rig.daemon, "answer", answer)
    rig.query()
    assert ([client.key for client in rig.control.drainable], rig.control.gaps) == ([rig.keys[1]], ())


def test_what_is_reported_without_a_daemon(tmp_path: Path, program: Path) -> None:
    """No program, no pipe and a pipe that others can write to are each a gap with a remedy; other policies, none."""
    bell, key = Bell(), key_of(os.getpid())
    pipe = tmp_path / "pipe"
    absent = Draining(control=f"{tmp_path}/none", pipe=(str(pipe),))
    control = MpsControl(bell, Procfs(), absent, trusted_uid=OURS)

    def causes(seconds: float) -> list[str]:
        control.refresh(frozenset({key}), at(seconds))
        wait_until(lambda: not is_busy())
        assert all(gap.problem.remedy for gap in control.gaps)
        return [gap.problem.cause for gap in control.gaps]

    assert causes(0) == [f"there is no MPS control program: {tmp_path}/none"]
    control.configure(Draining(control=str(program), pipe=(str(pipe),)))
    assert causes(10) == [f"no MPS control daemon was found: none listens in {pipe}"]
    with MpsDaemon().listen(pipe):
        pipe.chmod(0o775)
        assert causes(50) == [f"the MPS pipe is not trusted: {pipe} is writable by other users"]
    control.configure(None)
    assert causes(90) == []
    bell.close()


def test_doctor_asks_each_daemon(tmp_path: Path, program: Path) -> None:
    """What doctor checks: the program, each pipe, and each daemon's answer; a daemon that was not asked is not ok."""
    living = [1, os.getpid()]  # in a container no other PID is sure to be there
    good, silent, odd = MpsDaemon(servers={5: living}), MpsDaemon(is_silent=True), MpsDaemon(servers={0: []})
    settings = Draining(control=str(program), pipe=(f"{tmp_path}/*",), timeout_s=0.3)
    pipes = [tmp_path / name for name in ("good", "silent", "odd", "open")]
    with good.listen(pipes[0]), silent.listen(pipes[1]), odd.listen(pipes[2]), MpsDaemon().listen(pipes[3]):
        pipes[3].chmod(0o777)
        (tmp_path / "empty").mkdir()
        found = inspect_mps(settings, OURS)
        without = inspect_mps(replace(settings, control="/none"), OURS)
        newer = tmp_path / "v3"
        newer.write_text("#!/bin/sh\necho 'usage: nvidia-cuda-mps-control <module> <verb>'\nexit 1\n")
        newer.chmod(0o755)
        other = inspect_mps(replace(settings, control=str(newer)), OURS).daemons[str(pipes[0])]
    states = {Path(path).name: each if isinstance(each, int) else type(each) for path, each in found.daemons.items()}
    assert states == {"good": 2, "silent": SilentError, "odd": InvalidAnswerError, "open": UntrustedPipeError}
    assert (found.program, found.no_program) == (str(program), None)
    assert (without.program, str(pipes[0]) in without.daemons, without.daemons[str(pipes[0])]) == ("", True, None)
    assert without.no_program is not None
    assert isinstance(other, InvalidAnswerError)
    assert "protocol 3" in other.problem.remedy


def _link(pipe: Path) -> Path:
    link = pipe.parent / "link"
    link.symlink_to(pipe)
    return link


def _give(path: Path) -> None:
    need_root()
    os.chown(path, 65534, 65534, follow_symlinks=False)


def _give_socket(pipe: Path) -> None:
    pipe.chmod(0o1777)
    _give(pipe / "control")


def _control(pipe: Path, *, is_file: bool = False) -> None:
    """Remove the socket, or put a file in its place."""
    (pipe / "control").unlink()
    if is_file:
        (pipe / "control").touch()


TRUST: dict[str, tuple[Callable[[Path], object], type[MpsError] | None, str]] = {
    "as root made it": (lambda _: None, None, ""),
    "sticky": (lambda pipe: pipe.chmod(0o1777), None, ""),
    "sticky, another's socket": (_give_socket, UntrustedPipeError, "to user 65534"),
    "group-writable": (lambda pipe: pipe.chmod(0o775), UntrustedPipeError, "writable by other users"),
    "writable above": (lambda pipe: pipe.parent.chmod(0o757), UntrustedPipeError, "writable by other users"),
    "another's": (_give, UntrustedPipeError, "belongs to user 65534"),
    "another's above": (lambda pipe: _give(pipe.parent), UntrustedPipeError, "belongs to user 65534"),
    "a link": (_link, UntrustedPipeError, "link is a link"),
    "a link above": (lambda pipe: _link(pipe.parent) / "pipe", UntrustedPipeError, "link is a link"),
    "no socket": (lambda pipe: _control(pipe, is_file=True), UntrustedPipeError, "control is no socket"),
    "no daemon": (_control, NoPipeError, "no MPS control daemon listens"),
    "absent": (lambda pipe: pipe / "below", NoPipeError, "no MPS control daemon listens"),
    "relative": (lambda _: Path("mps/pipe"), UntrustedPipeError, "not an absolute path"),
}


@pytest.mark.parametrize("case", TRUST)
def test_trust(tmp_path: Path, case: str) -> None:
    """A pipe is trusted only if nobody but root can have made or can replace any part of its path."""
    prepare, error, why = TRUST[case]
    pipe = tmp_path / "mps" / "pipe"
    with MpsDaemon().listen(pipe):
        path = prepare(pipe)
        path = str(path if isinstance(path, Path) else pipe)
        if error is None:
            assert check_pipe(path, OURS) == check_pipe(path, OURS)
        else:
            with pytest.raises(error, match=why):
                check_pipe(path, OURS)


LISTEN = """
import os, select, socket, sys, time
parent = os.pidfd_open(os.getpid())
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.chdir(sys.argv[1])
listener.bind(sys.argv[3])
if sys.argv[2] == "user":
    os.setuid(65534)
listener.listen()
if sys.argv[2] == "fork":
    if os.fork():
        os._exit(0)
    select.select([parent], [], [])
print(flush=True)
time.sleep(300)
"""
POD = "0::/kubepods/besteffort/pod0b1f6a4e-3f1c-4c55-9a3e-6f9e3f1a2b3c/" + "0123456789abcdef" * 4 + "\n"


@contextmanager
def listening(pipe: Path, how: str = "", *before: str, name: str = "control") -> Iterator[int]:
    """A process that listens in a pipe directory in place of a control daemon; its PID, or that of its child."""
    pipe.mkdir(parents=True, exist_ok=True)
    command = [*before, sys.executable, "-c", LISTEN, str(pipe), how, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


EXITING = "4:memory:/\n"  # what a process shows on cgroup v1 once its first thread has ended


def place(root: Path, pid: int, cgroup: str = "", bounding: str = "") -> Procfs:
    """A proc file system in which a process has this cgroup text and capability bounding set."""
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("stat", "status", "uid_map", "cgroup"):
        (folder / name).write_bytes(Path(f"/proc/{pid}/{name}").read_bytes())
    if cgroup:
        (folder / "cgroup").write_text(cgroup)
    if cgroup == EXITING:
        (folder / "stat").write_bytes(stat_line(pid, b"python3", "Z"))
    if bounding:
        status = re.sub("CapBnd:.*", f"CapBnd:\t{bounding}", (folder / "status").read_text())
        (folder / "status").write_text(status)
    return Procfs(root)


@pytest.mark.parametrize(
    ("how", "before", "cgroup", "bounding", "why"),
    [
        ("", (), "", "", ""),
        ("", (), POD, "000001ffffffffff", ""),
        ("", (), POD, "00000000a80425fb", "is in a container that is not privileged"),
        ("", (), EXITING, "00000000a80425fb", "has ended"),
        ("user", (), "", "", "runs as another user"),
        ("fork", (), "", "", "has ended"),
        ("", ("unshare", "--pid", "--fork", "--kill-child"), "", "", "in a PID namespace of its own"),
    ],
    ids=["host", "privileged", "tenant", "exiting", "user", "ended", "namespace"],
)
def test_who_listens(tmp_path: Path, how: str, before: tuple[str, ...], cgroup: str, bounding: str, why: str) -> None:
    """Point 36: a socket that a tenant has put in the place of the daemon's own is not used."""
    need_root()
    pipe = tmp_path / "pipe"
    with listening(pipe, how, *before) as pid:
        procfs = Procfs() if before or how == "fork" else place(tmp_path / "proc", pid, cgroup, bounding)
        identity = check_pipe(str(pipe), OURS)
        with pytest.raises(UntrustedPipeError, match=why) if why else nullcontext():
            check_listener(str(pipe), identity, procfs, OURS)


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_the_kind_of_socket(tmp_path: Path, kind: socket.SocketKind) -> None:
    """NVIDIA's control daemon listens on sockets of sequenced packets, where a stream can't connect."""
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(str(tmp_path / "control"))
        listener.listen()
        check_listener(str(tmp_path), check_pipe(str(tmp_path), OURS), Procfs(), OURS)


@pytest.mark.parametrize("name", SOCKETS)
def test_a_tenant_that_replaces_one_socket(rig: Rig, tmp_path: Path, name: str) -> None:
    """Point 36: root's control program uses `control_privileged`, so who listens there counts as much."""
    need_root()
    (rig.pipe / name).unlink()
    with listening(rig.pipe, name=name) as pid:
        place(tmp_path / "proc", os.getpid())
        procfs = place(tmp_path / "proc", pid, POD, "00000000a80425fb")
        with pytest.raises(UntrustedPipeError, match=f"/{name} .* is in a container that is not privileged"):
            check_listener(str(rig.pipe), check_pipe(str(rig.pipe), OURS), procfs, OURS)


def test_a_socket_that_is_gone_by_then(rig: Rig) -> None:
    """A tenant that moves it back and forth gets no unexpected error out of a query."""
    identity = check_pipe(str(rig.pipe), OURS)
    (rig.pipe / "control").unlink()
    with pytest.raises(SilentError, match="was not reached: No such file"):
        check_listener(str(rig.pipe), identity, Procfs(), OURS)


def test_a_tenants_daemon_hides_nobody(rig: Rig, tmp_path: Path) -> None:
    """Point 36: whatever it says, real clients can be drained; it is not asked, and the gap names it."""
    need_root()
    pipe = tmp_path / "mps/nvidia.com/gpu.shared/pipe"
    with listening(pipe) as pid:
        for known in (os.getpid(), *(key.pid for key in rig.keys)):
            (tmp_path / "proc" / str(known)).parent.mkdir(exist_ok=True)
            (tmp_path / "proc" / str(known)).symlink_to(f"/proc/{known}")
        procfs = place(tmp_path / "proc", pid, POD, "00000000a80425fb")
        rig.control = MpsControl(rig.bell, procfs, rig.settings, trusted_uid=OURS)
        rig.query()
        assert [client.key for client in rig.control.drainable] == sorted(rig.keys)
        (gap,) = rig.control.gaps
        assert (gap.what, "is in a container that is not privileged" in gap.problem.cause) == (str(pipe), True)
        rig.control.close()


def test_a_socket_that_is_exchanged_during_a_call(rig: Rig) -> None:
    """Point 36: an answer may have come from another process, even if the daemon's own socket is back in its place."""
    control, aside = rig.pipe / "control", rig.pipe / "aside"

    def exchange() -> bool:
        control.rename(aside)
        aside.rename(control)
        return True

    rig.query()
    rig.control.drain(7, rig.control.drainable[:1], exchange)
    wait_until(lambda: not is_busy())
    (result,) = rig.control.pop_results()
    assert result.drained is Drained.UNKNOWN
    assert "was replaced during terminate_client" in result.reason


def test_a_socket_that_has_just_changed(rig: Rig, program: Path) -> None:
    """Point 36: nothing is sent while another exchange might leave its time of change as it is."""
    (rig.pipe / "control").chmod(0o666)
    changed_ns = (rig.pipe / "control").stat().st_ctime_ns

    def is_late_enough() -> bool:
        return time.time_ns() - changed_ns >= 40_000_000

    daemon = ControlDaemon([str(program)], str(rig.pipe), 5.0, OURS)
    assert daemon.ask("get_server_list", is_late_enough) == f"{SERVER}\n"


def test_pipes(tmp_path: Path) -> None:
    """`*` also stands for a resource with its domain, as in the device plugin's folders."""
    pipes = [tmp_path / name / "pipe" for name in ("gpu", "nvidia.com/gpu", "nvidia.com/gpu.shared")]
    for pipe in pipes:
        pipe.mkdir(parents=True)
    found = find_pipes((f"{tmp_path}/*/pipe", f"{tmp_path}/gpu/pipe", f"{tmp_path}/none"))
    assert sorted(found) == sorted(map(str, pipes))


# As in the pod: root with CAP_KILL alone, and nothing that can be written to.
MINIMAL = (
    "mount --bind / / && mount -o remount,bind,ro / && mount --rbind TMP TMP && mount -o remount,bind,ro TMP && "
    'exec setpriv --bounding-set -all,+kill --inh-caps -all --no-new-privs "$@"'
)
ASK = """
import sys
from pathlib import Path
from watchdog.node.mps_control import ControlDaemon, find_program
command = find_program(sys.argv[1])
daemon = ControlDaemon(command, sys.argv[2], 5.0)
print(command[:2], daemon.clients(), daemon.terminate(17, 18))
"""


def test_the_hosts_program_runs_as_in_the_pod(tmp_path: Path, program: Path) -> None:
    """A program of the driver's root runs with that root's loader and libraries, with CAP_KILL and nothing to write to.

    Links in that root are absolute there, as in a driver container.
    """
    need_root()
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    if os.uname().machine != "x86_64" or not loader.exists():
        cannot_run("this machine has no loader at the place that its ABI names")
    root, libraries = tmp_path / "driver", tmp_path / "driver/usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (root / "usr/bin").mkdir()
    (root / "usr/lib64").mkdir()
    (root / "lib64").symlink_to("usr/lib64")
    (root / "usr/lib64/ld-linux-x86-64.so.2").symlink_to("/usr/lib/x86_64-linux-gnu/ld.so")
    shutil.copy(loader, libraries / "ld.so")
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libc = next(line.split()[2] for line in linked.splitlines() if "libc.so.6" in line)
    shutil.copy(libc, libraries / "libc.so.6")
    shutil.copy(program, root / "usr/bin" / program.name)
    asked = [sys.executable, "-c", ASK, str(root / "usr/bin" / program.name), str(tmp_path / "pipe")]
    pod = ["unshare", "--mount", "sh", "-c", MINIMAL.replace("TMP", str(tmp_path)), "sh", *asked]
    with MpsDaemon(servers={17: [18]}).listen(tmp_path / "pipe"):
        done = subprocess.run(pod, capture_output=True, text=True, check=False)
    assert done.stdout == f"{(str(libraries / 'ld.so'), '--library-path')} {{18: 17}} 0\n", done.stderr
    listing = [*find_program(asked[3])[:-1], "--list", asked[3]]
    linked = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert f"libc.so.6 => {libraries}/libc.so.6" in linked
    assert find_program(str(program)) == (str(program),)


def test_the_program_is_searched_like_the_driver(tmp_path: Path, program: Path) -> None:
    """A name is found on PATH or in the driver's folders; a file that can't be executed does not count."""
    for folder in ("usr/local/nvidia/bin", "run/nvidia/driver/usr/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(program, tmp_path / "usr/local/nvidia/bin" / "mps-stub")
    (tmp_path / "run/nvidia/driver/usr/bin/mps-stub").write_text("")
    assert find_program("mps-stub", tmp_path) == (f"{tmp_path}/usr/local/nvidia/bin/mps-stub",)
    assert find_program("sleep", tmp_path) == (shutil.which("sleep"),)
    with pytest.raises(MpsError, match=r"mps\.driverRoot"):
        find_program("mps-stub", tmp_path / "usr")


def test_links_do_not_leave_the_root(tmp_path: Path) -> None:
    """Absolute links and `..` stay below another root, and a loop of links ends."""
    (tmp_path / "a").symlink_to("/b/../../../c")
    (tmp_path / "loop").symlink_to("/loop")
    assert resolve_below(tmp_path, tmp_path / "a/x") == tmp_path / "c/x"
    assert resolve_below(tmp_path, tmp_path / "loop") == tmp_path / "loop"


def test_limits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client's limit on each GPU is the smaller one of its server's and its own; what can't be read is unknown."""
    monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")
    with sleepers(1) as started:
        own = key_of(started[0].pid)
        rig.daemon.servers[SERVER].append(own.pid)
        rig.daemon.limits = {"0": "20350M"}
        rig.gpus = dict.fromkeys([*rig.keys, own], frozenset({GPU}))
        rig.query(*rig.keys, own)
        known = {limit.key: limit for limit in rig.control.limits}
        assert [known[key].limit for key in (*rig.keys, own)] == [20350 * 2**20, 20350 * 2**20, 2**30]
        assert all(limit.is_complete and limit.gpu == GPU for limit in known.values())
        asked = [line for line in rig.daemon.commands if line.startswith("get_device")]
        assert asked == [f"get_device_pinned_mem_limit {SERVER} {GPU}", f"get_device_pinned_mem_limit {SERVER} 0"]
    rig.daemon.limits, rig.gpus[own] = {}, frozenset({GPU, f"{GPU[:-1]}1"})
    rig.query(own, after_s=400)
    (one, other) = rig.control.limits
    assert (one.limit, other.limit, one.is_complete) == (None, None, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0=1G,1=512MB", {"0": 2**30, "1": 2**29}),
        ("GPU-1=2048K", {"GPU-1": 2**21}),
        (" 0 = 100 ", {"0": 100}),
        (",".join(f"GPU-{number:036}=80G" for number in range(128)), {f"GPU-{n:036}": 80 << 30 for n in range(128)}),
        (",".join(f"{number}=1" for number in range(140_000)), None),  # of a tenant that wants it to be remembered
        *((text, None) for text in ("0=1.5G", "1G", "", "0=1G,", "=1G", f"0={'9' * 30}G", f"0={'9' * 15}T")),
    ],
)
def test_the_variable(text: str, expected: dict[str, int] | None) -> None:
    """The value of the client's variable is understood as a whole, or not at all."""
    assert parse_limits(text) == expected


def test_a_limit_of_a_server() -> None:
    """What a daemon answers about a limit is an amount in binary units; anything else is no limit."""
    answers = {"20350M\n": 20350 * 2**20, "10G": 10 * 2**30, "Invalid command": None, "": None}
    assert {text: parse_limit(text) for text in answers} == answers
