"""The protocol of a GPU driver, implemented by NVML and the simulated node, and the readings it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, MigParent, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """What the driver returned, before /proc has been read.

    `gpus` are the schedulable devices, `parents` the cards in MIG mode. `uses` has one entry per process and GPU: its
    bytes, or None if the driver does not report them. A process known from an earlier reading of a GPU that cannot be
    listed now is kept with None; the caller finds out whether it still lives. `blind` means that the driver did not
    answer at all. `unseen` are GPUs, not lost, whose processes have never been known, so that anything may run there.
    They are UUIDs of `gpus`, of a card in MIG mode whose instances cannot be listed, or "GPU at index 2" for one
    without a UUID. `missing` are devices that the driver counts and that could not be read since the start, so that
    their size is not known. `listed_s` is, by GPU, the CLOCK_BOOTTIME right before its processes were requested; a GPU
    without one was listed no earlier than the reading as a whole was requested. `answers` is, by card, what the driver
    itself compares with its next answers, if it is given this reading again.
    """

    driver: str | None
    gpus: tuple[Gpu, ...] = ()
    parents: tuple[MigParent, ...] = ()
    uses: tuple[Use, ...] = ()
    gaps: tuple[Gap, ...] = ()
    blind: bool = False
    unseen: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    listed_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    answers: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)


def released_reading(why: str, last: DriverReading | None = None) -> DriverReading:
    """The reading while the driver is released for maintenance: the last one without any number.

    Sizes are dropped too: a MIG instance may be gone by now.
    """
    cause = f"{why}: its GPUs are under maintenance, and NVML is released"
    gap = Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem(cause, "it is reopened after the maintenance"))
    if last is None:
        return DriverReading(driver=None, gaps=(gap,), blind=True)
    gpus = (replace(gpu, up=False, listed=False, total=None, used=None, reserved=None) for gpu in last.gpus)
    return DriverReading(
        driver=None,
        gpus=tuple(gpus),
        parents=last.parents,
        uses=tuple(replace(use, used=None) for use in last.uses),
        gaps=(gap,),
        blind=True,
        unseen=last.unseen,
        missing=last.missing,
    )


class Driver(Protocol):
    """Reads the GPUs of a node. It never raises: what it cannot learn becomes a gap."""

    @property
    def needs_new_process(self) -> str | None:
        """Why only a new process could read the driver again (another version of it has been installed), or None."""
        ...

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """Read every GPU, or only the rows with these UUIDs (the check right before an action).

        Nothing is cached: what the driver answers as for the reading `like` may be taken from there.
        """
        ...

    def used(self) -> Mapping[str, int]:
        """The memory counter of each GPU known from the last reading, in bytes; none while the driver is released.

        It costs a call of some microseconds for each GPU and does not list processes.
        """
        ...

    def close(self) -> None:
        """Release the driver; nothing stays open."""
        ...
