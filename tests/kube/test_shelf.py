"""What a feed keeps of the pods, change after change."""

from typing import Any

import pytest

from tests.kube.objects import list_of
from tests.kube.watching import line, pod, unreadable
from watchdog.core.model import Pod
from watchdog.kube.feeds import gather, pod_shelf
from watchdog.kube.store import BrokenStreamError, Shelf, read_event, read_list


def shelf_of(*items: dict[str, Any]) -> Shelf[Pod]:
    """A shelf of node n1, filled with these."""
    shelf = pod_shelf("n1")
    fill(shelf, *items)
    return shelf


def fill(shelf: Shelf[Pod], *items: dict[str, Any]) -> bool:
    text = list_of(*items, kind="PodList").replace(b'"resourceVersion": ""', b'"resourceVersion": "3"')
    return shelf.fill(read_list(text, "PodList")[0])


def take(shelf: Shelf[Pod], kind: str, item: dict[str, Any]) -> bool:
    return shelf.take(read_event(line(kind, item)))


def pods(shelf: Shelf[Pod]) -> dict[str, str]:
    """UIDs by name."""
    return {each.title: each.uid for each in gather(shelf)[0]}


def gaps(shelf: Shelf[Pod]) -> list[str]:
    return [gap.what for gap in gather(shelf)[1]]


def test_changes_of_a_pod() -> None:
    """A pod that comes, changes and goes; each change tells whether anything is different."""
    shelf = shelf_of(pod("x", "1"))
    assert take(shelf, "ADDED", pod("y", "2"))
    assert take(shelf, "MODIFIED", pod("y", "2", metadata={"labels": {"tier": "dev"}}))
    assert [dict(each.labels) for each in gather(shelf)[0]] == [{"app": "trainer"}, {"tier": "dev"}]
    assert take(shelf, "DELETED", pod("x", "1"))
    assert not take(shelf, "DELETED", pod("x", "1"))
    assert pods(shelf) == {"a/y": "2"}


def test_unchanged_pods_stay_the_same_objects() -> None:
    """What nobody changed is the very same object after events, events that change nothing we read, and a new list."""
    shelf = shelf_of(pod("x", "1"), pod("y", "2"))
    x, y = gather(shelf)[0]
    assert not take(shelf, "MODIFIED", pod("x", "1", "10", metadata={"managedFields": [{"manager": "kubelet"}]}))
    assert take(shelf, "ADDED", pod("z", "3"))
    assert gather(shelf)[0][0] is x
    assert not fill(shelf, pod("x", "1"), pod("y", "2"), pod("z", "3"))
    assert fill(shelf, pod("x", "1", metadata={"labels": {}}), pod("y", "2"))
    assert gather(shelf)[0][1] is y


@pytest.mark.parametrize("late", [False, True])
def test_a_pod_made_anew_under_its_name(late: bool) -> None:
    """A new pod takes the place of the one whose name it has; a late deletion of the former one hits nobody."""
    shelf = shelf_of(pod("x", "1"))
    if not late:
        take(shelf, "DELETED", pod("x", "1"))
    take(shelf, "ADDED", pod("x", "2"))
    if late:
        assert not take(shelf, "DELETED", pod("x", "1"))
    assert pods(shelf) == {"a/x": "2"}


def test_two_pods_with_one_uid() -> None:
    """A UID stands for one pod: the first one keeps it, the other is left out and named, until the first has gone."""
    shelf = shelf_of(pod("x", "1"))
    take(shelf, "ADDED", pod("y", "1"))
    assert pods(shelf) == {"a/x": "1"}
    assert gaps(shelf) == ["pod a/y"]
    take(shelf, "DELETED", pod("x", "1"))
    assert pods(shelf) == {"a/y": "1"}
    assert gaps(shelf) == []


def test_a_pod_that_can_not_be_read_any_more() -> None:
    """Its former version is dropped and it is named, the others go on, and a later good event heals it."""
    shelf = shelf_of(pod("x", "1"), pod("y", "2"))
    assert take(shelf, "MODIFIED", unreadable("x", "1"))
    assert pods(shelf) == {"a/y": "2"}
    assert gaps(shelf) == ["pod a/x"]
    assert not take(shelf, "MODIFIED", unreadable("x", "1"))
    assert take(shelf, "MODIFIED", pod("y", "2", metadata={"labels": {}}))
    assert take(shelf, "MODIFIED", pod("x", "1"))
    assert pods(shelf) == {"a/x": "1", "a/y": "2"}
    assert gaps(shelf) == []


def test_the_deletion_of_a_pod_that_can_not_be_read() -> None:
    """A deletion needs no more than the name, whether the pod could be read before or not."""
    shelf = shelf_of(pod("x", "1"), unreadable("y", "2"))
    assert take(shelf, "DELETED", unreadable("x", "1"))
    assert take(shelf, "DELETED", unreadable("y", "2"))
    assert (pods(shelf), gaps(shelf)) == ({}, [])


def test_a_change_known_by_its_uid_alone() -> None:
    """Where the name is not legible the UID tells which pod is not known any more, or is gone."""
    shelf = shelf_of(pod("x", "1"), pod("y", "2"))
    take(shelf, "MODIFIED", {"metadata": {"name": 7, "uid": "1"}})
    assert (pods(shelf), gaps(shelf)) == ({"a/y": "2"}, ["pod a/x"])
    take(shelf, "DELETED", {"metadata": {"uid": "2"}})
    assert pods(shelf) == {}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(
    "item", [{}, {"metadata": {"name": "x"}}, {"metadata": {"namespace": "a"}}, {"metadata": {"uid": "9"}}]
)
def test_a_change_of_nobody_knows_what(kind: str, item: dict[str, Any]) -> None:
    """An event without a name or a known UID could be about any pod: nothing after it is relied on."""
    shelf = shelf_of(pod("x", "1"))
    with pytest.raises(BrokenStreamError, match="which object"):
        take(shelf, kind, item)
    assert pods(shelf) == {"a/x": "1"}


def test_a_list_with_what_can_not_be_read() -> None:
    """In a list, too, one bad pod costs nobody else; one without a name is told of until the next list."""
    shelf = shelf_of(pod("x", "1"), unreadable("y", "2"), {"spec": 7})
    assert pods(shelf) == {"a/x": "1"}
    assert gaps(shelf) == ["pod a/y", "pod without a name"]
    assert fill(shelf, pod("x", "1"), pod("y", "2"))
    assert gaps(shelf) == []


def test_pods_of_other_nodes() -> None:
    """A pod of another node is none of ours, should the server send it, and takes no place."""
    shelf = shelf_of(pod("x", "1", spec={"nodeName": "n2"}), pod("y", "2"))
    assert pods(shelf) == {"a/y": "2"}
    assert take(shelf, "MODIFIED", pod("y", "2", spec={"nodeName": "n2"}))
    assert pods(shelf) == {}
