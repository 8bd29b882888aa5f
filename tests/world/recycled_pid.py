"""The inside of a small PID namespace: an offender ends, a neighbour gets its PID, and must live."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.rig.cgroups import Cgroups, mounted
from tests.rig.command import daemon
from tests.stub import GIB, Stub, StubGpu, StubProcess


def play(folder: str, policy: str, offenders: str, neighbours: str) -> None:
    """Play it in a node's folder; the last two are the cgroups of the two."""
    root = Path(folder)
    cgroups = Cgroups(mounted())
    stub = root / "nvml.txt"
    offender = start(cgroups, offenders)
    show(stub, offender.pid, 9 * GIB)
    arguments = ("--policy", policy, "--pods", root / "pods.json", "--journal", root / "state/journal.db")
    try:
        with daemon(root, stub, *arguments) as running:
            running.wait_passes(1)
            verdicts = {each["pod"]: each["verdict"] for each in running.status()["accounts"]}
            assert verdicts["hog"] == "over", verdicts
            offender.kill()
            offender.wait()
            neighbour = recycle(cgroups, neighbours, offender.pid)
            assert neighbour.pid == offender.pid
            show(stub, neighbour.pid, 9 * GIB)
            running.wait_passes(6)
            assert neighbour.poll() is None
            used = {each["pod"]: each["used"] for each in running.status()["accounts"]}
            assert used == {"hog": 0, "calm": None}, used
            assert len(running.events("kill_begun")) == 0
            sys.stdout.write("the neighbour lives under the offender's PID\n")
            neighbour.kill()
            neighbour.wait()
    finally:
        cgroups.remove()


def start(cgroups: Cgroups, path: str) -> subprocess.Popen[bytes]:
    """Start a process in a cgroup."""
    made = subprocess.Popen(["sleep", "60"])
    cgroups.enter(path, made.pid)
    return made


def recycle(cgroups: Cgroups, path: str, pid: int) -> subprocess.Popen[bytes]:
    """Start processes until one has this PID; the daemon's own threads take some in between."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1), encoding="ascii")
        made = subprocess.Popen(["sleep", "60"])
        if made.pid == pid:
            cgroups.enter(path, pid)
            return made
        os.kill(made.pid, signal.SIGKILL)
        made.wait()
        time.sleep(0.001)
    raise AssertionError("the PID was not given out again")


def show(stub: Path, pid: int, used: int) -> None:
    """Let the driver list one PID, whichever process has it."""
    gpu = StubGpu(uuid="GPU-0", total=40 * GIB, processes=(StubProcess(pid=pid, used=used, ghost=True),))
    Stub(gpus=(gpu,)).write(stub)
