"""The keeper of the lock and the journal, without which no action is taken: both are tried for again and again."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from watchdog import __version__
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import Now
from watchdog.core.plan import Result
from watchdog.core.policy import Brakes, JournalLimits
from watchdog.export.brake_words import presumed_note
from watchdog.export.journal import Journal, UnfinishedDeed
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_kept import Kept
from watchdog.export.journal_writer import JournalWriter
from watchdog.export.last_actions import LastAction
from watchdog.export.lock import NodeLock
from watchdog.export.news_item import Event
from watchdog.export.repeats import Repeats

_PRUNE_EVERY_S: Final = 60.0
# A daemon that starts knows of its journal before its first cycle. A disk that hangs is waited for only once, and so is
# a journal that can't be opened.
_OPEN_WITHIN_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a journal tells a daemon that starts: deeds that nobody saw the end of, and what the brakes remember."""

    unfinished: tuple[UnfinishedDeed, ...]
    brakes: BrakeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who is told: `loud` of what is wrong, `recall` of what was done lately, as a journal that is opened has it.

    `ring` wakes the loop when the disk has done something that is waited for; it is called from another thread.
    """

    loud: Callable[[str], None]
    recall: Callable[[tuple[LastAction, ...], float], None]
    ring: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A journal that has just been opened, and what stands in it."""

    journal: Journal
    inheritance: Inheritance
    lately: tuple[LastAction, ...]


def inherit(journal: Journal, lock: NodeLock, now: Now, known: frozenset[int] | None) -> Inheritance:
    """Take over what stands in a journal that has just been opened.

    `known` are the actions in progress of which this daemon knows, by the journal it had before; None: it had none.
    A file in which nothing was ever written, where an earlier daemon kept one, replaces one that was lost or damaged.
    """
    if journal.is_blank and (lock.was_there or (known is None and journal.notices)):
        journal.presume(now)
    unfinished = tuple(deed for deed in journal.unfinished() if deed.deed not in (known or ()))
    for deed in unfinished:
        if deed.result is None:
            journal.end(deed.deed, Result.INTERRUPTED, "the watchdog ended in the middle of it", now)
    return Inheritance(unfinished=unfinished, brakes=journal.brakes(now))


def _asked_again(opened: _Opened, now: Now) -> _Opened:
    return replace(opened, inheritance=replace(opened.inheritance, brakes=opened.journal.brakes(now)))


class Keeper:
    """Holds the lock and the journal of one daemon; the disk is left to the thread of `record`.

    `problem` says what is missing at the moment, with the remedy; empty: nothing. `limits`, `brakes`: of the policy.
    """

    def __init__(self, path: Path, node: str, limits: JournalLimits, remedies: Mapping[str, str], ears: Ears) -> None:
        self.record = JournalWriter(ears.ring)
        self.lock = NodeLock(path)
        self.limits = limits
        self.brakes = Brakes()
        self.problem = ""
        self._said = ""
        self._path = path
        self._node = node
        self._remedies = remedies
        self._ears = ears
        self._repeats = Repeats()
        self._noticed = 0
        self._kept: Kept | None = None
        self._next_prune_s = 0.0
        self._opening: Future[_Opened | None] | None = None
        self._failure = ""
        self._patience_s = _OPEN_WITHIN_S

    @property
    def is_writable(self) -> bool:
        """Whether an action could be written down, as far as that lies with the journal.

        Without the lock it is not even opened; then the lock is what is missing.
        """
        return not self.lock.held or self.record.writable

    def tend(self, now: Now) -> Inheritance | None:
        """Try for the lock and the journal again where they are missing, and keep the journal within its bounds.

        Where a journal has just been opened, gives what an earlier daemon left in it; actions without an end are closed
        in it as interrupted.
        """
        self.record.check()
        inheritance: Inheritance | None = None
        problem = ""
        if not self.lock.held and self.record.is_open:
            # The daemon that had the lock meanwhile may have begun actions: they are read when it is opened again.
            self.record.close()
        if self.record.is_open:
            self._keep(now)
            problem = self.record.problem
        else:
            try:
                inheritance = self._try_to_open(now)
            except JournalError as error:
                problem = str(error)
            problem = problem or self.lock.problem or self._slowness()
        # `stop`, `resume` and `doctor` look at the lock by having it for a moment: that alone is no other daemon.
        is_said = problem if self.lock.refusals != 1 else ""
        # A disk that is full now and then would have it said every second or so.
        if is_said and is_said != self._said and self._repeats.admit(is_said, now.boottime_s) is not None:
            self._ears.loud(is_said)
        self.problem, self._said = problem, is_said
        return inheritance

    def _try_to_open(self, now: Now) -> Inheritance | None:
        """Have the lock taken and the journal opened, and take what has come of it."""
        opening = self._opening = self._opening or self.record.submit(lambda: self._open(now))
        patience_s, self._patience_s = self._patience_s, 0.0
        try:
            opened = opening.result(patience_s)
        except TimeoutError:
            return None
        except JournalError as error:
            self._opening, self._failure = None, str(error)
            raise
        self._opening, self._failure, self._patience_s = None, "", _OPEN_WITHIN_S
        if opened is None:
            return None
        if self.record.make_up(opened.journal):
            # The brakes learn what they count only after what has come of actions meanwhile.
            self._opening = self.record.submit(lambda: _asked_again(opened, now))
            return self._try_to_open(now)
        self._noticed = 0
        self.record.use(opened.journal)
        if presumed := presumed_note(opened.inheritance.brakes, self.brakes, now):
            self._ears.loud(presumed)
            self.record.note(Event.BRAKES_PRESUMED.value, presumed, now)
        self._ears.recall(opened.lately, now.wall_s)
        return opened.inheritance

    def _slowness(self) -> str:
        if self._opening is None:
            return ""
        slow = f"journal {self._path}: the disk has not let it be opened yet: see `dmesg` if that lasts"
        return self._failure or slow

    def _open(self, now: Now) -> _Opened | None:
        # A second daemon keeps its hands off the journal: the actions without an end in it may be the first one's.
        if not self.lock.retry():
            return None
        known = self._kept.in_progress if self._kept is not None else None
        journal = Journal.open(self._path, self.limits, self._node, self._remedies, self._kept)
        try:
            inheritance = inherit(journal, self.lock, now, known)
            lately = journal.lately(now)
        except JournalError:
            journal.close()
            raise
        self._kept = journal.kept
        journal.note(Event.STARTED.value, f"gpu-watchdog {__version__} has begun", now)
        return _Opened(journal=journal, inheritance=inheritance, lately=lately)

    def _keep(self, now: Now) -> None:
        is_time = now.boottime_s >= self._next_prune_s
        if is_time:
            self._next_prune_s = now.boottime_s + _PRUNE_EVERY_S
        self.record.keep(now, prune=is_time)
        notices = self.record.notices
        for notice in notices[self._noticed :]:
            self._ears.loud(notice)
        self._noticed = len(notices)
