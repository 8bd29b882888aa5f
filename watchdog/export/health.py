"""The health of the daemon itself, for its probes and its status: whether cycles complete, and why it is not ready."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from watchdog import __version__
from watchdog.core.model import Now, elapsed_s
from watchdog.core.plan import CycleReport
from watchdog.core.policy import too_old_after_s
from watchdog.core.quiet import Resting, Ticks
from watchdog.node.drivers.thread import ReadCost
from watchdog.report.health import NO_CYCLE_YET, OK, Durations, api_state
from watchdog.report.sentences.node import suspensions
from watchdog.report.status import HealthStatus, Moment, json_seconds
from watchdog.report.text import inert, span

_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of a probe, and the lines that explain it."""

    ok: bool
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The response body."""
        return "".join(f"{inert(line, _LONGEST)}\n" for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    report: CycleReport
    at_s: float
    number: int
    # The ticks that repeat it; None: the loop does not rest.
    resting: Resting | None = None

    @property
    def ticks(self) -> Ticks | None:
        """The ticks that have repeated the cycle since."""
        return self.resting.ticks() if self.resting is not None else None

    @property
    def took_s(self) -> tuple[float, ...]:
        """How long each of these ticks took."""
        return ticks.took_s if (ticks := self.ticks) is not None else ()

    @property
    def ended_s(self) -> float:
        """The CLOCK_BOOTTIME at which the cycle, or the last tick that repeated it, was finished."""
        return ticks.ended_s if (ticks := self.ticks) is not None else self.at_s


class Health:
    """The health of the daemon. The loop sets it, and any thread reads it: all but durations is replaced whole."""

    def __init__(self, interval_s: float, now: Callable[[], Now], stop_file: str) -> None:
        """`stop_file` is the path that the daemon watches."""
        # Why the daemon is not ready, beside its cycles.
        self.unready: tuple[str, ...] = ()
        # Why the policy file was rejected, or empty.
        self.policy_error = ""
        # None while the pulse is off or not measured yet.
        self.pulse_cost: ReadCost | None = None
        # What is wrong with the journal.
        self.journal = OK
        self._stop_file = stop_file
        self._now = now
        self._interval_s = interval_s
        self._started = now()
        self._finished: _Finished | None = None
        self._durations = Durations()
        self._blind_since: Now | None = None

    def begin_rest(self, resting: Resting) -> None:
        """From now on, until the next cycle is published, the last one is as of its last tick."""
        if self._finished is not None:
            self._finished = replace(self._finished, resting=resting)

    def publish(self, report: CycleReport, ticks: Ticks | None) -> None:
        """Note a finished cycle; or one that these ticks repeat, as of the last of them."""
        self._interval_s = report.policy.interval_s
        for took_s in (report.duration_s,) if ticks is None else ticks.took_s:
            self._durations.add(took_s)
        is_blind = report.snapshot.blind and report.maintenance is None
        self._blind_since = (self._blind_since or report.at) if is_blind else None
        at_s = self._now().boottime_s if ticks is None else ticks.ended_s
        self._finished = _Finished(report=report, at_s=at_s, number=self._durations.count)

    @property
    def report(self) -> CycleReport | None:
        """The last finished cycle, as of the last tick that repeated it; None before the first."""
        finished = self._finished
        if finished is None:
            return None
        latest = finished.resting.now() if finished.resting is not None else None
        return latest[0] if latest is not None else finished.report

    @property
    def state(self) -> tuple[object, ...]:
        """What responses depend on, apart from the time."""
        finished = self._finished
        cycle = (finished.number, len(finished.took_s)) if finished is not None else None
        return cycle, self.unready, self.journal, self.policy_error

    @property
    def status(self) -> HealthStatus:
        """The health of the watchdog itself."""
        now, finished, unready = self._now(), self._finished, tuple(self._reasons())
        ended_s = finished.ended_s if finished is not None else self._started.boottime_s
        ticks_s = finished.took_s if finished is not None else ()
        api = api_state(finished.report.pods) if finished is not None else None
        ago_s = max(now.boottime_s - ended_s, 0.0) if finished is not None else None
        return HealthStatus(
            version=__version__,
            started_at=Moment(self._started.wall_s),
            uptime_s=json_seconds(elapsed_s(self._started, now)),
            ready=not unready,
            unready=tuple(inert(line, _LONGEST) for line in unready),
            last_cycle_s=_seconds(ticks_s[-1] if ticks_s else self._durations.last),
            last_cycle_ago_s=_seconds(ago_s),
            cycle_p99_s=_seconds(self._durations.p99),
            cycles=self._durations.count + len(ticks_s),
            journal=inert(self.journal, _LONGEST),
            policy_ok=not self.policy_error,
            policy_error=inert(self.policy_error, _LONGEST) or None,
            api=inert(api, _LONGEST) if api is not None else None,
            blind_since=Moment(self._blind_since.wall_s) if self._blind_since is not None else None,
            hangs_since=None if self.liveness().ok else Moment(now.wall_s - (now.boottime_s - ended_s)),
            pulse=None if (cost := self.pulse_cost) is None else "expensive" if cost.is_expensive else "on",
            pulse_s=None if cost is None else round(cost.seconds, 6),
            stop_file=self._stop_file.encode(errors="replace").decode() or None,
        )

    @property
    def no_cycle(self) -> str:
        """The message that no cycle has finished yet, with the time since startup."""
        return f"{NO_CYCLE_YET}, {span(elapsed_s(self._started, self._now()))} after startup"

    def liveness(self) -> ProbeResult:
        """Whether the loop runs: the last cycle completed less than three intervals ago, or 10 s if that is more."""
        finished = self._finished
        age_s = self._now().boottime_s - (finished.ended_s if finished is not None else self._started.boottime_s)
        if age_s <= too_old_after_s(self._interval_s):
            return ProbeResult(ok=True, lines=("ok",))
        if finished is None:
            return ProbeResult(ok=False, lines=(self.no_cycle,))
        hung = f"the last cycle completed {span(age_s)} ago: the loop or a call to the driver is hung"
        return ProbeResult(ok=False, lines=(hung,))

    def readiness(self) -> ProbeResult:
        """Whether the daemon is ready; reasons why it does not enforce are reported in any case."""
        reasons, report = self._reasons(), self.report
        notes = [f"not enforcing: {reason}" for reason in suspensions(report)] if report is not None else []
        return ProbeResult(ok=not reasons, lines=(*(reasons or ["ok"]), *notes))

    def _reasons(self) -> list[str]:
        """Why the daemon is not ready."""
        liveness = self.liveness()
        hangs = [] if liveness.ok else liveness.lines
        return [*([] if self._finished is not None else [NO_CYCLE_YET]), *hangs, *self.unready]


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else json_seconds(seconds)
