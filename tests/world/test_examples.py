"""The policies of examples/ on a node each: what their first lines promise, with shorter waits."""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.rig import Daemon, Node, Tenant
from tests.rig.node import Pod
from tests.rig.replicas import deployed_by
from tests.rig.volume import mount
from tests.stub import GIB, ListName, StubGpu, StubMig, StubProcess
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
JOB: Final = {"ownerReferences": [{"kind": "Job", "name": "train", "uid": "u", "controller": True}]}
MPS: Final[tuple[ListName, ...]] = ("compute", "mps")
SHARE: Final = {"nvidia.com/gpu": "1"}  # of four, so 9.875 GiB of the node's card
HAMI: Final = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}
KAI: Final = {"annotations": {"gpu-memory": "8192"}}


def quick(name: str, world: Node) -> Path:
    """An example that enforces, and waits a second for a warning and three for a kill."""
    head, *steps = (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8").split("[[rule.step]]")
    shorter = [
        re.sub(r'^for = "\w+"', f'for = "{1 if "warn" in each else 3}s"', each, count=1, flags=re.MULTILINE)
        for each in steps
    ]
    enforcing = head.replace('mode = "observe"', 'mode = "enforce"')
    return mount(world.root / "policy.toml", "[[rule.step]]".join((enforcing, *shorter)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A pod, what its processes use of the card (GiB), and what becomes of it.

    The process that is killed, if any, is the first; the signal that ends it is the first that it gets.
    """

    used: tuple[float, ...]
    resources: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = "ns"
    lists: tuple[ListName, ...] = ("compute",)
    warned: bool = False
    ended_by: signal.Signals | None = None


OVER: Final[dict[str, Any]] = {"warned": True, "ended_by": signal.SIGTERM}
SCENES: Final[dict[str, dict[str, Guest]]] = {
    "time-slicing": {
        "hog": Guest(used=(12,), resources=SHARE, **OVER),
        "two-shares": Guest(used=(12,), resources={"nvidia.com/gpu": "2"}),
        "neighbour": Guest(used=(9.5,), resources=SHARE),
    },
    "notebooks": {
        "alice": Guest(used=(5, 1), namespace="jupyter-alice", **OVER),
        "bob": Guest(used=(3, 1), namespace="jupyter-bob"),
        "elsewhere": Guest(used=(9,)),
    },
    "batch": {
        "job": Guest(
            used=(4,), resources={"veriff.com/gpu-memory": "2Gi"}, metadata=JOB, warned=True, ended_by=signal.SIGKILL
        ),
        "web": Guest(used=(4,), resources={"veriff.com/gpu-memory": "2Gi"}, metadata=deployed_by("web"), warned=True),
        "calm": Guest(used=(2,), resources={"veriff.com/gpu-memory": "2Gi"}, metadata=JOB),
    },
    "mps": {
        "bypass": Guest(used=(12,), resources=SHARE, **OVER),
        "client": Guest(used=(11,), resources=SHARE, lists=MPS, warned=True),
        **{f"neighbour-{number}": Guest(used=(2,), resources=SHARE, lists=MPS) for number in range(3)},
    },
    "hami": {
        "hog": Guest(used=(12,), resources=HAMI, **OVER),
        "neighbour": Guest(used=(8.5,), resources=HAMI),
    },
    "kai": {
        "hog": Guest(used=(12,), metadata=KAI, **OVER),
        "neighbour": Guest(used=(9,), metadata=KAI),
        "unannotated": Guest(used=(15,)),
    },
}


def start(world: Node, name: str, guest: Guest) -> tuple[Pod, list[Tenant]]:
    """Start the processes of a pod, all in one container."""
    pod = world.pod(name, ("main", None), namespace=guest.namespace, metadata=guest.metadata)
    pod.containers[0].resources = guest.resources
    return pod, [world.start(pod, used=int(each * GIB), lists=guest.lists) for each in guest.used]


def acted_at(running: Daemon, pod: str, action: str) -> float | None:
    """When a pod was last acted on so."""
    return running.metric("pod_last_action_timestamp_seconds", pod=pod, action=action, result="done")


def check_fate(running: Daemon, pod: str, guest: Guest, tenants: list[Tenant]) -> None:
    """Hold a pod against what is to become of it: warned before it is killed, and no other process touched."""
    warned, killed = (acted_at(running, pod, action) for action in ("warn", "kill"))
    assert (warned is not None, killed is not None) == (guest.warned, guest.ended_by is not None), pod
    assert killed is None or (warned or 0) < killed, pod
    assert [each.ended_by for each in tenants] == [guest.ended_by, *[None] * (len(tenants) - 1)], pod
    assert [len(each.terms) for each in tenants] == [
        int(guest.ended_by is signal.SIGTERM),
        *[0] * (len(tenants) - 1),
    ], pod


@pytest.mark.parametrize("name", SCENES)
def test_an_example_does_what_its_first_lines_promise(any_world: Node, name: str) -> None:
    """Who goes over is warned and then killed as the first lines of the file say, and every neighbour lives on."""
    guests = SCENES[name]
    any_world.mark(labels={"nvidia.com/gpu.replicas": "4"})
    if name == "mps":
        any_world.start(None, used=GIB // 32, behaviour="server")
    tenants = {pod: start(any_world, pod, guest)[1] for pod, guest in guests.items()}
    any_world.write()
    with run(any_world, quick(name, any_world), more=("--node-object", any_world.node_file)) as running:
        running.wait(lambda d: all(acted_at(d, pod, "warn") for pod, guest in guests.items() if guest.warned))
        running.wait(lambda d: all(acted_at(d, pod, "kill") for pod, guest in guests.items() if guest.ended_by))
        if name == "mps":
            running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(2)
        for pod, guest in guests.items():
            check_fate(running, pod, guest, tenants[pod])


def test_inference_may_burst_while_the_card_has_room(any_world: Node) -> None:
    """Over its limit a replica is only warned until its card is short of memory; then it goes, and no other."""
    owned: dict[str, Any] = {"resources": {"veriff.com/gpu-memory": "8Gi"}, "metadata": deployed_by("web")}
    offender, calm = Guest(used=(12,), **owned, **OVER), Guest(used=(8,), **owned)
    (_, over), (_, within) = start(any_world, "hog", offender), start(any_world, "calm", calm)
    any_world.write()
    with run(any_world, quick("inference", any_world)) as running:
        running.wait(lambda d: acted_at(d, "hog", "warn"))
        running.wait_passes(5)
        check_fate(running, "hog", replace(offender, ended_by=None), over)
        (card,) = any_world.stub.gpus
        any_world.show(gpus=(replace(card, base=18 * GIB),))
        running.wait(lambda d: acted_at(d, "hog", "kill"))
        running.wait_passes(2)
        check_fate(running, "hog", offender, over)
        check_fate(running, "calm", calm, within)


def test_mig_is_for_pods_that_requested_an_instance(any_world: Node) -> None:
    """A pod may use its whole instance; one that uses an instance without a request is warned and killed."""
    owner, sneaky = Guest(used=(0,), resources={"nvidia.com/mig-1g.10gb": "1"}), Guest(used=(0,), **OVER)
    (_, own), (_, other) = start(any_world, "owner", owner), start(any_world, "sneaky", sneaky)
    uses = tuple(StubProcess(pid=each.pid, used=9 * GIB, gi=gi) for gi, each in ((1, own[0]), (2, other[0])))
    migs = tuple(StubMig(uuid=f"MIG-{gi}", slot=gi, gi=gi, profile="1g.10gb", total=9 * GIB) for gi in (1, 2))
    card = StubGpu(uuid="GPU-m", total=80 * GIB, migs=migs, processes=uses)
    any_world.show(gpus=(*any_world.stub.gpus, card))
    with run(any_world, quick("mig", any_world)) as running:
        running.wait(lambda d: acted_at(d, "sneaky", "kill"))
        running.wait_passes(2)
        check_fate(running, "owner", owner, own)
        check_fate(running, "sneaky", sneaky, other)
