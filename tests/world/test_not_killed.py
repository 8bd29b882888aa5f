"""`run` in enforce mode: who must not be signalled, whatever happens between the decision and the signal."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.node.support import REPOSITORY, wait_until
from tests.rig import Daemon, Node
from tests.rig.record import actions, boottime_s, is_intended
from tests.rig.suspension import Suspension
from tests.rig.volume import mount
from tests.stub import GIB, LISTS, MIB, StubDelay, StubProcess, StubReturn
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

GRACE_5S = kill(grace="5s")
SPARED = '\n[protect]\nnamespaces = ["ns"]\n'


def _let_each_reading_hang(world: Node) -> None:
    """Make the last list of a reading take 1.5 s, so that the test can act between its first list and its end."""
    world.show(delays=(StubDelay(call=LISTS[2], ms=1500),))


def wait_for_the_middle_of_a_reading(
    running: Daemon, before: Callable[[], None], *, hangs: str = LISTS[2], cards: int = 1
) -> None:
    """Run `before` once a reading hangs in this call, for the last of its cards, then wait until the next one does."""
    running.wait_call(hangs, cards)
    before()
    running.wait_call(hangs, cards)


def test_a_process_that_exits_between_decision_and_signal(any_world: Node) -> None:
    """Point 22: a process that has ended is not signalled, nor another in its place."""
    tenant = any_world.single("hog", used=512 * MIB)
    other = any_world.start(any_world.pods[0])
    _let_each_reading_hang(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        wait_for_the_middle_of_a_reading(running, lambda: any_world.use(tenant, 9 * GIB))
        tenant.process.kill()
        tenant.process.wait()
        running.wait_passes(2)
        assert (other.is_alive, other.terms) == (True, [])


@pytest.mark.parametrize("how", ["deleted", "terminating", "protected by a reload"])
def test_what_changes_while_it_is_looked_at_again(any_world: Node, how: str) -> None:
    """Points 20, 22, 27 and 28: a pod that goes, is being deleted or is protected during the last look lives."""
    tenant = any_world.single("hog", used=512 * MIB)
    _let_each_reading_hang(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        wait_for_the_middle_of_a_reading(running, lambda: any_world.use(tenant, 9 * GIB))
        running.wait_call(LISTS[2])  # the middle of the last look
        if how == "deleted":
            any_world.pods.clear()
            any_world.pod("other", ("main", None))
        elif how == "terminating":
            any_world.pods[0].metadata = _terminating()
        else:
            write_policy(any_world.root, KILL_AT_ONCE, more=SPARED)
        any_world.write()
        running.wait(lambda d: ended(d, "withdrawn"))
        running.wait_passes(1)
        assert (tenant.is_alive, tenant.terms) == (True, [])


def _terminating(grace: timedelta = timedelta(minutes=1)) -> dict[str, object]:
    """The metadata of a pod whose deletion has been asked for."""
    until = (datetime.now(tz=UTC) + grace).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"deletionTimestamp": until, "deletionGracePeriodSeconds": int(grace.total_seconds())}


@pytest.mark.parametrize(
    ("grace", "minutes"), [(timedelta(days=365), 10), (timedelta(minutes=5), 5)], ids=["a year", "5 minutes"]
)
def test_a_deletion_shields_for_ten_minutes_at_most(any_world: Node, grace: timedelta, minutes: int) -> None:
    """Point 28: a year of grace spares a pod for ten minutes from when it was first seen, a shorter one for that time.

    Its owner edits the pod in between, which makes it no younger.
    """
    tenant = any_world.single("hog", used=9 * GIB, metadata=_terminating(grace))
    machine = Suspension(any_world.root)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=machine.prefix) as running:
        for passed in (0, minutes - 1):
            machine.let_pass(60 * passed)
            running.wait_passes(2)
            (account,) = running.status()["accounts"]
            assert account["verdict"] == "over"
            assert account["protected"].startswith("it is terminating")
            assert (tenant.is_alive, tenant.terms) == (True, [])
        any_world.pods[0].metadata = {**any_world.pods[0].metadata, "labels": {"edited": "since"}}
        any_world.write()
        running.wait_passes(2)
        assert tenant.is_alive
        machine.let_pass(60 * minutes + 1)
        running.wait(ended, 20)
        assert tenant.ended_by == signal.SIGTERM


def test_a_gap_in_the_data_during_for(any_world: Node) -> None:
    """Points 15 and 16: time without readings is not time above the threshold."""
    tenant = any_world.single("hog", used=9 * GIB)
    machine = Suspension(any_world.root)
    with run(any_world, write_policy(any_world.root, kill("4s")), prefix=machine.prefix) as running:
        running.wait_passes(1)
        any_world.show(returns=(StubReturn(call=LISTS[0], code=999),))
        running.wait_passes(1)
        machine.let_pass(6)
        running.wait_passes(2)
        assert tenant.terms == []
        status = running.status()
        assert [each["verdict"] for each in status["accounts"]] == ["unknown"]
        assert "nvmlDeviceGetComputeRunningProcesses" in status["gaps"][0]["why"]
        any_world.show(returns=())
        came_back = boottime_s()
        running.wait(lambda _: tenant.terms)
        assert tenant.terms[0] - came_back > 1.5


@pytest.mark.parametrize(
    ("step", "changed"),
    [(GRACE_5S, {"mode": "observe"}), (GRACE_5S, {"more": SPARED}), (WARN_AT_ONCE, {})],
    ids=["observe", "protect", "only warn"],
)
def test_a_policy_that_enforces_less_ends_a_grace_period(any_world: Node, step: str, changed: dict[str, str]) -> None:
    """Point 20: a policy that observes, protects or only warns from now on: no SIGKILL."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    policy, machine = write_policy(any_world.root, GRACE_5S), Suspension(any_world.root)
    with run(any_world, policy, prefix=machine.prefix) as running:
        running.wait(lambda _: tenant.terms)
        write_policy(any_world.root, step, **changed)
        began = time.monotonic()
        running.wait(lambda d: ended(d, "interrupted"))
        assert time.monotonic() - began < 2.0
        machine.let_pass(6)
        running.wait_passes(2)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)


def test_a_reload_that_changes_nothing_about_it_lets_the_grace_go_on(any_world: Node) -> None:
    """Point 20: another reload in the grace period does not save the offender."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(lambda _: tenant.terms)
        write_policy(any_world.root, KILL_AT_ONCE, more=SPARED.replace("ns", "elsewhere"))
        running.wait(ended)
        assert tenant.ended_by == signal.SIGKILL


def test_stopping_in_a_grace_period(any_world: Node) -> None:
    """Point 26: no further signal, `interrupted` in the journal, the end within a second; the journal is whole."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    with run(any_world, write_policy(any_world.root, GRACE_5S)) as running:
        running.wait(lambda _: tenant.terms)
        code, took_s = running.stop()
    assert (code, took_s < 1.0) == (0, True)
    assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
    assert [each.result for each in actions(any_world.journal)] == ["interrupted"]


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.3, 1.9, 2.02, 2.2])
def test_kill_9_of_the_daemon_at_every_step_of_a_kill(any_world: Node, after_s: float) -> None:
    """Point 31: from the intention in the journal on, a daemon that dies is never followed by a second kill."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    policy = write_policy(any_world.root, KILL_AT_ONCE)
    with run(any_world, policy) as running:
        wait_until(lambda: is_intended(any_world.journal))
        time.sleep(after_s)
        running.stop(signal.SIGKILL)
    time.sleep(0.1)
    terms, was_alive = len(tenant.terms), tenant.is_alive
    with run(any_world, policy) as again:
        again.wait_passes(4)
        assert len(actions(any_world.journal)) == 1
        assert (len(tenant.terms), tenant.is_alive) == (terms, was_alive)
        plan = [entry["withheld_by"] for entry in again.status()["plan"] if entry["do"] == "kill"]
        assert plan == (["pending"] if was_alive else [])
    assert terms <= 1


def test_a_second_crash_restarts_the_wait(any_world: Node) -> None:
    """Point 31: the wait for an action without an end outlives another crash: still no second kill."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    policy = write_policy(any_world.root, GRACE_5S)
    with run(any_world, policy) as running:
        running.wait(lambda _: tenant.terms)
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        running.wait_passes(2)
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        running.wait_passes(4)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        assert [each.result for each in actions(any_world.journal)] == ["interrupted"]


def test_after_the_wait_a_new_ladder_leads_to_a_new_kill(any_world: Node) -> None:
    """Point 31: the wait after a crash ends; who is still over then is killed by a new action."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    policy = write_policy(any_world.root, KILL_AT_ONCE, keys='release_timeout = "3s"')
    with run(any_world, policy) as running:
        running.wait(lambda _: tenant.terms)
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as again:
        again.wait(ended)
        assert tenant.ended_by == signal.SIGKILL
    assert [each.result for each in actions(any_world.journal)] == ["interrupted", "done"]


def test_the_daemons_own_pod_is_spared_in_a_private_cgroup_namespace(world: Node) -> None:
    """Point 35: its cgroup reads `/` there, and the UID from the manifest identifies its own pod."""
    own = world.pod("gpu-watchdog-x", ("watchdog", "1Gi"), ("side", None), namespace="gpu-memory-watchdog")
    side, tenant = world.start(own, 1, used=9 * GIB), world.single("hog", used=9 * GIB)
    prefix = ("env", f"GPU_WATCHDOG_POD_UID={own.uid}", *world.inside(own))
    with run(world, write_policy(world.root, KILL_AT_ONCE), prefix=prefix) as running:
        itself = StubProcess(pid=running.pid, used=9 * GIB)
        world.show(gpus=(replace(world.stub.gpus[0], processes=(itself,)),))
        running.wait(lambda _: not tenant.is_alive)
        running.wait_passes(2)
        assert (side.is_alive, side.terms) == (True, [])
        (account,) = (each for each in running.status()["accounts"] if each["uid"] == own.uid)
        assert (account["verdict"], account["protected"]) == ("over", "it is the watchdog's own pod")


_CRITICAL: Final = "\n[protect]\npriority_at_least = 1000000000\n"
_SHIPPED: Final = _CRITICAL + 'priority_namespaces = ["kube-system", "gpu-operator"]\n'


@pytest.mark.parametrize("priority", [1_000_000_000, 2_000_001_000])
def test_a_priority_protects_no_tenant(any_world: Node, priority: int) -> None:
    """Point 35: system-node-critical is open to any namespace; the pods of the shipped policy's namespaces live."""
    over = any_world.single("hog", used=9 * GIB, priority=priority)
    system = any_world.single("device-plugin", used=9 * GIB, priority=priority, namespace="gpu-operator")
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, more=_SHIPPED)) as running:
        running.wait(ended)
        running.wait_passes(2)
        assert (over.ended_by, system.is_alive, system.terms) == (signal.SIGTERM, True, [])
        assert running.metric("withheld_total", brake="protected") == 1


def test_a_priority_protects_everywhere_under_a_policy_without_the_key(any_world: Node) -> None:
    """Point 35: a policy that was written before the key existed goes on protecting what it did."""
    critical = any_world.single("device-plugin", used=9 * GIB, priority=2_000_001_000)
    over = any_world.single("hog", used=9 * GIB, priority=999_999_999)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, more=_CRITICAL)) as running:
        running.wait(ended)
        running.wait_passes(2)
        assert (over.ended_by, critical.is_alive, critical.terms) == (signal.SIGTERM, True, [])


def test_protected_pods_live_and_no_tenant_takes_their_name(any_world: Node) -> None:
    """Point 35: kube-system, a static pod and the monitoring's exporter are measured and spared, a namesake dies."""
    text = (REPOSITORY / "config" / "policy.toml").read_text(encoding="utf-8")
    shipped = mount(any_world.root / "policy.toml", text.replace('mode = "observe"', 'mode = "enforce"', 1))
    static = {"annotations": {"kubernetes.io/config.mirror": "0123456789abcdef" * 2}}
    spared = [
        any_world.single("dns", used=9 * GIB, namespace="kube-system"),
        any_world.single("etcd", used=9 * GIB, metadata=static),
        any_world.single("dcgm-exporter-x", used=9 * GIB, namespace="monitoring"),
    ]
    namesake = any_world.single("dcgm-exporter-x", used=9 * GIB, namespace="tenant")
    with run(any_world, shipped) as running:
        running.wait(lambda _: not namesake.is_alive)
        running.wait_passes(2)
        assert [(each.is_alive, each.terms) for each in spared] == [(True, [])] * 3
        assert running.metric("withheld_total", brake="protected") == 3


def test_a_stale_pod_list_leads_to_no_enforcement(any_world: Node) -> None:
    """Promise 1, point 27: a list that is older than `stale_after` suspends enforcement, not observation."""
    tenant = any_world.single("hog", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, keys='stale_after = "3s"')) as running:
        running.wait_passes(1)
        any_world.pods_file.write_text("{", encoding="utf-8")
        running.wait(lambda d: d.get("/readyz")[0] == 503, 20)
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda d: d.metric("withheld_total", brake="stale") == 1)
        running.wait_passes(2)
        assert (tenant.is_alive, tenant.terms) == (True, [])
        assert running.metric("pod_memory_used_bytes", pod="hog") == 9 * GIB
        any_world.write()
        running.wait(lambda _: not tenant.is_alive)
