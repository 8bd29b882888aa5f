"""The rules of LIST and WATCH without a connection: what to request next, what a response means, what to report."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.errors import Problem
from watchdog.kube.responses import ApiResponse

# A watch that is cut is resumed within a second or two. What has not come back by then is worth telling.
PATIENCE_S: Final = 5.0


class Outage:
    """The failures of one feed. Times are CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self._since_s = math.inf
        self._cut_short = 0
        self.problem = Problem("")

    def failed(self, at_s: float, problem: Problem, *, was_accepted: bool) -> None:
        """A request failed that was begun, or a watch that had been accepted ended, at `at_s`."""
        self._since_s = min(self._since_s, at_s)
        self._cut_short += was_accepted
        self.problem = problem

    def accepted(self) -> None:
        """A watch has begun. That is the end of it, unless watches are accepted and cut short again and again."""
        if self._cut_short < 2:
            self._since_s = math.inf

    def proven(self) -> None:
        """A watch has lived: what fails after it is another matter."""
        self._since_s = math.inf
        self._cut_short = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing fails."""
        return self._since_s == math.inf

    def due_in_s(self, now_s: float) -> float:
        """Seconds until it is worth a word; 0 when it is, infinity while nothing fails."""
        return max(0.0, self._since_s + PATIENCE_S - now_s)


# What a server may be late with the end of a watch, or early by its own rounding.
_LATE_S: Final = 15.0
_EARLY_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPace:
    """The times by which a watch is judged, in seconds; pairs are drawn from, so that many daemons do not move as one.

    `length_s`: after so long the server ends a watch. `silence_s`: it sends a bookmark a minute
    (defaultBookmarkFrequency in k8s.io/apiserver/pkg/storage/cacher), and two of them missing, on a watch that had
    some, is a connection that nothing comes through any more.

    `first_word_s`: by then the first bookmark is there, unless nothing of the kind has changed in the whole cluster
    since the watch began and etcd does not report its progress (cacheWatcher.process in the same package). Then it is
    watches of `short_length_s` that tell, by their ends, that the server is there and has nothing to say.

    `lived_s`: a watch that ends sooner has not served, and the pauses go on growing: with the longest pause of 30 s,
    this is a request every 15 s in the mean of whatever it is that breaks watches. `answer_s`: by then an answer has
    begun; a list is worked out before, and a request may wait its turn for 15 s (priority and fairness).
    """

    length_s: tuple[float, float] = (240.0, 300.0)
    silence_s: float = 130.0
    first_word_s: tuple[float, float] = (70.0, 80.0)
    short_length_s: tuple[float, float] = (60.0, 75.0)
    lived_s: float = 30.0
    answer_s: float = 30.0


USUAL: Final = RequestPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request. A watch ends after `length_s` by the server's doing, and is silent for `silence_s` at most."""

    watch: bool
    query: Mapping[str, str]
    length_s: float = 0.0
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a watch ended: after how long, whether a bookmark came on it, and why (None: the server ended it)."""

    lived_s: float
    bookmarked: bool
    why: Problem | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """What came of a request. `problem` says why it failed, and the next one waits; without one it follows at once.

    `accepted`: the server had begun to answer as it should. `lived`: it has done so for a while, and what fails from
    now on has nothing to do with earlier failures. `in_time`: the watch ended as was asked for.
    """

    problem: Problem | None = None
    accepted: bool = False
    lived: bool = False
    in_time: bool = False
    retry_after_s: float | None = None


class Reflector:
    """Where a feed stands between its requests."""

    def __init__(
        self, selector: Mapping[str, str], *, heartbeat: bool, version: str = "", pace: RequestPace = USUAL
    ) -> None:
        """`selector` goes with every request; with `heartbeat`, a silent watch is renewed after a minute or so.

        `version` is what an earlier course had come to.
        """
        self._selector = selector
        self._heartbeat = heartbeat
        self._pace = pace
        self._version = version
        self._list_from: str | None = version or "0"
        self._quiet = False
        self._spent: set[int] = set()

    @property
    def version(self) -> str:
        """The newest resourceVersion that was seen; empty before the first list."""
        return self._version

    def ask(self) -> Ask:
        """The next request."""
        if self._list_from is not None:
            since = {"resourceVersion": self._list_from} if self._list_from else {}
            return Ask(watch=False, query={**self._selector, **since})
        short = self._heartbeat and self._quiet
        end_s = round(random.uniform(*(self._pace.short_length_s if short else self._pace.length_s)))
        watch = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(end_s)}
        asks_for_word = self._heartbeat and not short
        return Ask(
            watch=True,
            query={**self._selector, **watch, "resourceVersion": self._version},
            length_s=end_s,
            silence_s=random.uniform(*self._pace.first_word_s) if asks_for_word else end_s + _LATE_S,
        )

    def listed(self, version: str) -> RequestOutcome:
        """A list came; the watch goes on from its version."""
        self._version, self._list_from = version, None
        return RequestOutcome()

    def moved(self, version: str) -> None:
        """Something was said on the watch; an empty version is one that could not be read."""
        self._version = version or self._version

    def refused(self, answer: ApiResponse, what: str, lived_s: float | None = None) -> RequestOutcome:
        """The server answered, but not with what was asked for; or it ended a watch that had lived with an error."""
        failed = RequestOutcome(
            problem=answer.problem(what),
            accepted=lived_s is not None,
            lived=self._has_lived(lived_s or 0.0),
            retry_after_s=answer.retry_after_s,
        )
        if _is_expired(answer) and self._list_from is None:
            self._list_from = self._version
            return self._once(410, failed)
        if (_is_expired(answer) or _is_too_new(answer)) and self._list_from not in (None, "", "0"):
            self._list_from = ""
            return self._once(504, failed)
        # The credentials are read again with the next request: a token that was rotated is no failure.
        return self._once(401, failed) if answer.status == 401 else failed

    def ended(self, ask: Ask, how: Ended) -> RequestOutcome:
        """The watch came to an end."""
        if how.why is None and how.lived_s >= ask.length_s - _EARLY_S:
            self._quiet = not how.bookmarked
            self._spent.clear()
            return RequestOutcome(accepted=True, lived=True, in_time=True)
        if how.silent and not how.bookmarked and ask.silence_s < ask.length_s:
            self._quiet = True
            return RequestOutcome(accepted=True, lived=self._has_lived(how.lived_s))
        problem = how.why or (
            Problem(
                f"the watch was ended after {how.lived_s:.0f} s, before its time",
                "the API server may be restarting: if it stays so, look at what stands in front of it",
            )
        )
        return RequestOutcome(problem=problem, accepted=True, lived=self._has_lived(how.lived_s))

    def _has_lived(self, lived_s: float) -> bool:
        if lived_s < self._pace.lived_s:
            return False
        self._spent.clear()
        return True

    def _once(self, code: int, failed: RequestOutcome) -> RequestOutcome:
        """No failure the first time, so that it costs no pause; when it comes again before a watch has lived, one."""
        if code in self._spent:
            return failed
        self._spent.add(code)
        return replace(failed, problem=None)


def _is_expired(answer: ApiResponse) -> bool:
    return answer.status == 410 or answer.reason in ("Expired", "Gone")


def _is_too_new(answer: ApiResponse) -> bool:
    """Whether this server has not come to the version yet that another one gave (isTooLargeResourceVersionError)."""
    return any(cause.reason == "ResourceVersionTooLarge" for cause in answer.causes)
