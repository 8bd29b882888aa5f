"""Where a finished cycle goes, the lock and the journal without which nothing is enforced, and why it is not ready."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog import __version__, clock
from watchdog.clock import Bell
from watchdog.config.mistakes import PolicyError
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import GapReason, Now
from watchdog.core.plan import CycleReport, Finish, OpenCycle, Outcome, Result
from watchdog.core.policy import Brakes, JournalLimits, Policy
from watchdog.core.units import format_duration
from watchdog.daemon.enforcement import Enforcement, remedies, stop_file
from watchdog.daemon.sources import NO_PODS, missing_sources, uses_api, with_gaps
from watchdog.export.board import Board
from watchdog.export.http_server import HttpServer
from watchdog.export.log import Log, Repeats, configure
from watchdog.export.metrics import Metrics
from watchdog.journal.actions import RestoredActions, UnfinishedAction
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.lock import NodeLock
from watchdog.journal.writer import JournalWriter
from watchdog.options import Options
from watchdog.past.recorder import Recorder
from watchdog.report.brakes import presumed_note
from watchdog.report.changes import ChangeKind, Changes, outcome_changes
from watchdog.report.recent import LastAction

if TYPE_CHECKING:
    from watchdog.daemon.cluster import EventRecorder


def report_of(
    opened: OpenCycle,
    finish: Finish,
    enforcement: Enforcement,
    *,
    policy_loaded_s: float,
    maintenance: str | None,
    ended: Now,
) -> CycleReport:
    """Put together what a cycle saw, and what it came to. `policy_loaded_s` is Unix time."""
    setting = opened.view.setting
    return CycleReport(
        node=setting.node,
        at=opened.snapshot.at,
        policy=setting.policy,
        policy_loaded_at_s=policy_loaded_s,
        enforcing=enforcement.enforcing,
        suspended=enforcement.suspended,
        snapshot=opened.snapshot,
        pods=with_gaps(opened.view.pods, opened.assessments, opened.overdue),
        attribution=opened.attribution,
        assessments=opened.assessments,
        plan=finish.plan,
        began=finish.began,
        outcomes=finish.outcomes,
        namespaces=setting.namespaces,
        maintenance=maintenance,
        scan_s=opened.scan_s,
        duration_s=ended.boottime_s - opened.snapshot.at.boottime_s,
    )


_PRUNE_EVERY_S: Final = 60.0
# A daemon that starts knows of its journal before its first cycle. A disk that hangs is waited for only once, and so is
# a journal that can't be opened.
_OPEN_WITHIN_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a journal tells a daemon that starts: actions that nobody saw the end of, and what the brakes remember."""

    unfinished: tuple[UnfinishedAction, ...]
    brakes: BrakeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
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
    unfinished = tuple(action for action in journal.unfinished() if action.number not in (known or ()))
    for action in unfinished:
        if action.result is None:
            journal.end(action.number, Result.INTERRUPTED, "the watchdog ended in the middle of it", now)
    return Inheritance(unfinished=unfinished, brakes=journal.brakes(now))


def _asked_again(opened: _Opened, now: Now) -> _Opened:
    return replace(opened, inheritance=replace(opened.inheritance, brakes=opened.journal.brakes(now)))


class JournalKeeper:
    """Holds the lock and the journal of one daemon; the disk is left to the thread of `record`.

    `problem` says what is missing at the moment, with the remedy; empty: nothing. `limits`, `brakes`: of the policy.
    """

    def __init__(
        self, path: Path, node: str, limits: JournalLimits, remedies: Mapping[str, str], ears: Listeners
    ) -> None:
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
        self._kept: RestoredActions | None = None
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
            self.record.note(ChangeKind.BRAKES_PRESUMED.value, presumed, now)
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
        journal.note(ChangeKind.STARTED.value, f"gpu-watchdog {__version__} has begun", now)
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


def unready(report: CycleReport, *, is_stale: bool, from_api: bool) -> tuple[str, ...]:
    """What a cycle lacked for doing its work; nothing: it is ready."""
    blind = [_blind(report)] if report.snapshot.blind else []
    return (*blind, *([_stale(report, from_api=from_api)] if is_stale else []))


def _blind(report: CycleReport) -> str:
    if report.maintenance is None:
        return "NVML does not answer"
    return f"{report.maintenance}: its GPUs are under maintenance, and NVML is let go"


def _stale(report: CycleReport, *, from_api: bool) -> str:
    why = "".join(f": {gap.problem}" for gap in report.pods.gaps[:1] if gap.reason is GapReason.PODS)
    synced = report.pods.synced
    if synced is None:
        return f"the API server has not given the pods of this node yet{why}" if from_api else NO_PODS
    age_s = report.at.boottime_s - synced.boottime_s
    limit = format_duration(report.policy.stale_after_s)
    cause = (why or ": nothing has come from the API server") if from_api else ": is whatever writes it still running?"
    return f"the pod list is {age_s:.0f} s old (stale_after {limit}){cause}"


# The end of the daemon waits so long for the disk.
_CLOSE_WITHIN_S: Final = 0.3


class Sinks:
    """Publishes each cycle, and keeps lock, journal and HTTP going; nothing here waits for anything."""

    def __init__(
        self, options: Options, policy: Policy, now: Now, event_recorder: "EventRecorder | None" = None
    ) -> None:
        """Open what can be opened; ListenError where the address can't be had.

        `bell` is rung when the journal has done something that is waited for.
        """
        self.bell = Bell()
        configure()
        self._options = options
        self._event_recorder = event_recorder
        self._metrics = Metrics(event_recorder.counts if event_recorder is not None else None, clock.now)
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._remedies = remedies(options.journal, options.node)
        looks_for = str(stop_file(options.journal).absolute())
        self._board = Board(self._metrics, policy.interval_s, remedies=self._remedies, stop_file=looks_for)
        self._server = HttpServer(options.listen, self._board)
        self._changes = Changes(self._remedies)
        self._log = Log()
        ears = Listeners(loud=self._log.loud, recall=self._metrics.recall, ring=self.bell.ring)
        self._keeper = JournalKeeper(options.journal, options.node, policy.journal, self._remedies, ears)
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
        """Whether an action could be written down, as far as that lies with the journal."""
        return self._keeper.is_writable

    def start(self, policy: Policy, warnings: tuple[str, ...]) -> None:
        """Begin to answer, and say that the daemon has begun."""
        self._server.start()
        message = f"gpu-watchdog {__version__} has begun on node {self._options.node}, policy {policy.source}"
        self._log.say(ChangeKind.STARTED, message, mode=policy.mode, listen=self._server.address)
        if self._options.pods is None and not uses_api(self._options):
            self._log.warn(NO_PODS)
        for warning in (*warnings, *missing_sources(self._options, policy), *policy.warnings):
            self._log.warn(warning)

    def tend(self, now: Now) -> Inheritance | None:
        """Try for the lock and the journal again where they are missing, and keep the journal within its bounds.

        Where a journal has just been opened, gives what an earlier daemon left in it; actions without an end are closed
        in it as interrupted.
        """
        return self._keeper.tend(now)

    def publish(self, report: CycleReport, *, is_stale: bool) -> None:
        """A cycle has finished: tell everybody."""
        changes = self._changes.since(report)
        self._board.publish(report)
        self._log.log_changes(changes)
        if self.has_journal:
            self._past.record(report, self.record)
            self.record.record(report, changes)
        self._unready = unready(report, is_stale=is_stale, from_api=uses_api(self._options))
        self._refresh()
        if self._event_recorder is not None and self.has_lock:  # a second daemon would tell everything twice
            self._event_recorder.announce(report, self._log.warn)

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
        self._log.say(ChangeKind.POLICY_REFUSED, message)
        self.record.note(ChangeKind.POLICY_REFUSED.value, message, now)

    def warn(self, warning: str) -> None:
        """Say that something is odd."""
        self._log.warn(warning)

    def note(self, text: str, *, is_problem: bool) -> None:
        """Say something of the cluster."""
        (self._log.warn if is_problem else self._log.inform)(text)

    def say_failure(self, error: Exception) -> None:
        """A cycle has failed in a way that nobody foresaw."""
        self._log.crash(error, clock.now().boottime_s)

    def say_ending(self, why: str) -> None:
        """The daemon is going to end by itself."""
        self._log.loud(f"ending, to be started anew: {why}")

    def stop(self, outcomes: tuple[Outcome, ...], now: Now) -> None:
        """Close everything; actions that were interrupted stand in the journal already."""
        self._log.log_changes(change for outcome in outcomes for change in outcome_changes(outcome))
        if self._event_recorder is not None:
            self._event_recorder.announce_end(outcomes, self._log.warn)
        self._log.say(ChangeKind.STOPPED, "gpu-watchdog has stopped")
        if self.has_journal:
            self._past.end(self.record)
            self.record.note(ChangeKind.STOPPED.value, "gpu-watchdog has stopped", now)
        if not self.record.close(_CLOSE_WITHIN_S):
            self._log.warn("the journal's disk hangs: the last records may be missing from it")
        self._keeper.lock.release()

    def _refresh(self) -> None:
        lock = [] if self.has_lock else [self._keeper.lock.problem or "the lock is not held"]
        self._board.set_unready((*lock, *self._silence, *self._unready))
        self._board.set_journal(self._keeper.problem, self.record.recent)
