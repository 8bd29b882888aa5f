"""The scan: joins what the driver lists with what /proc shows of those processes into one Snapshot."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from watchdog.core.attribute import is_trusted_server
from watchdog.core.model import Gap, Now, PlaceKind, Pod, Process, ProcessKey, Snapshot, Use
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.process import Handle
from watchdog.node.process_table import ProcessTable


class Listings:
    """Remembers, for each GPU and PID, the process that had the PID when the driver first listed it.

    A driver can keep listing a PID after its process has ended. A process that gets the PID later is not the one
    listed. The entry is not attributed to it until the driver has once not listed the PID.
    """

    def __init__(self, first: Mapping[tuple[str, int], ProcessKey] = MappingProxyType({})) -> None:
        self._first = first

    def after(self, reading: DriverReading, processes: Mapping[int, Process], asked: Now) -> "Listings":
        """The memory after a reading that was requested at `asked`; GPUs that it could not list keep what they had."""
        listed = frozenset(gpu.uuid for gpu in reading.gpus if gpu.listed)
        first = {at: key for at, key in self._first.items() if at[0] not in listed}
        for use in reading.uses:
            listed_s = max(asked.boottime_s, reading.listed_s.get(use.gpu, 0.0))
            key = self._first.get((use.gpu, use.pid)) or _first_key(processes[use.pid], listed_s)
            if use.gpu in listed and key is not None:
                first[use.gpu, use.pid] = key
        return Listings(first)

    def is_same(self, use: Use, process: Process | None) -> bool:
        """Whether the PID still is, as far as known, the process that was first listed under it on this GPU."""
        first = self._first.get((use.gpu, use.pid))
        return process is None or process.key is None or first is None or first == process.key

    def is_known(self, use: Use, process: Process) -> bool:
        """Whether this same process was listed on this GPU before."""
        return process.key is not None and self._first.get((use.gpu, use.pid)) == process.key

    def may_hold(self, key: ProcessKey, gpus: frozenset[str]) -> bool:
        """Whether a process was last listed on one of these GPUs."""
        return any(first == key and at[0] in gpus for at, first in self._first.items())


def _first_key(process: Process, listed_s: float) -> ProcessKey | None:
    """The process that a newly listed PID denotes, for as long as it is listed.

    If the process has ended, or started after the list was made, it is a key that no living process has. What counts is
    when the list itself was requested. A reading can take seconds, and a process that starts meanwhile may be the one
    listed.
    """
    key = process.key
    began_late = key is not None and key.started_s > listed_s
    if began_late or process.ended or process.place.kind is PlaceKind.GONE:
        return ProcessKey(pid=process.pid, start_ticks=-1)
    return key


def _keys_of(pod: Pod) -> frozenset[str]:
    """What a cgroup can name a pod by: its UID, or a static pod's config hash."""
    return frozenset({pod.uid, *([pod.config_hash] if pod.static and pod.config_hash else [])})


class Scanner:
    """Turns readings into snapshots; use listed under a PID that now belongs to another process is unknown."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._listings = Listings()
        self._gaps: tuple[Gap, ...] = ()

    def snapshot(self, reading: DriverReading, now: Now) -> Snapshot:
        """Join a reading of the whole node with /proc."""
        processes, gaps = self._table.update({use.pid for use in reading.uses})
        # What a search for a container's processes could not read is reported in the next snapshot.
        searched, self._gaps = self._gaps, ()
        self._listings = self._listings.after(reading, processes, now)
        return self._join(reading, processes, (*gaps, *searched), now, self._listings)

    @property
    def is_unchanged(self) -> bool:
        """Whether an equal reading would give an equal snapshot: the processes are those of the last one."""
        return not self._gaps and self._table.is_unchanged()

    def has_renamed(self) -> bool:
        """Whether a process has renamed itself, so that the next snapshot will differ; see `ProcessTable`."""
        return self._table.has_renamed()

    @property
    def are_processes_unchanged(self) -> Callable[[], bool]:
        """A check for any thread: whether the processes of the last snapshot still run; see `ProcessTable`."""
        return self._table.is_unchanged

    def may_be_listed(self, key: ProcessKey, snapshot: Snapshot) -> bool:
        """Whether the memory of a process may be on a GPU that can't be listed now."""
        return self._listings.may_hold(key, frozenset(gpu.uuid for gpu in snapshot.gpus if not gpu.listed))

    def rescan(
        self, first: Snapshot, reading: DriverReading, only: frozenset[str], now: Now, *, asked: Now
    ) -> Snapshot:
        """Renew the part of a snapshot that concerns the GPUs in `only`; its processes are read again.

        The reading was requested at `asked`. What it lists for the first time counts as in any other one.
        """
        uses = tuple(use for use in reading.uses if use.gpu in only)
        processes, gaps = self._table.reread({use.pid for use in uses})
        fresh = {gpu.uuid: gpu for gpu in reading.gpus if gpu.uuid in only}
        renewed = replace(reading, gpus=tuple(fresh.values()), uses=uses)
        listings = self._listings.after(renewed, processes, asked)
        gpus = tuple(fresh.get(gpu.uuid, gpu) for gpu in first.gpus)
        # A GPU that was requested and did not answer counts as not listed.
        missing = only - fresh.keys()
        gpus = tuple(replace(gpu, listed=False) if gpu.uuid in missing else gpu for gpu in gpus)
        merged = replace(
            reading,
            driver=first.driver,
            gpus=gpus,
            parents=first.parents,
            uses=(*(use for use in first.uses if use.gpu not in only), *uses),
            unseen=(first.unseen - only) | (reading.unseen & only) | missing,
            missing=first.missing,
        )
        return self._join(merged, {**first.processes, **processes}, gaps, now, listings)

    def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
        """Every living process of these containers (IDs) of a pod, each held; and whether these are certainly all."""
        keys = _keys_of(pod)
        handles, gaps = self._table.container_members(containers, keys, lambda process: is_trusted_server(process, pod))
        self._gaps = tuple({*self._gaps, *gaps, *self._table.take_shortage()})
        return list(handles), not gaps

    def may_live(self, pod: Pod) -> bool:
        """Whether any process of a pod's known containers may live, a trusted server too, unlike in `members`."""
        ids = frozenset[str]().union(*(each.ids for each in pod.containers))
        handles, gaps = self._table.container_members(ids, _keys_of(pod))
        for handle in handles:
            handle.close()
        return bool(handles or gaps)

    def leads_container(self, pid: int) -> bool:
        """Whether the end of a process may end its container; see `ProcessTable`."""
        return self._table.leads_container(pid)

    def describe(self, pid: int) -> str:
        """PID, name and user of a process, for logs."""
        return self._table.describe(pid)

    def close(self) -> None:
        """Release every process."""
        self._table.close()

    def _join(
        self,
        reading: DriverReading,
        processes: dict[int, Process],
        gaps: tuple[Gap, ...],
        now: Now,
        listings: Listings,
    ) -> Snapshot:
        return Snapshot(
            at=now,
            driver=reading.driver,
            interface=reading.interface,
            gpus=reading.gpus,
            parents=reading.parents,
            uses=_own_uses(reading, processes, listings),
            processes=processes,
            gaps=(*reading.gaps, *gaps),
            blind=reading.blind,
            unseen=reading.unseen,
            missing=reading.missing,
        )


def _own_uses(reading: DriverReading, processes: dict[int, Process], listings: Listings) -> tuple[Use, ...]:
    """The uses of a reading, unknown if the PID no longer belongs to the process that was listed."""
    listed = frozenset(gpu.uuid for gpu in reading.gpus if gpu.listed)
    kept = (use for use in reading.uses if use.gpu in listed or _still_there(use, processes, listings))
    return tuple(use if listings.is_same(use, processes.get(use.pid)) else use.of_another for use in kept)


def _still_there(use: Use, processes: dict[int, Process], listings: Listings) -> bool:
    """Whether a process carried over from an earlier listing is still the same process."""
    process = processes.get(use.pid)
    if process is None or process.key is None or process.place.kind in (PlaceKind.GONE, PlaceKind.ZOMBIE):
        return False
    return listings.is_known(use, process)
