"""Memory that changes hands: which rises count as unknown, for whom, for how long, and how much of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import Gi, Mi, at, container, gpu, inputs, owner, pod, policy, process, rule, snapshot, step, use
from watchdog.core.assessment import AccountKey, Attribution, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.model import Pod, Snapshot
from watchdog.core.transfers import Transfers, TransferWindow

PODS = (
    pod("a", container("main", "8Gi", of="a"), container("side", of="a")),
    pod("b", container("main", "40Gi", of="b"), namespace="other"),
    pod("c", container("main", "40Gi", of="c"), namespace="other"),
)
BEFORE = {("a/main", 1): 5 * Gi, ("b/main", 2): 36 * Gi}
Uses = Mapping[tuple[str, int], int | None]


def seen(uses: Uses, second: float, *, used: int | None = None, total: int = 80 * Gi, **more: Any) -> Snapshot:
    """A reading of one card with these processes (container, PID); it is `used` by that, or by their sum."""
    card = gpu(0, total, used=sum(each or 0 for each in uses.values()) if used is None else used)
    processes = [process(pid, where) for where, pid in uses]
    return snapshot([use(pid, each) for (_, pid), each in uses.items()], processes, (card,), second, **more)


def given_(pods: tuple[Pod, ...] = PODS, **more: Any) -> Inputs:
    """The inputs of a cycle."""
    return inputs(policy(), pods, **more)


def follow(*readings: Snapshot, known: Transfers | None = None, under: Inputs | None = None) -> Transfers:
    """What is remembered after these readings."""
    known, under = known or Transfers(), under or given_()
    for each in readings:
        known = known.after(attribute(each, under.pods.pods), each, under)
    return known


def hidden(known: Transfers, last: Snapshot, under: Inputs | None = None) -> dict[int, int]:
    """The bytes that count as unknown in a reading, by PID."""
    under = under or given_()
    given = attribute(last, under.pods.pods)
    after: Attribution = known.hide(given, last, under)
    pairs = zip(given.attributed, after.attributed, strict=True)
    return {one.key.pid: one.used - other.surely for one, other in pairs if one.used and other.used is None}


CASES: dict[str, tuple[Uses, Uses, dict[str, Any], int]] = {
    "all of it": (BEFORE, {("a/main", 1): 41 * Gi}, {}, 36 * Gi),
    "three quarters": (BEFORE, {("a/main", 1): 32 * Gi}, {}, 27 * Gi),
    "less": (BEFORE, {("a/main", 1): 32 * Gi - 1}, {}, 0),
    "more": (BEFORE, {("a/main", 1): 41 * Gi + 1}, {}, 0),
    "as far as the counter tells": (BEFORE, {("a/main", 1): 41 * Gi}, {"used": 41 * Gi + 64 * Mi}, 36 * Gi),
    "another use of the card": (BEFORE, {("a/main", 1): 41 * Gi}, {"used": 41 * Gi + 65 * Mi}, 0),
    "a card that is short": (BEFORE, {("a/main", 1): 41 * Gi}, {"total": 42 * Gi}, 0),
    "a process that is new": ({("b/main", 2): 36 * Gi}, {("a/main", 1): 36 * Gi}, {}, 0),
    "its amount was unknown": ({**BEFORE, ("a/main", 1): None}, {("a/main", 1): 41 * Gi}, {}, 0),
    "nobody has ended": (BEFORE, {("a/main", 1): 41 * Gi, ("b/main", 2): 1}, {}, 0),
    "its own pod's": ({("a/main", 1): 5 * Gi, ("a/side", 2): 36 * Gi}, {("a/main", 1): 41 * Gi}, {}, 0),
    "of two pods": (
        {("a/main", 1): 5 * Gi, ("b/main", 2): 20 * Gi, ("c/main", 3): 16 * Gi}, {("a/main", 1): 41 * Gi}, {}, 36 * Gi,
    ),
    "of one while another one ends": (
        {**BEFORE, ("c/main", 3): 30 * Gi}, {("a/main", 1): 41 * Gi}, {}, 36 * Gi,
    ),
    "others change too": (
        {**BEFORE, ("c/main", 3): 2 * Gi}, {("a/main", 1): 41 * Gi, ("c/main", 3): 4 * Gi}, {}, 36 * Gi,
    ),
    "of a process of no listed pod": (
        {("a/main", 1): 5 * Gi, ("gone/main", 2): 36 * Gi}, {("a/main", 1): 41 * Gi}, {}, 36 * Gi,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "more", "unknown"), CASES.values(), ids=CASES)
def test_which_rise_may_be_a_transfer(before: Uses, after: Uses, more: dict[str, Any], unknown: int) -> None:
    """Point 10, clause by clause."""
    first = seen(before, 0, total=more.get("total", 80 * Gi))
    last = seen(after, 1, **more)
    known = follow(first, last)
    assert hidden(known, last).get(1, 0) == unknown
    assert len(known.begun) == len(known.gaps(at(1))) == (unknown > 0)


def test_accounts_by_container_are_apart() -> None:
    """Point 10: of another account, which is another container's where the rule says so."""
    under = replace(given_(), policy=policy(rule(step(), account="container")))
    first = seen({("a/main", 1): 5 * Gi, ("a/side", 2): 36 * Gi}, 0)
    last = seen({("a/main", 1): 41 * Gi}, 1)
    assert hidden(follow(first, last, under=under), last, under) == {1: 36 * Gi}


def test_what_our_own_kill_leaves_behind_counts() -> None:
    """Point 10: an accomplice that has opened the memory of an offender takes its place."""
    under = given_(acting=frozenset({AccountKey(uid="b")}))
    last = seen({("a/main", 1): 41 * Gi}, 1)
    assert hidden(follow(seen(BEFORE, 0), last, under=under), last, under) == {}


def test_the_window_of_an_owner_is_five_minutes_an_hour() -> None:
    """Point 10: a pod of the same owner counts for the same window, and another daemon continues it."""
    same = replace(PODS[0], owner=owner())
    under = given_((same, replace(PODS[2], namespace="ns", owner=owner()), PODS[1]))
    known = follow(seen(BEFORE, 0), seen({("a/main", 1): 41 * Gi}, 1), under=under)
    assert hidden(known, seen({("a/main", 1): 41 * Gi}, 300), under) == {1: 36 * Gi}
    assert hidden(known, seen({("a/main", 1): 41 * Gi}, 301), under) == {}
    for inherits in (False, True):
        again = Transfers().inheriting(known.windows, at(1000)) if inherits else known
        for second, unknown in ((1000, {}), (3700, {3: 20 * Gi})):
            first = seen({("c/main", 3): Gi, ("b/main", 4): 20 * Gi}, second)
            last = seen({("c/main", 3): 21 * Gi}, second + 1)
            assert hidden(follow(first, last, known=again, under=under), last, under) == unknown


@pytest.mark.parametrize(("namespace", "unknown"), [("mallory", {1: 36 * Gi}), ("ns", {})])
def test_windows_of_one_namespace_leave_room_for_those_of_others(namespace: str, unknown: dict[int, int]) -> None:
    """Point 10: a tenant that makes memory change hands under many owners leaves no importer of others unprotected."""
    full = Transfers(windows={(namespace, "Pod", f"p{each}"): TransferWindow(began=at(-10)) for each in range(100)})
    last = seen({("a/main", 1): 41 * Gi}, 1)
    assert hidden(follow(seen(BEFORE, 0), last, known=full), last) == unknown


def test_what_was_given_back_stays_so_when_a_journal_is_read_again() -> None:
    """Point 10: a journal has a window as it began; read again after it was lost, nothing becomes unknown again."""
    begun = follow(seen(BEFORE, 0), seen({("a/main", 1): 41 * Gi}, 1))
    known = follow(seen({("a/main", 1): 15 * Gi}, 2), seen({("a/main", 1): 41 * Gi}, 3), known=begun)
    again = known.inheriting(begun.windows, at(4))
    assert hidden(again, seen({("a/main", 1): 41 * Gi}, 5)) == {1: 10 * Gi}
    earlier = Transfers().inheriting(begun.windows, at(4)).inheriting(known.windows, at(4))
    assert hidden(earlier, seen({("a/main", 1): 41 * Gi}, 5)) == {1: 36 * Gi}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_no_allocation_hides_behind_a_transfer(amounts: list[int]) -> None:
    """Point 10, a law: whatever an importer does, at most what it was charged is unknown, and no growth is."""
    known = follow(seen(BEFORE, 0), seen({("a/main", 1): 41 * Gi}, 1))
    used, unknown = 41 * Gi, 36 * Gi
    for second, amount in enumerate(amounts, 2):
        last = seen({("a/main", 1): amount * Gi}, second)
        known = follow(last, known=known)
        now_unknown = hidden(known, last).get(1, 0)
        assert now_unknown <= unknown
        if amount * Gi > used:
            assert amount * Gi - now_unknown == used - unknown + (amount * Gi - used)
        used, unknown = amount * Gi, now_unknown
