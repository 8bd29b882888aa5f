"""Events as the API takes them: `events.k8s.io/v1`, named after the occurrence, so that a repeated request is harmless.

Of what one says only the series may change later (ValidateEventUpdate in k8s.io/kubernetes/pkg/apis/core/validation).
"""

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from watchdog.core.tiding import Tiding

REPORTER: Final = "gpu-memory-watchdog"
_LONGEST_NAME: Final = 253
_LONGEST_INSTANCE: Final = 128  # ReportingInstanceLengthLimit in k8s.io/kubernetes/pkg/apis/core/validation/events.go
MOST_SERIES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What has been told again and again: the name of its Event, when for the first and the last time, how often."""

    name: str
    first_s: float
    last_s: float
    count: int = 1

    @classmethod
    def of(cls, tiding: Tiding) -> "Series":
        """The series that begins with this."""
        return cls(name=event_name(tiding), first_s=tiding.at_s, last_s=tiding.at_s)


class SeriesMemory:
    """The series of late; of more than so many the one that was quiet for longest is forgotten."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def following(self, tiding: Tiding) -> Series:
        """The series with this in it: one that goes on, or a new one."""
        last = self._series.get(tiding.key)
        if last is None or tiding.once or tiding.at_s - last.last_s > tiding.again_within_s:
            return Series.of(tiding)
        return Series(name=last.name, first_s=last.first_s, last_s=tiding.at_s, count=last.count + 1)

    def note(self, tiding: Tiding, series: Series) -> None:
        """The server has it."""
        self._series[tiding.key] = series
        self._series.move_to_end(tiding.key)
        if len(self._series) > self._most:
            self._series.popitem(last=False)


def event_name(tiding: Tiding) -> str:
    """The pod's name, the moment and a digest: a valid name whatever the pod's, and the same for the same occurrence.

    `kubectl describe` lists Events without a `lastTimestamp`, which this API refuses, in the order of their names
    (SortableEvents in k8s.io/kubectl/pkg/util/event): so the moment comes first, as long as in client-go's own names.
    """
    moment_ns = 0 if tiding.once else max(round(tiding.at_s * 1e6) * 1000, 0)
    digest = hashlib.sha256(repr((tiding.key, moment_ns)).encode()).hexdigest()[:10]
    end = f".{moment_ns:016x}.{digest}"
    labels = re.sub(r"[^a-z0-9.-]", "-", tiding.pod.lower())[: _LONGEST_NAME - len(end)].split(".")
    stem = ".".join(label for label in (each.strip("-") for each in labels) if label)
    return f"{stem or 'pod'}{end}"


def event_object(tiding: Tiding, series: Series, node_name: str) -> dict[str, Any]:
    """The object to create, `series` included where it goes on with an Event that the server has let go."""
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": series.name,
            "namespace": tiding.namespace,
            "annotations": dict(tiding.annotations),
        },
        "eventTime": micro_time(series.first_s),
        "reportingController": REPORTER,
        "reportingInstance": node_name[:_LONGEST_INSTANCE] or "unknown",
        "action": tiding.action,
        "reason": tiding.reason,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": tiding.namespace,
            "name": tiding.pod,
            "uid": tiding.uid,
        },
        "note": tiding.note,
        "type": "Normal" if tiding.is_normal else "Warning",
    }
    return event | (series_part(series) if series.count > 1 else {})


def series_part(series: Series) -> dict[str, Any]:
    """The part of an Event that says how often and when for the last time: the one that may change."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last_s)}}


def micro_time(wall_s: float) -> str:
    """Unix time as Kubernetes writes a MicroTime: `2026-01-02T03:04:05.678901Z`."""
    return datetime.fromtimestamp(wall_s, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
