"""Pods, the node object and namespaces from files that hold what `kubectl get -o json` prints."""

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Now, PodList
from watchdog.core.rules import Namespaces
from watchdog.kube.objects import decode_node, parse_pods
from watchdog.kube.wire import DECODE_ERRORS, NAMESPACE_DECODER, name_object, split_items

# A file changed this recently may change again without its times showing it (they move in steps of a clock tick).
_SETTLED_AFTER_S: Final = 2.0
_LARGEST: Final = 256 * 2**20

Signature = tuple[int, int, int, int, int]


class FollowedFile:
    """A regular file, followed by path through symlink swaps as ConfigMaps make them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Signature | None = None
        self._noticed: Signature | None = None

    def has_changed(self) -> bool:
        """Whether it is another version than the last one that was read or told of here; False where it is missing."""
        try:
            found = _sign(self.path.stat())
        except OSError:
            return False
        before, self._noticed = self._noticed, found
        return found != before

    def read_if_changed(self, wall_s: float) -> bytes | None:
        """Its bytes if they may be others than at the last call, else None; OSError or ValueError if unreadable.

        `wall_s` is the present Unix time.
        """
        status = self.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        if status.st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST // 2**20} MiB")
        if _sign(status) == self._seen:
            return None
        with self.path.open("rb") as file:
            before = os.fstat(file.fileno())
            text = file.read(_LARGEST)
            after = os.fstat(file.fileno())
        self._noticed = _sign(after)
        age_s = wall_s - max(after.st_mtime, after.st_ctime)
        if _sign(before) == _sign(after) and not 0 <= age_s < _SETTLED_AFTER_S:
            self._seen = _sign(after)
        return text


def _sign(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


_LOOK: Final = "see what writes the file"
_WRITE_NAMESPACES: Final = "write `kubectl get namespaces -o json` to it, to another name first and then renamed"


def parse_namespaces(text: bytes) -> tuple[Namespaces, tuple[Gap, ...]]:
    """Read the labels of each namespace of a list, or of one alone. ValueError where it is no list of namespaces.

    One that can't be read, or stands there twice, is a gap, and its labels are not known; the others count.
    """
    found: dict[str, Mapping[str, str]] = {}
    twice: set[str] = set()
    gaps = []
    for item in split_items(text, "Namespace"):
        try:
            metadata = NAMESPACE_DECODER.decode(item).metadata
        except DECODE_ERRORS as error:
            why = Problem(f"it can't be read, so its labels are not known: {error}", _LOOK)
            gaps.append(_gap(f"namespace {name_object(item)}", why))
            continue
        if metadata.name in found:
            twice.add(metadata.name)
        found[metadata.name] = metadata.labels or {}
    why = Problem("it stands there twice, so its labels are not known", _LOOK)
    gaps += [_gap(f"namespace {name}", why) for name in sorted(twice)]
    return {name: labels for name, labels in found.items() if name not in twice}, tuple(gaps)


class NamespaceFile:
    """A file of namespaces, read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._file = FollowedFile(path)
        self._last: Namespaces = {}
        self._gaps: tuple[Gap, ...] = ()
        self._problem: str | None = None

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """The labels by namespace as the file has them now; while it can't be read, the last good ones and a gap."""
        try:
            text = self._file.read_if_changed(now.wall_s)
            if text is not None:
                self._problem = None
                self._last, self._gaps = parse_namespaces(text)
        except OSError as error:
            return self._last, (*self._gaps, self._unread(error.strerror or str(error)))
        except ValueError as error:
            self._problem = str(error)
        return self._last, self._gaps if self._problem is None else (*self._gaps, self._unread(self._problem))

    def has_changed(self) -> bool:
        """Whether `read` may find something new."""
        return self._file.has_changed()

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: what was read last holds until the file is rewritten."""
        return False

    def _unread(self, problem: str) -> Gap:
        kept = Problem(f"{problem}; what was read before is kept", _WRITE_NAMESPACES)
        return _gap(f"namespaces file {self._file.path}", kept)


def _gap(what: str, problem: Problem) -> Gap:
    return Gap(reason=GapReason.NAMESPACES, what=what, problem=problem)


_WRITE_NODE: Final = "write `kubectl get node NAME -o json` to it, to another name first and then renamed"


def parse_node(text: bytes, name: str) -> Node:
    """Read a node, or the one of this name in a list; with no name it must be a single one. ValueError otherwise."""
    nodes = []
    for item in split_items(text, "Node"):
        try:
            nodes.append(decode_node(item))
        except DECODE_ERRORS as error:
            raise ValueError(f"a node in it can't be read: {error}") from error
    matching = [node for node in nodes if name in ("", node.name)]
    if len(matching) != 1:
        names = ", ".join(node.name for node in nodes[:5]) or "none"
        wanted = f"the node {name!r}" if name else "one node"
        raise ValueError(f"it must hold {wanted}, and holds: {names}")
    return matching[0]


class NodeFile:
    """A file of the node's object, read again when it changes."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._file = FollowedFile(path)
        self._name = name
        self._last = Node(name=name, known=False, awaited=True)
        self._problem: str | None = None

    def read(self, now: Now) -> tuple[Node, tuple[Gap, ...]]:
        """The node as the file has it now; while it can't be read, the last good one and a gap (at first not known)."""
        try:
            text = self._file.read_if_changed(now.wall_s)
            if text is not None:
                self._problem = None
                self._last = parse_node(text, self._name)
        except OSError as error:
            return self._last, (self._gap(error.strerror or str(error)),)
        except ValueError as error:
            self._problem = str(error)
        return self._last, () if self._problem is None else (self._gap(self._problem),)

    def has_changed(self) -> bool:
        """Whether `read` may find something new."""
        return self._file.has_changed()

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: what was read last holds until the file is rewritten."""
        return False

    def _gap(self, problem: str) -> Gap:
        what = f"node file {self._file.path}"
        kept = Problem(f"{problem}; what was read before is kept", _WRITE_NODE)
        return Gap(reason=GapReason.NODE, what=what, problem=kept)


_WRITE_PODS: Final = "write `kubectl get pods -A -o json` to it, to another name first and then renamed"


class PodFile:
    """A file of pods, read again when it changes."""

    def __init__(self, path: Path, node: str | None = None) -> None:
        self._file = FollowedFile(path)
        self._node = node
        self._last = PodList(by_file=True)
        self._problem: str | None = None

    def read(self, now: Now) -> PodList:
        """The pods as the file has them now; with a node's name, without those that are bound to another node.

        While it is missing, half-written or otherwise unreadable, the last good list stays, its `synced` stands
        still and a gap says why. `synced` is None as long as there has been no good one.
        """
        try:
            text = self._file.read_if_changed(now.wall_s)
            if text is not None:
                self._problem = None
                self._read(text)
        except OSError as error:
            return self._stale(error.strerror or str(error))
        except ValueError as error:
            self._problem = str(error)
        if self._problem is not None:
            return self._stale(self._problem)
        self._last = replace(self._last, synced=now)
        return self._last

    def has_changed(self) -> bool:
        """Whether `read` may find something new."""
        return self._file.has_changed()

    def _read(self, text: bytes) -> None:
        pods, gaps = parse_pods(text, self._node)
        if not pods and self._node is not None:
            # No pod at all is on a node of this name, not even the watchdog's own: more likely the name is wrong.
            # A pod of another node has no process here, so keeping them all wrongs nobody.
            pods, gaps = parse_pods(text, None)
            gaps = (*gaps, *([self._stranger(len(pods))] if pods else []))
        self._last = replace(self._last, pods=pods, gaps=gaps)

    def _stranger(self, count: int) -> Gap:
        why = Problem(
            f"none of its {count} pods is on a node named {self._node}, so all of them are kept", "give --node NAME"
        )
        return Gap(reason=GapReason.PODS, what=f"pod file {self._file.path}", problem=why)

    def _stale(self, problem: str) -> PodList:
        kept = "no pods are known" if self._last.synced is None else "the pods read before are kept, and age"
        stale = Problem(f"{problem}; {kept}", _WRITE_PODS)
        gap = Gap(reason=GapReason.PODS, what=f"pod file {self._file.path}", problem=stale)
        return replace(self._last, gaps=(*self._last.gaps, gap))
