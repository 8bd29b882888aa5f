"""What NVML reports for a real GPU, and a real kill: memory allocated through libcuda, processes with pod cgroups."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.node.support import wait_until
from tests.rig.cgroups import Cgroups
from tests.rig.command import COMMAND, Daemon
from tests.rig.node import Container, Pod
from tests.rig.volume import mount
from tests.stub import GIB, MIB
from watchdog.core.utilization import CardUtilization
from watchdog.node.drivers.nvml import NvmlDriver

pytestmark = pytest.mark.gpu

PROGRAM = Path(__file__).with_name("allocating.py")
ALLOWANCE = 1 * GIB  # a CUDA context; large chips take more than the 300 to 500 MiB of small ones
POLICY = """
mode = "enforce"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "1Gi"
percent = "0%"
[[rule]]
name = "shared"
match = {}
[[rule.step]]
above = "100%"
for = "0s"
do = "kill"
grace = "1s"
[safety]
foreign_pid_namespace = true
"""


class Card:
    """A pod whose processes use the real GPU."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[str]] = []
        self.pods: list[Pod] = []
        self.policy = POLICY
        self.cgroups = Cgroups("cgroup2")
        if not self.cgroups.are_there:
            self.cgroups = Cgroups("cgroup")

    def allocate(self, name: str, declared: str, used: int, *more: str, **environment: str) -> subprocess.Popen[str]:
        """A pod with one process that allocates so much; `more` are further arguments."""
        container = Container(name="main", id=os.urandom(32).hex(), declared=declared)
        self.pods.append(Pod(name=name, containers=[container]))
        command, around = [sys.executable, str(PROGRAM), str(used), *more], {**os.environ, **environment}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=around)
        self.started.append(process)
        self.cgroups.enter(self.pods[-1].cgroup(container), process.pid)
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 120)[0], "the allocation hangs"
        assert process.stdout.readline().startswith("free"), "the allocation failed"
        self.write()
        return process

    def write(self) -> None:
        """Write the pod list and the policy."""
        items = [pod.to_json() for pod in self.pods]
        (self.root / "pods.json").write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
        mount(self.root / "policy.toml", self.policy)

    @property
    def options(self) -> list[str]:
        """The options of the command for this node."""
        return ["--policy", f"{self.root}/policy.toml", "--pods", f"{self.root}/pods.json", "--node", "n1"]

    def close(self) -> None:
        """End what was started, and the children that are left."""
        for folder in self.cgroups.made:
            for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate()
        self.cgroups.remove()


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Card]:
    """The real GPU; the test is skipped where there is none, or where cgroups can't be made."""
    driver = NvmlDriver()
    reading = driver.read()
    driver.close()
    if not reading.gpus:
        pytest.skip("; ".join(str(gap.problem) for gap in reading.gaps) or "no GPU")
    made = Card(tmp_path)
    try:
        probe = subprocess.Popen(["sleep", "60"])
        made.cgroups.enter(f"kubepods/besteffort/pod{uuid.uuid4()}/{os.urandom(32).hex()}", probe.pid)
    except OSError as error:
        made.close()
        pytest.skip(f"no cgroup can be made: {error}")
    finally:
        probe.kill()
        probe.wait()
    yield made
    made.close()


@contextmanager
def enforcing(card: Card) -> Iterator[Daemon]:
    """A daemon that enforces the card's policy."""
    log = card.root / "log"
    where = ["--journal", f"{card.root}/state/j.db", "--listen", "127.0.0.1:0"]
    with log.open("wb") as out:
        process = subprocess.Popen([str(COMMAND), "run", *card.options, *where], stdout=out, stderr=out)
    running = Daemon(process, log)
    try:
        running.wait(Daemon.is_up)
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait()


def grow(offender: subprocess.Popen[str], amount: int) -> None:
    """Let an offender allocate more."""
    assert offender.stdin is not None
    offender.stdin.write(f"{amount}\n")
    offender.stdin.flush()


def scan(card: Card) -> Any:
    """What `scan` reports."""
    done = subprocess.run([COMMAND, "scan", "--json", *card.options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_attribution_is_within_the_allowance(card: Card) -> None:
    """What NVML counts for a process is what it allocated and its context, no more than the allowance.

    What is used beyond that and what the driver reserves is little.
    """
    allocated = {"a": GIB, "b": 3 * GIB}
    for name, amount in allocated.items():
        card.allocate(name, "4Gi", amount)
    got = scan(card)
    contexts = {account["pod"]: account["used"] - allocated[account["pod"]] for account in got["accounts"]}
    sys.stdout.write(f"contexts, bytes: {contexts}\nmemory: {got['gpus'][0]['memory']}\n")
    assert contexts.keys() == allocated.keys()
    assert all(0 < context < ALLOWANCE for context in contexts.values())
    assert 0 <= got["gpus"][0]["memory"]["residual"] < 64 * MIB


def test_an_idle_card(card: Card) -> None:
    """The driver does not count what it reserves as used; the watchdog does, so that nothing of it is left over."""
    card.write()
    memory = scan(card)["gpus"][0]["memory"]
    sys.stdout.write(f"idle: {memory}\n")
    assert 0 <= memory["residual"] < 64 * MIB
    assert memory["used"] >= memory["reserved"] > 0


def test_a_child_that_has_the_descriptors_keeps_the_memory(card: Card) -> None:
    """The driver lists it under the PID of the process that has ended; who kills the container ends the child too."""
    offender = card.allocate("offender", "1Gi", 512 * MIB, "--fork")
    os.kill(offender.pid, signal.SIGKILL)
    offender.wait()
    time.sleep(1)
    (left,) = scan(card)["unattributed"]
    assert (left["pid"], left["reason"]) == (offender.pid, "gone")
    other = card.allocate("other", "1Gi", 512 * MIB, "--fork")
    with enforcing(card) as running:
        running.wait_passes(1)
        grow(other, 8 * GIB)
        running.wait(lambda _: other.poll() is not None)
        running.wait(lambda d: d.metric("release_seconds_count") == 1)


def test_the_offender_is_killed_and_its_memory_comes_back(card: Card) -> None:
    """A real kill on a real GPU: the neighbour lives, and the release time is measured."""
    calm, offender = card.allocate("calm", "2Gi", GIB), card.allocate("offender", "1Gi", 512 * MIB)
    with enforcing(card) as running:
        running.wait_passes(1)
        assert offender.poll() is None
        began = time.monotonic()
        grow(offender, 8 * GIB)
        running.wait(lambda _: offender.poll() is not None)
        killed = time.monotonic() - began
        running.wait(lambda d: d.metric("release_seconds_count") == 1)
        release = running.metric("release_seconds_sum")
        sys.stdout.write(f"allocation to death: {killed:.3f} s, first signal to memory free: {release:.3f} s\n")
        assert calm.poll() is None
        assert killed < 3


def test_the_listing_of_a_real_driver_is_read_without_a_gap(card: Card) -> None:
    """On a healthy GPU there is nothing that could not be learned."""
    card.allocate("a", "2Gi", GIB)
    assert scan(card)["gaps"] == []


def test_a_busy_process_and_an_idle_one_are_told_apart(card: Card) -> None:
    """The driver gives the one more than 0, so that its 0 of the other counts, although the card computes."""
    card.allocate("idle", "2Gi", GIB)
    card.allocate("busy", "2Gi", GIB, "--work")
    with enforcing(card) as running:

        def found() -> dict[str, float | None]:
            return {each["pod"]: each["utilization"] for each in running.status()["accounts"]}

        running.wait(lambda _: found() and None not in found().values())
        shares, (gpu, *_) = found(), running.status()["gpus"]
    sys.stdout.write(f"utilisation of processes: {shares}, of the card: {gpu['utilization']}\n")
    assert shares["idle"] == 0.0
    assert (shares["busy"] or 0.0) > 0.3
    assert (gpu["utilization"] or 0.0) > 0.3


def test_work_that_has_ended_is_in_the_samples(card: Card) -> None:
    """The mean since the card was last asked has work that its current rate no longer shows."""
    driver = NvmlDriver()
    driver.read()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def rate() -> int:
        return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    def first() -> CardUtilization:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        return next(each for each in driver.utilization() if each.gpu == uuid)

    before = first().ratio
    worker = card.allocate("busy", "2Gi", GIB, "--work")
    wait_until(lambda: rate() > 0, 60)
    busy = rate()
    worker.kill()
    worker.communicate()
    wait_until(lambda: rate() == 0, 60)
    _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    spans = [(b.timeStamp - a.timeStamp) / 1e6 for a, b in pairwise(samples)]
    after = first().ratio
    pynvml.nvmlShutdown()
    driver.close()
    sys.stdout.write(
        f"before: {before}; rate at work: {busy}%, after it: 0%; samples since: {after}\n"
        f"kept: {len(samples)}, {min(spans)} to {max(spans)} s apart: {[each.sampleValue.uiVal for each in samples]}\n"
    )
    assert after is not None
    assert after > 0
