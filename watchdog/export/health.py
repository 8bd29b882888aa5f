"""How the watchdog itself is: a value that is made when somebody asks."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from watchdog.core.model import GapReason, PodList
from watchdog.export.phrases import inert, rfc3339
from watchdog.export.status_account import json_seconds

OK: Final = "ok"
NO_PASS: Final = "no pass has finished yet"
_LONGEST: Final = 1000
_MOST_PASSES: Final = 600  # ten minutes at the default interval
_OF_API: Final = frozenset({GapReason.PODS, GapReason.NODE, GapReason.NAMESPACES})


class Durations:
    """How long the last passes took, in seconds, in a few KiB whatever their number."""

    def __init__(self) -> None:
        self.count = 0
        self._last = array("d", bytes(8 * _MOST_PASSES))

    def add(self, seconds: float) -> None:
        """A pass has taken so long."""
        self._last[self.count % _MOST_PASSES] = seconds
        self.count += 1

    @property
    def last(self) -> float | None:
        """The last one; None: there was none."""
        return self._last[(self.count - 1) % _MOST_PASSES] if self.count else None

    @property
    def p99(self) -> float | None:
        """What 99 of 100 of the last 600 passes stayed below, by nearest rank; None: there was none."""
        known = sorted(self._last[: min(self.count, _MOST_PASSES)])
        return known[-(-99 * len(known) // 100) - 1] if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the watchdog is at a moment. Times are Unix times, spans seconds; what is not known yet is None.

    `unready` says why it is not ready, a sentence each. `journal` is `ok` or what is wrong with it. `policy_error` has
    the errors of a policy file that was refused, or says that it has not settled; empty: it was taken. `api` is `ok`,
    or what is missing of what the API server tells; None: it is not asked. `blind_since` is when NVML last began not to
    answer.
    `gaps_since` is since when what a gap names is missing.
    `stop_file` is the path at which the daemon looks for it; empty: not told.
    `hangs_since` is when the last pass ended, or the daemon began, while the loop does not turn; None: it turns.
    """

    version: str
    started_s: float
    uptime_s: float
    ready: bool
    unready: tuple[str, ...] = ()
    last_pass_s: float | None = None
    last_pass_ago_s: float | None = None
    pass_p99_s: float | None = None
    passes: int = 0
    journal: str = OK
    policy_error: str = ""
    api: str | None = None
    blind_since_s: float | None = None
    hangs_since_s: float | None = None
    gaps_since: Mapping[str, float] = field(default_factory=dict)
    stop_file: str = ""

    @property
    def turns(self) -> bool:
        """Whether passes end, so that what is known is of now."""
        return self.hangs_since_s is None


def api_state(pods: PodList) -> str | None:
    """Whether all that the API server is asked for has come, as `Health.api` says it."""
    if pods.by_file:
        return None
    gaps = [gap for gap in pods.gaps if gap.reason in _OF_API]
    return f"{gaps[0].what}: {gaps[0].why}" if gaps else OK


def health_row(health: Health) -> dict[str, Any]:
    """How the watchdog is, as the status has it."""
    return {
        "version": health.version,
        "started_at": rfc3339(health.started_s),
        "uptime_s": json_seconds(health.uptime_s),
        "ready": health.ready,
        "unready": _texts(health.unready),
        "last_pass_s": _span(health.last_pass_s),
        "last_pass_ago_s": _span(health.last_pass_ago_s),
        "pass_p99_s": _span(health.pass_p99_s),
        "passes": health.passes,
        "journal": inert(health.journal, _LONGEST),
        "policy_ok": not health.policy_error,
        "policy_error": inert(health.policy_error, _LONGEST) or None,
        "api": inert(health.api, _LONGEST) if health.api is not None else None,
        "blind_since": rfc3339(health.blind_since_s) if health.blind_since_s is not None else None,
        "hangs_since": rfc3339(health.hangs_since_s) if health.hangs_since_s is not None else None,
        "stop_file": health.stop_file or None,
    }


def _texts(lines: Iterable[str]) -> list[str]:
    return [inert(line, _LONGEST) for line in lines]


def _span(seconds: float | None) -> float | int | None:
    return None if seconds is None else json_seconds(seconds)
