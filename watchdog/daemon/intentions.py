"""What a cycle is about to begin, on disk before the last look; and what an earlier daemon left unfinished."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, assert_never

from watchdog.core.assessment import AccountKey, Attribution
from watchdog.core.brakes import Brake, BrakeMemory, owner_of
from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import OpenCycle, Outcome, PlanEntry
from watchdog.core.policy import Do
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.kills import Kills
from watchdog.journal.actions import UnfinishedAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """An action without an end: its number in the journal, whom it was about, and the boot time until which to wait."""

    number: int
    account: AccountKey
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    until_s: float


def inherited(unfinished: Iterable[UnfinishedAction], until_s: float) -> tuple[Inherited, ...]:
    """The actions that a journal has without an end, each to be waited for until a moment (boot time)."""
    return tuple(
        Inherited(
            number=action.number,
            account=action.account,
            step=action.step,
            victim=action.victim,
            targets=action.targets,
            until_s=until_s,
        )
        for action in unfinished
    )


class InheritedActions:
    """Keeps the next action of an account waiting for an earlier one: one wait too many, never a second kill."""

    def __init__(self, found: tuple[Inherited, ...] = ()) -> None:
        self._open = list(found)

    def add(self, found: tuple[Inherited, ...]) -> None:
        """Wait for these too."""
        self._open += found

    def is_waiting(self, account: AccountKey) -> bool:
        """Whether an action of this account is still waited for."""
        return any(each.account == account for each in self._open)

    def see(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> tuple[Inherited, ...]:
        """Take note of a reading: the earlier actions that are over, their memory free or their time up."""
        over = [
            each
            for each in self._open
            if now.boottime_s >= each.until_s or not any(still_listed(key) for key in each.targets)
        ]
        self._open = [each for each in self._open if each not in over]
        return tuple(over)


_TOO_LATE: Final = "the disk took too long to take the intention"
_STOPPED: Final = "the watchdog was stopped"


class Intentions:
    """Has intentions written down, and knows of those that get to the disk only after the cycle has gone on."""

    def __init__(self, actions: Kills, evictions: Evictions) -> None:
        self._actions = actions
        self._evictions = evictions
        self._waiting: dict[AccountKey, tuple[PlanEntry, Future[int]]] = {}
        self._late: list[tuple[PlanEntry, Future[int]]] = []

    def write(
        self, entries: Iterable[PlanEntry], attribution: Attribution
    ) -> dict[AccountKey, "Future[int] | Outcome"]:
        """Have what is about to begin written down: by account its number to come, or how it ended before."""
        by_account: dict[AccountKey, Future[int] | Outcome] = {}
        self._waiting = {}
        for entry in entries:
            intended = self._intend(entry, attribution)
            by_account[entry.account] = intended
            if not isinstance(intended, Outcome):
                self._waiting[entry.account] = entry, intended
        return by_account

    def _intend(self, entry: PlanEntry, attribution: Attribution) -> "Future[int] | Outcome":
        match entry.do:
            case Do.KILL:
                return self._actions.intend(entry)
            case Do.EVICT:
                return self._evictions.intend(entry, attribution)
            case Do.WARN:
                raise AssertionError("nothing is written down of a warning")
            case _:
                assert_never(entry.do)

    def number(self, entry: PlanEntry, opened: OpenCycle) -> int | Outcome | Brake | None:
        """The number of what is intended, or why it can't be begun; None: nothing was intended."""
        intended = opened.intentions.get(entry.account) if entry.do.is_force else None
        if intended is None or isinstance(intended, Outcome):
            return intended
        self._waiting.pop(entry.account, None)
        if not intended.done() and not intended.cancel():
            self._late.append((entry, intended))
            # The disk is not waited for once maintenance begins.
            return Brake.MAINTENANCE if opened.view.conditions.maintenance else Brake.JOURNAL
        return Brake.JOURNAL if intended.cancelled() or _has_failed(intended) else intended.result()

    def without(self, brakes: BrakeMemory) -> BrakeMemory:
        """What a journal says has begun, without what is on disk and has not: it counts once it begins.

        Only the owners have it left out: whoever inherits this counts namespaces and node by them.
        """
        begun = dict(brakes.begun)
        for entry, intended in (*self._waiting.values(), *self._late):
            if intended.done() and not intended.cancelled() and intended.exception() is None:
                whom = owner_of(entry.assessment.pod)
                begun[whom] = begun.get(whom, ())[:-1]  # the last one of this owner
        return replace(brakes, begun=begun)

    def withdraw(self, entry: PlanEntry, number: int, reason: str) -> Outcome:
        """End what is on disk before anything was done."""
        return self._actions.withdraw(entry, number, reason)

    def withdraw_late(self) -> Iterator[Outcome]:
        """Withdraw, one by one, what got to the disk only after it had been held back for not being there."""
        for each in tuple(self._late):
            entry, intended = each
            if intended.done():
                self._late.remove(each)
                if not _has_failed(intended):
                    yield self.withdraw(entry, intended.result(), _TOO_LATE)

    def interrupt(self) -> None:
        """Have withdrawn what was late: nobody asks any more whether it is on disk."""
        for _, intended in self._late:
            self._actions.withdraw_once_written(intended, _STOPPED)
        self._late = []


def _has_failed(intended: "Future[int]") -> bool:
    """Whether it could not be written down; what else went wrong is raised."""
    error = intended.exception()
    if error is not None and not isinstance(error, RecordError):
        raise error
    return error is not None
