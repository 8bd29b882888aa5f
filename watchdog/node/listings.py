"""Who was first listed where: the memory that tells a process from another one that has got its PID."""

import os
from collections.abc import Mapping

from watchdog.core.model import Now, PlaceKind, Process, ProcessKey, Use
from watchdog.node.driver import DriverReading

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Listings:
    """Remembers, for each GPU and PID, the process that had the PID when the driver began to list it.

    A driver can go on listing a PID after its process has ended. Whoever has that PID by then is not who was listed,
    so it is not theirs until the driver has once not listed it.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], ProcessKey] = {}
        self._seen: object = None

    def update(self, reading: DriverReading, processes: Mapping[int, Process], asked: Now) -> bool:
        """Take in a reading that was asked for at a moment; GPUs that it could not list stay as they were.

        Gives whether it is another one than the last.
        """
        gpus, uses = reading.gpus, reading.uses
        listed = frozenset(gpu.uuid for gpu in gpus if gpu.listed)
        if self._seen == (listed, uses, processes):
            return False
        self._seen = (listed, uses, processes)
        before = self._first
        self._first = {at: key for at, key in before.items() if at[0] not in listed}
        for use in uses:
            listed_s = max(asked.boottime_s, reading.listed_s.get(use.gpu, 0.0))
            key = before.get((use.gpu, use.pid)) or _first_key(processes[use.pid], listed_s)
            if use.gpu in listed and key is not None:
                self._first[use.gpu, use.pid] = key
        return True

    def is_same(self, use: Use, process: Process | None) -> bool:
        """Whether the PID is still, as far as is known, the process that was first listed under it there."""
        first = self._first.get((use.gpu, use.pid))
        return process is None or process.key is None or first is None or first == process.key

    def is_known(self, use: Use, process: Process) -> bool:
        """Whether this very process was listed there before."""
        return process.key is not None and self._first.get((use.gpu, use.pid)) == process.key

    def may_hold(self, key: ProcessKey, gpus: frozenset[str]) -> bool:
        """Whether a process was last listed on one of these GPUs."""
        return any(first == key and at[0] in gpus for at, first in self._first.items())


def _first_key(process: Process, listed_s: float) -> ProcessKey | None:
    """Who is listed under a PID from now on: its process; nobody that lives if that has ended or began too late.

    That is for as long as the PID is listed. So what counts is when the list was made (or a moment before): a reading
    can take seconds, and who begins while it is under way may well be the one that is listed.
    """
    key = process.key
    began_late = key is not None and key.start_ticks / _TICKS_PER_S > listed_s
    if began_late or process.place.kind is PlaceKind.GONE:
        return ProcessKey(pid=process.pid, start_ticks=-1)
    return key
