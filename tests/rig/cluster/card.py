"""The node's GPU: the stub of NVML shows that processes of real containers use it, as their arguments give it."""

import threading
from pathlib import Path
from typing import Final, Self

from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.stub import GIB, MIB, Stub, StubDelay, StubGpu, StubProcess

GPU: Final = "GPU-00000000-0000-0000-0000-000000000000"
_PAUSE_S: Final = 0.05


class Card:
    """A context manager: inside, each process uses the amount in `gpu=` or `child-gpu=` of its container.

    It has it from its start to its end, within the 50 ms between two readings.
    """

    def __init__(self, folder: Path, cgroups: CgroupRoot, *, total: int = 1024 * GIB) -> None:
        """`folder` gets the file that steers the stub; `total` are the bytes of the card."""
        self._total = total
        self._delays: tuple[StubDelay, ...] = ()
        self._shown = True
        self.file = folder / "nvml.txt"
        self._cgroups = cgroups
        self._known: dict[tuple[int, str], int] = {}
        self._given: dict[int, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="card", daemon=True)
        self._failed: list[OSError] = []
        self._write()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10)
        assert not self._failed, self._failed

    def use(self, pid: int, used: int) -> None:
        """From now on a process uses this many bytes, whatever its arguments are."""
        self._given[pid] = used

    def hang(self, *calls: str) -> None:
        """From now on these calls into the driver take an hour; without any, none does."""
        self._delays = tuple(StubDelay(call=each, ms=3_600_000) for each in calls)
        self._shown = False

    def _follow(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            try:
                self._read()
            except OSError as error:
                self._failed.append(error)
                return

    def _read(self) -> None:
        members = set(self._cgroups.members().items())
        found = {member: self._known[member] for member in members & self._known.keys()}
        for member in members - found.keys():
            used = _used(member[0])
            if used is not None:
                found[member] = used
        found.update({member: self._given[member[0]] for member in members if member[0] in self._given})
        if found != self._known or not self._shown:
            self._known, self._shown = found, True
            self._write()

    def _write(self) -> None:
        processes = tuple(StubProcess(pid=pid, used=used) for (pid, _), used in self._known.items() if used)
        gpu = StubGpu(uuid=GPU, total=self._total, reserved=512 * MIB, processes=processes)
        Stub(gpus=(gpu,), delays=self._delays).write(self.file)


def _used(pid: int) -> int | None:
    """The bytes that a process of a container uses; None while it is no program of the tests yet, or has ended."""
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    if program != "/workload":
        return None
    inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), "1")
    given = dict(each.partition("=")[::2] for each in arguments)
    return int(given.get("gpu" if inner == "1" else "child-gpu", "0"))
