"""The rules of LIST and WATCH, without a connection: the next request, and the meaning of each response."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.errors import Problem
from watchdog.kube.client import ApiResponse

# A watch that is cut is resumed within a second or two. An outage that lasts longer than this is worth reporting.
PATIENCE_S: Final = 5.0


class Outage:
    """The current failures of one reflector. Times are CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self._since_s = math.inf
        self._cut_short = 0
        self.problem = Problem("")

    def failed(self, at_s: float, problem: Problem, *, was_accepted: bool) -> None:
        """A request begun at `at_s` failed, or an accepted watch ended then."""
        self._since_s = min(self._since_s, at_s)
        self._cut_short += was_accepted
        self.problem = problem

    def accepted(self) -> None:
        """A watch has begun. That ends the outage, unless watches are repeatedly accepted and cut short."""
        if self._cut_short < 2:
            self._since_s = math.inf

    def stable(self) -> None:
        """A watch has lasted long enough: what fails after it is a new outage."""
        self._since_s = math.inf
        self._cut_short = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is failing."""
        return self._since_s == math.inf

    def due_in_s(self, now_s: float) -> float:
        """Seconds until the outage is reported; 0 if it is due, infinity while nothing fails."""
        return max(0.0, self._since_s + PATIENCE_S - now_s)


# How late a server may be in ending a watch, and how early by rounding.
_LATE_S: Final = 15.0
_EARLY_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPace:
    """The times of requests and watches, in seconds; pairs are ranges, so that many daemons do not act in step."""

    # The server ends a watch after this time.
    length_s: tuple[float, float] = (240.0, 300.0)
    # The server sends a bookmark every minute (defaultBookmarkFrequency in k8s.io/apiserver/pkg/storage/cacher); when
    # two are missing on a watch that had some, nothing gets through the connection any more.
    silence_s: float = 130.0
    # The first bookmark comes within this time. It does not if no object of the kind has changed in the whole cluster
    # since the watch began and etcd does not report its progress (cacheWatcher.process in the same package).
    first_bookmark_s: tuple[float, float] = (70.0, 80.0)
    # If none has come by then, watches of this length end regularly, which shows that the server is there and nothing
    # has changed.
    short_length_s: tuple[float, float] = (60.0, 75.0)
    # After a watch that ends sooner, the pauses keep growing. With the longest pause of 30 s, a lasting fault causes a
    # request every 15 s on average.
    stable_after_s: float = 30.0
    # A response begins within this time; a list is computed before that, and a request may be queued for 15 s (priority
    # and fairness).
    answer_s: float = 30.0


USUAL: Final = RequestPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
    """A LIST or a WATCH."""

    # Whether it is a WATCH.
    watch: bool
    query: Mapping[str, str]
    # The server ends a watch after this time.
    length_s: float = 0.0
    # A watch is silent for at most this time.
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of a request."""

    # Why the request failed, so that the next one waits; None: it did not, and the next one follows at once.
    problem: Problem | None = None
    # Whether the server had begun to respond correctly.
    accepted: bool = False
    # Whether it has done so for a while, so that later failures are unrelated to earlier ones.
    is_stable: bool = False
    # Whether the watch ended when it was meant to.
    in_time: bool = False
    # How long the server asks to wait; None: it does not say.
    retry_after_s: float | None = None


class Reflector:
    """The state of one list and watch between its requests."""

    def __init__(
        self, selector: Mapping[str, str], *, heartbeat: bool, version: str = "", pace: RequestPace = USUAL
    ) -> None:
        """`selector` goes with every request; with `heartbeat`, a silent watch is renewed after a minute or so.

        `version` is the newest resourceVersion seen so far, here that of an earlier reflector.
        """
        self._selector = selector
        self._heartbeat = heartbeat
        self._pace = pace
        self.version = version
        self._list_from: str | None = version or "0"
        self._quiet = False
        self._stuck_at = ""
        self._forgiven: set[int] = set()

    def next_request(self) -> NextRequest:
        """The next request, given the responses so far."""
        if self._list_from is not None:
            since = {"resourceVersion": self._list_from} if self._list_from else {}
            return NextRequest(watch=False, query={**self._selector, **since})
        short = self._heartbeat and self._quiet
        end_s = round(random.uniform(*(self._pace.short_length_s if short else self._pace.length_s)))
        watch = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(end_s)}
        awaits_bookmark = self._heartbeat and not short
        return NextRequest(
            watch=True,
            query={**self._selector, **watch, "resourceVersion": self.version},
            length_s=end_s,
            silence_s=random.uniform(*self._pace.first_bookmark_s) if awaits_bookmark else end_s + _LATE_S,
        )

    def listed(self, version: str) -> RequestOutcome:
        """A list has arrived; the watch continues from its version."""
        self.version, self._list_from = version, None
        return RequestOutcome()

    def advance(self, version: str) -> None:
        """An event has arrived on the watch; its version is empty if it could not be read."""
        self.version = version or self.version

    def refused(self, response: ApiResponse, what: str, lasted_s: float | None = None) -> RequestOutcome:
        """The server has responded with an error, or ended a watch with one after `lasted_s`."""
        failed = RequestOutcome(
            problem=response.problem(what),
            accepted=lasted_s is not None,
            is_stable=self._confirm_stable(lasted_s or 0.0),
            retry_after_s=response.retry_after_s,
        )
        if _is_expired(response) and self._list_from is None:
            self._list_from = self.version
            return self._once(410, failed)
        if (_is_expired(response) or _is_too_new(response)) and self._list_from not in (None, "", "0"):
            self._list_from = ""
            return self._once(504, failed)
        if lasted_s is not None:
            self._detect_stuck(is_stuck=not failed.is_stable)
        # The credentials are read again with the next request: a rotated token is not a failure.
        return self._once(401, failed) if response.status == 401 else failed

    def ended(
        self,
        request: NextRequest,
        lasted_s: float,
        why: Problem | None,
        *,
        bookmarked: bool,
        silent: bool = False,
        unreadable: bool = False,
    ) -> RequestOutcome:
        """A watch has ended after `lasted_s`; `why` is None if the server ended it. `bookmarked`: it had a bookmark.

        `silent`: nothing came any more; `unreadable`: what came can't be interpreted.
        """
        if why is None and lasted_s >= request.length_s - _EARLY_S:
            self._quiet = not bookmarked
            self._stuck_at = ""
            self._forgiven.clear()
            return RequestOutcome(accepted=True, is_stable=True, in_time=True)
        is_stable = self._confirm_stable(lasted_s)
        if silent and not bookmarked and request.silence_s < request.length_s:
            self._quiet = True
            return RequestOutcome(accepted=True, is_stable=is_stable)
        self._detect_stuck(is_stuck=(why is None or unreadable) and not is_stable)
        early = Problem(
            f"the watch was ended early, after {lasted_s:.0f} s",
            "the API server may be restarting: if it stays so, check any proxy in front of it",
        )
        return RequestOutcome(problem=why or early, accepted=True, is_stable=is_stable)

    def _detect_stuck(self, *, is_stuck: bool) -> None:
        """List again after two watches in a row that the same event may have ended.

        A server that can't write an event ends each watch there, without a word. Kubernetes 1.34 does so for a pod with
        managed fields nested 9,998 levels deep, which it stores if it comes as protobuf, and lists. Others end it with
        an error (as for an event of etcd without its former value), or write what can't be read.
        """
        stuck_at = self.version if is_stuck else ""
        if stuck_at and stuck_at == self._stuck_at:
            self._list_from = stuck_at
        self._stuck_at = stuck_at

    def _confirm_stable(self, lasted_s: float) -> bool:
        if lasted_s < self._pace.stable_after_s:
            return False
        self._forgiven.clear()
        return True

    def _once(self, code: int, failed: RequestOutcome) -> RequestOutcome:
        """No failure, and so no pause, the first time; a failure if repeated before a watch was stable."""
        if code in self._forgiven:
            return failed
        self._forgiven.add(code)
        return replace(failed, problem=None)


def _is_expired(response: ApiResponse) -> bool:
    return response.status == 410 or response.reason in ("Expired", "Gone")


def _is_too_new(response: ApiResponse) -> bool:
    """Whether this server has not reached the version that another one returned (isTooLargeResourceVersionError)."""
    return any(cause.reason == "ResourceVersionTooLarge" for cause in response.causes)
