"""Which mount a path is on, as the kernel tells it in mountinfo (proc_pid_mountinfo(5))."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where something is mounted (`point`), which folder of the file system that is (`root`), and its kind."""

    point: str
    root: str
    kind: str

    @property
    def is_empty_dir(self) -> bool:
        """Whether the kubelet made it for a pod and removes it with that (k8s.io/kubernetes/pkg/volume/emptydir)."""
        return "/volumes/kubernetes.io~empty-dir/" in f"{self.root}/"


def mount_lines() -> list[str]:
    """The lines of this process's mountinfo; none where it can't be read."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def mount_of(path: Path, mounts: list[str]) -> Mount | None:
    """The innermost mount that a path is on, from the lines of mountinfo; None where it is not told.

    Of several mounts at one place the last lies on top.
    """
    found: Mount | None = None
    real = os.path.realpath(path)
    for line in mounts:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _plain(fields[4])
        inside = point in ("/", real) or real.startswith(f"{point}/")
        if inside and (found is None or len(point) >= len(found.point)):
            found = Mount(point=point, root=_plain(fields[3]), kind=after.split(" ")[0])
    return found


def _plain(text: str) -> str:
    """Undo the kernel's escapes."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
