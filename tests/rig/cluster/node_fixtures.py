"""The fixture `cluster`: a whole cluster of one real node, shared by the tests of the folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.support import cannot_run, need_root
from tests.rig.cluster.containerd import missing_programs
from tests.rig.cluster.node import Cluster


@pytest.fixture(scope="session")
def node_programs(programs: Path) -> Path:
    """The folder with the programs of Kubernetes, where this machine can run a node."""
    need_root()
    if missing := missing_programs():
        packages = "apt-get install containerd runc containernetworking-plugins gcc libc6-dev"
        cannot_run(f"a real node needs {', '.join(missing)} (Debian: {packages})")
    return programs


@pytest.fixture(scope="package")
def cluster(node_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose node runs real pods; undo what you do to its node, and use a namespace of your own (`room`)."""
    with Cluster(tmp_path_factory.mktemp("cluster"), programs=node_programs) as made:
        yield made


@pytest.fixture
def room(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the cluster for one test; its pods go at once at the end."""
    name = cluster.new_namespace(request.node.name)
    yield name
    cluster.drop_namespace(name)
