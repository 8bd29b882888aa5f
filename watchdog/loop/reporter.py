"""The reporter: everything that leaves the daemon, and the lock and journal that it needs to act."""

from typing import TYPE_CHECKING, Final

from watchdog import __version__, clock
from watchdog.bell import Bell
from watchdog.config.mistakes import PolicyError
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome
from watchdog.core.policy import Policy
from watchdog.export.board import Board
from watchdog.export.http import HttpServer
from watchdog.export.log_form import configure
from watchdog.export.logs import Log
from watchdog.export.metrics import Metrics
from watchdog.export.news_item import Event
from watchdog.loop.enforcement import remedies, stop_file
from watchdog.loop.keeper import Ears, Inheritance, Keeper
from watchdog.loop.sources import NO_PODS, missing_sources, uses_api
from watchdog.loop.unready import unready
from watchdog.options import Options
from watchdog.past.recorder import Recorder

if TYPE_CHECKING:
    from watchdog.loop.announcer import Announcer


# The end of the daemon waits so long for the disk.
_CLOSE_WITHIN_S: Final = 0.3


class Reporter:
    """Publishes each pass, and keeps lock, journal and HTTP going; nothing here waits for anything."""

    def __init__(self, options: Options, policy: Policy, now: Now, announcer: "Announcer | None" = None) -> None:
        """Open what can be opened; ListenError where the address can't be had.

        `bell` is rung when the journal has done something that is waited for.
        """
        self.bell = Bell()
        configure()
        self._options = options
        self._announcer = announcer
        self._metrics = Metrics(announcer.counts if announcer is not None else None, clock.now)
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._remedies = remedies(options.journal, options.node)
        looks_for = str(stop_file(options.journal).absolute())
        self._board = Board(self._metrics, policy.interval_s, remedies=self._remedies, stop_file=looks_for)
        self._server = HttpServer(options.listen, self._board)
        self._log = Log(self._remedies)
        ears = Ears(loud=self._log.loud, recall=self._metrics.recall, ring=self.bell.ring)
        self._keeper = Keeper(options.journal, options.node, policy.journal, self._remedies, ears)
        self._keeper.brakes = policy.brakes
        self.record = self._keeper.record
        self._past = Recorder()
        self._silence: tuple[str, ...] = ()
        self._unready: tuple[str, ...] = ()
        self._unsettled = ""

    @property
    def has_lock(self) -> bool:
        """Whether this daemon is the one of its node."""
        return self._keeper.lock.held

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal; whether it takes writes at the moment is `is_writable`."""
        return self.record.is_open

    @property
    def is_writable(self) -> bool:
        """Whether a deed could be written down, as far as that lies with the journal."""
        return self._keeper.is_writable

    def start(self, policy: Policy, warnings: tuple[str, ...]) -> None:
        """Begin to answer, and say that the daemon has begun."""
        self._server.start()
        message = f"gpu-watchdog {__version__} has begun on node {self._options.node}, policy {policy.source}"
        self._log.say(Event.STARTED, message, mode=policy.mode, listen=self._server.address)
        if self._options.pods is None and not uses_api(self._options):
            self._log.warn(NO_PODS)
        for warning in (*warnings, *missing_sources(self._options, policy), *policy.warnings):
            self._log.warn(warning)

    def tend(self, now: Now) -> Inheritance | None:
        """Try for the lock and the journal again where they are missing, and keep the journal within its bounds.

        Where a journal has just been opened, gives what an earlier daemon left in it; deeds without an end are closed
        in it as interrupted.
        """
        return self._keeper.tend(now)

    def publish(self, report: CycleReport, *, is_stale: bool) -> None:
        """A pass has finished: tell everybody."""
        self._board.publish(report)
        self._log.log_report(report)
        if self.has_journal:
            self._past.record(report, self.record)
            self.record.record(report)
        self._unready = unready(report, is_stale=is_stale, from_api=uses_api(self._options))
        self._refresh()
        if self._announcer is not None and self.has_lock:  # a second daemon would tell everything twice
            self._announcer.announce(report, self._log.warn)

    def note_silence(self, reasons: tuple[str, ...]) -> None:
        """Say what hangs at the moment; nothing: the loop turns."""
        self._silence = reasons
        self._refresh()

    def policy_loaded(self, policy: Policy, now: Now) -> None:
        """A new policy holds from now on; the next report brings it to the log and the journal."""
        self._keeper.limits, self._keeper.brakes = policy.journal, policy.brakes
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._board.set_policy_error("")
        self.record.set_limits(policy.journal)
        for warning in (*missing_sources(self._options, policy), *policy.warnings):
            self._log.warn(warning)

    def policy_refused(self, error: PolicyError, now: Now) -> None:
        """The policy file holds mistakes: the last good one goes on."""
        self._metrics.policy_reload(ok=False, wall_s=now.wall_s)
        self._board.set_policy_error(mistakes := "; ".join(map(str, error.problems)))
        self._say_refused(f"the policy file holds mistakes, and the last good policy goes on: {mistakes}", now)

    def note_policy_file(self, unsettled: str, now: Now) -> None:
        """Report, once, that the policy file has changed and does not settle; empty: there is no such file (any more).

        As long as that lasts it counts as a reload that has failed.
        """
        if unsettled == self._unsettled:
            return
        before, self._unsettled = self._unsettled, unsettled
        if unsettled:
            self._metrics.policy_reload(ok=False, wall_s=now.wall_s)
            self._board.set_policy_error(unsettled)
            self._say_refused(unsettled, now)
        elif self._board.policy_error == before:  # not loaded: it is what it was
            self._metrics.policy_reload(ok=True, wall_s=now.wall_s)
            self._board.set_policy_error("")

    def _say_refused(self, message: str, now: Now) -> None:
        self._log.say(Event.POLICY_REFUSED, message)
        self.record.note(Event.POLICY_REFUSED.value, message, now)

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
        if self.has_journal:
            self._past.end(self.record)
            self.record.note(Event.STOPPED.value, "gpu-watchdog has stopped", now)
        if not self.record.close(_CLOSE_WITHIN_S):
            self._log.warn("the journal's disk hangs: the last records may be missing from it")
        self._keeper.lock.release()

    def _refresh(self) -> None:
        lock = [] if self.has_lock else [self._keeper.lock.problem or "the lock is not held"]
        self._board.set_unready((*lock, *self._silence, *self._unready))
        self._board.set_journal(self._keeper.problem, self.record.recent)
