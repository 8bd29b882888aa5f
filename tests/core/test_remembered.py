"""What pods declare is read again only when it has changed; point 39, "Bounded work"."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.worlds import MEMORY, Gi, assessed, container, gpu, inputs, pod, policy, process, snapshot, use
from watchdog.core.amount import Cards
from watchdog.core.assess import assess
from watchdog.core.attribute import attribute
from watchdog.core.declare import PodDeclaration, active_containers
from watchdog.core.model import Container, ContainerKind, Gpu, Node, Pod
from watchdog.core.policy import Capacity, Policy
from watchdog.core.remembered import DeclarationMemory

World = tuple[Pod, Policy, Node, tuple[Gpu, ...]]
NODE: Final = Node(name="n1", labels={"nvidia.com/gpu.count": "1"}, capacity={MEMORY: "80Gi"})
OWNER: Final = pod("a", container(declared="1Gi"), annotations={"limit": "2Gi"}, labels={"tier": "dev"})
UNDER: Final = policy()
CARD: Final = gpu()


def _pod(**changes: object) -> Callable[[World], World]:
    return lambda world: (replace(world[0], **changes), *world[1:])  # type: ignore[arg-type]


def _main(**changes: object) -> Callable[[World], World]:
    return lambda world: (replace(world[0], containers=(replace(world[0].containers[0], **changes),)), *world[1:])  # type: ignore[arg-type]


def _node(**changes: object) -> Callable[[World], World]:
    return lambda world: (*world[:2], replace(world[2], **changes), world[3])  # type: ignore[arg-type]


def _cards(*cards: Gpu) -> Callable[[World], World]:
    return lambda world: (*world[:3], cards)


SAME: Final = {
    "nothing": lambda world: world,
    "the same pod, decoded again": _pod(containers=(container(declared="1Gi"),)),
    "a container that restarted": _main(ids=frozenset({"b" * 64})),
    "its owner and priority": _pod(priority=7),
    "a heartbeat of the node": _node(labels=dict(NODE.labels), capacity=dict(NODE.capacity), uid="again"),
    "an annotation of the node": _node(annotations={"a": "b"}),
    "the use of the card": _cards(replace(CARD, used=5 * Gi)),
}
OTHER: Final = {
    "an annotation": _pod(annotations={"limit": "3Gi"}),
    "a label": _pod(labels={"tier": "prod"}),
    "a resource": _main(resources={MEMORY: "2Gi"}),
    "a claim": _main(claims=("gpu",)),
    "the kind of a container": _main(kind=ContainerKind.SIDECAR),
    "a container": _pod(containers=(*OWNER.containers, container("side"))),
    "a label of the node": _node(labels={"nvidia.com/gpu.count": "2"}),
    "the capacity of the node": _node(capacity={MEMORY: "90Gi"}),
    "the registration of the node by HAMi": _node(annotations={"hami.io/node-nvidia-register": "[]"}),
    "a node that is not known": _node(known=False),
    "the size of the card": _cards(gpu(0, 40 * Gi)),
    "a card that fails": _cards(replace(CARD, up=False)),
    "what the daemon advertises": lambda world: (
        world[0],
        replace(world[1], capacity=Capacity(resource=MEMORY)),
        *world[2:],
    ),
    "the policy": lambda world: (world[0], policy(declarations=()), *world[2:]),
}


@pytest.mark.parametrize(
    ("change", "is_same"),
    [*((each, True) for each in SAME.values()), *((each, False) for each in OTHER.values())],
    ids=[*SAME, *OTHER],
)
def test_a_pod_is_read_again_only_if_what_was_read_has_changed(
    change: Callable[[World], World], *, is_same: bool
) -> None:
    """Neither a cycle nor a heartbeat reads a pod again; each value that a declaration depends on does."""
    memory, before = DeclarationMemory(), (OWNER, UNDER, NODE, (CARD,))
    found = []
    for tenant, under, node, cards in (before, change(before)):
        memory.begin(under, node, Cards.of(snapshot(gpus=cards), node))
        (one,) = memory.declare(tenant, (active_containers(tenant),), per_container=False)
        found.append(one)
    assert (found[0] is found[1]) is is_same


def test_a_pod_is_read_again_once_the_node_has_listed_what_it_requests() -> None:
    """Point 6: what was ever listed is one of the values that a declaration was read from."""
    memory, node = DeclarationMemory(), replace(NODE, capacity={"cpu": "4"})
    known = {OWNER.uid: frozenset({MEMORY})}
    found: list[PodDeclaration] = []
    for listed in ({}, known, dict(known)):
        memory.begin(UNDER, node, Cards(gpus=(CARD,)), listed)
        found += memory.declare(OWNER, (active_containers(OWNER),), per_container=False)
    assert [each.bound is None for each in found] == [False, True, True]
    assert found[1] is found[2]


def test_a_pod_that_is_gone_is_forgotten() -> None:
    """A tenant that creates and deletes pods does not fill the memory."""
    memory = DeclarationMemory()
    cards = Cards(gpus=(CARD,))
    for number in range(100):
        memory.begin(UNDER, NODE, cards)
        memory.declare(replace(OWNER, uid=str(number)), (OWNER.containers,), per_container=False)
    assert len(memory) <= 2


def test_finished_pods_without_processes_are_left_out() -> None:
    """Thousands of finished pods cost next to nothing; one that a process outlives is still assessed."""
    living = (pod(str(number), container(declared="1Gi", of=str(number))) for number in range(50))
    pods = tuple(replace(each, is_finished=True) for each in living)
    memory, given = DeclarationMemory(), inputs(UNDER, pods)
    seen = snapshot([use(7, 2 * Gi)], [process(7, "3/main")])
    found = assess(attribute(seen, pods), seen, given, memory)
    assert ([each.account.uid for each in found], len(memory)) == (["3"], 1)


def _init(number: int) -> Container:
    asks = {f"nvidia.com/mig-{each}": "1" for each in range(40)}
    return container(f"i{number}", kind=ContainerKind.INIT, running=False, resources=asks)


def test_a_container_is_read_once_for_all_phases() -> None:
    """A pod with a phase for each of 60 init containers, each with 40 MIG resources, has the budget of its phases."""
    tenant = pod("a", *(_init(number) for number in range(60)), container(declared="8Gi"))
    seen = snapshot([use(7, 1, 0), use(8, 9 * Gi)], [process(7, "a/new"), process(8, "a/main")])
    (found,) = assessed(seen, [tenant], policy(), NODE)
    assert (found.behind, found.declared_by is not None) == (True, True)
