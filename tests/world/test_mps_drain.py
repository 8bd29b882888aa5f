"""`run` on a node with a shared MPS server: a client is drained before it gets a signal, or none is sent."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.node import Tenant
from tests.stub import GIB, MIB
from tests.stub.mps import MpsDaemon, build_control
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, explained, history_of, run
from tests.world.test_mps import ACCEPTED, CLIENT, held, server
from watchdog.options import stop_file

pytestmark = [pytest.mark.node, pytest.mark.slow]
REFUSED = "Failed to terminate client\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_control(tmp_path_factory.mktemp("bin"))


@dataclass
class Draining(MpsDaemon):
    """A control daemon that notes who had got a signal when a client was drained; `then` is called with its PID."""

    tenants: list[Tenant] = field(default_factory=list)
    drained: list[int] = field(default_factory=list)
    signalled: list[int] = field(default_factory=list)
    refuses: set[int] = field(default_factory=set)
    then: Callable[[int], object] = lambda _: None

    def answer(self, command: list[str]) -> str:
        if command[0] != "terminate_client":
            return super().answer(command)
        pid = int(command[2])
        self.signalled += [each.pid for each in self.tenants if each.terms or not each.is_alive]
        self.drained.append(pid)
        self.then(pid)
        return REFUSED if pid in self.refuses else super().answer(command)


@dataclass
class Bench:
    """A pod `hog` with two clients of the host's MPS server, another process, and a neighbour on that server."""

    world: Node
    program: Path
    control: Draining
    clients: tuple[Tenant, Tenant]
    helper: Tenant
    neighbour: Tenant
    pipe: Path

    @property
    def all(self) -> tuple[Tenant, ...]:
        return (*self.clients, self.helper, self.neighbour)

    def policy(self, *steps: str, more: str = "", mode: str = "enforce", timeout: str = "30s") -> Path:
        mps = f'\n[mps]\ncontrol = "{self.program}"\npipe = ["{self.pipe}"]\ntimeout = "{timeout}"\n'
        return write_policy(self.world.root, *(steps or (KILL_AT_ONCE,)), more=mps + more, mode=mode)

    def grow(self) -> None:
        """Let the pod exceed its limit."""
        self.world.use(self.clients[0], 9 * GIB)

    def signals(self) -> list[str]:
        """The signals of all actions, as the journal has them."""
        return [row["detail"].split()[0] for row in history_of(self.world) if row["event"] == "signalled"]


@pytest.fixture
def bench(any_world: Node, program: Path) -> Iterator[Bench]:
    offender, calm = any_world.pod("hog", ("main", "1Gi")), any_world.pod("neighbour", ("main", "4Gi"))
    shared = server(any_world, "host")
    assert shared is not None
    first = any_world.start(offender, used=256 * MIB, lists=CLIENT)
    second = any_world.start(offender, used=128 * MIB, lists=CLIENT)
    helper, neighbour = any_world.start(offender), any_world.start(calm, used=GIB, lists=CLIENT)
    any_world.write()
    listed = [first.pid, second.pid, neighbour.pid]
    control = Draining(servers={shared.pid: listed}, tenants=[first, second, helper, neighbour])
    pipe = any_world.root / "mps" / "pipe"
    with control.listen(pipe):
        yield Bench(any_world, program, control, (first, second), helper, neighbour, pipe)


@contextmanager
def drainable(bench: Bench, policy: Path) -> Iterator[Daemon]:
    """The daemon, once it knows which clients can be drained."""
    with run(bench.world, policy) as running:
        running.wait(lambda _: any("get_client_list" in command for command in bench.control.commands))
        running.wait_passes(2)
        yield running


def test_clients_are_drained_then_killed(bench: Bench) -> None:
    """Point 36: every client is drained before any process gets a signal; that they use less then changes nothing."""

    def free(pid: int) -> None:
        next(each for each in bench.clients if each.pid == pid).used = 1
        bench.world.write()

    bench.control.then = free
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(ended)
        running.wait(lambda d: d.events("released"))
        (begun,) = running.events("kill_begun")
    assert sorted(bench.control.drained) == sorted(each.pid for each in bench.clients)
    assert bench.control.signalled == []
    assert [each.ended_by for each in (*bench.clients, bench.helper)] == [signal.SIGTERM] * 3
    assert (bench.neighbour.is_alive, bench.neighbour.terms) == (True, [])
    assert bench.signals() == ["DRAIN", "DRAIN", "SIGTERM"]
    assert "The MPS server is asked to end 2 clients first" in begun["message"]


@pytest.mark.parametrize("how", ["refused", "partly", "silent"])
def test_nobody_is_signalled_if_a_client_is_not_drained(bench: Bench, how: str) -> None:
    """Point 36: a refusal, also of the second client only, or no answer: the kill has failed, without a signal."""
    later = max(each.pid for each in bench.clients)
    late = threading.Event()
    if how == "silent":
        bench.control.then = lambda _: late.wait(20)
    bench.control.refuses = {later} if how == "partly" else {each.pid for each in bench.clients}
    with drainable(bench, bench.policy(timeout="1s" if how == "silent" else "30s")) as running:
        bench.grow()
        running.wait(lambda d: ended(d, "failed"))
        running.wait_passes(2)
        (logged,) = running.events("kill_ended")  # it is not tried again at once
        late.set()
    assert len(bench.control.drained) == (2 if how == "partly" else 1)
    assert all(each.is_alive and not each.terms for each in bench.all)
    what = "is not known whether MPS client" if how == "silent" else f"MPS client {bench.control.drained[-1]} was not"
    assert what in logged["message"]
    assert "no process was signalled" in logged["message"]


def test_a_pipe_that_root_does_not_own_drains_nobody(bench: Bench) -> None:
    """Point 36: what a tenant may have put there is not asked, so its clients stay as they are."""
    os.chown(bench.pipe, 12345, 12345)
    with run(bench.world, bench.policy()) as running:
        bench.grow()
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(3)
        assert "can't be drained" in held(running)["held_because"]
    assert bench.control.commands == []
    assert all(each.is_alive and not each.terms for each in bench.all)


def test_the_accepted_risk_signals_a_client_that_was_not_drained(bench: Bench) -> None:
    """Point 36: with signal_mps_clients, a client is drained if possible, and signalled in any case."""
    bench.control.refuses = {bench.clients[0].pid}
    with drainable(bench, bench.policy(more=ACCEPTED)) as running:
        bench.grow()
        running.wait(ended)
    assert sorted(bench.control.drained) == sorted(each.pid for each in bench.clients)
    assert [each.ended_by for each in bench.clients] == [signal.SIGTERM] * 2


def test_observing_drains_nobody(bench: Bench) -> None:
    """Point 38: observe mode makes the same plan, reports that it would drain, and does not."""
    with drainable(bench, bench.policy(mode="observe")) as running:
        bench.grow()
        running.wait(lambda d: d.metric("would_act_total", action="kill") == 1)
        (logged,) = running.events("would_act")
    assert "would be asked to end 2 clients first" in logged["message"]
    assert bench.control.drained == []


def test_enforcement_turned_off_between_drain_and_signal(bench: Bench) -> None:
    """Point 33: with the stop file, no other client is drained and no process is signalled."""
    stop = threading.Event()

    def wait(_: int) -> None:
        stop_file(bench.world.journal).touch()
        stop.wait(10)

    bench.control.then = wait
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(lambda d: ended(d, "interrupted"))
        stop.set()
        running.wait_passes(3)
    assert len(bench.control.drained) == 1
    assert [each.terms for each in bench.all] == [[], [], [], []]


@pytest.mark.parametrize("how", ["in between", "after a failure"])
def test_no_later_daemon_drains_a_client_again(bench: Bench, how: str) -> None:
    """Points 31 and 36: the next daemon neither drains nor signals because of it: the neighbours would stall."""
    stop = threading.Event()
    if how == "in between":
        bench.control.then = lambda _: stop.wait(10)
    else:
        bench.control.refuses = {max(each.pid for each in bench.clients)}
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(lambda _: bench.control.drained)
        if how == "after a failure":
            running.wait(lambda d: ended(d, "failed"))
        running.stop(signal.SIGKILL)
    stop.set()
    asked = len(bench.control.drained)
    bench.control.then = lambda _: None
    with run(bench.world, bench.policy()) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(3)
        assert "can't be drained" in held(running)["held_because"]
        assert any("asked for before" in gap["why"] for gap in running.status()["gaps"])
    assert (len(bench.control.drained), bench.control.stalled) == (asked, [])
    assert [each.terms for each in bench.all] == [[], [], [], []]


def test_a_client_that_ignores_sigterm_is_not_drained_twice(bench: Bench) -> None:
    """A drained client stays listed; a second request would stop its neighbours' work until it ends."""
    stubborn = bench.world.start(bench.world.pods[0], used=64 * MIB, behaviour="stubborn", lists=CLIENT)
    next(iter(bench.control.servers.values())).append(stubborn.pid)
    bench.world.write()
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(ended)
    assert sorted(bench.control.drained) == sorted(each.pid for each in (stubborn, *bench.clients))
    assert bench.control.stalled == []
    assert [each.ended_by for each in (stubborn, *bench.clients)] == [signal.SIGKILL, *[signal.SIGTERM] * 2]


def test_a_stopped_client_is_not_drained(bench: Bench) -> None:
    """Its server would wait for it, and the neighbours' work with it; once it continues, it is drained."""
    os.kill(bench.clients[1].pid, signal.SIGSTOP)
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        os.kill(bench.clients[1].pid, signal.SIGCONT)
        running.wait(ended)
    assert bench.control.stalled == []
    assert bench.neighbour.is_alive


def test_a_client_that_joins_during_the_drain_is_drained_too(bench: Bench) -> None:
    """Point 36: a worker that ends is often replaced; nothing is signalled before its successor is drained too."""
    go_on = threading.Event()
    bench.control.then = lambda _: go_on.wait(10)
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(lambda _: bench.control.drained)
        successor = bench.world.start(bench.world.pods[0], used=64 * MIB, lists=CLIENT)
        bench.control.tenants.append(successor)
        next(iter(bench.control.servers.values())).append(successor.pid)
        bench.world.write()
        go_on.set()
        running.wait(ended)
    assert bench.control.drained[-1] == successor.pid
    assert bench.control.signalled == []
    assert bench.neighbour.is_alive


def test_explain_and_history_report_the_drain(bench: Bench) -> None:
    """Promise 2: who asks why a pod was killed learns that its clients were drained first."""
    with drainable(bench, bench.policy()) as running:
        bench.grow()
        running.wait(ended)
        assert "The MPS server was asked to end its clients" in explained(bench.world, running)
    reported = "the MPS server was asked to end 1 client of container main"
    assert any(reported in row["sentence"] for row in history_of(bench.world))


def test_limits_of_clients_are_shown(bench: Bench) -> None:
    """What MPS lets the clients of a pod use is in the status and in `explain`, with what the pod declares."""
    bench.control.limits = {"0": "768M"}
    with drainable(bench, bench.policy(mode="observe")) as running:
        running.wait(lambda d: all("pinned" in each for each in d.status()["accounts"]))
        offender = next(each for each in running.status()["accounts"] if each["pod"] == "hog")
        text = explained(bench.world, running)
    assert offender["pinned"] == {"clients": 2, "most": 768 * MIB, "together": 1536 * MIB, "exceeds_declared": True}
    assert "Each of its 2 MPS clients may pin at most 768Mi, together 1.5Gi, more than the 1Gi declared" in text


def test_scan_asks_who_can_be_drained(bench: Bench) -> None:
    """`scan` withholds a kill of MPS clients only if a daemon could not drain them."""
    bench.grow()
    options = ("--policy", bench.policy(), "--pods", bench.world.pods_file, "--node", "n1")
    for servers, withheld in ((bench.control.servers, None), ({}, "mps")):
        bench.control.servers = servers
        scanned = gpu_watchdog("scan", "--json", *options, stub=bench.world.stub_file).stdout
        (entry,) = (each for each in json.loads(scanned)["plan"] if each["do"] == "kill")
        assert entry["withheld_by"] == withheld
