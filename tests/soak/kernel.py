"""The simulated kernel: processes that fork, ignore signals, linger as zombies, and leave their PIDs to others."""

import math
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tests.soak.clock import Clock, whole
from watchdog.core.model import HOST, Place, PlaceKind, ProcessKey

FIRST_PID: Final = 100
PIDS: Final = 60  # few, so that they are soon given again


class State(Enum):
    """What is left of a process."""

    RUNNING = auto()
    ZOMBIE = auto()
    GONE = auto()


@dataclass(slots=True, eq=False)
class Task:
    """A process as it truly is. `pod` and `container` (an ID) are where it truly runs; None: on the host.

    `claim` is what its cgroup text says now. `stubborn` ignores SIGTERM, `saves` starts another process on it before it
    ends, `aloof` can't be signalled, `slow_s` is how long it takes to die of SIGKILL, `holds_s` how long the driver
    lists its memory after its death. `other` is what it holds the next time that it wavers.
    It dips, or gives its memory to the process `moves_with`, in one of `dips` cycles (0: never).
    `named` says that it calls itself an MPS server, `serves_others` that it is one for all pods, `looks_privileged`
    what /proc shows, which a tenant can have made up; `server` is the one that it is a client of, `drained` that its
    work there has been ended, and `is_controlled` that a trusted control daemon knows the server.
    """

    key: ProcessKey
    claim: Place
    pod: str | None = None
    container: str | None = None
    state: State = State.RUNNING
    stubborn: bool = False
    saves: bool = False
    aloof: bool = False
    slow_s: float = 0.0
    holds_s: float = 0.0
    reaped_s: float = 0.0
    named: bool = False
    serves_others: bool = False
    looks_privileged: bool = False
    server: "Task | None" = None
    drained: bool = False
    is_controlled: bool = False
    memory: dict[str, int] = field(default_factory=dict)
    other: dict[str, int] | None = None
    dips: int = 0
    moves_with: "Task | None" = None
    dies_s: float | None = None
    died_s: float = 0.0
    lied: bool = False  # its cgroup text was once something else, and may not be read again

    @property
    def lives(self) -> bool:
        return self.state is State.RUNNING

    @property
    def is_served_from_outside(self) -> bool:
        """Whether it has work on an MPS server that other pods need as well."""
        return self.server is not None and self.server.serves_others and not self.drained


def true_claim(pod: str | None, container: str | None) -> Place:
    """What an honest cgroup text says."""
    return HOST if pod is None else Place(kind=PlaceKind.POD, pod=pod, container=container)


class Kernel:
    """All processes of the node, and the memory that the driver still counts for the dead."""

    def __init__(self, clock: Clock, dice: random.Random) -> None:
        self.clock = clock
        self._dice = dice
        self.tasks: dict[int, Task] = {}
        self.ghosts: list[Task] = []
        self.last_ticks: dict[int, int] = {}
        self.listed: dict[str, set[ProcessKey]] = {}  # by card, whom the daemon saw listed last
        self.unlooked: set[ProcessKey] = set()  # just listed, with the PID of one that was listed before
        self.servers: list[Task] = []  # of MPS; with the end of one all its clients are none any more
        self.joins = 0.2  # the share of new processes that become clients of a shared server
        self.recycled: set[int] = set()  # PIDs that were given more than once in this boot
        self._free: list[int] = list(range(FIRST_PID, FIRST_PID + PIDS))

    def spawn(self, pod: str | None, container: str | None, pid: int | None = None) -> Task | None:
        """Start a process; None where no PID is free. A PID that was just given back is often the next one given."""
        pid = pid if pid is not None else self._next_pid()
        ticks = self.clock.ticks
        if pid is None or pid in self.tasks or self.last_ticks.get(pid, -1) >= ticks:
            return None
        self._free.remove(pid)
        self.recycled |= {pid} & self.last_ticks.keys()
        self.last_ticks[pid] = ticks
        task = Task(ProcessKey(pid=pid, start_ticks=ticks), true_claim(pod, container), pod, container)
        self.tasks[pid] = task
        self._drop_unseen_ghosts(pid)
        return task

    def _drop_unseen_ghosts(self, pid: int) -> None:
        """Free what the dead one with this PID held and was never listed for: nothing shows whose it is."""
        for ghost in self.ghosts:
            if ghost.key.pid == pid:
                seen = {card for card, keys in self.listed.items() if ghost.key in keys}
                ghost.memory = {card: used for card, used in ghost.memory.items() if card in seen}

    def _drop_unseen_memory(self, task: Task) -> None:
        """Free what one that dies was never listed for, where its PID was just listed for another: as above."""
        others = {
            card for card, keys in self.listed.items() if any(key.pid == task.key.pid for key in keys - {task.key})
        }
        task.memory = {card: used for card, used in task.memory.items() if card not in others}

    def _next_pid(self) -> int | None:
        if not self._free:
            return None
        return self._free[-1] if self._dice.random() < 0.5 else self._dice.choice(self._free)

    def living(self, pod: str | None = None) -> list[Task]:
        """The processes that run; those of a pod, if one is named."""
        return [task for task in self.tasks.values() if task.lives and pod in (None, task.pod)]

    def held_by_ghosts(self, pid: int) -> set[str]:
        """The cards on which one that is dead is still listed under this PID."""
        return {card for ghost in self.ghosts if ghost.key.pid == pid for card in ghost.memory}

    def note_listed(self, card: str, task: Task) -> None:
        """A card lists this process now: if its PID was another's before, it lives until the daemon has looked."""
        if any(key.pid == task.key.pid and key != task.key for key in self.listed.get(card, ())):
            self.unlooked.add(task.key)

    def die(self, task: Task) -> None:
        """End a process, but not between the list and the look at it: nothing would show that its PID changed hands."""
        if not task.lives or task.key in self.unlooked:
            return
        task.state, task.died_s = State.ZOMBIE, self.clock.boottime_s
        if task in self.servers:
            self.servers.remove(task)
            for each in (*self.tasks.values(), *self.ghosts):
                each.server = None if each.server is task else each.server
        self._drop_unseen_memory(task)
        self.ghosts.append(task)
        if task.reaped_s <= 0.0:
            self.reap(task)

    def reap(self, task: Task) -> None:
        """Let the PID of a dead process be given again."""
        if task.state is State.ZOMBIE:
            task.state = State.GONE
            del self.tasks[task.key.pid]
            self._free.append(task.key.pid)

    def settle(self) -> None:
        """What time has brought: processes that die, zombies that are reaped, memory that comes free."""
        now_s = self.clock.boottime_s
        for task in list(self.tasks.values()):
            if task.dies_s is not None and now_s >= task.dies_s:
                self.die(task)
            if task.state is State.ZOMBIE and now_s >= task.died_s + task.reaped_s:
                self.reap(task)
        if self.ghosts:
            self.ghosts = [each for each in self.ghosts if now_s < each.died_s + each.holds_s]

    def restart(self) -> None:
        self.servers.clear()
        self.tasks.clear()
        self.ghosts.clear()
        self.last_ticks.clear()
        self.recycled.clear()
        self._free = list(range(FIRST_PID, FIRST_PID + PIDS))

    def forget_listed(self) -> None:
        """A daemon starts: the memory of the dead whose PIDs are in use again comes free."""
        self.listed.clear()
        self.unlooked.clear()
        self.ghosts = [each for each in self.ghosts if each.key.pid not in self.tasks]

    def connect(self, task: Task) -> None:
        """Make a process, perhaps, a client of an MPS server that it can reach: its pod's own before any other."""
        if task.pod is None or task.named or task.server is not None:
            return
        own = [each for each in self.servers if each.pod == task.pod and not each.serves_others]
        others = [each for each in self.servers if each.serves_others]
        if (own or others) and self._dice.random() < (0.7 if own else self.joins):
            task.server = (own or others)[0]

    def neighbours(self, task: Task) -> list[Task]:
        """The other clients of the MPS server of a process, which its end breaks unless it is drained."""
        server = None if task.drained else task.server
        return [each for each in self.living() if each.server is server and each is not task] if server else []

    def deliver(self, task: Task, number: int) -> None:
        """Let a signal have its effect; who ends by it as a client of an MPS server breaks the other ones."""
        if number == signal.SIGKILL or (number == signal.SIGTERM and not task.stubborn):
            for neighbour in self.neighbours(task):
                neighbour.dies_s = min(neighbour.dies_s or math.inf, self.clock.boottime_s + 1.0)
            delay_s = task.slow_s if number == signal.SIGKILL else whole(self._dice.random() * 2)
            dies_s = self.clock.boottime_s + delay_s
            task.dies_s = dies_s if task.dies_s is None else min(task.dies_s, dies_s)
            if number == signal.SIGTERM and task.saves:
                self._save(task)
        elif number == signal.SIGTERM and self._dice.random() < 0.3:
            task.memory = dict.fromkeys(task.memory, 2**20)  # it handles the signal by giving back what it can

    def _save(self, task: Task) -> None:
        """Start the process that writes to the disk what another one has to lose; SIGTERM does not stop it."""
        saver = self.spawn(task.pod, task.container)
        if saver is not None:
            saver.stubborn = True
            saver.dies_s = self.clock.boottime_s + whole(self._dice.choice([0.5, 3.0, 60.0]))


@dataclass(slots=True, eq=False)
class Held:
    """A process held by the daemon: a signal reaches that very one or none. `tell` is called before each one."""

    task: Task
    kernel: Kernel
    tell: Callable[[Task, int], None]
    closed: bool = False

    @property
    def key(self) -> ProcessKey:
        return self.task.key

    def alive(self) -> bool:
        """Whether it runs; a closed handle holds nothing."""
        return self.task.lives and not self.closed

    def is_still_accepted(self) -> bool:
        """No process changes its container here."""
        return self.alive()

    def signal(self, number: int) -> None:
        """Send the signal, as pidfd_send_signal does."""
        self.tell(self.task, int(number))
        if not self.alive():
            raise ProcessLookupError(3, f"process {self.key.pid} has ended")
        if self.task.aloof:
            raise PermissionError(1, "Operation not permitted")
        self.kernel.deliver(self.task, int(number))

    def close(self) -> None:
        self.closed = True
