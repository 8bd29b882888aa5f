"""The requests that write one Event, and what the server's answers to them mean."""

from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from watchdog.core.tiding import Tiding
from watchdog.kube.acts.event_object import SeriesMemory, event_object, series_part
from watchdog.kube.api.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.kube.api.client import Api

_MERGE: Final = "application/merge-patch+json"
_TERMINATING: Final = "NamespaceTerminating"


class Verdict(Enum):
    """What an answer to the writing of an Event means."""

    WRITTEN = auto()
    NOT_NOW = auto()  # the server, or the way to it, takes nothing at the moment
    FAILED = auto()  # it may be this very Event that it fails on
    REFUSED = auto()  # it would be refused again


class EventRequests:
    """Writes Events, one at a time; what repeats an Event that the server has becomes a part of its series."""

    def __init__(self, api: "Api", node_name: str) -> None:
        self._api = api
        self._node_name = node_name
        self._series = SeriesMemory()

    def write(self, tiding: Tiding, begin: "Callable[[], None]") -> Answer:
        """Write it, and give the answer that decides; ApiError where none comes. `begin` is called before each request.

        It may be called again with the same: the name stays, and so does the count.
        """
        series = self._series.following(tiding)
        answer = None
        if series.count > 1:
            begin()
            path = f"{_collection(tiding)}/{quote(series.name, safe='')}"
            answer = self._api.call("PATCH", path, body=series_part(series), content_type=_MERGE)
        if answer is None or answer.status == 404:
            # An Event lives for an hour by default (--event-ttl): the series goes on with a new one, and a new note.
            begin()
            event = event_object(tiding, series, self._node_name)
            answer = self._api.call("POST", _collection(tiding), body=event)
        if verdict(answer) is Verdict.WRITTEN:
            self._series.note(tiding, series)
        return answer


def verdict(answer: Answer) -> Verdict:
    """What an answer means."""
    # That it is there already was done by an earlier attempt whose answer got lost, or by an earlier life.
    if answer.is_good or (answer.status == 409 and answer.reason == "AlreadyExists"):
        return Verdict.WRITTEN
    if answer.status in (401, 429, 503):
        return Verdict.NOT_NOW
    return Verdict.FAILED if answer.status in (408, 409) or answer.status >= 500 else Verdict.REFUSED


def refusal(answer: Answer, tiding: Tiding) -> tuple[str, str]:
    """The cause of an answer that is not good, which is the same for the same trouble, and a sentence about it."""
    if any(cause.reason == _TERMINATING for cause in answer.causes):
        return _TERMINATING, f"namespace {tiding.namespace} is being deleted, so it takes no Events any more"
    what = f"an Event {tiding.reason} on pod {tiding.namespace}/{tiding.pod} was not written"
    return f"{answer.status} {answer.reason}", answer.sentence(what)


def _collection(tiding: Tiding) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{quote(tiding.namespace, safe='')}/events"
