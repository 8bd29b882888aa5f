"""Runs all of it: `make bench`. What it prints is what docs/benchmarks.md is made of."""

import tempfile
from pathlib import Path

from bench.beside import beside_nvitop
from bench.life import calls, cpu, memory
from bench.node import BenchNode, sleepers
from bench.past import past
from bench.pods import pods
from bench.scrape import scrapes
from bench.steady import moving_passes, steady_passes
from bench.steps import steps_of_a_pass
from tests.stub import preload
from watchdog.node.process import raise_descriptor_limit

SIZES = (10, 100, 1000)


def main() -> None:
    """Measure everything, and print tables."""
    preload()
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as root, sleepers(max(SIZES)) as pids:
        nodes = [BenchNode(Path(root) / str(size), pids[:size]) for size in SIZES]
        steady_passes(nodes)
        steps_of_a_pass(nodes)
        moving_passes(nodes)
        beside_nvitop(nodes)
        calls(nodes[-1])
        cpu(nodes)
        memory(nodes[1:])
    past()
    pods()
    scrapes()


if __name__ == "__main__":
    main()
