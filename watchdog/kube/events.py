"""Events on pods, written on a thread of their own: nothing in the daemon ever waits for one."""

import hashlib
import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from watchdog import clock
from watchdog.core.pod_event import PodEvent
from watchdog.kube.notices import Notices
from watchdog.kube.responses import LONGEST_S, ApiError, ApiResponse, RequestBackoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.kube.client import Api


# EventSourceObjectSpamFilter in k8s.io/client-go/tools/record/events_cache.go: of one source about one object.
OBJECT_BURST: Final = 25
OBJECT_PER_S: Final = 1 / 300
# DefaultQPS and DefaultBurst in k8s.io/client-go/rest/config.go: requests of one client.
REQUEST_BURST: Final = 10
REQUEST_PER_S: Final = 5.0
MOST_OBJECTS: Final = 1024


class Bucket:
    """A bucket of tokens that fills up again; moments are seconds of a clock that never jumps."""

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a token; 0: there is one now."""
        self._fill(now_s)
        return max(1.0 - self._tokens, 0.0) / self._per_s

    def take(self, now_s: float) -> None:
        """Take a token, even one that is still to come: who asks without waiting makes the next one wait."""
        self._fill(now_s)
        self._tokens -= 1.0

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(now_s - self._at_s, 0.0) * self._per_s)
        self._at_s = now_s


class ObjectLimits:
    """A bucket for each object; of more than so many objects the one that was quiet for longest is forgotten."""

    def __init__(self, most: int = MOST_OBJECTS) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, key: Hashable, now_s: float) -> bool:
        """Whether one more Event of this object may be written now; it counts if so."""
        bucket = self._buckets.pop(key, None) or Bucket(OBJECT_BURST, OBJECT_PER_S, now_s)
        self._buckets[key] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if bucket.wait_s(now_s) > 0:
            return False
        bucket.take(now_s)
        return True


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
    def of(cls, pod_event: PodEvent) -> "Series":
        """The series that begins with this."""
        return cls(name=event_name(pod_event), first_s=pod_event.at_s, last_s=pod_event.at_s)


class SeriesMemory:
    """The series of late; of more than so many the one that was quiet for longest is forgotten."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def following(self, pod_event: PodEvent) -> Series:
        """The series with this in it: one that goes on, or a new one."""
        last = self._series.get(pod_event.key)
        if last is None or pod_event.once or pod_event.at_s - last.last_s > pod_event.again_within_s:
            return Series.of(pod_event)
        return Series(name=last.name, first_s=last.first_s, last_s=pod_event.at_s, count=last.count + 1)

    def note(self, pod_event: PodEvent, series: Series) -> None:
        """The server has it."""
        self._series[pod_event.key] = series
        self._series.move_to_end(pod_event.key)
        if len(self._series) > self._most:
            self._series.popitem(last=False)


def event_name(pod_event: PodEvent) -> str:
    """The pod's name, the moment and a digest: a valid name whatever the pod's, and the same for the same occurrence.

    `kubectl describe` lists Events without a `lastTimestamp`, which this API refuses, in the order of their names
    (SortableEvents in k8s.io/kubectl/pkg/util/event): so the moment comes first, as long as in client-go's own names.
    """
    moment_ns = 0 if pod_event.once else max(round(pod_event.at_s * 1e6) * 1000, 0)
    digest = hashlib.sha256(repr((pod_event.key, moment_ns)).encode()).hexdigest()[:10]
    end = f".{moment_ns:016x}.{digest}"
    labels = re.sub(r"[^a-z0-9.-]", "-", pod_event.pod.lower())[: _LONGEST_NAME - len(end)].split(".")
    stem = ".".join(label for label in (each.strip("-") for each in labels) if label)
    return f"{stem or 'pod'}{end}"


def event_object(pod_event: PodEvent, series: Series, node_name: str) -> dict[str, Any]:
    """The object to create, `series` included where it goes on with an Event that the server has let go."""
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": series.name,
            "namespace": pod_event.namespace,
            "annotations": dict(pod_event.annotations),
        },
        "eventTime": micro_time(series.first_s),
        "reportingController": REPORTER,
        "reportingInstance": node_name[:_LONGEST_INSTANCE] or "unknown",
        "action": pod_event.action,
        "reason": pod_event.reason,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod_event.namespace,
            "name": pod_event.pod,
            "uid": pod_event.uid,
        },
        "note": pod_event.note,
        "type": "Normal" if pod_event.is_normal else "Warning",
    }
    return event | (series_part(series) if series.count > 1 else {})


def series_part(series: Series) -> dict[str, Any]:
    """The part of an Event that says how often and when for the last time: the one that may change."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last_s)}}


def micro_time(wall_s: float) -> str:
    """Unix time as Kubernetes writes a MicroTime: `2026-01-02T03:04:05.678901Z`."""
    return datetime.fromtimestamp(wall_s, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_MERGE: Final = "application/merge-patch+json"
_TERMINATING: Final = "NamespaceTerminating"


class WriteResult(Enum):
    """What an answer to the writing of an Event means."""

    WRITTEN = auto()
    NOT_NOW = auto()  # the server, or the way to it, takes nothing at the moment
    FAILED = auto()  # it may be this very Event that it fails on
    REFUSED = auto()  # it would be refused again


class EventRequests:
    """Writes Events, one at a time; what repeats an Event that the server has becomes a part of its series."""

    def __init__(self, api: "Api", node_name: str) -> None:
        self._api = api
        self._node_name = node_name
        self._series = SeriesMemory()

    def write(self, pod_event: PodEvent, begin: "Callable[[], None]") -> ApiResponse:
        """Write it, and give the answer that decides; ApiError where none comes. `begin` is called before each request.

        It may be called again with the same: the name stays, and so does the count.
        """
        series = self._series.following(pod_event)
        answer = None
        if series.count > 1:
            begin()
            path = f"{_collection(pod_event)}/{quote(series.name, safe='')}"
            answer = self._api.call("PATCH", path, body=series_part(series), content_type=_MERGE)
        if answer is None or answer.status == 404:
            # An Event lives for an hour by default (--event-ttl): the series goes on with a new one, and a new note.
            begin()
            event = event_object(pod_event, series, self._node_name)
            answer = self._api.call("POST", _collection(pod_event), body=event)
        if verdict(answer) is WriteResult.WRITTEN:
            self._series.note(pod_event, series)
        return answer


def verdict(answer: ApiResponse) -> WriteResult:
    """What an answer means."""
    # That it is there already was done by an earlier attempt whose answer got lost, or by an earlier life.
    if answer.is_good or (answer.status == 409 and answer.reason == "AlreadyExists"):
        return WriteResult.WRITTEN
    if answer.status in (401, 429, 503):
        return WriteResult.NOT_NOW
    return WriteResult.FAILED if answer.status in (408, 409) or answer.status >= 500 else WriteResult.REFUSED


def refusal(answer: ApiResponse, pod_event: PodEvent) -> tuple[str, str]:
    """The cause of an answer that is not good, which is the same for the same trouble, and a sentence about it."""
    if any(cause.reason == _TERMINATING for cause in answer.causes):
        return _TERMINATING, f"namespace {pod_event.namespace} is being deleted, so it takes no Events any more"
    what = f"an Event {pod_event.reason} on pod {pod_event.namespace}/{pod_event.pod} was not written"
    return f"{answer.status} {answer.reason}", str(answer.problem(what))


def _collection(pod_event: PodEvent) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{quote(pod_event.namespace, safe='')}/events"


# maxQueuedEvents and maxTriesPerEvent in k8s.io/client-go/tools/events/event_broadcaster.go. There an Event is given up
# after two minutes without an API server; here it is kept for as long as the server itself would have kept it.
MOST_WAITING: Final = 1000
MOST_FAILURES: Final = 12
KEPT_S: Final = 3600.0
_KEPT: Final = "Events are kept for an hour and tried again"
_TOLD: Final = "the log and the journal have what they say"


class Fate(StrEnum):
    """What became of an Event: the label `result` of `events_total`."""

    WRITTEN = "written"
    LIMITED = "limited"  # one pod had too many
    REFUSED = "refused"  # the server does not take it
    DROPPED = "dropped"  # too many were waiting, or the server could not be reached for too long


@dataclass(slots=True, kw_only=True)
class _Item:
    """What waits to be written since `offered_s`; `failures` are the tries that it may itself be the cause of."""

    pod_event: PodEvent
    offered_s: float
    is_admitted: bool = False
    failures: int = 0


class EventWriter:
    """Takes what is to be told and writes it as Events in the API; the thread begins with the first of them."""

    def __init__(self, api: "Api", node_name: str, *, longest_pause_s: float = LONGEST_S) -> None:
        self.notices = Notices()
        self._requests = EventRequests(api, node_name)
        self._waiting: deque[_Item] = deque()
        self._ready = threading.Condition()
        self._stopped = threading.Event()
        self._deadline_s = 0.0
        self._thread: threading.Thread | None = None
        self._backoff = RequestBackoff(self._stopped, longest_s=longest_pause_s)
        self._rate = Bucket(REQUEST_BURST, REQUEST_PER_S, clock.now().boottime_s)
        self._objects = ObjectLimits()
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter({fate.value: 0 for fate in Fate})

    def counts(self) -> Mapping[str, int]:
        """How many Events had which fate; to be asked from any thread."""
        with self._counting:
            return dict(self._counts)

    def offer(self, pod_events: Iterable[PodEvent]) -> None:
        """Take these to be written, as many as there is room for; never waits."""
        now_s = clock.now().boottime_s
        for pod_event in pod_events:
            with self._ready:
                if self._stopped.is_set() or len(self._waiting) >= MOST_WAITING:
                    self._drop(
                        f"more than {MOST_WAITING} Events wait to be written, so new ones are left out; {_TOLD}", now_s
                    )
                    continue
                self._waiting.append(_Item(pod_event=pod_event, offered_s=now_s))
                self._ready.notify()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="api-events", daemon=True)
                self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Write what can be written in so many seconds, and end; what is on its way then is left to itself."""
        self._deadline_s = clock.now().boottime_s + timeout_s
        with self._ready:
            self._stopped.set()
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._write(item)

    def _next(self) -> _Item | None:
        with self._ready:
            self._ready.wait_for(lambda: bool(self._waiting) or self._stopped.is_set())
            return self._waiting.popleft() if self._waiting else None

    def _write(self, item: _Item) -> None:
        item.is_admitted = item.is_admitted or self._admit(item.pod_event)
        if not item.is_admitted:
            return
        while item.failures < MOST_FAILURES and self._may_try(item.offered_s):
            answer = self._try(item.pod_event)
            found = WriteResult.NOT_NOW if answer is None else verdict(answer)
            if found in (WriteResult.WRITTEN, WriteResult.REFUSED):
                self._backoff.reset()
                self._count(Fate.WRITTEN if found is WriteResult.WRITTEN else Fate.REFUSED)
                return
            item.failures += found is WriteResult.FAILED
            self._backoff.wait(None if answer is None else answer.retry_after_s)
            if found is WriteResult.FAILED and self._put_behind(item):
                return
        self._drop(f"Events that can't be written for too long are left out; {_TOLD}", clock.now().boottime_s)

    def _admit(self, pod_event: PodEvent) -> bool:
        now_s = clock.now().boottime_s
        if self._objects.admit((pod_event.uid, pod_event.is_normal), now_s):
            return True
        self._count(Fate.LIMITED)
        pod = f"{pod_event.namespace}/{pod_event.pod}"
        self.notices.note(Fate.LIMITED, f"pod {pod} has had too many Events, so some are left out; {_TOLD}", now_s)
        return False

    def _put_behind(self, item: _Item) -> bool:
        """Let those that wait go first: in one namespace a broken webhook may fail on every Event, for minutes each."""
        with self._ready:
            if not self._waiting or self._stopped.is_set():
                return False
            self._waiting.append(item)
            return True

    def _may_try(self, offered_s: float) -> bool:
        """Wait for the turn that the limit of requests gives; False: too late."""
        now_s = clock.now().boottime_s
        wait_s = self._rate.wait_s(now_s)
        if self._stopped.is_set():
            return wait_s <= 0 and now_s < self._deadline_s
        if now_s - offered_s > KEPT_S:
            return False
        return not self._stopped.wait(wait_s) or clock.now().boottime_s < self._deadline_s

    def _try(self, pod_event: PodEvent) -> ApiResponse | None:
        """One attempt; None: no answer came."""
        now_s = clock.now().boottime_s
        try:
            answer = self._requests.write(pod_event, lambda: self._rate.take(clock.now().boottime_s))
        except ApiError as error:
            self.notices.note("unreachable", f"Events can't be written: {error}; {_KEPT}", now_s)
            return None
        if verdict(answer) is not WriteResult.WRITTEN:
            self.notices.note(*refusal(answer, pod_event), now_s)
        return answer

    def _drop(self, sentence: str, now_s: float) -> None:
        self._count(Fate.DROPPED)
        self.notices.note(sentence, sentence, now_s)

    def _count(self, fate: Fate) -> None:
        with self._counting:
            self._counts[fate.value] += 1
