"""The stub of NVML in the process of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.drivers.nvml_world import NvmlWorld, nvml_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NvmlWorld]:
    """A node without GPUs, until a test shows some."""
    with nvml_world(tmp_path) as found:
        yield found
