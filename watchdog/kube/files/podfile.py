"""The pods of this node from a file that holds what `kubectl get pods -o json` prints."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from watchdog.core.model import Gap, GapReason, Now, PodList
from watchdog.kube.files.followed import FollowedFile
from watchdog.kube.objects.pods import parse_pods

_REMEDY: Final = "write `kubectl get pods -A -o json` to it, to another name first and then renamed"


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
        why = f"none of its {count} pods is on a node named {self._node}, so all of them are kept; give --node NAME"
        return Gap(reason=GapReason.PODS, what=f"pod file {self._file.path}", why=why)

    def _stale(self, problem: str) -> PodList:
        kept = "no pods are known" if self._last.synced is None else "the pods read before are kept, and age"
        gap = Gap(reason=GapReason.PODS, what=f"pod file {self._file.path}", why=f"{problem}; {kept}; {_REMEDY}")
        return replace(self._last, gaps=(*self._last.gaps, gap))
