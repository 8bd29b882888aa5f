"""The last look: what has changed since the intention was written down is seen before the first signal (point 22)."""

import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.rig import Daemon, Node, Tenant
from tests.rig.disk import StallingDisk
from tests.rig.record import actions, boottime_s, events
from tests.stub import GIB, LISTS, MIB, StubDelay
from tests.world.policies import KILL_AT_ONCE, kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def _observe_by_annotation(world: Node, _: Tenant) -> None:
    world.mark(annotations={"gpu-memory-watchdog/mode": "observe"})


def _observe_by_stop_file(world: Node, _: Tenant) -> None:
    (world.journal.parent / "stop").touch()


def _fall(world: Node, tenant: Tenant) -> None:
    world.use(tenant, 512 * MIB)


def _declare_more(world: Node, _: Tenant) -> None:
    world.pods[0].containers[0].declared = "20Gi"
    world.write()


CHANGES: Final = (_observe_by_annotation, _observe_by_stop_file, _fall, _declare_more)


@pytest.fixture
def disk(tmp_path: Path) -> StallingDisk:
    """A disk that the test can stall."""
    return StallingDisk(tmp_path)


def _offender(world: Node) -> Tenant:
    world.mark()
    return world.single("hog", used=512 * MIB)


@contextmanager
def begun(world: Node, disk: StallingDisk, tenant: Tenant, for_: str = "0s") -> Iterator[Daemon]:
    """A daemon whose disk stalls while it is to write down that it kills a tenant, which has just gone over."""
    policy = write_policy(world.root, kill(for_))
    with run(world, policy, prefix=disk.prefix, more=("--node-object", world.node_file)) as running:
        running.wait_passes(2)
        disk.stall()
        world.use(tenant, 9 * GIB)
        running.wait(lambda _: disk.has_stalled)
        yield running


@pytest.mark.parametrize(("change", "stalled_s"), [*((change, 1.2) for change in CHANGES), (_fall, 4.0)])
def test_what_changes_while_the_disk_stalls_is_seen(
    any_world: Node, disk: StallingDisk, change: Callable[[Node, Tenant], None], stalled_s: float
) -> None:
    """Point 22: what happens between a decision and the commit of its intention counts, however long that takes."""
    tenant = _offender(any_world)
    with begun(any_world, disk, tenant) as running:
        change(any_world, tenant)
        time.sleep(stalled_s)
        disk.thaw()
        running.wait(lambda d: ended(d, "withdrawn"))
        running.wait_passes(1)
        assert (tenant.is_alive, tenant.terms) == (True, [])
        assert events(any_world.journal, "signalled") == []


def test_a_stalled_disk_holds_back_enforcement_and_nothing_else(any_world: Node, disk: StallingDisk) -> None:
    """Points 22 and 31: the loop, `/healthz` and the switches go on; what was late is withdrawn and not counted."""
    tenant = _offender(any_world)
    with begun(any_world, disk, tenant) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="journal") == 1.0, 10)
        running.wait_passes(3)
        assert running.get("/healthz")[0] == 200
        (entry,) = [each for each in running.status()["plan"] if each["do"] == "kill"]
        assert entry["withheld_by"] == "journal"
        assert tenant.terms == []
        disk.thaw()
        running.wait(lambda d: ended(d, "withdrawn"))
        assert tenant.terms == []
        running.wait(ended)  # after the back-off of a failure
        assert not tenant.is_alive
        assert [number for _, _, number in events(any_world.journal, "kill_ended")] == [1, 2]


def test_a_daemon_whose_disk_stalls_can_be_stopped(any_world: Node, disk: StallingDisk) -> None:
    """SIGTERM ends the daemon within a second or so, whatever the disk does."""
    tenant = _offender(any_world)
    with begun(any_world, disk, tenant) as running:
        code, took_s = running.stop()
        assert (code, tenant.terms) == (0, [])
        assert took_s < 3  # the promise is one second; the machine may be busy


def test_a_daemon_that_is_stopped_while_it_writes_an_intention_withdraws_it(
    any_world: Node, disk: StallingDisk
) -> None:
    """Points 22 and 26: nothing was signalled, so no brake counts it, and the next daemon finds nothing interrupted."""
    tenant = _offender(any_world)
    with begun(any_world, disk, tenant) as running:
        threading.Timer(0.05, disk.thaw).start()  # the daemon waits for the journal for 0.3 s
        assert running.stop()[0] == 0
    with closing(sqlite3.connect(any_world.journal)) as journal:
        assert journal.execute("SELECT action_id FROM begun").fetchall() == []
        assert journal.execute("SELECT result FROM action").fetchall() == [("withdrawn",)]
    assert tenant.terms == []


def test_a_last_look_that_is_too_old_is_taken_again(any_world: Node) -> None:
    """Point 22: a slow driver does not stretch the two seconds: the action is withdrawn, and no signal is sent."""
    tenant = _offender(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(2)
        any_world.stub = replace(any_world.stub, delays=(StubDelay(call=LISTS[2], ms=2600),))
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda d: ended(d, "withdrawn"))
        assert (tenant.is_alive, tenant.terms) == (True, [])
        assert any(gap["what"] == "NVML last look" for gap in running.status()["gaps"])
        any_world.show(delays=())
        running.wait(ended)


def test_a_gap_before_the_last_look_ends_what_was_counted(any_world: Node, disk: StallingDisk) -> None:
    """Points 16 and 22: a driver that hangs in the last look hides that the pod was within its limit meanwhile."""
    tenant = _offender(any_world)
    with begun(any_world, disk, tenant, "3s") as running:
        any_world.show(delays=(StubDelay(call=LISTS[2], ms=12_000),))
        disk.thaw()
        time.sleep(2)
        any_world.stub = replace(any_world.stub, delays=())
        any_world.use(tenant, 512 * MIB)
        time.sleep(9)
        again_s = boottime_s()
        any_world.use(tenant, 9 * GIB)
        running.wait(ended)
    (done,) = actions(any_world.journal)
    assert done.number == 2  # the first one was withdrawn
    assert done.began_s > again_s + 3


def test_what_was_planned_before_enforcement_was_reset_is_not_done(any_world: Node, disk: StallingDisk) -> None:
    """Point 20: a stop file that comes and goes while the disk stalls starts every stretch over."""
    tenant = _offender(any_world)
    stop = any_world.journal.parent / "stop"
    with begun(any_world, disk, tenant, "3s") as running:
        stop.touch()
        time.sleep(0.75)
        stop.unlink()
        disk.thaw()
        running.wait_passes(2)
        assert tenant.terms == []
        running.wait(ended)


@contextmanager
def _resizing(world: Node) -> Iterator[None]:
    """A tenant that resizes the cpu of its sidecars in place, a hundred times a second."""
    done = threading.Event()

    def resize() -> None:
        for millis in itertools.count(100):
            for pod in world.pods:
                pod.containers[-1].resources = {"cpu": f"{millis}m"}
            world.write_pods()
            if done.wait(0.01):
                return

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_change_that_concerns_no_victim_withdraws_no_kill(any_world: Node) -> None:
    """Point 22: a pod that is written a hundred times a second is killed at the first try, and a calm one is not."""
    made = [any_world.pod(f"hog-{number}", ("main", "1Gi"), ("side", None)) for number in range(4)]
    offenders = [any_world.start(each, used=512 * MIB) for each in made]
    calm = any_world.start(any_world.pod("calm", ("main", "4Gi"), ("side", None)), used=3 * GIB)
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill())) as running, _resizing(any_world):
        running.wait_passes(1)
        for number, offender in enumerate(offenders, 1):
            any_world.use(offender, 9 * GIB)
            running.wait(lambda d, wanted=number: d.metric("actions_total", action="kill", result="done") == wanted)  # type: ignore[misc]
            withdrawn = [line["reason"] for line in running.events("kill_ended") if line["result"] == "withdrawn"]
            assert withdrawn == []
        assert [offender.is_alive for offender in offenders] == [False] * 4
        assert (calm.is_alive, calm.terms) == (True, [])
