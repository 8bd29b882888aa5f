"""The scan: what the driver lists, joined with what /proc says of these processes, as one Snapshot."""

from collections.abc import Iterable
from dataclasses import replace

from watchdog.core.model import Gap, Gpu, Now, PlaceKind, Pod, Process, ProcessKey, Snapshot, Use
from watchdog.node.driver import DriverReading
from watchdog.node.pidfd import Handle
from watchdog.node.processes import ProcessTable


class Scanner:
    """Makes snapshots of readings, and remembers who was listed where, for GPUs that can't be listed for a while."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._listed: dict[tuple[str, int], ProcessKey] = {}
        self._seen: object = None
        self._gaps: tuple[Gap, ...] = ()

    def snapshot(self, reading: DriverReading, now: Now) -> Snapshot:
        """Join a reading of the whole node with /proc."""
        processes, gaps = self._table.look({use.pid for use in reading.uses})
        # What a search for a container's processes could not see stands in the next snapshot.
        searched, self._gaps = self._gaps, ()
        snapshot = self._join(reading, processes, (*reading.gaps, *gaps, *searched), now)
        self._remember(snapshot)
        return snapshot

    def look_again(self, first: Snapshot, reading: DriverReading, only: frozenset[str], now: Now) -> Snapshot:
        """Renew the part of a snapshot that lies on some GPUs, everything about its processes read anew."""
        processes, gaps = self._table.fresh({use.pid for use in reading.uses if use.gpu in only})
        fresh = {gpu.uuid: gpu for gpu in reading.gpus}
        gpus = tuple(fresh.get(gpu.uuid, gpu) if gpu.uuid in only else gpu for gpu in first.gpus)
        # A GPU that was asked for and did not answer is as good as not listed.
        missing = only - fresh.keys()
        gpus = tuple(replace(gpu, listed=False) if gpu.uuid in missing else gpu for gpu in gpus)
        uses = tuple(use for use in first.uses if use.gpu not in only)
        merged = DriverReading(
            driver=first.driver,
            gpus=gpus,
            parents=first.parents,
            uses=(*uses, *(use for use in reading.uses if use.gpu in only)),
            blind=reading.blind,
            unseen=(first.unseen - only) | (reading.unseen & only) | missing,
        )
        return self._join(merged, {**first.processes, **processes}, (*reading.gaps, *gaps), now)

    def members(self, pod: Pod, containers: frozenset[str]) -> list[Handle]:
        """Every living process of these containers (IDs) of a pod, each held."""
        keys = frozenset({pod.uid, *([pod.config_hash] if pod.static and pod.config_hash else [])})
        handles, gaps = self._table.container_members(containers, keys)
        self._gaps += gaps
        return list(handles)

    def describe(self, pid: int) -> str:
        """What a process is, for people: PID, name and user."""
        return self._table.describe(pid)

    def close(self) -> None:
        """Let go of every process."""
        self._table.close()

    def _remember(self, snapshot: Snapshot) -> None:
        """Note who is listed where, unless this snapshot says what the last one said."""
        listed = _listed(snapshot.gpus)
        seen = (listed, snapshot.uses, snapshot.processes)
        if seen == self._seen:
            return
        self._seen = seen
        kept = {at: key for at, key in self._listed.items() if at[0] not in listed}
        keys = ((use, snapshot.processes[use.pid].key) for use in snapshot.uses if use.gpu in listed)
        self._listed = kept | {(use.gpu, use.pid): key for use, key in keys if key is not None}

    def _join(self, reading: DriverReading, processes: dict[int, Process], gaps: tuple[Gap, ...], now: Now) -> Snapshot:
        listed = _listed(reading.gpus)
        uses = tuple(use for use in reading.uses if use.gpu in listed or self._still_there(use, processes))
        return Snapshot(
            at=now,
            driver=reading.driver,
            gpus=reading.gpus,
            parents=reading.parents,
            uses=uses,
            processes=processes,
            gaps=gaps,
            blind=reading.blind,
            unseen=reading.unseen,
        )

    def _still_there(self, use: Use, processes: dict[int, Process]) -> bool:
        """Whether a process carried over from an earlier listing is still that very process."""
        process = processes.get(use.pid)
        if process is None or process.key is None or process.place.kind in (PlaceKind.GONE, PlaceKind.ZOMBIE):
            return False
        return self._listed.get((use.gpu, use.pid)) == process.key


def _listed(gpus: Iterable[Gpu]) -> frozenset[str]:
    return frozenset(gpu.uuid for gpu in gpus if gpu.listed)
