"""What a feed keeps of the pods, change after change."""

from typing import Any

import pytest

from tests.kube.objects import list_of
from tests.kube.watch_lines import line, pod, unreadable
from watchdog.core.model import Pod
from watchdog.kube.informers import gather_pods, pod_store
from watchdog.kube.store import BrokenStreamError, Store, read_event, read_list


def shelf_of(*items: dict[str, Any]) -> Store[Pod]:
    """A shelf of node n1, filled with these."""
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
    """A pod that comes, changes and goes; each change tells whether anything is different."""
    store = shelf_of(pod("x", "1"))
    assert take(store, "ADDED", pod("y", "2"))
    assert take(store, "MODIFIED", pod("y", "2", metadata={"labels": {"tier": "dev"}}))
    assert [dict(each.labels) for each in gather_pods(store)[0]] == [{"app": "trainer"}, {"tier": "dev"}]
    assert take(store, "DELETED", pod("x", "1"))
    assert not take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/y": "2"}


def test_unchanged_pods_stay_the_same_objects() -> None:
    """What nobody changed is the very same object after events, events that change nothing we read, and a new list."""
    store = shelf_of(pod("x", "1"), pod("y", "2"))
    x, y = gather_pods(store)[0]
    assert not take(store, "MODIFIED", pod("x", "1", "10", metadata={"managedFields": [{"manager": "kubelet"}]}))
    assert take(store, "ADDED", pod("z", "3"))
    assert gather_pods(store)[0][0] is x
    assert not fill(store, pod("x", "1"), pod("y", "2"), pod("z", "3"))
    assert fill(store, pod("x", "1", metadata={"labels": {}}), pod("y", "2"))
    assert gather_pods(store)[0][1] is y


@pytest.mark.parametrize("late", [False, True])
def test_a_pod_made_anew_under_its_name(late: bool) -> None:
    """A new pod takes the place of the one whose name it has; a late deletion of the former one hits nobody."""
    store = shelf_of(pod("x", "1"))
    if not late:
        take(store, "DELETED", pod("x", "1"))
    take(store, "ADDED", pod("x", "2"))
    if late:
        assert not take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/x": "2"}


def test_two_pods_with_one_uid() -> None:
    """A UID stands for one pod: the first one keeps it, the other is left out and named, until the first has gone."""
    store = shelf_of(pod("x", "1"))
    take(store, "ADDED", pod("y", "1"))
    assert pods(store) == {"a/x": "1"}
    assert gaps(store) == ["pod a/y"]
    take(store, "DELETED", pod("x", "1"))
    assert pods(store) == {"a/y": "1"}
    assert gaps(store) == []


def test_a_pod_that_can_not_be_read_any_more() -> None:
    """Its former version is dropped and it is named, the others go on, and a later good event heals it."""
    store = shelf_of(pod("x", "1"), pod("y", "2"))
    assert take(store, "MODIFIED", unreadable("x", "1"))
    assert pods(store) == {"a/y": "2"}
    assert gaps(store) == ["pod a/x"]
    assert not take(store, "MODIFIED", unreadable("x", "1"))
    assert take(store, "MODIFIED", pod("y", "2", metadata={"labels": {}}))
    assert take(store, "MODIFIED", pod("x", "1"))
    assert pods(store) == {"a/x": "1", "a/y": "2"}
    assert gaps(store) == []


def test_the_deletion_of_a_pod_that_can_not_be_read() -> None:
    """A deletion needs no more than the name, whether the pod could be read before or not."""
    store = shelf_of(pod("x", "1"), unreadable("y", "2"))
    assert take(store, "DELETED", unreadable("x", "1"))
    assert take(store, "DELETED", unreadable("y", "2"))
    assert (pods(store), gaps(store)) == ({}, [])


def test_a_change_known_by_its_uid_alone() -> None:
    """Where the name is not legible the UID tells which pod is not known any more, or is gone."""
    store = shelf_of(pod("x", "1"), pod("y", "2"))
    take(store, "MODIFIED", {"metadata": {"name": 7, "uid": "1"}})
    assert (pods(store), gaps(store)) == ({"a/y": "2"}, ["pod a/x"])
    take(store, "DELETED", {"metadata": {"uid": "2"}})
    assert pods(store) == {}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(
    "item", [{}, {"metadata": {"name": "x"}}, {"metadata": {"namespace": "a"}}, {"metadata": {"uid": "9"}}]
)
def test_a_change_of_an_unknown_object(kind: str, item: dict[str, Any]) -> None:
    """An event without a name or a known UID could be about any pod: nothing after it is relied on."""
    store = shelf_of(pod("x", "1"))
    with pytest.raises(BrokenStreamError, match="does not name its object"):
        take(store, kind, item)
    assert pods(store) == {"a/x": "1"}


def test_a_list_with_what_can_not_be_read() -> None:
    """In a list, too, one bad pod costs nobody else; one without a name is told of until the next list."""
    store = shelf_of(pod("x", "1"), unreadable("y", "2"), {"spec": 7})
    assert pods(store) == {"a/x": "1"}
    assert gaps(store) == ["pod a/y", "pod without a name"]
    assert fill(store, pod("x", "1"), pod("y", "2"))
    assert gaps(store) == []


def test_pods_of_other_nodes() -> None:
    """A pod of another node is none of ours, should the server send it, and takes no place."""
    store = shelf_of(pod("x", "1", spec={"nodeName": "n2"}), pod("y", "2"))
    assert pods(store) == {"a/y": "2"}
    assert take(store, "MODIFIED", pod("y", "2", spec={"nodeName": "n2"}))
    assert pods(store) == {}
