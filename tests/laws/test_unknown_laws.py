"""Law 3 about unknown pods and cards: removing knowledge never makes an offender."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.nodes import GeneratedNode, build, nodes, without_card
from tests.worlds import assessed, policy
from watchdog.core.assessment import AccountKey, Verdict
from watchdog.core.model import Container, ContainerKind, Node, Pod

LOSSES = ("labels", "card", "ids", "phase")


def bright(node: GeneratedNode, dice: random.Random) -> GeneratedNode:
    """The same node, fully known: each process in a listed container, and the real phase."""
    known = tuple(replace(pod, containers=tuple(_settled(pod, dice))) for pod in node.pods)
    ids = {each for pod in known for container in pod.containers for each in container.ids}
    at_home = {pid for pid, process in node.seen.processes.items() if process.place.container in ids}
    seen = replace(
        node.seen,
        gpus=tuple(replace(gpu, up=True, listed=True) for gpu in node.seen.gpus),
        uses=tuple(replace(use, used=use.used or 0) for use in node.seen.uses if use.pid in at_home),
        blind=False,
        unseen=frozenset(),
        missing=frozenset(),
    )
    under = replace(node.under, allowance=policy().allowance)  # what a context takes goes with the process that has it
    # No more cards than there are.
    capacity = {key: text for key, text in node.node.capacity.items() if key != "nvidia.com/gpu"}
    own = replace(node.node, known=True, capacity=capacity)
    return replace(node, seen=seen, pods=known, under=under, node=own, overdue=())


def _settled(pod: Pod, dice: random.Random) -> list[Container]:
    first = dice.random() < 0.3
    return [replace(each, running=each.kind is not ContainerKind.INIT or first) for each in pod.containers]


def dimmed(node: GeneratedNode, losses: set[str], dice: random.Random) -> GeneratedNode:
    """The same node with less known about it."""
    seen, pods, own = node.seen, node.pods, node.node
    if "labels" in losses:
        own = Node(name=own.name, capacity=own.capacity) if dice.random() < 0.5 else Node(name=own.name, known=False)
    if "card" in losses and len(seen.gpus) > 1:
        seen = without_card(seen, dice.choice(seen.gpus))
    if "ids" in losses:
        running = {seen.processes[use.pid].place.container for use in seen.uses}
        pods = tuple(_behind(pod, running, losses, dice) for pod in pods)
    return replace(node, seen=seen, pods=pods, node=own)


def _behind(pod: Pod, running: set[str | None], losses: set[str], dice: random.Random) -> Pod:
    """The pod as a list has it that lacks one of the containers that run; then its phase may be wrong as well."""
    candidates = [container for container in pod.containers if container.ids & running]
    if not candidates:
        return pod
    new = dice.choice(candidates)
    made = [replace(each, ids=frozenset()) if each is new else each for each in pod.containers]
    if "phase" in losses:
        made = [replace(each, running=dice.random() < 0.5) for each in made]
    return replace(pod, containers=tuple(made))


def verdicts(node: GeneratedNode) -> dict[AccountKey, Verdict]:
    """The verdict of every account of a node."""
    return {each.account: each.verdict for each in assessed(node.seen, node.pods, node.under, node.node)}


def offenders(node: GeneratedNode) -> set[tuple[str, str | None]]:
    """The pods and containers of which an account is over; whether it is one for each GPU depends on what declares."""
    return {(key.uid, key.container) for key, verdict in verdicts(node).items() if verdict is Verdict.OVER}


def excused(node: GeneratedNode, losses: set[str]) -> set[tuple[str, str | None]]:
    """The pods and containers that are left alone for how they declare: less may be known of that, too.

    Without the labels a share of a card that no table reads is taken for the whole card, which is a bound. Then a claim
    does not make the limit unknown either: it only does where nothing else is declared.
    """
    without_labels = "labels" in losses
    alone = {Verdict.MISDECLARED} | ({Verdict.UNDECLARED} if without_labels else set())
    return {
        (each.account.uid, each.account.container)
        for each in assessed(node.seen, node.pods, node.under, node.node)
        if each.verdict in alone or (without_labels and "ResourceClaim" in each.limit_unknown)
    }


@given(nodes(), st.sets(st.sampled_from(LOSSES), min_size=1), st.integers(0, 2**32))
def test_knowing_less_makes_no_offender(node: GeneratedNode, losses: set[str], seed: int) -> None:
    """Law 3, "No enforcement follows from input that is unknown or stale".

    Labels, cards, container IDs, the phase of a pod.
    """
    truth = bright(node, random.Random(seed))
    assert offenders(dimmed(truth, losses, random.Random(seed))) <= offenders(truth) | excused(truth, losses)


@pytest.mark.slow
def test_the_losses_hide_offenders_and_leave_some() -> None:
    """A property of what never occurs proves nothing: each loss leaves offenders, and makes accounts unknown."""
    found: Counter[str] = Counter()
    for seed in range(200):
        truth = bright(build(random.Random(seed), 1 + seed % 8, seed % 41, seed), random.Random(seed))
        before = verdicts(truth)
        for loss in LOSSES:
            left = verdicts(dimmed(truth, {loss, "ids"} if loss == "phase" else {loss}, random.Random(seed)))
            unknown = {key for key, verdict in left.items() if verdict is Verdict.UNKNOWN}
            found[f"{loss} left"] += sum(verdict is Verdict.OVER for verdict in left.values())
            found[f"{loss} unknown"] += len({key for key in unknown if before.get(key) is not Verdict.UNKNOWN})
    assert all(found[f"{loss} left"] and found[f"{loss} unknown"] for loss in LOSSES), found
