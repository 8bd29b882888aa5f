"""How cost and metrics grow with the size of the node: `python -m bench.sizes` prints the table of docs/sizing.md."""

import contextlib
import gzip
import tempfile
from pathlib import Path

from bench.api import served
from bench.node import IMMEDIATE, World, sleepers
from bench.running import WATCHDOG, Bench, start
from bench.table import digits, head, line
from watchdog.node.process import raise_descriptor_limit

WORLDS = (
    World(cards=1, processes=10, pods=10),
    World(cards=4, processes=40, pods=40),
    World(cards=8, processes=100, pods=110),
    World(cards=8, processes=250, pods=250),
    World(cards=16, processes=1000, pods=250),
)
_COLUMNS = (
    "cards / processes / pods",
    "pods from",
    "series",
    "text, kB",
    "with gzip, kB",
    "PSS, MiB",
    "RSS, MiB",
    "CPU",
)


def sizes(bench: Bench) -> None:
    """Measure each node with its pods from a file and from the API, and print a table."""
    print(head(*_COLUMNS), flush=True)
    for world in bench.worlds:
        for source in ("a file", "the API"):
            node = bench.node(world, IMMEDIATE)
            with contextlib.ExitStack() as stack:
                kubeconfig = stack.enter_context(served(node)) if source == "the API" else None
                side = stack.enter_context(start(WATCHDOG, node, kubeconfig=kubeconfig))
                usage = bench.watch({WATCHDOG: side})[WATCHDOG]
                page = side.scrape()
                series = sum(not each.startswith(b"#") for each in page.splitlines())
                kb = [f"{len(each) / 1000:.1f}" for each in (page, gzip.compress(page))]
                mib = [f"{side.memory_mib(kind):.0f}" for kind in ("Pss", "Rss")]
                cpu = sum(usage.cpu) / len(usage.cpu)
                print(line(world, source, f"{series:,}", *kb, *mib, f"{digits(cpu * 100)}%"), flush=True)


if __name__ == "__main__":
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as root, sleepers(WORLDS[-1].processes) as pids:
        sizes(Bench(root=Path(root), pids=pids, worlds=WORLDS))
