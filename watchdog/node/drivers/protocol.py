"""The protocol of a GPU driver, implemented by NVML and the simulated node, and the readings it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, MigParent, Use
from watchdog.core.utilization import CardUtilization


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """The result of one reading of the driver, before /proc has been read."""

    # The driver's version; None if it is not known.
    driver: str | None
    # What the driver was read through, as in `Driver`.
    interface: str
    # The schedulable devices: cards without MIG, and MIG instances.
    gpus: tuple[Gpu, ...] = ()
    # The cards in MIG mode.
    parents: tuple[MigParent, ...] = ()
    # One for each process and GPU, with its bytes, or None if the driver does not report them. A process known from an
    # earlier reading of a GPU that cannot be listed now is kept with None; the caller finds out whether it still lives.
    uses: tuple[Use, ...] = ()
    gaps: tuple[Gap, ...] = ()
    # Whether the driver did not answer at all.
    blind: bool = False
    # GPUs, not lost, whose processes have never been known, so that anything may run there: UUIDs of `gpus`, of a card
    # in MIG mode whose instances cannot be listed, or "GPU at index 2" for one without a UUID.
    unseen: frozenset[str] = frozenset()
    # Devices that the driver counts and that could not be read since the start, so that their size is not known.
    missing: frozenset[str] = frozenset()
    # By GPU, the CLOCK_BOOTTIME right before its processes were requested. A GPU without one was listed no earlier than
    # the reading as a whole was requested.
    listed_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    # By card, what the driver itself compares with its next answers, if it is given this reading again.
    answers: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)


def released_reading(why: str, interface: str, last: DriverReading | None = None) -> DriverReading:
    """The reading while the driver is released for maintenance: the last one without any number.

    Sizes are dropped too: a MIG instance may be gone by now.
    """
    cause = f"{why}: its GPUs are under maintenance, and {interface} is released"
    gap = Gap(
        reason=GapReason.MAINTENANCE, what=interface, problem=Problem(cause, "it is reopened after the maintenance")
    )
    if last is None:
        return DriverReading(driver=None, interface=interface, gaps=(gap,), blind=True)
    gpus = (replace(gpu, up=False, listed=False, total=None, used=None, reserved=None) for gpu in last.gpus)
    return DriverReading(
        driver=None,
        interface=interface,
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
    def interface(self) -> str:
        """What the driver is read through, as people know it: the name of what does not answer."""
        ...

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

    def utilization(self) -> tuple[CardUtilization, ...]:
        """How busy each GPU known from the last reading was since this was last called; none while it is released."""
        ...

    def close(self) -> None:
        """Release the driver; nothing stays open."""
        ...
