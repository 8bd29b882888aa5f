"""The brakes: the actions that they remember, how long those withhold further ones, and the breaker.

Times are seconds of CLOCK_BOOTTIME in this boot; actions of earlier boots have negative times.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Backoff, Brakes, Breaker, Window

# Whose actions: () is the node, (namespace,) a namespace, (namespace, kind, name) an owner.
BrakeScope = tuple[str, ...]
NODE: BrakeScope = ()


def _is_owner(scope: BrakeScope) -> bool:
    return len(scope) == len(("namespace", "kind", "name"))


MOST_REMEMBERED = 10_000  # per scope; no window counts more (config/fields.py)
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
    CLAIM = "claim"
    UNKNOWN_CONTAINER = "unknown_container"
    HAZARD = "mps"  # a process that other pods need (`core/hazards`); so far these are of MPS alone

    @property
    def is_permanent(self) -> bool:
        """Whether the brake depends on what the pod or its processes are, so that waiting does not lift it."""
        return self in (Brake.PROTECTED, Brake.UNKNOWN_CONTAINER, Brake.HAZARD)

    @property
    def is_of_the_step(self) -> bool:
        """Whether the brake depends on what a step would end; the others withhold every step of the account."""
        return self.is_permanent or self in (Brake.PENDING, Brake.CLAIM)


COUNT_ACTIONS: Final = frozenset({Brake.OWNER, Brake.OWNER_BACKOFF, Brake.NAMESPACE, Brake.NODE, Brake.BREAKER})


def owner_of(pod: Pod) -> BrakeScope:
    """The owner that an action on a pod counts for."""
    return (pod.namespace, pod.workload.kind, pod.workload.name)


@dataclass(frozen=True, slots=True)
class Begun:
    """The start of an action."""

    # CLOCK_BOOTTIME.
    at_s: float
    # Whether it was only planned, in observe mode.
    observed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeMemory:
    """What the brakes remember."""

    # The actions begun, by scope, oldest first.
    begun: Mapping[BrakeScope, tuple[Begun, ...]] = field(default_factory=dict)
    # When the breaker opened; None: it is closed.
    opened: Begun | None = None
    # The CLOCK_BOOTTIME at which the memory of earlier actions was lost: each window and back-off counts as full until
    # it has elapsed since then. None: it was not.
    lost_s: float | None = None
    # The scopes whose next slot is a turn of the second kind (`core/turns`).
    second_next: frozenset[BrakeScope] = frozenset()

    @classmethod
    def of(cls, actions: Iterable[tuple[BrakeScope, Begun]]) -> "BrakeMemory":
        """A memory of actions on pods of these owners, in any order."""
        begun: defaultdict[BrakeScope, list[Begun]] = defaultdict(list)
        # The wall clock of another boot may have run ahead, so the order of numbers is not that of time.
        for owner, action in sorted(actions, key=lambda each: (each[1].at_s, each[0])):
            for scope in (NODE, owner[:1], owner):
                begun[scope].append(action)
        return cls(
            begun={scope: tuple(actions_of[-MOST_REMEMBERED:]) for scope, actions_of in begun.items()},
            second_next=_odd(begun),
        )

    def add_begun(self, owner: BrakeScope, begun: Begun) -> "BrakeMemory":
        """The memory with one more action on a pod of this owner."""
        kept = {
            scope: actions for scope, actions in self.begun.items() if actions[-1].at_s > begun.at_s - FORGOTTEN_AFTER_S
        }
        scopes = frozenset((NODE, owner[:1], owner))
        for scope in scopes:
            # Actions of an earlier boot can't be later than now, so this one comes last.
            kept[scope] = (*kept.get(scope, ()), begun)[-MOST_REMEMBERED:]
        return replace(self, begun=kept, second_next=(self.second_next ^ scopes) & kept.keys())

    def note_unused(self, owner: BrakeScope) -> "BrakeMemory":
        """The memory after an action on a pod of this owner did not begin: its turn of the first kind is over.

        Otherwise new pods whose use falls, or whose processes end, right before each signal could keep that turn.
        """
        return replace(self, second_next=self.second_next | {NODE, owner[:1], owner})

    def without_last(self, owner: BrakeScope) -> "BrakeMemory":
        """The memory without the last action on a pod of this owner, which did not begin after all."""
        begun, last = dict(self.begun), self.begun.get(owner, ())[-1:]
        for scope in (NODE, owner[:1], owner):
            actions = begun.get(scope, ())
            places = [place for place, each in enumerate(actions) if (each,) == last]
            if places:
                begun[scope] = actions[: places[-1]] + actions[places[-1] + 1 :]
        return replace(self, begun={scope: actions for scope, actions in begun.items() if actions}).note_unused(owner)

    def without_observed(self) -> "BrakeMemory":
        """The memory when enforcement starts: actions that were only planned do not count."""
        begun = {scope: tuple(each for each in actions if not each.observed) for scope, actions in self.begun.items()}
        opened = self.opened if self.opened is not None and not self.opened.observed else None
        begun = {scope: actions for scope, actions in begun.items() if actions}
        return replace(self, begun=begun, opened=opened, second_next=_odd(begun))

    def inheriting(self, journal: "BrakeMemory") -> "BrakeMemory":
        """The memory after reading the journal, which has every action begun; planned ones are kept from this memory.

        A breaker that really opened takes precedence over one that was only observed, for instance while another
        daemon held the lock.
        """
        planned = (by_owner for by_owner in self._by_owner() if by_owner[1].observed)
        opened = self.opened if self.opened is not None and self.opened.observed else None
        memory = BrakeMemory.of((*journal._by_owner(), *planned))
        return replace(memory, opened=journal.opened or opened, lost_s=journal.lost_s)

    def _by_owner(self) -> Iterator[tuple[BrakeScope, Begun]]:
        """Each action with its owner; those of namespaces and the node are the same actions."""
        return ((scope, each) for scope, actions in self.begun.items() if _is_owner(scope) for each in actions)

    def last_s(self, scope: BrakeScope) -> float | None:
        """The CLOCK_BOOTTIME at which the last action of a scope began; None if none is remembered."""
        actions = self.begun.get(scope)
        return actions[-1].at_s if actions else None

    def waits(self, owner: BrakeScope, brakes: Brakes, now_s: float) -> tuple[tuple[Brake, float], ...]:
        """The brakes that withhold an action on a pod of this owner, in order, each with its remaining seconds."""
        waits = (
            (Brake.OWNER, self._window(owner, brakes.owner, now_s)),
            (Brake.OWNER_BACKOFF, self._backoff(owner, brakes.owner_backoff, now_s)),
            (Brake.NAMESPACE, self._window(owner[:1], brakes.namespace, now_s)),
            (Brake.NODE, self._window(NODE, brakes.node, now_s)),
        )
        return tuple((brake, wait_s) for brake, wait_s in waits if wait_s > 0)

    def free(self, scope: BrakeScope, brakes: Brakes, now_s: float) -> float:
        """How many actions the brakes of a scope let through now; infinity if none limits it."""
        if scope == NODE:
            window, is_one, waits_s = brakes.node, self.opened is not None, breaker_wait_s(self, brakes.breaker, now_s)
        elif _is_owner(scope):
            window, is_one = brakes.owner, brakes.owner_backoff is not None
            waits_s = self._backoff(scope, brakes.owner_backoff, now_s)
        else:
            window, is_one, waits_s = brakes.namespace, False, 0.0
        if waits_s > 0 or self._window(scope, window, now_s) > 0:
            return 0
        return min(1 if is_one else math.inf, self._left(scope, window, now_s))

    def _left(self, scope: BrakeScope, window: Window | None, now_s: float) -> float:
        if window is None:
            return math.inf
        actions = self.begun.get(scope, ())
        return window.count - (len(actions) - bisect_right(actions, now_s - window.per_s, key=lambda each: each.at_s))

    def counts_as_full(self, brake: Brake, owner: BrakeScope, brakes: Brakes, now_s: float) -> bool:
        """Whether a brake withholds only because it counts as full, since earlier actions are unknown."""
        if self.lost_s is None:
            return False
        return brake in dict(self.waits(owner, brakes, now_s)) and brake not in dict(
            replace(self, lost_s=None).waits(owner, brakes, now_s)
        )

    def consecutive_actions(self, owner: BrakeScope, backoff: Backoff) -> int:
        """The number of consecutive actions on pods of an owner; twice `max_s` without one ends the series."""
        actions = self.begun.get(owner, ())
        number = min(len(actions), 1)
        for earlier, later in zip(reversed(actions[:-1]), reversed(actions), strict=False):
            if later.at_s - earlier.at_s > 2 * backoff.max_s:
                break
            number += 1
        return number

    def _window(self, scope: BrakeScope, window: Window | None, now_s: float) -> float:
        actions = self.begun.get(scope, ())
        if window is None:
            return 0.0
        counted_s = actions[-window.count].at_s + window.per_s - now_s if len(actions) >= window.count else 0.0
        return max(counted_s, self._lost_wait_s(window.per_s, now_s))

    def _backoff(self, owner: BrakeScope, backoff: Backoff | None, now_s: float) -> float:
        if backoff is None:
            return 0.0
        lost_wait_s, last_s = self._lost_wait_s(backoff.max_s, now_s), self.last_s(owner)
        if last_s is None:
            return lost_wait_s
        wait_s = backoff.first_s
        for _ in range(self.consecutive_actions(owner, backoff) - 1):
            if wait_s >= backoff.max_s:
                break  # the product of a long series would overflow a float
            wait_s *= backoff.factor
        return max(last_s + min(wait_s, backoff.max_s) - now_s, lost_wait_s)

    def _lost_wait_s(self, whole_s: float, now_s: float) -> float:
        """Seconds until a brake that counts as full, since earlier actions were lost, releases."""
        return 0.0 if self.lost_s is None else self.lost_s + whole_s - now_s


def _odd(begun: Mapping[BrakeScope, Sequence[Begun]]) -> frozenset[BrakeScope]:
    """The scopes with an odd number of actions: turns alternate, and the first one is of the first kind."""
    return frozenset(scope for scope, actions in begun.items() if len(actions) % 2)


def in_this_boot_s(then: Now, now: Now) -> float:
    """A moment as seconds of CLOCK_BOOTTIME of the current boot, never later than now.

    Across boots the wall clock counts; a moment in the future counts as now.
    """
    if then.boot_id and then.boot_id == now.boot_id:
        return min(then.boottime_s, now.boottime_s)
    return now.boottime_s - max(now.wall_s - then.wall_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOwners:
    """The owners that the breaker counts at one moment. Steps under pressure do not count."""

    # Those with an account whose verdict is known and whose rule enforces.
    known: frozenset[BrakeScope] = frozenset()
    # Of these, those above the threshold of an enforcing step.
    above: frozenset[BrakeScope] = frozenset()
    # Of these, those due for the first kill or evict of an incident.
    due: frozenset[BrakeScope] = frozenset()

    @classmethod
    def of(
        cls, assessments: Iterable[Assessment], above: AbstractSet[AccountKey], due: AbstractSet[AccountKey]
    ) -> "BreakerOwners":
        """Collect the owners of accounts; `above` and `due` name the accounts."""
        owners = {assessment.account: owner_of(assessment.pod) for assessment in assessments if _counts(assessment)}
        return cls(
            known=frozenset(owners.values()),
            above=frozenset(owner for account, owner in owners.items() if account in above),
            due=frozenset(owner for account, owner in owners.items() if account in due),
        )


def _counts(assessment: Assessment) -> bool:
    rule = assessment.rule
    enforces = rule is not None and any(step.do.enforces and not step.under_pressure for step in rule.steps)
    return enforces and assessment.is_conclusive and assessment.protected is None


def update_breaker(
    memory: BrakeMemory, breaker: Breaker | None, owners: BreakerOwners, now_s: float, *, blind: bool
) -> BrakeMemory:
    """The memory with the breaker opened, still open or closed, according to the owners that it counts.

    It opens when enough owners are due. It closes once the share of owners above a threshold has fallen, but no sooner
    than `hold` after it opened. That share includes owners that are not due, since resetting timers must not close it.
    The minimum number of owners does not matter then: actions that it let through may be why few are left. `blind`:
    readings are inconclusive.
    """
    if breaker is None:
        return replace(memory, opened=None) if memory.opened is not None else memory
    opened = memory.opened
    if opened is None:
        has_reached = len(owners.known) >= breaker.of_at_least and _reaches_share(owners.due, owners.known, breaker)
        return replace(memory, opened=Begun(now_s)) if has_reached and not blind else memory
    if blind or now_s < opened.at_s + breaker.hold_s:
        return memory
    let_through = _let_through(memory, now_s - breaker.hold_s)
    still = _reaches_share(owners.above | owners.due | let_through, owners.known | let_through, breaker)
    return memory if still else replace(memory, opened=None)


def breaker_wait_s(memory: BrakeMemory, breaker: Breaker | None, now_s: float) -> float:
    """Seconds until the breaker lets the next action through; 0 if it does so now."""
    if breaker is None or memory.opened is None:
        return 0.0
    half_open_s = memory.opened.at_s + breaker.hold_s
    last_s = memory.last_s(NODE)
    if last_s is None or last_s < memory.opened.at_s:
        return max(half_open_s - now_s, 0.0)
    return max(half_open_s - now_s, last_s + breaker.hold_s - now_s, 0.0)


def _reaches_share(offenders: frozenset[BrakeScope], owners: frozenset[BrakeScope], breaker: Breaker) -> bool:
    share = breaker.offenders
    return bool(offenders) and len(offenders) * share.denominator >= len(owners) * share.numerator


def _let_through(memory: BrakeMemory, since_s: float) -> frozenset[BrakeScope]:
    """The owners acted on since then: they may be gone because of that, which is no sign of recovery."""
    opened_s = memory.opened.at_s if memory.opened is not None else since_s
    is_owner = (scope for scope in memory.begun if _is_owner(scope))
    return frozenset(scope for scope in is_owner if (memory.last_s(scope) or 0.0) > max(since_s, opened_s))
