"""The sinks of finished cycles: endpoints, log, recording, journal and Events; and what they show beside the cycles."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from watchdog import __version__, clock
from watchdog.clock import Bell
from watchdog.config.fields import format_window
from watchdog.config.load import PolicyError
from watchdog.core.model import GapReason, Now
from watchdog.core.plan import CycleReport, Outcome
from watchdog.core.policy import Policy
from watchdog.core.quiet import Resting, Ticks
from watchdog.core.units import format_duration
from watchdog.daemon.sources import NO_PODS, missing_sources, uses_api
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.log import Log
from watchdog.export.metrics import Metrics
from watchdog.export.report import PATIENCE_S
from watchdog.journal.errors import JournalError
from watchdog.journal.keeper import JournalKeeper
from watchdog.journal.playback import NothingRecordedError
from watchdog.journal.recorder import Recorder
from watchdog.journal.utilization import node_hours
from watchdog.journal.writer import JournalWriter
from watchdog.node.drivers.thread import FIRST_LONG_PAUSE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, PulseState, ReadCost
from watchdog.options import Options, stop_file
from watchdog.past.hour import recorded_hour
from watchdog.report.card_hours import bounded, encode_hours
from watchdog.report.changes import Change, ChangeKind, Changes
from watchdog.report.events import pod_events
from watchdog.report.recent import LastAction
from watchdog.report.sentences.node import maintenance_line
from watchdog.report.sentences.suspension import problems, remedies
from watchdog.report.status_build import changes_status
from watchdog.report.text import span

if TYPE_CHECKING:
    from watchdog.kube.events import EventWriter


class Sink(Protocol):
    """Where finished cycles go. It never waits, and never raises for anything outside this program."""

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Take a finished cycle and what is new in it; or, as of the last of these ticks, one that they repeated."""
        ...

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """End: no cycle follows. `changes` are those of the actions that the daemon's end has interrupted."""
        ...


class EndpointSink:
    """Puts cycles on the metrics, the status and the page, which show the last one until the process ends."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Show this cycle from now on."""
        self._endpoints.publish(report, changes_status(changes), ticks)

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Nothing is shown any more."""


class LogSink:
    """Writes a line for each change."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Write its changes."""
        self._log.log_changes(changes_status(changes))

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Write the last changes, and that the daemon has stopped."""
        self._log.log_changes(changes_status(changes))
        self._log.write(ChangeKind.STOPPED, _STOPPED)


class RecordingSink:
    """Records what each cycle changed, as long as the journal is open."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._recorder = Recorder()

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Record it, before the rows that it adds to the journal."""
        if self._journal.is_open:
            self._recorder.record(report, self._journal, is_repeated=ticks is not None)

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Write what is left."""
        if self._journal.is_open:
            self._recorder.end(self._journal)


class JournalSink:
    """Adds a row to the journal for each change, as long as it is open."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Add its changes."""
        if self._journal.is_open:
            self._journal.record(report, changes)

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Note that the daemon has stopped; the journal has the interrupted actions already."""
        if self._journal.is_open:
            self._journal.record_event(ChangeKind.STOPPED.value, _STOPPED, now)


class EventSink:
    """Writes Events on the pods that changes concern, while this daemon `has_lock`: a second one would repeat them."""

    def __init__(self, writer: "EventWriter", log: Log, has_lock: Callable[[], bool]) -> None:
        self._writer = writer
        self._log = log
        self._has_lock = has_lock
        self._last: CycleReport | None = None

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Queue the Events of its changes, and log what has become of earlier ones."""
        self._last = report
        if self._has_lock():
            self._offer(changes, report)

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Queue the last Events."""
        if self._last is not None:
            self._offer(changes, self._last)

    def _offer(self, changes: Sequence[Change], report: CycleReport) -> None:
        self._writer.offer(tuple(pod_events(changes, report)))
        for message in self._writer.messages.take_new():
            self._log.warn(message)


def unready(report: CycleReport, *, is_stale: bool, from_api: bool) -> tuple[str, ...]:
    """Why the daemon is not ready after a cycle, one line per reason; empty: it is ready."""
    reasons = []
    if report.snapshot.blind:
        interface = report.snapshot.interface
        released = f"{maintenance_line(report)}: its GPUs are under maintenance, and {interface} is released"
        reasons.append(f"{interface} is not responding" if report.maintenance is None else released)
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
_STOPPED: Final = "gpu-watchdog has stopped"


class Sinks:
    """Publishes each cycle to every sink, and shows beside them how the daemon itself is."""

    def __init__(
        self,
        options: Options,
        policy: Policy,
        now: Now,
        event_writer: "EventWriter | None" = None,
        pulse: Callable[[], PulseState] = PulseState,
        *,
        further: Sequence[Sink] = (),
    ) -> None:
        """Open everything; ListenError if the address can't be bound.

        `bell` is rung when the journal has done something that the loop waits for. `pulse` is called at each scrape.
        The `further` sinks come last.
        """
        self.bell = Bell()
        self._options = options
        counts = event_writer.counts if event_writer is not None else None
        self._metrics = Metrics(counts, clock.now, pulse, lambda: self.has_lock)
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._remedies = remedies(options.journal, options.node)
        stop_path = str(stop_file(options.journal).absolute())
        to_do = {reason: problem.remedy for reason, problem in problems(options.journal, options.node).items()}
        self._endpoints = Endpoints(
            self._metrics, policy.interval_s, remedies=to_do, stop_file=stop_path, report=self._read_report
        )
        self._server = HttpServer(options.listen, self._endpoints, options.probes) if options.serves else None
        self._changes = Changes(self._remedies)
        self.daemon_log = Log()
        self.keeper = JournalKeeper(
            options,
            policy.journal,
            self._remedies,
            log_error=self.daemon_log.error,
            recall=self._recall,
            ring=self.bell.ring,
        )
        self.keeper.brakes = policy.brakes
        self.record = self.keeper.record
        self._sinks: list[Sink] = [
            EndpointSink(self._endpoints),
            LogSink(self.daemon_log),
            RecordingSink(self.record),
            JournalSink(self.record),
        ]
        if event_writer is not None:
            self._sinks.append(EventSink(event_writer, self.daemon_log, lambda: self.has_lock))
        self._sinks += further
        self._policy = policy
        # What reads the hour before the start from the journal; None: it has not begun.
        self._reading: threading.Thread | None = None
        self._silence: tuple[str, ...] = ()
        self._unready: tuple[str, ...] = ()
        self._unsettled = ""
        # What is read too seldom now, since it is too expensive.
        self._expensive: set[str] = set()

    def _recall(self, recent: tuple[LastAction, ...], wall_s: float) -> None:
        """Take over what a journal that has been opened knows of the time before."""
        self._metrics.recall(recent, wall_s)
        if self._reading is None:
            self._reading = threading.Thread(target=self._read_hour, args=(clock.now(),), name="hour", daemon=True)
            self._reading.start()

    def _read_hour(self, now: Now) -> None:
        try:
            earlier, problem = recorded_hour(self._options.journal, self._policy, now, clock.Breather())
        except NothingRecordedError:
            return
        except JournalError as error:
            problem = str(error)
        else:
            self._endpoints.hour.begin_with(earlier)
        if problem:
            self.daemon_log.warn(f"the hour before this start can't be shown whole, which affects no action: {problem}")

    def _read_report(self, since_s: float) -> bytes:
        """The JSON of `/api/report`, on a thread of its own; JournalError."""
        path, now_s = self._options.journal, clock.now().wall_s
        found = node_hours(path, self._options.node, since_s, now_s, within_s=PATIENCE_S)
        return encode_hours(bounded(found))

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
        if self._server is not None:
            self._server.start()
        message = f"gpu-watchdog {__version__} has started on node {self._options.node}, policy {policy.source}"
        listens = {} if self._server is None else {"listen": self._server.address}
        self.daemon_log.write(ChangeKind.STARTED, message, mode=policy.mode, **listens)
        if self._options.pods is None and not uses_api(self._options):
            self.daemon_log.warn(NO_PODS)
        self._warn_of(policy, *warnings)

    @property
    def awaits_cycles(self) -> bool:
        """Whether the end of a gap is to be reported after some more cycles, even if they only repeat the last one."""
        return bool(self._changes.gap_reasons)

    @property
    def awaits_full_cycles(self) -> bool:
        """Whether a gap is known that only a whole cycle may end: a repeated one is never late, that is all."""
        return bool(self._changes.gap_reasons - {GapReason.CYCLE_LATE})

    def begin_rest(self, resting: Resting) -> None:
        """Show the ticks that repeat the last cycle as they come in."""
        self._endpoints.begin_rest(resting)

    def publish(self, report: CycleReport, *, is_stale: bool, ticks: Ticks | None = None) -> bool:
        """Publish a finished cycle everywhere; or, as of the last of these ticks, one that they have only repeated.

        Returns whether every sink has taken it: one that fails, by a bug, withholds nothing from the others.
        """
        # Ticks that repeat a cycle bring nothing new, but that an account has computed nothing for long enough by now.
        has_news = ticks is None or bool(report.utilization.found_idle)
        changes = tuple(self._changes.since(report, writes_events=self.has_lock)) if has_news else ()
        taken = [self._has_taken(sink, lambda sink: sink.publish(report, changes, ticks)) for sink in self._sinks]
        if left_out := self._changes.take_left_out(report.at):
            self.daemon_log.warn(left_out)
        self._unready = unready(report, is_stale=is_stale, from_api=uses_api(self._options))
        self._update_health()
        return all(taken)

    def _has_taken(self, sink: Sink, give: Callable[[Sink], None]) -> bool:
        """Give something to a sink; whether it was taken."""
        try:
            give(sink)
        except Exception as error:  # by now actions have begun, and the journal must have them
            what = f"{type(sink).__name__} failed unexpectedly and lacks a cycle that other sinks have"
            self.daemon_log.crash(error, clock.now().boottime_s, what)
            return False
        return True

    def note_silence(self, reasons: tuple[str, ...]) -> None:
        """Report what is hanging; empty: nothing."""
        self._silence = reasons
        self._update_health()

    def note_pulse(self, cost: ReadCost | None) -> None:
        """Publish what the pulse costs on this driver; log, once, that it is too expensive, or no longer."""
        self._endpoints.health.pulse_cost = cost
        if cost is not None:
            took = f"reading the memory counters takes {1000 * cost.seconds:.1f} ms on this driver"
            pauses = f"the pulse pauses, since {took}; readings come at `interval` until then"
            self._note_cost("pulse", cost, pauses, f"the pulse is on again: {took}", FIRST_PAUSE_S)

    def note_utilization(self, cost: ReadCost | None) -> None:
        """Log, once, that reading the utilisation is too expensive on this driver, or no longer."""
        if cost is not None:
            took = f"reading the utilisation takes {1000 * cost.seconds:.0f} ms on this driver"
            pauses = f"utilisation is not read, since {took}, and is unknown until then"
            self._note_cost("utilization", cost, pauses, f"utilisation is read again: {took}", FIRST_LONG_PAUSE_S)

    def _note_cost(self, what: str, cost: ReadCost, pauses: str, goes_on: str, first_pause_s: float) -> None:
        """Log that reads have become too expensive, or that they are no longer."""
        if cost.is_expensive == (what in self._expensive):
            return
        self._expensive ^= {what}
        if cost.is_expensive:
            self.daemon_log.warn(
                f"{pauses}. It is tried again after {span(first_pause_s)}, then after twice as long each time, up to "
                f"{span(LONGEST_PAUSE_S)}"
            )
        else:
            self.daemon_log.inform(goes_on)

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
        self._policy = policy
        self.keeper.limits, self.keeper.brakes = policy.journal, policy.brakes
        self._metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy)
        self._endpoints.health.policy_error = ""
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
        elif self._endpoints.health.policy_error == before:  # not loaded: the file is as it was before
            self._metrics.policy_reload(ok=True, wall_s=now.wall_s)
            self._endpoints.health.policy_error = ""

    def _refuse(self, policy_error: str, message: str, now: Now) -> None:
        self._metrics.policy_reload(ok=False, wall_s=now.wall_s)
        self._endpoints.health.policy_error = policy_error
        self.daemon_log.write(ChangeKind.POLICY_REFUSED, message)
        self.record.record_event(ChangeKind.POLICY_REFUSED.value, message, now)

    def stop(self, outcomes: tuple[Outcome, ...], now: Now) -> None:
        """Close everything; actions that were interrupted are in the journal already."""
        changes = tuple(self._changes.ended(outcomes))
        for sink in self._sinks:
            self._has_taken(sink, lambda sink: sink.stop(changes, now))
        if not self.record.close(_CLOSE_WITHIN_S):
            self.daemon_log.warn(
                "the journal's disk is not responding: the last records may be missing from the journal"
            )
        self.keeper.report_lost()
        self.keeper.lock.release()

    def _update_health(self) -> None:
        lock = [] if self.has_lock else [self.keeper.lock.problem or "the lock is not held"]
        self._endpoints.health.unready = (*lock, *self._silence, *self._unready)
        self._endpoints.set_journal(self.keeper.problem, self.record.recent)
