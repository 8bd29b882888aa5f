"""Any input on a watch: no exception but the two intended ones, and never a pod that was not written."""

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.watch_lines import bookmark, error, line, pod, unreadable
from watchdog.core.model import Pod
from watchdog.kube.informers import gather_pods, pod_store
from watchdog.kube.reflector import Reflector
from watchdog.kube.store import BrokenStreamError, Store
from watchdog.kube.watch import EndedByServerError, StreamReader

NAMES, UIDS = "xyz", "123"
Step = tuple[str, str, str]  # type, name, UID
GARBAGE = [
    b"<html>\n",
    b"{}\n",
    b'{"type":"ADDED","object":{"metadata":{}}}\n',
    b"\xff\n",
    b'{"type":"DELETED","object":1}\n',
]


def fresh() -> tuple[Store[Pod], Reflector, StreamReader[Pod]]:
    store, reflector = pod_store("n1"), Reflector({}, heartbeat=True)
    reflector.listed("1")
    return store, reflector, StreamReader(store, reflector)


def pods(store: Store[Pod]) -> dict[str, str]:
    return {each.name: each.uid for each in gather_pods(store)[0]}


def expected(steps: Sequence[Step]) -> dict[str, str]:
    """The pods after these steps, by a plain model: a name has one pod, and the first one keeps its UID."""
    known: dict[str, tuple[str, bool]] = {}
    for kind, name, uid in steps:
        if kind in ("ADDED", "MODIFIED", "SPOILT"):
            known[name] = (uid, kind != "SPOILT")
        elif kind == "DELETED" and known.get(name, ("", True))[0] == uid:
            del known[name]
    found: dict[str, str] = {}
    for name, (uid, readable) in known.items():
        if readable and uid not in found.values():
            found[name] = uid
    return found


def written(step: Step, version: int) -> bytes:
    kind, name, uid = step
    if kind == "BOOKMARK":
        return bookmark(str(version))
    if kind == "SPOILT":
        return line("MODIFIED", unreadable(name, uid, str(version)))
    return line(kind, pod(name, uid, str(version)))


steps = st.lists(
    st.tuples(
        st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "SPOILT"]),
        st.sampled_from(NAMES),
        st.sampled_from(UIDS),
    ),
    max_size=20,
)


@given(steps, st.sampled_from([b"", *GARBAGE]), st.data())
def test_lines_before_garbage_count_and_none_after_it(before: list[Step], odd: bytes, data: st.DataObject) -> None:
    """However the bytes are split, the pods and the version are those of the last line that could be read."""
    store, reflector, reader = fresh()
    lines = [written(step, 10 + number) for number, step in enumerate(before)]
    whole = b"".join(lines) + (odd + written(("ADDED", "z", "9"), 99) if odd else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    broken = False
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        try:
            reader.take(whole[start:stop])
        except BrokenStreamError:
            broken = True
            break
    assert broken is bool(odd)
    assert pods(store) == expected(before)
    assert reflector.version == (str(9 + len(before)) if before else "1")
    assert reader.bookmarked is any(kind == "BOOKMARK" for kind, _, _ in before)


@given(st.lists(st.binary() | st.sampled_from([written(("ADDED", "x", "1"), 5), bookmark("6"), error(410), *GARBAGE])))
def test_any_bytes(chunks: list[bytes]) -> None:
    """Any bytes lead to no other exception, and to no pod but the one that was written."""
    store, _, reader = fresh()
    with contextlib.suppress(BrokenStreamError, EndedByServerError):
        for chunk in chunks:
            reader.take(chunk)
    assert pods(store) in ({}, {"x": "1"})


@given(st.data())
def test_an_event_with_any_bytes_in_it(data: st.DataObject) -> None:
    """An event with some bytes replaced never affects another pod."""
    store, _, reader = fresh()
    reader.take(written(("ADDED", "y", "2"), 5))
    text = written(("ADDED", "x", "1"), 6)
    start = data.draw(st.integers(0, len(text) - 2))
    odd = data.draw(st.binary(min_size=1, max_size=6))
    spoilt = (text[:start] + odd + text[start + len(odd) :]).rstrip(b"\n") + b"\n"
    with contextlib.suppress(BrokenStreamError, EndedByServerError):
        reader.take(spoilt)
    assert pods(store).get("y", "2") == "2"


def test_what_a_chunk_has_brought() -> None:
    """A bookmark is heard and changes nothing; neither does an event that changes nothing that is read."""
    _, _, reader = fresh()
    half, rest = written(("ADDED", "x", "1"), 6)[:50], written(("ADDED", "x", "1"), 6)[50:]
    chunks = [bookmark("5"), half, rest, written(("MODIFIED", "x", "1"), 7), half]
    brought = []
    for chunk in chunks:
        reader.take(chunk)
        brought.append((reader.heard, reader.changed))
    assert brought == [(True, False), (False, False), (True, True), (True, False), (False, False)]


def test_an_error_ends_it() -> None:
    """The server's error is raised as the response that it would have been; what came before it counts."""
    store, _, reader = fresh()
    with pytest.raises(EndedByServerError, match="Expired it is") as raised:
        reader.take(written(("ADDED", "x", "1"), 6) + error(410, "Expired"))
    assert raised.value.response.status == 410
    assert (reader.heard, reader.changed) == (True, True)
    assert pods(store) == {"x": "1"}
