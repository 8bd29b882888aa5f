"""A node for the real daemon, without root: its /proc is a folder of links. The usual one has 16 cards and 200 pods."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.node import sleepers
from tests.kube.objects import list_of
from tests.rig.cluster.rig_pods import RigPods
from tests.rig.node import Container, Pod
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
step = [
  { above = "100%", for = "30s", do = "warn" },
  { above = "105%", for = "2m", do = "kill", scope = "container" },
]
[[rule]]
name = "everything else"
match = {}
step = [
  { above = "100%", for = "1s", do = "warn" },
  { above = "110%", for = "1h", do = "kill", scope = "container" },
]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTenant:
    """A pod with one container and one process on a card; a process of the host if it has no name. Bytes.

    `is_reported`: the driver reports how much the process uses; on WSL and in some vGPU guests it does not.
    """

    name: str = ""
    namespace: str = ""
    declared: str | None = None
    used: int
    card: int = 0
    is_reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FullNode:
    """A node described by the files in a folder; `pods` are the options of `run` that say where its pods are.

    `owners` has the pod of each process, by PID; `stub` what the driver shows.
    """

    root: Path
    pods: tuple[str | Path, ...]
    owners: Mapping[int, Pod]
    stub: Stub

    @property
    def stub_file(self) -> Path:
        """What the stub of NVML reports."""
        return self.root / "nvml.txt"

    @property
    def arguments(self) -> tuple[str | Path, ...]:
        """The options of `run` for it."""
        own = ("--policy", self.root / "policy.toml", "--procfs", self.root / "proc")
        return (*own, *self.pods, "--journal", self.root / "journal.db")


def many() -> Iterator[SimTenant]:
    """200 pods of every kind on 16 cards, and three processes of the host; the same ones each time."""
    dice = random.Random(7)
    for number in range(PODS):
        declared = dice.choice((None, 4, 4, 6, 6, 8, "8 GB"))
        gib = (declared if isinstance(declared, int) else 4) * dice.choice((0.02, 0.3, 0.6, 0.8, 0.95, 1.04, 1.5))
        yield SimTenant(
            name=f"{KINDS[number % len(KINDS)]}-{number * 7919 % 100_000:05}",
            namespace=NAMESPACES[number * 3 % 7 % 5],
            declared=f"{declared}Gi" if isinstance(declared, int) else declared,
            used=int(gib * GIB),
            card=number % CARDS,
            is_reported=number % 23 != 0,
        )
    for number in range(HOST):
        yield SimTenant(used=700 * MIB, card=number)


@contextmanager
def full_node(
    root: Path,
    tenants: Iterable[SimTenant] = (),
    cards: int = CARDS,
    *,
    policy: str = POLICY,
    api: RigPods | None = None,
) -> Iterator[FullNode]:
    """A node with these tenants, or with many; their processes are ended at the end. `api` gets its pods, if given."""
    listed = tuple(tenants) or tuple(many())
    pods = [_pod(number, tenant) if tenant.name else None for number, tenant in enumerate(listed)]
    with sleepers(len(listed)) as pids:
        (root / "policy.toml").write_text(policy, encoding="utf-8")
        if api is not None:
            for each in filter(None, pods):
                api.add(each)
        source = api.options(root / "policy.toml") if api is not None else ("--pods", root / "pods.json")
        owners = {pid: pod for pod, pid in zip(pods, pids, strict=True) if pod is not None}
        made = FullNode(root=root, pods=source, owners=owners, stub=_stub(listed, pids, cards))
        for name in ("self", "stat", "sys"):
            _link(root / "proc" / name, Path("/proc") / name)
        for pod, pid in zip(pods, pids, strict=True):
            path = f"/{pod.cgroup(pod.containers[0])}" if pod is not None else "/user.slice"
            for name in ("stat", "status", "comm", "cmdline", "task"):
                _link(root / "proc" / str(pid) / name, Path("/proc") / str(pid) / name)
            (root / "proc" / str(pid) / "cgroup").write_text(f"12:pids:{path}\n11:memory:{path}\n0::{path}\n", "ascii")
        (root / "pods.json").write_bytes(list_of(*(pod.to_json() for pod in pods if pod is not None)))
        made.stub.write(made.stub_file)
        yield made


def _stub(tenants: Sequence[SimTenant], pids: Sequence[int], cards: int) -> Stub:
    processes: list[list[StubProcess]] = [[] for _ in range(cards)]
    for tenant, pid in zip(tenants, pids, strict=True):
        reported = tenant.used if tenant.is_reported else None
        processes[tenant.card].append(StubProcess(pid=pid, used=reported, holds=tenant.used))
    made = (
        StubGpu(
            uuid=f"GPU-{number:08x}-1b7c-4a2e-9d3f-5e6a7b8c9d0e",
            name="NVIDIA H100 80GB HBM3",
            total=80 * GIB,
            reserved=600 * MIB,
            base=number * 300 * MIB,
            processes=tuple(own),
        )
        for number, own in enumerate(processes)
    )
    return Stub(gpus=tuple(made))


def _pod(number: int, tenant: SimTenant) -> Pod:
    main = Container("main", f"{number:064x}", tenant.declared)
    return Pod(tenant.name, tenant.namespace, f"{number:08x}-1111-4222-8333-444444444444", [main])


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
