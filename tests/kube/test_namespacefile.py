"""The labels of namespaces, from a file that others write."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.objects import Object, list_of
from tests.kube.test_podfile import SPOILED
from watchdog.clock import now
from watchdog.core.model import GapReason
from watchdog.kube.files import NamespaceFile, parse_namespaces


def namespace(name: object, labels: object = None) -> Object:
    """A namespace as the API server writes it."""
    metadata = {"name": name, "labels": labels, "uid": "1", "creationTimestamp": "2025-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {"phase": "Active"}}


ONE = list_of(namespace("a", {"team": "ml"}))
TWO = list_of(namespace("a", {"team": "ml"}), namespace("b", {"team": "web", "x": ""}))


@pytest.mark.parametrize("kind", ["List", "NamespaceList"])
def test_a_list(kind: str) -> None:
    """A list has two possible kinds, and a namespace without labels has known labels: none."""
    text = list_of(namespace("a", {"team": "ml"}), namespace("b"), namespace("c", {}), kind=kind)
    assert parse_namespaces(text) == ({"a": {"team": "ml"}, "b": {}, "c": {}}, ())
    assert parse_namespaces(list_of(kind=kind)) == ({}, ())


def test_a_single_namespace() -> None:
    """One alone, as `kubectl get namespace NAME` prints it, is a list of one."""
    assert parse_namespaces(json.dumps(namespace("a"), indent=2).encode()) == ({"a": {}}, ())


@pytest.mark.parametrize(
    ("broken", "what", "words"),
    [
        (namespace("x", {"team": 1}), "namespace x", "$.metadata.labels[...]"),
        (namespace("x", {"team": None}), "namespace x", "$.metadata.labels[...]"),
        (namespace("x", ["team"]), "namespace x", "$.metadata.labels"),
        (namespace("x", "team"), "namespace x", "$.metadata.labels"),
        (namespace(""), "namespace without a name", "$.metadata.name"),
        (namespace(5), "namespace 5", "$.metadata.name"),
        (namespace(None), "namespace None", "$.metadata.name"),
        ({"kind": "Namespace"}, "namespace without a name", "metadata"),
        ({"kind": "Namespace", "metadata": [1]}, "namespace without a name", "$.metadata"),
    ],
)
def test_a_broken_namespace_among_good_ones(broken: Object, what: str, words: str) -> None:
    """One that can't be read is a gap that names it and the place, and its labels are not known; the others count."""
    found, (gap,) = parse_namespaces(list_of(namespace("a", {"team": "ml"}), broken, namespace("b")))
    assert found == {"a": {"team": "ml"}, "b": {}}
    assert (gap.reason, gap.what) == (GapReason.NAMESPACES, what)
    assert words in str(gap.problem)
    assert "not known" in str(gap.problem)


def test_a_duplicate_namespace() -> None:
    """Of several with one name none counts, wherever they are."""
    text = list_of(namespace("a", {"team": "ml"}), namespace("b"), namespace("a", {"team": "web"}), namespace("a"))
    found, (gap,) = parse_namespaces(text)
    assert (found, gap.what, "twice" in str(gap.problem)) == ({"b": {}}, "namespace a", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "kubectl get"),
        (TWO[:-10], "kubectl get"),
        (b"\xff\xfe", "kubectl get"),
        (b"[]", "kubectl get"),
        (b'{"kind": "PodList", "items": []}', "not a list of kind NamespaceList: its kind is 'PodList'"),
        (b'{"items": []}', "its kind is 'missing'"),
        (b'{"x":' * 5000, "kubectl get"),
    ],
)
def test_not_a_list_of_namespaces(text: bytes, words: str) -> None:
    """Text that is incomplete, or not about namespaces, is rejected as a whole with a message."""
    with pytest.raises(ValueError, match=words):
        parse_namespaces(text)


@given(st.binary(max_size=100))
def test_any_bytes(text: bytes) -> None:
    """The parser rejects everything but a list with one kind of error."""
    with pytest.raises(ValueError, match="it is no"):
        parse_namespaces(text)


def test_it_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A file that is rewritten, or created later, is read as soon as it exists."""
    path = tmp_path / "namespaces.json"
    file = NamespaceFile(path)
    found, (gap,) = file.read(now())
    assert (found, gap.reason, gap.what) == ({}, GapReason.NAMESPACES, f"namespaces file {path}")
    assert "No such file" in str(gap.problem)
    assert "kubectl get namespaces -o json" in str(gap.problem)
    for text, names in ((ONE, ["a"]), (TWO, ["a", "b"]), (ONE, ["a"])):
        path.write_bytes(text)
        found, gaps = file.read(now())
        assert (list(found), gaps) == (names, ())


def test_an_unchanged_file_gives_the_same_object(tmp_path: Path) -> None:
    """The identical labels are returned while the file is unchanged, so that a cycle has nothing new."""
    path = tmp_path / "namespaces.json"
    path.write_bytes(TWO)
    os.utime(path, (time.time() - 100, time.time() - 100))
    file = NamespaceFile(path)
    later = replace(now(), wall_s=time.time() + 100)
    assert file.read(later)[0] is file.read(later)[0]


@pytest.mark.parametrize(
    ("spoil", "words"), [*SPOILED, (lambda path: path.write_bytes(b'{"kind": "PodList"}'), "List")]
)
def test_spoiled_file(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    """While the file is half-written or worse, the last content holds, and each read has a gap with the reason."""
    path = tmp_path / "namespaces.json"
    path.write_bytes(TWO)
    file = NamespaceFile(path)
    good, _ = file.read(now())
    spoil(path)
    for later_s in (0, 1, 100, 101):
        found, (gap,) = file.read(replace(now(), wall_s=time.time() + later_s))
        assert (found, gap.reason) == (good, GapReason.NAMESPACES)
        assert words in str(gap.problem)
        assert "what was read before is kept" in str(gap.problem)
    (tmp_path / "new").write_bytes(ONE)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    (tmp_path / "new").replace(path)
    assert file.read(now()) == ({"a": {"team": "ml"}}, ())


def test_broken_namespaces_are_reported_each_time(tmp_path: Path) -> None:
    """The gap of a namespace stays while the file is unchanged, and beside the file's own gap once that is missing."""
    path = tmp_path / "namespaces.json"
    path.write_bytes(list_of(namespace("a"), namespace("x", {"team": 1})))
    file = NamespaceFile(path)
    for later_s in (0, 100, 101):
        found, gaps = file.read(replace(now(), wall_s=time.time() + later_s))
        assert (list(found), [gap.what for gap in gaps]) == (["a"], ["namespace x"])
    path.unlink()
    assert [gap.what for gap in file.read(now())[1]] == ["namespace x", f"namespaces file {path}"]
