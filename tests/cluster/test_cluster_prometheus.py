"""`top --cluster --prometheus NAMESPACE/SERVICE:PORT`: a Prometheus in the cluster, through its API server."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.fleet import FleetNode, write_blocks
from tests.monitoring.programs import find
from tests.node.support import need_root
from tests.rig.cluster.credentials import ADMIN
from tests.rig.cluster.processes import Server
from tests.rig.cluster.simulated_nodes import NAMESPACE, SimulatedNodes, address_of, pod_name, simulated_nodes
from tests.rig.command import COMMAND

PORT: Final = 9090
SPACE: Final = NAMESPACE


@pytest.fixture(scope="module")
def sim(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNodes]:
    """A cluster with a service `prometheus`, whose Prometheus has two nodes, and a service `empty` without pods."""
    need_root()  # for a network namespace
    folder = tmp_path_factory.mktemp("monitored")
    write_blocks(folder / "data", [FleetNode(name="n1", over=1), FleetNode(name="n2")])
    (folder / "prometheus.yaml").write_text("{}", encoding="utf-8")
    options = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
    with simulated_nodes(folder / "nodes", programs, 1) as made:
        command = (*made.plane.network.enter, str(find("prometheus")), f"--web.listen-address=0.0.0.0:{PORT}", *options)
        server = Server("prometheus", command, log=folder / "log", environment={"HOME": str(folder)})
        server.start()
        try:
            server.wait_for(lambda: _is_ready(made))
            _make_services(made)
            yield made
        finally:
            server.stop(hard=True)


def _is_ready(sim: SimulatedNodes) -> bool:
    try:
        return sim.plane.network.get(PORT, "/-/ready")[0] == 200
    except OSError:
        return False


def _make_services(sim: SimulatedNodes) -> None:
    ports = [{"port": PORT, "protocol": "TCP"}]
    # The API server leads to the address of a pod, and to no other: that of a daemon will do.
    address = {"ip": address_of(0), "targetRef": {"kind": "Pod", "name": pod_name(0), "namespace": SPACE}}
    for name, subsets in (("prometheus", [{"addresses": [address], "ports": ports}]), ("empty", [])):
        meta = {"name": name, "namespace": SPACE}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}}
        sim.plane.apply([service, {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": subsets}])


def top(sim: SimulatedNodes, service: str, user: str = ADMIN) -> "subprocess.CompletedProcess[str]":
    """Run `top --cluster --prometheus` to its end, with a user's rights."""
    kubeconfig = sim.plane.kubeconfig(token=sim.plane.token(user))
    command = (COMMAND, "top", "--cluster", "--once", "--prometheus", service, "--kubeconfig", kubeconfig)
    return subprocess.run(
        [*sim.plane.network.enter, *map(str, command)], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("service", [f"{SPACE}/prometheus:{PORT}", f"{SPACE}/prometheus"])
def test_a_prometheus_in_the_cluster(sim: SimulatedNodes, service: str) -> None:
    """Without a way to it of its own the command asks it through the API server, by two requests."""
    before = len(sim.plane.requests(user_agent="gpu-watchdog/"))
    ended = top(sim, service)
    assert ended.stderr == ""
    assert ended.returncode == 0
    assert ended.stdout.startswith("2 nodes answer by Prometheus\n")
    assert "team-0/job-n1-0  n1      -  12Gi     10Gi  over" in ended.stdout
    asked = sim.plane.requests(user_agent="gpu-watchdog/")[before:]
    assert {(each.verb, each.resource, each.subresource) for each in asked} <= {("get", "services", "proxy")}
    assert len(asked) <= 2


@pytest.mark.parametrize(
    ("service", "user", "cause", "remedy"),
    [
        ("prometheus", "nobody", "answered 403", f"you `get` on services/proxy in namespace {SPACE}"),
        ("missing", ADMIN, 'services "missing" not found', f"`kubectl -n {SPACE} get services` lists"),
        ("empty", ADMIN, "no endpoints available", f"`kubectl -n {SPACE} describe service empty`"),
        ("prometheus:9999", ADMIN, "9999", f"`kubectl -n {SPACE} describe service prometheus`"),
    ],
)
def test_a_service_that_leads_nowhere(sim: SimulatedNodes, service: str, user: str, cause: str, remedy: str) -> None:
    """The API server's own refusal is said, with the right, the service or the pods to look at."""
    ended = top(sim, f"{SPACE}/{service}", user)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"Error: Prometheus in service {SPACE}/{service}: the API server answered" in ended.stderr
    assert cause in ended.stderr
    assert remedy in ended.stderr
