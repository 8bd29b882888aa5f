"""The labels of namespaces from a file that holds what `kubectl get namespaces -o json` prints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.rules import Namespaces
from watchdog.kube.files.followed import FollowedFile
from watchdog.kube.objects.wire import DECODE_ERRORS, NAMESPACE_DECODER, name_object, split_items

_LOOK: Final = "see what writes the file"
_REMEDY: Final = "write `kubectl get namespaces -o json` to it, to another name first and then renamed"


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
            why = f"it can't be read, so its labels are not known: {error}; {_LOOK}"
            gaps.append(_gap(f"namespace {name_object(item)}", why))
            continue
        if metadata.name in found:
            twice.add(metadata.name)
        found[metadata.name] = metadata.labels or {}
    why = f"it stands there twice, so its labels are not known; {_LOOK}"
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
        """Never: what was read last holds until the file is written anew."""
        return False

    def _unread(self, problem: str) -> Gap:
        return _gap(f"namespaces file {self._file.path}", f"{problem}; what was read before is kept; {_REMEDY}")


def _gap(what: str, why: str) -> Gap:
    return Gap(reason=GapReason.NAMESPACES, what=what, why=why)
