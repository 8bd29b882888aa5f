"""What both sides of bench.pods measure: time and memory of a list, and of a watch up to its last update."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from bench.recorded import UPDATES

FIRST_VERSION = 2000
LAST = str(FIRST_VERSION + UPDATES)
Step = Callable[[], object]


def measure(listed: Step, updates: Step) -> None:
    """Print what the two took."""
    print(json.dumps({"list": _measure(listed), "updates": _measure(updates)}))


def _measure(step: Step) -> dict[str, float]:
    """Seconds of wall and CPU time, the most memory that was resident, and how much of it came on top."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the high-water mark starts over (proc(5))
    before = _kib("VmRSS")
    began, began_cpu = time.perf_counter(), time.process_time()
    step()
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {"wall_s": wall, "cpu_s": cpu, "peak_kib": _kib("VmHWM") - before, "rss_kib": _kib("VmHWM")}


def _kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
