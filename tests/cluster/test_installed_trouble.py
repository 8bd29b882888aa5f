"""What goes away beneath an installed watchdog and comes back, and a second daemon beside it."""

import time
from pathlib import Path
from typing import Final

import pytest

from tests.rig.cluster.api import Object
from tests.rig.cluster.installed import Installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.real_pods import container, is_running, killed, pod, status_of, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.stub import GIB, LISTS, MIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

STALE_S: Final = 15
# Enforces by lists of pods that are at most 15 s old.
POLICY: Final = policy_text("enforce", {"tenants": KILL}, stale_after=f"{STALE_S}s")


def tenant(name: str = "tenant", used: int = 512 * MIB) -> Object:
    """A pod within its limit, unless it uses more."""
    return pod(name, container("main", "term=ignore", f"gpu={used}", memory=DECLARED))


@pytest.mark.parametrize("what", ["kubelet", "containerd"])
def test_a_part_of_the_node_is_restarted(watchdog: Installed, tenants: str, what: str) -> None:
    """Ended by SIGKILL: the daemon's pod and the tenants' run on as they are, and enforcement continues."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant(), tenants)
    daemon = watchdog.pod()
    before = [cluster.pods.processes(each) for each in (running, daemon)]
    cycles = watchdog.metric("cycle_duration_seconds_count") or 0
    if what == "kubelet":
        cluster.restart_kubelet()
    else:
        cluster.containerd.server.stop(hard=True)
        time.sleep(3)
        cluster.containerd.start()
        cluster.kubelet.wait_for(cluster.is_ready)
    wait_until(lambda: (watchdog.metric("cycle_duration_seconds_count") or 0) > cycles + 3, "its cycles continue")
    assert cluster.pods.untouched(daemon["metadata"]["name"], watchdog.namespace, "watchdog")
    assert [cluster.pods.processes(each) for each in (running, daemon)] == before
    watchdog.wait_enforcing()
    watchdog.grow(running, 2 * GIB)
    cluster.pods.wait("tenant", killed, tenants)


def test_a_while_without_the_api_server(watchdog: Installed, tenants: str) -> None:
    """Beyond stale_after no pod is acted on, and the daemon is not ready; enforcement returns with the server."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant(), tenants)
    (one,) = cluster.pods.containers(running)
    victim, daemon = Path(f"/proc/{one.pids[0]}"), watchdog.at(watchdog.pod()["status"]["podIP"])
    processes = cluster.pods.processes(watchdog.pod())
    cluster.control_plane.kill_apiserver()
    try:
        wait_until(lambda: bool(daemon.status()["pods_stale"]), "the list is old")
        watchdog.card.use(one.pids[0], 2 * GIB)
        time.sleep(STALE_S)
        assert victim.exists()
        assert [daemon.get(path)[0] for path in ("/healthz", "/readyz")] == [200, 503]
        assert processes.keys() <= cluster.cgroups.members().keys()
    finally:
        cluster.control_plane.start_apiserver()
    back = time.monotonic()
    wait_until(lambda: not victim.exists(), "enforcement comes back")
    print(f"\nkilled {time.monotonic() - back:.1f} s after the API server was back")
    cluster.control_plane.settle()
    cluster.pods.wait("tenant", killed, tenants)
    assert status_of(watchdog.pod(), "watchdog")["restartCount"] == 0


def test_two_daemons_on_a_node_never_both_act(watchdog: Installed, tenants: str) -> None:
    """A second pod with the same journal, made by hand, is not ready, since it lacks the lock, and does nothing."""
    cluster = watchdog.cluster
    spec = cluster.control_plane.get("daemonset", "gpu-watchdog", watchdog.namespace)["spec"]["template"]["spec"]
    second = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": spec}
    other = watchdog.at(cluster.pods.run(second, watchdog.namespace)["status"]["podIP"])

    def ready() -> tuple[int, str]:
        try:
            return other.get("/readyz")
        except OSError as error:
            return 0, str(error)

    wait_until(lambda: "holds the lock" in ready()[1], lambda: f"{ready()}")
    assert ready()[0] == 503
    cluster.pods.create(tenant("hog", 2 * GIB), tenants)
    cluster.pods.wait("hog", lambda of: status_of(of).get("restartCount", 0) >= 1, tenants)
    done = [value for (name, _), value in other.metrics().items() if name == "actions_total"]
    assert (bool(done), any(done)) == (True, False)
    kills = [line for line in watchdog.events("kill_begun") if line["namespace"] == tenants]
    restarts = status_of(cluster.pods.get("hog", tenants) or {"status": {}})["restartCount"]
    assert 1 <= len(kills) <= restarts + 1  # one for each restart, and perhaps one that is still to be seen
    cluster.pods.delete("second", watchdog.namespace)


def test_a_driver_that_hangs_is_left_by_a_restart(watchdog: Installed, tenants: str) -> None:
    """A call does not return: no pod is hurt, the liveness probe restarts the daemon, and it enforces again."""
    cluster = watchdog.cluster
    running = cluster.pods.run(tenant(), tenants)
    before = watchdog.pod()
    began = time.monotonic()
    watchdog.card.hang(*LISTS)
    try:
        watchdog.grow(running, 2 * GIB)
        count = status_of(before, "watchdog")["restartCount"]
        cluster.pods.wait(
            before["metadata"]["name"],
            lambda of: status_of(of, "watchdog")["restartCount"] == count + 1,
            watchdog.namespace,
            300,
        )
        print(f"\nrestarted {time.monotonic() - began:.0f} s after the driver began to hang")
        assert status_of(cluster.pods.wait("tenant", is_running, tenants))["restartCount"] == 0
    finally:
        watchdog.card.hang()
    cluster.pods.wait("tenant", killed, tenants)
    assert watchdog.pod()["metadata"]["uid"] == before["metadata"]["uid"]
    watchdog.wait_enforcing()
