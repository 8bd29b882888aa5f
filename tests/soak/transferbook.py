"""Memory that changes hands, as the oracle follows it: whose bytes may count as unknown, since when, and how many."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.cluster import Tenant
from tests.soak.driver import Listed
from tests.soak.violation import fail
from watchdog.core.model import Now, ProcessKey
from watchdog.core.transfers import FoundTransfer

TRANSFER: Final = "point 10, only what others have left counts as unknown"
BUDGET: Final = "point 10, bytes of an owner count as unknown for five minutes an hour"
Workload = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Window:
    began: Now
    is_written: bool


class TransferBook:
    """Hears of each reading which lines count as unknown, though the driver reported them."""

    def __init__(self, seen: Counter[str]) -> None:
        self._seen = seen
        self._last: dict[str, dict[ProcessKey, int]] = {}
        self._unknown: dict[tuple[str, ProcessKey], int] = {}
        self._most: dict[tuple[str, ProcessKey], int] = {}  # of each in this boot, as the journal may have it
        self._windows: dict[Workload, _Window] = {}
        # What the running daemon has seen for itself.
        self._own: set[tuple[str, ProcessKey]] = set()
        self._opened: set[Workload] = set()

    def daemon_starts(self) -> None:
        """It has the windows that reached the disk, as they were when they began, and no reading to compare with."""
        self._last.clear()
        self._own.clear()
        self._opened.clear()
        self._unknown = dict(self._most)
        self._windows = {owner: window for owner, window in self._windows.items() if window.is_written}

    def cut_off(self, begun: Iterable[FoundTransfer]) -> None:
        """The daemon ended in a cycle that had found these, and may have written them down; no reading tells of it."""
        for transfer in (each.transfer for each in begun):
            at = transfer.gpu, transfer.key
            self._most[at] = max(transfer.unknown, self._most.get(at, 0))

    def forget(self) -> None:
        """The journal, or the boot in which its processes ran, is lost; what the daemon has seen since it started not.

        A daemon may run for a while before it has a journal.
        """
        self._windows = {owner: each for owner, each in self._windows.items() if owner in self._opened}
        self._unknown = {at: amount for at, amount in self._unknown.items() if at in self._own}
        self._most = {at: amount for at, amount in self._most.items() if at in self._own}

    def read(
        self,
        lines: Iterable[Listed],
        hidden: Mapping[tuple[str, int], int],
        tenants: Mapping[str, Tenant],
        now: Now,
        *,
        dark: Collection[str],
        written: bool,
        has_journal: bool,
    ) -> None:
        """A reading of these lines, but for those of `dark` cards, which were not listed.

        `hidden` are the bytes of some that the daemon makes unknown, by card and PID.
        """
        cards: dict[str, dict[ProcessKey, int]] = {}
        unknown: dict[tuple[str, ProcessKey], int] = {}
        lines = [line for line in lines if line.task is not None and line.gpu not in dark]
        for line in lines:
            assert line.task is not None
            cards.setdefault(line.gpu, {})[line.task.key] = line.used or 0
        for line in lines:
            amount = hidden.get((line.gpu, line.pid), 0)
            if not amount or line.task is None:
                continue
            key = line.task.key
            unknown[line.gpu, key] = amount
            self._own.add((line.gpu, key))
            self._demand_left(line.gpu, key, amount, cards[line.gpu])
            tenant = tenants.get(line.task.pod or "")
            if tenant is not None:
                self._demand_open(tenant.workload, now, written=written, has_journal=has_journal)
        # While its card is short of memory, or its amount is not known, nothing is hidden, and may be again after that.
        listed = {(line.gpu, line.task.key): line.used for line in lines if line.task is not None}
        kept = {at: amount for at, amount in self._unknown.items() if at[0] in dark or listed.get(at, 0) is None}
        for at, amount in self._unknown.items():
            used = listed.get(at)
            if used is not None:  # a daemon that has not read its journal yet does not see what is given back
                kept[at] = min(amount, used) if has_journal else amount
        self._unknown = kept | unknown
        self._most |= {at: max(amount, self._most.get(at, 0)) for at, amount in unknown.items()}
        self._last |= cards

    def _demand_left(self, gpu: str, key: ProcessKey, amount: int, card: Mapping[ProcessKey, int]) -> None:
        """What is unknown was so before, or has risen as processes that used as much ended."""
        before = self._last.get(gpu, {})
        known = self._unknown.get((gpu, key), 0)
        left = sum(used for other, used in before.items() if other.pid not in {each.pid for each in card})
        risen = max(card[key] - before.get(key, card[key]), 0)
        if self._last and amount > known + min(left, risen):
            fail(TRANSFER, f"{amount} of {key} on {gpu} are unknown; {known} were, {risen} rose, {left} were left")

    def _demand_open(self, owner: Workload, now: Now, *, written: bool, has_journal: bool) -> None:
        """A daemon that has not read its journal yet can't know of a window, and does nothing either."""
        window = self._windows.get(owner)
        since_s = None if window is None else now.boottime_s - window.began.boottime_s
        if since_s is None or since_s >= 3600.0:
            self._windows[owner] = _Window(now, written)
            self._opened.add(owner)
            self._seen["memory changed hands"] += 1
        elif since_s >= 300.0 and has_journal:
            fail(BUDGET, f"{owner}: bytes count as unknown {since_s} s after they first did")
