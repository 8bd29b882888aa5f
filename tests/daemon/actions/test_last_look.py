"""The last look: whether it confirms what has come due, and the reasons against a first signal."""

from dataclasses import replace
from fractions import Fraction
from typing import Final

import pytest

from tests.daemon.eviction_rig import Seen
from tests.worlds import (
    Gi,
    Mi,
    assessed,
    at,
    claimant,
    container,
    gpu,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.ledger import Ledger
from watchdog.core.model import ProcessKey, Snapshot
from watchdog.core.plan import Outcome, PlanEntry
from watchdog.core.policy import Allowance, Match, Scope
from watchdog.daemon.actions.last_look import retarget, still_listed, update

POD: Final = pod("a", container("main", "4Gi"))
CONTEXTS: Final = Allowance(per_context=512 * Mi, max_contexts=4, percent=Fraction(0))


def _seen(*used: float, second: float) -> Snapshot:
    return snapshot([use(pid, int(gib * Gi)) for pid, gib in enumerate(used, 5)], second=second)


@pytest.mark.parametrize(
    ("for_s", "counted", "looked", "goes_on"),
    [
        (3.0, (4.0, 1.2), (4.8,), False),  # above 4.5Gi, which it may use now, and not above 5Gi as before
        (3.0, (4.8,), (4.0, 1.2), False),  # above 5Gi, which it may use now, and not all the time
        (3.0, (4.0, 1.2), (5.1,), True),
        (0.0, (4.0, 1.2), (4.8,), True),  # this reading alone is enough
    ],
)
def test_the_last_look_extends_the_stretch_or_nothing_is_done(
    for_s: float, counted: tuple[float, ...], looked: tuple[float, ...], goes_on: bool
) -> None:
    """Law 5, points 15 and 22: the threshold is that of the largest amount allowed within the stretch."""
    under, ledger = policy(rule(step(for_s=for_s)), allowance=CONTEXTS), Ledger()
    for second in range(int(for_s) + 1):
        plan = planned(_seen(*counted, second=second), [POD], under, ledger)
        ledger = plan.ledger
    (entry,) = plan.taken
    (found,) = assessed(_seen(*looked, second=for_s + 0.5), [POD], under)
    assert isinstance(update(entry, found, at(for_s + 0.5)), PlanEntry) is goes_on


def test_a_tally_needs_no_more_of_the_last_look_than_use_above_the_threshold() -> None:
    """Points 15 and 22: what has dipped all along is due whether or not the last look restarts its stretch."""
    under, ledger, plan, second = policy(rule(step(for_s=3.0)), allowance=CONTEXTS), Ledger(), None, 0
    while plan is None or not plan.taken:
        used = (1.0,) if second % 4 == 3 else (4.0, 1.2)
        plan = planned(_seen(*used, second=second), [POD], under, ledger)
        ledger, second = plan.ledger, second + 1
        assert second < 100
    (entry,) = plan.taken
    assert entry.tally is not None
    (found,) = assessed(_seen(4.8, second=second), [POD], under)
    assert isinstance(update(entry, found, at(second)), PlanEntry)
    (below,) = assessed(_seen(4.4, second=second), [POD], under)
    assert isinstance(update(entry, below, at(second)), Outcome)


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({}, ""),
        ({"used": None}, ""),  # what is known is above the threshold by itself
        ({"used_at_least": 4 * Gi + 1, "used": 4 * Gi + 1}, ""),
        ({"used_at_least": 4 * Gi, "used": 4 * Gi}, "its use was at or below the threshold again"),
        ({"used_at_least": 4 * Gi, "used": None}, "part of its use was unknown"),
        ({"allowed": None}, "its use or its limit was unknown"),
        ({"rule": rule(step())}, "the policy, or the rule that applies to the pod, had changed"),
        ({"protected": "it is a static pod"}, "the pod had become protected: it is a static pod"),
        ({"observes": True}, "rule all had switched to only observing"),
        ({"shares": ()}, "no container that it would have ended was over its own declaration any more"),
        ({"short": frozenset()}, "its GPU was no longer short of memory"),
        ({"short": frozenset(), "observes": True}, "rule all had switched to only observing"),
    ],
)
@pytest.mark.parametrize("under_pressure", [False, True])
def test_what_speaks_against_the_first_signal(
    changed: dict[str, object], reported: str, *, under_pressure: bool
) -> None:
    """Point 22: use above the threshold, the same rule and victim, no protection, and under pressure a short card."""
    full = replace(_seen(5, second=0), gpus=(gpu(used=79 * Gi),))
    (entry,) = planned(full, [POD], policy(rule(step(under_pressure=under_pressure)))).taken
    again = update(entry, replace(entry.assessment, **changed), at(0.5))  # type: ignore[arg-type]
    why = "" if isinstance(again, PlanEntry) else again.reason if isinstance(again, Outcome) else again
    expected = reported if under_pressure or reported != "its GPU was no longer short of memory" else ""
    assert why.startswith(expected)
    assert bool(why) is bool(expected)


@pytest.mark.parametrize(
    ("scope", "main", "other", "goes_on"),
    [
        ("container", 5.0, 5.1, True),
        ("process", 5.0, 5.1, True),
        ("container", 3.9, 6.0, False),  # within its own 4Gi
        ("process", 3.9, 6.0, False),
        ("pod", 3.9, 6.0, True),
    ],
)
@pytest.mark.parametrize("under_pressure", [False, True])
def test_the_planned_victim_stays_while_it_is_over(
    scope: Scope, main: float, other: float, *, goes_on: bool, under_pressure: bool
) -> None:
    """Points 21 and 22: containers that take turns in being furthest over their declarations shield none of them."""
    two = pod("a", container("main", "4Gi"), container("other", "4Gi"))
    under = policy(rule(step(scope=scope, under_pressure=under_pressure)))

    def at_second(second: float, **used: float) -> Snapshot:
        uses = [use(pid, int(gib * Gi)) for pid, gib in enumerate(used.values(), 5)]
        where = [process(pid, f"a/{name}") for pid, name in enumerate(used, 5)]
        return replace(snapshot(uses, where, second=second), gpus=(gpu(used=79 * Gi),))

    (entry,) = planned(at_second(0, main=5.1, other=5.0), [two], under).taken
    (found,) = assessed(at_second(0.5, main=main, other=other), [two], under)
    again = update(entry, found, at(0.5))
    assert (entry.victim, isinstance(again, PlanEntry)) == ("main", goes_on)
    if isinstance(again, PlanEntry):
        assert {key.pid for key in again.targets} == ({5, 6} if scope == "pod" else {5})


@pytest.mark.parametrize(
    ("do", "is_reloaded", "name"), [("kill", False, "other"), ("evict", False, "one"), ("kill", True, "one")]
)
def test_a_step_gives_way_only_to_one_of_the_same_kind_and_policy(do: str, name: str, *, is_reloaded: bool) -> None:
    """Point 22: what is on disk as a kill does not become an eviction, nor anything by another policy."""
    one = rule(step(), name="one", match=Match(labels={"tier": "a"}))
    other = rule(step(do=do), name="other")
    under = policy(one, other)
    plan = planned(_seen(5, second=0), [replace(POD, labels={"tier": "a"})], under)
    (entry,) = plan.taken
    (found,) = assessed(_seen(5, second=0.5), [POD], under)
    after = policy(replace(one), replace(other)) if is_reloaded else under
    assert retarget(entry, found, after, plan.ledger, at(0.5)).rule.name == name


def test_under_the_same_rule_the_planned_step_is_the_one_that_is_done() -> None:
    """Point 22: what is on disk is done or withdrawn; what has come due by the last look is for the next cycle."""
    under = policy(rule(step(above="100%"), step(above="150%", grace_s=0.0)))
    plan = planned(_seen(5, second=0), [POD], under)
    (entry,) = plan.taken
    (found,) = assessed(_seen(7, second=0.5), [POD], under)
    assert retarget(entry, found, under, plan.ledger, at(0.5)) is entry


KEY: Final = ProcessKey(pid=5, start_ticks=50)


@pytest.mark.parametrize(
    ("now", "may_be", "is_listed"),
    [
        (snapshot([use(5, Gi)]), False, True),
        (snapshot([use(5, Gi)], [process(5, key=None)]), False, True),
        (snapshot([use(5, Gi)], processes=[process(5, key=replace(KEY, start_ticks=51))]), False, False),
        (snapshot([use(5, Gi)], [process(5, key=replace(KEY, start_ticks=51))]), True, True),
        (replace(snapshot([use(5, Gi)]), processes={}), False, True),
        (snapshot([use(6, Gi)]), False, False),
        (snapshot([use(6, Gi)]), True, True),
        (snapshot(blind=True), False, True),
    ],
    ids=["listed", "start unknown", "recycled", "recycled, and hidden", "unread", "gone", "hidden", "blind"],
)
def test_memory_counts_as_listed_until_it_is_seen_free(now: Snapshot, *, may_be: bool, is_listed: bool) -> None:
    """Point 24: memory that may be a victim's keeps the account's next action waiting; a recycled PID's does not."""

    class Scan(Seen):
        """A scanner by which a process may be listed although it is not seen."""

        def may_be_listed(self, key: object, snapshot: Snapshot) -> bool:
            return may_be

    assert still_listed(Scan(), now)(KEY) is is_listed


@pytest.mark.parametrize(("main", "other", "goes_on"), [(3.0, 2.9, True), (2.9, 3.0, True), (3.0, 4.1, False)])
def test_of_containers_on_one_claim_none_is_ended_for_another(main: float, other: float, *, goes_on: bool) -> None:
    """Points 22 and 42: together they are above the claim; once one is above it by itself, it is the only victim."""
    (one, two), known = (replace(container(name), claims=("gpu",)) for name in ("main", "other")), claimant("a")
    tenant = replace(known, containers=(one, two))
    under = policy(rule(step()), schemes=("dra",))

    def at_second(second: float, *used: float) -> Snapshot:
        uses = [use(pid, int(gib * Gi)) for pid, gib in enumerate(used, 5)]
        return snapshot(uses, [process(5, "a/main"), process(6, "a/other")], second=second)

    (entry,) = planned(at_second(0, 3.0, 2.9), [tenant], under).taken
    (found,) = assessed(at_second(0.5, main, other), [tenant], under)
    again = update(entry, found, at(0.5))
    assert (entry.victim, isinstance(again, PlanEntry)) == ("main", goes_on)
