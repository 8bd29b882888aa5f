"""How outcomes change the ledger: kills, accepted evictions and failed ones."""

from dataclasses import replace

import pytest

from tests.core.story import Story
from tests.worlds import Gi, at, policy, rule, step
from watchdog.core.ledger import PendingEviction, UnderWay
from watchdog.core.plan import Outcome, PlanEntry, Result, accept, settle
from watchdog.core.policy import Do

EVICT, KILL = step("100%", 0, "evict"), step("120%", 60, "kill")


def story() -> tuple[Story, PlanEntry]:
    """An account above both thresholds, and the entry of its eviction."""
    made = Story(policy(rule(EVICT, KILL)))
    (entry,) = made.see(0, 6 * Gi).taken
    made.see(1, 6 * Gi)
    return made, entry


def under_way(of: object) -> UnderWay:
    """An action by a step."""
    return UnderWay(step=of.signature, victim="main", until_s=at(100).boottime_s)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("result", "action", "resets", "backs_off"),
    [
        (Result.DONE, 1, True, False),
        (Result.FAILED, 1, False, True),
        (Result.GONE, 1, False, True),
        (Result.INTERRUPTED, 1, False, True),
        (Result.BLOCKED, 1, False, False),
        (Result.FAILED, None, False, True),
        (Result.GONE, None, False, False),
    ],
)
def test_what_an_eviction_leaves_behind(result: Result, action: int | None, resets: bool, backs_off: bool) -> None:
    """An accepted eviction resets kill and evict steps; a failed one only delays the next eviction."""
    made, entry = story()
    after = settle(made.ledger, Outcome(entry=entry, result=result, at=at(1), number=action))
    (known,) = after.accounts.values()
    assert (("all", KILL.signature) not in known.stretches) is resets
    assert (Do.EVICT in known.failures) is backs_off


def test_the_end_of_an_eviction_does_not_end_a_kill() -> None:
    """A kill that has begun meanwhile stays in progress until its own end."""
    made, entry = story()
    made.ledger = made.ledger.note_under_way(entry.account, under_way(KILL))
    after = settle(made.ledger, Outcome(entry=entry, result=Result.DONE, at=at(2), number=1, release_s=1.0))
    assert after == made.ledger
    assert accept(made.ledger, entry, under_way(EVICT)) == made.ledger


FIRST = PendingEviction(step=EVICT.signature, tries=1, until_s=at(600).boottime_s)


def test_an_accepted_eviction_is_in_progress_and_not_counted_again() -> None:
    """It was counted when it was begun."""
    made, entry = story()
    begun = made.ledger.note_begun(entry.assessment, FIRST, at(0))
    after = accept(begun.note_pending_evictions({}), entry, under_way(EVICT))
    (known,) = after.accounts.values()
    assert (known.under_way, known.pending_eviction, known.acted) == (under_way(EVICT), None, True)
    assert len(after.brakes.begun[()]) == 1


def test_the_ledger_has_just_what_is_tried() -> None:
    """A pending eviction is updated, kept when all ladders start over, and removed once it is over."""
    made, entry = story()
    one = made.ledger.note_pending_evictions({entry.account: FIRST})
    assert one.note_pending_evictions({entry.account: FIRST}) is one
    later = replace(FIRST, next_s=at(9).boottime_s)
    for ledger, pending in (
        (one.reset(), FIRST),
        (one.note_pending_evictions({entry.account: later}), later),
        (one.note_pending_evictions({}), None),
    ):
        (known,) = ledger.accounts.values()
        assert known.pending_eviction == pending
    assert not one.reset().accounts[entry.account].stretches
