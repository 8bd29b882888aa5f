"""The objects of the API from files with the output of `kubectl get -o json`."""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Now, Pod, PodKeys, PodList
from watchdog.core.rules import Namespaces
from watchdog.kube.claims import (
    Allocation,
    Allocations,
    DeviceKey,
    Devices,
    MissingClaim,
    ReadClaims,
    decode_claim,
    decode_slice,
    newest_devices,
)
from watchdog.kube.objects import decode_namespace, decode_node, parse_pods
from watchdog.kube.text_file import as_utf8
from watchdog.kube.wire import DECODE_ERRORS, name_object, split_items
from watchdog.options import OBJECTS_OPTIONS

# A file changed this recently may change again without its times showing it (they have the resolution of a clock tick).
_SETTLED_AFTER_S: Final = 2.0
_LARGEST: Final = 256 * 2**20

Signature = tuple[int, int, int, int, int]
Value = TypeVar("Value")
Parsed = tuple[Value, tuple[Gap, ...]]


class WatchedFile:
    """A regular file, followed by its path across the symlink swaps of ConfigMaps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._settled: Signature | None = None
        self._noticed: Signature | None = None

    def has_changed(self) -> bool:
        """Whether this is another version than the last one read or reported here; False if the file is missing."""
        try:
            current = _sign(self.path.stat())
        except OSError:
            return False
        before, self._noticed = self._noticed, current
        return current != before

    def forget(self) -> None:
        """Let the next reading take place even if the file has not changed."""
        self._settled = None

    def read_if_changed(self, wall_s: float) -> bytes | None:
        """Its content if that may differ from the last call's, else None; OSError or ValueError if unreadable.

        `wall_s` is the present Unix time.
        """
        status = self.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST // 2**20} MiB")
        if _sign(status) == self._settled:
            return None
        with self.path.open("rb") as file:
            before = os.fstat(file.fileno())
            text = file.read(_LARGEST)
            after = os.fstat(file.fileno())
        self._noticed = _sign(after)
        age_s = wall_s - max(after.st_mtime, after.st_ctime)
        if _sign(before) == _sign(after) and not 0 <= age_s < _SETTLED_AFTER_S:
            self._settled = _sign(after)
        return text


def _sign(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class ObjectsFile(Generic[Value]):
    """A file that is parsed again when it changes. If that fails, its last good content is kept."""

    # What it contains, in messages; the reason of its gaps; the field of `Options` that names it.
    noun: ClassVar[str]
    reason: ClassVar[GapReason]
    option: ClassVar[str]

    def __init__(self, path: Path, parse: Callable[[bytes], Parsed[Value]], value: Value) -> None:
        """`parse` raises ValueError; `value` is used until the file has been parsed."""
        self._file = WatchedFile(path)
        self._parse = parse
        self._parsed: Parsed[Value] = value, ()
        self._problem: str | None = None

    def has_changed(self) -> bool:
        """Whether `read` may find something new."""
        return self._file.has_changed()

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: what was read last holds until the file is rewritten."""
        return False

    def _read(self, now: Now, kept: str) -> tuple[Value, tuple[Gap, ...], bool]:
        """The last good content, its gaps, and whether it is current; `kept` describes what is used meanwhile."""
        try:
            text = self._file.read_if_changed(now.wall_s)
            if text is not None:
                self._problem = None
                self._parsed = self._parse(as_utf8(text))
            problem = self._problem
        except OSError as error:
            problem = error.strerror or str(error)
        except ValueError as error:
            problem = self._problem = str(error)
        value, gaps = self._parsed
        if problem is None:
            return value, gaps, True
        command = OBJECTS_OPTIONS[self.option].command
        remedy = f"write `kubectl {command} -o json` to it, under another name first and then renamed"
        return value, (*gaps, self._gap(Problem(f"{problem}; {kept}", remedy))), False

    def _gap(self, problem: Problem) -> Gap:
        return Gap(reason=self.reason, what=f"{self.noun} file {self._file.path}", problem=problem)


_KEPT: Final = "what was read before is kept"
_CHECK_WRITER: Final = "check what writes the file"


class AgelessFile(ObjectsFile[Value]):
    """A file whose last good content holds however old it is; that of pods, in contrast, has an age."""

    def read(self, now: Now) -> Parsed[Value]:
        """What is in the file now; while it can't be read, the last good content and a gap."""
        return self._read(now, _KEPT)[:2]


class NamespaceFile(AgelessFile[Namespaces]):
    """A file of namespaces, read again when it changes."""

    noun, reason, option = "namespaces", GapReason.NAMESPACES, "namespaces"

    def __init__(self, path: Path) -> None:
        super().__init__(path, parse_namespaces, {})


def parse_namespaces(text: bytes) -> Parsed[Namespaces]:
    """The labels of each namespace of a list, or of a single one. ValueError if it is neither.

    For a namespace that can't be read or occurs twice there is a gap, and its labels are not known; the others count.
    """
    labels: dict[str, Mapping[str, str]] = {}
    twice: set[str] = set()
    problems = []
    for item in split_items(text, "Namespace"):
        try:
            name, known = decode_namespace(item)
        except DECODE_ERRORS as error:
            problems.append((name_object(item), f"it can't be read, so its labels are not known: {error}"))
            continue
        if name in labels:
            twice.add(name)
        labels[name] = known
    problems += [(name, "it occurs twice, so its labels are not known") for name in sorted(twice)]
    return {name: known for name, known in labels.items() if name not in twice}, tuple(
        Gap(reason=GapReason.NAMESPACES, what=f"namespace {name}", problem=Problem(cause, _CHECK_WRITER))
        for name, cause in problems
    )


class NodeFile(AgelessFile[Node]):
    """A file with the Node object, read again when it changes."""

    noun, reason, option = "node", GapReason.NODE, "node_object"

    def __init__(self, path: Path, name: str = "") -> None:
        super().__init__(path, lambda text: (parse_node(text, name), ()), Node(name=name, known=False, awaited=True))


def parse_node(text: bytes, name: str) -> Node:
    """The node of this name in a list, or a single node; without a name there must be exactly one. ValueError."""
    try:
        nodes = [decode_node(item) for item in split_items(text, "Node")]
    except DECODE_ERRORS as error:
        raise ValueError(f"a node in it can't be read: {error}") from error
    matching = [node for node in nodes if name in ("", node.name)]
    if len(matching) != 1:
        names = ", ".join(node.name for node in nodes[:5]) or "none"
        wanted = f"the node {name!r}" if name else "one node"
        raise ValueError(f"it must contain {wanted}, and contains: {names}")
    return matching[0]


class ClaimFile(AgelessFile[ReadClaims]):
    """A file of ResourceClaims, read again when it changes."""

    noun, reason, option = "claims", GapReason.CLAIMS, "claims"

    def __init__(self, path: Path) -> None:
        super().__init__(path, parse_claims, _in_file({}))

    def want(self, missing: Sequence[MissingClaim]) -> None:
        """Nothing: the file has what it has."""


class SliceFile(AgelessFile[Devices]):
    """A file of ResourceSlices, read again when it changes."""

    noun, reason, option = "slices", GapReason.CLAIMS, "slices"

    def __init__(self, path: Path, node: str | None = None) -> None:
        super().__init__(path, partial(parse_slices, node=node), {})

    def want(self, strangers: Collection[DeviceKey]) -> None:
        """Nothing: it has all that there are."""


_WRITE_CLAIMS: Final = "write `kubectl get resourceclaims -A -o json` to the file of --claims again"


def _in_file(allocations: Allocations) -> ReadClaims:
    return ReadClaims(allocations=allocations, lacking=Problem("it was not found", _WRITE_CLAIMS), remedy=_WRITE_CLAIMS)


def parse_claims(text: bytes) -> Parsed[ReadClaims]:
    """The allocation of each ResourceClaim of a list, or of a single one; one that can't be read becomes a gap."""
    found: dict[tuple[str, str], Allocation] = {}
    gaps = []
    for item in split_items(text, "ResourceClaim"):
        try:
            key, allocation = decode_claim(item)
        except (*DECODE_ERRORS, ValueError) as error:
            why = Problem(f"it can't be read, so the limits of its pods are not known: {error}", _CHECK_WRITER)
            gaps.append(Gap(reason=GapReason.CLAIMS, what=f"claim {name_object(item)}", problem=why))
            continue
        found[key] = allocation
    return _in_file(found), tuple(gaps)


def parse_slices(text: bytes, node: str | None = None) -> Parsed[Devices]:
    """The devices of a list of ResourceSlices, or of a single one: those of the newest generation of each pool.

    Those of other nodes than `node` are left out.
    """
    found, gaps = [], []
    for item in split_items(text, "ResourceSlice"):
        try:
            published = decode_slice(item)
            if node is None or published.node in (None, node):
                found.append(published)
        except (*DECODE_ERRORS, ValueError) as error:
            why = Problem(f"it can't be read, so its devices are not known: {error}", _CHECK_WRITER)
            gaps.append(Gap(reason=GapReason.CLAIMS, what=f"slice {name_object(item)}", problem=why))
    return newest_devices(found), tuple(gaps)


class PodFile(ObjectsFile[tuple[Pod, ...]]):
    """A file of pods, read again when it changes."""

    noun, reason, option = "pod", GapReason.PODS, "pods"

    def __init__(self, path: Path, node: str | None = None) -> None:
        super().__init__(path, self._parse_pods, ())
        self._node = node
        self._keys = PodKeys()
        self._synced: Now | None = None

    def want(self, keys: PodKeys) -> None:
        """Read these keys of every pod from now on, whatever else it carries."""
        if not self._keys.cover(keys):
            self._keys |= keys
            self._file.forget()

    def find(self, missing: Iterable[Pod]) -> None:
        """Nothing: that a file lacks a pod proves nothing."""

    def read(self, now: Now) -> PodList:
        """The pods as in the file now; with a node's name, without those bound to another node.

        While it is missing, half-written or otherwise unreadable, the last good list stays, its `synced` does not
        advance, and a gap says why. `synced` is None until there has been a good one.
        """
        kept = "no pods are known" if self._synced is None else "the pods read before are kept, and age"
        pods, gaps, is_current = self._read(now, kept)
        if is_current:
            self._synced = now
        return PodList(pods=pods, synced=self._synced, gaps=gaps, by_file=True)

    def _parse_pods(self, text: bytes) -> Parsed[tuple[Pod, ...]]:
        pods, gaps = parse_pods(text, self._node, self._keys)
        if pods or self._node is None:
            return pods, gaps
        # No pod at all is on a node of this name, not even the watchdog's own: more likely the name is wrong.
        # A pod of another node has no process here, so keeping them all affects no pod.
        pods, gaps = parse_pods(text, keys=self._keys)
        if not pods:
            return pods, gaps
        cause = f"none of its {len(pods)} pods is on a node named {self._node}, so all of them are kept"
        return pods, (*gaps, self._gap(Problem(cause, "give --node NAME")))
