"""Requests for the claims of this node's pods: one for each pod and claim, on a few threads that end when idle."""

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote

from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, Now
from watchdog.kube.claims import Allocation, MissingClaim, ReadClaims, decode_claim
from watchdog.kube.client import Api, ApiResponse, RequestBackoff
from watchdog.kube.failure import ApiError
from watchdog.kube.wire import DECODE_ERRORS

_PATH: Final = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
_AT_A_TIME: Final = 4
_EVERY_S: Final = 0.1
_ANSWER_S: Final = 10.0
# A claim with 32 devices, and as much configuration as the API server accepts for each, has 659 KB.
_LARGEST: Final = 2**20
# Before it has started, a pod uses nothing, and one whose node was set by hand may be given nothing for ever.
_UNSTARTED_S: Final = 300.0
# What another thread may still be waiting for is left to it.
_SOON_S: Final = 1.0
_NOT_GIVEN: Final = (
    "see `kubectl get resourceclaim NAME -o yaml` in the pod's namespace: the scheduler allocates claims, so a pod "
    "that names its node itself is given nothing"
)
_ABSENT: Final = Problem("it was not found", "create it: the pod can't start without it")

_TOO_LARGE: Final = Allocation(devices=(), is_allocated=True, reserved_for=frozenset())
# A claim stays as long as its pod runs, unless its finalizers are removed.
_GONE: Final = replace(_TOO_LARGE, is_kept=False)

_Key = tuple[str, str, str]  # the pod's UID, its namespace, and the name of the claim


class _RefusedError(Exception):
    """A request failed for a reason that is no matter of the one claim."""

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.cause)
        self.problem = problem
        self.retry_after_s = retry_after_s


@dataclass(slots=True, kw_only=True)
class _Request:
    """One claim of one pod, until what it gave has been taken over by who reads it here."""

    # Whether a container of the pod has started, which no kubelet does without what its claims were given.
    has_started: bool
    # CLOCK_BOOTTIME.
    not_before_s: float = 0.0
    # Whether there was an answer about this claim, and whether that was what it gave the pod.
    is_answered: bool = False
    is_done: bool = False
    backoff: RequestBackoff = field(default_factory=RequestBackoff)


class ClaimRequests:
    """The claims as the API server has them, requested one by one; any thread may call.

    Several daemons' worth of requests at once must not be the API server's problem: at most four at a time, ten a
    second. While it refuses all of them, or can't be reached, one at a time is tried, after a growing pause.
    """

    def __init__(self, api: Api, bell: Bell) -> None:
        self._api = api
        self._bell = bell
        self._condition = threading.Condition()
        self._missing: Sequence[MissingClaim] = ()
        self._wanted: dict[_Key, _Request] = {}
        self._in_flight: set[_Key] = set()
        self._workers = 0
        self._not_before_s = 0.0
        self._backoff = RequestBackoff()
        self._is_stopped = False
        self._read = self._taken = ReadClaims(remedy=_NOT_GIVEN)
        # Whether a thread has ended by an error of ours, so that claims may stay unread.
        self.has_died = False

    def want(self, missing: Sequence[MissingClaim]) -> None:
        """Read these claims, and no others any more; returns at once."""
        if missing is self._missing:
            return
        with self._condition:
            self._missing = missing
            before, self._wanted = self._wanted, {}
            for pod, name in missing:
                key = pod.uid, pod.namespace, name
                # The claim of a pod that has left is no longer reserved for it.
                has_started = pod.has_started and pod.left_since is None
                request = before.get(key) or _Request(has_started=has_started)
                if has_started and not request.has_started:
                    request.has_started, request.not_before_s = True, 0.0
                self._wanted[key] = request
            self._start_workers()
            self._condition.notify_all()

    def fetch(self, missing: Sequence[MissingClaim], timeout_s: float) -> None:
        """Read these claims once; returns when each was answered, none can be read, or the time is over."""
        self.want(missing)
        with self._condition:
            self._condition.wait_for(self._is_answered, timeout_s)
        self.stop()

    def _is_answered(self) -> bool:
        return self._read.lacking is not None or all(request.is_answered for request in self._wanted.values())

    def stop(self) -> None:
        """Make no further request; returns at once."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def has_changed(self) -> bool:
        """Whether `read` would return something else than last time."""
        return self._read is not self._taken

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: what was allocated to a pod stays so."""
        return False

    def read(self, now: Now) -> tuple[ReadClaims, tuple[Gap, ...]]:
        """What has been read so far."""
        self._taken = self._read
        return self._taken, ()

    def _start_workers(self) -> None:
        undone = sum(not request.is_done for request in self._wanted.values())
        while not self._is_stopped and self._workers < min(_AT_A_TIME, undone):
            try:
                threading.Thread(target=self._work, name="api-claims", daemon=True).start()
            except RuntimeError:  # no thread can be started at the moment; the next pod that has a claim tries again
                self._missing = ()
                return
            self._workers += 1

    def _work(self) -> None:
        try:
            while (key := self._next()) is not None:
                self._ask(key)
        except BaseException:
            self.has_died = True
            raise

    def _next(self) -> _Key | None:
        """The next claim to ask for, when its time has come; None: this thread is no longer needed."""
        with self._condition:
            while not self._is_stopped:
                every = self._wanted.items()
                waiting = [key for key, request in every if not request.is_done and key not in self._in_flight]
                if not waiting:
                    break
                key = min(waiting, key=self._order)
                now_s = clock.now().boottime_s
                wait_s = max(self._wanted[key].not_before_s, self._not_before_s) - now_s
                if wait_s <= 0:
                    self._in_flight.add(key)
                    self._not_before_s = now_s + _EVERY_S
                    return key
                if wait_s > _SOON_S and self._workers > 1:
                    break
                self._condition.wait(wait_s)
            self._workers -= 1
            return None

    def _order(self, key: _Key) -> tuple[bool, bool, float]:
        """Of those that are due what runs comes first: pods that never start must not delay it."""
        request = self._wanted[key]
        return request.not_before_s > clock.now().boottime_s, not request.has_started, request.not_before_s

    def _ask(self, key: _Key) -> None:
        uid, namespace, name = key
        try:
            # Out of the API server's memory; if it lags behind, the pod is not in it, and it is asked once more.
            found = self._request(namespace, name, {"resourceVersion": "0"})
            if not (isinstance(found, Allocation) and found.is_for(uid)):
                with self._condition:
                    self._not_before_s += _EVERY_S
                found = self._request(namespace, name, {})
        except _RefusedError as error:
            self._refused(key, error)
            return
        self._answered(key, found)

    def _request(self, namespace: str, name: str, query: dict[str, str]) -> Allocation | Problem:
        """What one claim was given, or why that can't be known; _RefusedError if that is no matter of this claim."""
        path = _PATH.format(quote(namespace, safe=""), quote(name, safe=""))
        body = bytearray()
        try:
            with closing(self._api.open(path, query, read_timeout_s=_ANSWER_S)) as stream:
                for chunk in stream.body():
                    body += chunk
                    if len(body) > _LARGEST:
                        return _TOO_LARGE
                response = ApiResponse(stream.status, bytes(body), stream.headers)
        except ApiError as error:
            raise _RefusedError(error.problem) from error
        if response.is_good:
            try:
                return decode_claim(response.body)[1]
            except (*DECODE_ERRORS, ValueError) as error:
                return Problem(f"it can't be read: {error}", "report it with the server's version")
        if response.status == 404 and response.object_name:
            return _GONE
        raise _RefusedError(response.problem(f"reading the ResourceClaim {namespace}/{name}"), response.retry_after_s)

    def _refused(self, key: _Key, error: "_RefusedError") -> None:
        """All must wait; another claim is the next to be tried, in case only this one is refused."""
        with self._condition:
            self._in_flight.discard(key)
            now_s = clock.now().boottime_s
            self._not_before_s = max(self._not_before_s, now_s + self._backoff.next_s(error.retry_after_s))
            if (request := self._wanted.get(key)) is not None:
                request.not_before_s = now_s + request.backoff.next_s()
            problem = Problem(f"it could not be read: {error.problem.cause}", error.problem.remedy)
            self._publish(replace(self._read, lacking=problem))

    def _answered(self, key: _Key, found: Allocation | Problem) -> None:
        uid, _, name = key
        with self._condition:
            self._in_flight.discard(key)
            self._backoff.reset()
            request = self._wanted.get(key)
            if request is None:
                return
            # What the editor of its namespace can do to a claim must not free the pod: one that is too large to be read
            # gave it nothing, as if it had requested nothing; so did one that is gone, or that was made again under its
            # name, for as long as it is.
            own = frozenset((uid,))
            if found is _TOO_LARGE:
                found = replace(found, reserved_for=own)
            elif isinstance(found, Allocation) and request.has_started and found.is_of_others(uid):
                found = replace(_GONE, reserved_for=own)
            found = _ABSENT if found is _GONE else found
            request.is_answered = True
            request.is_done = isinstance(found, Allocation) and found.is_for(uid) and found.is_kept
            pause_s = request.backoff.next_s() if request.has_started else _UNSTARTED_S
            request.not_before_s = clock.now().boottime_s + pause_s
            # What is no longer wanted has been taken over.
            wanted = {(of_pod, claim) for of_pod, _, claim in self._wanted}
            answers = {other: each for other, each in self._read.answers.items() if other in wanted}
            self._publish(replace(self._read, answers={**answers, (uid, name): found}, lacking=None))

    def _publish(self, read: ReadClaims) -> None:
        """Let others see it, and wake who waits for that; within the lock."""
        has_changed = read != self._read
        self._read = read if has_changed else self._read
        self._condition.notify_all()
        if has_changed and not self._is_stopped:
            self._bell.ring()
