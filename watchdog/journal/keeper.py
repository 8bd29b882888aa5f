"""Keeps the lock and the journal of one daemon, and takes over what an earlier one left in it."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from watchdog import __version__
from watchdog.core.brakes import BrakeMemory
from watchdog.core.listed import ListedByPod
from watchdog.core.model import MaintenanceStart, Now, Pod, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import Brakes, JournalLimits
from watchdog.core.repeats import Repeats
from watchdog.core.transfers import Windows
from watchdog.core.utilization import IdleTimes
from watchdog.journal.actions import CUT_SHORT, RestoredActions, UnfinishedAction
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.lock import NodeLock
from watchdog.journal.writer import JournalWriter
from watchdog.options import Options
from watchdog.report.changes import ChangeKind
from watchdog.report.recent import LastAction
from watchdog.report.sentences.node import lost_memory_note

_PRUNE_EVERY_S: Final = 60.0
# A starting daemon waits this long for its journal before its first cycle; once only if the disk hangs or the journal
# can't be opened.
_OPEN_WITHIN_S: Final = 0.5
_SAME_EVERY_S: Final = 60.0  # how often the same problem is reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a daemon takes over from a journal."""

    # The actions of earlier daemons that have not ended.
    unfinished: tuple[UnfinishedAction, ...]
    # The processes that an earlier daemon has had drained, or may have.
    drained: frozenset[ProcessKey]
    # What the brakes remember.
    brakes: BrakeMemory
    # The recent actions.
    recent: tuple[LastAction, ...]
    # When the maintenance began that was in progress when that daemon ended; None: there was none.
    maintenance: MaintenanceStart | None = None
    # The windows in which bytes that may have changed hands count as unknown.
    transfers: Windows = field(default_factory=dict)
    # The pods that had left, and may have processes.
    left: tuple[Pod, ...] = ()
    # The resources that the node listed in pods' lives, by UID.
    listed: ListedByPod = field(default_factory=dict)
    # For how long accounts had computed nothing when that was last noted; None: none had.
    idle: IdleTimes | None = None


def restore(journal: Journal, lock: NodeLock, now: Now, known: frozenset[int] | None) -> Restored:
    """Take over the content of a journal that has just been opened.

    `known` are the actions in progress that this daemon knows from its previous journal; None: it had none. A blank
    file replaces a lost or damaged journal if an earlier daemon kept one here.
    """
    if journal.is_blank and (lock.had_file or (known is None and journal.notices)):
        journal.record_loss(now)
    unfinished = tuple(action for action in journal.unfinished() if action.number not in (known or ()))
    for action in unfinished:
        if action.result is None:
            journal.end(action.number, Result.INTERRUPTED, CUT_SHORT, now)
    # A request of theirs may be missing in the journal, which names them as cut short only once that is on disk.
    lost = (action.targets for action in unfinished if action.result is None and action.began.boot_id == now.boot_id)
    return Restored(
        unfinished=unfinished,
        drained=journal.drained(now).union(*lost),
        brakes=journal.brakes(now),
        recent=journal.last_actions(now),
        maintenance=journal.kept.maintenance,
        transfers=journal.kept.transfers,
        left=journal.kept.left,
        listed=journal.kept.listed,
        idle=journal.idle_times(),
    )


class JournalKeeper:
    """Keeps the lock and the journal of one daemon; the thread of `record` does all disk access.

    `problem` is what is wrong at the moment, with the remedy; empty: nothing. `limits` and `brakes` are the policy's.
    """

    def __init__(
        self,
        options: Options,
        limits: JournalLimits,
        remedies: Mapping[str, str],
        *,
        log_error: Callable[[str], None],
        recall: Callable[[tuple[LastAction, ...], float], None],
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        """`log_error` is called with each problem, `recall` with the recent actions of a journal that has been opened.

        `ring` is called from another thread when the disk has done something that the loop waits for.
        """
        self.record = JournalWriter(ring)
        self.lock = NodeLock(options.journal)
        self.limits = limits
        self.brakes = Brakes()
        self.problem = ""
        self._reported = ""
        self._path = options.journal
        self._node = options.node
        self._remedies = remedies
        self._log_error = log_error
        self._recall = recall
        self._repeats = Repeats(_SAME_EVERY_S)
        self._noticed = 0
        self._kept: RestoredActions | None = None
        self._next_prune_s = 0.0
        self._opening: Future[tuple[Journal, Restored] | None] | None = None
        self._failure = ""
        self._patience_s = _OPEN_WITHIN_S

    @property
    def is_writable(self) -> bool:
        """Whether the journal does not prevent writing down an action.

        Without the lock it is not even opened, and the lock is what is missing.
        """
        return not self.lock.held or self.record.writable

    @property
    def is_calm(self) -> bool:
        """Whether the lock is held and the journal works, so that nothing needs a retry."""
        return self.lock.held and self.record.is_open and not self.problem

    def maintain(self, now: Now) -> Restored | None:
        """Try again to take the lock and open the journal if necessary, and keep the journal within its limits.

        When a journal has just been opened, returns what an earlier daemon left in it; its unfinished actions are
        closed in it as interrupted.
        """
        self.record.check()
        restored: Restored | None = None
        problem = ""
        if not self.lock.held and self.record.is_open:
            # Another daemon may have had the lock and begun actions, which are read when the journal is opened again.
            self.record.close()
        self.report_lost()
        if self.record.is_open:
            self._probe_journal(now)
            problem = self.record.problem
        else:
            try:
                restored = self._try_to_open(now)
            except JournalError as error:
                problem = str(error)
            problem = problem or self.lock.problem
            if self._opening is not None and not problem:
                slow = f"journal {self._path}: still waiting for the disk to open it; if this lasts, check `dmesg`"
                problem = self._failure or slow
        # `stop`, `resume` and `doctor` take the lock for a moment to check it, so a single refusal is not reported.
        reported = problem if self.lock.refusals != 1 else ""
        # A disk that is full intermittently would otherwise cause a message every second.
        if reported and reported != self._reported and self._repeats.admit(reported, now.boottime_s) is not None:
            self._log_error(reported)
        self.problem, self._reported = problem, reported
        return restored

    def report_lost(self) -> None:
        """Log what a journal that was closed has lost."""
        if lost := self.record.take_lost():
            self._log_error(lost)

    def _try_to_open(self, now: Now) -> Restored | None:
        """Have the record's thread take the lock and open the journal; what it held, once it is open."""
        opening = self._opening = self._opening or self.record.submit(lambda: self._open(now))
        patience_s, self._patience_s = self._patience_s, 0.0
        try:
            opened = opening.result(patience_s)
        except TimeoutError:
            return None
        except Exception as error:
            self._opening, self._failure = None, str(error)
            raise
        self._opening, self._failure, self._patience_s = None, "", _OPEN_WITHIN_S
        if opened is None:
            return None
        journal, restored = opened
        if self.record.write_missed(journal):
            # The brakes' memory is read again after the results of actions meanwhile are written.
            self._opening = self.record.submit(lambda: (journal, replace(restored, brakes=journal.brakes(now))))
            return self._try_to_open(now)
        self._noticed = 0
        self.record.use_journal(journal)
        if lost := lost_memory_note(restored.brakes, self.brakes, now):
            self._log_error(lost)
            self.record.record_event(ChangeKind.BRAKES_PRESUMED.value, lost, now)
        self._recall(restored.recent, now.wall_s)
        return restored

    def _open(self, now: Now) -> tuple[Journal, Restored] | None:
        # A second daemon must not touch the journal: its unfinished actions may be those of the first daemon.
        if not self.lock.acquire():
            return None
        known = self._kept.in_progress if self._kept is not None else None
        journal = Journal.open(self._path, self.limits, self._node, self._remedies, self._kept)
        try:
            restored = restore(journal, self.lock, now, known)
        except BaseException:
            journal.close()
            raise
        self._kept = journal.kept
        journal.record_event(ChangeKind.STARTED.value, f"gpu-watchdog {__version__} has started", now)
        return journal, restored

    def _probe_journal(self, now: Now) -> None:
        is_time = now.boottime_s >= self._next_prune_s
        if is_time:
            self._next_prune_s = now.boottime_s + _PRUNE_EVERY_S
        self.record.probe_and_prune(now, prune=is_time)
        notices = self.record.notices
        for notice in notices[self._noticed :]:
            self._log_error(notice)
        self._noticed = len(notices)
