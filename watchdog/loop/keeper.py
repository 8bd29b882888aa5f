"""The keeper of the lock and the journal, without which nobody is acted on: both are tried for again and again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watchdog import __version__
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import Now
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.export.journal import Journal, UnfinishedDeed
from watchdog.export.journal_errors import JournalError
from watchdog.export.last_actions import LastAction
from watchdog.export.lock import NodeLock
from watchdog.export.news_item import Event
from watchdog.export.repeats import Repeats
from watchdog.loop.deed_record import DeedRecord

_PRUNE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a journal tells a daemon that starts: deeds that nobody saw the end of, and what the brakes remember."""

    unfinished: tuple[UnfinishedDeed, ...]
    brakes: BrakeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who is told: `loud` of what is wrong, `recall` of what was done lately, as a journal that is opened has it."""

    loud: Callable[[str], None]
    recall: Callable[[tuple[LastAction, ...], float], None]


class Keeper:
    """Holds the lock and the journal of one daemon; nothing here waits for anything.

    `problem` says what is missing at the moment, with the remedy; empty: nothing. `limits` are those of the policy.
    """

    def __init__(self, path: Path, node: str, limits: JournalLimits, remedies: Mapping[str, str], ears: Ears) -> None:
        self.record = DeedRecord()
        self.lock = NodeLock(path)
        self.limits = limits
        self.problem = ""
        self._said = ""
        self._path = path
        self._node = node
        self._remedies = remedies
        self._ears = ears
        self._repeats = Repeats()
        self._noticed = 0
        self._next_prune_s = 0.0

    @property
    def is_writable(self) -> bool:
        """Whether a deed could be written down, as far as that lies with the journal.

        Without the lock it is not even opened; then the lock is what is missing.
        """
        return not self.lock.held or (self.record.journal is not None and self.record.journal.writable)

    def tend(self, now: Now) -> Inheritance | None:
        """Try for the lock and the journal again where they are missing, and keep the journal within its bounds.

        Where a journal has just been opened, gives what an earlier daemon left in it; deeds without an end are closed
        in it as interrupted.
        """
        inheritance: Inheritance | None = None
        problem = ""
        if not self.lock.held and self.record.journal is not None:
            # Whoever had the lock meanwhile may have begun deeds: they are read when the journal is opened again.
            self.record.journal.close()
            self.record.journal = None
        # A second daemon keeps its hands off the journal: the deeds without an end in it may be the first one's.
        if not self.lock.retry():
            problem = self.lock.problem
        elif self.record.journal is None:
            try:
                inheritance = self._open(now)
            except JournalError as error:
                problem = str(error)
        else:
            self._keep(self.record.journal, now)
            problem = self.record.journal.problem
        # `stop`, `resume` and `doctor` look at the lock by having it for a moment: that alone is nobody else's daemon.
        is_said = problem if self.lock.refusals != 1 else ""
        # A disk that is full now and then would have it said every second or so.
        if is_said and is_said != self._said and self._repeats.admit(is_said, now.boottime_s) is not None:
            self._ears.loud(is_said)
        self.problem, self._said = problem, is_said
        return inheritance

    def _open(self, now: Now) -> Inheritance:
        journal = Journal.open(self._path, self.limits, self._node, self._remedies)
        self._noticed = 0
        try:
            inheritance = Inheritance(unfinished=journal.unfinished(), brakes=journal.brakes(now))
            for deed in inheritance.unfinished:
                if deed.result is None:
                    journal.end(deed.deed, Result.INTERRUPTED, "the watchdog ended in the middle of it", now)
            self._ears.recall(journal.lately(now), now.wall_s)
        except JournalError:
            journal.close()
            raise
        journal.note(Event.STARTED.value, f"gpu-watchdog {__version__} has begun", now)
        self.record.journal = journal
        return inheritance

    def _keep(self, journal: Journal, now: Now) -> None:
        journal.probe()
        for notice in journal.notices[self._noticed :]:
            self._ears.loud(notice)
        self._noticed = len(journal.notices)
        if now.boottime_s >= self._next_prune_s:
            self._next_prune_s = now.boottime_s + _PRUNE_EVERY_S
            journal.prune(now)
