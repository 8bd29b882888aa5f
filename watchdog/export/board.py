"""The board between the loop and the HTTP threads: the loop swaps values on it, the others only read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from watchdog import clock
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.export.metrics import Metrics
from watchdog.export.phrases import inert, span

NO_PASS: Final = "no pass has finished yet"
_LEAST_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The answer to a probe: whether all is well, and the lines that say so."""

    ok: bool
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The answer's body."""
        return "".join(f"{inert(line, 1000)}\n" for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    report: CycleReport
    at_s: float


class Board:
    """What the outside may see of the daemon. Everything on it is replaced whole and never changed in place."""

    def __init__(self, metrics: Metrics, interval_s: float, now: Callable[[], Now] = clock.now) -> None:
        self.metrics = metrics
        self._now = now
        self._interval_s = interval_s
        self._started_s = now().boottime_s
        self._finished: _Finished | None = None
        self._unready: tuple[str, ...] = ()

    def publish(self, report: CycleReport) -> None:
        """A pass has finished: this is what is known now."""
        self.metrics.update(report)
        self._interval_s = report.policy.interval_s
        self._finished = _Finished(report=report, at_s=self._now().boottime_s)

    def set_unready(self, reasons: Iterable[str]) -> None:
        """Say why the daemon is not ready, a line for each reason; none: it is."""
        self._unready = tuple(reasons)

    @property
    def report(self) -> CycleReport | None:
        """The last finished pass; None: there was none yet."""
        finished = self._finished
        return finished.report if finished is not None else None

    def health(self) -> Check:
        """Whether the loop turns: the last pass finished less than three intervals ago, or 10 s if that is more."""
        finished = self._finished
        since_s = finished.at_s if finished is not None else self._started_s
        age_s = self._now().boottime_s - since_s
        if age_s <= max(3 * self._interval_s, _LEAST_S):
            return Check(ok=True, lines=("ok",))
        if finished is None:
            return Check(ok=False, lines=(f"{NO_PASS}, {span(age_s)} after the start",))
        return Check(ok=False, lines=(f"the last pass finished {span(age_s)} ago: the loop or a call to NVML hangs",))

    def readiness(self) -> Check:
        """Whether the daemon does its work; why it does not enforce although told to is said in any case."""
        report, health = self.report, self.health()
        reasons = [*([] if report is not None else [NO_PASS]), *([] if health.ok else health.lines), *self._unready]
        notes = [f"not enforcing: {reason}" for reason in report.suspended] if report is not None else []
        return Check(ok=not reasons, lines=(*(reasons or ["ok"]), *notes))
