"""`report --cluster --prometheus`: the card-hours of the namespaces of all clusters that a Prometheus knows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.cli.fleet import ROW, Fleet, rows_query
from watchdog.core.utilization import STATES
from watchdog.report.card_hours import HOUR_S, OwnerHours

_CARD_SECONDS: Final = "gpu_watchdog_namespace_card_seconds_total"
# At how many moments a Prometheus is asked whether it has samples: in a month every one and a half hours.
_MOMENTS: Final = 500
_SHORTEST_STEP_S: Final = 60
_LOOKBACK_S: Final = 300


def _step_s(seconds: int) -> int:
    return max(seconds // _MOMENTS, _SHORTEST_STEP_S)


def hours_query(seconds: int) -> str:
    """What was held, used and idle in the last `seconds`, and when the first sample of that was taken."""
    held = f'{_CARD_SECONDS}{{state="held"}}'
    return rows_query(
        {
            # `increase` takes each daemon's series by itself, and allows for its restarts.
            "hours": f"sum by (cluster, namespace, state) (increase({_CARD_SECONDS}[{seconds}s]))",
            "begins": f"min_over_time(min by (cluster) (timestamp({held}))[{seconds}s:{_step_s(seconds)}s])",
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHours:
    """The card-hours of all clusters that a Prometheus knows."""

    # Each with the name of its cluster.
    rows: Sequence[tuple[str, OwnerHours]]
    # Since when it has any of each cluster, as Unix time.
    begins: Mapping[str, float]


def fleet_hours(fleet: Fleet, since_s: float, until_s: float) -> FleetHours:
    """The card-hours of each namespace between a Unix time and now; DaemonError."""
    seconds = max(round(until_s - since_s), 1)
    found: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    begins: dict[str, float] = {}
    for labels, number in fleet.samples(hours_query(seconds)):
        cluster = labels.get("cluster", "")
        if labels.get(ROW) == "begins":
            # The first sample may have been taken up to a step earlier.
            earliest_s = number - _step_s(seconds)
            begins[cluster] = earliest_s if earliest_s > since_s + _LOOKBACK_S else since_s
        else:
            key = cluster, labels.get("namespace", "")
            found[key][labels.get("state", "")] = max(number, 0.0) / HOUR_S
    rows = [(cluster, _namespace_hours(namespace, parts)) for (cluster, namespace), parts in found.items()]
    rows.sort(key=lambda row: (-row[1].idle, -row[1].held, row[0], row[1].namespace))
    return FleetHours(rows=rows, begins=begins)


def _namespace_hours(namespace: str, by_state: Mapping[str, float]) -> OwnerHours:
    """The card-hours of a namespace; counters have none of what was declared and not held."""
    held, used, idle = (by_state.get(state, 0.0) for state in STATES)
    return OwnerHours(namespace=namespace, held=held, used=used, idle=idle, unused=None)
