"""The journal: what was decided and done, on disk before it is done. SQLite in WAL mode, every commit synced.

All calls come from the thread that opened it. A kill at any moment leaves it whole.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from watchdog import clock
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.journal_brakes import begun_row, insert_begun, turn_breaker
from watchdog.export.journal_deeds import UnfinishedDeed, deed_row, encode, insert_deed, unfinished_deeds
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_file import JournalFile
from watchdog.export.journal_kept import Kept
from watchdog.export.journal_lately import actions_of
from watchdog.export.journal_prune import prune
from watchdog.export.journal_queue import Queue, Statement
from watchdog.export.journal_recent import recent_of
from watchdog.export.journal_rows import (
    INSERT,
    Row,
    base_row,
    bound,
    ended_sentence,
    entry_columns,
    is_eviction,
    released_sentence,
    row_of,
    signalled_sentence,
)
from watchdog.export.last_actions import LastAction
from watchdog.export.news import News
from watchdog.export.news_item import Event
from watchdog.export.recent import Recent
from watchdog.export.words import note

__all__ = ["Journal", "JournalError", "UnfinishedDeed"]

_MOST_CONTEXTS: Final = 1000
# Deeds write these themselves, at the very moment, and not with the report that tells of them later.
_WRITTEN_BY_DEEDS: Final = frozenset(
    {Event.KILL_BEGUN, Event.KILL_ENDED, Event.EVICT_BEGUN, Event.EVICT_ENDED, Event.RELEASED}
)
_FINAL: Final = frozenset({Result.FAILED, Result.BLOCKED, Result.GONE})


class Journal:
    """The journal of one node; `open` gives one.

    Only `open`, `intend`, `unfinished` and `lately` raise (JournalError). What the other methods can't write is kept in
    memory, up to a bound, and written once the disk takes it again. `recent` has the last deeds.
    """

    def __init__(self, file: JournalFile, limits: JournalLimits, node: str, news: News) -> None:
        self.limits = limits
        self._file = file
        self._node = node
        self._news = news
        self._queue = Queue(file, node)
        self._contexts: dict[int, Row] = {}
        self._kept = Kept()
        self.recent = Recent()
        file.use(self._kept.read)
        file.use(self._read_recent)

    @classmethod
    def open(cls, path: Path, limits: JournalLimits, node: str, remedies: Mapping[str, str] | None = None) -> Self:
        """Open or begin the journal; JournalError with the remedy otherwise. `remedies` as `News` takes them."""
        file = JournalFile(path)
        try:
            return cls(file, limits, node, News(remedies))
        except JournalError:
            file.close()
            raise

    @property
    def writable(self) -> bool:
        """Whether the last write succeeded."""
        return not self._file.problem

    @property
    def problem(self) -> str:
        """Why the last write failed, with the remedy; empty where it succeeded."""
        return self._file.problem

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences to be said loudly, in their order: that a damaged file was moved aside, and where it is."""
        return self._file.notices

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> int:
        """Commit the intention of a deed to disk, and give its number; JournalError: nothing may be signalled."""
        keys = tuple(targets)
        row = base_row("intended", self._node, now, note(entry, now, processes=len(keys))) | entry_columns(entry)

        deed = self._kept.next_deed
        begun = deed_row(deed, entry, keys, now), begun_row(deed, entry, now)

        def write(connection: sqlite3.Connection) -> None:
            insert_deed(connection, begun[0])
            insert_begun(connection, begun[1])
            connection.execute(INSERT, bound({**row, "deed": deed, "detail": encode(keys)}))

        self._file.transaction(write)
        self._kept.add(*begun)
        self.recent.take(bound({**row, "deed": deed}))
        self._remember(deed, row)
        return deed

    def signalled(self, deed: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Note which processes got which signal."""
        sent = tuple(keys)
        context = self._contexts.get(deed, {})
        row = base_row("signalled", self._node, now, signalled_sentence(context, signal, sent))
        self._queue.put([self._row({**context, **row, "deed": deed, "detail": f"{signal} {encode(sent)}"})])

    def end(self, deed: int, result: Result, reason: str, now: Now) -> None:
        """Note what came of a deed: its processes are dead, its eviction was accepted, it failed or was interrupted."""
        context = self._contexts.get(deed, {})
        event = Event.EVICT_ENDED if is_eviction(context) else Event.KILL_ENDED
        row = base_row(event.value, self._node, now, ended_sentence(context, result, reason))
        row |= {"deed": deed, "result": result.value, "reason": reason or None, "detail": None}
        update = "UPDATE deed SET result = :result, ended_s = :at WHERE id = :deed"
        values = {"result": result.value, "at": now.wall_s, "deed": deed}
        self._queue.put([(update, values), self._row({**context, **row})])
        if result in _FINAL:
            self._kept.remove(deed)
            self._contexts.pop(deed, None)

    def released(self, deed: int, now: Now, release_s: float | None, reason: str) -> None:
        """Note when the memory of a deed was seen free; None: it was not, in time."""
        self._kept.remove(deed)
        context = self._contexts.pop(deed, {})
        row = base_row(Event.RELEASED.value, self._node, now, released_sentence(context, release_s, reason))
        row |= {"deed": deed, "reason": reason or None, "detail": None}
        update = "UPDATE deed SET released_s = :at, release_s = :release_s WHERE id = :deed"
        values = {"at": now.wall_s, "release_s": release_s, "deed": deed}
        self._queue.put([(update, values), self._row({**context, **row})])

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; None: it has closed. What can't be written now is written later."""
        self._kept.turn(opened)
        if self.writable:
            with suppress(JournalError):
                self._file.transaction(lambda connection: turn_breaker(connection, opened))

    def brakes(self, now: Now) -> BrakeMemory:
        """What the brakes have to know of earlier daemons, in the time of this boot."""
        return self._kept.memory(now)

    def note(self, event: str, sentence: str, now: Now, detail: str = "") -> None:
        """Write down something of the daemon's own life: that it started, stopped, or refused a policy."""
        self._queue.put([self._row(base_row(event, self._node, now, sentence) | {"detail": detail or None})])

    def record(self, report: CycleReport) -> None:
        """Write down what is new in a report; at rest nothing is written."""
        rows = [
            row_of(item, self._node, report)
            for item in self._news.since(report)
            if item.event not in _WRITTEN_BY_DEEDS or item.outcome is None or item.outcome.deed is None
        ]
        self._queue.put([self._row(row) for row in rows])

    def later(self, statements: Iterable[Statement]) -> None:
        """Keep these to be written together with whatever is written next."""
        self._queue.later(statements)

    def unfinished(self) -> tuple[UnfinishedDeed, ...]:
        """The deeds whose end or release is not known, oldest first; JournalError. To be asked once, at the start.

        Whoever asks closes each: with `end` where it has no result, and with `released`.
        """
        found = self._file.use(unfinished_deeds)
        for deed, context in found:
            self._remember(deed.deed, context)
        return tuple(deed for deed, _ in found)

    def lately(self, now: Now) -> tuple[LastAction, ...]:
        """What was done to pods in the last quarter of an hour; JournalError."""
        return self._file.use(lambda connection: actions_of(connection, now.wall_s))

    def prune(self, now: Now) -> None:
        """Delete what is older or more than the limits say; never an unfinished deed."""
        if self.writable:
            with suppress(JournalError):
                self._file.use(lambda connection: prune(connection, self.limits, now))

    def probe(self) -> bool:
        """Where the last write failed, try again without waiting, and write what was kept; whether it works now."""
        if not self.writable:
            with suppress(JournalError):
                self._file.probe()
                # It may be another file by now, and what could not be written meanwhile is in it neither.
                self._file.transaction(self._kept.give_back)
                self._queue.flush()
        return self.writable

    def close(self) -> None:
        """Write what was kept, if the disk takes it, and close the file."""
        self._queue.flush()
        self._file.close()

    def _row(self, row: Row) -> Statement:
        values = bound(row)
        self.recent.take(values)
        return INSERT, values

    def _read_recent(self, connection: sqlite3.Connection) -> None:
        for row in recent_of(connection, clock.now().wall_s):
            self.recent.take(row)

    def _remember(self, deed: int, context: Row) -> None:
        self._contexts[deed] = context
        while len(self._contexts) > _MOST_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
