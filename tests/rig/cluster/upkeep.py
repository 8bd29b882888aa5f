"""The keeper of a node's capacity, run as the daemon's loop does it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from tests.rig.cluster.api import Api as Admin
from tests.rig.cluster.real_pods import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.capacity import advertised
from watchdog.core.model import Gpu, Snapshot
from watchdog.core.policy import Capacity, Policy
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.client import Api
from watchdog.kube.informers import NodeInformer
from watchdog.kube.messages import LogMessage

RESOURCE: Final = "example.com/gpu-memory"
GI: Final = 2**30
POLICY: Final = Policy(sha256="", source="", capacity=Capacity(resource=RESOURCE))


def cards(*sizes: int | None) -> tuple[Gpu, ...]:
    """Cards of these sizes in GiB; one without is lost."""
    return tuple(
        Gpu(uuid=f"GPU-{number}", index=number, name="A100", up=size is not None, total=(size or 80) * GI, reserved=0)
        for number, size in enumerate(sizes)
    )


class Upkeep:
    """A context manager: a loop that hands the node, a snapshot and the policy to the keeper, every 50 ms.

    Change `snapshot`, `policy` and `has_lock` (of the node) at will; `notes` is what the keeper has reported.
    """

    def __init__(self, kubeconfig: Path, node: str, *gpus: Gpu) -> None:
        self.snapshot = Snapshot(at=clock.now(), driver="550", interface="NVML", gpus=gpus)
        self.policy: Policy = POLICY
        self.has_lock = True
        self.notes: list[LogMessage] = []
        self._api = Api(kubeconfig)
        self.informer = NodeInformer(self._api, node, Bell())
        self.keeper = CapacityKeeper(self._api)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def __enter__(self) -> Self:
        self.informer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(5)
        self.keeper.stop()
        self.informer.stop()
        self._api.close()

    def see(self, *gpus: Gpu, **more: Any) -> None:
        """From now on the snapshots are these."""
        self.snapshot = replace(self.snapshot, gpus=gpus, **more)

    @property
    def problems(self) -> list[str]:
        """What the keeper found wrong."""
        return [note.text for note in self.notes if note.is_problem]

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            now = clock.now()
            node, _ = self.informer.read(now)
            if self.has_lock:
                self.keeper.advertise(node, replace(self.snapshot, at=now), self.policy)
            else:
                self.keeper.pause()
            self.notes.extend(self.keeper.take_messages())


def set_entry(admin: Admin, node: str, value: str) -> None:
    """Set the entry as another writer does."""
    change = {"status": {"capacity": {RESOURCE: value}, "allocatable": {RESOURCE: value}}}
    admin.ask("PATCH", f"/api/v1/nodes/{node}/status", change)


def capacity_of(admin: Admin, node: str) -> int | None:
    """What a node advertises, by value; None where it has no entry, or there is no node."""
    answer = admin.call("GET", f"/api/v1/nodes/{node}")
    written = answer.object["status"].get("capacity", {}).get(RESOURCE) if answer.status == 200 else None
    return None if written is None else advertised(written)


def wait_for(admin: Admin, node: str, amount: int | None) -> float:
    """Wait until a node advertises this amount; the seconds that it took."""
    return wait_until(lambda: capacity_of(admin, node) == amount, f"{node} advertises {amount}")


@contextmanager
def repeating(act: Callable[[int], object], every_s: float) -> Iterator[None]:
    """Inside, something is done again and again."""
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(every_s):
            act(number := number + 1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
