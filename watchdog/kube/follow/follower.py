"""One life of a feed: its requests one after the other, with the pauses between them, until it is ended."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from watchdog import clock
from watchdog.core.model import Now
from watchdog.kube.api.answers import ApiError, ApiSilentError, ApiUnreachableError
from watchdog.kube.api.backoff import Backoff
from watchdog.kube.api.client import Api
from watchdog.kube.api.stream import Stream
from watchdog.kube.follow.course import USUAL, Ask, Course, Ended, Outcome, Pace
from watchdog.kube.follow.intake import EndedByServerError, Intake
from watchdog.kube.follow.shelf import Shelf
from watchdog.kube.follow.trouble import Trouble
from watchdog.kube.follow.watch_stream import BrokenStreamError, read_list

# So much longer than was asked for a watch may take to end.
_LATE_S: Final = 30.0
_REMEDY: Final = "see that nothing between this node and the API server changes what it says"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[Value]):
    """What is listed and watched; `noun` names it to people. `accept` is for a list, and for a watch."""

    noun: str
    path: str
    list_kind: str
    selector: Mapping[str, str]
    heartbeat: bool
    make_shelf: Callable[[], Shelf[Value]]
    pace: Pace = USUAL
    accept: tuple[str, str] = ("application/json", "application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Generic[Value]):
    """Who is told: of what is known (None: as before) and when it was true; of a problem (None: it is over)."""

    on_news: Callable[[Shelf[Value] | None, Now], None]
    on_problem: Callable[[str | None], None]


class Follower(Generic[Value]):
    """Lists and watches one resource in the thread that calls it; `end` is for others."""

    def __init__(self, api: Api, resource: Resource[Value], listener: Listener[Value], version: str = "") -> None:
        """`version` is what an earlier life had come to."""
        self._api = api
        self._resource = resource
        self._listener = listener
        self._course = Course(resource.selector, heartbeat=resource.heartbeat, version=version, pace=resource.pace)
        self._shelf = resource.make_shelf()
        self._trouble = Trouble()
        self._ended = threading.Event()
        self._backoff = Backoff(self._ended)
        self._stream: Stream | None = None
        self.requests: Counter[str] = Counter(list=0, watch=0)  # no new key while another thread reads it

    @property
    def version(self) -> str:
        """The newest resourceVersion that was seen."""
        return self._course.version

    def end(self) -> None:
        """Make no further request, and cut the one under way. Returns at once; from any thread."""
        self._ended.set()
        stream = self._stream
        if stream is not None:
            stream.cut()

    def run(self) -> None:
        """Follow until the end."""
        while not self._ended.is_set():
            began_s = clock.now().boottime_s
            outcome = self.turn()
            if outcome.lived:
                self._has_lived()
            if outcome.problem is not None:
                now_s = clock.now().boottime_s
                at_s = now_s if outcome.lived else began_s
                self._trouble.failed(at_s, outcome.problem, was_accepted=outcome.accepted)
                self._pause(self._backoff.next_s(outcome.retry_after_s), self._trouble.due_in_s(now_s))

    def turn(self) -> Outcome:
        """Make one request and see it through to its end."""
        ask, asked = self._course.ask(), clock.now()
        self.requests["watch" if ask.watch else "list"] += 1
        try:
            with contextlib.closing(self._open(ask)) as stream:
                return self._watch(stream, ask) if ask.watch else self._list(stream, asked)
        except ApiError as error:
            return Outcome(problem=str(error))
        finally:
            self._stream = None

    def _open(self, ask: Ask) -> Stream:
        accept = self._resource.accept[1 if ask.watch else 0]
        stream = self._api.open(
            self._resource.path, ask.query, read_timeout_s=self._resource.pace.answer_s, accept=accept
        )
        self._stream = stream
        if self._ended.is_set():  # else `end` has seen the stream
            stream.cut()
        return stream

    def _list(self, stream: Stream, asked: Now) -> Outcome:
        what = f"listing the {self._resource.noun}"
        answer = stream.read()
        if not answer.is_good:
            return self._course.refused(answer, what)
        try:
            items, version = read_list(answer.body, self._resource.list_kind)
        except ValueError as error:
            return Outcome(problem=f"{what}: {error}; {_REMEDY}")
        changed = self._shelf.fill(items)
        self._listener.on_news(self._shelf if changed else None, asked)
        return self._course.listed(version)

    def _watch(self, stream: Stream, ask: Ask) -> Outcome:
        what = f"watching the {self._resource.noun}"
        if stream.status != 200:
            return self._course.refused(stream.read(), what)
        self._trouble.accepted()
        if self._trouble.is_over:
            self._listener.on_problem(None)
        intake = Intake(self._shelf, self._course)
        opened_s = clock.now().boottime_s
        why, silent = None, False
        try:
            self._take_all(stream, ask, intake)
        except EndedByServerError as error:
            return self._course.refused(error.answer, what, clock.now().boottime_s - opened_s)
        except BrokenStreamError as error:
            why = f"{what}: {error}; {_REMEDY}"
        except ApiUnreachableError as error:
            why, silent = str(error), isinstance(error, ApiSilentError)
        now = clock.now()
        how = Ended(lived_s=now.boottime_s - opened_s, bookmarked=intake.bookmarked, why=why, silent=silent)
        outcome = self._course.ended(ask, how)
        if outcome.in_time:
            self._listener.on_news(None, now)
        return outcome

    def _take_all(self, stream: Stream, ask: Ask, intake: Intake[Value]) -> None:
        opened_s = clock.now().boottime_s
        stream.be_patient(ask.silence_s)
        for chunk in stream.chunks():
            now = clock.now()
            expected = intake.bookmarked
            try:
                intake.take(chunk)
            finally:  # what came before a broken line counts
                news = intake.news()
                if news.heard:
                    self._listener.on_news(self._shelf if news.changed else None, now)
            lived_s = now.boottime_s - opened_s
            if news.heard and lived_s >= self._resource.pace.lived_s:
                self._has_lived()
            if intake.bookmarked and not expected:
                stream.be_patient(self._resource.pace.silence_s)
            if lived_s > ask.length_s + _LATE_S:
                raise ApiUnreachableError(f"{self._api.host}: the watch does not end in its time; {_REMEDY}")

    def _has_lived(self) -> None:
        self._backoff.reset()
        self._trouble.proven()
        self._listener.on_problem(None)

    def _pause(self, seconds: float, due_s: float) -> None:
        if due_s < seconds:
            if self._ended.wait(due_s):
                return
            self._listener.on_problem(self._trouble.sentence)
            seconds -= due_s
        self._ended.wait(seconds)
