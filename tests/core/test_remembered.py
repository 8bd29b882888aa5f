"""What pods declare is read again only when it has changed; point 39, "Bounded work"."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from tests.daemon import eviction_rig
from tests.worlds import (
    MEMORY,
    Gi,
    assessed,
    at,
    container,
    gpu,
    inputs,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.amount import Cards
from watchdog.core.assess import assess
from watchdog.core.assessment import Verdict
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.declare import PodDeclaration, active_containers
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Container, ContainerKind, Gpu, Node, Place, PlaceKind, Pod, Snapshot
from watchdog.core.policy import Brakes, Capacity, Claims, Match, Policy, Window
from watchdog.core.remembered import MOST_READ, DeclarationMemory

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
    "what a share of a claim counts as": lambda world: (
        world[0],
        replace(world[1], claims=Claims(count_shares=True)),
        *world[2:],
    ),
    "where an instance is on its card": _cards(replace(CARD, placement=(0, 1))),
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
        declared = memory.declare(tenant, (active_containers(tenant),), per_container=False)
        assert declared is not None
        found.append(declared[0])
    assert (found[0] is found[1]) is is_same


def test_a_pod_is_read_again_once_the_node_has_listed_what_it_requests() -> None:
    """Point 6: what was ever listed is one of the values that a declaration was read from."""
    memory, node = DeclarationMemory(), replace(NODE, capacity={"cpu": "4"})
    known = {OWNER.uid: frozenset({MEMORY})}
    found: list[PodDeclaration] = []
    for listed in ({}, known, dict(known)):
        memory.begin(UNDER, node, Cards(gpus=(CARD,)), listed)
        found += memory.declare(OWNER, (active_containers(OWNER),), per_container=False) or ()
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


@cache
def _fat(uid: str, keys: int = 90, declared: str | None = "1Gi") -> Pod:
    """A pod that takes most of what one cycle reads; with 110 keys in each container it takes more than that."""
    asks = {f"example.com/{each}": "1" for each in range(keys)}
    return pod(uid, *(container(f"c{each}", declared, resources=asks, of=uid) for each in range(70)))


def _verdicts(memory: DeclarationMemory, pods: tuple[Pod, ...], seen: Snapshot) -> dict[str, Verdict]:
    found = assess(attribute(seen, pods), seen, inputs(UNDER, pods), memory)
    return {each.account.uid: each.verdict for each in found}


def _seen_in(*uids: str, name: str = "main") -> Snapshot:
    """A reading in which each of these pods uses 9 GiB."""
    uses = [use(pid, 9 * Gi) for pid in range(10, 10 + len(uids))]
    return snapshot(uses, [process(10 + at, f"{uid}/{name}") for at, uid in enumerate(uids)])


@pytest.mark.parametrize("keys", [90, 110])
def test_first_readings_of_large_pods_are_spread_over_cycles(keys: int) -> None:
    """Point 39: each cycle reads some; the others are unknown for as long, and never undeclared."""
    fat = tuple(_fat(f"fat{each}", keys) for each in range(6))
    offender = pod("hog", container(declared="8Gi", of="hog"))
    pods, memory = (*fat, offender), DeclarationMemory(MOST_READ)
    seen = snapshot(
        [use(9, 9 * Gi), *(use(10 + each, 9 * Gi) for each in range(6))],
        [process(9, "hog/main"), *(process(10 + each, f"fat{each}/c0") for each in range(6))],
    )
    cycles = [_verdicts(memory, pods, seen) for _ in range(6)]
    unread = [sum(verdict is Verdict.UNKNOWN for verdict in cycle.values()) for cycle in cycles]
    assert all(cycle["hog"] is Verdict.OVER for cycle in cycles)
    # What is larger than a cycle reads comes alone, after the small one.
    assert unread == ([5, 4, 3, 2, 1, 0] if keys == 90 else [6, 5, 4, 3, 2, 1])
    assert all(Verdict.UNDECLARED not in cycle.values() for cycle in cycles)


def test_a_pod_that_has_not_been_read_is_a_gap() -> None:
    """Law 11: a pod that waits for its limit to be read is named."""
    pods, memory = tuple(_fat(f"fat{each}") for each in range(2)), DeclarationMemory(MOST_READ)
    seen = snapshot([use(8, Gi), use(9, Gi)], [process(8, "fat0/c0"), process(9, "fat1/c0")])
    found = assess(attribute(seen, pods), seen, inputs(UNDER, pods), memory)
    gaps = [(each.rule_gap and each.rule_gap.what, each.allowed, each.limit_unknown) for each in found]
    assert gaps[1] == (f"pod {pods[1].title}", None, "what it declares has not been read yet")
    assert gaps[0][0] is None


@pytest.mark.parametrize("keys", [90, 110])
@pytest.mark.parametrize("are_using", [False, True], ids=["idle", "using"])
def test_pods_that_change_in_every_cycle_delay_no_other_for_ever(*, keys: int, are_using: bool) -> None:
    """Law 11: of two halves, one goes to those that have waited the longest; pods that use memory come first."""
    offender, memory = _fat("hog", keys), DeclarationMemory(MOST_READ)
    names = ["hog", *(f"fat{each}" for each in range(4)), *(f"s{each}" for each in range(9))]
    seen = _seen_in(*(names if are_using else names[:1]), name="c0")
    found = []
    for cycle in range(30):
        others = (replace(_fat(f"fat{each}", keys), labels={"cycle": str(cycle)}) for each in range(4))
        small = (pod(f"s{each}", *_small(f"s{each}"), labels={"c": str(cycle)}) for each in range(9))
        pods = (*others, *small, offender)
        found.append(_verdicts(memory, pods, seen)["hog"])
    assert (found[0] is Verdict.UNKNOWN) is are_using
    assert Verdict.UNKNOWN not in found[20:]


def _small(uid: str) -> tuple[Container, ...]:
    return _fat(uid).containers[:30]


@pytest.mark.parametrize("keys", [90, 110])
@pytest.mark.parametrize("are_using", [False, True], ids=["idle", "using"])
def test_nobody_escapes_by_having_to_be_read_again_all_the_time(*, keys: int, are_using: bool) -> None:
    """Law 11: an offender and decoys, all large, that change each second delay its kill by their number at most."""
    many = 12  # each waits for longer than what is counted is kept without a reading (Point 16)
    world = eviction_rig.World(policy=policy(rule(step("200%", 5))))
    world.used = {5: 8 * Gi, **({10 + each: 1 for each in range(many)} if are_using else {})}
    world.processes = tuple(process(10 + each, f"fat{each}/c0") for each in range(many))
    due = []
    for second in range(2 * 5 * (many + 2)):
        labels = {"written": str(second)}
        decoys = (replace(_fat(f"fat{each}", keys), labels=labels) for each in range(many))
        hog = pod("a", container(declared="1Gi"), *_fat("a", keys, None).containers, labels=labels)
        world.pods = (*decoys, hog)
        plan = world.open(second).plan
        due += [second for entry in plan.entries if entry.account.uid == "a" and entry.due_in_s == 0]
    assert due, "the offender is never due"
    assert are_using or due[0] == 5


KILL_10: Final = step("200%", 10)
TIERS: Final = policy(
    rule(KILL_10, name="a", match=Match(labels={"tier": "a"})),
    rule(KILL_10, name="b"),
    brakes=Brakes(node=Window(count=1, per_s=1e9)),
)
_NOTES: Final = {f"note-{each}": "" for each in range(190)}
HISTORIES: Final = {
    "a new incident": [("a", 0), ("b", 0), ("a", 0), *[("a", 4)] * 10, ("b", 4)],
    "a rule that was in force while it waited": [("a", 0), ("a", 0), ("b", 0), *[("a", 4)] * 10, ("b", 4)],
    "a dip": [*[("a", 4)] * 8, ("b", 0), ("a", 0), *[("b", 4)] * 12],
    "an end": [("a", 0), *[("a", 4)] * 4, *[("b", 0), ("a", 0)] * 3, *[("b", 4)] * 11],
    "withheld, then a dip": [*[("b", 4)] * 15, ("a", 0), ("b", 0), *[("a", 4)] * 11],
}


def _planned(
    history: list[tuple[str, int]], *, dark: bool, delayed: bool
) -> tuple[int, list[tuple[object, list[AccountState]]]]:
    """In how many seconds of a history a pod was not read; and what was due and remembered of it, second by second.

    The history has its tier and the GiB that it uses. `dark`: some more memory may be of any pod. `delayed`: there are
    pods that change all the time.
    """
    anybodys = process(9, place=Place(kind=PlaceKind.UNREADABLE))
    world = eviction_rig.World(policy=TIERS, processes=(anybodys,))
    world.cycle.ledger = Ledger(brakes=BrakeMemory().add_begun(("ns", "Pod", "other"), Begun(at(0).boottime_s)))
    waits, found = 0, list[tuple[object, list[AccountState]]]()
    for second, (tier, used) in enumerate(history):
        written = {"written": str(second)}
        fat = [replace(_fat(f"fat{each}"), labels=written) for each in range(4)] if delayed else []
        small = [pod(f"small{each}", annotations=_NOTES, labels=written) for each in range(20)] if delayed else []
        notes = {**_NOTES, "more": ""}  # so it is larger than the small ones
        world.pods = (pod("a", container(declared="1Gi"), annotations=notes, labels={"tier": tier}), *fat, *small)
        world.used = {**({5: used * Gi} if used else {}), **({9: 1} if dark else {})}
        opened = world.open(second)
        waits += "a" not in {each.account.uid for each in opened.assessments}
        states = [state for key, state in opened.plan.ledger.accounts.items() if key.uid == "a"]
        found.append(([(each.rule.name, each.due_in_s, each.withheld_by) for each in opened.plan.entries], states))
    return waits, found


@pytest.mark.parametrize("dark", [False, True], ids=["complete", "dark"])
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_while_a_pod_waits_to_be_read_nothing_of_it_is_forgotten(history: list[tuple[str, int]], *, dark: bool) -> None:
    """Law 11: pods too large for one cycle, which any tenant can create, change nothing of what others are due for."""
    waits, found = _planned(history, dark=dark, delayed=True)
    never, expected = _planned(history, dark=dark, delayed=False)
    assert waits > never == 0
    assert [due for due, _ in found] == [due for due, _ in expected]
    # In the dark, what is held in an incident is as of the last reading that saw the account.
    assert dark or found == expected


def test_phases_are_read_without_reading_the_pod_again() -> None:
    """A pod whose init containers end one after the other takes no cycle's time with each of them."""
    tenant, memory = _fat("a"), DeclarationMemory(MOST_READ)
    for each in tenant.containers:
        memory.begin(UNDER, NODE, Cards(gpus=(CARD,)))
        memory.choose((tenant, _fat("b")), ())
        found = memory.declare(tenant, ((each,),), per_container=False)
        assert found is not None or each is tenant.containers[0]


def test_what_a_cycle_has_read_its_last_look_does_not_read_again() -> None:
    """A last look asks for what the cycle knows."""
    tenant, memory = _fat("a"), DeclarationMemory(MOST_READ)
    look = DeclarationMemory(MOST_READ, memory)
    found = []
    for each in (memory, look):
        each.begin(UNDER, NODE, Cards(gpus=(CARD,)))
        each.choose((tenant,), ())
        found.append(each.declare(tenant, (tenant.containers,), per_container=False))
    assert found[0] is not None
    assert found[0] is found[1]


def test_accounts_that_only_declare_are_bounded_on_the_whole_node() -> None:
    """Point 39: many pods with many containers make no cycle longer; each of them still has an account."""
    asks = (container(f"c{each}", declared="1Gi") for each in range(60))
    of_each = tuple(asks)
    pods = tuple(pod(str(number), *of_each) for number in range(100))
    found = assessed(snapshot(), pods, policy(rule(account="container")), NODE)
    assert (len(found) <= 2000, {each.account.uid for each in found}) == (True, {str(each) for each in range(100)})
