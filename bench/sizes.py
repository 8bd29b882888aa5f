"""How what the daemon takes and tells grows with the node: series, bytes of a scrape, memory, CPU, by cards and pods.

`python -m bench.sizes` runs this alone, in about two minutes. docs/sizing.md has what it printed.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.life import cpu_s, memory_mib
from bench.node import POLICY, BenchNode, sleepers
from bench.scrape import Side
from bench.table import show
from tests.rig.command import daemon
from tests.stub import preload
from watchdog.node.process import raise_descriptor_limit

# Cards, pods of the node, and processes on the cards: each pod with a process declares GPU memory.
NODES: Final = ((1, 10, 10), (4, 40, 40), (8, 110, 100), (8, 250, 250), (16, 250, 1000))
_REST_S: Final = 20.0
_COLUMNS: Final = ("cards", "pods", "processes", "series", "text, kB", "with gzip, kB", "PSS, MiB", "RSS, MiB", "CPU")


def sizes() -> None:
    """Measure each node, and print a table."""
    preload()
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as root, sleepers(max(each[2] for each in NODES)) as pids:
        show("By the size of the node", _COLUMNS, (_row(Path(root), pids, *each) for each in NODES))


def _row(root: Path, pids: Sequence[int], cards: int, pods: int, processes: int) -> Sequence[object]:
    node = BenchNode(root / f"{cards}-{pods}-{processes}", pids[:processes], pods=pods)
    node.show(cards)
    state = node.root / "daemon"
    state.mkdir()
    files = ("--procfs", node.procfs, "--pods", node.pods_file, "--journal", state / "journal.db")
    with daemon(state, node.stub_file, "--policy", POLICY, *files) as running:
        running.wait_passes(3)
        side = Side(port=running.port, pid=running.pid)
        for kind in ("text", "text, gzip"):
            side.scrape(kind)
        began_s, spent_s = time.monotonic(), cpu_s(running.pid)
        time.sleep(_REST_S)
        rest = (cpu_s(running.pid) - spent_s) / (time.monotonic() - began_s)
        return (cards, pods, processes, f"{side.series:,}", *_told(side), f"{rest:.2%}")


def _told(side: Side) -> Iterator[str]:
    yield from (f"{len(side.pages[kind]) / 1000:.1f}" for kind in ("text", "text, gzip"))
    memory = memory_mib(side.pid)
    yield from (f"{memory[kind]:.0f}" for kind in ("Pss", "Rss"))


if __name__ == "__main__":
    sizes()
