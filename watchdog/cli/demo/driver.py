"""A driver and a /proc for the processes of the simulated node."""

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from watchdog.cli.demo.pods import UsageCurve, is_alive
from watchdog.core.model import Gpu, ProcessKey, Use
from watchdog.node.driver import DriverReading
from watchdog.node.procfs import Procfs


@dataclass(slots=True)
class _SimUse:
    key: ProcessKey
    curve: UsageCurve
    since_s: float
    used: int = 0
    died_s: float | None = None


class SimDriver:
    """Reads a GPU that exists only in memory; implements `watchdog.node.driver.Driver`.

    Memory is free `release_s` after the process has died, and listed under its PID until then, as NVML does it.
    `clock` gives seconds. The curves must fit the card: nothing is refused.
    """

    def __init__(self, card: Gpu, clock: Callable[[], float], *, release_s: float = 0.0) -> None:
        self._card = card
        self._clock = clock
        self._release_s = release_s
        self._uses: list[_SimUse] = []

    @property
    def needs_new_process(self) -> None:
        """None: no library can be replaced under it."""
        return None

    def allocate(self, key: ProcessKey, curve: UsageCurve) -> None:
        """Let a process use memory along a curve that begins now; one that uses 0 bytes is not listed."""
        self._uses.append(_SimUse(key, curve, self._clock()))

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read the card as it is now."""
        if only is not None and self._card.uuid not in only:
            return DriverReading(driver="simulated")
        self._update(self._clock())
        uses = tuple(Use(gpu=self._card.uuid, pid=each.key.pid, used=each.used) for each in self._uses if each.used)
        used = (self._card.reserved or 0) + sum(each.used for each in self._uses)
        return DriverReading(driver="simulated", gpus=(replace(self._card, used=used),), uses=uses)

    def used(self) -> Mapping[str, int]:
        """The card's memory counter."""
        return {self._card.uuid: self.read().gpus[0].used or 0}

    def close(self) -> None:
        """Free everything."""
        self._uses.clear()

    def _update(self, now_s: float) -> None:
        for each in self._uses:
            if is_alive(each.key):
                each.used = each.curve.at(now_s - each.since_s)
            elif each.died_s is None:
                each.died_s = now_s
        self._uses = [each for each in self._uses if each.died_s is None or now_s - each.died_s < self._release_s]


_LINKED: Final = ("stat", "status", "comm", "cmdline", "environ", "task")


class SimProcfs(Procfs):
    """Shows the processes of chosen sessions, each as a folder of links into the real /proc and a `cgroup` file.

    The leader of an admitted session must not be reaped while this is in use: then its PID, which names the session,
    is not reused, and no other process can be taken for one of the pod.
    """

    def __init__(self, root: Path, real: Path = Path("/proc")) -> None:
        super().__init__(root)
        self._real = Procfs(real)
        self._cgroups: dict[int, str] = {}
        root.mkdir(parents=True, exist_ok=True)
        for name in ("self", "stat"):
            (root / name).symlink_to(real / name)

    def admit(self, session: int, cgroup: str) -> None:
        """Put a session, with everything its processes fork, into a cgroup (the text of /proc/PID/cgroup)."""
        self._cgroups[session] = cgroup
        self.pids()

    def pids(self) -> list[int]:
        """The running processes of the admitted sessions, forks included, as the kernel would list them."""
        known = set(super().pids())
        present = {pid: session for pid in self._real.pids() if (session := self._session(pid)) is not None}
        for pid in known - present.keys():
            shutil.rmtree(self.root / str(pid))
        for pid in present.keys() - known:
            self._enter(pid, self._cgroups[present[pid]])
        return sorted(present)

    def cgroup_text(self, pid: int, tid: int | None = None) -> bytes:
        """The cgroup text of a process that still belongs to its session; threads have their process's."""
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
