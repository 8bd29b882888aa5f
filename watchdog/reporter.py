"""The reporter: everything that leaves the daemon, and the lock and journal that it needs to act."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watchdog import __version__, clock
from watchdog.config.problems import PolicyError
from watchdog.core.brakes import BrakeMemory
from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.enforcement import remedies
from watchdog.export.board import Board
from watchdog.export.http import HttpServer
from watchdog.export.journal import Journal, UnfinishedDeed
from watchdog.export.journal_errors import JournalError
from watchdog.export.lock import NodeLock
from watchdog.export.logs import Log, configure
from watchdog.export.metrics import Metrics
from watchdog.export.news import Event
from watchdog.export.repeats import Repeats
from watchdog.options import Options
from watchdog.past.recorder import Recorder
from watchdog.sources import NO_PODS, missing_sources, uses_api
from watchdog.unready import unready

if TYPE_CHECKING:
    from watchdog.announcer import Announcer

_PRUNE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a journal tells a daemon that starts: deeds that nobody saw the end of, and what the brakes remember."""

    unfinished: tuple[UnfinishedDeed, ...]
    brakes: BrakeMemory


class DeedRecord:
    """Where deeds are written down; without a journal nothing can be intended, so nothing is ever signalled."""

    def __init__(self) -> None:
        self.journal: Journal | None = None

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> int:
        """Commit the intention to disk and number it; RecordError where that can't be done."""
        if self.journal is None:
            raise RecordError("there is no journal")
        return self.journal.intend(entry, targets, now)

    def signalled(self, deed: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Note which processes got which signal."""
        if self.journal is not None:
            self.journal.signalled(deed, now, signal, keys)

    def end(self, deed: int, result: Result, reason: str, now: Now) -> None:
        """Note what came of it."""
        if self.journal is not None:
            self.journal.end(deed, result, reason, now)

    def released(self, deed: int, now: Now, release_s: float | None, reason: str) -> None:
        """Note when the memory was seen free."""
        if self.journal is not None:
            self.journal.released(deed, now, release_s, reason)

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; None: it has closed."""
        if self.journal is not None:
            self.journal.breaker(opened)


class Reporter:
    """Publishes each pass, and keeps lock, journal and HTTP going; nothing here waits for anything."""

    def __init__(self, options: Options, policy: Policy, now: Now, announcer: "Announcer | None" = None) -> None:
        """Open what can be opened; ListenError where the address can't be had."""
        configure()
        self.record = DeedRecord()
        self._options = options
        self._limits = policy.journal
        self._lock = NodeLock(options.journal)
        self._announcer = announcer
        self._metrics = Metrics(announcer.counts if announcer is not None else None, clock.now)
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._remedies = remedies(options.journal, options.node)
        self._board = Board(self._metrics, policy.interval_s, remedies=self._remedies)
        self._server = HttpServer(options.listen, self._board)
        self._log = Log(self._remedies)
        self._past = Recorder()
        self._said = ""
        self._repeats = Repeats()
        self._noticed = 0
        self._next_prune_s = now.boottime_s
        self._silence: tuple[str, ...] = ()
        self._unready: tuple[str, ...] = ()

    @property
    def has_lock(self) -> bool:
        """Whether this daemon is the one of its node."""
        return self._lock.held

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal; whether it takes writes at the moment is `is_writable`."""
        return self.record.journal is not None

    @property
    def is_writable(self) -> bool:
        """Whether a deed could be written down, as far as that lies with the journal.

        Without the lock it is not even opened; then the lock is what is missing.
        """
        return not self._lock.held or (self.record.journal is not None and self.record.journal.writable)

    def start(self, policy: Policy, warnings: tuple[str, ...]) -> None:
        """Begin to answer, and say that the daemon has begun."""
        self._server.start()
        message = f"gpu-watchdog {__version__} has begun on node {self._options.node}, policy {policy.source}"
        self._log.say(Event.STARTED, message, mode=policy.mode, listen=self._options.listen)
        if self._options.pods is None and not uses_api(self._options):
            self._log.warn(NO_PODS)
        for warning in (*warnings, *missing_sources(self._options, policy), *policy.warnings):
            self._log.warn(warning)

    def tend(self, now: Now) -> Inheritance | None:
        """Try for the lock and the journal again where they are missing, and keep the journal within its bounds.

        Where a journal has just been opened, gives what an earlier daemon left in it; deeds without an end are closed
        in it as interrupted.
        """
        inheritance: Inheritance | None = None
        problem = ""
        if not self._lock.held and self.record.journal is not None:
            # Whoever had the lock meanwhile may have begun deeds: they are read when the journal is opened again.
            self.record.journal.close()
            self.record.journal = None
        # A second daemon keeps its hands off the journal: the deeds without an end in it may be the first one's.
        if not self._lock.retry():
            problem = self._lock.problem
        elif self.record.journal is None:
            try:
                inheritance = self._open_journal(now)
            except JournalError as error:
                problem = str(error)
        else:
            self._keep(self.record.journal, now)
            problem = self.record.journal.problem
        # A disk that is full now and then would have it said every second or so.
        if problem and problem != self._said and self._repeats.admit(problem, now.boottime_s) is not None:
            self._log.loud(problem)
        self._said = problem
        return inheritance

    def publish(self, report: CycleReport, *, is_stale: bool) -> None:
        """A pass has finished: tell everybody."""
        self._board.publish(report)
        self._log.log_report(report)
        if self.record.journal is not None:
            self._past.record(report, self.record.journal)
            self.record.journal.record(report)
        self._unready = unready(report, is_stale=is_stale, from_api=uses_api(self._options))
        self._refresh()
        if self._announcer is not None and self._lock.held:  # a second daemon would tell everything twice
            self._announcer.announce(report, self._log.warn)

    def note_silence(self, reasons: tuple[str, ...]) -> None:
        """Say what hangs at the moment; nothing: the loop turns."""
        self._silence = reasons
        self._refresh()

    def policy_loaded(self, policy: Policy, now: Now) -> None:
        """A new policy holds from now on; the next report brings it to the log and the journal."""
        self._limits = policy.journal
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._board.set_policy_error("")
        if self.record.journal is not None:
            self.record.journal.limits = policy.journal
        for warning in (*missing_sources(self._options, policy), *policy.warnings):
            self._log.warn(warning)

    def policy_refused(self, error: PolicyError, now: Now) -> None:
        """The policy file holds mistakes: the last good one goes on."""
        self._metrics.policy_reload(ok=False, wall_s=now.wall_s)
        self._board.set_policy_error(mistakes := "; ".join(map(str, error.problems)))
        message = f"the policy file holds mistakes, and the last good policy goes on: {mistakes}"
        self._log.say(Event.POLICY_REFUSED, message)
        if self.record.journal is not None:
            self.record.journal.note(Event.POLICY_REFUSED.value, message, now)

    def warn(self, warning: str) -> None:
        """Say that something is odd."""
        self._log.warn(warning)

    def note(self, text: str, *, is_problem: bool) -> None:
        """Say something of the cluster."""
        (self._log.warn if is_problem else self._log.inform)(text)

    def say_failure(self, error: Exception) -> None:
        """A pass has failed in a way that nobody foresaw."""
        self._log.crash(error, clock.now().boottime_s)

    def say_ending(self, why: str) -> None:
        """The daemon is going to end by itself."""
        self._log.loud(f"ending, to be started anew: {why}")

    def stop(self, outcomes: tuple[Outcome, ...], now: Now) -> None:
        """Close everything; deeds that were interrupted stand in the journal already."""
        self._log.log_outcomes(outcomes)
        if self._announcer is not None:
            self._announcer.announce_end(outcomes, self._log.warn)
        self._log.say(Event.STOPPED, "gpu-watchdog has stopped")
        if self.record.journal is not None:
            self._past.end(self.record.journal)
            self.record.journal.note(Event.STOPPED.value, "gpu-watchdog has stopped", now)
            self.record.journal.close()
            self.record.journal = None
        self._lock.release()

    def _open_journal(self, now: Now) -> Inheritance:
        journal = Journal.open(self._options.journal, self._limits, self._options.node, self._remedies)
        try:
            inheritance = Inheritance(unfinished=journal.unfinished(), brakes=journal.brakes(now))
            for deed in inheritance.unfinished:
                if deed.result is None:
                    journal.end(deed.deed, Result.INTERRUPTED, "the watchdog ended in the middle of it", now)
            self._metrics.recall(journal.lately(now), now.wall_s)
        except JournalError:
            journal.close()
            raise
        journal.note(Event.STARTED.value, f"gpu-watchdog {__version__} has begun", now)
        self.record.journal = journal
        return inheritance

    def _keep(self, journal: Journal, now: Now) -> None:
        journal.probe()
        for notice in journal.notices[self._noticed :]:
            self._log.loud(notice)
        self._noticed = len(journal.notices)
        if now.boottime_s >= self._next_prune_s:
            self._next_prune_s = now.boottime_s + _PRUNE_EVERY_S
            journal.prune(now)

    def _refresh(self) -> None:
        lock = [] if self._lock.held else [self._lock.problem or "the lock is not held"]
        self._board.set_unready((*lock, *self._silence, *self._unready))
        self._board.set_journal(self._said, self.record.journal.recent.deeds if self.record.journal else None)
