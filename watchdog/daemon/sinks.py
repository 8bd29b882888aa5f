"""The sinks of a finished cycle: journal, metrics, log, HTTP and Events; also the lock, and readiness."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from watchdog import __version__, clock
from watchdog.clock import Bell
from watchdog.config.fields import format_window
from watchdog.config.load import PolicyError
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import GapReason, MaintenanceStart, Now, ProcessKey
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle, Outcome, Result
from watchdog.core.policy import Brakes, JournalLimits, Policy
from watchdog.core.quiet import Resting, Ticks
from watchdog.core.repeats import Repeats
from watchdog.core.units import format_duration
from watchdog.daemon.enforcement import Enforcement, problems, remedies, stop_file
from watchdog.daemon.sources import NO_PODS, missing_sources, uses_api, with_gaps
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.log import EVERY_S, Log, configure
from watchdog.export.metrics import Metrics
from watchdog.journal.actions import CUT_SHORT, RestoredActions, UnfinishedAction
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.lock import NodeLock
from watchdog.journal.recorder import Recorder
from watchdog.journal.writer import JournalWriter
from watchdog.node.driver_thread import FIRST_PAUSE_S, LONGEST_PAUSE_S, PulseCost, PulseState
from watchdog.options import Options
from watchdog.report.changes import Change, ChangeKind, Changes
from watchdog.report.events import pod_events
from watchdog.report.recent import LastAction
from watchdog.report.sentences.node import maintenance_line, presumed_note
from watchdog.report.status_build import changes_status
from watchdog.report.text import span

if TYPE_CHECKING:
    from watchdog.kube.events import EventWriter


def report_of(
    opened: OpenCycle,
    closed: ClosedCycle,
    enforcement: Enforcement,
    *,
    policy_loaded_s: float,
    maintenance: str | None,
    ended: Now,
) -> CycleReport:
    """The report of a finished cycle. `policy_loaded_s` is Unix time."""
    inputs = opened.inputs
    return CycleReport(
        node=inputs.node,
        at=opened.snapshot.at,
        policy=inputs.policy,
        policy_loaded_at_s=policy_loaded_s,
        enforcing=enforcement.enforcing,
        suspended=enforcement.suspended,
        stops=enforcement.stops,
        snapshot=opened.snapshot,
        pods=with_gaps(inputs.pods, opened.assessments, inputs.overdue, opened.snapshot, inputs.node),
        attribution=opened.attribution,
        assessments=opened.assessments,
        plan=closed.plan,
        began=closed.began,
        outcomes=closed.outcomes,
        namespaces=inputs.namespaces,
        overdue=inputs.overdue,
        drains=inputs.drains,
        pinned=inputs.pinned,
        maintenance=maintenance,
        scan_s=opened.scan_s,
        duration_s=ended.boottime_s - opened.snapshot.at.boottime_s,
    )


_PRUNE_EVERY_S: Final = 60.0
# A starting daemon waits this long for its journal before its first cycle; once only if the disk hangs or the journal
# can't be opened.
_OPEN_WITHIN_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a daemon takes over from a journal: unfinished and recent actions, and what the brakes remember.

    `drained` are the processes that an MPS server was, or may have been, asked to drain by an earlier daemon.
    `maintenance` is when the maintenance began that was in progress when that daemon ended; None: there was none.
    """

    unfinished: tuple[UnfinishedAction, ...]
    drained: frozenset[ProcessKey]
    brakes: BrakeMemory
    recent: tuple[LastAction, ...]
    maintenance: MaintenanceStart | None = None


def restore(journal: Journal, lock: NodeLock, now: Now, known: frozenset[int] | None) -> Restored:
    """Take over the content of a journal that has just been opened.

    `known` are the actions in progress that this daemon knows from its previous journal; None: it had none. A blank
    file replaces a lost or damaged journal if an earlier daemon kept one here.
    """
    if journal.is_blank and (lock.had_file or (known is None and journal.notices)):
        journal.presume(now)
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
        self._repeats = Repeats(EVERY_S)
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
            self._keep(now)
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
        self.record.use(journal)
        if presumed := presumed_note(restored.brakes, self.brakes, now):
            self._log_error(presumed)
            self.record.note(ChangeKind.BRAKES_PRESUMED.value, presumed, now)
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
        journal.note(ChangeKind.STARTED.value, f"gpu-watchdog {__version__} has started", now)
        return journal, restored

    def _keep(self, now: Now) -> None:
        is_time = now.boottime_s >= self._next_prune_s
        if is_time:
            self._next_prune_s = now.boottime_s + _PRUNE_EVERY_S
        self.record.keep(now, prune=is_time)
        notices = self.record.notices
        for notice in notices[self._noticed :]:
            self._log_error(notice)
        self._noticed = len(notices)


def unready(report: CycleReport, *, is_stale: bool, from_api: bool) -> tuple[str, ...]:
    """Why the daemon is not ready after a cycle, one line per reason; empty: it is ready."""
    reasons = []
    if report.snapshot.blind:
        released = f"{maintenance_line(report)}: its GPUs are under maintenance, and NVML is released"
        reasons.append("NVML is not responding" if report.maintenance is None else released)
    if is_stale:
        reasons.append(_stale(report, from_api=from_api))
    return tuple(reasons)


def _stale(report: CycleReport, *, from_api: bool) -> str:
    why = "".join(f": {gap.problem}" for gap in report.pods.gaps[:1] if gap.reason is GapReason.PODS)
    synced = report.pods.synced
    if synced is None:
        return f"the API server has not listed the pods of this node yet{why}" if from_api else NO_PODS
    age_s = report.at.boottime_s - synced.boottime_s
    limit = format_duration(report.policy.stale_after_s)
    cause = (why or ": the API server has sent nothing") if from_api else ": is whatever writes it still running?"
    return f"the pod list is {age_s:.0f} s old (stale_after {limit}){cause}"


# How long stopping waits for the disk.
_CLOSE_WITHIN_S: Final = 0.3


class Sinks:
    """Publishes each cycle, and keeps the HTTP server running, without ever waiting."""

    def __init__(
        self,
        options: Options,
        policy: Policy,
        now: Now,
        event_writer: "EventWriter | None" = None,
        pulse: Callable[[], PulseState] = PulseState,
    ) -> None:
        """Open everything; ListenError if the address can't be bound.

        `bell` is rung when the journal has done something that the loop waits for. `pulse` is called at each scrape.
        """
        self.bell = Bell()
        configure()
        self._options = options
        self._event_writer = event_writer
        self._metrics = Metrics(event_writer.counts if event_writer is not None else None, clock.now, pulse)
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._remedies = remedies(options.journal, options.node)
        stop_path = str(stop_file(options.journal).absolute())
        to_do = {reason: problem.remedy for reason, problem in problems(options.journal, options.node).items()}
        self._endpoints = Endpoints(self._metrics, policy.interval_s, remedies=to_do, stop_file=stop_path)
        self._server = HttpServer(options.listen, self._endpoints)
        self._changes = Changes(self._remedies)
        self.daemon_log = Log()
        self.keeper = JournalKeeper(
            options,
            policy.journal,
            self._remedies,
            log_error=self.daemon_log.error,
            recall=self._metrics.recall,
            ring=self.bell.ring,
        )
        self.keeper.brakes = policy.brakes
        self.record = self.keeper.record
        self._past = Recorder()
        self._silence: tuple[str, ...] = ()
        self._unready: tuple[str, ...] = ()
        self._unsettled = ""
        self._is_pulse_expensive = False

    @property
    def has_lock(self) -> bool:
        """Whether this daemon holds its node's lock."""
        return self.keeper.lock.held

    @property
    def has_journal(self) -> bool:
        """Whether the journal is open, writable or not."""
        return self.record.is_open

    def start(self, policy: Policy, warnings: tuple[str, ...]) -> None:
        """Start serving HTTP, and log that the daemon has started."""
        self._server.start()
        message = f"gpu-watchdog {__version__} has started on node {self._options.node}, policy {policy.source}"
        self.daemon_log.write(ChangeKind.STARTED, message, mode=policy.mode, listen=self._server.address)
        if self._options.pods is None and not uses_api(self._options):
            self.daemon_log.warn(NO_PODS)
        self._warn_of(policy, *warnings)

    @property
    def awaits_cycles(self) -> bool:
        """Whether something is to be reported after some more cycles, even if these do not differ."""
        return self._changes.has_gaps

    def rest(self, resting: Resting) -> None:
        """Show the ticks that repeat the last cycle as they come in."""
        self._endpoints.rest(resting)

    def publish(self, report: CycleReport, *, is_stale: bool, ticks: Ticks | None = None) -> None:
        """Publish a finished cycle everywhere; or, as of the last of these ticks, one that they have only repeated."""
        changes = () if ticks is not None else self._changes.since(report, writes_events=self.has_lock)
        shown = changes_status(changes)
        self._endpoints.publish(report, shown, ticks)
        self.daemon_log.log_changes(shown)
        if left_out := self._changes.take_left_out(report.at):
            self.daemon_log.warn(left_out)
        if self.has_journal:
            self._past.record(report, self.record, is_repeated=ticks is not None)
            self.record.record(report, changes)
        self._unready = unready(report, is_stale=is_stale, from_api=uses_api(self._options))
        self._update_health()
        if self.has_lock:  # a second daemon would write every Event twice
            self._write_events(changes, report)

    def note_silence(self, reasons: tuple[str, ...]) -> None:
        """Report what is hanging; empty: nothing."""
        self._silence = reasons
        self._update_health()

    def note_pulse(self, cost: PulseCost | None) -> None:
        """Publish what the pulse costs on this driver; log, once, that it is too expensive, or no longer."""
        self._endpoints.pulse_cost = cost
        if cost is not None and cost.is_expensive != self._is_pulse_expensive:
            self._is_pulse_expensive = cost.is_expensive
            took = f"reading the memory counters takes {1000 * cost.seconds:.1f} ms on this driver"
            if cost.is_expensive:
                self.daemon_log.warn(
                    f"the pulse pauses, since {took}; readings come at `interval` until then. It is tried again after "
                    f"{span(FIRST_PAUSE_S)}, then after twice as long each time, up to {span(LONGEST_PAUSE_S)}"
                )
            else:
                self.daemon_log.inform(f"the pulse is on again: {took}")

    def note_spent_looks(self, cards: tuple[str, ...], policy: Policy) -> None:
        """Log that rises of these cards' counters bring no readings forward now."""
        if cards and policy.pulse is not None:
            self.daemon_log.warn(
                f"the memory of {', '.join(cards)} rises so often that its looks are spent ([pulse] looks, "
                f"{format_window(policy.pulse.looks)}): until one is free, its rises are seen at `interval`. If that "
                "is a pod's normal work, raise `rise` or `looks`"
            )

    def policy_loaded(self, policy: Policy, now: Now) -> None:
        """Apply a new policy; the next report brings it to the log and the journal."""
        self.keeper.limits, self.keeper.brakes = policy.journal, policy.brakes
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._endpoints.policy_error = ""
        self.record.set_limits(policy.journal)
        self._warn_of(policy)

    def _warn_of(self, policy: Policy, *warnings: str) -> None:
        for warning in (*warnings, *missing_sources(self._options, policy), *policy.warnings):
            self.daemon_log.warn(warning)

    def policy_refused(self, error: PolicyError, now: Now, *, has_settled: bool) -> None:
        """Report that the policy file has errors; the last valid policy stays in effect if one `has_settled`."""
        mistakes = "; ".join(map(str, error.problems))
        meanwhile = "the last valid policy stays in effect" if has_settled else "no action is taken until it is valid"
        message = f"the policy file has errors, and {meanwhile}: {mistakes}"
        self._refuse(mistakes, message, now)

    def note_policy_file(self, unsettled: str, now: Now) -> None:
        """Report, once, that the policy file has changed and does not settle; empty: it has settled.

        Until then it counts as a failed reload.
        """
        if unsettled == self._unsettled:
            return
        before, self._unsettled = self._unsettled, unsettled
        if unsettled:
            self._refuse(unsettled, unsettled, now)
        elif self._endpoints.policy_error == before:  # not loaded: the file is as it was before
            self._metrics.policy_reload(ok=True, wall_s=now.wall_s)
            self._endpoints.policy_error = ""

    def _refuse(self, policy_error: str, message: str, now: Now) -> None:
        self._metrics.policy_reload(ok=False, wall_s=now.wall_s)
        self._endpoints.policy_error = policy_error
        self.daemon_log.write(ChangeKind.POLICY_REFUSED, message)
        self.record.note(ChangeKind.POLICY_REFUSED.value, message, now)

    def stop(self, outcomes: tuple[Outcome, ...], now: Now) -> None:
        """Close everything; actions that were interrupted are in the journal already."""
        changes, report = tuple(self._changes.ended(outcomes)), self._endpoints.report
        self.daemon_log.log_changes(changes_status(changes))
        if report is not None:
            self._write_events(changes, report)
        self.daemon_log.write(ChangeKind.STOPPED, "gpu-watchdog has stopped")
        if self.has_journal:
            self._past.end(self.record)
            self.record.note(ChangeKind.STOPPED.value, "gpu-watchdog has stopped", now)
        if not self.record.close(_CLOSE_WITHIN_S):
            self.daemon_log.warn(
                "the journal's disk is not responding: the last records may be missing from the journal"
            )
        self.keeper.report_lost()
        self.keeper.lock.release()

    def _write_events(self, changes: Iterable[Change], report: CycleReport) -> None:
        if self._event_writer is not None:
            self._event_writer.offer(tuple(pod_events(changes, report)))
            for message in self._event_writer.messages.take():
                self.daemon_log.warn(message)

    def _update_health(self) -> None:
        lock = [] if self.has_lock else [self.keeper.lock.problem or "the lock is not held"]
        self._endpoints.unready = (*lock, *self._silence, *self._unready)
        self._endpoints.set_journal(self.keeper.problem, self.record.recent)
