"""The metrics: a collector on a registry of its own, fed with one report a pass."""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from watchdog import __version__
from watchdog.core.plan import CycleReport
from watchdog.export.families import (
    Reload,
    account_families,
    event_families,
    gpu_families,
    pod_families,
    reload_families,
    state_families,
    tally_families,
)
from watchdog.export.news import News
from watchdog.export.series import info
from watchdog.export.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    report: CycleReport | None = None
    tally: Tally = field(default_factory=Tally)
    reload: Reload | None = None


class Metrics(Collector):
    """All metrics of the daemon, its process's own included.

    `update` and `policy_reload` come from one thread; a scrape may come from any other, and sees a whole pass.
    `events` gives how many Events had which fate, and is asked at each scrape; None: none are written.
    """

    def __init__(self, events: Callable[[], Mapping[str, int]] | None = None) -> None:
        self.registry = CollectorRegistry()
        self._events = events
        self._news = News()
        self._state = _State()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def update(self, report: CycleReport) -> None:
        """Take in a pass."""
        state = self._state
        tally = state.tally.after(report, self._news.since(report))
        reload = state.reload or Reload(ok=True, success_s=report.policy_loaded_at_s)
        self._state = _State(report=report, tally=tally, reload=reload)

    def policy_reload(self, *, ok: bool, wall_s: float) -> None:
        """Take note that the policy file was read again at a moment (Unix time), and whether it was good."""
        before = self._state.reload
        success_s = wall_s if ok else before.success_s if before is not None else None
        self._state = replace(self._state, reload=Reload(ok=ok, success_s=success_s))

    def collect(self) -> Iterator[Metric]:
        """Every family, from the state that the last pass left."""
        state = self._state
        yield info("build", "This daemon.", ("version", "python"), [(__version__, platform.python_version())])
        if state.reload is not None:
            yield from reload_families(state.reload)
        yield from tally_families(state.tally)
        yield event_families(self._events() if self._events is not None else {})
        if state.report is not None:
            yield from state_families(state.report)
            yield from gpu_families(state.report)
            yield from pod_families(state.report, state.tally)
            yield from account_families(state.report)
