"""The breaker: where most owners are due at once, the policy or a reading is more likely wrong than all of them."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from watchdog.core.brakes import NODE, Begun, BrakeMemory, Whom, owner_of
from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.policy import Breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The owners that could be acted on at one moment.

    `known` have an account whose verdict is known and whose rule has force in it; of these `above` are above a mark of
    force, and `due` are due for the first kill or evict of an incident. Steps under pressure do not count.
    """

    known: frozenset[Whom] = frozenset()
    above: frozenset[Whom] = frozenset()
    due: frozenset[Whom] = frozenset()

    @classmethod
    def of(
        cls, assessments: Iterable[Assessment], above: AbstractSet[AccountKey], due: AbstractSet[AccountKey]
    ) -> "Crowd":
        """Put the owners of accounts together; `above` and `due` name the accounts."""
        counted = [each for each in assessments if _counts(each)]
        return cls(
            known=frozenset(owner_of(each.pod) for each in counted),
            above=frozenset(owner_of(each.pod) for each in counted if each.account in above),
            due=frozenset(owner_of(each.pod) for each in counted if each.account in due),
        )


def _counts(assessment: Assessment) -> bool:
    rule = assessment.rule
    has_force = rule is not None and any(step.do.is_force and not step.under_pressure for step in rule.steps)
    return has_force and assessment.is_conclusive and assessment.protected is None


def turn(memory: BrakeMemory, breaker: Breaker | None, crowd: Crowd, now_s: float, *, blind: bool) -> BrakeMemory:
    """The memory after the breaker has looked at the crowd: opened, still open, or closed.

    It opens by those who are due. It closes, a `hold` after it opened at the earliest, once the share of those above a
    mark has fallen, due or not: ladders that begin anew must not close it. However few owners are left: that most of
    them are gone is what it let through. `blind`: the readings say nothing now.
    """
    if breaker is None:
        return replace(memory, opened=None) if memory.opened is not None else memory
    opened = memory.opened
    if opened is None:
        is_crowded = len(crowd.known) >= breaker.of_at_least and _is_crowded(crowd.due, crowd.known, breaker)
        return replace(memory, opened=Begun(now_s)) if is_crowded and not blind else memory
    if blind or now_s < opened.at_s + breaker.hold_s:
        return memory
    lately = _let_through(memory, now_s - breaker.hold_s)
    still = _is_crowded(crowd.above | crowd.due | lately, crowd.known | lately, breaker)
    return memory if still else replace(memory, opened=None)


def breaker_wait_s(memory: BrakeMemory, breaker: Breaker | None, now_s: float) -> float:
    """Seconds until the breaker lets the next deed through; 0: now."""
    if breaker is None or memory.opened is None:
        return 0.0
    half_open_s = memory.opened.at_s + breaker.hold_s
    last_s = memory.last_s(NODE)
    if last_s is None or last_s < memory.opened.at_s:
        return max(half_open_s - now_s, 0.0)
    return max(half_open_s - now_s, last_s + breaker.hold_s - now_s, 0.0)


def let_through_by(memory: BrakeMemory, at_s: float) -> int:
    """How many deeds had begun by a moment since the breaker opened."""
    opened_s = memory.opened.at_s if memory.opened is not None else at_s
    return sum(opened_s < deed.at_s < at_s for deed in memory.begun.get(NODE, ()))


def _is_crowded(offenders: frozenset[Whom], owners: frozenset[Whom], breaker: Breaker) -> bool:
    share = breaker.offenders
    return bool(offenders) and len(offenders) * share.denominator >= len(owners) * share.numerator


def _let_through(memory: BrakeMemory, since_s: float) -> frozenset[Whom]:
    """The owners of whom a deed was begun lately: that they are gone by our own doing is no sign of recovery."""
    opened_s = memory.opened.at_s if memory.opened is not None else since_s
    is_owner = (whom for whom in memory.begun if len(whom) == len(("namespace", "kind", "name")))
    return frozenset(whom for whom in is_owner if (memory.last_s(whom) or 0.0) > max(since_s, opened_s))
