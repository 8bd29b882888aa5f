"""Who reaches port 9837 by default: the chart's NetworkPolicy, read from a real API server, under a packet filter."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.rig.cluster.api import Object
from tests.rig.cluster.installed import PORT, Installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.network import Network, exchange
from tests.rig.cluster.node import Cluster
from tests.rig.cluster.packet_filter import counted, enforced
from tests.rig.cluster.real_pods import pod, wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
# The chart's default.
_MONITORING: Final = "monitoring"
_PAGES: Final = ("/", "/metrics", "/api/status", "/api/summary", "/api/history?gpu=0", "/api/report")


def network_of(cluster: Cluster, of: Object) -> Network:
    """The network of a pod, to connect from there."""
    (one,) = cluster.pods.containers(of)
    return Network(namespace=f"/proc/{one.pids[0]}/ns/net")


def status(network: Network, address: str, path: str, port: int = PORT) -> int | None:
    """The status of a GET from a network; None if the port is not reached."""
    try:
        connection = replace(network, address=address).open_http(port, timeout_s=10)
    except OSError:
        return None
    return exchange(connection, "GET", path).status


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Iterator[Network]:
    """The network of a pod in the namespace that the chart names."""
    cluster.control_plane.make_namespace(_MONITORING)
    cluster.pods.wait_for_accounts(_MONITORING)
    yield network_of(cluster, cluster.pods.run(pod("prometheus"), _MONITORING))
    cluster.drop_namespace(_MONITORING)


def test_prometheus_reaches_the_metrics_and_no_tenant_does(
    watchdog: Installed, prometheus: Network, tenants: str
) -> None:
    """What every pod reads where nothing enforces the policy, only those of the monitoring namespace do with it."""
    cluster, address = watchdog.cluster, watchdog.pod()["status"]["podIP"]
    tenant = network_of(cluster, cluster.pods.run(pod("curious"), tenants))
    assert {status(tenant, address, path) for path in _PAGES} == {200}
    with enforced(cluster):
        assert {status(prometheus, address, path) for path in _PAGES} == {200}
        assert {status(tenant, address, path) for path in (*_PAGES, "/healthz", "/readyz")} == {None}
    assert status(tenant, address, "/metrics") == 200


def test_the_kubelet_reaches_the_probes(watchdog: Installed) -> None:
    """Its probes come from the node, which no policy keeps out: they go on, and the pod stays ready."""
    cluster, address = watchdog.cluster, watchdog.pod()["status"]["podIP"]
    with enforced(cluster), counted(cluster, address, PORT) as probes:
        wait_until(lambda: probes.read() >= 4, "the kubelet has probed again and again")
        assert status(cluster.network, address, "/healthz") == 200
        (daemon,) = watchdog.pod()["status"]["containerStatuses"]
        assert (daemon["ready"], daemon["restartCount"]) == (True, 0)


def test_no_other_port_is_reached(watchdog: Installed, prometheus: Network) -> None:
    """Something else that listens in the daemon's pod is not opened, to Prometheus neither."""
    cluster, address, port = watchdog.cluster, watchdog.pod()["status"]["podIP"], 9999
    command = ["nsenter", f"--net=/proc/{watchdog.pid}/ns/net", "python3", "-m", "http.server", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=watchdog.folder)
    try:
        wait_until(lambda: status(prometheus, address, "/", port) == 200, "it listens, and is open")
        with enforced(cluster):
            assert status(prometheus, address, "/", port) is None
            assert status(prometheus, address, "/metrics") == 200
    finally:
        server.kill()
        server.wait()
