"""The node's own object from a file that holds what `kubectl get node NAME -o json` prints."""

from pathlib import Path
from typing import Final

from watchdog.core.model import Gap, GapReason, Node, Now
from watchdog.kube.files.followed import FollowedFile
from watchdog.kube.objects.nodes import decode_node
from watchdog.kube.objects.wire import DECODE_ERRORS, split_items

_REMEDY: Final = "write `kubectl get node NAME -o json` to it, to another name first and then renamed"


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
        """Never: what was read last holds until the file is written anew."""
        return False

    def _gap(self, problem: str) -> Gap:
        what = f"node file {self._file.path}"
        return Gap(reason=GapReason.NODE, what=what, why=f"{problem}; what was read before is kept; {_REMEDY}")
