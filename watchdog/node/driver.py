"""What a GPU driver is asked for, and what it gives: the place where NVML and the simulated node meet the scan."""

from dataclasses import dataclass
from typing import Protocol

from watchdog.core.model import Gap, Gpu, MigParent, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """What the driver gave, before /proc has been looked at.

    `gpus` are the schedulable devices, `parents` the cards in MIG mode. `uses` has one entry per process and GPU: its
    bytes, or None where the driver does not say. A process known from an earlier reading of a GPU that cannot be
    listed now stands there with None; whether it still lives is for the caller to find out. `blind` means that the
    driver did not answer at all. `unseen` are GPUs whose processes are not known now, were never known, and
    which are not lost, so that whatever runs there is unknown: UUIDs of `gpus`, of a card in MIG mode whose instances
    cannot be seen either, or "GPU at index 2" for one that gives no UUID.
    """

    driver: str | None
    gpus: tuple[Gpu, ...] = ()
    parents: tuple[MigParent, ...] = ()
    uses: tuple[Use, ...] = ()
    gaps: tuple[Gap, ...] = ()
    blind: bool = False
    unseen: frozenset[str] = frozenset()


class Driver(Protocol):
    """Something that reads the GPUs of a node. It never raises: what it cannot learn becomes a gap."""

    @property
    def needs_new_process(self) -> str | None:
        """Why only a new process could read the driver again (another version of it has been installed), or None."""
        ...

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read every GPU, or the rows with these UUIDs alone (the second look right before force): nothing cached."""
        ...

    def close(self) -> None:
        """Let the driver go; nothing stays open."""
        ...
