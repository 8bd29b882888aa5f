"""What happens on the simulated node, as lines to print: a sink of the daemon's cycles."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from watchdog import clock
from watchdog.cli.demo.screen import DemoEvent, DemoView
from watchdog.cli.demo.sim import RunningPod, is_alive
from watchdog.core.assessment import Assessment
from watchdog.core.ledger import UnderWay
from watchdog.core.model import Now, ProcessKey, elapsed_s
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.core.quiet import Ticks
from watchdog.core.units import format_bytes, format_duration
from watchdog.kube.event_objects import PodEvent
from watchdog.report.changes import Change
from watchdog.report.events import KILLED, RELEASED, pod_events
from watchdog.report.sentences.usage import threshold_text
from watchdog.report.status import Status
from watchdog.report.status_build import status_of
from watchdog.report.text import span

_GOOD, _WARN, _BAD = "green", "yellow", "bold red"
_AFTER_SIGTERM_S: Final = 0.5
# How long the other pods are watched after the memory was released.
_AFTERWARDS_S: Final = 1.5
_TOO_LONG_S: Final = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenCycle:
    """A finished cycle: what there is to show of it, and when the node was read."""

    status: Status
    at: Now


class Story:
    """Collects the events of the demo from the daemon's cycles; implements `Sink`. Another thread may show them."""

    def __init__(self, policy: Policy, pods: Sequence[RunningPod], begin: Now) -> None:
        """`begin` is when the demo began."""
        self.has_ended = threading.Event()  # set once no cycle follows
        self.events: list[DemoEvent] = []
        self._pods = pods
        self._begin = begin
        self._rule = _rule_text(policy)
        self._seen: _SeenCycle | None = None
        self._over: set[str] = set()
        self._begun: dict[str, Outcome] = {}  # kills by the UID of their pod
        self._signalled: set[ProcessKey] = set()
        self._left: list[ProcessKey] = []  # what SIGTERM has not ended so far
        self._has_exits = False  # whether the events have what SIGTERM has ended
        self._has_sigkill = False
        self._outcome: Outcome | None = None
        self._pod_events: tuple[PodEvent, ...] = ()
        self._names_by_key = {
            key: process.name for pod in pods for process, key in zip(pod.spec.processes, pod.keys, strict=True)
        }
        for pod in pods:
            self._add(begin, "started", f"{pod.spec.name}: {self._names(pod.keys)}")

    # ---- the sink

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Report which pods went over their limit or came back, and what was done."""
        self._seen = _SeenCycle(status=status_of(report), at=report.at)
        if ticks is not None:
            return
        for assessment in report.assessments:
            if assessment.account.uid not in self._begun:
                self._compare(assessment, report.at)
        for outcome in report.began:
            self._add_beginning(outcome)
        for begun in self._begun.values():
            state = report.plan.ledger.accounts.get(begun.entry.account)
            self._follow_kill(begun, state.under_way if state is not None else None, clock.now())
        for outcome in report.outcomes:
            self._add_outcome(outcome)
        self._pod_events += tuple(pod_events(changes, report))

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """End what shows the events."""
        self.has_ended.set()

    # ---- what there is to show

    @property
    def view(self) -> DemoView | None:
        """What there is to show now; None before the first cycle."""
        seen, now = self._seen, clock.now()
        if seen is None:
            return None
        return DemoView(
            second=elapsed_s(self._begin, now),
            status=seen.status,
            elapsed_s=elapsed_s(seen.at, now),
            rule=self._rule,
            events=tuple(self.events),
        )

    @property
    def is_over(self) -> bool:
        """Whether everything has been shown, or it has taken too long."""
        now, end = clock.now(), self._outcome
        if end is None:
            return elapsed_s(self._begin, now) >= _TOO_LONG_S
        return end.result is not Result.DONE or elapsed_s(end.at, now) >= _AFTERWARDS_S

    @property
    def victim_events(self) -> tuple[PodEvent, ...]:
        """The Events of the kill on the pod that was killed, as a daemon in a cluster writes them."""
        wanted = (KILLED, RELEASED)
        return tuple(each for each in self._pod_events if each.uid in self._begun and each.reason in wanted)

    def end(self) -> bool:
        """Report whether the pods that were not killed run on; whether everything went as expected."""
        others = [key for pod in self._pods if pod.spec.uid not in self._begun for key in pod.keys]
        is_killed = self._outcome is not None and self._outcome.result is Result.DONE
        if all(is_alive(key) and key not in self._signalled for key in others):
            self._add(clock.now(), "alive", f"{self._names(others)} still up, never signalled", _GOOD)
            return is_killed
        self._add(clock.now(), "lost", f"not all of {self._names(others)} are still up", _BAD)
        return False

    # ---- events

    def _compare(self, assessment: Assessment, now: Now) -> None:
        uid, title, allowed = assessment.account.uid, assessment.pod.title, assessment.allowed or 0
        if assessment.used_at_least > allowed and uid not in self._over:
            self._over.add(uid)
            used = format_bytes(assessment.used_at_least)
            self._add(now, "over", f"{title} uses {used}; its limit is {format_bytes(allowed)}", _WARN)
        elif assessment.used is not None and assessment.used <= allowed and uid in self._over:
            self._over.remove(uid)
            self._add(now, "within", f"{title} is within its limit again, timers reset", _GOOD)

    def _add_beginning(self, outcome: Outcome) -> None:
        self._begun[outcome.entry.account.uid] = outcome
        self._signalled.update(outcome.signalled)
        self._left = list(outcome.signalled)
        self._add(outcome.at, "kill", f"{_step_text(outcome.entry)}; recorded first", _BAD)
        self._add(outcome.at, "SIGTERM", self._names(outcome.signalled), _BAD)

    def _follow_kill(self, begun: Outcome, under_way: UnderWay | None, now: Now) -> None:
        """Report once which processes SIGTERM has ended and which not, a little after it, and once that SIGKILL came.

        The daemon sends SIGKILL as soon as the grace period ends, up to a second before the cycle that shows it.
        """
        if self._has_sigkill:
            return
        if under_way is not None and "SIGKILL" in under_way.sent:
            self._has_sigkill = True
            grace_s = begun.entry.definition.grace_s
            text = f"{self._names(self._left)}, still running {format_duration(grace_s)} after SIGTERM"
            sent = replace(now, boottime_s=min(begun.at.boottime_s + grace_s, now.boottime_s))
            self._add(sent, "SIGKILL", text, _BAD)
        elif elapsed_s(begun.at, now) >= _AFTER_SIGTERM_S:
            self._left = [key for key in begun.signalled if is_alive(key)]
            if not self._has_exits:
                self._has_exits = True
                exited = self._names(key for key in begun.signalled if key not in self._left)
                remaining = f"{self._names(self._left, with_pid=False)} ignores SIGTERM" if self._left else ""
                self._add(now, "exited", "; ".join(filter(None, (exited, remaining))))

    def _add_outcome(self, outcome: Outcome) -> None:
        if not outcome.entry.do.enforces:
            self._add(outcome.at, "warned", _step_text(outcome.entry), _WARN)
        elif outcome.result is Result.WITHDRAWN:  # it is tried again
            self._add(outcome.at, "withdrawn", f"{outcome.entry.assessment.pod.title}: {outcome.reason}")
        else:
            self._add_end(outcome)

    def _add_end(self, outcome: Outcome) -> None:
        """Report how a kill has ended."""
        self._outcome = outcome
        self._signalled.update(outcome.signalled)
        used = format_bytes(outcome.entry.assessment.used_at_least)
        if outcome.release_s is not None:
            self._add(outcome.at, "freed", f"{used} released, {span(outcome.release_s)} after the first signal", _GOOD)
        else:
            self._add(outcome.at, str(outcome.result), f"{outcome.entry.assessment.pod.title}: {outcome.reason}", _BAD)

    def _names(self, keys: Iterable[ProcessKey], *, with_pid: bool = True) -> str:
        names = self._names_by_key
        return ", ".join(names.get(key, "process") + f" {key.pid}" * with_pid for key in sorted(keys))

    def _add(self, now: Now, word: str, text: str, style: str = "") -> None:
        self.events.append(DemoEvent(second=elapsed_s(self._begin, now), word=word, text=text, style=style))


def _step_text(entry: PlanEntry) -> str:
    """The pod, and the step that is due: `training/finetune, above 120% for 4s`."""
    return f"{entry.assessment.pod.title}, {threshold_text(entry)}"


def _rule_text(policy: Policy) -> str:
    """The demo's rule: `Rule "shared card": warn above 100% for 2s, kill above 120% for 4s`."""
    (rule,) = policy.rules
    steps = (f"{step.do.value} above {step.above} for {format_duration(step.for_s)}" for step in rule.steps)
    return f'Rule "{rule.name}": {", ".join(steps)}'
