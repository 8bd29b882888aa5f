"""Every figure of the benchmarks can be measured."""

from pathlib import Path

import pytest

from bench.__main__ import FIGURES
from bench.node import World, sleepers
from bench.running import Bench, LargePods
from tests.stub import build_or_skip

SMALL = World(cards=2, processes=4, pods=3)
FEW = LargePods(running=3, finished=4, failed=4, containers=2, seconds=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_measured(name: str, tmp_path: Path) -> None:
    """Each has rows with a value above zero on both sides; how large they are is for `make bench`."""
    build_or_skip()
    with sleepers(SMALL.processes) as pids:
        bench = Bench(
            root=tmp_path, pids=pids, worlds=(SMALL,), repeats=2, window_s=1.1, trials=2, scrapes=4, large=FEW
        )
        rows = list(FIGURES[name](bench))
    assert rows
    for row in rows:
        assert all(value > 0 for value in (*row.ours, *row.theirs)), row
        assert str(row).count("|") == 9
