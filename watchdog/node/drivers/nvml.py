"""The NVIDIA driver, through NVML and pynvml: its session, and readings that never raise."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import pynvml

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, MigParent
from watchdog.core.utilization import CardUtilization
from watchdog.node.drivers.devices import windows_sign
from watchdog.node.drivers.nvml_calls import WHOLE, NvmlCallError, ask
from watchdog.node.drivers.nvml_cards import Layout, NvmlCard, enumerate_cards
from watchdog.node.drivers.nvml_read import CardReader, CardReading, carried_uses, gpu_of
from watchdog.node.drivers.nvml_utilization import UtilizationReader
from watchdog.node.drivers.protocol import DriverReading

_MISMATCHES: Final = 3
_FAILURES: Final = 10
_REOPEN_EVERY: Final = 5
_NO_SUCH_GPU: Final = Problem("the driver has no such GPU now", "unless it was removed, look for Xid in the kernel log")
_COUNT: Final = "GPU count"
_RETRY_S: Final = 2.0  # an enumeration with gaps is repeated sooner, so that no gap outlives its cause for long


class NvmlDriver:
    """Reads the GPUs of this node. For use by one thread: an NVML call can hang forever.

    Devices are enumerated again every `layout_every_s` seconds, and at once after a new error or when processes are
    listed in an unknown MIG instance. In between, a reading calls NVML only for each card's process lists and each
    row's memory.
    """

    def __init__(
        self,
        *,
        layout_every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        windows: Callable[[], str] = windows_sign,
    ) -> None:
        self._windows = windows
        self._layout_every_s = layout_every_s
        self._clock = clock
        self._reader: CardReader | None = None
        self._utilization: UtilizationReader | None = None
        self._layout = Layout()
        self._layout_due_s = 0.0
        self._version: str | None = None
        self._gaps: tuple[Gap, ...] = ()
        self._has_answered = False
        self._failed = 0  # readings in a row
        self._refused = 0  # of those, readings since the driver was last not loaded, after which it may come back
        self._mismatched = 0

    interface: Final = "NVML"

    @property
    def needs_new_process(self) -> str | None:
        """Why only a new process can use the driver again, or None.

        nvmlShutdown leaves the library mapped, so a library that does not match the driver stays loaded; and devices
        removed from a running container do not return to it.
        """
        if self._mismatched >= _MISMATCHES:
            return "the driver has another version than the NVML library that this process has loaded"
        if self._has_answered and self._refused >= _FAILURES:
            return (
                f"NVML answered before and has failed {self._refused} times in a row: its devices may have been removed"
            )
        return None

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """Read all rows, or only the lists and counters of those with the UUIDs in `only`; never raises.

        A card that answers byte for byte as for the reading `like` keeps the values from there.
        """
        try:
            reader = self._open()
            if only is None or not self._layout.cards:
                self._enumerate()
        except NvmlCallError as error:
            return self._blind(error, only, ())
        cards = [card for card in self._layout.cards if only is None or any(row.uuid in only for row in card.rows)]
        answers = {} if like is None else like.answers
        readings = [self._read_card(reader, card, only, answers.get(card.uuid)) for card in cards]
        broken = [reading.broken for reading in readings if reading.broken is not None]
        if only is None and broken and all(reading.silent for reading in readings):
            gaps = [gap for reading in readings for gap in reading.gaps]
            return self._blind(broken[0], only, (*self._gaps, *gaps))
        self._has_answered = True
        self._failed = self._refused = self._mismatched = 0
        return self._assemble(readings, only)

    def used(self) -> Mapping[str, int]:
        """The memory counter of each row, in bytes; unreadable rows are missing, and the next reading reports why.

        No call is made without an open session.
        """
        if self._reader is None:
            return {}
        return self._reader.used(row for card in self._layout.cards if not card.doubled for row in card.rows)

    def utilization(self) -> tuple[CardUtilization, ...]:
        """The utilisation of each card known from the last reading, or why it is unknown; none without a session."""
        if self._reader is None:
            return ()
        if self._utilization is None:
            self._utilization = UtilizationReader()
        return tuple(self._utilization.read(self._layout.cards))

    def close(self) -> None:
        """End the NVML session, which blocks GPU resets and MIG changes; a later reading opens a new one."""
        if self._reader is None:
            return
        self._reader = self._utilization = None
        self._layout_due_s = 0.0
        for card in self._layout.cards:
            card.drop_handles()
            card.answered.clear()
            card.lacking.clear()
        try:
            ask(pynvml.nvmlShutdown)
        except NvmlCallError:
            return  # a session that NVML no longer knows is closed

    def _open(self) -> CardReader:
        if self._reader is None:
            ask(pynvml.nvmlInit)
            self._reader = CardReader(self._windows())
            self._layout_due_s = 0.0
            self._version = None
        return self._reader

    def _enumerate(self) -> None:
        now_s = self._clock()
        if now_s < self._layout_due_s:
            return
        gaps = []
        if self._version is None:
            try:
                self._version = ask(pynvml.nvmlSystemGetDriverVersion)
            except NvmlCallError as error:
                gaps.append(Gap(reason=GapReason.GPU_ERROR, what="driver version", problem=error.problem))
        try:
            self._layout = enumerate_cards(self._layout.cards)
        except NvmlCallError as error:
            if error.code in WHOLE or not self._layout.cards:
                raise
            gaps.append(Gap(reason=GapReason.GPU_ERROR, what=_COUNT, problem=error.problem))
        self._gaps = (*gaps, *self._layout.gaps)
        self._layout_due_s = now_s + (min(self._layout_every_s, _RETRY_S) if self._gaps else self._layout_every_s)

    def _read_card(self, reader: CardReader, card: NvmlCard, only: frozenset[str] | None, like: object) -> CardReading:
        was_failing = card.failing
        reading = reader.read(card, only, like if isinstance(like, CardReading) else None)
        if card.failing and not was_failing:
            self._layout_due_s = 0.0
        return reading

    def _assemble(self, readings: list[CardReading], only: frozenset[str] | None) -> DriverReading:
        gpus = tuple(gpu for reading in readings for gpu in reading.gpus)
        gaps = [gap for reading in readings for gap in reading.gaps]
        unseen = frozenset().union(*(reading.unseen for reading in readings))
        if only is None:
            gaps = [*self._gaps, *gaps]
            unseen |= self._layout.unidentified
        else:
            for uuid in sorted(only - {gpu.uuid for gpu in gpus}):
                gaps.append(Gap(reason=GapReason.GPU_ERROR, what=uuid, problem=_NO_SUCH_GPU, gpu=uuid))
        return DriverReading(
            driver=self._version,
            interface=self.interface,
            gpus=gpus,
            parents=self._parents,
            uses=tuple(use for reading in readings for use in reading.uses),
            gaps=tuple(gaps),
            unseen=unseen,
            missing=self._missing,
            listed_s={gpu.uuid: reading.sample.listed_s for reading in readings for gpu in reading.gpus},
            answers={reading.card: reading for reading in readings},
        )

    @property
    def _missing(self) -> frozenset[str]:
        """The devices in the last count without a row; "GPU count" if the count itself failed and may have had more."""
        uncounted = frozenset(gap.what for gap in self._gaps if gap.what == _COUNT)
        return self._layout.missing | uncounted

    @property
    def _parents(self) -> tuple[MigParent, ...]:
        return tuple(
            MigParent(uuid=card.uuid, index=card.index, name=card.name, total=card.total)
            for card in self._layout.cards
            if card.mig
        )

    def _blind(self, error: NvmlCallError, only: frozenset[str] | None, gaps: tuple[Gap, ...]) -> DriverReading:
        """The reading when NVML as a whole does not answer: what was known stays known, without any number.

        The next reading opens a new session if that can help; opening one every second would itself be a load.
        """
        self._failed += 1
        self._refused = self._refused + 1 if error.code != pynvml.NVML_ERROR_DRIVER_NOT_LOADED else 0
        self._mismatched = self._mismatched + 1 if error.code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH else 0
        if error.code in WHOLE or self._failed % _REOPEN_EVERY == 0:
            self.close()
        rows = [(card, row) for card in self._layout.cards for row in card.rows if only is None or row.uuid in only]
        problem, reason = error.problem, self.needs_new_process
        if reason is not None:
            problem = Problem(problem.cause, f"{problem.remedy}; {reason}")
        return DriverReading(
            driver=self._version,
            interface=self.interface,
            gpus=tuple(gpu_of(card, row, up=False, listed=False, used=None) for card, row in rows),
            parents=self._parents,
            uses=tuple(use for _, row in rows for use in carried_uses(row)),
            gaps=(Gap(reason=GapReason.DRIVER_UNAVAILABLE, what=self.interface, problem=problem), *gaps),
            blind=True,
            unseen=frozenset(row.uuid for _, row in rows if row.known is None),
            missing=self._missing,
        )
