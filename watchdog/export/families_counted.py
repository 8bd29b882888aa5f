"""The metric families of what has been counted since the daemon began, and of its policy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric

from watchdog.export import catalogue as of
from watchdog.export.histogram import Histogram
from watchdog.export.series import Labels, counter, gauge, histogram, single
from watchdog.export.tally import Tally


def tally_families(tally: Tally) -> Iterator[Metric]:
    """What has been counted since the daemon began, and what was last done to whom."""
    yield counter(of.ACTIONS, tally.actions)
    yield counter(of.WOULD_ACT, tally.would_act)
    yield counter(of.WITHHELD, _keyed(tally.withheld))
    yield gauge(of.LAST_ACTION, ((action.labels, action.wall_s) for action in tally.last_actions))
    reactions: dict[Labels, Histogram] = {(action,): each for action, each in tally.reactions.items()}
    yield histogram(of.REACTION, reactions)
    yield histogram(of.RELEASE, {(): tally.release})
    yield histogram(of.SCAN_DURATION, {(): tally.scan})
    yield histogram(of.CYCLE_DURATION, {(): tally.cycle})
    yield counter(of.GAPS, _keyed(tally.gaps))


def event_families(counts: Mapping[str, int]) -> Metric:
    """What became of the Events on pods; no series where none are written."""
    return counter(of.EVENTS, _keyed(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """How the last loading of the policy went, and when the last good one was (Unix time)."""

    ok: bool
    success_s: float | None


def reload_families(reload: Reload) -> Iterator[Metric]:
    """How the last loading of the policy went."""
    yield single(of.RELOAD_OK, float(reload.ok))
    yield single(of.RELOAD_TIME, reload.success_s)


def _keyed(counts: Mapping[str, int]) -> dict[Labels, int]:
    return {(key,): number for key, number in counts.items()}
