"""/metrics of a real daemon in trouble: it never waits for the driver, and a restart takes no alert away."""

import signal
import time
from pathlib import Path

import pytest

from tests.rig import Daemon, Node
from tests.rig.node import GPU
from tests.stub import GIB, LISTS, MIB, StubDelay
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_a_scrape_never_waits_for_the_driver(any_world: Node) -> None:
    """While a call into NVML hangs a scrape is as fast as before; soon no GPU answers and no use is reported."""
    any_world.single("calm", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(2)
        assert running.metric("gpu_up", gpu=GPU) == 1
        any_world.show(delays=(StubDelay(call=LISTS[0], ms=3_600_000),))
        # Once the driver hangs no cycle is finished any more; until it is noticed, the last one still counts.
        passes = _cycles(running)
        deadline = time.monotonic() + 40
        while running.metric("gpu_up", gpu=GPU) == 1:
            assert time.monotonic() < deadline
            assert _scrape_s(running) < 1.0, "a scrape has waited for something"
            time.sleep(0.05)
        assert _cycles(running) <= passes + 1
        assert running.metric("pod_memory_used_bytes", pod="calm") is None
        assert running.metric("account_over_limit", pod="calm") is None
        assert running.metric("account_memory_allowed_bytes", pod="calm") is not None
        assert running.metric("accounts", verdict="unknown") == 1
        assert running.metric("gpu_memory_total_bytes", gpu=GPU) == 40 * GIB
        assert running.metric("gpu_memory_used_bytes", gpu=GPU) is None


def _cycles(running: Daemon) -> float:
    return running.metric("cycle_duration_seconds_count") or 0


def _scrape_s(running: Daemon) -> float:
    began = time.monotonic()
    assert running.get("/metrics")[0] == 200
    return time.monotonic() - began


def test_a_node_on_which_nothing_changes_is_still_read(any_world: Node) -> None:
    """Quiet ticks: the loop sleeps, each tick counts as a cycle all the same, and a change wakes the loop at once."""
    tenant = any_world.single("calm", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        before, wakes = _cycles(running), _wakes(running)
        time.sleep(4.0)
        wakes, after = _wakes(running) - wakes, _cycles(running)
        assert after - before >= 3
        assert wakes <= 3, "the loop has not slept"
        assert time.time() - (running.metric("last_cycle_timestamp_seconds") or 0) < 2.0
        health = running.status()["health"]
        assert health["cycles"] >= after
        assert health["last_cycle_ago_s"] < 2.0
        stop = any_world.journal.with_name("stop")
        stop.touch()
        began = time.monotonic()
        running.wait(lambda d: d.metric("enforcement_suspended", reason="stop_file") == 1)
        assert time.monotonic() - began < 2.0
        stop.unlink()
        running.wait(lambda d: d.metric("enforcing") == 1)
        running.wait_passes(2)
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda _: not tenant.is_alive)


def _wakes(running: Daemon) -> int:
    """How often the main thread has slept."""
    status = Path(f"/proc/{running.pid}/task/{running.pid}/status").read_text(encoding="ascii")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_the_next_daemon_reports_a_kill_as_the_last_one_did(any_world: Node) -> None:
    """After a restart the status has the recent actions word for word, and the metrics when the last one was."""
    tenant = any_world.single("hog", used=4 * GIB)
    policy = write_policy(any_world.root, WARN_AT_ONCE, KILL_AT_ONCE)
    labels = {"pod": "hog", "container": "main", "action": "kill", "result": "done", "rule": "shared"}
    with run(any_world, policy) as running:
        running.wait(lambda d: "free" in str(_latest(d).get("outcome")))
        assert not tenant.is_alive
        before, stamp = running.status()["recent"], running.metric("pod_last_action_timestamp_seconds", **labels)
        assert running.stop()[0] == 0
    of_the_pod = {"namespace": "ns", "pod": "hog", "container": "main", "used": 4 * GIB, "declared": GIB}
    assert before[0].items() >= {**of_the_pod, "do": "kill", "result": "done"}.items()
    assert [(each["signal"], each["processes"]) for each in before[0]["signals"]] == [("SIGTERM", 1)]
    with run(any_world, policy) as again:
        again.wait(lambda d: d.status()["recent"] == before)
        assert again.metric("actions_total", action="kill", result="done") == 0
        assert again.metric("pod_last_action_timestamp_seconds", **labels) == pytest.approx(stamp, abs=1.0)


def _latest(running: Daemon) -> dict[str, object]:
    """The last action, or nothing."""
    return next(iter(running.status()["recent"]), {})


def test_a_kill_that_a_crash_cut_off_is_counted_by_the_next_daemon(any_world: Node) -> None:
    """In its grace period it has no result; after a crash the next daemon reports and counts it as interrupted."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    policy = write_policy(any_world.root, kill(grace="60s"))
    with run(any_world, policy) as running:
        running.wait(lambda d: _latest(d).get("signals"))
        assert _latest(running)["result"] is None
        running.stop(signal.SIGKILL)
    any_world.use(tenant, 512 * MIB)
    with run(any_world, policy) as again:
        again.wait(lambda d: ended(d, "interrupted"))
        assert again.metric("pod_last_action_timestamp_seconds", pod="hog", result="interrupted") is not None
        again.wait(lambda d: _latest(d).get("result") == "interrupted")
        assert tenant.is_alive
