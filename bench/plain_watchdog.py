"""A plain watchdog with pynvml, psutil and prometheus-client, as one might write in an afternoon, for comparison.

`python -m bench.plain_watchdog LIMITS PORT PROCFS`: LIMITS is a JSON file with bytes by pod UID.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pynvml
from prometheus_client import Gauge, start_http_server

INTERVAL_S = 1.0
POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")
USED = Gauge("pod_gpu_memory_used_bytes", "GPU memory that the processes of a pod use.", ["pod"])


def pod_of(procfs: Path, pid: int) -> str | None:
    """The UID of the pod of a process; None if it belongs to the host or is gone."""
    try:
        found = POD.search((procfs / str(pid) / "cgroup").read_text(encoding="ascii"))
    except OSError:
        return None
    return found[1].replace("_", "-") if found else None


def watch(procfs: Path, limits: dict[str, int]) -> None:
    """List everything once, and kill processes of pods above their limit."""
    used: dict[str, int] = defaultdict(int)
    pids: dict[str, set[int]] = defaultdict(set)
    for index in range(pynvml.nvmlDeviceGetCount()):
        card = pynvml.nvmlDeviceGetHandleByIndex(index)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card):
            pod = pod_of(procfs, process.pid)
            if pod is not None:
                used[pod] += process.usedGpuMemory or 0
                pids[pod].add(process.pid)
    USED.clear()
    for pod, amount in used.items():
        USED.labels(pod).set(amount)
        if amount > limits.get(pod, amount):
            for pid in pids[pod]:
                kill(pod, pid)


def kill(pod: str, pid: int) -> None:
    """Kill a process and print which; it may be gone already."""
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        name = psutil.Process(pid).name()
        os.kill(pid, signal.SIGKILL)
        print(f"killed {name} ({pid}) of pod {pod}", flush=True)


def main(limits: str, port: str, procfs: str) -> None:
    pynvml.nvmlInit()
    start_http_server(int(port), "127.0.0.1")
    while True:
        began_s = time.monotonic()
        watch(Path(procfs), json.loads(Path(limits).read_text(encoding="utf-8")))
        time.sleep(max(0.0, began_s + INTERVAL_S - time.monotonic()))


if __name__ == "__main__":
    main(*sys.argv[1:])
