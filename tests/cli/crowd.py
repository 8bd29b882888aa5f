"""A node for the real daemon, without root: its /proc is a folder of links. The usual one has 16 cards and 200 pods."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.node import sleepers
from tests.stub import GIB, MIB, Stub, StubGpu, StubProcess

CARDS: Final = 16
PODS: Final = 200
HOST: Final = 3
NAMESPACES: Final = ("jupyter-dev", "team-vision", "team-nlp", "batch", "inference-prod")
KINDS: Final = ("trainer", "notebook-alice", "embedder", "finetune-llama3-70b", "triton-server-7c9f8d6b5")
POLICY: Final = """
mode = "observe"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "256Mi"
percent = "2%"
[protect]
namespaces = ["inference-prod"]
[[rule]]
name = "notebooks"
match = { namespaces = ["jupyter-*"] }
account = "container"
[[rule.step]]
above = "100%"
for = "30s"
do = "warn"
[[rule.step]]
above = "105%"
for = "2m"
do = "kill"
scope = "container"
[[rule]]
name = "everything else"
match = {}
account = "pod"
[[rule.step]]
above = "100%"
for = "1s"
do = "warn"
[[rule.step]]
above = "110%"
for = "1h"
do = "kill"
scope = "container"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod with one container and one process on a card; of the host where it has no name. Bytes.

    `tells` says whether the driver says how much the process uses: on WSL and in some vGPU guests it does not.
    """

    name: str = ""
    namespace: str = ""
    declared: str | None = None
    used: int
    card: int = 0
    tells: bool = True
    owner: str = ""


class Crowd:
    """The files that describe the node: /proc, the pod list, what the cards list, the policy."""

    def __init__(self, root: Path, policy: str, tenants: Sequence[Tenant], cards: int, pids: Sequence[int]) -> None:
        self.root = root
        self.procfs = root / "proc"
        self.stub_file = root / "nvml.txt"
        self.pods_file = root / "pods.json"
        self.policy = root / "policy.toml"
        self.policy.write_text(policy, encoding="utf-8")
        self.pids = pids
        for name in ("self", "stat", "sys"):
            _link(self.procfs / name, Path("/proc") / name)
        for number, (tenant, pid) in enumerate(zip(tenants, pids, strict=True)):
            self._show_process(pid, _cgroup(number) if tenant.name else "/user.slice")
        self._show_cards(tenants, cards)
        items = [_pod(number, tenant) for number, tenant in enumerate(tenants) if tenant.name]
        document = {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}
        self.pods_file.write_text(json.dumps(document), encoding="utf-8")

    @property
    def arguments(self) -> tuple[str | Path, ...]:
        """The options of `run` for it."""
        own = ("--policy", self.policy, "--procfs", self.procfs, "--pods", self.pods_file)
        return (*own, "--journal", self.root / "journal.db")

    def _show_cards(self, tenants: Sequence[Tenant], cards: int) -> None:
        dealt: list[list[StubProcess]] = [[] for _ in range(cards)]
        for tenant, pid in zip(tenants, self.pids, strict=True):
            shown = tenant.used if tenant.tells else None
            dealt[tenant.card].append(StubProcess(pid=pid, used=shown, holds=tenant.used))
        made = (
            StubGpu(
                uuid=f"GPU-{number:08x}-1b7c-4a2e-9d3f-5e6a7b8c9d0e",
                name="NVIDIA H100 80GB HBM3",
                total=80 * GIB,
                reserved=600 * MIB,
                base=number * 300 * MIB,
                processes=tuple(own),
            )
            for number, own in enumerate(dealt)
        )
        Stub(gpus=tuple(made)).write(self.stub_file)

    def _show_process(self, pid: int, path: str) -> None:
        folder = self.procfs / str(pid)
        for name in ("stat", "status", "comm", "cmdline", "task"):
            _link(folder / name, Path("/proc") / str(pid) / name)
        (folder / "cgroup").write_text(f"12:pids:{path}\n11:memory:{path}\n0::{path}\n", encoding="ascii")


def many() -> Iterator[Tenant]:
    """200 pods of every kind on 16 cards, and three processes of the host; the same ones each time."""
    dice = random.Random(7)
    for number in range(PODS):
        declared = dice.choice((None, 4, 4, 6, 6, 8, "8 GB"))
        used = int(
            (declared if isinstance(declared, int) else 4) * GIB * dice.choice((0.02, 0.3, 0.6, 0.8, 0.95, 1.04, 1.5))
        )
        yield Tenant(
            name=f"{KINDS[number % len(KINDS)]}-{number * 7919 % 100_000:05}",
            namespace=NAMESPACES[number * 3 % 7 % 5],
            declared=f"{declared}Gi" if isinstance(declared, int) else declared,
            used=used,
            card=number % CARDS,
            tells=number % 23 != 0,
        )
    for number in range(HOST):
        yield Tenant(used=700 * MIB, card=number)


@contextmanager
def crowd(root: Path, tenants: Iterable[Tenant] = (), policy: str = POLICY, cards: int = CARDS) -> Iterator[Crowd]:
    """A node with these tenants, or with many, whose processes are ended at the end."""
    listed = tuple(tenants) or tuple(many())
    with sleepers(len(listed)) as pids:
        yield Crowd(root, policy, listed, cards, pids)


def _uid(number: int) -> str:
    return f"{number:08x}-1111-4222-8333-444444444444"


def _cgroup(number: int) -> str:
    return f"/kubepods/burstable/pod{_uid(number)}/{number:064x}"


def _pod(number: int, tenant: Tenant) -> dict[str, Any]:
    amount = {} if tenant.declared is None else {"veriff.com/gpu-memory": tenant.declared}
    resources = {"limits": amount, "requests": amount}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": tenant.owner, "controller": True}
    metadata = {"name": tenant.name, "namespace": tenant.namespace, "uid": _uid(number)}
    status = {"name": "main", "containerID": f"containerd://{number:064x}", "state": {"running": {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [owner] if tenant.owner else []},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
