"""The brakes: what they remember of actions, what that holds back, and the breaker.

Moments are seconds of CLOCK_BOOTTIME in this boot; what was begun in an earlier boot lies before its beginning.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Backoff, Brakes, Breaker, Window

# Whose actions: () is the node, (namespace,) a namespace, (namespace, kind, name) an owner.
Whom = tuple[str, ...]
NODE: Whom = ()

MOST_REMEMBERED = 10_000  # of one whom; no window counts further (config/amounts.py)
FORGOTTEN_AFTER_S = 15 * 86400.0  # twice the longest back-off, and more than the longest window


class Brake(StrEnum):
    """What withholds a step: the value of `withheld_by` and the label of `withheld_total`."""

    PROTECTED = "protected"
    PENDING = "pending"
    STALE = "stale"
    OWNER = "owner"
    OWNER_BACKOFF = "owner_backoff"
    NAMESPACE = "namespace"
    NODE = "node"
    BREAKER = "breaker"
    JOURNAL = "journal"
    MAINTENANCE = "maintenance"
    UNKNOWN_CONTAINER = "unknown_container"
    MPS = "mps"


def owner_of(pod: Pod) -> Whom:
    """The owner that an action on a pod counts for."""
    return (pod.namespace, pod.workload.kind, pod.workload.name)


@dataclass(frozen=True, slots=True)
class Begun:
    """When an action was begun; `observed`: only planned, in observe mode."""

    at_s: float
    observed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeMemory:
    """What the brakes remember: the actions begun by whom they concern, oldest first, and when the breaker opened.

    `lost_s`: at that moment the memory of everything begun earlier was lost, so each window and back-off counts as full
    until it has elapsed once since then.
    """

    begun: Mapping[Whom, tuple[Begun, ...]] = field(default_factory=dict)
    opened: Begun | None = None
    lost_s: float | None = None

    @classmethod
    def of(cls, actions: Iterable[tuple[Whom, Begun]]) -> "BrakeMemory":
        """A memory of actions on pods of these owners, in any order."""
        begun: defaultdict[Whom, list[Begun]] = defaultdict(list)
        # Another boot's wall clock may have run ahead: the order is that of the moments.
        for owner, action in sorted(actions, key=lambda each: (each[1].at_s, each[0])):
            for whom in (NODE, owner[:1], owner):
                begun[whom].append(action)
        return cls(begun={whom: tuple(found[-MOST_REMEMBERED:]) for whom, found in begun.items()})

    def note(self, owner: Whom, begun: Begun) -> "BrakeMemory":
        """The memory after one more action on a pod of this owner."""
        kept = {
            whom: actions for whom, actions in self.begun.items() if actions[-1].at_s > begun.at_s - FORGOTTEN_AFTER_S
        }
        for whom in (NODE, owner[:1], owner):
            # What an earlier boot left can't be later than now, so this one comes last.
            kept[whom] = (*kept.get(whom, ()), begun)[-MOST_REMEMBERED:]
        return replace(self, begun=kept)

    def without_observed(self) -> "BrakeMemory":
        """The memory when enforcement begins: what was only planned does not count."""
        begun = {whom: tuple(each for each in actions if not each.observed) for whom, actions in self.begun.items()}
        opened = self.opened if self.opened is not None and not self.opened.observed else None
        return replace(self, begun={whom: actions for whom, actions in begun.items() if actions}, opened=opened)

    def inheriting(self, journal: "BrakeMemory") -> "BrakeMemory":
        """The memory after the journal has been read: all that was really begun stands there, what was planned here.

        A breaker that was really opened outweighs one that was only observed, while another daemon held the lock say.
        """
        planned = {
            whom: tuple(each for each in actions if each.observed)
            for whom, actions in self.begun.items()
            if len(whom) == 3
        }
        both = [
            (whom, each) for memory in (journal.begun, planned) for whom, actions in memory.items() for each in actions
        ]
        owned = [(whom, each) for whom, each in both if len(whom) == 3]
        opened = self.opened if self.opened is not None and self.opened.observed else None
        return replace(BrakeMemory.of(owned), opened=journal.opened or opened, lost_s=journal.lost_s)

    def last_s(self, whom: Whom) -> float | None:
        """When the last action was begun; None: none is remembered."""
        actions = self.begun.get(whom)
        return actions[-1].at_s if actions else None

    def waits(self, owner: Whom, brakes: Brakes, now_s: float) -> tuple[tuple[Brake, float], ...]:
        """The brakes that hold back an action on a pod of this owner, in their order, each with its seconds."""
        waits = (
            (Brake.OWNER, self._window(owner, brakes.owner, now_s)),
            (Brake.OWNER_BACKOFF, self._backoff(owner, brakes.owner_backoff, now_s)),
            (Brake.NAMESPACE, self._window(owner[:1], brakes.namespace, now_s)),
            (Brake.NODE, self._window(NODE, brakes.node, now_s)),
        )
        return tuple((brake, wait_s) for brake, wait_s in waits if wait_s > 0)

    def presumes(self, brake: Brake, owner: Whom, brakes: Brakes, now_s: float) -> bool:
        """Whether a brake holds only because it counts as full: what was begun earlier is not known any more."""
        if self.lost_s is None:
            return False
        return brake in dict(self.waits(owner, brakes, now_s)) and brake not in dict(
            replace(self, lost_s=None).waits(owner, brakes, now_s)
        )

    def in_a_row(self, owner: Whom, backoff: Backoff) -> int:
        """How many actions on pods of an owner followed one another; a quiet time of twice `max_s` ends the row."""
        actions = self.begun.get(owner, ())
        number = min(len(actions), 1)
        for earlier, later in zip(reversed(actions[:-1]), reversed(actions), strict=False):
            if later.at_s - earlier.at_s > 2 * backoff.max_s:
                break
            number += 1
        return number

    def _window(self, whom: Whom, window: Window | None, now_s: float) -> float:
        actions = self.begun.get(whom, ())
        if window is None:
            return 0.0
        counted_s = actions[-window.count].at_s + window.per_s - now_s if len(actions) >= window.count else 0.0
        return max(counted_s, self._presumed_s(window.per_s, now_s))

    def _backoff(self, owner: Whom, backoff: Backoff | None, now_s: float) -> float:
        if backoff is None:
            return 0.0
        presumed_s, last_s = self._presumed_s(backoff.max_s, now_s), self.last_s(owner)
        if last_s is None:
            return presumed_s
        wait_s = backoff.first_s
        for _ in range(self.in_a_row(owner, backoff) - 1):
            if wait_s >= backoff.max_s:
                break  # a long row would not fit a float
            wait_s *= backoff.factor
        return max(last_s + min(wait_s, backoff.max_s) - now_s, presumed_s)

    def _presumed_s(self, whole_s: float, now_s: float) -> float:
        """Seconds until a brake that counts as full has elapsed once."""
        return 0.0 if self.lost_s is None else self.lost_s + whole_s - now_s


def in_this_boot_s(then: Now, now: Now) -> float:
    """A moment as seconds of CLOCK_BOOTTIME of the present boot, never later than now.

    Across boots the wall clock counts; where it says that the moment is yet to come, it is taken for now.
    """
    if then.boot_id and then.boot_id == now.boot_id:
        return min(then.boottime_s, now.boottime_s)
    return now.boottime_s - max(now.wall_s - then.wall_s, 0.0)


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
    mark has fallen, due or not: ladders that start over must not close it. However few owners are left: that most of
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
    """Seconds until the breaker lets the next action through; 0: now."""
    if breaker is None or memory.opened is None:
        return 0.0
    half_open_s = memory.opened.at_s + breaker.hold_s
    last_s = memory.last_s(NODE)
    if last_s is None or last_s < memory.opened.at_s:
        return max(half_open_s - now_s, 0.0)
    return max(half_open_s - now_s, last_s + breaker.hold_s - now_s, 0.0)


def let_through_by(memory: BrakeMemory, at_s: float) -> int:
    """How many actions had begun by a moment since the breaker opened."""
    opened_s = memory.opened.at_s if memory.opened is not None else at_s
    return sum(opened_s < action.at_s < at_s for action in memory.begun.get(NODE, ()))


def _is_crowded(offenders: frozenset[Whom], owners: frozenset[Whom], breaker: Breaker) -> bool:
    share = breaker.offenders
    return bool(offenders) and len(offenders) * share.denominator >= len(owners) * share.numerator


def _let_through(memory: BrakeMemory, since_s: float) -> frozenset[Whom]:
    """The owners of whom an action was begun lately: that they are gone by our own doing is no sign of recovery."""
    opened_s = memory.opened.at_s if memory.opened is not None else since_s
    is_owner = (whom for whom in memory.begun if len(whom) == len(("namespace", "kind", "name")))
    return frozenset(whom for whom in is_owner if (memory.last_s(whom) or 0.0) > max(since_s, opened_s))
