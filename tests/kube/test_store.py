"""The pods in a store, change after change, and the lines of a watch that bring the changes."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.objects import list_of, nested, nested_pod
from tests.kube.watch_lines import bookmark, error, line, pod, unreadable
from watchdog.core.model import Pod, PodKeys
from watchdog.kube.informers import gather_pods, pod_store
from watchdog.kube.reflector import Reflector
from watchdog.kube.store import ROOM, BrokenStreamError, ListReader, Store, read_event
from watchdog.kube.watch import EndedByServerError, StreamReader

Step = tuple[str, str, str]  # type, name, UID
GARBAGE = [
    b"<html>\n",
    b"{}\n",
    b'{"type":"ADDED","object":{"metadata":{}}}\n',
    b"\xff\n",
    b'{"type":"DELETED","object":1}\n',
]


def store_of(*items: dict[str, Any]) -> Store[Pod]:
    """A store of node n1, filled with these."""
    store = pod_store("n1")
    fill(store, *items)
    return store


def fill(store: Store[Pod], *items: dict[str, Any]) -> bool:
    """Fill it with a list of these; whether anything changed."""
    return store.fill(ListReader([list_of(*items, kind="PodList", version="3")], "PodList"))


def take(store: Store[Pod], kind: str, item: dict[str, Any]) -> bool:
    """Apply one event; whether anything changed."""
    return store.apply(read_event(line(kind, item)))


def pods(store: Store[Pod]) -> dict[str, str]:
    """UIDs by name."""
    return {each.name: each.uid for each in gather_pods(store)[0]}


def gaps(store: Store[Pod]) -> list[str]:
    """What is named in gaps."""
    return [gap.what for gap in gather_pods(store)[1]]


def test_each_change_says_whether_it_changed_anything() -> None:
    """An unchanged pod is the identical object after other events, irrelevant changes, and a new list."""
    store = store_of(pod("x", "1"), pod("y", "2"))
    x, y = gather_pods(store)[0]
    assert not take(store, "MODIFIED", pod("x", "1", "10", metadata={"managedFields": [{"manager": "kubelet"}]}))
    assert take(store, "ADDED", pod("z", "3"))
    assert gather_pods(store)[0][0] is x
    assert not fill(store, pod("x", "1"), pod("y", "2"), pod("z", "3"))
    assert fill(store, pod("x", "1", metadata={"labels": {}}), pod("y", "2"))
    assert gather_pods(store)[0][1] is y
    assert [take(store, "MODIFIED", unreadable("x", "1")) for _ in range(2)] == [True, False]
    assert [take(store, "DELETED", pod("x", "1")) for _ in range(2)] == [True, False]


def test_a_recreated_pod() -> None:
    """A new pod replaces the one with its name; a late deletion of the former one removes nothing."""
    store = store_of(pod("x", "1"))
    take(store, "ADDED", pod("x", "2"))
    assert not take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"x": "2"}


def test_who_was_deleted() -> None:
    """Point 28: each deletion is reported, also one missing from a partial list; absence alone proves nothing."""
    gone: list[str] = []
    store = pod_store("n1", on_deleted=gone.append)
    fill(store, pod("x", "1"), pod("y", "2"), pod("z", "3"))
    take(store, "DELETED", pod("x", "1"))
    fill(store, pod("z", "3"))
    take(store, "MODIFIED", pod("z", "4"))
    assert gone == ["1"]
    take(store, "DELETED", pod("y", "2"))
    take(store, "DELETED", pod("z", "3"))
    assert gone == ["1", "2", "3"]
    assert pods(store) == {"z": "4"}


def test_a_change_identified_by_its_uid() -> None:
    """If the name can't be read, the UID identifies the pod that is unreadable or gone."""
    store = store_of(pod("x", "1"), pod("y", "2"))
    take(store, "MODIFIED", {"metadata": {"name": 7, "uid": "1"}})
    assert (pods(store), gaps(store)) == ({"y": "2"}, ["pod a/x"])
    take(store, "DELETED", {"metadata": {"uid": "2"}})
    assert pods(store) == {}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize("item", [{}, *({"metadata": {key: "9"}} for key in ("name", "namespace", "uid"))])
def test_a_change_of_an_unknown_object(kind: str, item: dict[str, Any]) -> None:
    """An event without a name or a known UID could be about any pod: nothing after it can be trusted."""
    store = store_of(pod("x", "1"))
    with pytest.raises(BrokenStreamError, match="does not name its object"):
        take(store, kind, item)
    assert pods(store) == {"x": "1"}


def test_a_list_with_unreadable_pods() -> None:
    """One bad pod in a list affects no other; one without a name has a gap until the next list."""
    store = store_of(pod("x", "1"), unreadable("y", "2"), {"spec": 7})
    assert (pods(store), gaps(store)) == ({"x": "1"}, ["pod a/y", "pod without a name"])
    assert fill(store, pod("x", "1"), pod("y", "2"))
    assert gaps(store) == []


def test_a_list_that_breaks_off_replaces_nothing() -> None:
    """What came of it may lack any pod; those known before stay."""
    store = store_of(pod("x", "1"))
    text = list_of(pod("y", "2"), pod("z", "3"), kind="PodList", version="3")
    for part in (text[:-1], text.replace(b'"3"', b'"0"'), text.replace(b'"containers"', b"containers")):
        with pytest.raises(ValueError, match=r"list|resourceVersion"):
            store.fill(ListReader([part], "PodList"))
        assert (pods(store), gaps(store)) == ({"x": "1"}, [])


@pytest.mark.slow
def test_the_largest_pods_are_gaps_if_all_take_too_much_memory() -> None:
    """Only quotas limit the pods that name this node: it does not grow with them, and small ones still count.

    Those that never ran go first, or a tenant could push its own running pod, the largest one, out of the account.
    """

    def fat(number: int, text: str = "", *, phase: str = "Pending") -> dict[str, Any]:
        name = text + "x" * (ROOM // 8 + (phase == "Running"))
        statuses = [{"name": name, "containerID": f"containerd://{number}"}] if phase != "Pending" else []
        status = {"phase": phase, "containerStatuses": statuses}
        return pod(
            f"fat-{number}", f"f{number}", spec={"containers": [{"name": name}], "initContainers": []}, status=status
        )

    running = [fat(number, phase="Running") for number in range(20)]
    store = store_of(pod("x", "1"), *running, pod("y", "2"))
    assert (len(pods(store)), len(gaps(store))) == (2 + 7, 13)
    assert {"x", "y"} < pods(store).keys()
    for phase in ("Pending", "Succeeded"):
        store = store_of(fat(99, phase="Running"), *(fat(number, phase=phase) for number in range(20)))
        assert "fat-99" in pods(store)
    fill(store, pod("x", "1"), *running[:7])
    assert take(store, "MODIFIED", fat(0, "\N{GRINNING FACE}", phase="Running"))  # with it a character takes four bytes
    assert gaps(store) == ["pod a/fat-0"]
    assert "one of the largest" in str(gather_pods(store)[1][0].problem)


def _asking(number: int, phase: str) -> dict[str, Any]:
    """A pod of some 2 MiB: 400 containers, each of which asks for 24 resources; the first one runs, or has run."""
    asks = {f"nvidia.com/mig-{each}": "1" for each in range(24)}
    containers = [{"name": f"c{each}", "resources": {"limits": asks}} for each in range(400)]
    state: dict[str, Any] = {"running": {}} if phase == "Running" else {"terminated": {}}
    statuses = [{"name": "c0", "containerID": f"containerd://{number:064}", "state": state}]
    spec = {"containers": containers, "initContainers": []}
    return pod(f"fat-{number}", f"f{number}", spec=spec, status={"phase": phase, "containerStatuses": statuses})


def test_large_pods_lose_what_may_be_left_out_before_any_is_given_up() -> None:
    """Point 39: however many there are, their processes are theirs, and what a running container asks for counts."""
    phases = ("Running", "Pending", "Failed")
    keys = PodKeys(resources=frozenset({"nvidia.com/mig-*"}))
    store = pod_store("n1", keys)
    items = (*(_asking(number, phases[number % 3]) for number in range(60)), pod("x", "1"))
    assert store.fill(ListReader([list_of(*items, kind="PodList", version="3")], "PodList"))
    found, reported = gather_pods(store)
    assert len(found) == 61
    assert {len(each.containers[0].resources) for each in found if each.containers[0].running} >= {24}
    assert all(each.containers[0].ids for each in found)
    cut = {f"pod {each.title}" for each in found if each.is_cut and not each.is_finished}
    assert {gap.what for gap in reported} == cut


@pytest.mark.parametrize("levels", [30, *range(950, 1000, 2), 9_900, 9_998])
def test_a_deeply_nested_pod(levels: int) -> None:
    """Facts 3: anyone who may create pods can nest their managed fields this deep; no other pod is lost."""
    store = pod_store("n1")
    text = nested(list_of(nested_pod("x", "1"), pod("y", "2"), kind="PodList", version="3"), levels)
    assert store.fill(ListReader([text], "PodList"))
    assert gather_pods(store)[0][0] == gather_pods(store_of(nested_pod("x", "1")))[0][0]
    assert not store.apply(read_event(nested(line("MODIFIED", nested_pod("x", "1")), levels)))
    assert store.apply(read_event(nested(line("ADDED", nested_pod("z", "3")), levels)))
    assert (pods(store), gaps(store)) == ({"x": "1", "y": "2", "z": "3"}, [])


def test_pods_of_other_nodes() -> None:
    """A pod of another node is ignored if the server sends it, and removed if it was known."""
    store = store_of(pod("x", "1", spec={"nodeName": "n2"}), pod("y", "2"))
    assert pods(store) == {"y": "2"}
    assert take(store, "MODIFIED", pod("y", "2", spec={"nodeName": "n2"}))
    assert pods(store) == {}


def fresh() -> tuple[Store[Pod], Reflector, StreamReader[Pod]]:
    """A watch that has just begun, of a node without pods."""
    store, reflector = pod_store("n1"), Reflector({}, heartbeat=True)
    reflector.listed("1")
    return store, reflector, StreamReader(store, reflector)


def expected(steps: Sequence[Step]) -> tuple[dict[str, str], list[str]]:
    """The pods and gaps after these steps, by a plain model: a name has one pod, and the first one keeps its UID."""
    known: dict[str, tuple[str, bool]] = {}
    for kind, name, uid in steps:
        if kind in ("ADDED", "MODIFIED", "SPOILED"):
            known[name] = (uid, kind != "SPOILED")
        elif kind in ("DELETED", "SPOILED AND DELETED") and known.get(name, ("", True))[0] == uid:
            del known[name]
    found: dict[str, str] = {}
    for name, (uid, readable) in known.items():
        if readable and uid not in found.values():
            found[name] = uid
    return found, sorted(f"pod a/{name}" for name in known.keys() - found.keys())


def written(step: Step, version: int) -> bytes:
    """The line of a watch with this step."""
    kind, name, uid = step
    if kind == "BOOKMARK":
        return bookmark(str(version))
    if kind.startswith("SPOILED"):
        return line("DELETED" if "DELETED" in kind else "MODIFIED", unreadable(name, uid, str(version)))
    return line(kind, pod(name, uid, str(version)))


KINDS = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "SPOILED", "SPOILED AND DELETED"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("xyz"), st.sampled_from("123")), max_size=20)


@given(STEPS, st.sampled_from([b"", *GARBAGE]), st.data())
def test_lines_before_garbage_count_and_none_after_it(before: list[Step], odd: bytes, data: st.DataObject) -> None:
    """However the bytes are split, pods, gaps and version are those of the last line that could be read."""
    store, reflector, reader = fresh()
    lines = [written(step, 10 + number) for number, step in enumerate(before)]
    whole = b"".join(lines) + (odd + written(("ADDED", "z", "9"), 99) if odd else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    broken = False
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        try:
            reader.read_chunk(whole[start:stop])
        except BrokenStreamError:
            broken = True
            break
    assert broken is bool(odd)
    assert (pods(store), sorted(gaps(store))) == expected(before)
    assert reflector.version == (str(9 + len(before)) if before else "1")
    assert reader.bookmarked is any(kind == "BOOKMARK" for kind, _, _ in before)


@given(st.lists(st.binary() | st.sampled_from([written(("ADDED", "x", "1"), 5), bookmark("6"), error(410), *GARBAGE])))
def test_any_bytes(chunks: list[bytes]) -> None:
    """Any bytes lead to no other exception, and to no pod but the one that was written."""
    store, _, reader = fresh()
    with contextlib.suppress(BrokenStreamError, EndedByServerError):
        for chunk in chunks:
            reader.read_chunk(chunk)
    assert pods(store) in ({}, {"x": "1"})


@given(st.data())
def test_an_event_with_any_bytes_in_it(data: st.DataObject) -> None:
    """An event with some bytes replaced never affects another pod."""
    store, _, reader = fresh()
    reader.read_chunk(written(("ADDED", "y", "2"), 5))
    text = written(("ADDED", "x", "1"), 6)
    start = data.draw(st.integers(0, len(text) - 2))
    odd = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(BrokenStreamError, EndedByServerError):
        reader.read_chunk((text[:start] + odd + text[start + len(odd) :]).rstrip(b"\n") + b"\n")
    assert pods(store).get("y", "2") == "2"


def test_what_a_chunk_has_brought() -> None:
    """A bookmark is heard and changes nothing; neither does an event that changes nothing that is read."""
    _, _, reader = fresh()
    half, rest = written(("ADDED", "x", "1"), 6)[:50], written(("ADDED", "x", "1"), 6)[50:]
    brought = []
    for chunk in (bookmark("5"), half, rest, written(("MODIFIED", "x", "1"), 7), half):
        reader.read_chunk(chunk)
        brought.append((reader.heard, reader.changed))
    assert brought == [(True, False), (False, False), (True, True), (True, False), (False, False)]


def test_an_error_ends_it() -> None:
    """The server's error is raised as the response that it would have been; what came before it counts."""
    store, _, reader = fresh()
    with pytest.raises(EndedByServerError, match="Expired it is") as raised:
        reader.read_chunk(written(("ADDED", "x", "1"), 6) + error(410, "Expired"))
    assert raised.value.response.status == 410
    assert (reader.heard, reader.changed) == (True, True)
    assert pods(store) == {"x": "1"}
