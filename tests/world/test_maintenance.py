"""`run` while the GPUs of its node are under maintenance: the driver is released, and no action is taken."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.devices import held, seconds_until, watched
from tests.rig.record import actions, boottime_s, events
from tests.stub import GIB, LISTS, MIB, StubDelay, StubReturn
from tests.world.policies import KILL_AFTER_2S, KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, run
from watchdog.report.text import rfc3339

pytestmark = [pytest.mark.node, pytest.mark.slow]

WITHIN_S: Final = 5.0
MIG: Final = {"nvidia.com/mig.config.state": "pending"}
UPGRADE: Final = {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}
RELEASE: Final = {"gpu-memory-watchdog/release-driver": ""}
MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH


@pytest.fixture
def device(any_world: Node) -> Path:
    """The folder of the node's device files; the driver opens one of them, and the node has nothing to tell yet."""
    folder = any_world.root / "dev"
    folder.mkdir()
    (folder / "nvidia0").touch()
    any_world.stub = replace(any_world.stub, device=folder / "nvidia0")
    any_world.mark()
    any_world.write()
    return folder


def here(world: Node, *steps: str, more: str = "") -> AbstractContextManager[Daemon]:
    """The daemon on this node, which follows the node's own object."""
    return run(world, write_policy(world.root, *steps, more=more), more=("--node-object", world.node_file))


def says(running: Daemon, path: str, text: str) -> bool:
    """Whether one of its endpoints says so; not while a new process begins."""
    with contextlib.suppress(OSError):
        return text in running.get(path)[1]
    return False


def started(running: Daemon) -> int:
    """How many processes have begun as this daemon."""
    return len(running.events("started"))


@pytest.mark.parametrize(
    ("labels", "annotations", "why"),
    [
        (MIG, {}, "the node's label nvidia.com/mig.config.state is pending"),
        (UPGRADE, {}, "the node's label nvidia.com/gpu-driver-upgrade-state is pod-restart-required"),
        ({}, RELEASE, "the node carries the annotation gpu-memory-watchdog/release-driver"),
    ],
)
def test_the_driver_is_released_and_opened_again(
    any_world: Node, device: Path, labels: Mapping[str, str], annotations: Mapping[str, str], why: str
) -> None:
    """Point 34: within 5 s nothing of the driver is open, the loop goes on, and the reason is reported."""
    tenant = any_world.single("calm", declared="4Gi", used=3 * GIB)
    with here(any_world, KILL_AT_ONCE) as running:
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        assert held(running.pid, device) == {str(device / "nvidia0")}
        any_world.mark(labels=labels, annotations=annotations)
        assert seconds_until(running.pid, device, is_held=False) < WITHIN_S
        running.wait(lambda d: why in d.get("/readyz")[1])
        with watched(running.pid, device) as seen:
            running.wait_passes(2)
        assert seen == []
        _nothing_is_guessed(running, why)
        any_world.use(tenant, 2 * GIB)
        any_world.mark()
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        assert held(running.pid, device)
        status = running.status()
        assert (status["maintenance"], status["accounts"][0]["used"], started(running)) == (None, 2 * GIB, 1)
    reported = [line["message"] for line in running.events("gap_began")]
    assert len([each for each in reported if why in each]) == 1


def _nothing_is_guessed(running: Daemon, why: str) -> None:
    """What is unknown is null in the status and absent in the metrics; the loop is well, the daemon is not ready."""
    status = running.status()
    (gpu,) = status["gpus"]
    assert (status["maintenance"], gpu["up"], set(gpu["memory"].values())) == (why, False, {None})
    (account,) = status["accounts"]
    assert (account["verdict"], account["used"], account["processes"][0]["used"]) == ("unknown", None, None)
    assert running.get("/healthz")[0] == 200
    assert running.get("/readyz")[0] == 503
    assert running.metric("gpu_memory_total_bytes") is None
    assert running.metric("pod_memory_used_bytes", pod="calm") is None
    assert running.metric("scan_gaps_total", reason="maintenance") != 0


@pytest.mark.parametrize("keep", ["open", "mapped"])
def test_a_library_that_keeps_a_device_goes_with_its_process(
    any_world: Node, device: Path, keep: Literal["open", "mapped"]
) -> None:
    """Point 34: it starts over in place, with the same PID, and opens nothing before the end; brakes are kept."""
    any_world.stub = replace(any_world.stub, keep=keep)
    victim, other = any_world.single("hog-1", used=4 * GIB), any_world.single("hog-2", used=128 * MIB)
    with here(any_world, KILL_AT_ONCE, more='\n[brakes]\nnode = "1 per 10m"\n') as running:
        running.wait(ended)
        assert not victim.is_alive
        any_world.mark(labels=MIG)
        assert seconds_until(running.pid, device, is_held=False) < WITHIN_S
        with watched(running.pid, device) as seen:
            running.wait(lambda d: started(d) == 2 and says(d, "/readyz", "mig.config.state is pending"))
            running.wait_passes(3)
        assert seen == []
        (ending,) = [line for line in running.log() if "exiting, to be restarted" in line["message"]]
        assert str(device / "nvidia0") in ending["message"]
        any_world.mark()
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        any_world.use(other, 4 * GIB)
        running.wait(lambda d: d.metric("withheld_total", brake="node") == 1)
        running.wait_passes(2)
        assert (other.is_alive, started(running), running.stop()[0]) == (True, 2, 0)
    assert [each.result for each in actions(any_world.journal)] == ["done"]


@pytest.mark.parametrize("call", [LISTS[0], "nvmlShutdown"])
def test_a_call_that_hangs_goes_with_its_process_too(any_world: Node, device: Path, call: str) -> None:
    """Point 34: nothing ends a call into the driver but the end of its process; that comes within the 5 s as well."""
    with here(any_world, KILL_AT_ONCE) as running:
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        any_world.show(delays=(StubDelay(call=call, ms=120_000),))
        if call in LISTS:
            running.wait_call(call)
        any_world.mark(labels=MIG)
        assert seconds_until(running.pid, device, is_held=False) < WITHIN_S
        running.wait(lambda d: says(d, "/readyz", "mig.config.state is pending"))
        any_world.show(delays=())
        any_world.mark()
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        assert (started(running), running.stop()[0]) == (2, 0)


def test_a_kill_is_withheld_and_comes_when_it_is_over(any_world: Node, device: Path) -> None:
    """Point 34: a pod over its limit lives while it lasts, which is recorded, and is killed once the driver is back."""
    tenant = any_world.single("hog", used=128 * MIB)
    with here(any_world, KILL_AT_ONCE) as running:
        for _ in range(20):  # on a busy machine the driver may be released before the allocation has been read
            running.wait_passes(1)
            any_world.mark(labels=MIG)
            any_world.use(tenant, 4 * GIB)
            running.wait_passes(2)
            if running.metric("withheld_total", brake="maintenance"):
                break
            any_world.use(tenant, 128 * MIB)
            any_world.mark()
            running.wait(lambda d: not d.status()["suspended"])
        assert seconds_until(running.pid, device, is_held=False) < WITHIN_S
        running.wait_passes(3)
        assert (tenant.is_alive, tenant.terms, running.metric("withheld_total", brake="maintenance")) == (True, [], 1)
        (reported,) = running.events("withheld")
        assert "under maintenance" in reported["message"]
        over_s = boottime_s()
        any_world.mark()
        running.wait(lambda _: not tenant.is_alive)
        assert min(tenant.terms) > over_s


def test_maintenance_ends_a_grace_period_and_restarts_the_ladder(any_world: Node, device: Path) -> None:
    """Point 34, as 33: no SIGKILL in a grace period once it begins, and the whole ladder after its end."""
    tenant = any_world.single("hog", used=4 * GIB, behaviour="stubborn")
    with here(any_world, KILL_AFTER_2S) as running:
        running.wait(lambda _: tenant.terms)
        any_world.mark(labels=MIG)
        running.wait(lambda d: ended(d, "interrupted"))
        assert seconds_until(running.pid, device, is_held=False) < WITHIN_S
        running.wait_passes(3)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        over_s = boottime_s()
        any_world.mark()
        running.wait(lambda _: [each.result for each in actions(any_world.journal)] == ["interrupted", "done"])
        assert not tenant.is_alive
    assert tenant.terms[1] - over_s >= 1.0  # `for` is 2 s, of which a gap counts for one interval
    assert "maintenance" in running.events("kill_ended")[0]["message"]
    assert [name for name, _, action in events(any_world.journal, "signalled") if action == 1] == ["signalled"]


REBOOTING: Final = {"nvidia.com/mig.config.state": "rebooting"}
LEFT_OVER: Final = {**UPGRADE, "nvidia.com/gpu.deploy.driver": "pre-installed"}


def begun(running: Daemon) -> float | None:
    """Since when the GPUs are under maintenance, by the metric."""
    return running.metric("maintenance_since_timestamp_seconds")


def _is_suspended(running: Daemon, why: str) -> None:
    """Status, metrics and readiness say that nothing is enforced, why, and since when."""
    status, since_s = running.status(), begun(running)
    assert since_s is not None
    assert (status["enforcing"], status["maintenance"]) == (False, why)
    (reason,) = status["suspended"]
    since = status["maintenance_since"]
    assert (reason, rfc3339(since_s)) == (f"maintenance: {why}, since {since}", since)
    assert (running.metric("enforcing"), running.metric("enforcement_suspended", reason="maintenance")) == (0, 1)
    assert f"not enforcing: {reason}" in running.get("/readyz")[1]


@pytest.mark.parametrize(
    ("labels", "annotations", "why"),
    [
        (MIG, {}, "the node's label nvidia.com/mig.config.state is pending"),
        (LEFT_OVER, {}, "the node's label nvidia.com/gpu-driver-upgrade-state is pod-restart-required"),
        ({}, {**RELEASE, "gpu-memory-watchdog/release-driver": "reset"},
         "the node's annotation gpu-memory-watchdog/release-driver is 'reset'"),
    ],
    ids=["MIG", "upgrade without a driver pod", "by hand"],
)  # fmt: skip
def test_maintenance_that_stays_is_a_suspension(
    any_world: Node, device: Path, labels: Mapping[str, str], annotations: Mapping[str, str], why: str
) -> None:
    """Point 41: it is not enforcing and is named with its label, value and since when; its end is the end of both."""
    with here(any_world, KILL_AT_ONCE) as running:
        running.wait(lambda d: d.metric("enforcing") == 1)
        assert (begun(running), running.status()["suspended"]) == (None, [])
        any_world.mark(labels=labels, annotations=annotations)
        running.wait(lambda d: begun(d) is not None)
        _is_suspended(running, why)
        assert why in running.events("suspended")[-1]["message"]
        any_world.mark()
        running.wait(lambda d: d.metric("enforcing") == 1)
        status = running.status()
        assert (begun(running), status["suspended"], status["maintenance_since"]) == (None, [], None)


def test_maintenance_keeps_its_beginning_over_restarts(any_world: Node, device: Path) -> None:
    """Point 41: neither a re-exec to release the driver nor another value or daemon changes since when it is."""
    any_world.stub = replace(any_world.stub, keep="open")
    any_world.write()
    with here(any_world, KILL_AT_ONCE) as running:
        running.wait(lambda d: d.metric("enforcing") == 1)
        any_world.mark(labels=MIG)
        running.wait(lambda d: started(d) == 2 and says(d, "/readyz", "not enforcing: maintenance"))
        running.wait(lambda d: not d.status()["maintenance_since_at_least"])  # it reads the journal meanwhile
        first = begun(running)
        any_world.mark(labels=REBOOTING)
        running.wait(lambda d: says(d, "/readyz", "mig.config.state is rebooting"))
        assert running.stop()[0] == 0
    with here(any_world, KILL_AT_ONCE) as running:
        running.wait(lambda d: says(d, "/readyz", "mig.config.state is rebooting"))
        running.wait(lambda d: begun(d) == pytest.approx(first, abs=0.1))
        _is_suspended(running, "the node's label nvidia.com/mig.config.state is rebooting")


def test_maintenance_that_was_there_first_has_begun_at_least_then(any_world: Node, device: Path) -> None:
    """Point 41: in observe mode nothing is suspended, and it is dated all the same, as far as this daemon can know."""
    any_world.mark(labels=MIG)
    policy = write_policy(any_world.root, KILL_AT_ONCE, mode="observe")
    with run(any_world, policy, more=("--node-object", any_world.node_file)) as running:
        running.wait(lambda d: begun(d) is not None)
        status = running.status()
        assert (status["enforcing"], status["suspended"]) == (False, [])
        assert status["maintenance_since_at_least"]
        assert running.metric("enforcement_suspended", reason="maintenance") is None
        assert f"is pending, since at least {status['maintenance_since']}" in running.get("/readyz")[1]


@contextlib.contextmanager
def under_way(world: Node) -> Iterator[Daemon]:
    """A daemon that begins in the middle of a maintenance."""
    world.mark(labels=MIG)
    with here(world, KILL_AT_ONCE) as running:
        yield running


def test_a_daemon_that_begins_meanwhile_opens_nothing(any_world: Node, device: Path) -> None:
    """Point 34: not even for a moment; and SIGTERM ends it as ever."""
    with under_way(any_world) as running, watched(running.pid, device) as seen:
        running.wait_passes(3)
        status = running.status()
        assert (status["gpus"], status["accounts"], status["gaps"][0]["what"]) == ([], [], "NVML")
        code, took_s = running.stop()
    assert (code, took_s < 1, seen) == (0, True, [])


def test_another_driver_afterwards_takes_another_process(any_world: Node, device: Path) -> None:
    """The library stays mapped after its end; where it does not fit the new driver the process ends, with exit 1."""
    with under_way(any_world) as running:
        running.wait_passes(1)
        any_world.show(returns=(StubReturn(call="nvmlInitWithFlags", code=MISMATCH),))
        running.wait_passes(2)
        any_world.mark()
        assert running.process.wait(timeout=15) == 1
    assert not held(running.pid, device)


def test_scan_opens_nothing_either(any_world: Node, device: Path) -> None:
    """`scan` reports that the GPUs are under maintenance without asking the driver, however briefly."""
    arguments = ("scan", "--json", "--node", "n1", "--pods", any_world.pods_file, "--node-object", any_world.node_file)
    any_world.show(device=device / "missing" / "nvidia0")  # the stub aborts when it is opened
    any_world.mark(annotations=RELEASE)
    found = json.loads(gpu_watchdog(*arguments, stub=any_world.stub_file).stdout)
    assert (found["maintenance"] is None, found["gpus"]) == (False, [])
    any_world.mark(annotations={"gpu-memory-watchdog/release-driver": "false"})
    assert gpu_watchdog(*arguments, stub=any_world.stub_file).returncode != 0
