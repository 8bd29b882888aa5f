"""Following a node's pods beside the plain `kubernetes` client: the first list, and a thousand updates."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.recorded import POD_BYTES, PODS, UPDATES, recorded
from bench.table import milliseconds, show

_REPEATS: Final = 5
_SIDES: Final = ("client", "feed")
_ROWS: Final = (
    ("list", "wall_s", f"list of {PODS} pods, ms"),
    ("list", "cpu_s", f"list of {PODS} pods, ms of CPU"),
    ("list", "peak_kib", "memory that the list takes at its peak, MiB"),
    ("list", "rss_kib", "RSS at that moment, MiB"),
    ("updates", "wall_s", f"{UPDATES:,} updates, ms"),
    ("updates", "cpu_s", f"{UPDATES:,} updates, ms of CPU"),
    ("updates", "rss_kib", "peak RSS during them, MiB"),
)
Run = dict[str, dict[str, float]]


def pods() -> None:
    """Measure both sides in turn, each time in a process of its own, against the same recorded API server."""
    runs: dict[str, list[Run]] = {side: [] for side in _SIDES}
    with tempfile.TemporaryDirectory() as folder, recorded(Path(folder)) as config:
        for number in range(_REPEATS):
            for side in _SIDES if number % 2 else reversed(_SIDES):
                runs[side].append(_run(side, config))
    columns = ("", "client", "ours", "client / ours")
    show(f"Pods of {POD_BYTES // 1000} kB beside the plain client", columns, _rows(runs))


def _run(side: str, config: Path) -> Run:
    command = [sys.executable, "-m", f"bench.following_{side}", str(config)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    found: Run = json.loads(ended.stdout)
    return found


def _rows(runs: dict[str, list[Run]]) -> Iterator[Sequence[object]]:
    for step, field, title in _ROWS:
        plain, ours = ([run[step][field] for run in runs[side]] for side in _SIDES)
        ratios = sorted(one / other for one, other in zip(plain, ours, strict=True))
        ratio = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})"
        yield title, *(_text(field, statistics.median(each)) for each in (plain, ours)), ratio


def _text(field: str, value: float) -> str:
    return milliseconds(value) if field.endswith("_s") else f"{value / 1024:.1f}"


if __name__ == "__main__":
    pods()
