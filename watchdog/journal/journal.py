"""The journal as the daemon uses it: intentions and signals of actions, changes, and what earlier daemons left."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from watchdog import clock
from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.actions import (
    RestoredActions,
    UnfinishedAction,
    action_row,
    begun_row,
    delete_begun,
    encode,
    insert_action,
    insert_begun,
    prune,
    turn_breaker,
    unfinished_actions,
    withdrawn,
)
from watchdog.journal.errors import JournalError
from watchdog.journal.file import LOST, JournalFile, Queue, Statement
from watchdog.journal.rows import (
    INSERT,
    Row,
    action_of,
    base_row,
    bound,
    ended_sentence,
    entry_columns,
    released_sentence,
    row_of,
    signalled_sentence,
)
from watchdog.journal.schema import COLUMNS, is_blank
from watchdog.report.actions import fit
from watchdog.report.changes import Change, ChangeKind, Changes, action_events
from watchdog.report.next import begun_writer
from watchdog.report.recent import EVENTS, KEPT_S, LAST_KEPT_S, MOST, MOST_ACTIONS, LastAction, Recent

_ENDS: Final = (ChangeKind.WARNED, ChangeKind.KILL_ENDED, ChangeKind.EVICT_ENDED, ChangeKind.EVICT_BLOCKED)
_NAMED: Final = ", ".join(f"'{event.value}'" for event in _ENDS)
# What stands there of a time that is still to come was written by a clock that was wrong.
_SELECT: Final = (
    "SELECT namespace, pod, coalesce(container, ''), do, result, rule, uid, wall_s FROM occurrence "
    f"WHERE wall_s BETWEEN :since AND :now AND event IN ({_NAMED}) AND result IS NOT NULL "
    "AND result <> 'withdrawn' AND namespace IS NOT NULL AND do IS NOT NULL AND rule IS NOT NULL "
    "ORDER BY id DESC LIMIT :most"
)


def actions_of(connection: sqlite3.Connection, now_s: float) -> tuple[LastAction, ...]:
    """What was done in the quarter of an hour before a moment (Unix time), oldest first, no more than MOST."""
    found = connection.execute(_SELECT, {"since": now_s - LAST_KEPT_S, "now": now_s, "most": MOST}).fetchall()
    return tuple(LastAction(labels=row[:6], uid=row[6], wall_s=row[7]) for row in reversed(found))


_NAMED_RECENT: Final = ", ".join(f"'{event}'" for event in EVENTS)
# Two bounded looks instead of one over the whole day: a node can have thousands of occurrences in it. An action has a
# handful of rows of these kinds, and a fork bomb's some twenty.
_SELECT_RECENT: Final = (
    f"SELECT {', '.join(COLUMNS)} FROM occurrence WHERE wall_s > :since AND event IN ({_NAMED_RECENT}) AND id IN ("
    "SELECT id FROM (SELECT id FROM occurrence WHERE deed IN "
    "(SELECT id FROM deed WHERE wall_s > :since ORDER BY id DESC LIMIT :most)) "
    "UNION ALL "
    f"SELECT id FROM (SELECT id FROM occurrence WHERE wall_s > :since AND deed IS NULL AND event IN ({_NAMED_RECENT}) "
    "ORDER BY wall_s DESC LIMIT :most)"
    ") ORDER BY id"
)


def recent_of(connection: sqlite3.Connection, now_s: float) -> Iterator[dict[str, Any]]:
    """The rows of the actions of the last day (before a Unix time), oldest first, as `Recent.take` reads them."""
    values = {"since": now_s - KEPT_S, "most": MOST_ACTIONS}
    for row in connection.execute(_SELECT_RECENT, values).fetchall():
        yield dict(zip(COLUMNS, row, strict=True))


_MOST_CONTEXTS: Final = 1000
_RESTORED: Final = (
    "journal {path} was {changed} while the daemon was running: {lacked} records of kills and evictions, which the "
    "brakes need or which are in progress, were written to it again; the history before this may be missing"
)
# Actions write these themselves, at the very moment, and not with the report that tells of them later.
_WRITTEN_BY_DEEDS: Final = frozenset(
    {ChangeKind.KILL_BEGUN, ChangeKind.KILL_ENDED, ChangeKind.EVICT_BEGUN, ChangeKind.EVICT_ENDED, ChangeKind.RELEASED}
)
_FINAL: Final = frozenset({Result.FAILED, Result.BLOCKED, Result.GONE})


class Journal:
    """The journal of one node; `open` gives one.

    Only `open`, `intend`, `unfinished` and `lately` raise (JournalError). What the other methods can't write is kept in
    memory, up to a bound, and written once the disk takes it again. `recent` has the last actions. `is_blank` says that
    nothing had ever been written to it when it was opened.
    """

    def __init__(
        self,
        file: JournalFile,
        limits: JournalLimits,
        node: str,
        remedies: Mapping[str, str] | None = None,
        kept: RestoredActions | None = None,
    ) -> None:
        self.limits = limits
        self._file = file
        self._node = node
        self._introduction: Changes | None = Changes(remedies)
        self._queue = Queue(file, node)
        self._contexts: dict[int, Row] = {}
        self._kept = RestoredActions() if kept is None else kept
        self.recent = Recent()
        self.is_blank: bool = file.use(is_blank)
        self._changed = "lost or replaced"  # as far as what is remembered is not in it
        self._merge()
        file.use(self._read_recent)

    @classmethod
    def open(
        cls,
        path: Path,
        limits: JournalLimits,
        node: str,
        remedies: Mapping[str, str] | None = None,
        kept: RestoredActions | None = None,
    ) -> Self:
        """Open or begin the journal; JournalError with the remedy otherwise. `remedies` as `Changes` takes them.

        `kept` is what this daemon remembers of the journal that it had before: what the new one lacks is written to it.
        """
        file = JournalFile(path)
        try:
            return cls(file, limits, node, remedies, kept)
        except JournalError:
            file.close()
            raise

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._file.path

    @property
    def kept(self) -> RestoredActions:
        """What this daemon remembers of it, for the journal that comes after it."""
        return self._kept

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
        """Commit the intention of an action to disk, and give its number; JournalError: nothing may be signalled."""
        keys = tuple(targets)
        row = base_row("intended", self._node, now, fit(begun_writer(entry, now, len(keys)))) | entry_columns(entry)

        action = self._kept.next_action
        begun = action_row(action, entry, keys, now), begun_row(action, entry, now)

        def write(connection: sqlite3.Connection) -> None:
            insert_action(connection, begun[0])
            insert_begun(connection, begun[1])
            connection.execute(INSERT, bound({**row, "deed": action, "detail": encode(keys)}))

        self._file.transaction(write)
        self._kept.add(*begun)
        self.recent.take(bound({**row, "deed": action}))
        self._remember(action, row)
        return action

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Note which processes got which signal."""
        sent = tuple(keys)
        context = self._contexts.get(action, {})
        row = base_row("signalled", self._node, now, signalled_sentence(context, signal, sent))
        self._queue.put([self._row({**context, **row, "deed": action, "detail": f"{signal} {encode(sent)}"})])

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Note what came of an action: its processes are dead, its eviction was accepted, it failed or was stopped."""
        context = self._contexts.get(action, {})
        event = action_events(action_of(context.get("do"))).ended
        row = base_row(event.value, self._node, now, ended_sentence(context, result, reason))
        row |= {"deed": action, "result": result.value, "reason": reason or None, "detail": None}
        update = "UPDATE deed SET result = :result, ended_s = :at WHERE id = :deed"
        values = {"result": result.value, "at": now.wall_s, "deed": action}
        self._queue.put([(update, values), self._row({**context, **row})])
        if result in _FINAL:
            self._kept.remove(action)
            self._contexts.pop(action, None)

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Note that an intention came to nothing before the first signal: no brake counts it, and nobody waits."""
        self._kept.withdraw(action)
        context = self._contexts.pop(action, {})
        event = action_events(action_of(context.get("do"))).ended
        row = base_row(event.value, self._node, now, ended_sentence(context, Result.WITHDRAWN, reason))
        row |= {"deed": action, "result": Result.WITHDRAWN.value, "reason": reason or None, "detail": None}
        self._queue.put([*withdrawn(action, now), self._row({**context, **row})])

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Note when the memory of an action was seen free; None: it was not, in time."""
        self._kept.remove(action)
        context = self._contexts.pop(action, {})
        row = base_row(ChangeKind.RELEASED.value, self._node, now, released_sentence(context, release_s, reason))
        row |= {"deed": action, "reason": reason or None, "detail": None}
        update = "UPDATE deed SET released_s = :at, release_s = :release_s WHERE id = :deed"
        values = {"at": now.wall_s, "release_s": release_s, "deed": action}
        self._queue.put([(update, values), self._row({**context, **row})])

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; None: it has closed. What can't be written now is written later."""
        self._kept.turn(opened)
        if self.writable:
            with suppress(JournalError):
                self._file.transaction(lambda connection: turn_breaker(connection, opened))

    def presume(self, now: Now) -> None:
        """Write down that what was begun before is lost, so the brakes count as full from now on; JournalError."""
        row = self._kept.lose(now)
        self._file.transaction(lambda connection: insert_begun(connection, row))

    def brakes(self, now: Now) -> BrakeMemory:
        """What the brakes have to know of earlier daemons, in the time of this boot."""
        return self._kept.memory(now)

    def note(self, event: str, sentence: str, now: Now, detail: str = "") -> None:
        """Write down something of the daemon's own life: that it started, stopped, or refused a policy."""
        self._queue.put([self._row(base_row(event, self._node, now, sentence) | {"detail": detail or None})])

    def record(self, report: CycleReport, changes: Iterable[Change]) -> None:
        """Write down a report's changes; at rest nothing is written."""
        self.write(self.rows_of(report, changes))

    def rows_of(self, report: CycleReport, changes: Iterable[Change]) -> list[Row]:
        """The rows of a report's changes; no disk is needed for that.

        Of the first report everything is new to this journal, which may have been opened long after the daemon began.
        """
        introduction, self._introduction = self._introduction, None
        return [
            row_of(item, self._node, report)
            for item in (changes if introduction is None else introduction.since(report))
            if item.event not in _WRITTEN_BY_DEEDS or item.outcome is None or item.outcome.number is None
        ]

    def write(self, rows: Iterable[Row]) -> None:
        """Write these rows."""
        self._queue.put([self._row(row) for row in rows])

    def lose(self, number: int) -> None:
        """Count records that were lost before they came here; the next one that is written says so."""
        self._queue.lose(number)

    def later(self, statements: Iterable[Statement]) -> None:
        """Keep these to be written together with whatever is written next."""
        self._queue.later(statements)

    def unfinished(self) -> tuple[UnfinishedAction, ...]:
        """The actions whose end or release is not known, oldest first; JournalError. To be asked once, at the start.

        Whoever asks closes each: with `end` where it has no result, and with `released`.
        """
        found = self._file.use(unfinished_actions)
        for action, context in found:
            self._remember(action.number, context)
        return tuple(action for action, _ in found)

    def lately(self, now: Now) -> tuple[LastAction, ...]:
        """What was done to pods in the last quarter of an hour; JournalError."""
        return self._file.use(lambda connection: actions_of(connection, now.wall_s))

    def prune(self, now: Now) -> None:
        """Delete what is older or more than the limits say; never an unfinished action."""
        if self.writable:
            needless = self._kept.forget(now)
            with suppress(JournalError):
                self._file.use(lambda connection: delete_begun(connection, needless))
                self._file.use(lambda connection: prune(connection, self.limits, now))

    def probe(self) -> bool:
        """Merge a file that somebody has changed, and where the last write failed, try again; whether it works now.

        Nothing is waited for. What is remembered and could not be written meanwhile is written too.
        """
        was_writable = self.writable
        with suppress(JournalError):
            self._changed = self._file.probe() or self._changed
            if self._changed:
                self._merge()
            elif not was_writable:
                self._file.transaction(self._kept.give_back)
            self._queue.flush()
        return self.writable

    def close(self) -> None:
        """Write what was kept, if the disk takes it, and close the file."""
        self._queue.flush()
        self._file.close()

    def _merge(self) -> None:
        """Give the file what it lacks of what is remembered, and remember what else it has; JournalError."""
        lacked = self._file.transaction(self._kept.merge)
        changed, self._changed = self._changed, ""
        if lacked or changed == LOST:
            notice = _RESTORED.format(path=self._file.path, changed=changed, lacked=lacked)
            self._file.notices += (notice,)
            self.note(ChangeKind.JOURNAL_RESTORED.value, notice, clock.now())

    def _row(self, row: Row) -> Statement:
        values = bound(row)
        self.recent.take(values)
        return INSERT, values

    def _read_recent(self, connection: sqlite3.Connection) -> None:
        for row in recent_of(connection, clock.now().wall_s):
            self.recent.take(row)

    def _remember(self, action: int, context: Row) -> None:
        self._contexts[action] = context
        while len(self._contexts) > _MOST_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
