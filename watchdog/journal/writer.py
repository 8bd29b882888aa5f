"""The journal on its own thread, so that nothing else waits when the disk hangs."""

import signal as signals
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from watchdog.core.errors import RecordError
from watchdog.core.listed import ListedByPod
from watchdog.core.model import MaintenanceStart, Now, Pod, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.core.transfers import Windows
from watchdog.core.utilization import IdleTimes, SpentByHour
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.schema import Statement
from watchdog.report.changes import Change
from watchdog.report.status import RecentStatus

# While a write takes longer than this, enforcement is withheld.
COMMIT_WITHIN_S: Final = 2.0
_MOST_WAITING: Final = 1000  # jobs that may be lost if necessary: rows of reports, the recording
_MOST_MISSED: Final = 1000  # results of actions while there is no journal: far more than can be in progress
T = TypeVar("T")


class JournalWriter:
    """Hands all writes to the one thread that owns the journal; only `close` waits for the disk.

    `ring` is called from that thread when a submitted job is done. Jobs are done in order. While there is no journal,
    nothing can be intended; results of actions are kept for the next journal, and everything else is dropped.
    """

    def __init__(self, ring: Callable[[], None] = lambda: None) -> None:
        self._ring = ring
        self._journal: Journal | None = None
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._busy_since: float | None = None
        self._missed: deque[Callable[[Journal], Any]] = deque()
        self._lost = 0
        self._late: set[int] = set()  # actions whose intentions took the disk too long
        self.lost = ""
        self._defect: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a journal, writable or not."""
        return self._journal is not None

    @property
    def writable(self) -> bool:
        """Whether there is a journal, its last write succeeded, and no write hangs."""
        return self.is_open and not self.problem

    @property
    def problem(self) -> str:
        """Why the journal can't be written at the moment, with the remedy; empty if it can, or if there is none."""
        journal, since = self._journal, self._busy_since
        if journal is None:
            return ""
        hangs_s = time.monotonic() - since if since is not None else 0.0
        if hangs_s >= COMMIT_WITHIN_S:
            return f"journal {journal.path}: a write has been hanging for {hangs_s:.0f} s: check `dmesg`"
        return journal.problem

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences to be logged as errors since the journal was opened, in order."""
        return self._journal.notices if self._journal is not None else ()

    @property
    def recent(self) -> tuple[RecentStatus, ...] | None:
        """The last actions, newest first; None without a journal."""
        return self._journal.recent.actions if self._journal is not None else None

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Run a job on the thread that owns the journal, after all earlier jobs."""
        future = self._queue(job)
        future.add_done_callback(lambda _: self._ring())
        return future

    def write_missed(self, journal: Journal) -> bool:
        """Write what was kept while there was no journal to this one, before its use; return whether there was any."""
        missed, self._missed = self._missed, deque()
        for job in missed:
            self._write(journal, job)
        return bool(missed)

    def use_journal(self, journal: Journal) -> None:
        """Write to this journal from now on; it was opened on the thread."""
        self._journal = journal

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit an intention to disk: the number of the action once it is there, or a RecordError."""
        journal, keys, queued_s = self._journal, tuple(targets), time.monotonic()
        if journal is None:
            return _without_journal()

        def commit() -> int:
            number = journal.intend(entry, keys, now)
            if time.monotonic() - queued_s >= COMMIT_WITHIN_S:
                self._late.add(number)
            return number

        return self.submit(commit)

    def took_too_long(self, action: int) -> bool:
        """Whether an intention was on disk too late, by the time from queueing to commit; to be asked once for each."""
        is_late = action in self._late
        self._late.discard(action)
        return is_late

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn without a signal: no brake counts it."""
        self._put_or_keep(lambda journal: journal.withdraw(action, reason, now))

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Record the withdrawal of an intention that is still being written, as soon as it is on disk."""

        def withdraw(journal: Journal) -> None:
            # Jobs submitted before this one are done by now.
            if intended.exception() is None:
                journal.withdraw(intended.result(), reason, now)

        self._put_or_keep(withdraw)

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""
        sent = tuple(keys)
        self._put_or_keep(lambda journal: journal.signalled(action, now, signal, sent))

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Record the result of an action."""
        self._put_or_keep(lambda journal: journal.end(action, result, reason, now))

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long the memory took to be seen free; None if it was not, in time."""
        self._put_or_keep(lambda journal: journal.released(action, now, release_s, reason))

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed."""
        # Another daemon may open it meanwhile, so a missed closing is dropped: at worst an action waits needlessly.
        put = self._put if opened is None else self._put_or_keep
        put(lambda journal: journal.breaker(opened))

    def maintenance(self, start: MaintenanceStart | None) -> None:
        """Record when the maintenance in progress began; None: there is none. Without a journal that is dropped."""
        self._put(lambda journal: journal.maintenance(start))

    def left(self, pods: tuple[Pod, ...]) -> None:
        """Record the pods that have left. Without a journal that is dropped: the next one gets it when it is opened."""
        self._put(lambda journal: journal.left(pods))

    def listed(self, changes: ListedByPod) -> None:
        """Record further resources that the node listed in pods' lives. Without a journal they are dropped."""
        self._put(lambda journal: journal.listed(changes))

    def transfers(self, windows: Windows) -> None:
        """Record whose bytes count as unknown, or did in the last hour, since they may have changed hands."""
        self._put_or_keep(lambda journal: journal.transfers(windows))

    def add_utilization(self, spent: SpentByHour, idle: IdleTimes) -> "Future[None]":
        """Add card-seconds, and record for how long accounts have computed nothing; a RecordError: nothing is added."""
        journal = self._journal
        if journal is None:
            return _without_journal()
        future = self._queue(lambda: journal.add_utilization(spent, idle))
        future.add_done_callback(self._note_defect)
        return future

    def record_event(self, event: str, sentence: str, now: Now) -> None:
        """Record an event of the daemon itself."""
        self._put(lambda journal: journal.record_event(event, sentence, now))

    def record(self, report: CycleReport, changes: Iterable[Change]) -> None:
        """Write a report's changes; without any, nothing is written."""
        rows = self._journal.report_rows.of(report, changes) if self._journal is not None else []
        if rows:
            self._put(lambda journal: journal.write(rows), may_be_lost=True)

    def queue_statements(self, statements: Iterable[Statement]) -> None:
        """Write these together with the next statements."""
        kept = tuple(statements)
        self._put(lambda journal: journal.queue_statements(kept), may_be_lost=True)

    def set_limits(self, limits: JournalLimits) -> None:
        """Keep the journal within these limits from now on."""
        self._put_or_keep(lambda journal: setattr(journal, "limits", limits))

    def probe_and_prune(self, now: Now, *, prune: bool) -> None:
        """Probe the journal, and prune it if wanted; does nothing while it is busy."""
        if self._journal is None or self._busy_since is not None:
            return
        self._put(Journal.probe)
        if prune:
            self._put(lambda journal: journal.prune(now))

    def check(self) -> None:
        """Raise, once, an unexpected error of an earlier write."""
        defect, self._defect = self._defect, None
        if defect is not None:
            raise defect

    def close(self, timeout_s: float = 0.0) -> bool:
        """Write what is queued, and close the journal; returns whether the disk has answered within this time.

        What could not be written then is in `lost`.
        """
        journal, self._journal = self._journal, None
        if journal is None:
            return True
        done = self.submit(lambda: self._close(journal, timeout_s / 2))
        with suppress(TimeoutError, JournalError):
            done.result(timeout_s)
        return done.done()

    def _close(self, journal: Journal, within_s: float) -> None:
        self.lost = journal.close(within_s)

    def take_lost(self) -> str:
        """What a journal that was closed since the last call has lost, and why; empty: nothing."""
        lost, self.lost = self.lost, ""
        return lost

    def _put_or_keep(self, job: Callable[[Journal], Any]) -> None:
        """Queue a write that must not be lost: without a journal it is kept for the next one."""
        if self._journal is not None:
            self._put(job)
        elif len(self._missed) < _MOST_MISSED:
            self._missed.append(job)
        else:
            self._lost += 1

    def _put(self, job: Callable[[Journal], Any], *, may_be_lost: bool = False) -> None:
        """Queue a write without waiting for it; while the disk hangs, what may be lost is kept only up to a limit."""
        journal = self._journal
        if journal is None:
            return
        if may_be_lost and self._jobs.qsize() >= _MOST_WAITING:
            self._lost += 1
            return
        lost, self._lost = self._lost, 0
        if lost:
            self._queue(lambda: journal.count_lost(lost))
        self._write(journal, job)

    def _write(self, journal: Journal, job: Callable[[Journal], Any]) -> None:
        self._queue(lambda: job(journal)).add_done_callback(self._note_defect)

    def _queue(self, job: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        self._jobs.put((future, job))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        return future

    def _note_defect(self, done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None and not isinstance(error, RecordError):
            self._defect = error

    def _run(self) -> None:
        # Signals are for the main thread, which sleeps in a selector and must wake for them.
        signals.pthread_sigmask(signals.SIG_BLOCK, signals.valid_signals())
        while True:
            self._busy_since = None
            future, job = self._jobs.get()
            self._busy_since = time.monotonic()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # raised again from the future
                    future.set_exception(error)


def _without_journal() -> "Future[Any]":
    failed: Future[Any] = Future()
    failed.set_exception(RecordError("there is no journal"))
    return failed
