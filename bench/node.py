"""The node that is measured on: real processes, their pods, and what the stub of NVML shows of them."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.stub import GIB, LISTS, MIB, Stub, StubDelay, StubGpu, StubProcess

NAME: Final = "bench"
PODS: Final = 250
POLICY: Final = Path(__file__).parents[1] / "config" / "policy.toml"
_TOTAL: Final = 80 * GIB
# What `kubectl get pods -o json` has besides what the daemon reads of it: real pods are some 10 kB long.
_MANAGED: Final = [{"manager": "kubelet", "fieldsV1": {f"f:field{number}": {"f:x": {}} for number in range(150)}}]
_ENV: Final = [{"name": f"VARIABLE_{number}", "value": "a value as they are"} for number in range(80)]
# A file that was written this recently is read again at each cycle, since it may change without its times showing it.
_SETTLED_AFTER_S: Final = 2.2


class BenchNode:
    """Sleeping processes, dealt out to the pods of one node in turn, and the files that describe the node.

    Pods that have a process declare GPU memory, the others do not.
    """

    def __init__(self, root: Path, pids: Sequence[int], pods: int = PODS) -> None:
        self.root = root
        self.pids = pids
        self.pods = pods
        self.procfs = root / "proc"
        self.pods_file = root / "pods.json"
        self.stub_file = root / "nvml.txt"
        for name in ("self", "stat", "sys"):
            _link(self.procfs / name, Path("/proc") / name)
        for number, pid in enumerate(pids):
            self._show_process(number, pid)
        items = [_pod(number, declares=number < len(pids)) for number in range(pods)]
        document = {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}
        self.pods_file.write_text(json.dumps(document), encoding="utf-8")
        self._ready_s = time.monotonic() + _SETTLED_AFTER_S

    def show(self, gpus: int, *, delay_ms: float = 0.0, more: int = 0) -> None:
        """Let the stub show so many GPUs, with the processes dealt out in turn; `more` bytes for each process."""
        dealt: list[list[StubProcess]] = [[] for _ in range(gpus)]
        for number, pid in enumerate(self.pids):
            # A ghost is listed without a look whether it lives, which would be a cost that no driver has.
            dealt[number % gpus].append(StubProcess(pid=pid, used=20 * MIB + more, ghost=True))
        cards = tuple(
            StubGpu(uuid=f"GPU-{number:08}-0000-0000-0000-000000000000", total=_TOTAL, processes=tuple(own))
            for number, own in enumerate(dealt)
        )
        delays = tuple(StubDelay(call=each, ms=delay_ms) for each in LISTS) if delay_ms else ()
        Stub(gpus=cards, delays=delays).write(self.stub_file)

    def use(self, *, still: bool) -> None:
        """Let NVML in this process be this node; a `still` one is read once a session, without a look at the file."""
        time.sleep(max(self._ready_s - time.monotonic(), 0.0))
        os.environ["NVML_STUB_FILE"] = str(self.stub_file)
        os.environ["NVML_STUB_STATIC"] = str(int(still))

    def _show_process(self, number: int, pid: int) -> None:
        folder = self.procfs / str(pid)
        for name in ("stat", "status", "comm", "cmdline", "task"):
            _link(folder / name, Path("/proc") / str(pid) / name)
        pod = number % self.pods
        path = f"/kubepods/burstable/pod{_uid(pod)}/{_container_id(pod)}"
        (folder / "cgroup").write_text(f"12:pids:{path}\n11:memory:{path}\n0::{path}\n", encoding="ascii")


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Processes that sleep, by their PIDs; they are ended and reaped."""
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
    """A pod as `kubectl get pods -o json` prints it, as long as real ones are."""
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
                    "containerID": f"containerd://{_container_id(PODS + number)}",
                    "state": {"running": {}},
                },
            ],
        },
    }


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
