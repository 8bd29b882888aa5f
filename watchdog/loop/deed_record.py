"""Where deeds are written down before they are done."""

from collections.abc import Iterable

from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.export.journal import Journal


class DeedRecord:
    """Where deeds are written down; without a journal nothing can be intended, so nothing is ever signalled."""

    def __init__(self) -> None:
        self.journal: Journal | None = None

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> int:
        """Commit the intention to disk and number it; RecordError where that can't be done."""
        if self.journal is None:
            raise RecordError("there is no journal")
        return self.journal.intend(entry, targets, now)

    def signalled(self, deed: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Note which processes got which signal."""
        if self.journal is not None:
            self.journal.signalled(deed, now, signal, keys)

    def end(self, deed: int, result: Result, reason: str, now: Now) -> None:
        """Note what came of it."""
        if self.journal is not None:
            self.journal.end(deed, result, reason, now)

    def released(self, deed: int, now: Now, release_s: float | None, reason: str) -> None:
        """Note when the memory was seen free."""
        if self.journal is not None:
            self.journal.released(deed, now, release_s, reason)

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; None: it has closed."""
        if self.journal is not None:
            self.journal.breaker(opened)
