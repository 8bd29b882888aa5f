"""What the simulated daemon has in place of its sources and beside its record; the production code is around them."""

import resource
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.soak.book import LEFT
from tests.soak.claims import SimulatedClaims, SimulatedSlices
from tests.soak.kernel import Task
from tests.soak.truth import WATCHDOG
from tests.soak.violation import fail
from watchdog.core.assessment import Inputs
from watchdog.core.errors import RecordError
from watchdog.core.left import LeftPods
from watchdog.core.model import Gap, Node, Now, Place, PlaceKind, Pod, PodList, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.core.transfers import Windows
from watchdog.daemon.sources import NO_NAMESPACES, NoSource, Sources
from watchdog.journal.journal import Journal
from watchdog.journal.writer import COMMIT_WITHIN_S
from watchdog.kube.claims import ClaimReader

if TYPE_CHECKING:
    from tests.soak.world import World

NODE: Final = Node(name="n1")
OWN: Final = Place(kind=PlaceKind.POD, pod=WATCHDOG)
BOTH: Final = "removed with its lock"  # a loss of the journal that leaves a new node
_NO_LIMIT: Final = resource.getrlimit(resource.RLIMIT_FSIZE)


@contextmanager
def full_disk(full: bool) -> Iterator[None]:
    """While it is full no file grows: SQLite gets the kernel's own error (setrlimit(2), RLIMIT_FSIZE)."""
    if not full:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, _NO_LIMIT[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, _NO_LIMIT)


class SimSources(Sources):
    """The pods and the node of the simulated cluster; the oracle sees what the daemon sees."""

    def __init__(self, world: "World", left: LeftPods) -> None:
        self._world = world
        self._seen: set[str] = set()  # in the list, by this daemon
        self._own = OWN
        self.pods = _Pods(world)
        self.node = _Node(world)
        self.namespaces = NO_NAMESPACES
        self._claims = self.claims = SimulatedClaims(world)
        self.slices = SimulatedSlices(world)
        self._claim_reader = ClaimReader()
        self._cluster = None
        self.left = left
        self._policy = None

    def inputs(self, policy: Policy, now: Now, **given: bool) -> Inputs:
        """The inputs of this moment; the oracle hears of each."""
        inputs = super().inputs(policy, now, **given)
        view, left = self._world.cluster.view, {pod.uid for pod in inputs.pods.pods if pod.left_since is not None}
        self._seen |= view.tenants.keys()
        for uid in (self._seen & view.gone) - left:
            if any(self._is_its_own(task) for task in self._world.kernel.living(uid)):
                fail(LEFT, f"{uid} is forgotten, and its processes live")
            self._seen.discard(uid)
        known = dict(self._claims.given)
        self._world.book.see_pods(view.tenants, inputs.pods.synced, now, left=left, gone=view.gone, given=known)
        return inputs

    def _with_claims(self, pods: PodList, policy: Policy, now: Now) -> PodList:
        self._claims.listed = frozenset(pod.uid for pod in pods.pods)
        return super()._with_claims(pods, policy, now)

    def _is_its_own(self, task: Task) -> bool:
        """Whether a process is in a container that the list had, and has always said so."""
        known = self._world.book.boxes_of(task.pod or "")
        return not task.lied and task.container in known


class _Pods(NoSource[PodList]):
    def __init__(self, world: "World") -> None:
        self._world = world

    def read(self, now: Now) -> PodList:
        return self._world.cluster.read(now)


class _Node(NoSource[tuple[Node, tuple[Gap, ...]]]):
    def __init__(self, world: "World") -> None:
        self._world = world

    def read(self, now: Now) -> tuple[Node, tuple[Gap, ...]]:
        self._world.book.standing.labelled = self._world.cluster.labelled
        return self._world.cluster.node, ()


@dataclass(slots=True, eq=False)
class _Write:
    """An intention on its way to a disk that stalls, until `until_s` (boot time)."""

    future: "Future[int]"
    commit: Callable[[], int]
    since_s: float
    until_s: float


class Record:
    """Writes to the daemon's own journal; a stalled disk takes an intention later. The oracle hears of everything."""

    def __init__(self, world: "World") -> None:
        self.journal: Journal | None = None
        self._world = world
        self._writes: list[_Write] = []
        self._late: set[int] = set()

    @property
    def hangs(self) -> bool:
        """Whether the disk has kept a write waiting for longer than an action waits for it."""
        now_s = self._world.clock.boottime_s
        return any(now_s - write.since_s >= COMMIT_WITHIN_S for write in self._writes)

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Hand an intention in; without a stall it is on disk at once."""
        keys = tuple(targets)
        self._world.book.seen["disk stalled"] += self._world.stall_s > 0
        self._world.book.seen["disk stalled too long"] += self._world.stall_s >= COMMIT_WITHIN_S
        since_s = self._world.clock.boottime_s
        future: Future[int] = Future()
        self._writes.append(_Write(future, lambda: self._intend(entry, keys, now), since_s, self._stalled_until_s()))
        if self._world.dice.random() < 0.5:
            future.set_running_or_notify_cancel()  # then it can't be called back
        self.settle()
        return future

    def settle(self) -> None:
        """Let the disk take what it takes by now, in its order."""
        while self._writes and self._writes[0].until_s <= self._world.clock.boottime_s:
            write = self._writes.pop(0)
            if not write.future.running() and not write.future.set_running_or_notify_cancel():
                continue
            try:
                number = write.commit()
                if self._world.clock.boottime_s - write.since_s >= COMMIT_WITHIN_S:
                    self._late.add(number)
                write.future.set_result(number)
            except RecordError as error:
                write.future.set_exception(error)

    def _stalled_until_s(self) -> float:
        last_s = self._writes[-1].until_s if self._writes else 0.0
        return max(last_s, self._world.clock.boottime_s + self._world.stall_s)

    def _intend(self, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> int:
        if self.journal is None:
            raise RecordError("there is no journal")
        self._world.stir("intend")
        number = self.journal.intend(entry, keys, now)
        _demand_on_disk(self._world.journal, number)
        self._world.book.intended(number, entry, keys, now, self._world.clock.now())
        self._world.stir("intended")
        return number

    def took_too_long(self, action: int) -> bool:
        return action in self._late

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        self._world.book.withdrawn(action)
        if self.journal is not None:
            self.journal.withdraw(action, reason, now)

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Hand on the same of an intention that is being written, once it is on disk."""

        def withdraw(done: "Future[int]") -> None:
            if done.exception() is None:
                self.withdraw(done.result(), reason, now)

        intended.add_done_callback(withdraw)

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        if self.journal is not None:
            self.journal.signalled(action, now, signal, keys)

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        self._world.book.ended(action, result, now)
        if self.journal is not None:
            self.journal.end(action, result, reason, now)

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        self._world.book.actions.released(action, now, release_s)
        if self.journal is not None:
            self.journal.released(action, now, release_s, reason)

    def left(self, pods: tuple[Pod, ...]) -> None:
        if self.journal is not None:
            self.journal.left(pods)

    def breaker(self, opened: Now | None) -> None:
        if self.journal is not None:
            self.journal.breaker(opened)

    def transfers(self, windows: Windows) -> None:
        if self.journal is not None:
            self.journal.transfers(windows)


def _demand_on_disk(journal: Path, number: int) -> None:
    """Point 31: the intention is committed before the first signal, so that any other process can read it."""
    with closing(sqlite3.connect(journal)) as other:
        if other.execute("SELECT count(*) FROM action WHERE id = ?", (number,)).fetchone() != (1,):
            fail("point 31, journal first", f"action {number} is not in the journal")


def counted(journal: Path) -> set[int]:
    """The numbers of the actions that the brakes of the next daemon count by this journal."""
    with closing(sqlite3.connect(journal)) as other:
        return {number for (number,) in other.execute("SELECT action_id FROM begun")}
