"""What the calls about one card gave, as it came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pynvml

from watchdog import clock
from watchdog.core.model import Gap, GapReason
from watchdog.node.nvml_cards import Card, Row, handle_of
from watchdog.node.nvml_errors import ABSENT, LACKING, LOST, WHOLE, NvmlCallError
from watchdog.node.nvml_lists import KINDS, Entry, Kind, ProcessLists
from watchdog.node.nvml_memory import Memory, MemoryCounter

_REASONS: Final = {
    **dict.fromkeys(LOST, GapReason.GPU_LOST),
    **dict.fromkeys(WHOLE, GapReason.NVML_UNAVAILABLE),
    pynvml.NVML_ERROR_UNKNOWN: GapReason.GPU_ERROR,
}


@dataclass(slots=True, kw_only=True, eq=False)
class Sample:
    """Memory by row (None: it has no counter) and the raw process lists that the card has (None: one was unreadable).

    `lost` says that the card is gone, so that nothing runs on it, `hidden` that processes may be on it which the driver
    does not list. Each error has its gap.
    """

    memories: dict[str, Memory | None] = field(default_factory=dict)
    lists: dict[Kind, bytes] | None = None
    listed_s: float = 0.0  # CLOCK_BOOTTIME right before the lists were asked for
    errors: list[NvmlCallError] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lost: bool = False
    hidden: bool = False

    def fail(self, what: str, reason: GapReason, error: NvmlCallError) -> None:
        """Note a failed call about `what`, which begins with a UUID; the error itself may say more than the place."""
        self.errors.append(error)
        self.lost = self.lost or error.code in LOST
        self.note(what, _REASONS.get(error.code or 0, reason), error.why)

    def note(self, what: str, reason: GapReason, why: str) -> None:
        """Note a gap about `what`, which begins with a UUID."""
        self.gaps.append(Gap(reason=reason, what=what, why=why, gpu=what.partition(" ")[0]))

    def is_equal(self, other: "Sample") -> bool:
        """Whether both gave the same memory and the same lists."""
        return self.lists == other.lists and self.memories == other.memories


class Sampler:
    """Calls NVML about cards, in one session: in the steady state a counter a row and a list a kind, no more."""

    def __init__(self) -> None:
        self._lists = ProcessLists()
        self._memory = MemoryCounter()

    def sample(self, card: Card, rows: Sequence[Row]) -> Sample:
        """Ask for the memory of these rows of a card and for its process lists; what fails stands in the sample."""
        sample = Sample()
        try:
            handle_of(card)
        except NvmlCallError as error:
            absent = error.code in ABSENT
            sample.fail(card.uuid, GapReason.GPU_LOST if absent else GapReason.GPU_ERROR, error)
            sample.lost = sample.lost or absent
        else:
            self.measure(rows, sample)
            if not sample.lost:
                sample.listed_s = clock.now().boottime_s
                self._list_all(card, sample)
        return sample

    def parse(self, lists: Iterable[bytes]) -> list[Entry]:
        """Read the entries of the raw lists."""
        return [entry for raw in lists for entry in self._lists.parse(raw)]

    def measure(self, rows: Sequence[Row], sample: Sample) -> None:
        """Ask for the memory of rows, into the sample; a row remembers its size."""
        for row in rows:
            try:
                memory = self._memory.read(handle_of(row))
            except NvmlCallError as error:
                sample.fail(f"{row.uuid} memory", GapReason.MEMORY, error)
                continue
            sample.memories[row.uuid] = memory
            if memory is not None:
                row.total, row.reserved = memory.total, memory.reserved
            elif row.total is not None:
                why = "the driver told it before and does not now; it is tried again with every pass"
                sample.note(f"{row.uuid} memory", GapReason.MEMORY, why)

    def _list_all(self, card: Card, sample: Sample) -> None:
        try:
            sample.lists = {kind: raw for kind in KINDS if (raw := self._list(card, kind)) is not None}
        except NvmlCallError as error:
            denied = card.mig and error.code == pynvml.NVML_ERROR_NO_PERMISSION
            sample.fail(f"{card.uuid} processes", GapReason.MIG if denied else GapReason.PROCESSES, error)

    def _list(self, card: Card, kind: Kind) -> bytes | None:
        """Read one list; None for one that the card does not have.

        The compute list is never taken as absent: without it nothing is known. Nor is a list that has answered before.
        """
        if kind in card.lacking:
            return None
        try:
            raw = self._lists.read(card.handle, kind)
        except NvmlCallError as error:
            if error.code not in LACKING or kind == "Compute" or kind in card.answered:
                raise
            card.lacking.add(kind)
            return None
        card.answered.add(kind)
        return raw
