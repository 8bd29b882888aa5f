"""`/api/history`: the last hour of a pod's accounts, or of a GPU, in numbers, and the actions in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import parse_qs

from watchdog.core.assessment import AccountKey
from watchdog.core.errors import WatchdogError
from watchdog.core.model import Now
from watchdog.export.names import AskedSubject
from watchdog.report.hour import HOUR_S, Hour, Point, Series, card
from watchdog.report.status import Status, encode
from watchdog.report.text import inert, rfc3339

_MOST_MINUTES: Final = int(HOUR_S // 60)
# A pod can have hundreds of accounts, with 25 kB each.
_MOST_SERIES: Final = 20
# Of all series together, with 13 kB each.
_MOST_CONTAINERS: Final = 40
_LONGEST: Final = 600
_MOST_FIELDS: Final = 8


class QueryError(WatchdogError):
    """A query does not say whose hour it asks for; the text has the remedy."""


class NothingSeenError(WatchdogError):
    """Nothing was seen in the last hour of what a query asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery(AskedSubject):
    """Whose hour is asked for."""

    # How much of the hour, up to now.
    minutes: int = _MOST_MINUTES

    @classmethod
    def of(cls, query: str) -> Self:
        """The query of an address; QueryError. Of repeated fields the last one counts."""
        try:
            fields = parse_qs(query, max_num_fields=_MOST_FIELDS)
        except ValueError:
            fields = {}
        last = {name: values[-1] for name, values in fields.items()}
        pod, gpu, minutes = last.get("pod", ""), last.get("gpu", ""), last.get("minutes", str(_MOST_MINUTES))
        namespace, _, name = pod.partition("/")
        if bool(pod) == bool(gpu) or bool(pod) != bool(namespace and name):
            raise QueryError("it must name a pod or a GPU: write ?pod=NAMESPACE/NAME or ?gpu=INDEX")
        if not (minutes.isascii() and minutes.isdecimal() and 1 <= int(minutes[:9]) <= _MOST_MINUTES):
            raise QueryError(
                f"minutes={inert(minutes, 40)} is not valid: write a whole number from 1 to {_MOST_MINUTES}"
            )
        return cls(namespace=namespace, pod=name, gpu=gpu, minutes=int(minutes))

    @property
    def subject(self) -> str:
        """What it asks for, for a sentence."""
        return inert(f"pod {self.title}" if self.pod else f"GPU {self.gpu}", _LONGEST)


def history_document(query: HistoryQuery, hour: Hour, status: Status, known_s: float, now: Now) -> dict[str, Any]:
    """The JSON of `/api/history`; NothingSeenError; QueryError if several GPUs have the name that it asks for.

    `known_s` is the CLOCK_BOOTTIME up to which the node was read. The series of earlier pods of the same name are
    included.
    """
    found, since_s = _found(query, hour, status), now.boottime_s - 60 * query.minutes
    if query.pod:
        actions = [
            encode(action)
            for action in reversed(status.recent)
            if query.is_of(action) and (action.at or 0.0) >= now.wall_s - 60 * query.minutes
        ]
    else:
        marks = [mark for _, series in found for mark in series.marks if mark.at_s >= since_s]
        actions = [{"at": _at(mark.at_s, now), "do": mark.do.value} for mark in marks]
    if not found and not actions:
        why = f"nothing was seen of {query.subject} in the last hour"
        raise NothingSeenError(f"{why}: `gpu-watchdog history` in the watchdog's pod goes further back")
    subject = {"pod": inert(query.title, _LONGEST)} if query.pod else {"gpu": found[0][0].gpu}
    most = _MOST_CONTAINERS // max(min(len(found), _MOST_SERIES), 1)
    shown: list[dict[str, Any]] = []
    for key, series in found[-_MOST_SERIES:]:
        points = [*hour.points(series, since_s, known_s, now.boottime_s)]
        times = [_at(point.at_s, now) for point in points]
        whose = {"uid": key.uid or None, "container": key.container, "gpu": key.gpu}
        amounts = [{"at": at, **_amounts(point)} for at, point in zip(times, points, strict=True)]
        parts = _containers(series, points, times, most) if query.pod else {}
        shown.append({**whose, "points": amounts, **parts})
    return {
        **subject,
        "minutes": query.minutes,
        "series": shown,
        "series_in_all": len(found),
        "actions": actions,
    }


def _found(query: HistoryQuery, hour: Hour, status: Status) -> tuple[tuple[AccountKey, Series], ...]:
    if query.pod:
        return hour.of_pod(query.namespace, query.pod)
    uuids = [gpu.uuid for gpu in query.gpus_of(status)] or [query.gpu]
    if len(uuids) > 1:
        named = ", ".join(inert(uuid) for uuid in uuids)
        raise QueryError(f"{len(uuids)} instances have the number {inert(query.gpu)}: write ?gpu= and one of {named}")
    uuid = uuids[0]
    series = hour.get(card(uuid))
    return () if series is None else ((card(uuid), series),)


def _containers(series: Series, points: Sequence[Point], times: Sequence[str], most: int) -> dict[str, Any]:
    """The utilisation of an account's containers on each card at its points; of too many those known last."""
    parts = series.parts
    read = {part: [busy.at(point.at_s) for point in points] for part, busy in parts.items()}
    found = {part: ratios for part, ratios in read.items() if any(ratio is not None for ratio in ratios)}
    latest = sorted(found, key=lambda part: (-parts[part].last, part))[:most]
    shown = [
        {
            "container": inert(part.container),
            "gpu": part.gpu,
            "points": [{"at": at, "utilization": ratio} for at, ratio in zip(times, found[part], strict=True)],
        }
        for part in sorted(latest)
    ]
    return {"containers": shown, "containers_in_all": len(found)}


def _amounts(point: Point) -> dict[str, Any]:
    return {
        "min": point.low,
        "max": point.high,
        "last": point.last,
        "allowed": point.allowed,
        "utilization": point.utilization,
    }


def _at(at_s: float, now: Now) -> str:
    return rfc3339(now.wall_s - now.boottime_s + at_s)
