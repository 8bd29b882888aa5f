"""The simulated driver: what it lists, what it keeps to itself, and when it does not answer at all."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tests.soak.kernel import Kernel, Task
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, Use
from watchdog.node.drivers.protocol import DriverReading


class Card(Enum):
    """How a card answers."""

    WELL = auto()
    UNLISTED = auto()  # its process list fails
    CONTRADICTORY = auto()  # its list contradicts itself and is rejected whole
    NUMBERLESS = auto()  # it lists processes without their bytes
    LOST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a reading, with whose memory it truly is; `used` and `mps` are what the driver said.

    `unsure`: the daemon takes a part of it for unknown, since it may have changed hands, and only `used` for sure.
    """

    gpu: str
    pid: int
    used: int | None
    task: Task | None
    mps: bool | None = False
    unsure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueReading:
    """A reading as the daemon got it, and the truth behind each of its lines. `dark` are GPUs that were not listed."""

    reading: DriverReading
    lines: tuple[Listed, ...]
    dark: frozenset[str]

    @property
    def is_bright(self) -> bool:
        """Whether everything was listed, with every number."""
        return (
            not self.reading.blind
            and not self.dark
            and all(line.used is not None and not line.unsure for line in self.lines)
        )


@dataclass(slots=True)
class Cards:
    """The hardware: sizes of the cards, and how they answer at the moment."""

    sizes: dict[str, int]
    state: dict[str, Card] = field(default_factory=dict)
    silent: set[tuple[str, int]] = field(default_factory=set)  # (card, PID) whose bytes it does not report
    blind: bool = False


class SimulatedDriver:
    """One session with the driver, as long as a daemon lives; it remembers whom it listed last."""

    def __init__(self, kernel: Kernel, cards: Cards) -> None:
        """A card that has dropped out before is counted, and nothing is known of it until it is back."""
        self._absent = {uuid for uuid, state in cards.state.items() if state is Card.LOST}
        self._kernel = kernel
        self._cards = cards
        self._known: dict[str, dict[int, Listed]] = {}

    def read(self, only: frozenset[str] | None = None) -> TrueReading:
        """Read all cards, or those named."""
        self._absent &= {uuid for uuid, state in self._cards.state.items() if state is Card.LOST}
        there = [uuid for uuid in self._cards.sizes if uuid not in self._absent]
        chosen = [uuid for uuid in there if only is None or uuid in only]
        lines: list[Listed] = []
        gpus: list[Gpu] = []
        gaps: list[Gap] = []
        unseen: set[str] = set()
        dark: set[str] = set()
        for index, uuid in enumerate(chosen):
            state = self._cards.state.get(uuid, Card.WELL)
            listed = not self._cards.blind and state in (Card.WELL, Card.NUMBERLESS)
            if listed:
                found = self._list(uuid)
                lines += found
                self._known[uuid] = {line.pid: line for line in found if line.task is not None}
            else:
                dark.add(uuid)
                gaps.append(
                    Gap(reason=GapReason.PROCESSES, what=f"{uuid} processes", problem=Problem("it failed"), gpu=uuid)
                )
                known = self._known.get(uuid)
                if known is None and state is not Card.LOST:
                    unseen.add(uuid)
                lines += [replace(line, used=None, mps=line.mps or None) for line in (known or {}).values()]
            up = not self._cards.blind and state is not Card.LOST
            gpus.append(self._gpu(uuid, index, up=up, listed=listed))
        reading = DriverReading(
            interface="NVML",
            driver="550.54",
            gpus=tuple(gpus),
            uses=tuple(Use(gpu=line.gpu, pid=line.pid, used=line.used, client=line.mps) for line in lines),
            gaps=tuple(gaps),
            blind=self._cards.blind,
            unseen=frozenset(unseen),
            missing=frozenset(f"GPU {uuid}" for uuid in self._absent),
        )
        return TrueReading(reading=reading, lines=tuple(lines), dark=frozenset(dark))

    def _list(self, uuid: str) -> list[Listed]:
        numberless = self._cards.state.get(uuid) is Card.NUMBERLESS
        found: dict[int, Listed] = {}
        for task in (*self._kernel.ghosts, *self._kernel.living()):
            used = task.memory.get(uuid)
            if used is None:
                continue
            pid = task.key.pid
            self._kernel.note_listed(uuid, task)
            known = None if numberless or (uuid, pid) in self._cards.silent else used
            found[pid] = Listed(gpu=uuid, pid=pid, used=known, task=task, mps=task.server is not None)
        return list(found.values())

    def _gpu(self, uuid: str, index: int, *, up: bool, listed: bool) -> Gpu:
        total = self._cards.sizes[uuid]
        used = sum(task.memory.get(uuid, 0) for task in (*self._kernel.ghosts, *self._kernel.living()))
        made = Gpu(uuid=uuid, index=index, name="Stub", total=total, used=used, reserved=0)
        return made if up and listed else replace(made, up=up, listed=listed)


def late(truth: TrueReading, reading: DriverReading) -> TrueReading:
    """The same reading once it is so late that its bytes count as unknown."""
    lines = tuple(replace(line, used=None) for line in truth.lines)
    return TrueReading(reading=reading, lines=lines, dark=frozenset(gpu.uuid for gpu in reading.gpus))
