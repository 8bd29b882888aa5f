"""A proc file system in a folder: real processes, with the cgroup text that they would have in a pod."""

import errno
import os
import shutil
from pathlib import Path
from typing import Final

from watchdog.node.procfs import Procfs

_LINKED: Final = ("stat", "status", "comm", "cmdline", "environ", "task")


class SimProcfs(Procfs):
    """Shows the processes of chosen sessions, each as a folder of links into the real /proc and a `cgroup` file.

    Whoever admits a session must not reap its leader as long as this is in use: its PID, which names the session, is
    then not given to another process, and no stranger can be taken for a process of the pod.
    """

    def __init__(self, root: Path, real: Path = Path("/proc")) -> None:
        super().__init__(root)
        self._real = Procfs(real)
        self._cgroups: dict[int, str] = {}
        root.mkdir(parents=True, exist_ok=True)
        for name in ("self", "stat"):
            (root / name).symlink_to(real / name)

    def admit(self, session: int, cgroup: str) -> None:
        """Put a session, and whatever its processes fork, into a cgroup (the text of /proc/PID/cgroup)."""
        self._cgroups[session] = cgroup
        self.pids()

    def pids(self) -> list[int]:
        """The processes of the admitted sessions that are there now, forks included, as the kernel would list them."""
        known = set(super().pids())
        present = {pid: session for pid in self._real.pids() if (session := self._session(pid)) is not None}
        for pid in known - present.keys():
            shutil.rmtree(self.root / str(pid))
        for pid in present.keys() - known:
            self._enter(pid, self._cgroups[present[pid]])
        return sorted(present)

    def cgroup_text(self, pid: int, tid: int | None = None) -> bytes:
        """The cgroup text of a process that is still of its session; threads stand where their process stands."""
        if self._session(pid) is None:
            raise ProcessLookupError(errno.ESRCH, f"{self.root}/{pid}/cgroup: no such process")
        return super().cgroup_text(pid)

    def _session(self, pid: int) -> int | None:
        try:
            session = os.getsid(pid)
        except OSError:
            return None
        return session if session in self._cgroups else None

    def _enter(self, pid: int, cgroup: str) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        for name in _LINKED:
            (folder / name).symlink_to(self._real.root / str(pid) / name)
        (folder / "cgroup").write_text(cgroup, encoding="ascii")
