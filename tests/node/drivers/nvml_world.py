"""A node with a stub of NVML in this process, and what a driver reads of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.stub import GIB, Stub, StubGpu, StubMig, StubProcess, preload
from watchdog.core.model import Gpu
from watchdog.node.drivers.nvml import NvmlDriver
from watchdog.node.drivers.protocol import DriverReading

# Ghosts: PIDs that need no process. They stay below 2^22.
PID: Final = 4_000_000


def ghost(number: int, used: int | None = GIB, **more: object) -> StubProcess:
    """A process that the driver lists and that needs no real process."""
    return StubProcess(pid=PID + number, used=used, ghost=True, **more)  # type: ignore[arg-type]


def card(letter: str, *processes: StubProcess, **more: object) -> StubGpu:
    """A card with the UUID `GPU-letter`."""
    return StubGpu(uuid=f"GPU-{letter}", processes=processes, **more)  # type: ignore[arg-type]


def mig_card(letter: str, *processes: StubProcess, **more: object) -> StubGpu:
    """A card in MIG mode with instances (1, 0) in slot 0 and (2, 0) in slot 3; slots 1, 2 and 4 to 6 are holes."""
    migs = (
        StubMig(uuid=f"MIG-{letter}1", slot=0, gi=1, ci=0, profile="3g.20gb", total=20 * GIB),
        StubMig(uuid=f"MIG-{letter}2", slot=3, gi=2, ci=0, profile="1g.5gb", total=5 * GIB),
    )
    return StubGpu(uuid=f"GPU-{letter}", processes=processes, **{"migs": migs, **more})  # type: ignore[arg-type]


class NvmlWorld:
    """The stub of this process: `show` steers it, `calls` counts what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvml.txt"
        self.library = preload()
        self.drivers: list[NvmlDriver] = []

    def show(self, *gpus: StubGpu, **more: object) -> None:
        """Have the stub show these GPUs from the next call on."""
        Stub(gpus=gpus, **more).write(self.path)  # type: ignore[arg-type]

    def driver(self, *, layout_every_s: float = 0.0, windows: str = "") -> NvmlDriver:
        """A driver that enumerates with every reading, on Linux itself unless `windows` has a sign of WSL."""
        self.drivers.append(NvmlDriver(layout_every_s=layout_every_s, windows=lambda: windows))
        return self.drivers[-1]

    def read(self, *gpus: StubGpu, only: frozenset[str] | None = None, **more: object) -> DriverReading:
        """What the latest driver (by default one that enumerates every time) reads once the stub shows these GPUs."""
        self.show(*gpus, **more)
        return (self.drivers[-1] if self.drivers else self.driver()).read(only)

    def calls(self, name: str | None = None) -> int:
        """How often a function was called since `forget_calls`, or all of them together."""
        return int(self.library.nvmlStubCalls(None if name is None else name.encode()))

    def forget_calls(self) -> None:
        """Count calls from 0 again."""
        self.library.nvmlStubForgetCalls()


@contextmanager
def nvml_world(folder: Path) -> Iterator[NvmlWorld]:
    """Set up the stub; at the end no session is open, and no null handle was ever passed on."""
    world = NvmlWorld(folder)
    world.show()
    os.environ["NVML_STUB_FILE"] = str(world.path)
    world.forget_calls()
    try:
        yield world
    finally:
        world.show()
        for driver in world.drivers:
            driver.close()
        del os.environ["NVML_STUB_FILE"]
    assert world.library.nvmlStubInitialized() == 0
    assert world.library.nvmlStubNullHandles() == 0


def row(reading: DriverReading, uuid: str) -> Gpu:
    """The row with this UUID."""
    return next(gpu for gpu in reading.gpus if gpu.uuid == uuid)


def uses(reading: DriverReading, uuid: str) -> dict[int, int | None]:
    """What a row's processes use, by the number that `ghost` took."""
    found = [use for use in reading.uses if use.gpu == uuid]
    assert len({use.pid for use in found}) == len(found)
    return {use.pid - PID: use.used for use in found}
