"""The watchdog as an operator gets it: observing first, then enforcing by a change of its ConfigMap."""

import json
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster import workloads
from tests.cluster.api import Object
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import EVICT, KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.cluster.workloads import DECLARED
from tests.stub import GIB, MIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

DEEDS: Final = {"tenants": KILL, "evicted": EVICT}
HOG: Final = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
NEIGHBOUR: Final = container("beside", "term=ignore", f"gpu={512 * MIB}", memory=DECLARED)


@pytest.fixture(scope="module")
def observing(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed with a policy that observes."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        took_s = made.install(policy_text("observe", DEEDS))
        print(f"\ninstalled and ready in {took_s:.1f} s")
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        yield made


@pytest.fixture(scope="module")
def tenants(observing: Installed) -> Iterator[str]:
    """A namespace with a pod of two containers, of which one is over what it declares."""
    name = observing.cluster.new_namespace("tenants")
    observing.cluster.pods.run(pod("hog", HOG, NEIGHBOUR), name)
    yield name
    observing.cluster.drop_namespace(name)


@pytest.fixture(scope="module")
def enforcing(observing: Installed, tenants: str) -> Installed:
    """The same release with a policy that enforces, given by `helm upgrade` to the same pod."""
    before = observing.pod()
    observing.install(policy_text("enforce", DEEDS))
    began = time.monotonic()
    observing.nudge()  # else the kubelet takes up to 90 s more
    wait_until(lambda: observing.status()["mode"] == "enforce", "the kubelet brings the changed ConfigMap", 180)
    print(f"\nthe policy was in force {time.monotonic() - began:.1f} s after helm's upgrade")
    assert_same(before, observing.pod())
    observing.wait_enforcing()
    return observing


def assert_same(before: Object, after: Object) -> None:
    """It is the same pod, and nothing of it has been started again."""
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [each["restartCount"] for each in after["status"]["containerStatuses"]] == [0]


def status_of(found: Object, name: str) -> Object:
    """The status of a container of a pod, of an init container too; empty before it has one."""
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = (each for kind in kinds for each in found["status"].get(kind, ()) if each["name"] == name)
    return dict(next(statuses, {}))


def killed(found: Object, name: str) -> bool:
    """Whether a container was ended by SIGKILL and runs again."""
    status = status_of(found, name)
    ended = status.get("lastState", {}).get("terminated", {})
    return ended.get("exitCode") == 137 and "running" in status.get("state", {})


def untouched(cluster: Cluster, room: str, pod_name: str, name: str) -> bool:
    """Whether a container has run all along, also some seconds after its neighbour ended."""
    time.sleep(3)
    status = status_of(cluster.pods.get(pod_name, room) or {"status": {}}, name)
    return status.get("restartCount") == 0 and "running" in status["state"]


def test_observe_leaves_them_alone_and_tells(observing: Installed, tenants: str) -> None:
    """A container over its limit runs on, and whoever asks in the pod is told what would be done to it, and why."""
    wait_until(lambda: observing.metric("would_act_total", action="kill", rule="tenants") == 1, "it would act")
    time.sleep(5)
    found = observing.cluster.pods.get("hog", tenants)
    assert found is not None
    assert is_running(found)
    assert [each["restartCount"] for each in found["status"]["containerStatuses"]] == [0, 0]
    (over,) = [each for each in observing.status()["accounts"] if each["verdict"] == "over"]
    assert (over["namespace"], over["pod"], over["container"], over["used"]) == (tenants, "hog", "main", 2 * GIB)
    code, said, stderr = observing.ask("explain", f"{tenants}/hog")
    assert (code, stderr) == (0, "")
    assert "main" in said
    assert "observe" in said
    print(said)


def lacking(of: Installed) -> set[str]:
    """What doctor in the daemon's pod finds that is not as it should be, by name."""
    code, said, stderr = of.ask("doctor", "--json")
    assert (code, stderr) == (0, "")
    found = {each["name"] for each in json.loads(said)["findings"] if each["state"] != "ok"}
    # The policies of these tests have no brakes and no [protect].
    return found - {"policy_warnings"}


def test_top_shows_the_node(observing: Installed, tenants: str) -> None:
    """`kubectl exec POD -- gpu-watchdog top --once`: the tenants' pod with what it uses and declares."""
    wait_until(lambda: observing.metric("would_act_total", action="kill", rule="tenants") == 1, "it would act")
    code, said, stderr = observing.ask("top", "--once")
    assert (code, stderr) == (0, "")
    (line,) = [each for each in said.splitlines() if f"{tenants}/hog" in each and "over" in each]
    assert "2" in line
    print(said)


@pytest.mark.usefixtures("tenants")
def test_doctor_says_what_enforcing_would_take(observing: Installed) -> None:
    """`kubectl exec POD -- gpu-watchdog doctor`: nothing is missing but the rights that come with mode = "enforce"."""
    # While no process uses the card, doctor can't see whether the driver tells what each uses.
    wait_until(lambda: any(each["processes"] for each in observing.status()["accounts"]), "a tenant uses the card")
    assert lacking(observing) == {"rights_to_enforce"}


def test_it_advertises_what_the_card_has(observing: Installed) -> None:
    """[capacity] in the policy, and the rights that helm gave for it: the node offers the card's memory to pods."""
    assert observing.capacity(MEMORY) == 1024 * GIB - 512 * MIB


def test_a_changed_policy_is_in_force_without_a_restart(enforcing: Installed) -> None:
    """`helm upgrade` with another policy changes the ConfigMap alone; the same pod goes by it, and enforces."""
    assert len(enforcing.events("policy_loaded")) == 2
    assert len(enforcing.events("started")) == 1


def test_doctor_finds_nothing_amiss(enforcing: Installed) -> None:
    """In an untouched installation that enforces nothing is missing, and nothing is odd but that it has no brakes."""
    assert lacking(enforcing) == set()


def test_enforce_kills_the_hog_and_nobody_else(enforcing: Installed, tenants: str) -> None:
    """Exit code 137, restarted by the real kubelet, an Event on the pod; the container beside it has run all along."""
    pods = enforcing.cluster.pods
    found = pods.wait("hog", lambda of: killed(of, "main"), tenants)
    assert status_of(found, "main")["lastState"]["terminated"]["reason"] == "Error"
    assert untouched(enforcing.cluster, tenants, "hog", "beside")
    api = enforcing.cluster.control_plane.api
    path = f"/apis/events.k8s.io/v1/namespaces/{tenants}/events"

    def told() -> list[Object]:
        items: list[Object] = api.ask("GET", path)["items"]
        return [each for each in items if each["reason"] == "GPUMemoryKilled"]

    wait_until(lambda: bool(told()), "an Event tells of the kill")
    for each in told():
        assert (each["type"], each["action"]) == ("Warning", "Kill")
        assert each["regarding"]["uid"] == found["metadata"]["uid"]
        used = "uses 2Gi of GPU memory, 200% of the 1Gi allowed"
        assert each["note"].startswith(f"Container main of pod {tenants}/hog {used}")
        assert "SIGKILL after 1s" in each["note"]
    done = {"action": "kill", "rule": "tenants", "result": "done"}
    wait_until(lambda: bool(enforcing.metric("actions_total", **done)), "the action is counted")
    pods.delete("hog", tenants)


def test_a_deployment_is_evicted_and_made_anew_once_its_budget_lets_it(enforcing: Installed) -> None:
    """With a PodDisruptionBudget in the way the pod stays and that is told; without it it goes, and another comes."""
    room = enforcing.cluster.new_namespace("evicted")
    plane = enforcing.cluster.control_plane
    selector = {"matchLabels": {"app": "deployment"}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one"},
        "spec": {"selector": selector, "minAvailable": 1},
    }
    within = container("main", "term=exit", f"gpu={512 * MIB}", memory=DECLARED)
    plane.apply([budget, workloads.deployment(made_of=within)], namespace=room)
    (before,) = wait_running(enforcing.cluster, room)
    # A pod that is Pending still is evicted whatever its budget says, so it goes over later.
    grow(enforcing, before, 2 * GIB)
    wait_until(
        lambda: bool(enforcing.metric("actions_total", action="evict", rule="evicted", result="blocked")), "blocked"
    )
    found = enforcing.cluster.pods.get(before["metadata"]["name"], room)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    plane.kubectl("delete", "-n", room, "pdb", "one")
    enforcing.cluster.pods.wait_gone(before["metadata"]["uid"], before["metadata"]["name"], room)
    (after,) = wait_running(enforcing.cluster, room, other_than=before)
    done = {"action": "evict", "rule": "evicted", "result": "done"}
    wait_until(lambda: bool(enforcing.metric("actions_total", **done)), "the action is counted")
    assert after["metadata"]["name"] != before["metadata"]["name"]
    enforcing.cluster.drop_namespace(room)


def test_a_job_that_is_killed_has_failed(enforcing: Installed) -> None:
    """Exit code 137 counts against a Job that doesn't restart in place: its pods fail, and then so has the Job."""
    room = enforcing.cluster.new_namespace("tenants")
    enforcing.cluster.control_plane.apply(workloads.job("job"), namespace=room)

    def failed() -> bool:
        status = enforcing.cluster.control_plane.get("job", "job", room)["status"]
        return ("Failed", "True") in {(each["type"], each["status"]) for each in status.get("conditions", ())}

    wait_until(failed, "the Job has failed")
    for each in enforcing.cluster.pods.select(room, app="job"):
        assert status_of(each, "main")["state"]["terminated"]["exitCode"] == 137
    enforcing.cluster.drop_namespace(room)


def wait_running(cluster: Cluster, room: str, other_than: Object | None = None) -> list[Object]:
    """Wait for the one running pod of a namespace, leaving out another one."""
    uid = other_than["metadata"]["uid"] if other_than is not None else ""
    found: list[Object] = []

    def look() -> bool:
        found[:] = [each for each in cluster.pods.select(room) if each["metadata"]["uid"] != uid and is_running(each)]
        return len(found) == 1

    wait_until(look, lambda: f"one pod runs in {room}: {cluster.pods.select(room)}"[:3000])
    return found


def grow(of: Installed, found: Object, used: int) -> None:
    """Let the first process of a pod's only container use so much."""
    (one,) = of.cluster.pods.containers(found)
    of.card.use(one.pids[0], used)
