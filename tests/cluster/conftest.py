"""The real control plane of the folder, and what each test gets of it."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.support import cannot_run, wait_until
from tests.rig.cluster.accounts import new_account  # noqa: F401 - pytest finds fixtures by their names in here
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.doctor_rig import clinic  # noqa: F401
from tests.rig.cluster.eviction_rig import evicting_account, reading_account  # noqa: F401
from tests.rig.cluster.informer_rig import follow, observer  # noqa: F401
from tests.rig.cluster.installed_fixtures import builder, image, release, tenants, watchdog, watchdog_image  # noqa: F401
from tests.rig.cluster.node_fixtures import cluster, node_programs, room  # noqa: F401 - pytest finds fixtures by their names in here
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.rights_guard import _only_with_our_rights, rights_guard  # noqa: F401
from tests.rig.cluster.tcp_proxy import TcpProxy
from tools import programs as built

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs of Kubernetes, built if need be."""
    if shutil.which("openssl") is None:
        cannot_run("needs the openssl command for its certificates")
    try:
        return built.programs()
    except built.NoProgramsError as error:
        cannot_run(str(error))


@pytest.fixture(scope="session")
def newer_programs(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with those of a newer control plane, and the others of the usual one."""
    try:
        newer = built.newer_programs()
    except built.NoProgramsError as error:
        cannot_run(str(error))
    folder = tmp_path_factory.mktemp("newer-programs")
    for path in (*programs.iterdir(), *newer.iterdir()):
        (folder / path.name).unlink(missing_ok=True)
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="package")
def control_plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server, controllers and scheduler on loopback, for all tests of the folder."""
    with ControlPlane(tmp_path_factory.mktemp("cluster") / "plane", programs=programs) as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, with its default service account; it is removed in the background."""
    control_plane.settle()
    name = f"test-{secrets.token_hex(4)}"
    api = control_plane.api
    api.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: api.call("GET", account).status == 200)
    yield name
    api.ask("DELETE", f"/api/v1/namespaces/{name}")
    # No kubelet confirms the end of a pod: by force, or the namespace stays.
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    api.call("DELETE", f"/api/v1/namespaces/{name}/pods", at_once)


@pytest.fixture
def pods(control_plane: ControlPlane, namespace: str) -> Iterator[Pods]:
    """Makes nodes, pods and budgets, in the test's namespace."""
    made = Pods(control_plane.api, namespace)
    yield made
    made.clear()


@pytest.fixture
def tcp_proxy(control_plane: ControlPlane) -> Iterator[TcpProxy]:
    """Faults of the network before the session's API server."""
    with TcpProxy(control_plane.network, control_plane.port) as proxy:
        yield proxy


@pytest.fixture
def api_proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    """Faulty answers before the session's API server."""
    with ApiProxy(control_plane.api, tmp_path / "api-proxy") as proxy:
        yield proxy
