"""Pods that have left the API while processes of their containers run: a real API server, real processes, no kubelet.

So no container ends by itself, as under a kubelet that gives each a grace period of a year (test_force_deleted_node).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.test_daemon import MEMORY, ApiNode
from tests.kube.watch_lines import error
from tests.rig import node
from tests.rig.cluster.accounts import NewAccount
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.faults import Seen, lists
from tests.rig.cluster.pods import Pods
from tests.rig.command import Daemon
from tests.rig.node import Tenant
from tests.rig.record import actions
from tests.rig.suspension import Suspension
from tests.stub import GIB
from tests.world.policies import kill

SOON: Final = kill(grace="1s")
EVICT: Final = 'above = "100%"\nfor = "0s"\ndo = "evict"\ngrace = "1s"\nunwarned = true'
YEAR_S: Final = 365 * 86400


class Crime:
    """A node with a pod that declares 1Gi, uses half of that, and has a grace period of `grace_s` in its spec."""

    def __init__(self, here: ApiNode, pods: Pods) -> None:
        self.here = here
        self.pods = pods

    def pod(
        self, name: str = "hog", *, grace_s: int = 1, behaviour: str = "polite", **spec: Any
    ) -> tuple[Object, Tenant]:
        """Create it, with its process."""
        amount = {MEMORY: "1Gi"}
        made = self.pods.create(
            name,
            node=self.here.name,
            container={"resources": {"limits": amount, "requests": amount}},
            spec={"terminationGracePeriodSeconds": grace_s, **spec},
        )
        (status,) = made["status"]["containerStatuses"]
        ours = self.here.world.pod(name, ("main", "1Gi"), uid=made["metadata"]["uid"])
        ours.containers[0].id = status["containerID"].partition("://")[2]
        tenant = self.here.world.start(ours, used=GIB // 2, behaviour=behaviour)
        self.here.world.write(pods=False)
        return made, tenant

    @contextmanager
    def left(
        self, policy: str = SOON, prefix: tuple[str, ...] = (), **more: Any
    ) -> Iterator[tuple[Daemon, Object, Tenant]]:
        """Run the daemon until it shows a pod, of which `more` is as for `pod`, as one that has left."""
        pod, tenant = self.pod(**more)
        with self.here.run(policy, prefix=prefix) as running:
            running.wait(has_seen(pod))
            self.pods.delete(pod)
            running.wait(lambda d: is_left(d, pod))
            yield running, pod, tenant

    def exceed(self, tenant: Tenant) -> None:
        """Let it use nine times what it declares."""
        self.here.world.use(tenant, 9 * GIB)


@pytest.fixture
def crime(tmp_path: Path, pods: Pods, new_account: NewAccount) -> Iterator[Crime]:
    """A node."""
    with node(tmp_path) as world:
        yield Crime(ApiNode(world, pods, new_account), pods)


def account_of(running: Daemon, pod: Object) -> dict[str, Any]:
    """The account of a pod in the status; empty if there is none."""
    found = [each for each in running.status()["accounts"] if each["uid"] == pod["metadata"]["uid"]]
    return found[0] if found else {}


def is_left(running: Daemon, pod: Object) -> bool:
    """Whether the pod is shown as one that has left."""
    return bool(account_of(running, pod).get("left_since"))


def gap_of(running: Daemon) -> list[str]:
    """What the gaps about pods that have left name."""
    return [gap["what"] for gap in running.status()["gaps"] if gap["reason"] == "left"]


def has_seen(pod: Object) -> Any:
    """A condition: the daemon measures the pod."""
    return lambda running: account_of(running, pod).get("used") == GIB // 2


def test_a_force_deletion_does_not_end_enforcement(crime: Crime) -> None:
    """Point 28: what was known of the pod applies once its time is over; it is shown, and named in a gap."""
    with crime.left() as (running, pod, tenant):
        assert gap_of(running) == [f"pod {pod['metadata']['namespace']}/hog"]
        crime.exceed(tenant)
        running.wait(lambda _: not tenant.is_alive)
        assert tenant.terms
        assert account_of(running, pod) == {} or account_of(running, pod)["declared"] == GIB
        running.wait(lambda d: not gap_of(d))
    (action,) = actions(crime.here.world.journal)
    assert action.result == "done"


def test_without_a_deletion_the_same_pod_is_killed(crime: Crime) -> None:
    """The control: nothing but the deletion differs."""
    pod, tenant = crime.pod()
    with crime.here.run(SOON) as running:
        running.wait(has_seen(pod))
        crime.exceed(tenant)
        running.wait(lambda _: not tenant.is_alive)
        assert not gap_of(running)


@pytest.mark.parametrize("grace_s", [60, 0], ids=["in its time", "by force"])
def test_a_deletion_after_the_first_signal_changes_nothing(crime: Crime, grace_s: int) -> None:
    """Point 28: the kill goes on to SIGKILL."""
    pod, tenant = crime.pod(behaviour="stubborn", grace_s=YEAR_S)
    crime.exceed(tenant)
    with crime.here.run(kill(grace="4s")) as running:
        running.wait(lambda _: tenant.terms)
        crime.pods.delete(pod, grace_s=grace_s)
        running.wait(lambda _: not tenant.is_alive)
        assert tenant.ended_by == 9
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)


def test_a_pod_that_has_left_has_ten_minutes_at_most(crime: Crime, tmp_path: Path) -> None:
    """Point 28: with a grace period of a year in its spec it is left alone for ten minutes, and then killed."""
    suspension = Suspension(tmp_path)
    with crime.left(prefix=suspension.prefix, grace_s=YEAR_S) as (running, _, tenant):
        crime.exceed(tenant)
        suspension.let_pass(590)
        running.wait_passes(3)
        assert (tenant.is_alive, tenant.terms) == (True, [])
        suspension.let_pass(602)
        running.wait(lambda _: not tenant.is_alive)


def test_a_pod_that_was_terminating_gets_no_second_time(crime: Crime, tmp_path: Path) -> None:
    """Point 28: one clock, from when it was first seen terminating or gone."""
    pod, tenant = crime.pod(grace_s=YEAR_S)
    suspension = Suspension(tmp_path)
    with crime.here.run(SOON, prefix=suspension.prefix) as running:
        running.wait(has_seen(pod))
        crime.pods.delete(pod, grace_s=YEAR_S)
        running.wait(lambda d: "terminating" in str(account_of(d, pod)["protected"]))
        suspension.let_pass(590)
        crime.pods.delete(pod)
        running.wait(lambda d: is_left(d, pod))
        crime.exceed(tenant)
        suspension.let_pass(602)
        running.wait(lambda _: not tenant.is_alive)


def test_a_restarted_daemon_knows_what_has_left(crime: Crime) -> None:
    """Point 28: the journal keeps it, with what the pod declared; another daemon kills it all the same."""
    with crime.left() as (running, _, tenant):
        assert running.stop()[0] == 0
    crime.exceed(tenant)
    with crime.here.run(SOON) as running:
        running.wait(lambda _: not tenant.is_alive)
        running.wait(lambda d: not gap_of(d))


def test_an_eviction_of_a_pod_that_has_left_is_reported_gone(crime: Crime) -> None:
    """Point 28: there is no object to delete; the process lives, and the record says so."""
    with crime.left(EVICT) as (running, _, tenant):
        crime.exceed(tenant)
        running.wait(lambda d: (d.metric("actions_total", action="evict", result="gone") or 0) >= 1)
        assert tenant.is_alive
        assert gap_of(running)


# Innocents: what looks like a pod that has left, and is none, or is one that keeps within its limit or its time.


def test_a_pod_within_its_limit_is_left_alone(crime: Crime) -> None:
    """What was known of it applies, and by that it does nothing wrong."""
    with crime.left() as (running, pod, tenant):
        running.wait(lambda d: not account_of(d, pod)["protected"])
        running.wait_passes(3)
        assert (tenant.is_alive, tenant.terms) == (True, [])


def test_a_pod_is_left_alone_in_the_grace_period_of_its_spec(crime: Crime) -> None:
    """A force deletion leaves its containers that time, as a kubelet does: no signal comes from here within it."""
    with crime.left(grace_s=YEAR_S) as (running, pod, tenant):
        crime.exceed(tenant)
        running.wait(lambda d: account_of(d, pod)["verdict"] == "over")
        running.wait_passes(3)
        assert (tenant.is_alive, tenant.terms) == (True, [])
        assert "terminating" in str(account_of(running, pod)["protected"])


def test_a_partial_list_kills_nobody(crime: Crime, api_proxy: ApiProxy) -> None:
    """A list without the pod proves nothing while the API server still has it; once it has not, the pod has left."""
    pod, tenant = crime.pod()
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"

    def without(seen: Seen) -> bool:
        return lists("pods")(seen) and seen.path == "/api/v1/pods"

    def emptied(body: bytes) -> bytes:
        return json.dumps({**json.loads(body), "items": []}).encode()

    with crime.here.running(crime.here.account(SOON).through(api_proxy)) as running:
        running.wait(has_seen(pod))
        api_proxy.edit(emptied, when=without)
        api_proxy.insert(error(410, "Expired").strip(), when=lambda seen: seen.watch and seen.path == "/api/v1/pods")
        running.wait(lambda d: account_of(d, pod) == {})
        running.wait(lambda _: any(seen.path == path for seen in api_proxy.seen))
        crime.exceed(tenant)
        running.wait_passes(5)
        assert (tenant.is_alive, tenant.terms, gap_of(running)) == (True, [], [])
        crime.pods.delete(pod)
        running.wait(lambda _: not tenant.is_alive)


def test_a_pod_created_again_under_the_same_name_is_another_one(crime: Crime) -> None:
    """The new pod is within its limit and lives; the one before it, of which nothing is left in the API, is killed."""
    with crime.left() as (running, _, gone):
        new, innocent = crime.pod()
        running.wait(has_seen(new))
        crime.exceed(gone)
        running.wait(lambda _: not gone.is_alive)
        assert (innocent.is_alive, innocent.terms, is_left(running, new)) == (True, [], False)
        assert running.get("/metrics")[0] == 200


def test_a_pod_whose_containers_have_ended_leaves_nothing(crime: Crime) -> None:
    """A normal deletion: the kubelet removes the object once the containers have ended, and no gap is left."""
    pod, tenant = crime.pod()
    with crime.here.run(SOON) as running:
        running.wait(has_seen(pod))
        crime.here.world.use(tenant, 0)
        tenant.process.kill()
        tenant.process.wait()
        crime.pods.delete(pod)
        running.wait(lambda d: account_of(d, pod) == {})
        running.wait_passes(2)
        assert running.events("gap_began") == []
