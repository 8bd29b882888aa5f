"""A node as full as they come: 16 cards, 200 pods, each with a real process, and the real daemon on it.

What the kernel tells of the processes is as it is, but for their cgroups: those are files of a proc of the test's own.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.node.support import sleepers
from tests.rig import Daemon
from tests.rig.command import daemon
from tests.stub import GIB, MIB, Stub, StubGpu, StubProcess
from tests.world.policies import write_policy

CARDS: Final = 16
PODS: Final = 200
_TEAMS: Final = ("jupyter", "vision", "nlp-research", "speech", "recsys", "robotics")
_WORK: Final = ("notebook", "train-resnet", "llm-server", "finetune-lora", "embed-worker", "label-batch", "eval")
_STEPS: Final = (
    'above = "100%"\nfor = "10m"\ndo = "warn"\nrepeat = "1h"',
    'above = "110%"\nfor = "30m"\ndo = "kill"\nscope = "container"\ngrace = "10s"',
)
_MORE: Final = '\n[protect]\nnamespaces = ["robotics"]\n[brakes]\nnode = "10 per 10m"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod of one container with one process on one card."""

    number: int
    namespace: str
    name: str
    declared: int | None
    used: int
    pid: int

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return f"{self.number:08x}-1111-4222-8333-444444444444"

    @property
    def container(self) -> str:
        """The container's ID."""
        return f"{self.number:064x}"


@contextmanager
def crowd(root: Path, *, cards: int = CARDS, pods: int = PODS, processes: int = PODS) -> Iterator[Daemon]:
    """The full node with its daemon, after two cycles; processes beyond one a pod are dealt out in turn."""
    with sleepers(processes) as started:
        pids = [process.pid for process in started]
        tenants = _tenants(pids[:pods])
        owners = {pid: tenants[number % pods] for number, pid in enumerate(pids)}
        _write_proc(root / "proc", owners)
        (root / "pods.json").write_text(json.dumps({"kind": "List", "items": [_pod(each) for each in tenants]}))
        _show(root / "nvml.txt", owners, cards)
        options = ("--procfs", root / "proc", "--pods", root / "pods.json", "--journal", root / "state" / "journal.db")
        # It only observes: a proc that is not the daemon's own is good for nothing else.
        policy = write_policy(root, *_STEPS, mode="observe", more=_MORE)
        with daemon(root, root / "nvml.txt", "--policy", policy, *options) as running:
            running.wait_passes(2)
            yield running


def _tenants(pids: Sequence[int]) -> list[Tenant]:
    """Tenants of many sizes: one in 25 is over, one in 12 declares nothing."""
    dice = random.Random(16)
    made = []
    for number, pid in enumerate(pids):
        size = dice.choice((2, 3, 4, 4, 5))
        used = int(size * GIB * dice.uniform(0.3, 0.95))
        if number % 25 == 7:
            used = int(size * GIB * dice.uniform(1.3, 1.8))
        name = f"{dice.choice(_WORK)}-{dice.getrandbits(40):010x}-{number % 5}"
        declared = None if number % 12 == 5 else size * GIB
        namespace = dice.choice(_TEAMS)
        made.append(Tenant(number=number, namespace=namespace, name=name, declared=declared, used=used, pid=pid))
    return made


def _show(stub: Path, owners: dict[int, Tenant], cards: int) -> None:
    dealt: list[list[StubProcess]] = [[] for _ in range(cards)]
    for pid, tenant in owners.items():
        # A second process of a tenant is a small one, so that the pod as a whole uses about what it was given.
        used = tenant.used if pid == tenant.pid else 20 * MIB
        dealt[tenant.number % cards].append(StubProcess(pid=pid, used=used, ghost=True))
    gpus = tuple(
        StubGpu(
            uuid=f"GPU-{number:08}-3c1d-4f60-9d4e-0123456789ab",
            name="NVIDIA H100 80GB HBM3",
            total=80 * GIB,
            reserved=600 * MIB,
            base=(number % 3) * 400 * MIB,
            processes=tuple(own),
        )
        for number, own in enumerate(dealt)
    )
    Stub(gpus=gpus).write(stub)


def _write_proc(proc: Path, owners: dict[int, Tenant]) -> None:
    for name in ("self", "stat", "sys"):
        _link(proc / name, Path("/proc") / name)
    for pid, tenant in owners.items():
        for name in ("stat", "status", "comm", "cmdline", "task"):
            _link(proc / str(pid) / name, Path("/proc") / str(pid) / name)
        path = f"/kubepods/burstable/pod{tenant.uid}/{tenant.container}"
        (proc / str(pid) / "cgroup").write_text(f"12:pids:{path}\n11:memory:{path}\n0::{path}\n", encoding="ascii")


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)


def _pod(tenant: Tenant) -> dict[str, Any]:
    amount = {} if tenant.declared is None else {"veriff.com/gpu-memory": str(tenant.declared)}
    status = {"name": "main", "containerID": f"containerd://{tenant.container}", "state": {"running": {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": tenant.name, "namespace": tenant.namespace, "uid": tenant.uid},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i", "resources": {"limits": amount}}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }
