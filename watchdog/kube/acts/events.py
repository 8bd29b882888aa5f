"""Writes Events on pods, on a thread of its own: nothing of the daemon ever waits for one."""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from watchdog import clock
from watchdog.core.tiding import Tiding
from watchdog.kube.acts.event_limits import REQUEST_BURST, REQUEST_PER_S, Bucket, ObjectLimits
from watchdog.kube.acts.event_requests import EventRequests, Verdict, refusal, verdict
from watchdog.kube.api.answers import Answer, ApiError
from watchdog.kube.api.backoff import LONGEST_S, Backoff
from watchdog.kube.api.notices import Notices

if TYPE_CHECKING:
    from watchdog.kube.api.client import Api

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

    tiding: Tiding
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
        self._backoff = Backoff(self._stopped, longest_s=longest_pause_s)
        self._rate = Bucket(REQUEST_BURST, REQUEST_PER_S, clock.now().boottime_s)
        self._objects = ObjectLimits()
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter({fate.value: 0 for fate in Fate})

    def counts(self) -> Mapping[str, int]:
        """How many Events had which fate; to be asked from any thread."""
        with self._counting:
            return dict(self._counts)

    def offer(self, tidings: Iterable[Tiding]) -> None:
        """Take these to be written, as many as there is room for; never waits."""
        now_s = clock.now().boottime_s
        for tiding in tidings:
            with self._ready:
                if self._stopped.is_set() or len(self._waiting) >= MOST_WAITING:
                    self._drop(
                        f"more than {MOST_WAITING} Events wait to be written, so new ones are left out; {_TOLD}", now_s
                    )
                    continue
                self._waiting.append(_Item(tiding=tiding, offered_s=now_s))
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
        item.is_admitted = item.is_admitted or self._admit(item.tiding)
        if not item.is_admitted:
            return
        while item.failures < MOST_FAILURES and self._may_try(item.offered_s):
            answer = self._try(item.tiding)
            found = Verdict.NOT_NOW if answer is None else verdict(answer)
            if found in (Verdict.WRITTEN, Verdict.REFUSED):
                self._backoff.reset()
                self._count(Fate.WRITTEN if found is Verdict.WRITTEN else Fate.REFUSED)
                return
            item.failures += found is Verdict.FAILED
            self._backoff.wait(None if answer is None else answer.retry_after_s)
            if found is Verdict.FAILED and self._put_behind(item):
                return
        self._drop(f"Events that can't be written for too long are left out; {_TOLD}", clock.now().boottime_s)

    def _admit(self, tiding: Tiding) -> bool:
        now_s = clock.now().boottime_s
        if self._objects.admit((tiding.uid, tiding.is_normal), now_s):
            return True
        self._count(Fate.LIMITED)
        pod = f"{tiding.namespace}/{tiding.pod}"
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

    def _try(self, tiding: Tiding) -> Answer | None:
        """One attempt; None: no answer came."""
        now_s = clock.now().boottime_s
        try:
            answer = self._requests.write(tiding, lambda: self._rate.take(clock.now().boottime_s))
        except ApiError as error:
            self.notices.note("unreachable", f"Events can't be written: {error}; {_KEPT}", now_s)
            return None
        if verdict(answer) is not Verdict.WRITTEN:
            self.notices.note(*refusal(answer, tiding), now_s)
        return answer

    def _drop(self, sentence: str, now_s: float) -> None:
        self._count(Fate.DROPPED)
        self.notices.note(sentence, sentence, now_s)

    def _count(self, fate: Fate) -> None:
        with self._counting:
            self._counts[fate.value] += 1
