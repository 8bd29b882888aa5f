"""What every kind of action has in common: its protocol, what it reports to the ledger, and where it is recorded."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from watchdog.core.assessment import Assessment, Attribution, Inputs
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import Now, ProcessKey, Snapshot, is_signal
from watchdog.core.plan import Objection, OpenCycle, Outcome, PlanEntry, Result, Sent
from watchdog.core.transfers import Windows
from watchdog.daemon.actions.last_look import LastLook


class ActionRecord(Protocol):
    """The record of actions. No method waits for the disk, and none raises."""

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> Future[int]:
        """Commit the intention to disk: its number once it is there. After a RecordError nothing may be signalled."""

    def took_too_long(self, action: int) -> bool:
        """Whether an intention was on disk too late, as the journal's thread measured it; to be asked once for each."""

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn before the first signal."""

    def withdraw_once_written(self, intended: Future[int], reason: str, now: Now) -> None:
        """Record the withdrawal of an intention that is still being written, as soon as it is on disk."""

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Record the result of an action."""

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long after the first signal the memory was seen free; None if it was not, in time."""

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed."""

    def transfers(self, windows: Windows) -> None:
        """Record whose bytes count as unknown, or did in the last hour, since they may have changed hands."""


class RecordedAction:
    """One action in the record: its number there, since when it is in progress, and the signals that it has sent."""

    def __init__(self, record: ActionRecord, number: int, began: Now) -> None:
        self._record = record
        self.number = number
        self.began = began
        self.first_sent: Now | None = None
        self._sent: dict[str, tuple[float, set[ProcessKey]]] = {}

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The signals in order, and what stands for one."""
        sent = self._sent.items()
        return tuple(Sent(signal=name, keys=frozenset(keys), after_s=after_s) for name, (after_s, keys) in sent)

    def note_sent(self, name: str, keys: list[ProcessKey], now: Now) -> None:
        """Record which processes got which signal."""
        self.first_sent = self.first_sent or now
        self._sent.setdefault(name, (now.boottime_s - self.began.boottime_s, set()))[1].update(keys)
        self._record.signalled(self.number, now, name, keys)

    def withdraw(self, reason: str, now: Now) -> None:
        """Record that it was withdrawn before the first signal."""
        self._record.withdraw(self.number, reason, now)

    def end(self, result: Result, reason: str, now: Now) -> None:
        """Record its result."""
        self._record.end(self.number, result, reason, now)

    def release(self, release_s: float | None, reason: str, now: Now) -> None:
        """Record how long after the first signal its memory was seen free; None: it was not, in time."""
        self._record.released(self.number, now, release_s, reason)

    def outcome(self, entry: PlanEntry, result: Result, reason: str, now: Now) -> Outcome:
        """Its outcome at this moment, with every process that got a signal."""
        return Outcome(
            entry=entry,
            result=result,
            at=now,
            reason=reason,
            signalled=tuple(sorted({key for each in self.sent if is_signal(each.signal) for key in each.keys})),
            sent=self.sent,
            number=self.number,
        )


def withdraw(record: ActionRecord, entry: PlanEntry, number: int, reason: str, now: Now, *, by_change: bool) -> Outcome:
    """Withdraw an intention, of whatever action, before anything was done."""
    record.withdraw(number, reason, now)
    withdrawn = Result.WITHDRAWN
    return Outcome(entry=entry, result=withdrawn, at=now, reason=reason, number=number, by_change=by_change)


def reaction_s(entry: PlanEntry, now: Now) -> float | None:
    """Seconds from the last conclusive reading not above the threshold, plus `for`, until now; None without one.

    None too if a tally was due, which has seen such readings all the time.
    """
    if entry.not_above is None or entry.tally is not None:
        return None
    return max(now.boottime_s - entry.not_above.boottime_s - entry.definition.for_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionReading:
    """What a reading shows of actions in progress."""

    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    inputs: Inputs
    # Whether the driver may still list a process, or its memory after it has ended.
    still_listed: Callable[[ProcessKey], bool]
    # When the reading was requested.
    asked: Now
    now: Now

    @property
    def may_hinder(self) -> bool:
        """Whether it may show something that stands in the way of a signal."""
        return self.snapshot.blind or self.snapshot.has_servers or bool(self.inputs.drains.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What has become of an action that was to begin."""

    # What is in progress now, which counts whatever its result is; None: it was withdrawn.
    progress: UnderWay | PendingEviction | None
    at: Now
    # The entry, as the cycle reports it if there is no outcome yet.
    entry: PlanEntry
    # Its outcome so far: `done` means that it has begun. None: what it begins with is still to be answered.
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has happened to the actions of a kind since it was asked last."""

    # Those that have begun since, after waiting for an answer, each with what is in progress now, if that is new.
    begun: tuple[tuple[Outcome, UnderWay | None], ...] = ()
    # Those that have ended, and other outcomes to report.
    ended: tuple[Outcome, ...] = ()


# The entry as the last look leaves it; an outcome or a reason if it must not be acted on.
Judged = PlanEntry | Outcome | str


class Action(Protocol):
    """A kind of action that enforces, with all of that kind that are in progress. No method waits."""

    @property
    def lacks(self) -> str | None:
        """What is missing for any action of this kind, in few words; None: it is possible."""

    @property
    def needs_readings(self) -> bool:
        """Whether one is in progress that readings continue."""

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of the next step of any of them; infinity if there is none."""

    def intend(self, entry: PlanEntry, attribution: Attribution) -> "Future[int] | Outcome | None":
        """Write down the intention: its number once that is on disk, or its outcome if it ended before it could begin.

        None: it waits for its turn, so it is for a later cycle.
        """

    def takes_long(self, entry: PlanEntry) -> bool:
        """Whether beginning it takes so long that others must go first."""

    def begin(
        self, entry: PlanEntry, number: int, opened: OpenCycle, last_look: LastLook, objection: Objection
    ) -> Beginning:
        """Begin an action whose intention is on disk, and that a last look has justified since then.

        `objection` is called right before the first signal, or before the request that stands for it.
        """

    def carry_on(
        self, entry: PlanEntry, judged: Judged, opened: OpenCycle, last_look: LastLook | None, now: Now
    ) -> PlanEntry | None:
        """Carry on with the action in progress that an entry is about: the entry as reported, None if it is not."""

    def give_way(self, begun: Outcome) -> None:
        """End what has not happened yet for this account, since another action has begun there."""

    def advance(self, now: Now, objection: Objection, *, policy_unsettled: bool) -> None:
        """Do what is due by now; one to which there is an objection goes no further."""

    def on_reading(self, reading: ActionReading) -> None:
        """Process a reading: one whose memory is free ends."""

    def interrupt(self, now: Now) -> None:
        """Stop all of them as they are, since the daemon ends."""

    def pop_progress(self) -> Progress:
        """What has happened since the last call."""

    def noted_in(self, ledger: Ledger) -> Ledger:
        """The ledger with the state of those that are in progress."""

    def release(self) -> None:
        """Let go of what is held for actions that were about to begin."""
