"""A driver and a /proc for the processes of the simulated node."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from watchdog.cli.demo.tenants import UsageCurve, lives
from watchdog.core.model import Gpu, ProcessKey, Use
from watchdog.node.driver import DriverReading
from watchdog.node.procfs import Procfs


@dataclass(slots=True)
class _Holder:
    key: ProcessKey
    curve: UsageCurve
    since_s: float
    used: int = 0
    died_s: float | None = None


class SimDriver:
    """Reads a card that exists in memory alone; implements `watchdog.node.driver.Driver`.

    Memory is free `release_s` after the process has really died, and listed under its PID until then, as NVML does.
    `clock` gives seconds. The curves are to fit the card: what does not fit is not refused.
    """

    def __init__(self, card: Gpu, clock: Callable[[], float], *, release_s: float = 0.0) -> None:
        self._card = card
        self._clock = clock
        self._release_s = release_s
        self._holders: list[_Holder] = []

    @property
    def needs_new_process(self) -> None:
        """None: nothing can be installed under it."""
        return None

    def allocate(self, key: ProcessKey, curve: UsageCurve) -> None:
        """Let a process hold memory along a curve that begins now; one that holds 0 bytes is not listed."""
        self._holders.append(_Holder(key, curve, self._clock()))

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read the card as it is now."""
        if only is not None and self._card.uuid not in only:
            return DriverReading(driver="simulated")
        self._follow(self._clock())
        uses = tuple(Use(gpu=self._card.uuid, pid=each.key.pid, used=each.used) for each in self._holders if each.used)
        used = (self._card.reserved or 0) + sum(each.used for each in self._holders)
        return DriverReading(driver="simulated", gpus=(replace(self._card, used=used),), uses=uses)

    def close(self) -> None:
        """Free everything."""
        self._holders.clear()

    def _follow(self, now_s: float) -> None:
        for each in self._holders:
            if lives(each.key):
                each.used = each.curve.at(now_s - each.since_s)
            elif each.died_s is None:
                each.died_s = now_s
        self._holders = [each for each in self._holders if each.died_s is None or now_s - each.died_s < self._release_s]


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
