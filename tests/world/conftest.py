"""The node that the worlds are played on, once with v1 paths and once with v2 paths."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import Node, node


@pytest.fixture(params=["cgroup", "cgroup2"], ids=["v1", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """A node with v1 or v2 cgroups."""
    with node(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def any_world(tmp_path: Path) -> Iterator[Node]:
    """A node with whichever cgroups this machine has, for what does not depend on the version."""
    with node(tmp_path) as made:
        yield made
