"""The intentions of a cycle, on disk before the last look, and actions that an earlier daemon left unfinished."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.assessment import AccountKey, Attribution
from watchdog.core.brakes import Brake, BrakeMemory, owner_of
from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import OpenCycle, Outcome, PlanEntry
from watchdog.core.policy import Do
from watchdog.daemon.actions.action import Action, ActionRecord, withdraw
from watchdog.journal.actions import UnfinishedAction


class UnfinishedActions:
    """The unfinished actions of an earlier daemon: an account's next action waits until its previous one is over.

    At worst an action waits needlessly; nothing is killed twice.
    """

    def __init__(self) -> None:
        self._waiting: dict[UnfinishedAction, float] = {}

    def add(self, actions: Iterable[UnfinishedAction], until_s: float) -> None:
        """Wait for these as well, until this time on CLOCK_BOOTTIME at the latest."""
        self._waiting |= dict.fromkeys(actions, until_s)

    def is_waiting(self, account: AccountKey) -> bool:
        """Whether an action of this account is still waited for."""
        return any(action.account == account for action in self._waiting)

    def take_ended(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> tuple[UnfinishedAction, ...]:
        """The actions that are over by this reading, each once: their memory is free, or they have timed out."""
        ended = [
            action
            for action, until_s in self._waiting.items()
            if now.boottime_s >= until_s or not any(still_listed(key) for key in action.targets)
        ]
        for action in ended:
            del self._waiting[action]
        return tuple(ended)


_TOO_LATE: Final = "the disk took too long to write the intention"
LOOP_LATE: Final = "the watchdog was busy for too long after it had written the intention down"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedIntention:
    """A plan entry's intention as its action is to begin; one field is set, or none if nothing was intended."""

    # The intention is on disk, and the action may begin.
    number: int | None = None
    # The action ended before it could begin.
    outcome: Outcome | None = None
    # The intention is not on disk.
    withheld_by: Brake | None = None


class Intentions:
    """Writes intentions down, and withdraws those that reach the disk only after the cycle has gone on."""

    def __init__(self, by_do: Mapping[Do, Action], record: ActionRecord, clock: Callable[[], Now]) -> None:
        self._by_do = by_do
        self._record = record
        self._clock = clock
        self._waiting: dict[AccountKey, tuple[PlanEntry, Future[int]]] = {}
        self._late: list[tuple[PlanEntry, Future[int]]] = []

    def write(
        self, entries: Iterable[PlanEntry], attribution: Attribution
    ) -> dict[AccountKey, "Future[int] | Outcome"]:
        """Write down what is about to begin: by account, its number once on disk, or its outcome if it ended before.

        What waits for its turn is left out.
        """
        by_account: dict[AccountKey, Future[int] | Outcome] = {}
        self._waiting = {}
        for entry in entries:
            intended = self._by_do[entry.do].intend(entry, attribution)
            if intended is None:
                continue
            by_account[entry.account] = intended
            if not isinstance(intended, Outcome):
                self._waiting[entry.account] = entry, intended
        return by_account

    def claim(self, entry: PlanEntry, opened: OpenCycle, *, is_dropped: bool = False) -> ClaimedIntention:
        """An entry's intention; one that is not on disk yet is cancelled, or withdrawn once it is.

        An unexpected error of its write is raised, unless it `is_dropped`.
        """
        intended = opened.intentions.get(entry.account) if entry.do.enforces else None
        if intended is None or isinstance(intended, Outcome):
            return ClaimedIntention(outcome=intended)
        self._waiting.pop(entry.account, None)
        if not intended.done() and not intended.cancel():
            self._late.append((entry, intended))
            # The disk is not waited for once maintenance begins.
            return ClaimedIntention(withheld_by=Brake.MAINTENANCE if opened.inputs.maintenance else Brake.JOURNAL)
        if intended.cancelled() or (is_dropped and intended.exception()) or _has_failed(intended):
            return ClaimedIntention(withheld_by=Brake.JOURNAL)
        number = intended.result()
        if not is_dropped and self._record.took_too_long(number):
            return ClaimedIntention(outcome=self.withdraw(replace(entry, taken=False), number, _TOO_LATE))
        return ClaimedIntention(number=number)

    def withdraw(self, entry: PlanEntry, number: int, reason: str, *, by_change: bool = False) -> Outcome:
        """Withdraw an intention before anything was done."""
        return withdraw(self._record, entry, number, reason, self._clock(), by_change=by_change)

    def without(self, brakes: BrakeMemory) -> BrakeMemory:
        """The memory of a journal without intentions that have not begun yet: those count once they begin.

        Only the owners' entries are removed: `BrakeMemory.inheriting` derives those of namespaces and the node.
        """
        begun = dict(brakes.begun)
        for entry, intended in (*self._waiting.values(), *self._late):
            if intended.done() and not intended.cancelled() and intended.exception() is None:
                owner = owner_of(entry.assessment.pod)
                begun[owner] = begun.get(owner, ())[:-1]  # the last one of this owner
        return replace(brakes, begun=begun)

    def withdraw_late(self) -> Iterator[Outcome]:
        """Withdraw, one by one, intentions that reached the disk after their entries had been withheld."""
        for entry, intended in tuple(self._late):
            if intended.done():
                self._late.remove((entry, intended))
                if not _has_failed(intended):
                    number = intended.result()
                    why = _TOO_LATE if self._record.took_too_long(number) else LOOP_LATE
                    yield self.withdraw(entry, number, why)

    def interrupt(self, now: Now) -> None:
        """Withdraw late intentions as soon as they are on disk, since nothing waits for them any more."""
        for _, intended in self._late:
            self._record.withdraw_once_written(intended, "the watchdog was stopped", now)
        self._late = []


def _has_failed(intended: "Future[int]") -> bool:
    """Whether an intention could not be written; any other error is raised."""
    error = intended.exception()
    if error is not None and not isinstance(error, RecordError):
        raise error
    return error is not None
