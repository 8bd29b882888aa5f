"""The watchdog as an operator gets it: observing first, then enforcing by a change of its ConfigMap."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.rig.cluster import workloads
from tests.rig.cluster.api import Object
from tests.rig.cluster.event_rig import events_of
from tests.rig.cluster.installed import Installed
from tests.rig.cluster.installed_policy import EVICT, KILL, policy_text
from tests.rig.cluster.kubelet import static_pods
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.real_pods import MEMORY, container, inner_pid, is_running, killed, pod, status_of, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.stub import GIB, MIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

ACTIONS: Final = {"tenants": KILL, "evicted": EVICT}
OVER: Final = f"gpu={2 * GIB}"
OFFENDER: Final = container("main", "term=ignore", OVER, memory=DECLARED)
NEIGHBOUR: Final = container("beside", "term=ignore", f"gpu={512 * MIB}", memory=DECLARED)


@pytest.fixture(scope="module")
def observing(release: Installed) -> Installed:
    """Installed with a policy that observes."""
    took_s = release.install(policy_text("observe", ACTIONS))
    print(f"\ninstalled and ready in {took_s:.1f} s")
    wait_until(lambda: release.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
    return release


@pytest.fixture(scope="module")
def room(observing: Installed) -> Iterator[str]:
    """A namespace with a pod of two containers, of which one is over what it declares."""
    name = observing.cluster.new_namespace("tenants")
    observing.cluster.pods.run(pod("hog", OFFENDER, NEIGHBOUR), name)
    yield name
    observing.cluster.drop_namespace(name)


@pytest.fixture(scope="module")
def enforcing(observing: Installed, room: str) -> Installed:
    """The same pod with a policy that enforces: `helm upgrade` changes the ConfigMap alone."""
    before = observing.pod()
    observing.install(policy_text("enforce", ACTIONS))
    began = time.monotonic()
    observing.nudge()  # else the kubelet takes up to 90 s more
    wait_until(lambda: observing.status()["mode"] == "enforce", "the kubelet brings the changed ConfigMap", 180)
    print(f"\nthe policy was in force {time.monotonic() - began:.1f} s after helm's upgrade")
    after = observing.pod()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [each["restartCount"] for each in after["status"]["containerStatuses"]] == [0]
    observing.wait_enforcing()
    return observing


def test_observe_leaves_the_pod_alone_and_reports_it(observing: Installed, room: str) -> None:
    """A container over its limit keeps running; `explain`, `top` and `doctor` in the pod, without a shell, show it."""
    wait_until(lambda: observing.metric("would_act_total", action="kill", rule="tenants") == 1, "it would act")
    assert observing.cluster.pods.untouched("hog", room, "main")
    (over,) = [each for each in observing.status()["accounts"] if each["verdict"] == "over"]
    assert (over["namespace"], over["pod"], over["container"], over["used"]) == (room, "hog", "main", 2 * GIB)
    code, printed, stderr = observing.ask("explain", f"{room}/hog")
    assert (code, stderr, "observe" in printed) == (0, "", True)
    code, printed, stderr = observing.ask("top", "--once")
    assert (code, stderr) == (0, "")
    assert any(f"{room}/hog" in line and "over" in line for line in printed.splitlines())
    assert observing.lacking() == {"rights_to_enforce"}
    assert observing.capacity(MEMORY) == 1024 * GIB - 512 * MIB


def test_enforce_kills_the_offender_and_nothing_else(enforcing: Installed, room: str) -> None:
    """Exit code 137, restarted by the real kubelet, an Event on the pod; the container beside it keeps running."""
    pods, plane = enforcing.cluster.pods, enforcing.cluster.control_plane
    found = pods.wait("hog", killed, room)
    assert status_of(found)["lastState"]["terminated"]["reason"] == "Error"
    assert pods.untouched("hog", room, "beside")
    assert (len(enforcing.events("policy_loaded")), len(enforcing.events("started"))) == (2, 1)
    assert enforcing.lacking() <= {"process_numbers"}  # the offender may not be on the GPU again yet

    def reported() -> list[Object]:
        return [each for each in events_of(plane, room) if each["reason"] == "GPUMemoryKilled"]

    wait_until(lambda: bool(reported()), "an Event reports the kill")
    for each in reported():
        assert (each["type"], each["action"], each["regarding"]["uid"]) == ("Warning", "Kill", found["metadata"]["uid"])
        assert each["metadata"]["annotations"]["gpu-memory-watchdog/used"] == str(2 * GIB)
    done = {"action": "kill", "rule": "tenants", "result": "done"}
    wait_until(lambda: bool(enforcing.metric("actions_total", **done)), "the action is counted")
    pods.delete("hog", room)


def test_a_deployment_is_evicted_and_replaced_once_its_budget_allows_it(enforcing: Installed) -> None:
    """While a PodDisruptionBudget blocks it the pod stays, and the plan says so; without it another pod follows."""
    room = enforcing.cluster.new_namespace("evicted")
    plane, pods = enforcing.cluster.control_plane, enforcing.cluster.pods
    spec = {"selector": {"matchLabels": {"app": "deployment"}}, "minAvailable": 1}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one"}, "spec": spec}
    within = container("main", "term=exit", f"gpu={512 * MIB}", memory=DECLARED)
    plane.apply([budget, workloads.deployment(within)], namespace=room)

    def running(*, other_than: str = "") -> list[Object]:
        return [each for each in pods.select(room) if each["metadata"]["uid"] != other_than and is_running(each)]

    wait_until(lambda: len(running()) == 1, "one pod runs")
    (before,) = running()
    # A pod that is Pending still is evicted whatever its budget says, so it goes over later.
    enforcing.grow(before, 2 * GIB)
    counted = {"action": "evict", "rule": "evicted"}
    wait_until(lambda: bool(enforcing.metric("actions_total", **counted, result="blocked")), "blocked")
    (entry,) = [each for each in enforcing.status()["plan"] if each["rule"] == "evicted"]
    assert (entry["withheld_by"], entry["pending"]["blocked"]) == ("pending", True)
    assert len(enforcing.events("evict_blocked")) == 1
    uid, name = before["metadata"]["uid"], before["metadata"]["name"]
    assert "deletionTimestamp" not in (pods.get(name, room) or {"metadata": {"deletionTimestamp": ""}})["metadata"]
    plane.kubectl("delete", "-n", room, "pdb", "one")
    pods.wait_gone(uid, name, room)
    wait_until(lambda: len(running(other_than=uid)) == 1, "another pod runs")
    wait_until(lambda: bool(enforcing.metric("actions_total", **counted, result="done")), "the action is counted")
    wait_until(
        lambda: ("GPUMemoryEvicted", uid) in {(e["reason"], e["regarding"]["uid"]) for e in events_of(plane, room)},
        "an Event reports the eviction",
    )
    asked = plane.requests(user=f"system:serviceaccount:{enforcing.namespace}:{enforcing.account}")
    assert not [each for each in asked if each.verb.startswith("delete")]
    enforcing.cluster.drop_namespace(room)


@pytest.fixture
def static(cluster: Cluster, tenants: str) -> Iterator[Object]:
    """A static pod that is over, once the kubelet has shown it to the API server."""
    made = pod("static", OFFENDER, grace_s=1)
    made["metadata"]["namespace"] = tenants
    manifest: Path = static_pods(cluster.folder) / "static.json"
    manifest.write_text(json.dumps(made), encoding="utf-8")
    name = f"static-{NODE}"
    try:
        yield cluster.pods.wait(name, is_running, tenants)
    finally:
        manifest.unlink()
        wait_until(lambda: cluster.pods.get(name, tenants) is None, "the static pod has gone")


def test_a_static_pod_is_protected(enforcing: Installed, tenants: str, static: Object) -> None:
    """The node itself runs it, and nothing could recreate it: measured, over, and left alone."""
    name = static["metadata"]["name"]

    def verdicts() -> list[tuple[str, str]]:
        found = (each for each in enforcing.status()["accounts"] if each["pod"] == name)
        return [(each["verdict"], each["protected"]) for each in found]

    wait_until(lambda: verdicts() == [("over", "it is a static pod")], lambda: f"it is seen: {verdicts()}")
    # Another pod that is over meanwhile is killed, so that it is not for want of time.
    pods = enforcing.cluster.pods
    pods.create(pod("other", OFFENDER), tenants)
    pods.wait("other", killed, tenants)
    assert status_of(pods.wait(name, is_running, tenants))["restartCount"] == 0


def test_a_sidecar_is_killed_and_restarts_alone(enforcing: Installed, tenants: str) -> None:
    """A restartable init container is a container like others: 137, restarted, and the main one keeps running."""
    sidecar = {**container("side", "term=ignore", OVER, memory=DECLARED), "restartPolicy": "Always"}
    pods = enforcing.cluster.pods
    pods.create(pod("pair", NEIGHBOUR, initContainers=[sidecar]), tenants)
    pods.wait("pair", lambda of: killed(of, "side"), tenants)
    assert pods.untouched("pair", tenants, "beside")


def test_shared_processes_are_told_apart_by_their_container(enforcing: Installed, tenants: str) -> None:
    """With shareProcessNamespace the sandbox is PID 1 of all: it and the neighbour live on, the offender alone ends."""
    # No process of these is PID 1 in its namespace, so the card goes by `child-gpu`. It goes over later, so that what
    # runs before can be read in peace.
    offender = container("main", "term=ignore", "children=2", f"child-gpu={100 * MIB}", memory=DECLARED)
    beside = container("beside", "term=ignore", "children=1", f"child-gpu={100 * MIB}", memory=DECLARED)
    pods = enforcing.cluster.pods
    shared = pods.run(pod("shared", offender, beside, shareProcessNamespace=True), tenants)
    ids = {each.name: each.id for each in pods.containers(shared)}
    # The three of the offender, the neighbour's two, the sandbox.
    wait_until(lambda: len(pods.processes(shared)) == 6, "all processes run")
    before = pods.processes(shared)
    (sandbox,) = [pid for pid, path in before.items() if not path.endswith((ids["main"], ids["beside"]))]
    neighbours = {pid for pid, path in before.items() if path.endswith(ids["beside"])}
    assert inner_pid(sandbox) == 1
    assert len(neighbours) == 2
    enforcing.card.use(next(pid for pid, path in before.items() if path.endswith(ids["main"])), 2 * GIB)
    pods.wait("shared", killed, tenants)
    after = pods.processes(shared)
    assert {sandbox, *neighbours} <= after.keys()
    assert pods.untouched("shared", tenants, "beside")
    assert not [pid for pid, path in after.items() if path.endswith(ids["main"])]
