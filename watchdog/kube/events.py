"""Events on pods, written on their own thread: nothing in the daemon waits for one."""

import contextlib
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final
from urllib.parse import quote

from watchdog import clock
from watchdog.kube.client import LONGEST_S, Api, ApiResponse, RequestBackoff
from watchdog.kube.event_objects import PodEvent, SeriesCache, event_object, series_part
from watchdog.kube.failure import ApiError
from watchdog.kube.messages import MessageQueue

# EventSourceObjectSpamFilter in k8s.io/client-go/tools/record/events_cache.go: of one source about one object.
OBJECT_BURST: Final = 25
OBJECT_PER_S: Final = 1 / 300
# DefaultQPS and DefaultBurst in k8s.io/client-go/rest/config.go: requests of one client.
REQUEST_BURST: Final = 10
REQUEST_PER_S: Final = 5.0
MOST_OBJECTS: Final = 1024


class TokenBucket:
    """A token bucket; times are seconds of a monotonic clock."""

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a token; 0 if there is one now."""
        self._fill(now_s)
        return max(1.0 - self._tokens, 0.0) / self._per_s

    def take_token(self, now_s: float) -> None:
        """Take a token, even a future one: a caller that does not wait makes the next one wait."""
        self._fill(now_s)
        self._tokens -= 1.0

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(now_s - self._at_s, 0.0) * self._per_s)
        self._at_s = now_s


class ObjectRateLimits:
    """A token bucket per object; beyond `most` objects, the one that was idle for longest is forgotten."""

    def __init__(self, most: int = MOST_OBJECTS) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, key: Hashable, now_s: float) -> bool:
        """Whether one more Event of this object may be written now; if so, it is counted."""
        bucket = self._buckets.pop(key, None) or TokenBucket(OBJECT_BURST, OBJECT_PER_S, now_s)
        self._buckets[key] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if bucket.wait_s(now_s) > 0:
            return False
        bucket.take_token(now_s)
        return True


_MERGE: Final = "application/merge-patch+json"
_TERMINATING: Final = "NamespaceTerminating"


class WriteResult(Enum):
    """What the response to writing an Event means."""

    WRITTEN = auto()
    NOT_NOW = auto()  # the server can't be reached, or accepts nothing at the moment
    FAILED = auto()  # this Event itself may be the cause
    REFUSED = auto()  # it would be refused again


def write_result(response: ApiResponse) -> WriteResult:
    """What a response means."""
    # It exists already if an earlier attempt, whose response was lost, or an earlier process created it.
    if response.is_good or (response.status == 409 and response.reason == "AlreadyExists"):
        return WriteResult.WRITTEN
    if response.status in (401, 429, 503):
        return WriteResult.NOT_NOW
    return WriteResult.FAILED if response.status in (408, 409) or response.status >= 500 else WriteResult.REFUSED


def refusal(response: ApiResponse, pod_event: PodEvent) -> tuple[str, str]:
    """Why an Event was not written: a key that is equal for the same cause, and a sentence."""
    if any(cause.reason == _TERMINATING for cause in response.causes):
        return _TERMINATING, f"namespace {pod_event.namespace} is being deleted, so it no longer accepts Events"
    what = f"an Event {pod_event.reason} on pod {pod_event.namespace}/{pod_event.pod} was not written"
    return f"{response.status} {response.reason}", str(response.problem(what))


def _collection(pod_event: PodEvent) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{quote(pod_event.namespace, safe='')}/events"


# maxQueuedEvents and maxTriesPerEvent in k8s.io/client-go/tools/events/event_broadcaster.go. There an Event is dropped
# after two minutes without an API server; here it is kept for as long as the server itself would have kept it.
MOST_WAITING: Final = 1000
MOST_FAILURES: Final = 12
KEPT_S: Final = 3600.0
_KEPT: Final = "Events are kept for an hour and retried"
_ALSO_LOGGED: Final = "the log and the journal have the same information"


class EventResult(StrEnum):
    """What was done with an Event: the label `result` of `events_total`."""

    WRITTEN = "written"
    LIMITED = "limited"  # one pod had too many
    REFUSED = "refused"  # the server does not accept it
    DROPPED = "dropped"  # too many were waiting, or the server could not be reached for too long


@dataclass(slots=True, kw_only=True)
class _QueuedEvent:
    """An Event that waits to be sent."""

    pod_event: PodEvent
    # Since when it waits.
    offered_s: float
    is_admitted: bool = False
    # How many attempts have failed that it may have caused itself.
    failures: int = 0


class EventWriter:
    """Queues Events and writes them to the API; its thread starts with the first of them."""

    def __init__(self, api: Api, node_name: str, *, longest_pause_s: float = LONGEST_S) -> None:
        self.messages = MessageQueue()
        self._api = api
        self._node_name = node_name
        self._series = SeriesCache()
        self._waiting: deque[_QueuedEvent] = deque()
        self._ready = threading.Condition()
        self._stopped = threading.Event()
        self._deadline_s = 0.0
        self._thread: threading.Thread | None = None
        self._backoff = RequestBackoff(longest_s=longest_pause_s)
        self._rate = TokenBucket(REQUEST_BURST, REQUEST_PER_S, clock.now().boottime_s)
        self._objects = ObjectRateLimits()
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(EventResult, 0))

    def counts(self) -> Mapping[str, int]:
        """The number of Events by result; may be called from any thread."""
        with self._counting:
            return dict(self._counts)

    def offer(self, pod_events: Iterable[PodEvent]) -> None:
        """Queue these, as many as there is room for; never waits."""
        now_s = clock.now().boottime_s
        for pod_event in pod_events:
            with self._ready:
                if self._stopped.is_set() or len(self._waiting) >= MOST_WAITING:
                    self._drop(
                        f"more than {MOST_WAITING} Events wait to be written, so new ones are dropped; {_ALSO_LOGGED}",
                        now_s,
                    )
                    continue
                self._waiting.append(_QueuedEvent(pod_event=pod_event, offered_s=now_s))
                self._ready.notify()
        if self._waiting and not self._stopped.is_set() and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._run, name="api-events", daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started now: the next call tries again
                thread.start()
                self._thread = thread

    def stop(self, timeout_s: float) -> None:
        """Write what can be written within `timeout_s`, and end; a request still in progress then is abandoned."""
        self._deadline_s = clock.now().boottime_s + timeout_s
        with self._ready:
            self._stopped.set()
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._write(item)

    def _next(self) -> _QueuedEvent | None:
        with self._ready:
            self._ready.wait_for(lambda: bool(self._waiting) or self._stopped.is_set())
            return self._waiting.popleft() if self._waiting else None

    def _write(self, item: _QueuedEvent) -> None:
        item.is_admitted = item.is_admitted or self._admit(item.pod_event)
        if not item.is_admitted:
            return
        while item.failures < MOST_FAILURES and self._may_try(item.offered_s):
            response = self._try(item.pod_event)
            result = WriteResult.NOT_NOW if response is None else write_result(response)
            if result in (WriteResult.WRITTEN, WriteResult.REFUSED):
                self._backoff.reset()
                self._count(EventResult.WRITTEN if result is WriteResult.WRITTEN else EventResult.REFUSED)
                return
            item.failures += result is WriteResult.FAILED
            self._stopped.wait(self._backoff.next_s(None if response is None else response.retry_after_s))
            if result is WriteResult.FAILED and self._put_behind(item):
                return
        self._drop(f"Events that can't be written for too long are dropped; {_ALSO_LOGGED}", clock.now().boottime_s)

    def _admit(self, pod_event: PodEvent) -> bool:
        now_s = clock.now().boottime_s
        if self._objects.admit((pod_event.uid, pod_event.is_normal), now_s):
            return True
        self._count(EventResult.LIMITED)
        pod = f"{pod_event.namespace}/{pod_event.pod}"
        self.messages.add(
            EventResult.LIMITED, f"pod {pod} has had too many Events, so some are not written; {_ALSO_LOGGED}", now_s
        )
        return False

    def _put_behind(self, item: _QueuedEvent) -> bool:
        """Let waiting Events go first: in one namespace a broken webhook may fail on every Event, for minutes each."""
        with self._ready:
            if not self._waiting or self._stopped.is_set():
                return False
            self._waiting.append(item)
            return True

    def _may_try(self, offered_s: float) -> bool:
        """Wait for the rate limit of requests; False if it is too late."""
        now_s = clock.now().boottime_s
        wait_s = self._rate.wait_s(now_s)
        if self._stopped.is_set():
            return wait_s <= 0 and now_s < self._deadline_s
        if now_s - offered_s > KEPT_S:
            return False
        return not self._stopped.wait(wait_s) or clock.now().boottime_s < self._deadline_s

    def _try(self, pod_event: PodEvent) -> ApiResponse | None:
        """One attempt; None if no response came."""
        now_s = clock.now().boottime_s
        try:
            response = self._request(pod_event)
        except ApiError as error:
            self.messages.add("unreachable", f"Events can't be written: {error}; {_KEPT}", now_s)
            return None
        if write_result(response) is not WriteResult.WRITTEN:
            self.messages.add(*refusal(response, pod_event), now_s)
        return response

    def _request(self, pod_event: PodEvent) -> ApiResponse:
        """Write an Event, or add it to the series that the server has, and return the decisive response.

        Safe to repeat with the same Event: the name stays, and so does the count.
        """
        series = self._series.following(pod_event)
        response = None
        if series.count > 1:
            self._rate.take_token(clock.now().boottime_s)
            path = f"{_collection(pod_event)}/{quote(series.name, safe='')}"
            response = self._api.call("PATCH", path, body=series_part(series), content_type=_MERGE)
        if response is None or response.status == 404:
            # An Event lives for an hour by default (--event-ttl): the series continues with a new one and a new note.
            self._rate.take_token(clock.now().boottime_s)
            event = event_object(pod_event, series, self._node_name)
            response = self._api.call("POST", _collection(pod_event), body=event)
        if write_result(response) is WriteResult.WRITTEN:
            self._series.remember(pod_event, series)
        return response

    def _drop(self, sentence: str, now_s: float) -> None:
        self._count(EventResult.DROPPED)
        self.messages.add(sentence, sentence, now_s)

    def _count(self, result: EventResult) -> None:
        with self._counting:
            self._counts[result] += 1
