"""Files used instead of the API, through every way in which others rewrite them."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kube.objects import Object, list_of, pod_object
from watchdog.clock import now
from watchdog.core.model import Gap, GapReason, Node, Now, PodKeys
from watchdog.kube.files import NamespaceFile, NodeFile, PodFile, WatchedFile, parse_namespaces, parse_node


def namespace(name: object, labels: object = None) -> Object:
    """A namespace as the API server writes it."""
    metadata = {"name": name, "labels": labels, "uid": "1", "creationTimestamp": "2025-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {"phase": "Active"}}


def node_object(name: str, **labels: object) -> Object:
    """A node as the API server writes it."""
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or None}, "status": {"capacity": {"cpu": "2"}}}


@dataclass(frozen=True)
class Kind:
    """A kind of file, with objects named x and y, and one that can't be read."""

    make: Callable[[Path], PodFile | NamespaceFile]
    reason: GapReason
    noun: str
    command: str
    x: Object
    y: Object
    broken: Object

    @property
    def one(self) -> bytes:
        """A file with x."""
        return list_of(self.x)

    @property
    def two(self) -> bytes:
        """A file with x and y."""
        return list_of(self.x, self.y)


PODS = Kind(
    make=PodFile,
    reason=GapReason.PODS,
    noun="pod",
    command="kubectl get pods -A -o json",
    x=pod_object("x", "1"),
    y=pod_object("y", "2"),
    broken=pod_object("z", spec=None),
)
NAMESPACES = Kind(
    make=NamespaceFile,
    reason=GapReason.NAMESPACES,
    noun="namespace",
    command="kubectl get namespaces -o json",
    x=namespace("x", {"team": "ml"}),
    y=namespace("y"),
    broken=namespace("z", {"team": 1}),
)
each_kind = pytest.mark.parametrize("kind", [PODS, NAMESPACES], ids=["pods", "namespaces"])


def read(file: PodFile | NamespaceFile, later_s: float = 0) -> tuple[list[str], Now | None, tuple[Gap, ...]]:
    """The names in the file, when a list of pods was synced, and the gaps, read so much later."""
    moment = replace(now(), wall_s=time.time() + later_s)
    if isinstance(file, PodFile):
        pods = file.read(moment)
        return [pod.name for pod in pods.pods], pods.synced, pods.gaps
    found, gaps = file.read(moment)
    return list(found), None, gaps


@each_kind
def test_a_missing_file_is_read_once_it_exists(tmp_path: Path, kind: Kind) -> None:
    """Until then nothing is known, and a gap has the file, the cause and the remedy."""
    file = kind.make(path := tmp_path / "file.json")
    found, synced, (gap,) = read(file)
    assert (found, synced, gap.reason, str(path) in gap.what) == ([], None, kind.reason, True)
    assert "No such file" in str(gap.problem)
    assert kind.command in str(gap.problem)
    path.write_bytes(kind.one)
    assert read(file)[::2] == (["x"], ())


@each_kind
def test_changes_are_seen(tmp_path: Path, kind: Kind) -> None:
    """A file that is rewritten or renamed over is read again, also within the clock tick of the last read."""
    file = kind.make(path := tmp_path / "file.json")
    for _ in range(20):
        for text, expected in ((kind.one, ["x"]), (kind.one.replace(b'"x"', b'"z"'), ["z"]), (kind.two, ["x", "y"])):
            path.write_bytes(text)
            assert read(file)[::2] == (expected, ())
    (tmp_path / "new").write_bytes(kind.one)
    (tmp_path / "new").replace(path)
    assert read(file, 100)[0] == ["x"]
    path.write_bytes(kind.two)
    assert read(file, 100)[0] == ["x", "y"]


def test_a_swapped_symlink_is_followed(tmp_path: Path) -> None:
    """A ConfigMap's update swaps the symlink of its folder: the new file is read, although the path is the same."""
    for name, text in (("v1", PODS.one), ("v2", PODS.two)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pods.json").write_bytes(text)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "pods.json").symlink_to("..data/pods.json")
    file = PodFile(tmp_path / "pods.json")
    assert read(file, 100)[0] == ["x"]
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert read(file, 100)[0] == ["x", "y"]


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Make something else in the place of the file."""

    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "half written": (lambda path: os.truncate(path, 40), "not what `kubectl get -o json` prints"),
    "empty": (lambda path: path.write_bytes(b""), "not what `kubectl get -o json` prints"),
    "of another kind": (lambda path: path.write_bytes(b'{"kind": "NodeList"}'), "List"),
    "a folder": (instead(Path.mkdir), "not a regular file"),
    "a pipe": (instead(os.mkfifo), "not a regular file"),
    "a symlink loop": (instead(lambda path: path.symlink_to(path.name)), "Too many levels of symbolic links"),
    "huge": (lambda path: os.truncate(path, 2**40), "larger than 256 MiB"),
    "gone": (Path.unlink, "No such file"),
}


@pytest.mark.parametrize("how", SPOILED)
@each_kind
def test_what_was_read_last_holds_while_a_file_is_spoiled(tmp_path: Path, kind: Kind, how: str) -> None:
    """Point 16: while it is half-written or worse, each read has a gap with the reason, and a list of pods ages."""
    spoil, words = SPOILED[how]
    path = tmp_path / "file.json"
    path.write_bytes(kind.one)
    file = kind.make(path)
    found, synced, _ = read(file)
    spoil(path)
    for later_s in (0, 1, 100, 101):
        *kept, (gap,) = read(file, later_s)
        assert (kept, gap.reason) == ([found, synced], kind.reason)
        assert words in str(gap.problem)
        assert "kept" in str(gap.problem)
    (tmp_path / "new").write_bytes(kind.two)
    if how == "a folder":
        path.rmdir()
    (tmp_path / "new").replace(path)
    assert read(file)[::2] == (["x", "y"], ())


@each_kind
def test_broken_objects_are_reported_each_time(tmp_path: Path, kind: Kind) -> None:
    """Their gaps stay while the file is unchanged, and beside the file's own gap once that is missing."""
    path = tmp_path / "file.json"
    path.write_bytes(list_of(kind.x, kind.broken))
    file = kind.make(path)
    for later_s in (0, 100, 101):
        found, _, (gap,) = read(file, later_s)
        assert (found, gap.what.startswith(kind.noun), gap.what.endswith("z")) == (["x"], True, True)
    path.unlink()
    assert [each.what for each in read(file)[2]][1:] == [f"{file.noun} file {path}"]


def test_each_read_of_an_unchanged_list_syncs_it(tmp_path: Path) -> None:
    """Every read of a good file confirms its pods; those of other nodes are left out."""
    path = tmp_path / "pods.json"
    path.write_bytes(list_of(PODS.x, pod_object("y", "2", spec={"nodeName": "n2"})))
    file = PodFile(path, "n1")
    for _ in range(3):
        pods = file.read(moment := now())
        assert ([pod.name for pod in pods.pods], pods.synced, pods.gaps) == (["x"], moment, ())


def test_an_unchanged_file_gives_the_same_labels(tmp_path: Path) -> None:
    """The identical labels are returned while the file is unchanged, so that a cycle has nothing new."""
    path = tmp_path / "namespaces.json"
    path.write_bytes(NAMESPACES.two)
    os.utime(path, (time.time() - 100, time.time() - 100))
    file = NamespaceFile(path)
    later = replace(now(), wall_s=time.time() + 100)
    assert file.read(later)[0] is file.read(later)[0]


def test_a_change_shows_before_it_is_read(tmp_path: Path) -> None:
    """The loop notices new pods without reading the file every time; each change is reported once."""
    file = PodFile(path := tmp_path / "pods.json")
    assert not file.has_changed()
    path.write_bytes(PODS.one)
    assert [file.has_changed(), file.has_changed()] == [True, False]
    file.read(now())
    assert not file.has_changed()
    path.write_bytes(PODS.two)
    assert file.has_changed()


def test_a_file_is_read_again_for_other_keys(tmp_path: Path) -> None:
    """Point 6: a policy that is loaded later reads what an earlier one did not name, although the file is the same."""
    path = tmp_path / "pods.json"
    many = {f"k{number}": "" for number in range(300)} | {"example.com/long": "1Gi"}
    path.write_bytes(list_of(pod_object(metadata={"annotations": many}), kind="PodList"))
    file, later = PodFile(path), replace(now(), wall_s=time.time() + 100)  # it has settled
    assert "example.com/long" not in file.read(later).pods[0].annotations
    file.want(keys := PodKeys(annotations=frozenset({"example.com/long"})))
    (found,) = file.read(later).pods
    assert (found.annotations["example.com/long"], found.keys) == ("1Gi", keys)


def test_a_wrong_node_name_is_reported_and_drops_no_pod(tmp_path: Path) -> None:
    """If no pod at all is on a node of that name, the name is wrong: all pods stay, and a gap has the remedy."""
    path = tmp_path / "pods.json"
    path.write_bytes(PODS.one)
    found = PodFile(path, "n2").read(now())
    assert len(found.pods) == 1
    assert "--node" in str(found.gaps[0].problem)
    assert PodFile(path, "n1").read(now()).gaps == ()


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    """A file at rest costs a stat, whether it could be parsed or not; one that was just written is read once more."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    file = WatchedFile(path)
    assert [file.read_if_changed(time.time() + later_s) for later_s in (0, 0, 100, 100)] == [b"x", b"x", b"x", None]
    os.utime(path, (time.time() - 100, time.time() - 100))
    assert [file.read_if_changed(time.time() + later_s) for later_s in (100, 0)] == [b"x", None]


def _node(zone: str) -> Node:
    return Node(name="n1", labels={"zone": zone}, capacity={"cpu": "2"})


def test_the_node_of_a_file(tmp_path: Path) -> None:
    """Labels and capacity come from the node's object, alone in the file or in a list."""
    path = tmp_path / "node.json"
    path.write_text(json.dumps(node_object("n1", zone="a")), encoding="utf-8")
    file = NodeFile(path, "n1")
    assert file.read(now()) == NodeFile(path).read(now()) == (_node("a"), ())
    path.write_bytes(list_of(node_object("n0"), node_object("n1", zone="b")))
    assert file.read(now()) == file.read(now()) == (_node("b"), ())


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
def test_another_nodes_labels_are_never_used(tmp_path: Path, text: bytes, name: str, words: str) -> None:
    """The last good object is kept, and a gap says so."""
    with pytest.raises(ValueError, match=words):
        parse_node(text, name)
    file = NodeFile(path := tmp_path / "node.json", name)
    node, (gap,) = file.read(now())
    assert (node, gap.reason) == (Node(name=name, known=False, awaited=True), GapReason.NODE)
    path.write_bytes(list_of(node_object("n1", zone="a")))
    assert file.read(now()) == (_node("a"), ())
    path.write_bytes(text)
    for later_s in (0, 100, 101):
        kept, (gap,) = file.read(replace(now(), wall_s=time.time() + later_s))
        assert (kept, gap.reason, "kubectl get node" in str(gap.problem)) == (_node("a"), GapReason.NODE, True)
    path.write_bytes(list_of(node_object("n1", zone="b")))
    assert file.read(now()) == (_node("b"), ())


def test_the_labels_of_namespaces() -> None:
    """A namespace without labels has known labels: none."""
    text = list_of(namespace("a", {"team": "ml"}), namespace("b"), namespace("c", {}), kind="NamespaceList")
    assert parse_namespaces(text) == ({"a": {"team": "ml"}, "b": {}, "c": {}}, ())


@pytest.mark.parametrize(
    ("broken", "what", "words"),
    [
        (namespace("x", {"team": 1}), "namespace x", "$.metadata.labels[...]"),
        (namespace("x", "team"), "namespace x", "$.metadata.labels"),
        (namespace(""), "namespace without a name", "$.metadata.name"),
        (namespace(5), "namespace 5", "$.metadata.name"),
        ({"kind": "Namespace"}, "namespace without a name", "metadata"),
        ({"kind": "Namespace", "metadata": [1]}, "namespace without a name", "$.metadata"),
    ],
)
def test_a_broken_namespace_among_good_ones(broken: Object, what: str, words: str) -> None:
    """One that can't be read is a gap that names it and the place, and its labels are not known; the others count."""
    found, (gap,) = parse_namespaces(list_of(namespace("a", {"team": "ml"}), broken, namespace("b")))
    assert (found, gap.reason, gap.what) == ({"a": {"team": "ml"}, "b": {}}, GapReason.NAMESPACES, what)
    assert {words in str(gap.problem), "not known" in str(gap.problem)} == {True}


def test_of_several_namespaces_with_one_name_none_counts() -> None:
    """Wherever they are in the list."""
    text = list_of(namespace("a", {"team": "ml"}), namespace("b"), namespace("a", {"team": "web"}), namespace("a"))
    found, (gap,) = parse_namespaces(text)
    assert (found, gap.what, "twice" in str(gap.problem)) == ({"b": {}}, "namespace a", True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_files_as_windows_writes_them(tmp_path: Path, encoding: str) -> None:
    """With a byte order mark, files are read whatever their encoding: PowerShell's `>` writes UTF-16."""
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    for kind in (PODS, NAMESPACES):
        path = tmp_path / kind.noun
        path.write_bytes((mark + kind.two.decode()).encode(encoding))
        assert read(kind.make(path))[::2] == (["x", "y"], ())
    path = tmp_path / "node.json"
    path.write_bytes((mark + json.dumps(node_object("n1", zone="a"))).encode(encoding))
    assert NodeFile(path).read(now()) == (_node("a"), ())


@each_kind
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}".encode("utf-16-le"), "it has NUL bytes, as UTF-16 without a byte order mark does; write it as UTF-8"),
        (b"\xff\xfea", "its byte order mark says UTF-16, but it is not; write it as UTF-8"),
    ],
)
def test_files_in_an_unknown_encoding(tmp_path: Path, kind: Kind, content: bytes, why: str) -> None:
    """The gap names the file, what is odd about its encoding, and what to do."""
    path = tmp_path / "file.json"
    path.write_bytes(content)
    found, _, (gap,) = read(kind.make(path))
    assert (found, str(path) in gap.what) == ([], True)
    assert gap.problem.cause.startswith(why)
