"""The figures of `python -m bench.cluster` can be measured; how large they are is for the benchmark."""

from pathlib import Path

import pytest

from bench.cluster import Size, measured
from tests.monitoring.programs import find
from tests.node.support import need_root


@pytest.mark.slow
def test_each_figure_of_the_cluster_is_measured(programs: Path, tmp_path: Path) -> None:
    """Each has rows with a value above zero on both sides."""
    need_root()  # for a network namespace
    assert programs.is_dir()
    assert all(find(name) for name in ("promtool", "curl"))
    rows = list(measured(tmp_path, Size(nodes=3, fleet=3, repeats=2), find("prometheus")))
    assert rows
    for row in rows:
        assert all(value > 0 for value in (*row.ours, *row.theirs)), row
        assert str(row).count("|") == 9
