"""Deeds of an earlier life: begun by a daemon that did not see their end, read back from the journal at start."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, ProcessKey
from watchdog.export.journal_deeds import UnfinishedDeed


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A deed without an end: its number in the journal, whom it was about, and the boot time until which to wait."""

    deed: int
    account: AccountKey
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    until_s: float


def left_over(unfinished: Iterable[UnfinishedDeed], until_s: float) -> tuple[Leftover, ...]:
    """The deeds that a journal has without an end, each to be waited for until a moment (boot time)."""
    return tuple(
        Leftover(
            deed=deed.deed,
            account=deed.account,
            step=deed.step,
            victim=deed.victim,
            targets=deed.targets,
            until_s=until_s,
        )
        for deed in unfinished
    )


class Leftovers:
    """Keeps the next deed of an account waiting for an earlier one: one wait too many, never a second kill."""

    def __init__(self, found: tuple[Leftover, ...] = ()) -> None:
        self._open = list(found)

    def add(self, found: tuple[Leftover, ...]) -> None:
        """Wait for these too."""
        self._open += found

    def is_waiting(self, account: AccountKey) -> bool:
        """Whether a deed of this account is still waited for."""
        return any(each.account == account for each in self._open)

    def see(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> tuple[Leftover, ...]:
        """Take note of a reading: the earlier deeds that are over, their memory free or their time up."""
        over = [
            each
            for each in self._open
            if now.boottime_s >= each.until_s or not any(still_listed(key) for key in each.targets)
        ]
        self._open = [each for each in self._open if each not in over]
        return tuple(over)
