"""What could not be read of processes, gathered into gaps: one for each cause, not one for each process."""

import errno
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gap, GapReason


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something of a process could not be read, in a sentence with the remedy; the same for each such process."""

    reason: GapReason
    why: str


HIDDEN: Final = Trouble(
    GapReason.PROCFS, "it runs but the proc file system hides it; mount /proc without hidepid, or run as root"
)
NO_DESCRIPTOR: Final = Trouble(
    GapReason.DESCRIPTORS, "no file descriptor is left for it; raise the limit of open files (LimitNOFILE, ulimit -n)"
)


def describe_error(error: OSError, reason: GapReason) -> Trouble:
    """Say what stands in the way of reading or holding a process; `reason` where the error has no reason of its own."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NO_DESCRIPTOR
    if error.errno in (errno.EACCES, errno.EPERM):
        return Trouble(reason, "it is out of reach; mount /proc without hidepid, or run as root and without seccomp")
    if error.errno == errno.ENAMETOOLONG:
        return Trouble(reason, "its cgroup path is longer than the kernel writes; look at what nested its cgroups")
    return Trouble(reason, f"it can't be looked at: {error.strerror or error}; it is tried again with every pass")


class Troubles:
    """The troubles of one pass over processes."""

    def __init__(self) -> None:
        self._pids: dict[Trouble, list[int]] = {}

    def add(self, pid: int, trouble: Trouble) -> None:
        """Note that the process has this trouble."""
        self._pids.setdefault(trouble, []).append(pid)

    def gaps(self) -> tuple[Gap, ...]:
        """One gap for each trouble, naming the first of its processes."""
        ordered = sorted(self._pids.items(), key=lambda item: (item[0].reason, item[0].why))
        return tuple(Gap(reason=trouble.reason, what=_name(sorted(pids)), why=trouble.why) for trouble, pids in ordered)


def _name(pids: list[int]) -> str:
    listed = ", ".join(str(pid) for pid in pids[:5])
    if len(pids) == 1:
        return f"process {listed}"
    return f"processes {listed}" if len(pids) <= 5 else f"processes {listed} and {len(pids) - 5} more"
