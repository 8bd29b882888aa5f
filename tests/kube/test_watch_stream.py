"""Bytes of a LIST and a WATCH, split into lines and parsed."""

import contextlib
import json
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import faulty
from tests.kube.objects import list_of
from tests.kube.watch_lines import bookmark, error, line, pod
from tests.node.support import wait_until
from tests.rig.cluster.credentials import write_kubeconfig
from watchdog.clock import Bell
from watchdog.core.model import PodKeys
from watchdog.kube import wire
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer
from watchdog.kube.reflector import USUAL, RequestOutcome, RequestPace
from watchdog.kube.store import (
    BrokenStreamError,
    EventKind,
    Identity,
    LineSplitter,
    ListReader,
    read_event,
    read_identity,
    read_status,
)
from watchdog.kube.wire import ListSplitter


@given(st.lists(st.binary(min_size=1).filter(lambda text: b"\n" not in text and text.strip())), st.data())
def test_lines_however_they_are_split(texts: list[bytes], data: st.DataObject) -> None:
    """Lines come out complete and in order, wherever the network splits them; an unfinished last one does not."""
    whole = b"".join(text + b"\n" for text in texts) + b"half"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    lines = LineSplitter()
    assert [found for piece in pieces for found in lines.feed(piece)] == texts


@pytest.mark.parametrize("cut", [3, 1000])
def test_a_line_that_is_too_long(cut: int) -> None:
    """A line without an end is rejected before more than the limit is buffered, and the lines before it count."""
    text = b"one\n" + b"x" * 1000
    lines = LineSplitter(longest=100)
    found: list[bytes] = []
    pieces = (text[start : start + cut] for start in range(0, len(text), cut))
    with pytest.raises(BrokenStreamError, match="longer"):
        found.extend(each for piece in pieces for each in lines.feed(piece))
    assert found == [b"one"]


def test_empty_lines_are_ignored() -> None:
    """Blank lines, which some proxies send to keep a connection up, are skipped."""
    assert list(LineSplitter().feed(b"\n\r\n  \nx\n")) == [b"x"]


X = Identity(namespace="a", name="x", uid="1")


@pytest.mark.parametrize(
    ("text", "kind", "identity"),
    [
        (line("DELETED", pod("x", "1", "6")), EventKind.DELETED, replace(X, version="6")),
        (bookmark("77"), EventKind.BOOKMARK, Identity(version="77")),
        (error(410, "Expired"), EventKind.ERROR, Identity()),
        (b'{"type":"MODIFIED","object":{}}', EventKind.MODIFIED, Identity()),
        (b'{"type":"MODIFIED","object":7}', EventKind.MODIFIED, Identity()),
        (b'{"type":"MODIFIED","object":{"metadata":{"name":3,"uid":"1"}}}', EventKind.MODIFIED, Identity(uid="1")),
        (b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"0"}}}', EventKind.ADDED, Identity()),
    ],
)
def test_events(text: bytes, kind: EventKind, identity: Identity) -> None:
    """An event has its type, and its object's identity as far as that can be read."""
    event = read_event(text.strip())
    assert (event.kind, event.identity) == (kind, identity)


@pytest.mark.parametrize(
    "text",
    [
        b"<html>sign in</html>",
        b'{"type":"ADDED"}',
        b'{"type":"SYNC","object":{}}',
        b'{"type":"ADDED","object":{',
        b'{"type":7,"object":{}}',
        b"[]",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"type":"BOOKMARK","object":{"metadata":{}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"0"}}}',
    ],
)
def test_invalid_events(text: bytes) -> None:
    """Anything but an event is rejected: its meaning is not known."""
    with pytest.raises(BrokenStreamError):
        read_event(text)


def test_the_status_of_an_error() -> None:
    """An error within a watch is the response that it would have been; an unreadable one counts as 500."""
    expired = read_status(read_event(error(410, "Expired", details={"retryAfterSeconds": 3})).item)
    assert (expired.status, expired.reason, expired.message) == (410, "Expired", "Expired it is")
    assert expired.retry_after_s == 3
    for odd in (b"{}", b"7", b'{"code":200}', b'{"code":"x"}'):
        assert read_status(odd).status == 500


def test_the_title_of_a_hardly_readable_object() -> None:
    """The title has as much of the name as there is."""
    titles = [Identity(namespace="a", name="x").title, Identity(name="x").title, Identity(uid="1").title]
    assert titles == ["a/x", "x", "without a name"]
    assert read_identity(b"no JSON") == Identity()


def listed(text: bytes, cuts: Sequence[int] = ()) -> tuple[list[object], str]:
    """The items of a list of pods and its version, however the network cuts it."""
    reader = ListReader((text[start:end] for start, end in pairwise([0, *cuts, len(text)])), "PodList")
    return [json.loads(bytes(item)) for item in reader], reader.version


BODY = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}}


def test_a_list() -> None:
    """A list gives its items as they were written, and the version to watch from."""
    assert listed(json.dumps({**BODY, "items": [{"x": 1}, 2, {}, []]}).encode()) == ([{"x": 1}, {}, [], 2], "12")
    assert listed(json.dumps({**BODY, "items": None}).encode()) == ([], "12")


@contextlib.contextmanager
def older_python() -> Iterator[None]:
    """The patterns for Python before 3.11.5, such as Debian 12's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_NEXT", "_NEXT_IN_ITEM", "_REST_OF_STRING"):
            patch.setattr(wire, name, re.compile(wire.older(getattr(wire, name).pattern), re.DOTALL))
        yield


ODD_TEXT = st.text(st.sampled_from('"\\[]{},:x\u00e9\n'), max_size=6)
ODD_JSON = st.recursive(
    ODD_TEXT | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT | st.just("items"), inner, max_size=3),
)


@given(st.lists(st.dictionaries(ODD_TEXT | st.just("items"), ODD_JSON, max_size=3)), st.booleans(), st.data())
def test_a_list_however_it_is_split(items: list[object], first: bool, data: st.DataObject) -> None:
    """Law: wherever the network splits it, and whatever is in them, each object of a list comes out as it is."""
    ordered = {"items": items, **BODY} if first else {**BODY, "items": items}
    text = json.dumps(ordered, indent=data.draw(st.none() | st.just(1)), ensure_ascii=False).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    half = text[: data.draw(st.integers(0, len(text) - 1))]
    for python in (contextlib.nullcontext(), older_python()):
        with python:
            assert listed(text, cuts) == listed(text, range(1, len(text))) == (items, "12")
            with pytest.raises(ValueError, match="not a list"):
                listed(half)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "Status"}, "not a PodList, but 'Status'"),
        ({"metadata": {}}, "no resourceVersion"),
        ({"metadata": {"resourceVersion": "0"}}, "no resourceVersion"),
        ({"metadata": None}, "not a list"),
        ({"items": {}}, "not a list"),
    ],
)
def test_invalid_lists(changes: dict[str, object], why: str) -> None:
    """Any other response with 200 is rejected with a message; so is a list that can't be watched from."""
    body = {"kind": "PodList", "metadata": {"resourceVersion": "12"}, "items": [], **changes}
    with pytest.raises(ValueError, match=why):
        listed(json.dumps(body).encode())
    for text in (b"<html>", json.dumps(body).encode().replace(b"[]", b"[{]}"), b"]" * 9 + b"[" * 9):
        with pytest.raises(ValueError, match="not a list"):
            listed(text)


def test_an_item_that_is_too_long() -> None:
    """An object without an end is rejected before more than the limit is held, and so is what is around the objects."""
    for text in (b'{"items":[{"x":"' + b"x" * 1000, b"x" * 1000):
        with pytest.raises(ValueError, match="longer"):
            list(ListSplitter(longest=100).feed(text))


LISTED = list_of(pod("x", "1"), kind="PodList", version="3")


CLOSES, STAYS = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"


def outcomes(folder: Path, watches: list[bytes], pace: RequestPace) -> list[RequestOutcome]:
    """What comes of watches that the server responds to with these bytes; those that begin with `STAYS` it keeps up."""
    left = [CLOSES + LISTED, *watches]

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        response = left.pop(0)
        connection.sendall(response)
        if response.startswith(CLOSES):
            connection.close()

    with faulty.server(answer) as port:
        config = write_kubeconfig(folder / "kubeconfig", server=f"http://127.0.0.1:{port}", ca=None)
        watcher = PodInformer(Api(config), "n1", Bell(), pace)._begin()  # its thread is this one
        return [watcher.run_once() for _ in range(1 + len(watches))][1:]


@pytest.mark.parametrize(("ended_s", "in_time"), [(0, True), (29, True), (31, False)])
def test_a_watch_that_goes_on_after_its_end(tmp_path: Path, ended_s: int, *, in_time: bool) -> None:
    """A server may be half a minute late in ending a watch; one that still sends after that is not waited for."""
    pace = replace(USUAL, length_s=(-ended_s, -ended_s))  # it should have ended `ended_s` ago
    (watch,) = outcomes(tmp_path, [CLOSES + bookmark("4")], pace)
    assert (watch.in_time, watch.problem is None) == (in_time, in_time)


def test_a_long_list_takes_the_memory_of_one_pod(tmp_path: Path) -> None:
    """Tenants decide how long the list is: held as a whole, it would have the daemon OOM-killed again and again."""
    filler = b"\\u003c" * 2**18
    fat = json.dumps(pod("x", "1", spec={"containers": [{"name": "c", "args": ["FILLER"]}]})).encode()
    fat = fat.replace(b"FILLER", filler)

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        before, after = LISTED.split(b"[{", 1)
        connection.sendall(CLOSES + before + b"[")
        for _ in range(40):
            connection.sendall(fat)
            connection.sendall(b",")
        connection.sendall(b"{" + after)
        connection.close()

    with faulty.server(answer) as port:
        config = write_kubeconfig(tmp_path / "kubeconfig", server=f"http://127.0.0.1:{port}", ca=None)
        informer = PodInformer(Api(config), "n1", Bell())
        tracemalloc.start()
        outcome = informer._begin().run_once()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (outcome.problem, [each.name for each in informer.view.objects]) == (None, ["x"])
    assert peak < 5 * len(fat)


def test_pods_are_listed_again_for_other_keys(tmp_path: Path) -> None:
    """Point 6: a new policy's keys are read of every pod, and until the new list has come what is known is kept."""
    notes = {f"k{number}": "" for number in range(300)} | {"example.com/long": "1Gi"}
    fat = pod("x", "1")
    fat["metadata"]["annotations"] = notes
    listed = list_of(fat, kind="PodList", version="3")
    asked, may_answer = threading.Semaphore(0), threading.Semaphore(0)

    def answer(connection: socket.socket) -> None:
        if b"watch=true" in connection.recv(65536):
            connection.sendall(STAYS)
            return
        asked.release()
        may_answer.acquire()
        connection.sendall(CLOSES + listed)
        connection.close()

    def read() -> list[str | None]:
        return [each.annotations.get("example.com/long") for each in informer.view.objects]

    with faulty.server(answer) as port:
        config = write_kubeconfig(tmp_path / "kubeconfig", server=f"http://127.0.0.1:{port}", ca=None)
        informer = PodInformer(Api(config), "n1", Bell())
        informer.start()
        may_answer.release()
        wait_until(lambda: read() == [None])
        asked.acquire()
        informer.want(keys := PodKeys(annotations=frozenset({"example.com/long"})))
        asked.acquire()
        assert read() == [None]
        may_answer.release()
        wait_until(lambda: read() == ["1Gi"])
        assert [each.keys for each in informer.view.objects] == [keys]
        informer.want(keys)
        assert not asked.acquire(blocking=False)
        informer.stop()


SHORT = replace(USUAL, first_bookmark_s=(0.2, 0.2), short_length_s=(-14.0, -14.0))  # 15 s late is in 1 s


@pytest.mark.parametrize(
    ("pace", "watches", "are_failures"),
    [
        (SHORT, [STAYS, STAYS], [False, True]),
        (replace(USUAL, silence_s=0.2), [STAYS + bookmark("4")], [True]),
    ],
    ids=["never a bookmark", "no second bookmark"],
)
def test_a_watch_that_hangs(tmp_path: Path, pace: RequestPace, watches: list[bytes], are_failures: list[bool]) -> None:
    """It is given up in its time: silence is a failure after a bookmark, or in a watch that is short for its sake."""
    began = time.monotonic()
    assert [watch.problem is not None for watch in outcomes(tmp_path, watches, pace)] == are_failures
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("ends", [b"", error(500), b"<html>\n"])
def test_watches_that_fail_at_the_same_event_are_followed_by_a_list(tmp_path: Path, ends: bytes) -> None:
    """The server would send the same again for as long as it knows the event, and the pods would grow old."""
    asked: list[bool] = []

    def answer(connection: socket.socket) -> None:
        asked.append(b"watch=true" in connection.recv(65536))
        connection.sendall(CLOSES + (ends if asked[-1] else LISTED))
        connection.close()

    with faulty.server(answer) as port:
        config = write_kubeconfig(tmp_path / "kubeconfig", server=f"http://127.0.0.1:{port}", ca=None)
        watcher = PodInformer(Api(config), "n1", Bell())._begin()  # its thread is this one
        for _ in range(4):
            watcher.run_once()
    assert asked == [False, True, True, False]


def test_what_came_before_a_broken_line_is_shown(tmp_path: Path) -> None:
    """The watch goes on after it, so no later one would bring the pod again; accepting a watch vouches for nothing."""
    bodies = [LISTED, b"", line("ADDED", pod("y", "2")) + b"<html>\n"]

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bodies.pop(0))
        connection.close()

    with faulty.server(answer) as port:
        config = write_kubeconfig(tmp_path / "kubeconfig", server=f"http://127.0.0.1:{port}", ca=None)
        informer = PodInformer(Api(config), "n1", Bell())
        watcher = informer._begin()  # its thread is this one
        shown = [(watcher.run_once().problem is None, informer.view) for _ in range(3)]
    assert [good for good, _ in shown] == [True, False, False]
    assert shown[1][1].synced == shown[0][1].synced
    assert [each.name for each in shown[2][1].objects] == ["x", "y"]
