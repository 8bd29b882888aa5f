"""`python -m bench` measures everything and writes docs/benchmarks.md; with names it prints those figures alone."""

import datetime as dt
import os
import platform
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.idle import idle, tools
from bench.node import sleepers
from bench.reaction import reaction
from bench.running import ROOT, Bench
from bench.scrape import scrape, scraped
from bench.start import memory, startup
from bench.table import HEAD
from bench.unpaced import unpaced
from tests.stub import build
from watchdog.node.process import raise_descriptor_limit

FIGURES = {each.__name__: each for each in (idle, tools, unpaced, scraped, reaction, memory, startup, scrape)}
PAGE = ROOT / "docs" / "benchmarks.md"
_TEXT = Path(__file__).with_name("benchmarks.md")


def machine() -> str:
    """The machine in words."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="ascii"), re.MULTILINE)
    cores = f"{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()})"
    return f"{cores}, Linux {platform.release()}, Python {platform.python_version()}"


def main(names: list[str]) -> None:
    """Print the table, each row as soon as it is there."""
    build()
    raise_descriptor_limit()
    rows = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as root, sleepers(1000) as pids:
        bench = Bench(root=Path(root), pids=pids)
        for name in names or FIGURES:
            for row in FIGURES[name](bench):
                rows.append(str(row))
                print(row, flush=True)
    if not names:
        tools_used = ", ".join(f"{tool} {version(tool)}" for tool in ("nvitop", "gpustat", "nvitop-exporter"))
        filled = {"machine": machine(), "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "tools": tools_used}
        PAGE.write_text(_TEXT.read_text(encoding="utf-8").format(table="\n".join((HEAD, *rows)), **filled), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
