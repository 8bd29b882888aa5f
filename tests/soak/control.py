"""The control daemons of the simulated MPS servers: they list clients and drain them, or refuse, or take their time."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.clock import Clock
from tests.soak.cluster import Mi
from tests.soak.kernel import Kernel, Task
from watchdog.core.model import Now, ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult

_LASTS_S: Final = (0.0, 0.0, 0.25, 1.0, 5.0, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A request on its way: it has its effect, if it is `drained` at all, and its answer at `due_s`."""

    request_id: int
    task: Task | None
    key: ProcessKey
    due_s: float
    answer: Drained
    drains: bool


class SimulatedControl:
    """Outlives the daemon, whose requests have their effect even if no daemon waits for the answer any more.

    `tell` hears of each request before it goes out; `replace` starts the successor of a process that was drained.
    """

    def __init__(self, kernel: Kernel, clock: Clock, seed: str) -> None:
        self._kernel = kernel
        self._clock = clock
        self._dice = random.Random(f"{seed}/control")
        self._known: tuple[DrainableClient, ...] = ()
        self._calls: list[_Call] = []
        self._results: list[DrainResult] = []
        self.tell: Callable[[Task], None] = lambda _: None
        self.replace: Callable[[Task], None] = lambda _: None

    def daemon_starts(self) -> None:
        """No daemon waits for an answer."""
        for call in self._calls:
            self._settle(call)
        self._known, self._calls, self._results = (), [], []

    @property
    def servers(self) -> frozenset[ProcessKey]:
        return frozenset()

    @property
    def drainable(self) -> tuple[DrainableClient, ...]:
        return self._known

    def refresh(self, clients: Mapping[ProcessKey, frozenset[str]], now: Now, *, gpus: int = 0) -> None:
        """List the clients again, most times."""
        if self._dice.random() < 0.3:
            return
        self._known = tuple(
            DrainableClient(key=task.key, server_pid=task.server.key.pid, pipe=f"pipe of {task.server.key.pid}")
            for task in self._kernel.living()
            if task.server is not None and task.key in clients and not task.drained and task.server.is_controlled
        )

    def is_querying(self, pipe: str) -> bool:
        return False

    def drain(self, request_id: int, clients: tuple[DrainableClient, ...], may_send: Callable[[], bool]) -> None:
        """Take a request; it is answered after some time."""
        (client,) = clients
        task = self._kernel.tasks.get(client.key.pid)
        task = task if task is not None and task.key == client.key else None
        if task is not None:
            self.tell(task)
        (answer,) = self._dice.choices([*Drained], (8, 1, 1))
        answer = answer if may_send() else Drained.REFUSED
        drains = answer is Drained.DONE or (answer is Drained.UNKNOWN and self._dice.random() < 0.5)
        due_s = self._clock.boottime_s + self._dice.choice(_LASTS_S)
        self._calls.append(
            _Call(request_id=request_id, task=task, key=client.key, due_s=due_s, answer=answer, drains=drains)
        )

    def pop_results(self) -> tuple[DrainResult, ...]:
        due = [call for call in self._calls if call.due_s <= self._clock.boottime_s]
        self._calls = [call for call in self._calls if call not in due]
        self._results += [self._settle(call) for call in due]
        results, self._results = tuple(self._results), []
        return results

    def _settle(self, call: _Call) -> DrainResult:
        task, answer = call.task, call.answer
        is_there = task is not None and self._kernel.tasks.get(task.key.pid) is task  # not so after a reboot
        if task is None or not is_there or not task.lives or task.server is None:
            answer = Drained.DONE
        elif call.drains:
            task.drained = True
            task.memory = dict.fromkeys(task.memory, Mi)
            self.replace(task)
        if answer is Drained.DONE:
            self._known = tuple(client for client in self._known if client.key != call.key)
        return DrainResult(request_id=call.request_id, key=call.key, drained=answer, reason="as the dice fell")
