"""What goes away beneath an installed watchdog and comes back: the kubelet, containerd, the API server."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Object
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.cluster.test_installed import grow, killed, status_of
from tests.cluster.workloads import DECLARED
from tests.stub import GIB, LISTS, MIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

AWAY_S = 60.0
STALE_S = 15


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed, and enforcing by lists of pods that are at most 15 s old."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(policy_text("enforce", {"tenants": KILL}, stale_after=f"{STALE_S}s"))
        made.wait_enforcing()
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        yield made


@pytest.fixture
def tenants(watchdog: Installed) -> Iterator[str]:
    """A namespace in which whoever is over is killed."""
    name = watchdog.cluster.new_namespace("tenants")
    yield name
    watchdog.cluster.drop_namespace(name)


def tenant(name: str) -> Object:
    """A pod within its limit."""
    return pod(name, container("main", "term=ignore", f"gpu={512 * MIB}", memory=DECLARED))


def whereabouts(cluster: Cluster, of: Object) -> dict[int, str]:
    """The processes of a pod, the sandbox's too, and their cgroups."""
    uid = of["metadata"]["uid"]
    return {pid: path for pid, path in cluster.cgroups.members().items() if f"pod{uid}/" in path}


def is_stale(of: Installed, address: str) -> bool:
    """Whether the daemon there takes its list of pods for too old."""
    return bool(of.at(address).status()["pods_stale"])


@pytest.mark.parametrize("what", ["kubelet", "containerd"])
def test_a_part_of_the_node_is_started_anew(watchdog: Installed, tenants: str, what: str) -> None:
    """Ended by SIGKILL: the daemon's pod and the tenants' run on as they are, and force is used as before."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant("tenant"), tenants)
    daemon = watchdog.pod()
    before = [whereabouts(cluster, each) for each in (running, daemon)]
    passes = watchdog.metric("cycle_duration_seconds_count") or 0
    if what == "kubelet":
        cluster.restart_kubelet(hard=True)
    else:
        cluster.containerd.server.stop(hard=True)
        time.sleep(3)
        cluster.containerd.start()
        cluster.kubelet.wait_for(cluster.is_ready)
    wait_until(lambda: (watchdog.metric("cycle_duration_seconds_count") or 0) > passes + 3, "it goes on looking")
    time.sleep(3)
    assert [whereabouts(cluster, each) for each in (running, daemon)] == before
    now = watchdog.pod()
    assert now["metadata"]["uid"] == daemon["metadata"]["uid"]
    assert now["status"]["containerStatuses"][0]["restartCount"] == 0
    watchdog.wait_enforcing()
    grow(watchdog, running, 2 * GIB)
    cluster.pods.wait("tenant", lambda of: killed(of, "main"), tenants)


def test_a_minute_without_the_api_server(watchdog: Installed, tenants: str) -> None:
    """Beyond stale_after nobody is acted on, and that is told; once the server is back so is enforcement."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant("tenant"), tenants)
    (one,) = cluster.pods.containers(running)
    victim, address = Path(f"/proc/{one.pids[0]}"), watchdog.pod()["status"]["podIP"]
    daemon = whereabouts(cluster, watchdog.pod())

    cluster.control_plane.stop_apiserver(hard=True)
    began = time.monotonic()
    try:
        wait_until(lambda: is_stale(watchdog, address), "the list is old")
        stale_s = time.monotonic() - began
        watchdog.card.use(one.pids[0], 2 * GIB)
        time.sleep(max(0.0, AWAY_S - (time.monotonic() - began)))
        assert victim.exists()
        assert watchdog.at(address).get("/healthz")[0] == 200
        assert watchdog.at(address).get("/readyz")[0] == 503
        assert daemon.keys() <= cluster.cgroups.members().keys()
    finally:
        cluster.control_plane.start_apiserver()
    back = time.monotonic()
    wait_until(lambda: not victim.exists(), "enforcement comes back", pause_s=0.02)
    print(f"\nstale after {stale_s:.1f} s; killed {time.monotonic() - back:.1f} s after the API server was back")
    cluster.control_plane.settle()
    cluster.pods.wait("tenant", lambda of: killed(of, "main"), tenants)
    assert is_running(watchdog.pod())
    assert watchdog.pod()["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_driver_that_hangs_is_left_by_a_restart(watchdog: Installed, tenants: str) -> None:
    """A call that does not return: nobody is hurt, the liveness probe has it started again, and it enforces again."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant("tenant"), tenants)
    before = watchdog.pod()
    (container_before,) = before["status"]["containerStatuses"]
    began = time.monotonic()
    watchdog.card.hang(*LISTS)
    try:
        (one,) = cluster.pods.containers(running)
        watchdog.card.use(one.pids[0], 2 * GIB)
        name = before["metadata"]["name"]
        cluster.pods.wait(
            name, lambda of: restarts(of) == container_before["restartCount"] + 1, watchdog.namespace, 300
        )
        print(f"\nstarted anew {time.monotonic() - began:.0f} s after the driver began to hang")
        assert status_of(cluster.pods.wait("tenant", is_running, tenants), "main")["restartCount"] == 0
    finally:
        watchdog.card.hang()
    cluster.pods.wait("tenant", lambda of: killed(of, "main"), tenants)
    assert watchdog.pod()["metadata"]["uid"] == before["metadata"]["uid"]
    watchdog.wait_enforcing()


def restarts(of: Object) -> int:
    """How often the only container of a pod was started again."""
    (status,) = of["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count
