"""One thread for each kind of object: its requests, the pauses between them, and what is known at any time."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.kube.client import Api, ResponseStream
from watchdog.kube.reflector import USUAL, Ask, Ended, Outage, Reflector, RequestOutcome, RequestPace
from watchdog.kube.responses import ApiError, ApiResponse, ApiSilentError, ApiUnreachableError, RequestBackoff
from watchdog.kube.store import (
    BrokenStreamError,
    EventKind,
    Lines,
    Store,
    WatchEvent,
    read_event,
    read_list,
    read_status,
)

Value = TypeVar("Value")


class EndedByServerError(Exception):
    """The server ended the watch with an error; `answer` is what it said."""

    def __init__(self, answer: ApiResponse) -> None:
        super().__init__(answer.message)
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What has come since it was last asked: whether the server said anything, and whether any object has changed."""

    heard: bool
    changed: bool


class StreamReader(Generic[Value]):
    """Takes one watch in, as it comes; `bookmarked` is whether a bookmark was on it."""

    def __init__(self, store: Store[Value], reflector: Reflector) -> None:
        self._store = store
        self._reflector = reflector
        self._lines = Lines()
        self._heard = self._changed = False
        self.bookmarked = False

    def take(self, chunk: bytes) -> None:
        """Take what came. EndedByServerError or BrokenStreamError where it can't go on; what stands before counts."""
        for line in self._lines.feed(chunk):
            event = read_event(line)
            if event.kind is EventKind.ERROR:
                raise EndedByServerError(read_status(event.item))
            self._take(event)
            self._heard = True

    def news(self) -> Changed:
        """What has come since the last time."""
        news = Changed(heard=self._heard, changed=self._changed)
        self._heard = self._changed = False
        return news

    def _take(self, event: WatchEvent) -> None:
        if event.kind is EventKind.BOOKMARK:
            self.bookmarked = True
        else:
            self._changed |= self._store.take(event)
        self._reflector.moved(event.identity.version)


# So much longer than was asked for a watch may take to end.
_LATE_S: Final = 30.0
_REMEDY: Final = "see that nothing between this node and the API server changes what it says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[Value]):
    """What is listed and watched; `noun` names it to people. `accept` is for a list, and for a watch."""

    noun: str
    path: str
    list_kind: str
    selector: Mapping[str, str]
    heartbeat: bool
    make_store: Callable[[], Store[Value]]
    pace: RequestPace = USUAL
    accept: tuple[str, str] = ("application/json", "application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Generic[Value]):
    """Who is told: of what is known (None: as before) and when it was true; of a problem (None: it is over)."""

    on_news: Callable[[Store[Value] | None, Now], None]
    on_problem: Callable[[Problem | None], None]


class Watcher(Generic[Value]):
    """Lists and watches one resource in the thread that calls it; `end` is for others."""

    def __init__(self, api: Api, resource: Resource[Value], listener: Listener[Value], version: str = "") -> None:
        """`version` is what an earlier life had come to."""
        self._api = api
        self._resource = resource
        self._listener = listener
        self._reflector = Reflector(
            resource.selector, heartbeat=resource.heartbeat, version=version, pace=resource.pace
        )
        self._store = resource.make_store()
        self._trouble = Outage()
        self._ended = threading.Event()
        self._backoff = RequestBackoff(self._ended)
        self._stream: ResponseStream | None = None
        self.requests: Counter[str] = Counter(list=0, watch=0)  # no new key while another thread reads it

    @property
    def version(self) -> str:
        """The newest resourceVersion that was seen."""
        return self._reflector.version

    def end(self) -> None:
        """Make no further request, and cut the one in progress. Returns at once; from any thread."""
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

    def turn(self) -> RequestOutcome:
        """Make one request and see it through to its end."""
        ask, asked = self._reflector.ask(), clock.now()
        self.requests["watch" if ask.watch else "list"] += 1
        try:
            with contextlib.closing(self._open(ask)) as stream:
                return self._watch(stream, ask) if ask.watch else self._list(stream, asked)
        except ApiError as error:
            return RequestOutcome(problem=error.problem)
        finally:
            self._stream = None

    def _open(self, ask: Ask) -> ResponseStream:
        accept = self._resource.accept[1 if ask.watch else 0]
        stream = self._api.open(
            self._resource.path, ask.query, read_timeout_s=self._resource.pace.answer_s, accept=accept
        )
        self._stream = stream
        if self._ended.is_set():  # else `end` has seen the stream
            stream.cut()
        return stream

    def _list(self, stream: ResponseStream, asked: Now) -> RequestOutcome:
        what = f"listing the {self._resource.noun}"
        answer = stream.read()
        if not answer.is_good:
            return self._reflector.refused(answer, what)
        try:
            items, version = read_list(answer.body, self._resource.list_kind)
        except ValueError as error:
            return RequestOutcome(problem=Problem(f"{what}: {error}", _REMEDY))
        changed = self._store.fill(items)
        self._listener.on_news(self._store if changed else None, asked)
        return self._reflector.listed(version)

    def _watch(self, stream: ResponseStream, ask: Ask) -> RequestOutcome:
        what = f"watching the {self._resource.noun}"
        if stream.status != 200:
            return self._reflector.refused(stream.read(), what)
        self._trouble.accepted()
        if self._trouble.is_over:
            self._listener.on_problem(None)
        reader = StreamReader(self._store, self._reflector)
        opened_s = clock.now().boottime_s
        why: Problem | None = None
        silent = False
        try:
            self._take_all(stream, ask, reader)
        except EndedByServerError as error:
            return self._reflector.refused(error.answer, what, clock.now().boottime_s - opened_s)
        except BrokenStreamError as error:
            why = Problem(f"{what}: {error}", _REMEDY)
        except ApiUnreachableError as error:
            why, silent = error.problem, isinstance(error, ApiSilentError)
        now = clock.now()
        how = Ended(lived_s=now.boottime_s - opened_s, bookmarked=reader.bookmarked, why=why, silent=silent)
        outcome = self._reflector.ended(ask, how)
        if outcome.in_time:
            self._listener.on_news(None, now)
        return outcome

    def _take_all(self, stream: ResponseStream, ask: Ask, reader: StreamReader[Value]) -> None:
        opened_s = clock.now().boottime_s
        stream.be_patient(ask.silence_s)
        for chunk in stream.chunks():
            now = clock.now()
            expected = reader.bookmarked
            try:
                reader.take(chunk)
            finally:  # what came before a broken line counts
                news = reader.news()
                if news.heard:
                    self._listener.on_news(self._store if news.changed else None, now)
            lived_s = now.boottime_s - opened_s
            if news.heard and lived_s >= self._resource.pace.lived_s:
                self._has_lived()
            if reader.bookmarked and not expected:
                stream.be_patient(self._resource.pace.silence_s)
            if lived_s > ask.length_s + _LATE_S:
                raise ApiUnreachableError(Problem(f"{self._api.host}: the watch does not end in its time", _REMEDY))

    def _has_lived(self) -> None:
        self._backoff.reset()
        self._trouble.proven()
        self._listener.on_problem(None)

    def _pause(self, seconds: float, due_s: float) -> None:
        if due_s < seconds:
            if self._ended.wait(due_s):
                return
            self._listener.on_problem(self._trouble.problem)
            seconds -= due_s
        self._ended.wait(seconds)


Objects = TypeVar("Objects")
_DEAD: Final = "its thread has ended, which is a defect"


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerKind(Generic[Value, Objects]):
    """What a feed follows; `gather` makes of it what the daemon reads, and names what could not be read."""

    resource: Resource[Value]
    thread: str
    reason: GapReason
    gather: Callable[[Store[Value]], tuple[Objects, tuple[Gap, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObjects(Generic[Objects]):
    """What a feed knows at one moment. `synced` is None, and the objects are empty, until a list has come."""

    objects: Objects
    gaps: tuple[Gap, ...] = ()
    synced: Now | None = None
    problem: Problem | None = None


class Informer(Generic[Value, Objects]):
    """Follows one kind. Reading it costs nothing and waits for nothing.

    `synced` moves when the server says something: a list (to the moment before it was asked for), an event, a bookmark,
    and a watch that it ends in its time. A watch brings the changes in their order, so by each of these all that came
    before has come, too. That it accepts a watch says nothing of that kind: what happened meanwhile is still to come,
    and something in between can accept for a server that is away.

    No more is claimed than that this API server has told all that it knows. One that lags behind etcd tells old news
    for as long as it stays in service; its own health checks end that (etcd is one of them). A network so slow that
    events queue up on it makes them late, until the server ends the watch of who falls behind. What was listed from its
    memory (resourceVersion 0) counts all the same: a pod that it does not know yet is unknown here and left alone, a
    UID or a container ID never comes back, an eviction reads the pod again, and no later list is older.
    """

    def __init__(self, api: Api, kind: InformerKind[Value, Objects], bell: Bell) -> None:
        self._api = api
        self._kind = kind
        self._bell = bell
        self._lock = threading.Lock()
        self._watcher: Watcher[Value] | None = None
        self._thread: threading.Thread | None = None
        self._version = ""
        self._view = self._nothing()
        self._seen = self._view
        self._requests: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to follow; what was known from an earlier time counts no more."""
        watcher = self._begin()
        thread = threading.Thread(target=watcher.run, name=self._kind.thread, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Stop following, at once: a stream is cut, and what still comes is not taken."""
        with self._lock:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.end()
            self._version = watcher.version
            self._requests += watcher.requests

    def forget(self) -> None:
        """Know nothing any more: what is not followed would be taken for true for ever."""
        self.stop()
        self._view = self._nothing()

    @property
    def is_following(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._watcher is not None

    def fetch(self) -> None:
        """List once, in this thread; where that fails, `problem` says why."""
        watcher = self._begin()
        problem = None
        while problem is None and self._view.synced is None:  # a second time with credentials that were read again
            problem = watcher.turn().problem
        if problem is not None:
            self._note(watcher, problem)
        self.stop()

    @property
    def problem(self) -> Problem | None:
        """What keeps the feed from following, in a sentence with its remedy; None while all is well."""
        return self.view.problem

    @property
    def requests(self) -> Counter[str]:
        """Requests made so far, by `list` and `watch`."""
        watcher = self._watcher
        return self._requests + (watcher.requests if watcher is not None else Counter())

    @property
    def view(self) -> KnownObjects[Objects]:
        """What is known now."""
        if self.has_died:
            return replace(self._view, problem=Problem(_DEAD, "restart the daemon and report it"))
        return self._view

    @property
    def has_died(self) -> bool:
        """Whether its thread has ended although nobody stopped it: nothing new comes any more."""
        thread = self._thread
        return self._watcher is not None and thread is not None and not thread.is_alive()

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Whether something keeps it from learning more, and what it knows was last known to be true longer ago.

        Not by the age alone: what hardly ever changes may rest for minutes on a watch that is sound.
        """
        view = self.view
        synced = view.synced
        return view.problem is not None and synced is not None and now.boottime_s - synced.boottime_s > limit_s

    def has_changed(self) -> bool:
        """Whether `look` would give something else than at the last time, but for `synced`."""
        return _differs(self.view, self._seen)

    def look(self) -> KnownObjects[Objects]:
        """What is known now, which counts as seen."""
        self._seen = self.view
        return self._seen

    def gaps_of(self, view: KnownObjects[Objects]) -> tuple[Gap, ...]:
        """The gaps of a view, with its problem as one of them."""
        if view.problem is None:
            return view.gaps
        kept = "nothing is known" if view.synced is None else "what is known is kept, and ages"
        noun = self._kind.resource.noun
        return (*view.gaps, Gap(reason=self._kind.reason, what=noun, problem=view.problem.of(kept)))

    def _begin(self) -> Watcher[Value]:
        self.stop()
        listener: Listener[Value] = Listener(
            on_news=lambda store, at: self._take(watcher, store, at),
            on_problem=lambda problem: self._note(watcher, problem),
        )
        watcher = Watcher(self._api, self._kind.resource, listener, self._version)
        with self._lock:
            self._watcher, self._thread, self._view = watcher, None, self._nothing()
        return watcher

    def _nothing(self) -> KnownObjects[Objects]:
        return KnownObjects(objects=self._kind.gather(self._kind.resource.make_store())[0])

    def _take(self, watcher: Watcher[Value], store: Store[Value] | None, at: Now) -> None:
        if store is None:
            self._change(watcher, lambda view: replace(view, synced=at))
            return
        objects, gaps = self._kind.gather(store)
        self._change(watcher, lambda view: replace(view, objects=objects, gaps=gaps, synced=at))

    def _note(self, watcher: Watcher[Value], problem: Problem | None) -> None:
        self._change(watcher, lambda view: replace(view, problem=problem))

    def _change(
        self, watcher: Watcher[Value], change: Callable[[KnownObjects[Objects]], KnownObjects[Objects]]
    ) -> None:
        with self._lock:
            if self._watcher is not watcher:
                return  # it has been stopped, and another one may be at work
            before = self._view
            self._view = change(before)
            if _differs(before, self._view):
                self._bell.ring()  # within the lock: after `stop` it may be gone


def _differs(one: KnownObjects[Objects], other: KnownObjects[Objects]) -> bool:
    """Whether there is something new in it; that it is known to be true still, and how a problem is put, is not."""
    return (
        one.objects is not other.objects
        or one.gaps != other.gaps
        or (one.problem is None) is not (other.problem is None)
    )
