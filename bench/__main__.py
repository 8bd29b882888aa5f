"""`python -m bench` measures everything and writes docs/benchmarks.md; with names it only prints those figures."""

import datetime as dt
import os
import platform
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.cluster import cluster_section
from bench.gpu import PAGE, gpu_section
from bench.idle import changing, idle, tools
from bench.large import large
from bench.node import sleepers
from bench.reaction import again, reaction
from bench.running import ROOT, Bench, compile_program
from bench.scrape import scrape, scraped
from bench.start import memory, startup
from bench.table import HEAD
from bench.unpaced import unpaced
from tests.stub import build
from watchdog.node.process import raise_descriptor_limit

FIGURES = {
    each.__name__: each
    for each in (idle, changing, tools, unpaced, scraped, reaction, again, large, memory, startup, scrape)
}
TEMPLATE = ROOT / "docs" / "templates" / "benchmarks.md"


def machine() -> str:
    """A description of the machine."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="ascii"), re.MULTILINE)
    cores = f"{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()})"
    return f"{cores}, Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"


def main(names: list[str]) -> None:
    """Print the table, each row as soon as it is measured."""
    build()
    compile_program()
    raise_descriptor_limit()
    rows = [HEAD]
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as root, sleepers(1000) as pids:
        bench = Bench(root=Path(root), pids=pids)
        for name in names or FIGURES:
            for row in FIGURES[name](bench):
                rows.append(str(row))
                print(row, flush=True)
    if not names:
        versions = ", ".join(f"{tool} {version(tool)}" for tool in ("nvitop", "gpustat", "nvitop-exporter"))
        today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
        filled = {"table": "\n".join(rows), "machine": machine(), "date": today, "tools": versions}
        sections = {"gpu": gpu_section(), "cluster": cluster_section()}
        PAGE.write_text(TEMPLATE.read_text(encoding="utf-8").format(**filled, **sections), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
