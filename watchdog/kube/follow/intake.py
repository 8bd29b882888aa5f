"""The bytes of one watch -> the changes of a shelf, and the version to go on from."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from watchdog.kube.api.answers import Answer
from watchdog.kube.follow.course import Course
from watchdog.kube.follow.shelf import Shelf
from watchdog.kube.follow.watch_stream import EventKind, Lines, WatchEvent, read_event, read_status

Value = TypeVar("Value")


class EndedByServerError(Exception):
    """The server ended the watch with an error; `answer` is what it said."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What has come since it was last asked: whether the server said anything, and whether any object has changed."""

    heard: bool
    changed: bool


class Intake(Generic[Value]):
    """Takes one watch in, as it comes; `bookmarked` is whether a bookmark was on it."""

    def __init__(self, shelf: Shelf[Value], course: Course) -> None:
        self._shelf = shelf
        self._course = course
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

    def news(self) -> News:
        """What has come since the last time."""
        news = News(heard=self._heard, changed=self._changed)
        self._heard = self._changed = False
        return news

    def _take(self, event: WatchEvent) -> None:
        if event.kind is EventKind.BOOKMARK:
            self.bookmarked = True
        else:
            self._changed |= self._shelf.take(event)
        self._course.moved(event.identity.version)
