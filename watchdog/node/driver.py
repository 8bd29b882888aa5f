"""What a GPU driver is asked for, and what it gives: the place where NVML and the simulated node meet the scan."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, MigParent, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """What the driver gave, before /proc has been looked at.

    `gpus` are the schedulable devices, `parents` the cards in MIG mode. `uses` has one entry per process and GPU: its
    bytes, or None where the driver does not say. A process known from an earlier reading of a GPU that cannot be
    listed now stands there with None; whether it still lives is for the caller to find out. `blind` means that the
    driver did not answer at all. `unseen` are GPUs whose processes are not known now, were never known, and
    which are not lost, so that whatever runs there is unknown: UUIDs of `gpus`, of a card in MIG mode whose instances
    cannot be seen either, or "GPU at index 2" for one that gives no UUID. `missing` are devices that the driver counts
    and that could not be read since the start, so that their size is not known. `listed_s` is, by GPU, the boot time
    right before its processes were asked for; where it is missing, that was no sooner than the reading as a whole.
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


def let_go(why: str, last: DriverReading | None = None) -> DriverReading:
    """Stand in for a reading while the driver is let go for maintenance: what the last one saw, without any number.

    Not even the sizes are kept: an instance of MIG may be gone by now.
    """
    cause = f"{why}: its GPUs are under maintenance, and NVML is let go"
    gap = Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem(cause, "it is opened again when that is over"))
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
    """Something that reads the GPUs of a node. It never raises: what it cannot learn becomes a gap."""

    @property
    def needs_new_process(self) -> str | None:
        """Why only a new process could read the driver again (another version of it has been installed), or None."""
        ...

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read every GPU, or the rows with these UUIDs alone (the last look): nothing cached."""
        ...

    def close(self) -> None:
        """Let the driver go; nothing stays open."""
        ...
