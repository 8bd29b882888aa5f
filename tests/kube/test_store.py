"""The pods in a store, change after change."""

from typing import Any

import pytest

from tests.kube.objects import list_of
from tests.kube.watch_lines import line, pod, unreadable
from watchdog.core.model import Pod
from watchdog.kube.informers import gather_pods, pod_store
from watchdog.kube.store import BrokenStreamError, Store, read_event, read_list


def store_of(*items: dict[str, Any]) -> Store[Pod]:
    """A store of node n1, filled with these."""
    store = pod_store("n1")
    fill(store, *items)
    return store


def fill(store: Store[Pod], *items: dict[str, Any]) -> bool:
    text = list_of(*items, kind="PodList").replace(b'"resourceVersion": ""', b'"resourceVersion": "3"')
    return store.fill(read_list(text, "PodList")[0])


def take(store: Store[Pod], kind: str, item: dict[str, Any]) -> bool:
    return store.take(read_event(line(kind, item)))


def pods(store: Store[Pod]) -> dict[str, str]:
    """UIDs by name."""
    return {each.title: each.uid for each in gather_pods(store)[0]}


def gaps(store: Store[Pod]) -> list[str]:
    return [gap.what for gap in gather_pods(store)[1]]


def test_changes_of_a_pod() -> None:
    """A pod that comes, changes and goes; each call reports whether anything has changed."""
    store = store_of(pod("x", "1"))
    assert take(store, "ADDED", pod("y", "2"))
    assert take(store, "MODIFIED", pod("y", "2", metadata={"labels": {"tier": "dev"}}))
    assert [dict(each.labels) for each in gather_pods(store)[0]] == [{"app": "trainer"}, {"tier": "dev"}]
    assert take(store, "DELETED", pod("x", "1"))
    assert not take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/y": "2"}


def test_unchanged_pods_stay_the_same_objects() -> None:
    """An unchanged pod is the identical object after other events, irrelevant changes, and a new list."""
    store = store_of(pod("x", "1"), pod("y", "2"))
    x, y = gather_pods(store)[0]
    assert not take(store, "MODIFIED", pod("x", "1", "10", metadata={"managedFields": [{"manager": "kubelet"}]}))
    assert take(store, "ADDED", pod("z", "3"))
    assert gather_pods(store)[0][0] is x
    assert not fill(store, pod("x", "1"), pod("y", "2"), pod("z", "3"))
    assert fill(store, pod("x", "1", metadata={"labels": {}}), pod("y", "2"))
    assert gather_pods(store)[0][1] is y


@pytest.mark.parametrize("late", [False, True])
def test_a_recreated_pod(late: bool) -> None:
    """A new pod replaces the one with its name; a late deletion of the former one removes nothing."""
    store = store_of(pod("x", "1"))
    if not late:
        take(store, "DELETED", pod("x", "1"))
    take(store, "ADDED", pod("x", "2"))
    if late:
        assert not take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/x": "2"}


def test_two_pods_with_one_uid() -> None:
    """The first pod keeps its UID; the other one is left out and named in a gap until the first is gone."""
    store = store_of(pod("x", "1"))
    take(store, "ADDED", pod("y", "1"))
    assert pods(store) == {"a/x": "1"}
    assert gaps(store) == ["pod a/y"]
    take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/y": "1"}
    assert gaps(store) == []


def test_a_pod_that_becomes_unreadable() -> None:
    """Its former version is dropped with a gap, the others stay, and a later good event restores it."""
    store = store_of(pod("x", "1"), pod("y", "2"))
    assert take(store, "MODIFIED", unreadable("x", "1"))
    assert pods(store) == {"a/y": "2"}
    assert gaps(store) == ["pod a/x"]
    assert not take(store, "MODIFIED", unreadable("x", "1"))
    assert take(store, "MODIFIED", pod("y", "2", metadata={"labels": {}}))
    assert take(store, "MODIFIED", pod("x", "1"))
    assert pods(store) == {"a/x": "1", "a/y": "2"}
    assert gaps(store) == []


def test_the_deletion_of_a_pod_that_can_not_be_read() -> None:
    """A deletion only needs the name, whether the pod could be read before or not."""
    store = store_of(pod("x", "1"), unreadable("y", "2"))
    assert take(store, "DELETED", unreadable("x", "1"))
    assert take(store, "DELETED", unreadable("y", "2"))
    assert (pods(store), gaps(store)) == ({}, [])


def test_a_change_identified_by_its_uid() -> None:
    """If the name can't be read, the UID identifies the pod that is unreadable or gone."""
    store = store_of(pod("x", "1"), pod("y", "2"))
    take(store, "MODIFIED", {"metadata": {"name": 7, "uid": "1"}})
    assert (pods(store), gaps(store)) == ({"a/y": "2"}, ["pod a/x"])
    take(store, "DELETED", {"metadata": {"uid": "2"}})
    assert pods(store) == {}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(
    "item", [{}, {"metadata": {"name": "x"}}, {"metadata": {"namespace": "a"}}, {"metadata": {"uid": "9"}}]
)
def test_a_change_of_an_unknown_object(kind: str, item: dict[str, Any]) -> None:
    """An event without a name or a known UID could be about any pod: nothing after it can be trusted."""
    store = store_of(pod("x", "1"))
    with pytest.raises(BrokenStreamError, match="does not name its object"):
        take(store, kind, item)
    assert pods(store) == {"a/x": "1"}


def test_a_list_with_unreadable_pods() -> None:
    """One bad pod in a list affects no other; one without a name has a gap until the next list."""
    store = store_of(pod("x", "1"), unreadable("y", "2"), {"spec": 7})
    assert pods(store) == {"a/x": "1"}
    assert gaps(store) == ["pod a/y", "pod without a name"]
    assert fill(store, pod("x", "1"), pod("y", "2"))
    assert gaps(store) == []


def test_pods_of_other_nodes() -> None:
    """A pod of another node is ignored if the server sends it, and removed if it was known."""
    store = store_of(pod("x", "1", spec={"nodeName": "n2"}), pod("y", "2"))
    assert pods(store) == {"a/y": "2"}
    assert take(store, "MODIFIED", pod("y", "2", spec={"nodeName": "n2"}))
    assert pods(store) == {}
