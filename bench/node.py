"""The measured node: real processes, their pods, and what the stub of NVML reports about them."""

import contextlib
import json
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.stub import GIB, LISTS, MIB, Read, Stub, StubDelay, StubGpu, StubProcess

NAME: Final = "bench"
_TOTAL: Final = 80 * GIB
_USED: Final = 20 * MIB
_DECLARED: Final = 4 * GIB
_ABOVE_THE_LIMIT: Final = 6 * GIB
# What `kubectl get pods -o json` has and the daemon does not read: real pods take about 10 kB.
_MANAGED: Final = [{"manager": "kubelet", "fieldsV1": {f"f:field{number}": {"f:x": {}} for number in range(150)}}]
_ENV: Final = [{"name": f"VARIABLE_{number}", "value": "a value as they are"} for number in range(80)]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The size of a node."""

    cards: int
    processes: int
    pods: int

    def __str__(self) -> str:
        return f"{self.cards} / {self.processes:,} / {self.pods}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """How the stub answers: when it reads its file, and how long listing processes takes."""

    name: str
    read: Read = "once"
    list_ms: float = 0.0


IMMEDIATE: Final = Driver(name="immediate")
PARSING: Final = Driver(name="parsing", read="always")
REAL_LISTS: Final = Driver(name="4.5 ms lists", list_ms=4.5)


class BenchNode:
    """Sleeping processes, assigned to the pods of one node in turn, and the files that describe the node.

    Pods that have a process declare GPU memory, the others do not. A process that `dies` leaves the driver's list.
    """

    def __init__(self, root: Path, pids: Sequence[int], world: World, driver: Driver, *, dies: bool = False) -> None:
        self.root = root
        self.world = world
        self.driver = driver
        self.pids = pids[: world.processes]
        self.procfs = root / "proc"
        self.pods_file = root / "pods.json"
        self.stub_file = root / "nvml.txt"
        self.limits_file = root / "limits.json"
        self._dies = dies
        for name in ("stat", "sys"):
            _link(self.procfs / name, Path("/proc") / name)
        for number, pid in enumerate(self.pids):
            self._show_process(number, pid)
        self.pods = [_pod(number, declares=number < len(self.pids)) for number in range(world.pods)]
        document = {"apiVersion": "v1", "kind": "List", "items": self.pods, "metadata": {"resourceVersion": ""}}
        self.pods_file.write_text(json.dumps(document), encoding="utf-8")
        limits = {_uid(number): _DECLARED for number in range(min(world.pods, len(self.pids)))}
        self.limits_file.write_text(json.dumps(limits), encoding="utf-8")
        self.show()

    def show(self, over: Collection[int] = (), *, grown: int = 0) -> None:
        """Let the stub report the processes, assigned to the cards in turn; those in `over` use too much.

        The first process uses `grown` bytes more than the others.
        """
        dealt: list[list[StubProcess]] = [[] for _ in range(self.world.cards)]
        for number, pid in enumerate(self.pids):
            used = _ABOVE_THE_LIMIT if pid in over else _USED + (0 if number else grown)
            # The stub does not check whether a ghost is alive: no driver has that cost.
            process = StubProcess(pid=pid, used=used, ghost=not self._dies, utilization=5)
            dealt[number % len(dealt)].append(process)
        # They compute, each a little more or less whenever it is asked for.
        busy = StubGpu(uuid="", total=_TOTAL, utilization=50, varies=True)
        cards = tuple(
            replace(busy, uuid=f"GPU-{number:08}-0000-0000-0000-000000000000", processes=tuple(own))
            for number, own in enumerate(dealt)
        )
        ms = self.driver.list_ms
        Stub(gpus=cards, delays=tuple(StubDelay(call=each, ms=ms) for each in LISTS if ms)).write(self.stub_file)

    def _show_process(self, number: int, pid: int) -> None:
        folder = self.procfs / str(pid)
        for name in ("stat", "status", "comm", "cmdline", "task"):
            _link(folder / name, Path("/proc") / str(pid) / name)
        pod = number % self.world.pods
        path = f"/kubepods/burstable/pod{_uid(pod)}/{_container_id(pod)}"
        (folder / "cgroup").write_text(f"12:pids:{path}\n11:memory:{path}\n0::{path}\n", encoding="ascii")


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """The PIDs of sleeping processes, which are ended and reaped afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(subprocess.Popen(["sleep", "3600"]) for _ in range(count))
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _uid(number: int) -> str:
    return f"{number:08x}-1111-4222-8333-444444444444"


def _container_id(number: int) -> str:
    return f"{number:064x}"


def _pod(number: int, *, declares: bool) -> dict[str, Any]:
    """A pod as `kubectl get pods -o json` prints it, of realistic size."""
    amount = {**({"veriff.com/gpu-memory": "4Gi"} if declares else {}), "cpu": "2", "memory": "8Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"trainer-{number:03}",
            "namespace": f"team-{number % 10}",
            "uid": _uid(number),
            "labels": {"app": "trainer", "tier": "prod", "pod-template-hash": f"{number:010x}"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": "2025-01-01T00:00:00Z", "note": f"{number:08x}" * 50},
            "managedFields": _MANAGED,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"trainer-{number}", "controller": True}
            ],
        },
        "spec": {
            "nodeName": NAME,
            "priority": 0,
            "initContainers": [{"name": "fetch", "image": "i", "resources": {}}],
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": amount, "requests": amount}, "env": _ENV},
                {"name": "logs", "image": "i", "resources": {}},
            ],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [
                {"name": "main", "containerID": f"containerd://{_container_id(number)}", "state": {"running": {}}},
                {
                    "name": "logs",
                    "containerID": f"containerd://{_container_id(2**32 + number)}",
                    "state": {"running": {}},
                },
            ],
        },
    }


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
