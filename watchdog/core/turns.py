"""Turns: which of the due accounts goes next where a brake lets only some of them through.

The slots of an owner, a namespace and the node alternate: one goes to the account that is over by the most bytes, the
next to the one with the most byte-seconds withheld. A pod that is replaced again and again may be over by the most
bytes each time, but a new pod has no byte-seconds: it takes every other slot at most.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from watchdog.core.assess import rank
from watchdog.core.assessment import Inputs
from watchdog.core.brakes import NODE, BrakeMemory, BrakeScope, owner_of
from watchdog.core.gate import Gate, brake_by_state, urgency
from watchdog.core.ledger import AccountState
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Brakes

Candidate = tuple[PlanEntry, ...]  # the steps of an account whose thresholds it is above; never empty


def pass_in_turn(candidates: Sequence[Candidate], gate: Gate, inputs: Inputs, now: Now) -> Iterator[PlanEntry]:
    """The entries of all accounts as they pass the gate: in the order of bytes, and by turns where slots are scarce.

    An account that would take no slot passes before those that come after it by bytes.
    """
    rest = deque(_Place.of(each, gate, now) for each in sorted(candidates, key=_by_bytes))
    is_open = inputs.journal_writable and not (inputs.maintenance or inputs.pods_stale)
    queues = []
    for observes in (False, True) if is_open else ():
        due = [place for place in rest if place.takes_slot and place.observes is observes]
        queue = Turns(due, gate.memory(observes=observes), inputs.policy.brakes, now.boottime_s)
        if queue.is_scarce:
            queues.append((observes, queue))
            rest = deque(place for place in rest if not (place.takes_slot and place.observes is observes))
    while waiting := [(place, observes, queue) for observes, queue in queues if (place := queue.next) is not None]:
        place, observes, queue = min(waiting, key=lambda each: each[0].by_bytes)
        while rest and rest[0].by_bytes < place.by_bytes:
            yield from gate.pass_through(rest.popleft().candidate)
        before = gate.memory(observes=observes)
        yield from gate.pass_through(place.candidate)
        after = gate.memory(observes=observes)
        queue.remove(place, after, taken=after is not before)
    left = (place for _, queue in queues for place in queue.waiting)
    for place in sorted((*rest, *left), key=lambda each: each.by_bytes):
        yield from gate.pass_through(place.candidate)


def _by_bytes(candidate: Candidate) -> tuple[Any, ...]:
    """The order of accounts: by urgency, then those due only under pressure, by rank."""
    assessment = candidate[0].assessment
    due = [entry for entry in candidate if entry.due_in_s <= 0 and entry.do.enforces]
    if not due or any(entry.gpu is None for entry in due):
        return (False, *urgency(assessment))
    return (True, *rank(assessment, due[-1].gpu or ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An account in the order."""

    candidate: Candidate
    owner: BrakeScope
    observes: bool
    # Whether it would take a slot now, as far as that is known.
    takes_slot: bool
    # Its place in the turns of the first kind, the lowest first.
    by_bytes: tuple[Any, ...]
    # Its place in the turns of the second kind, the lowest first; None: it has no such turn.
    by_byte_seconds: tuple[Any, ...] | None

    @classmethod
    def of(cls, candidate: Candidate, gate: Gate, now: Now) -> "_Place":
        assessment, by_bytes = candidate[0].assessment, _by_bytes(candidate)
        state = gate.states[assessment.account]
        actions = {entry.do for entry in _that_take_a_slot(candidate, state, now)}
        # What has failed may fail again and again, and would take each turn of this kind. What was withdrawn has not.
        failed = {do for do, failures in state.failures.items() if not failures.withdrawn}
        return cls(
            candidate=candidate,
            owner=owner_of(assessment.pod),
            observes=assessment.observes,
            takes_slot=bool(actions),
            by_bytes=by_bytes,
            by_byte_seconds=(-state.withheld_byte_s(now), *by_bytes) if actions - failed else None,
        )


def _that_take_a_slot(candidate: Candidate, state: AccountState, now: Now) -> Iterator[PlanEntry]:
    if state.under_way is not None or candidate[0].assessment.observes in state.observed:
        return
    pending = state.pending_eviction.step if state.pending_eviction is not None else None
    for entry in candidate:
        is_due = entry.due_in_s <= 0 and entry.do.enforces and entry.definition.signature != pending
        if is_due and brake_by_state(entry, now) is None:
            yield entry


class _Scope:
    """An owner, a namespace or the node: what waits in it, and how many more actions its brakes let through now.

    `next` is the account whose turn it is, `longest` the one with the most byte-seconds; None: nothing waits, or there
    is no slot.
    """

    def __init__(self, key: BrakeScope, free: float) -> None:
        self._key = key
        self.free = free
        self.within: dict[BrakeScope, _Scope] = {}
        self.waiting: list[_Place] = []  # of an owner
        self.is_scarce = False
        self.next: _Place | None = None
        self.longest: _Place | None = None

    def count(self) -> float:
        """How many of its accounts could go if no outer scope had a brake; notes whether its own brake lets all go."""
        wanted = len(self.waiting) + sum(scope.count() for scope in self.within.values())
        self.is_scarce = wanted > self.free
        return min(wanted, self.free)

    def update(self, memory: BrakeMemory) -> None:
        """Choose again, after the scopes within it."""
        self.next = self.longest = None
        if self.free <= 0:
            return
        within = self.within.values()
        longest = [scope.longest for scope in within if scope.longest is not None]
        longest += [place for place in self.waiting if place.by_byte_seconds is not None]
        if longest:
            self.longest = min(longest, key=lambda place: place.by_byte_seconds or ())
        # A turn of the second kind is for everything in the scope, whatever turn the scopes within have. Otherwise an
        # account could wait for its turn in one scope whenever it has its turn in the other.
        if self.is_scarce and self._key in memory.second_next and self.longest is not None:
            self.next = self.longest
            return
        nexts = [*self.waiting, *(scope.next for scope in within if scope.next is not None)]
        self.next = min(nexts, key=lambda place: place.by_bytes, default=None)


class Turns:
    """The accounts that would take slots of one memory of brakes, which is passed as it is at each moment."""

    def __init__(self, places: Iterable[_Place], memory: BrakeMemory, brakes: Brakes, now_s: float) -> None:
        self._node = _Scope(NODE, memory.free(NODE, brakes, now_s))
        for place in places:
            scope = self._node
            for key in (place.owner[:1], place.owner):
                if key not in scope.within:
                    scope.within[key] = _Scope(key, memory.free(key, brakes, now_s))
                scope = scope.within[key]
            scope.waiting.append(place)
        self._node.count()
        for scope in self._scopes():
            scope.update(memory)

    @property
    def next(self) -> _Place | None:
        """The account whose turn it is; None if no slot is left for any that waits."""
        return self._node.next

    @property
    def is_scarce(self) -> bool:
        """Whether any brake lets only some of them through."""
        return any(scope.is_scarce for scope in self._scopes())

    @property
    def waiting(self) -> tuple[_Place, ...]:
        """The accounts that have not been removed."""
        return tuple(place for scope in self._scopes() for place in scope.waiting)

    def remove(self, place: _Place, memory: BrakeMemory, *, taken: bool) -> None:
        """Remove an account that has passed the gate; `taken`: it has taken a slot, as the memory shows."""
        namespace = self._node.within[place.owner[:1]]
        owner = namespace.within[place.owner]
        owner.waiting.remove(place)
        for scope in (owner, namespace, self._node):
            scope.free -= taken
            scope.update(memory)

    def _scopes(self) -> Iterator[_Scope]:
        """All scopes, each after those within it."""
        for namespace in self._node.within.values():
            yield from namespace.within.values()
            yield namespace
        yield self._node
