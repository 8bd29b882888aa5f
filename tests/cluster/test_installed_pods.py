"""Pods that are not just a list of containers, under an installed watchdog that enforces."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.api import Object
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.kubelet import static_pods
from tests.cluster.node import NODE, Cluster
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.cluster.test_installed import killed, status_of, untouched
from tests.cluster.workloads import DECLARED
from tests.stub import GIB, MIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

OVER: Final = f"gpu={2 * GIB}"


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed, and enforcing."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(policy_text("enforce", {"tenants": KILL}))
        made.wait_enforcing()
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        yield made


@pytest.fixture
def tenants(watchdog: Installed) -> Iterator[str]:
    """A namespace in which whoever is over is killed."""
    name = watchdog.cluster.new_namespace("tenants")
    yield name
    watchdog.cluster.drop_namespace(name)


@pytest.fixture
def static(cluster: Cluster, tenants: str) -> Iterator[Object]:
    """A static pod that is over, once the kubelet has shown it to the API server."""
    made = pod("static", container("main", "term=ignore", OVER, memory=DECLARED), grace_s=1)
    made["metadata"]["namespace"] = tenants
    manifest: Path = static_pods(cluster.folder) / "static.json"
    manifest.write_text(json.dumps(made), encoding="utf-8")
    name = f"static-{NODE}"
    try:
        yield cluster.pods.wait(name, is_running, tenants)
    finally:
        manifest.unlink()
        wait_until(lambda: cluster.pods.get(name, tenants) is None, "the static pod has gone")


def account(watchdog: Installed, room: str, name: str) -> Object:
    """What the daemon says of a pod of one container, once that is over."""
    found: list[Object] = []

    def look() -> bool:
        accounts = watchdog.status()["accounts"]
        found[:] = [each for each in accounts if (each["namespace"], each["pod"]) == (room, name)]
        return [each["verdict"] for each in found] == ["over"]

    wait_until(look, lambda: f"the daemon sees {room}/{name}: {found}")
    return found[0]


def test_a_static_pod_is_protected(watchdog: Installed, tenants: str, static: Object) -> None:
    """The node itself runs it, and nobody could make it again: measured, over, and let be."""
    seen = account(watchdog, tenants, static["metadata"]["name"])
    assert seen["protected"] == "it is a static pod"
    # Somebody else who is over meanwhile is killed, so that it is not for want of time.
    pods = watchdog.cluster.pods
    pods.create(pod("other", container("main", "term=ignore", OVER, memory=DECLARED)), tenants)
    pods.wait("other", lambda of: killed(of, "main"), tenants)
    now = pods.wait(static["metadata"]["name"], is_running, tenants)
    assert status_of(now, "main")["restartCount"] == 0


def test_a_sidecar_is_killed_and_restarts_alone(watchdog: Installed, tenants: str) -> None:
    """A restartable init container is a container like others: 137, restarted, and the main one has run all along."""
    sidecar = {**container("side", "term=ignore", OVER, memory=DECLARED), "restartPolicy": "Always"}
    made = pod("pair", container("main", "term=ignore", f"gpu={512 * MIB}", memory=DECLARED), initContainers=[sidecar])
    watchdog.cluster.pods.create(made, tenants)
    watchdog.cluster.pods.wait("pair", lambda of: killed(of, "side"), tenants)
    assert untouched(watchdog.cluster, tenants, "pair", "main")


def test_shared_processes_are_told_apart_by_their_container(watchdog: Installed, tenants: str) -> None:
    """With shareProcessNamespace the sandbox is PID 1 of all: it and the neighbour live on, the hog alone ends."""
    # No process of these is PID 1 in its namespace, so the card goes by `child-gpu`. It goes over later, so that what
    # runs before can be looked at in peace.
    hog = container("main", "term=ignore", "children=2", f"child-gpu={100 * MIB}", memory=DECLARED)
    beside = container("beside", "term=ignore", "children=1", f"child-gpu={100 * MIB}", memory=DECLARED)
    pods = watchdog.cluster.pods
    began = pods.run(pod("shared", hog, beside, shareProcessNamespace=True), tenants)
    uid = began["metadata"]["uid"]
    ids = {each.name: each.id for each in pods.containers(began)}
    # The three of the hog, the neighbour's two, the sandbox.
    wait_until(lambda: len(members(watchdog.cluster, uid)) == 6, "all processes run")
    before = members(watchdog.cluster, uid)
    (sandbox,) = [pid for pid, path in before.items() if not path.endswith((ids["main"], ids["beside"]))]
    neighbours = {pid for pid, path in before.items() if path.endswith(ids["beside"])}
    assert inner_pid(sandbox) == 1
    assert len(neighbours) == 2
    watchdog.card.use(next(pid for pid, path in before.items() if path.endswith(ids["main"])), 2 * GIB)
    pods.wait("shared", lambda of: killed(of, "main"), tenants)
    after = members(watchdog.cluster, uid)
    assert sandbox in after
    assert neighbours <= after.keys()
    assert untouched(watchdog.cluster, tenants, "shared", "beside")
    assert not [pid for pid, path in after.items() if path.endswith(ids["main"])]


def test_a_user_namespace_of_its_own_is_what_this_runtime_cannot_give(watchdog: Installed, tenants: str) -> None:
    """`hostUsers: false` with containerd 1.6: the kubelet refuses the pod, and says that the runtime has none.

    Where a newer runtime runs this, the pod starts: then its hog must be killed like any other.
    """
    cluster = watchdog.cluster
    made = pod("mapped", container("main", "term=ignore", OVER, memory=DECLARED), hostUsers=False)
    cluster.pods.create(made, tenants)
    path = f"/api/v1/namespaces/{tenants}/events?fieldSelector=involvedObject.name=mapped"

    def refusals() -> list[str]:
        items = cluster.control_plane.api.ask("GET", path)["items"]
        return [each["message"] for each in items if each["reason"] == "FailedCreatePodSandBox"]

    def came_to_something() -> bool:
        found = cluster.pods.get("mapped", tenants)
        return bool(refusals()) or (found is not None and killed(found, "main"))

    wait_until(came_to_something, "it was refused or killed")
    version = cluster.node()["status"]["nodeInfo"]["containerRuntimeVersion"]
    if version.startswith("containerd://1."):
        assert "does not support user namespaces" in refusals()[0]
    else:
        assert refusals() == []


def members(cluster: Cluster, uid: str) -> dict[int, str]:
    """The processes of a pod, the sandbox's too: host's PID and cgroup."""
    return {pid: path for pid, path in cluster.cgroups.members().items() if f"pod{uid}/" in path}


def inner_pid(pid: int) -> int:
    """The PID that a process has in its own namespace."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("NSpid:")))
