"""What the simulated daemon has in place of its sources and beside its record; the production code is around them."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.soak.around import Around
from tests.soak.truth import WATCHDOG
from tests.soak.violation import fail
from watchdog.core.model import Node, Now, Place, PlaceKind, PodList, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.loop.deed_record import DeedRecord
from watchdog.loop.sources import NamedNode, NoNamespaces
from watchdog.loop.surroundings import Surroundings

NODE: Final = Node(name="n1")
OWN: Final = Place(kind=PlaceKind.POD, pod=WATCHDOG)


class Sources(Surroundings):
    """The pods of the simulated cluster, and a node without labels; the oracle sees what the daemon sees."""

    def __init__(self, around: Around) -> None:
        self._own = OWN
        self._pods = _Pods(around)
        self._node = NamedNode(NODE.name)
        self._namespaces = NoNamespaces()


class _Pods:
    def __init__(self, around: Around) -> None:
        self._around = around

    def read(self, now: Now) -> PodList:
        """The list as it is known now."""
        pods = self._around.cluster.read(now)
        self._around.book.see_pods(self._around.cluster.view.tenants, pods.synced, now)
        return pods

    def has_changed(self) -> bool:
        """Nobody asks."""
        return False


class Record(DeedRecord):
    """The daemon's own record; the oracle hears what is written, and when."""

    def __init__(self, around: Around) -> None:
        super().__init__()
        self._around = around

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> int:
        keys = tuple(targets)
        self._around.stir("intend")
        number = super().intend(entry, keys, now)
        _demand_on_disk(self._around.journal, number)
        self._around.book.intended(number, entry, keys, now)
        self._around.stir("intended")
        return number

    def end(self, deed: int, result: Result, reason: str, now: Now) -> None:
        self._around.book.deeds.ended(deed, result)
        super().end(deed, result, reason, now)

    def released(self, deed: int, now: Now, release_s: float | None, reason: str) -> None:
        self._around.book.deeds.released(deed, now, release_s)
        super().released(deed, now, release_s, reason)


def _demand_on_disk(journal: Path, number: int) -> None:
    """Point 31: the intention is committed before the first signal, so that any other process can read it."""
    with closing(sqlite3.connect(journal)) as other:
        if other.execute("SELECT count(*) FROM deed WHERE id = ?", (number,)).fetchone() != (1,):
            fail("point 31, journal first", f"deed {number} is not in the journal")
