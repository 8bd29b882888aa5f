"""Whether the processes of an action may be signalled now: what an action knows of it.

Nothing stands in the way of a signal here. What does is known to those alone who override this (ADR 16).
"""

import math
from collections.abc import Callable
from typing import Final

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry
from watchdog.daemon.actions.action import ActionReading


class Clearance:
    """What must be done before the processes of one action are signalled, and whether it is: nothing must."""

    # CLOCK_BOOTTIME at which the last conclusive reading was requested.
    seen_s: float = math.inf
    # Why nothing could be requested yet.
    why_not_begun: str = ""
    # Why processes were not signalled in time.
    why_late: str = ""
    # What its requests have done, as a clause.
    in_words: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether nothing stands in the way of a signal."""
        return True

    @property
    def has_asked(self) -> bool:
        """Whether something was requested, sent or not."""
        return False

    @property
    def has_sent(self) -> bool:
        """Whether a request may have been sent, which can't be taken back."""
        return False

    @property
    def is_asking(self) -> bool:
        """Whether a request has no answer yet."""
        return False

    def permits(self, found_s: float) -> bool:
        """Whether a process that was first found at this moment (CLOCK_BOOTTIME) may be signalled."""
        return True

    def advance(self, now: Now, *, may_ask: bool = True, has_begun: bool = False) -> str | None:
        """Take an answer, and request what is next if it may; the reason if this action must end.

        `has_begun`: a process was signalled, so the last look, which counts for the first signal, is no longer needed.
        """
        return None

    def postpone(self, now: Now) -> None:
        """Note that it may not continue for the moment; what was not sent by now is never sent."""

    def cancel(self, now: Now) -> bool:
        """Send no request that has not been sent yet; whether any has been."""
        return False

    def on_reading(self) -> None:
        """Take what the last reading shows."""


CLEAR: Final = Clearance()


class Clearances:
    """Gives each action its clearance, by the last reading: on this node nothing ever stands in the way."""

    # The GPUs on which something may, which every last look reads as well.
    gpus: frozenset[str] = frozenset()

    @property
    def are_needed(self) -> bool:
        """Whether anything may stand in the way of a signal on this node."""
        return False

    def on_reading(self, reading: ActionReading) -> None:
        """Use what a reading shows."""

    def queue(self, entry: PlanEntry, now: Now) -> bool:
        """Queue an action for its clearance; whether it has its turn now."""
        return True

    def leave(self, account: AccountKey) -> None:
        """Take an action out of the queue."""

    def why_not(self, entry: PlanEntry, ends_container: Callable[[], bool] = lambda: False) -> str | None:
        """Why a kill or an eviction can't get its clearance; None if nothing speaks against it.

        `ends_container`: whether the end of the processes that it ends may end their container.
        """
        return None

    def begin(
        self,
        entry: PlanEntry,
        *,
        note: Callable[[str, list[ProcessKey], Now], None],
        may_live: Callable[[ProcessKey], bool] = lambda _: True,
        is_fresh: Callable[[], bool] = lambda: True,
    ) -> Clearance:
        """The clearance of an action that is about to begin, or is in progress.

        `note` is called for each request that was sent, with its name and its process; `may_live` says whether a
        process may not have ended, `is_fresh` whether the last look still counts.
        """
        return CLEAR


ALWAYS_CLEAR: Final = Clearances()


def clearances_for(entry: PlanEntry, clearances: Clearances) -> Clearances:
    """Who gives an action its clearance: where nothing stands in the way, nobody has to be asked."""
    return clearances if clearances.are_needed or entry.to_drain else ALWAYS_CLEAR
