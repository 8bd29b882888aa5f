"""What /proc tells of the simulated processes: in the place of `watchdog.node.process_table.ProcessTable`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tests.soak.clock import TICKS_PER_S
from tests.soak.kernel import Held, Kernel, State, Task
from tests.soak.violation import fail
from watchdog.core.errors import Problem
from watchdog.core.model import GONE, ZOMBIE, Gap, GapReason, MpsSigns, Place, PlaceKind, Process, ProcessKey
from watchdog.node.process import Handle
from watchdog.node.process_table import ProcessTable
from watchdog.node.survivors import Survivors

OUTLIVED: Final = "point 10, memory that outlives its process counts for its container"
_ENDED: Final = (PlaceKind.GONE, PlaceKind.ZOMBIE)


@dataclass(slots=True)
class _Known:
    task: Task | None
    process: Process
    left: Place | None = None  # where it was when it ended


class SimulatedTable(ProcessTable):
    """Says of each listed PID what it is; a process that is held and lives is not read again until the last look.

    `answers` has what was last said of each PID. `stir` is called wherever the world can change in the middle of a
    cycle; `tell` is called before each signal.
    """

    def __init__(self, kernel: Kernel, tell: Callable[[Task, int], None], stir: Callable[[str], None]) -> None:
        self._kernel = kernel
        self._tell = tell
        self._stir = stir
        self._known: dict[int, _Known] = {}
        self.answers: dict[int, Process] = {}
        self._survivors = Survivors(self._lives, kernel.clock.now)

    def update(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        """Say of each listed PID what it is; the unlisted are released."""
        wanted = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in wanted}
        self._survivors.forget_except([known.left for known in self._known.values() if known.left is not None])
        self.answers.clear()
        return self._ask(wanted, again=False)

    def reread(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        return self._ask(set(pids), again=True)

    def container_members(
        self, ids: frozenset[str], pods: frozenset[str], spares: Callable[[Process], bool] = lambda _: False
    ) -> tuple[tuple[Handle, ...], tuple[Gap, ...]]:
        """All living processes whose cgroup text puts them there now, each held."""
        self._stir("members")
        found: list[Handle] = []
        unreadable = 0
        for task in self._kernel.living():
            place = task.claim
            unreadable += place.kind is PlaceKind.UNREADABLE
            belongs = place.kind is PlaceKind.POD and place.container in ids
            if belongs and (place.pod is None or place.pod in pods) and not spares(_process(task, place)):
                found.append(Held(task, self._kernel, self._tell))
        gap = Gap(reason=GapReason.CGROUP, what="processes", problem=Problem("unreadable"))
        return tuple(found), (gap,) if unreadable else ()

    def take_shortage(self) -> tuple[Gap, ...]:
        """The simulated kernel has descriptors for all."""
        return ()

    def leads_container(self, _pid: int) -> bool:
        """The simulated kernel ends no process with another."""
        return False

    def describe(self, pid: int) -> str:
        return str(pid)

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self, pids: set[int], *, again: bool) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        self._stir("look")
        found = {pid: self._say(pid, again=again) for pid in pids}
        self.answers.update(found)
        lost = sorted(pid for pid, process in found.items() if process.place.kind is PlaceKind.UNREADABLE)
        return found, (
            Gap(reason=GapReason.CGROUP, what=f"processes {lost}", problem=Problem("unreadable")),
        ) if lost else ()

    def _say(self, pid: int, *, again: bool) -> Process:
        known = self._known.get(pid)
        task = self._kernel.tasks.get(pid)
        if known is not None and known.task is not None and known.task.lives and not again:
            place = known.process.place
            if place.kind is PlaceKind.HOST or place.container is not None:
                return known.process
        if task is None:
            gone = Process(pid=pid, key=None, place=GONE)
            process = gone if known is None else replace(known.process, place=GONE)
        else:
            place = ZOMBIE if task.state is State.ZOMBIE else task.claim
            process = _process(task, place)
            if known is not None and known.process == process:
                process = known.process
        left = None if known is None else _left(known, process)
        self._known[pid] = _Known(task, process, left)
        # On a real node a container in which no process was found gets none again.
        was_empty = left in self._survivors._pauses
        if left is None or not self._survivors.exist(left, self._first_member):
            if left is not None and known is not None and known.task is not None and not was_empty:
                self._demand_nobody_left(known.task, left)
            return process
        return replace(process, place=left, ended=True)

    def _lives(self, key: ProcessKey) -> bool:
        task = self._kernel.tasks.get(key.pid)
        return task is not None and task.key == key and task.lives

    def _demand_nobody_left(self, dead: Task, place: Place) -> None:
        """Point 10: no process of the container has run, and said so, since before this one ended."""
        for task in self._kernel.living():
            began_s = task.key.start_ticks / TICKS_PER_S
            if task.claim == place and not task.lied and began_s < dead.died_s:
                fail(OUTLIVED, f"{dead.key} of {place} counts for nobody, and {task.key} runs there")

    def _first_member(self, place: Place) -> ProcessKey | None:
        return next((task.key for task in self._kernel.living() if task.claim == place), None)


def _left(known: _Known, process: Process) -> Place | None:
    """The container in which a process was when it ended."""
    if process.key is None or process.key != known.process.key or process.place.kind not in _ENDED:
        return None
    place = known.process.place
    return place if place.kind is PlaceKind.POD and place.container is not None else known.left


def _process(task: Task, place: Place) -> Process:
    """What /proc says of a process."""
    return Process(
        pid=task.key.pid,
        key=task.key,
        place=place,
        name="python3",
        mps=MpsSigns(server=True, privileged=task.looks_privileged) if task.named else None,
    )
