"""What the driver's calls cost on a real GPU, and what a tenant notices of the daemon: that it can be measured."""

from pathlib import Path

import pynvml
import pytest

from bench.gpu import gpu

pytestmark = pytest.mark.gpu


def test_calls_and_kernel_launches_are_measured(tmp_path: Path) -> None:
    """`python -m bench.gpu` works on this driver; it is that which measures long enough."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(str(error))
    for row in gpu(tmp_path, window_s=0.5):
        assert all(value > 0 for value in (*row.ours, *row.theirs)), row.what
