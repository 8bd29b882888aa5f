"""Files used instead of the API, through every way in which others rewrite them."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kube.objects import list_of, pod_object
from watchdog.clock import now
from watchdog.core.model import GapReason, Node, PodList
from watchdog.kube.files import NodeFile, PodFile, WatchedFile, parse_node

ONE, TWO = list_of(pod_object("x", "1")), list_of(pod_object("x", "1"), pod_object("y", "2"))


def settle(path: Path) -> None:
    """Make it an old file, whose times can be trusted."""
    os.utime(path, (time.time() - 100, time.time() - 100))


def names(pods: PodList) -> list[str]:
    return [pod.name for pod in pods.pods]


def test_pods_of_a_file(tmp_path: Path) -> None:
    """Every read of a good file returns its pods, synced now."""
    path = tmp_path / "pods.json"
    path.write_bytes(ONE)
    file = PodFile(path)
    for _ in range(3):
        moment = now()
        pods = file.read(moment)
        assert (names(pods), pods.synced, pods.gaps) == (["x"], moment, ())


def test_missing_file(tmp_path: Path) -> None:
    """Without the file no pods are known, the gap names it and the remedy, and it is read as soon as it is there."""
    path = tmp_path / "pods.json"
    file = PodFile(path)
    pods = file.read(now())
    assert (pods.pods, pods.synced) == ((), None)
    assert pods.gaps[0].reason is GapReason.PODS
    assert str(path) in pods.gaps[0].what
    assert "No such file" in str(pods.gaps[0].problem)
    assert "kubectl get pods -A -o json" in str(pods.gaps[0].problem)
    path.write_bytes(ONE)
    assert names(file.read(now())) == ["x"]


def test_changes_are_seen(tmp_path: Path) -> None:
    """A file that is rewritten, replaced or renamed over is read again, also within the clock tick of the last read."""
    path = tmp_path / "pods.json"
    file = PodFile(path)
    for _ in range(20):
        for text, expected in ((ONE, ["x"]), (ONE.replace(b'"x"', b'"z"'), ["z"]), (TWO, ["x", "y"])):
            path.write_bytes(text)
            assert names(file.read(now())) == expected
    (tmp_path / "new").write_bytes(ONE)
    (tmp_path / "new").replace(path)
    assert names(file.read(now())) == ["x"]


def test_change_long_after(tmp_path: Path) -> None:
    """A file whose times could be trusted is read again when they change."""
    path = tmp_path / "pods.json"
    path.write_bytes(ONE)
    file = PodFile(path)
    later = replace(now(), wall_s=time.time() + 100)
    assert names(file.read(later)) == ["x"]
    path.write_bytes(TWO)
    assert names(file.read(later)) == ["x", "y"]


def test_symlink_swap(tmp_path: Path) -> None:
    """A ConfigMap's update swaps the symlink of its folder: the new file is read, although the path is the same."""
    for name, text in (("v1", ONE), ("v2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pods.json").write_bytes(text)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "pods.json").symlink_to("..data/pods.json")
    file = PodFile(tmp_path / "pods.json")
    later = replace(now(), wall_s=time.time() + 100)
    assert names(file.read(later)) == ["x"]
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert names(file.read(later)) == ["x", "y"]


def half(path: Path) -> None:
    path.write_bytes(TWO[: len(TWO) // 2])


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    os.truncate(path, 2**40)


SPOILED = [
    (half, "not what `kubectl get -o json` prints"),
    (nothing, "not what `kubectl get -o json` prints"),
    (folder, "not a regular file"),
    (pipe, "not a regular file"),
    (loop, "Too many levels of symbolic links"),
    (huge, "larger than 256 MiB"),
    (Path.unlink, "No such file"),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILED)
def test_spoiled_file(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    """Point 16: while the file is half-written or worse, the last good list stays and its age grows."""
    path = tmp_path / "pods.json"
    path.write_bytes(ONE)
    file = PodFile(path)
    good = file.read(now())
    spoil(path)
    for later_s in (0, 1, 100, 101):
        spoiled = file.read(replace(now(), wall_s=time.time() + later_s))
        assert (spoiled.pods, spoiled.synced) == (good.pods, good.synced)
        assert [gap.reason for gap in spoiled.gaps] == [GapReason.PODS]
        assert words in str(spoiled.gaps[0].problem)
        assert "kept, and age" in str(spoiled.gaps[0].problem)
    (tmp_path / "new").write_bytes(TWO)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    (tmp_path / "new").replace(path)
    moment = now()
    mended = file.read(moment)
    assert (names(mended), mended.synced, mended.gaps) == (["x", "y"], moment, ())


def test_broken_pods_are_reported_each_time(tmp_path: Path) -> None:
    """The gaps of a list stay as long as the list does, while the list itself counts as read."""
    path = tmp_path / "pods.json"
    path.write_bytes(
        list_of(pod_object("x", "1"), pod_object("y", "2", spec={"nodeName": "n2"}), pod_object(spec=None))
    )
    file = PodFile(path, "n1")
    for later_s in (0, 100, 101):
        moment = replace(now(), wall_s=time.time() + later_s)
        pods = file.read(moment)
        assert (names(pods), pods.synced, [gap.what for gap in pods.gaps]) == (["x"], moment, ["pod a/trainer"])
    path.unlink()
    assert [gap.what for gap in file.read(now()).gaps] == ["pod a/trainer", f"pod file {path}"]


def test_a_change_shows_before_it_is_read(tmp_path: Path) -> None:
    """The loop notices new pods without reading the file every time."""
    path = tmp_path / "pods.json"
    file = PodFile(path)
    assert not file.has_changed()
    path.write_text('{"kind": "List", "items": []}', encoding="utf-8")
    assert file.has_changed()
    assert not file.has_changed()  # told once
    file.read(now())
    assert not file.has_changed()
    path.write_text('{"kind": "List", "items": [ ]}', encoding="utf-8")
    assert file.has_changed()


def test_a_wrong_node_name_is_reported_and_drops_no_pod(tmp_path: Path) -> None:
    """If no pod at all is on a node of that name, the name is wrong: all pods stay, and a gap has the remedy."""
    path = tmp_path / "pods.json"
    elsewhere = pod_object(spec={"nodeName": "n1"})
    path.write_bytes(list_of(elsewhere))
    found = PodFile(path, "n2").read(now())
    assert len(found.pods) == 1
    assert "--node" in str(found.gaps[0].problem)
    assert PodFile(path, "n1").read(now()).gaps == ()


def test_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    """A file at rest costs a stat, whether it could be parsed or not; one that was just written is read once more."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    file = WatchedFile(path)
    assert file.read_if_changed(time.time()) == b"x"
    assert file.read_if_changed(time.time()) == b"x"
    assert file.read_if_changed(time.time() + 100) == b"x"
    assert file.read_if_changed(time.time() + 100) is None
    settle(path)
    assert file.read_if_changed(time.time() + 100) == b"x"
    assert file.read_if_changed(time.time()) is None


def node_object(name: str, **labels: object) -> dict[str, object]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or None}, "status": {"capacity": {"cpu": "2"}}}


def _node(name: str, labels: dict[str, str]) -> Node:
    return Node(name=name, labels=labels, capacity={"cpu": "2"})


def test_node_of_a_file(tmp_path: Path) -> None:
    """Labels and capacity come from the node's object, alone in the file or in a list."""
    path = tmp_path / "node.json"
    path.write_text(json.dumps(node_object("n1", zone="a")), encoding="utf-8")
    file = NodeFile(path, "n1")
    assert file.read(now()) == (_node("n1", {"zone": "a"}), ())
    assert NodeFile(path).read(now()) == (_node("n1", {"zone": "a"}), ())
    path.write_bytes(list_of(node_object("n0"), node_object("n1", zone="b")))
    assert file.read(now()) == (_node("n1", {"zone": "b"}), ())
    assert file.read(now()) == (_node("n1", {"zone": "b"}), ())


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (b"{", "n1", "it is not what"),
        (list_of(kind="PodList"), "n1", "'PodList'"),
        (list_of(node_object("n2")), "n1", "the node 'n1', and contains: n2"),
        (list_of(), "n1", "the node 'n1', and contains: none"),
        (list_of(node_object("n1"), node_object("n2")), "", "one node, and contains: n1, n2"),
        (list_of(node_object("n1", zone=1)), "n1", r"labels"),
    ],
)
def test_broken_node(tmp_path: Path, text: bytes, name: str, words: str) -> None:
    """Another node's labels are never used: the last good object is kept, and a gap says so."""
    with pytest.raises(ValueError, match=words):
        parse_node(text, name)
    path = tmp_path / "node.json"
    file = NodeFile(path, name)
    node, (gap,) = file.read(now())
    assert (node, gap.reason, "No such file" in str(gap.problem)) == (
        Node(name=name, known=False, awaited=True),
        GapReason.NODE,
        True,
    )
    path.write_bytes(list_of(node_object("n1", zone="a")))
    good, gaps = file.read(now())
    assert (good.labels, gaps) == ({"zone": "a"}, ())
    path.write_bytes(text)
    for later_s in (0, 100, 101):
        kept, (gap,) = file.read(replace(now(), wall_s=time.time() + later_s))
        assert (kept, gap.reason, "kubectl get node" in str(gap.problem)) == (good, GapReason.NODE, True)
    path.write_bytes(list_of(node_object("n1", zone="b")))
    assert file.read(now()) == (_node("n1", {"zone": "b"}), ())
