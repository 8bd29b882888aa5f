"""What is known of the objects of one kind, kept up by a follower on a thread of its own and read at any time."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from watchdog.bell import Bell
from watchdog.core.model import Gap, GapReason, Now
from watchdog.kube.api.client import Api
from watchdog.kube.follow.follower import Follower, Listener, Resource
from watchdog.kube.follow.shelf import Shelf

Value = TypeVar("Value")
Objects = TypeVar("Objects")
_DEAD: Final = "its thread has ended, which is a defect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Value, Objects]):
    """What a feed follows; `gather` makes of it what the daemon reads, and names what could not be read."""

    resource: Resource[Value]
    thread: str
    reason: GapReason
    gather: Callable[[Shelf[Value]], tuple[Objects, tuple[Gap, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Generic[Objects]):
    """What a feed knows at one moment. `synced` is None, and the objects are empty, until a list has come."""

    objects: Objects
    gaps: tuple[Gap, ...] = ()
    synced: Now | None = None
    problem: str | None = None


class Feed(Generic[Value, Objects]):
    """Follows one kind. Reading it costs nothing and waits for nothing.

    `synced` moves when the server says something: a list (to the moment before it was asked for), an event, a bookmark,
    and a watch that it ends in its time. A watch brings the changes in their order, so by each of these all that came
    before has come, too. That it accepts a watch says nothing of that kind: what happened meanwhile is still to come,
    and something in between can accept for a server that is away.

    No more is claimed than that this API server has told all that it knows. One that lags behind etcd tells old news
    for as long as it stays in service; its own health checks end that (etcd is one of them). A network so slow that
    events queue up on it makes them late, until the server ends the watch of who falls behind. What was listed from its
    memory (resourceVersion 0) counts all the same: a pod that it does not know yet is unknown here and left alone, a
    UID or a container ID never comes back, an eviction reads the pod anew, and no later list is older.
    """

    def __init__(self, api: Api, kind: Kind[Value, Objects], bell: Bell) -> None:
        self._api = api
        self._kind = kind
        self._bell = bell
        self._lock = threading.Lock()
        self._follower: Follower[Value] | None = None
        self._thread: threading.Thread | None = None
        self._version = ""
        self._view = self._nothing()
        self._seen = self._view
        self._requests: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to follow; what was known from an earlier time counts no more."""
        follower = self._begin()
        thread = threading.Thread(target=follower.run, name=self._kind.thread, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Stop following, at once: a stream is cut, and what still comes is not taken."""
        with self._lock:
            follower, self._follower = self._follower, None
        if follower is not None:
            follower.end()
            self._version = follower.version
            self._requests += follower.requests

    def forget(self) -> None:
        """Know nothing any more: what is not followed would be taken for true for ever."""
        self.stop()
        self._view = self._nothing()

    @property
    def is_following(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._follower is not None

    def fetch(self) -> None:
        """List once, in this thread; where that fails, `problem` says why."""
        follower = self._begin()
        problem = None
        while problem is None and self._view.synced is None:  # a second time with credentials that were read anew
            problem = follower.turn().problem
        if problem is not None:
            self._note(follower, problem)
        self.stop()

    @property
    def problem(self) -> str | None:
        """What keeps the feed from following, in a sentence with its remedy; None while all is well."""
        return self.view.problem

    @property
    def requests(self) -> Counter[str]:
        """Requests made so far, by `list` and `watch`."""
        follower = self._follower
        return self._requests + (follower.requests if follower is not None else Counter())

    @property
    def view(self) -> View[Objects]:
        """What is known now."""
        if self.has_died:
            return replace(self._view, problem=f"{_DEAD}; restart the daemon and report it")
        return self._view

    @property
    def has_died(self) -> bool:
        """Whether its thread has ended although nobody stopped it: nothing new comes any more."""
        thread = self._thread
        return self._follower is not None and thread is not None and not thread.is_alive()

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

    def look(self) -> View[Objects]:
        """What is known now, which counts as seen."""
        self._seen = self.view
        return self._seen

    def gaps_of(self, view: View[Objects]) -> tuple[Gap, ...]:
        """The gaps of a view, with its problem as one of them."""
        if view.problem is None:
            return view.gaps
        kept = "nothing is known" if view.synced is None else "what is known is kept, and ages"
        noun = self._kind.resource.noun
        return (*view.gaps, Gap(reason=self._kind.reason, what=noun, why=f"{kept}: {view.problem}"))

    def _begin(self) -> Follower[Value]:
        self.stop()
        listener: Listener[Value] = Listener(
            on_news=lambda shelf, at: self._take(follower, shelf, at),
            on_problem=lambda problem: self._note(follower, problem),
        )
        follower = Follower(self._api, self._kind.resource, listener, self._version)
        with self._lock:
            self._follower, self._thread, self._view = follower, None, self._nothing()
        return follower

    def _nothing(self) -> View[Objects]:
        return View(objects=self._kind.gather(self._kind.resource.make_shelf())[0])

    def _take(self, follower: Follower[Value], shelf: Shelf[Value] | None, at: Now) -> None:
        if shelf is None:
            self._change(follower, lambda view: replace(view, synced=at))
            return
        objects, gaps = self._kind.gather(shelf)
        self._change(follower, lambda view: replace(view, objects=objects, gaps=gaps, synced=at))

    def _note(self, follower: Follower[Value], problem: str | None) -> None:
        self._change(follower, lambda view: replace(view, problem=problem))

    def _change(self, follower: Follower[Value], change: Callable[[View[Objects]], View[Objects]]) -> None:
        with self._lock:
            if self._follower is not follower:
                return  # it has been stopped, and another one may be at work
            before = self._view
            self._view = change(before)
            if _differs(before, self._view):
                self._bell.ring()  # within the lock: after `stop` it may be gone


def _differs(one: View[Objects], other: View[Objects]) -> bool:
    """Whether there is something new in it; that it is known to be true still, and how a problem is put, is not."""
    return (
        one.objects is not other.objects
        or one.gaps != other.gaps
        or (one.problem is None) is not (other.problem is None)
    )
