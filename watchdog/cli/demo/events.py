"""What happens on the simulated node, as lines to print; as the record of the actions it also writes the journal."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from watchdog.cli.demo.sim import RunningPod, is_alive
from watchdog.core.assessment import Assessment
from watchdog.core.model import Now, ProcessKey, elapsed_s
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.transfers import Windows
from watchdog.core.units import format_bytes, format_duration
from watchdog.daemon.kill import at_once
from watchdog.journal.journal import Journal
from watchdog.report.sentences.usage import threshold_text
from watchdog.report.text import span

_GOOD, _WARN, _BAD = "green", "yellow", "bold red"
_AFTER_SIGTERM_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEvent:
    """A line: the second of the demo, a word for what happened with its style, and the rest."""

    second: float
    word: str
    text: str
    style: str = ""


@dataclass(slots=True, kw_only=True)
class _DemoKill:
    """A kill so far."""

    entry: PlanEntry
    begun: Now
    terminated: tuple[ProcessKey, ...] = ()
    outcome: Outcome | None = None
    is_grace_reported: bool = False


class DemoEvents:
    """Collects the events, and passes what is done to the journal; implements `ActionRecord`."""

    def __init__(self, journal: Journal, pods: Sequence[RunningPod], start: Now) -> None:
        """`start` is when the demo began."""
        self.events: list[DemoEvent] = []
        self._journal = journal
        self._pods = pods
        self._start = start
        self._kills: dict[int, _DemoKill] = {}
        self._signalled: set[ProcessKey] = set()
        self._over: set[str] = set()
        self._process_names = {
            key: process.name for pod in pods for process, key in zip(pod.spec.processes, pod.keys, strict=True)
        }
        for pod in pods:
            self._add(start, "started", f"{pod.spec.name}: {self._names(pod.keys)}")

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the kill, once it has ended."""
        return next((kill.outcome for kill in self._kills.values() if kill.outcome is not None), None)

    # ---- the record of the actions

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit the intention to the journal, then report it."""
        return at_once(lambda: self._intend(entry, tuple(targets), now))

    def _intend(self, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> int:
        number = self._journal.intend(entry, keys, now)
        self._kills[number] = _DemoKill(entry=entry, begun=now)
        self._add(now, "kill", f"{entry.assessment.pod.title}, {threshold_text(entry)}; recorded first", _BAD)
        return number

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Report that the intention was dropped."""
        self._journal.withdraw(action, reason, now)
        self._add(now, "withdrawn", f"{self._kills.pop(action).entry.assessment.pod.title}: {reason}")

    def took_too_long(self, action: int) -> bool:
        """Never: it is written to memory."""
        return False

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """The same: here an intention is always written at once."""
        self.withdraw(intended.result(), reason, now)

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Report which processes got which signal."""
        sent = tuple(keys)
        self._journal.signalled(action, now, signal, sent)
        kill = self._kills[action]
        self._signalled.update(sent)
        late = ""
        if signal == "SIGTERM":
            kill.terminated += sent
        elif kill.terminated:
            late = f", still running {format_duration(kill.entry.definition.grace_s)} after SIGTERM"
        self._add(now, signal, f"{self._names(sent)}{late}", _BAD)

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Pass the result on."""
        self._journal.end(action, result, reason, now)

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Report that the memory is free, or that it is not."""
        self._journal.released(action, now, release_s, reason)
        used = format_bytes(self._kills[action].entry.assessment.used_at_least)
        if release_s is None:
            self._add(now, "stuck", f"{used} not released: {reason}", _BAD)
        else:
            self._add(now, "freed", f"{used} released, {span(release_s)} after the first signal", _GOOD)

    def breaker(self, opened: Now | None) -> None:
        """Pass on since when the breaker is open; the demo's policy has none."""
        self._journal.breaker(opened)

    def transfers(self, windows: Windows) -> None:
        """Pass on whose bytes count as unknown; in the demo no memory changes hands."""
        self._journal.transfers(windows)

    # ---- what the cycles show

    def add_cycle(self, assessments: Iterable[Assessment], outcomes: Iterable[Outcome], now: Now) -> None:
        """Report which pods went over their limit or came back, and what was done."""
        killed = {kill.entry.assessment.account.uid for kill in self._kills.values()}
        for assessment in assessments:
            if assessment.account.uid not in killed:
                self._compare(assessment, now)
        for outcome in outcomes:
            self._add_outcome(outcome)

    def _compare(self, assessment: Assessment, now: Now) -> None:
        uid, title, allowed = assessment.account.uid, assessment.pod.title, assessment.allowed or 0
        if assessment.used_at_least > allowed and uid not in self._over:
            self._over.add(uid)
            used = format_bytes(assessment.used_at_least)
            self._add(now, "over", f"{title} uses {used}; its limit is {format_bytes(allowed)}", _WARN)
        elif assessment.used is not None and assessment.used <= allowed and uid in self._over:
            self._over.remove(uid)
            self._add(now, "within", f"{title} is within its limit again, timers reset", _GOOD)

    def _add_outcome(self, outcome: Outcome) -> None:
        entry = outcome.entry
        if entry.do is Do.WARN:
            self._add(outcome.at, "warned", f"{entry.assessment.pod.title}, {threshold_text(entry)}", _WARN)
        elif outcome.number is not None and outcome.number in self._kills:
            self._kills[outcome.number].outcome = outcome
        if outcome.result is Result.FAILED:
            self._add(outcome.at, "failed", f"{entry.assessment.pod.title}: {outcome.reason}", _BAD)

    def watch_grace(self, now: Now) -> None:
        """Report once, shortly after SIGTERM, which processes exited and which did not."""
        for kill in self._kills.values():
            if kill.is_grace_reported or not kill.terminated or elapsed_s(kill.begun, now) < _AFTER_SIGTERM_S:
                continue
            kill.is_grace_reported = True
            left = [key for key in kill.terminated if is_alive(key)]
            exited = self._names(key for key in kill.terminated if key not in left)
            remaining = f"{self._names(left, with_pid=False)} ignores SIGTERM" if left else ""
            self._add(now, "exited", "; ".join(filter(None, (exited, remaining))))

    def check_others(self, now: Now) -> bool:
        """Report whether the pods that were not killed run on, and return that."""
        killed = {kill.entry.assessment.pod.uid for kill in self._kills.values()}
        others = [key for pod in self._pods if pod.spec.uid not in killed for key in pod.keys]
        if all(is_alive(key) and key not in self._signalled for key in others):
            self._add(now, "alive", f"{self._names(others)} still up, never signalled", _GOOD)
            return True
        self._add(now, "lost", f"not all of {self._names(others)} are still up", _BAD)
        return False

    def _names(self, keys: Iterable[ProcessKey], *, with_pid: bool = True) -> str:
        names = self._process_names
        return ", ".join(names.get(key, "process") + f" {key.pid}" * with_pid for key in sorted(keys))

    def _add(self, now: Now, word: str, text: str, style: str = "") -> None:
        second = now.boottime_s - self._start.boottime_s
        self.events.append(DemoEvent(second=second, word=word, text=text, style=style))
