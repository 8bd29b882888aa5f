"""One thread per kind of object: its requests, the pauses between them, and the objects known now."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.kube.client import Api, ApiResponse, RequestBackoff, ResponseStream
from watchdog.kube.failure import ApiError, ApiSilentError, ApiUnreachableError
from watchdog.kube.reflector import USUAL, NextRequest, Outage, Reflector, RequestOutcome, RequestPace
from watchdog.kube.store import BrokenStreamError, EventKind, LineSplitter, ListReader, Store, read_event, read_status

Value = TypeVar("Value")
Objects = TypeVar("Objects")


class EndedByServerError(Exception):
    """The server ended the watch with an error; `response` is that error."""

    def __init__(self, response: ApiResponse) -> None:
        super().__init__(response.message)
        self.response = response


class StreamReader(Generic[Value]):
    """Reads one watch as it comes; `bookmarked`: it has brought a bookmark.

    `heard` and `changed` are about the last chunk: whether it completed an event, and whether any object has changed.
    """

    def __init__(self, store: Store[Value], reflector: Reflector) -> None:
        self._store = store
        self._reflector = reflector
        self._lines = LineSplitter()
        self.heard = self.changed = self.bookmarked = False

    def read_chunk(self, chunk: bytes) -> None:
        """Read a chunk. EndedByServerError or BrokenStreamError if it can't continue; what came before counts."""
        self.heard = self.changed = False
        for line in self._lines.feed(chunk):
            event = read_event(line)
            if event.kind is EventKind.ERROR:
                raise EndedByServerError(read_status(event.item))
            if event.kind is EventKind.BOOKMARK:
                self.bookmarked = True
            else:
                self.changed |= self._store.apply(event)
            self._reflector.advance(event.identity.version)
            self.heard = True


# How much longer than requested a watch may last.
_LATE_S: Final = 30.0
_REMEDY: Final = "check that nothing between this node and the API server alters its responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[Value, Objects]):
    """What is listed and watched."""

    # Its name in messages.
    noun: str
    thread: str
    # That of all its gaps.
    reason: GapReason
    path: str
    list_kind: str
    selector: Mapping[str, str]
    heartbeat: bool
    make_store: Callable[[], Store[Value]]
    # Turns the store into what is read, with gaps for unreadable objects.
    gather: Callable[[Store[Value]], tuple[Objects, tuple[Gap, ...]]]
    pace: RequestPace = USUAL
    # For a list, and for a watch.
    accept: tuple[str, str] = ("application/json", "application/json")


class Watcher(Generic[Value]):
    """Lists and watches one resource in the thread that calls `run`; `stop` is for other threads."""

    def __init__(
        self,
        api: Api,
        resource: Resource[Value, Objects],
        on_update: Callable[[Store[Value] | None, Now], None],
        on_problem: Callable[[Problem | None], None],
        version: str = "",
    ) -> None:
        """`on_update` gets the objects (None: unchanged) and when that was true, `on_problem` None when it is over.

        `version` is the newest resourceVersion that an earlier watcher had seen.
        """
        self._api = api
        self._resource = resource
        self._on_update = on_update
        self._on_problem = on_problem
        self._reflector = Reflector(
            resource.selector, heartbeat=resource.heartbeat, version=version, pace=resource.pace
        )
        self._store = resource.make_store()
        self._outage = Outage()
        self._stopped = threading.Event()
        self._backoff = RequestBackoff()
        self._stream: ResponseStream | None = None

    @property
    def version(self) -> str:
        """The newest resourceVersion that was seen."""
        return self._reflector.version

    def stop(self) -> None:
        """Make no further request, and cut the one in progress. Returns at once; from any thread."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.cut()

    def run(self) -> None:
        """List and watch until `stop`."""
        while not self._stopped.is_set():
            began_s = clock.now().boottime_s
            outcome = self.run_once()
            if outcome.is_stable:
                self._end_outage()
            if outcome.problem is not None:
                now_s = clock.now().boottime_s
                at_s = now_s if outcome.is_stable else began_s
                self._outage.failed(at_s, outcome.problem, was_accepted=outcome.accepted)
                self._pause(self._backoff.next_s(outcome.retry_after_s), self._outage.due_in_s(now_s))

    def run_once(self) -> RequestOutcome:
        """Make one request and process its response to the end."""
        request, requested = self._reflector.next_request(), clock.now()
        try:
            with contextlib.closing(self._open(request)) as stream:
                return self._watch(stream, request) if request.watch else self._list(stream, requested)
        except ApiError as error:
            return RequestOutcome(problem=error.problem)
        finally:
            self._stream = None

    def _open(self, request: NextRequest) -> ResponseStream:
        accept = self._resource.accept[request.watch]
        stream = self._api.open(
            self._resource.path, request.query, read_timeout_s=self._resource.pace.answer_s, accept=accept
        )
        self._stream = stream
        if self._stopped.is_set():  # otherwise `stop` has seen the stream
            stream.cut()
        return stream

    def _list(self, stream: ResponseStream, requested: Now) -> RequestOutcome:
        what = f"listing the {self._resource.noun}"
        if stream.status != 200:
            return self._reflector.refused(stream.read(), what)
        listed = ListReader(stream.body(), self._resource.list_kind)
        try:
            has_changed = self._store.fill(listed)
        except ValueError as error:
            return RequestOutcome(problem=Problem(f"{what}: {error}", _REMEDY))
        self._on_update(self._store if has_changed else None, requested)
        return self._reflector.listed(listed.version)

    def _watch(self, stream: ResponseStream, request: NextRequest) -> RequestOutcome:
        what = f"watching the {self._resource.noun}"
        if stream.status != 200:
            return self._reflector.refused(stream.read(), what)
        self._outage.accepted()
        if self._outage.is_over:
            self._on_problem(None)
        reader = StreamReader(self._store, self._reflector)
        opened_s = clock.now().boottime_s
        why: Problem | None = None
        silent = unreadable = False
        try:
            self._take_all(stream, request, reader)
        except EndedByServerError as error:
            return self._reflector.refused(error.response, what, clock.now().boottime_s - opened_s)
        except BrokenStreamError as error:
            why, unreadable = Problem(f"{what}: {error}", _REMEDY), True
        except ApiUnreachableError as error:
            why, silent = error.problem, isinstance(error, ApiSilentError)
        now = clock.now()
        lasted_s = now.boottime_s - opened_s
        outcome = self._reflector.ended(
            request, lasted_s, why, bookmarked=reader.bookmarked, silent=silent, unreadable=unreadable
        )
        if outcome.in_time:
            self._on_update(None, now)
        return outcome

    def _take_all(self, stream: ResponseStream, request: NextRequest, reader: StreamReader[Value]) -> None:
        opened_s = clock.now().boottime_s
        stream.set_read_timeout(request.silence_s)
        for chunk in stream.chunks():
            now = clock.now()
            was_bookmarked = reader.bookmarked
            try:
                reader.read_chunk(chunk)
            finally:  # what came before a broken line counts
                if reader.heard:
                    self._on_update(self._store if reader.changed else None, now)
            lasted_s = now.boottime_s - opened_s
            if reader.heard and lasted_s >= self._resource.pace.stable_after_s:
                self._end_outage()
            if reader.bookmarked and not was_bookmarked:
                stream.set_read_timeout(self._resource.pace.silence_s)
            if lasted_s > request.length_s + _LATE_S:
                raise ApiUnreachableError(Problem(f"{self._api.host}: the watch does not end on time", _REMEDY))

    def _end_outage(self) -> None:
        self._backoff.reset()
        self._outage.stable()
        self._on_problem(None)

    def _pause(self, seconds: float, due_s: float) -> None:
        if due_s < seconds:
            if self._stopped.wait(due_s):
                return
            self._on_problem(self._outage.problem)
            seconds -= due_s
        self._stopped.wait(seconds)


_DEAD: Final = Problem("its thread has ended, which is a defect", "restart the daemon and report it")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObjects(Generic[Objects]):
    """What an informer knows at one moment."""

    objects: Objects
    gaps: tuple[Gap, ...] = ()
    # When that was last known to be current; None: no list has come, and there are no objects.
    synced: Now | None = None
    # Why objects can't be listed or watched; None while all is well.
    problem: Problem | None = None


class Informer(Generic[Value, Objects]):
    """Lists and watches one kind on its own thread. Reading it costs nothing and waits for nothing.

    `synced` advances when the server sends something: a list (to the moment before it was requested), an event, a
    bookmark, or the end of a watch on time. A watch brings changes in order, so each of these shows that everything
    before it has arrived. An accepted watch shows nothing: earlier changes may still be on their way, and a proxy can
    accept it for a server that is down.

    This only claims that this API server has sent all that it knows. A server that lags behind etcd reports old states
    for as long as it stays in service; its own health checks end that (etcd is one of them). A network so slow that
    events queue up makes them late, until the server ends the watch of a client that falls behind. A list from the
    server's cache (resourceVersion 0) counts too. A pod missing from it is unknown here and left alone. UIDs and
    container IDs are never reused, an eviction reads the pod again, and no later list is older.
    """

    def __init__(self, api: Api, resource: Resource[Value, Objects], bell: Bell) -> None:
        self._api = api
        self._resource = resource
        self._bell = bell
        self._lock = threading.Lock()
        self._watcher: Watcher[Value] | None = None
        self._thread: threading.Thread | None = None
        self._version = ""
        self._view = self._empty_view()
        self._taken = self._view

    def start(self) -> None:
        """Begin to watch; what was known before no longer counts."""
        self._run(self._begin())

    def list_again(self) -> None:
        """List and watch from the beginning; what is known is kept until the new list has come."""
        if self.is_following:
            self._run(self._begin(keeps=True))

    def _run(self, watcher: Watcher[Value]) -> None:
        thread = threading.Thread(target=watcher.run, name=self._resource.thread, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Stop at once: a stream is cut, and what still comes is ignored."""
        with self._lock:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            self._version = watcher.version

    def forget(self) -> None:
        """Stop and forget all objects, since they are no longer kept up to date."""
        self.stop()
        self._view = self._empty_view()

    @property
    def is_awaited(self) -> bool:
        """Whether its first list has yet to come, and nothing is known to prevent that."""
        return self.is_following and self.view.synced is None and self.view.problem is None

    @property
    def is_following(self) -> bool:
        """Whether it has been started, and not stopped since."""
        return self._watcher is not None

    def fetch(self) -> None:
        """List once, in this thread; if that fails, the view's `problem` says why."""
        watcher = self._begin()
        problem = None
        while problem is None and self._view.synced is None:  # a second time with credentials that were read again
            problem = watcher.run_once().problem
        if problem is not None:
            self._change(watcher, problem=problem)
        self.stop()

    @property
    def view(self) -> KnownObjects[Objects]:
        """What is known now."""
        return replace(self._view, problem=_DEAD) if self.has_died else self._view

    @property
    def has_died(self) -> bool:
        """Whether its thread has ended without being stopped, so that nothing new comes any more."""
        thread = self._thread
        return self._watcher is not None and thread is not None and not thread.is_alive()

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Whether there is a problem, and what is known was last known to be true longer ago than this.

        Age alone does not count: a working watch may report nothing for minutes if nothing changes.
        """
        view = self.view
        synced = view.synced
        return view.problem is not None and synced is not None and now.boottime_s - synced.boottime_s > limit_s

    def has_changed(self) -> bool:
        """Whether `take_view` would return something else than last time, apart from `synced`."""
        return _differs(self.view, self._taken)

    def take_view(self) -> KnownObjects[Objects]:
        """What is known now, with a gap for the problem if there is one; it no longer counts as changed."""
        self._taken = view = self.view
        if view.problem is None:
            return view
        kept = "nothing is known" if view.synced is None else "the last known state is used"
        gap = Gap(reason=self._resource.reason, what=self._resource.noun, problem=view.problem.of(kept))
        return replace(view, gaps=(*view.gaps, gap))

    def _begin(self, *, keeps: bool = False) -> Watcher[Value]:
        self.stop()
        watcher: Watcher[Value] = Watcher(
            self._api,
            self._resource,
            lambda store, at: self._update(watcher, store, at),
            lambda problem: self._change(watcher, problem=problem),
            self._version,
        )
        with self._lock:
            self._watcher, self._thread = watcher, None
            self._view = self._view if keeps else self._empty_view()
        return watcher

    def _empty_view(self) -> KnownObjects[Objects]:
        return KnownObjects(objects=self._resource.gather(self._resource.make_store())[0])

    def _update(self, watcher: Watcher[Value], store: Store[Value] | None, at: Now) -> None:
        if store is None:
            self._change(watcher, synced=at)
        else:
            objects, gaps = self._resource.gather(store)
            self._change(watcher, objects=objects, gaps=gaps, synced=at)

    def _change(self, watcher: Watcher[Value], **changes: Any) -> None:
        with self._lock:
            if self._watcher is not watcher:
                return  # it has been stopped, and another one may be running
            before, self._view = self._view, replace(self._view, **changes)
            if _differs(before, self._view):
                self._bell.ring()  # within the lock: after `stop` it may be gone


def _differs(one: KnownObjects[Objects], other: KnownObjects[Objects]) -> bool:
    """Whether two views differ; neither `synced` nor the wording of a problem counts."""
    return (
        one.objects is not other.objects
        or one.gaps != other.gaps
        or (one.problem is None) is not (other.problem is None)
    )
