"""Events on pods as values: one occurrence, the series it belongs to, and the object written for it."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

# Repetitions within this time belong to the same series, as in client-go (finishTime in
# k8s.io/client-go/tools/events/event_broadcaster.go).
SERIES_GAP_S: Final = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One occurrence, as an Event on a pod reports it."""

    namespace: str
    pod: str
    # The one by which `kubectl describe` finds the pod's Events.
    uid: str
    reason: str
    action: str
    # At most 1 kB of UTF-8.
    note: str
    # Unix time.
    at_s: float
    # Occurrences with equal keys form a series if they are at most `again_within_s` seconds apart.
    key: tuple[str, ...]
    is_normal: bool = False
    again_within_s: float = SERIES_GAP_S
    # Whether it is reported once in the pod's lifetime, and not repeated by a restarted daemon.
    once: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)


_LONGEST_NAME: Final = 253
_LONGEST_INSTANCE: Final = 128  # ReportingInstanceLengthLimit in k8s.io/kubernetes/pkg/apis/core/validation/events.go
MOST_SERIES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeries:
    """A repeated Event."""

    name: str
    # Unix time, as is the next one.
    first_s: float
    last_s: float
    # How often it occurred.
    count: int = 1


class SeriesCache:
    """The recent series; beyond `most`, the one that was idle for longest is forgotten."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: OrderedDict[tuple[str, ...], EventSeries] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def following(self, pod_event: PodEvent) -> EventSeries:
        """The series that includes this Event: a continued one, or a new one."""
        last = self._series.get(pod_event.key)
        if last is None or pod_event.once or pod_event.at_s - last.last_s > pod_event.again_within_s:
            return EventSeries(name=event_name(pod_event), first_s=pod_event.at_s, last_s=pod_event.at_s)
        return replace(last, last_s=pod_event.at_s, count=last.count + 1)

    def remember(self, pod_event: PodEvent, series: EventSeries) -> None:
        """Keep a series that the server has stored."""
        self._series[pod_event.key] = series
        self._series.move_to_end(pod_event.key)
        if len(self._series) > self._most:
            self._series.popitem(last=False)


def event_name(pod_event: PodEvent) -> str:
    """The pod's name, the time and a digest: always a valid name, and the same for the same occurrence.

    This API refuses a `lastTimestamp`, and `kubectl describe` lists Events without one in the order of their names
    (SortableEvents in k8s.io/kubectl/pkg/util/event). So the time comes first, as long as in client-go's own names.
    """
    moment_ns = 0 if pod_event.once else max(round(pod_event.at_s * 1e6) * 1000, 0)
    digest = hashlib.sha256(repr((pod_event.key, moment_ns)).encode()).hexdigest()[:10]
    end = f".{moment_ns:016x}.{digest}"
    labels = re.sub(r"[^a-z0-9.-]", "-", pod_event.pod.lower())[: _LONGEST_NAME - len(end)].split(".")
    stem = ".".join(filter(None, (label.strip("-") for label in labels)))
    return f"{stem or 'pod'}{end}"


def event_object(pod_event: PodEvent, series: EventSeries, node_name: str) -> dict[str, Any]:
    """The object to create, with its `series` if it continues an Event that has expired on the server."""
    metadata = {"name": series.name, "namespace": pod_event.namespace, "annotations": dict(pod_event.annotations)}
    pod = {"kind": "Pod", "namespace": pod_event.namespace, "name": pod_event.pod, "uid": pod_event.uid}
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        "eventTime": micro_time(series.first_s),
        "reportingController": "gpu-memory-watchdog",
        "reportingInstance": node_name[:_LONGEST_INSTANCE] or "unknown",
        "action": pod_event.action,
        "reason": pod_event.reason,
        "regarding": {"apiVersion": "v1", **pod},
        "note": pod_event.note,
        "type": "Normal" if pod_event.is_normal else "Warning",
    }
    return event | (series_part(series) if series.count > 1 else {})


def series_part(series: EventSeries) -> dict[str, Any]:
    """The part of an Event that may change: how often it occurred, and when last."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last_s)}}


def micro_time(wall_s: float) -> str:
    """Unix time as Kubernetes writes a MicroTime: `2026-01-02T03:04:05.678901Z`."""
    return datetime.fromtimestamp(wall_s, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
