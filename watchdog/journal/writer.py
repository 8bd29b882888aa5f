"""The journal behind a thread of its own: a disk can hang for as long as it likes, and nothing else waits for it."""

import signal as signals
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.errors import JournalError
from watchdog.journal.file import Statement
from watchdog.journal.journal import Journal
from watchdog.report.changes import Change
from watchdog.report.status import RecentStatus

# A write that has not come back after this time holds enforcement back until it has.
COMMIT_WITHIN_S: Final = 2.0
_MOST_WAITING: Final = 1000  # of what may be lost if need be: rows of the report, the past, pruning
_MOST_MISSED: Final = 1000  # of what comes of actions while there is no journal: far more than can be in progress
T = TypeVar("T")


class JournalWriter:
    """Hands everything for the journal to the one thread that owns it; no method waits for the disk but `close`.

    `ring` is called from that thread when something is done that somebody waits for. What is handed in is done in its
    order. While there is no journal nothing can be intended; what comes of actions is kept for the next one, and
    everything else is dropped.
    """

    def __init__(self, ring: Callable[[], None] = lambda: None) -> None:
        self._ring = ring
        self._journal: Journal | None = None
        self._condition = threading.Condition()
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy_since: float | None = None
        self._missed: deque[Callable[[Journal], Any]] = deque()
        self._lost = 0
        self._defect: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a journal, be it that it takes nothing at the moment."""
        return self._journal is not None

    @property
    def writable(self) -> bool:
        """Whether there is a journal, its last write succeeded, and none hangs."""
        return self.is_open and not self.problem

    @property
    def problem(self) -> str:
        """Why nothing can be written at the moment, with the remedy; empty where it can, or there is no journal."""
        journal, since = self._journal, self._busy_since
        if journal is None:
            return ""
        hangs_s = time.monotonic() - since if since is not None else 0.0
        if hangs_s >= COMMIT_WITHIN_S:
            return f"journal {journal.path}: the disk has not taken a write for {hangs_s:.0f} s: see `dmesg`"
        return journal.problem

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences to be said loudly, in their order, since the journal was opened."""
        return self._journal.notices if self._journal is not None else ()

    @property
    def recent(self) -> tuple[RecentStatus, ...] | None:
        """The last actions, newest first; None without a journal."""
        return self._journal.recent.actions if self._journal is not None else None

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Have something done on the thread that owns the journal, after everything that was handed in before."""
        future = self._hand_in(job)
        future.add_done_callback(lambda _: self._ring())
        return future

    def make_up(self, journal: Journal) -> bool:
        """Hand what was kept while there was no journal to this one, which is not in use yet; whether there was any."""
        missed, self._missed = self._missed, deque()
        for job in missed:
            self._write(journal, job)
        return bool(missed)

    def use(self, journal: Journal) -> None:
        """Write to this journal from now on; it was opened on the thread that owns it."""
        self._journal = journal

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit an intention to disk: the number of the action once it is there, RecordError where it is not."""
        journal, keys = self._journal, tuple(targets)
        if journal is None:
            failed: Future[int] = Future()
            failed.set_exception(RecordError("there is no journal"))
            return failed
        return self.submit(lambda: journal.intend(entry, keys, now))

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Note that an intention came to nothing, without a signal: no brake counts it."""
        self._must(lambda journal: journal.withdraw(action, reason, now))

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Note the same of an intention that is being written, as soon as it is on disk."""

        def withdraw(journal: Journal) -> None:
            # What was handed in before this is done by now.
            if intended.exception() is None:
                journal.withdraw(intended.result(), reason, now)

        self._must(withdraw)

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Note which processes got which signal."""
        sent = tuple(keys)
        self._must(lambda journal: journal.signalled(action, now, signal, sent))

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Note what came of an action."""
        self._must(lambda journal: journal.end(action, result, reason, now))

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Note when the memory was seen free; None: it was not, in time."""
        self._must(lambda journal: journal.released(action, now, release_s, reason))

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; None: it has closed."""
        # Another daemon may open it meanwhile: that a breaker is open a while longer is one wait too many at most.
        hand_in = self._put if opened is None else self._must
        hand_in(lambda journal: journal.breaker(opened))

    def note(self, event: str, sentence: str, now: Now) -> None:
        """Note something of the daemon's own life."""
        self._put(lambda journal: journal.note(event, sentence, now))

    def record(self, report: CycleReport, changes: Iterable[Change]) -> None:
        """Write down a report's changes; at rest nothing is written."""
        rows = self._journal.rows_of(report, changes) if self._journal is not None else []
        if rows:
            self._put(lambda journal: journal.write(rows), may_be_lost=True)

    def later(self, statements: Iterable[Statement]) -> None:
        """Write these together with whatever is written next."""
        kept = tuple(statements)
        self._put(lambda journal: journal.later(kept), may_be_lost=True)

    def set_limits(self, limits: JournalLimits) -> None:
        """Keep the journal within these bounds from now on."""
        self._must(lambda journal: setattr(journal, "limits", limits))

    def keep(self, now: Now, *, prune: bool) -> None:
        """See who else changed it, try again what failed, and keep it within its bounds; not while it is busy."""
        if self._journal is None or self._busy_since is not None:
            return
        self._put(Journal.probe)
        if prune:
            self._put(lambda each: each.prune(now))

    def check(self) -> None:
        """Raise what ended a write in a way that nobody foresaw, once."""
        defect, self._defect = self._defect, None
        if defect is not None:
            raise defect

    def close(self, timeout_s: float = 0.0) -> bool:
        """Write what waits, and close the journal; whether that came about in this time. Later ones find none."""
        journal, self._journal = self._journal, None
        if journal is None:
            return True
        done = self.submit(journal.close)
        with suppress(TimeoutError, JournalError):
            done.result(timeout_s)
        return done.done()

    def _must(self, job: Callable[[Journal], Any]) -> None:
        """Hand in what no journal may lack: where there is none at the moment, it is for the next one."""
        if self._journal is not None:
            self._put(job)
        elif len(self._missed) < _MOST_MISSED:
            self._missed.append(job)
        else:
            self._lost += 1

    def _put(self, job: Callable[[Journal], Any], *, may_be_lost: bool = False) -> None:
        """Hand in a write that nobody waits for. With the disk hanging, what may be lost is not kept without bound."""
        journal = self._journal
        if journal is None:
            return
        if may_be_lost and len(self._jobs) >= _MOST_WAITING:
            self._lost += 1
            return
        lost, self._lost = self._lost, 0
        if lost:
            self._hand_in(lambda: journal.lose(lost))
        self._write(journal, job)

    def _write(self, journal: Journal, job: Callable[[Journal], Any]) -> None:
        self._hand_in(lambda: job(journal)).add_done_callback(self._note_defect)

    def _hand_in(self, job: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._condition:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()
            self._jobs.append((future, job))
            self._condition.notify()
        return future

    def _note_defect(self, done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None and not isinstance(error, RecordError):
            self._defect = error

    def _run(self) -> None:
        # Signals are for the main thread, which sleeps in a selector and must wake for them.
        signals.pthread_sigmask(signals.SIG_BLOCK, signals.valid_signals())
        while True:
            with self._condition:
                self._busy_since = None
                while not self._jobs:
                    self._condition.wait()
                future, job = self._jobs.popleft()
                self._busy_since = time.monotonic()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # for the one who asked
                    future.set_exception(error)
