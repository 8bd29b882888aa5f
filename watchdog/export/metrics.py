"""The metrics: a collector on a registry of its own, fed with one report a pass."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from watchdog import __version__
from watchdog.core.assessment import Attribution, Verdict
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Policy
from watchdog.export import catalogue as of
from watchdog.export.families import account_families, gpu_families, pod_families, state_families
from watchdog.export.families_counted import Reload, event_families, reload_families, tally_families
from watchdog.export.last_actions import LastAction
from watchdog.export.news import News
from watchdog.export.series import info
from watchdog.export.tally import Tally

_LEAST_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    report: CycleReport | None = None
    at_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    reload: Reload | None = None


class Metrics(Collector):
    """All metrics of the daemon, its process's own included.

    All methods but `collect` are called from one thread; a scrape may come from any other, and sees a whole pass.
    `events` gives how many Events had which fate, and is asked at each scrape; None: none are written. `now` is the
    clock that says whether the last pass is too old to go by; None: no pass ever is.
    """

    def __init__(
        self, events: Callable[[], Mapping[str, int]] | None = None, now: Callable[[], Now] | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._events = events
        self._now = now
        self._news = News()
        self._state = _State()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def update(self, report: CycleReport) -> None:
        """Take in a pass."""
        state = self._state
        tally = state.tally.after(report, self._news.since(report))
        reload = state.reload or Reload(ok=True, success_s=report.policy_loaded_at_s)
        at_s = self._now().boottime_s if self._now is not None else 0.0
        self._state = _State(report=report, at_s=at_s, tally=tally, reload=reload)

    def policy_reload(self, *, ok: bool, wall_s: float, policy: Policy | None = None) -> None:
        """Take note that the policy file was read at a moment (Unix time), whether it was good, and the policy.

        Whatever the policy can do is there as 0 from then on, before its first pass.
        """
        state = self._state
        success_s = wall_s if ok else state.reload.success_s if state.reload is not None else None
        tally = state.tally.under(policy) if policy is not None else state.tally
        self._state = replace(state, tally=tally, reload=Reload(ok=ok, success_s=success_s))

    def recall(self, earlier: Iterable[LastAction], closed_s: float) -> None:
        """Take in what earlier daemons did lately; what was closed in their place, at a moment (Unix time), counts."""
        self._state = replace(self._state, tally=self._state.tally.recalling(earlier, closed_s))

    def collect(self) -> Iterator[Metric]:
        """Every family, from the state that the last pass left."""
        state = self._state
        yield info(of.BUILD_INFO, [(__version__, platform.python_version())])
        if state.reload is not None:
            yield from reload_families(state.reload)
        yield from tally_families(state.tally)
        yield event_families(self._events() if self._events is not None else {})
        if state.report is not None:
            report = self._as_known_now(state.report, state.at_s)
            yield from state_families(report)
            yield from gpu_families(report)
            yield from pod_families(report, state.tally.peaks)
            yield from account_families(report)

    def _as_known_now(self, report: CycleReport, at_s: float) -> CycleReport:
        if self._now is None or self._now().boottime_s - at_s <= late_after_s(report.policy.interval_s):
            return report
        return in_the_dark(report)


def late_after_s(interval_s: float) -> float:
    """After how many seconds without another pass the last one is too old: three intervals, at least ten seconds."""
    return max(3 * interval_s, _LEAST_S)


def in_the_dark(report: CycleReport) -> CycleReport:
    """What is left of a pass once it is too old: who uses and is due for what is not known, and no GPU answers.

    A call into the driver that hangs ends no pass: without this, its last numbers would stand for ever.
    """
    gpus = tuple(replace(gpu, up=False, listed=False, used=None) for gpu in report.snapshot.gpus)
    unknown = {"used": None, "used_at_least": 0, "verdict": Verdict.UNKNOWN, "uses": ()}
    return replace(
        report,
        snapshot=replace(report.snapshot, gpus=gpus, uses=()),
        attribution=Attribution(),
        plan=replace(report.plan, entries=()),
        assessments=tuple(replace(each, **unknown) for each in report.assessments),  # type: ignore[arg-type]
    )
