"""The journal as the daemon uses it: intentions and results of actions, changes, and earlier daemons' records."""

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
    unfinished_actions,
    withdrawn,
    write_breaker,
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
from watchdog.journal.schema import COLUMNS, is_blank, prune
from watchdog.report.changes import Change, ChangeKind, Changes, action_events
from watchdog.report.recent import EVENTS, KEPT_S, LAST_KEPT_S, MOST, MOST_ACTIONS, LastAction, Recent
from watchdog.report.sentences.following import begun_writer
from watchdog.report.text import fit

_ENDS: Final = (ChangeKind.WARNED, ChangeKind.KILL_ENDED, ChangeKind.EVICT_ENDED, ChangeKind.EVICT_BLOCKED)
_NAMED: Final = ", ".join(f"'{event.value}'" for event in _ENDS)
# A row with a time in the future was written with a wrong clock.
_SELECT: Final = (
    "SELECT namespace, pod, coalesce(container, ''), do, result, rule, uid, wall_s FROM occurrence "
    f"WHERE wall_s BETWEEN :since AND :now AND event IN ({_NAMED}) AND result IS NOT NULL "
    "AND result <> 'withdrawn' AND namespace IS NOT NULL AND do IS NOT NULL AND rule IS NOT NULL "
    "ORDER BY id DESC LIMIT :most"
)


def actions_of(connection: sqlite3.Connection, now_s: float) -> tuple[LastAction, ...]:
    """The actions in the 15 minutes before a moment (Unix time), oldest first, at most MOST."""
    found = connection.execute(_SELECT, {"since": now_s - LAST_KEPT_S, "now": now_s, "most": MOST}).fetchall()
    return tuple(LastAction(labels=row[:6], uid=row[6], wall_s=row[7]) for row in reversed(found))


_NAMED_RECENT: Final = ", ".join(f"'{event}'" for event in EVENTS)
# Two bounded queries instead of one over the whole day, which can have thousands of occurrences. An action has a
# handful of rows of these kinds, one on a fork bomb some twenty.
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
# Actions write these themselves, immediately, and not with the later report.
_WRITTEN_BY_ACTIONS: Final = frozenset(
    {ChangeKind.KILL_BEGUN, ChangeKind.KILL_ENDED, ChangeKind.EVICT_BEGUN, ChangeKind.EVICT_ENDED, ChangeKind.RELEASED}
)
_FINAL: Final = frozenset({Result.FAILED, Result.BLOCKED, Result.GONE})


class Journal:
    """The journal of one node, made by `open`.

    Only `open`, `intend`, `unfinished` and `lately` raise (JournalError). What the other methods can't write is kept in
    memory, up to a limit, and written once the disk can be written again. `recent` has the last actions. `is_blank`:
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
        self._changed = "lost or replaced"  # reported only if it lacks something that is remembered
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
        """Open or create the journal; JournalError with the remedy otherwise. `remedies` are those for `Changes`.

        `kept` is what this daemon remembers from its previous journal: what the new one lacks is written to it.
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
        """What this daemon remembers of it, for its next journal."""
        return self._kept

    @property
    def writable(self) -> bool:
        """Whether the last write succeeded."""
        return not self._file.problem

    @property
    def problem(self) -> str:
        """Why the last write failed, with the remedy; empty if it succeeded."""
        return self._file.problem

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences to be logged as errors, in order, such as that a damaged file was moved aside."""
        return self._file.notices

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> int:
        """Commit the intention of an action to disk; returns its number. JournalError: nothing may be signalled."""
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
        """Record which processes got which signal."""
        sent = tuple(keys)
        context = self._contexts.get(action, {})
        row = base_row("signalled", self._node, now, signalled_sentence(context, signal, sent))
        self._queue.put([self._row({**context, **row, "deed": action, "detail": f"{signal} {encode(sent)}"})])

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Record the end of an action: its processes are dead, its eviction was accepted, it failed or was stopped."""
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
        """Record that an intention was withdrawn before the first signal: no brake counts it and nothing waits."""
        self._kept.withdraw(action)
        context = self._contexts.pop(action, {})
        event = action_events(action_of(context.get("do"))).ended
        row = base_row(event.value, self._node, now, ended_sentence(context, Result.WITHDRAWN, reason))
        row |= {"deed": action, "result": Result.WITHDRAWN.value, "reason": reason or None, "detail": None}
        self._queue.put([*withdrawn(action, now), self._row({**context, **row})])

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long an action's memory took to be seen free; None if it was not, in time."""
        self._kept.remove(action)
        context = self._contexts.pop(action, {})
        row = base_row(ChangeKind.RELEASED.value, self._node, now, released_sentence(context, release_s, reason))
        row |= {"deed": action, "reason": reason or None, "detail": None}
        update = "UPDATE deed SET released_s = :at, release_s = :release_s WHERE id = :deed"
        values = {"at": now.wall_s, "release_s": release_s, "deed": action}
        self._queue.put([(update, values), self._row({**context, **row})])

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed. If that can't be written now, it is written later."""
        self._kept.note_breaker(opened)
        if self.writable:
            with suppress(JournalError):
                self._file.transaction(lambda connection: write_breaker(connection, opened))

    def presume(self, now: Now) -> None:
        """Record that earlier actions are lost, so that the brakes count as full from now on; JournalError."""
        row = self._kept.lose(now)
        self._file.transaction(lambda connection: insert_begun(connection, row))

    def brakes(self, now: Now) -> BrakeMemory:
        """What the brakes remember from earlier daemons, in the time of this boot."""
        return self._kept.memory(now)

    def note(self, event: str, sentence: str, now: Now, detail: str = "") -> None:
        """Record an event of the daemon itself: that it started, stopped, or rejected a policy."""
        self._queue.put([self._row(base_row(event, self._node, now, sentence) | {"detail": detail or None})])

    def record(self, report: CycleReport, changes: Iterable[Change]) -> None:
        """Write a report's changes; without any, nothing is written."""
        self.write(self.rows_of(report, changes))

    def rows_of(self, report: CycleReport, changes: Iterable[Change]) -> list[Row]:
        """The rows of a report's changes, without disk access.

        The first report is recorded in full, since the journal may have been opened long after the daemon started.
        """
        introduction, self._introduction = self._introduction, None
        return [
            row_of(item, self._node, report)
            for item in (changes if introduction is None else introduction.since(report))
            if not item.is_repeated
            and (item.event not in _WRITTEN_BY_ACTIONS or item.outcome is None or item.outcome.number is None)
        ]

    def write(self, rows: Iterable[Row]) -> None:
        """Write these rows."""
        self._queue.put([self._row(row) for row in rows])

    def count_lost(self, number: int) -> None:
        """Count lost records; the next write reports them."""
        self._queue.count_lost(number)

    def later(self, statements: Iterable[Statement]) -> None:
        """Queue these to be written together with the next statements."""
        self._queue.later(statements)

    def unfinished(self) -> tuple[UnfinishedAction, ...]:
        """The actions without a known end or release, oldest first; JournalError. To be called once, at startup.

        The caller closes each one: with `end` if it has no result, and with `released`.
        """
        found = self._file.use(unfinished_actions)
        for action, context in found:
            self._remember(action.number, context)
        return tuple(action for action, _ in found)

    def lately(self, now: Now) -> tuple[LastAction, ...]:
        """The actions on pods in the last 15 minutes; JournalError."""
        return self._file.use(lambda connection: actions_of(connection, now.wall_s))

    def prune(self, now: Now) -> None:
        """Delete what is beyond the limits of age and size, but never an unfinished action."""
        if self.writable:
            needless = self._kept.forget(now)
            with suppress(JournalError):
                self._file.use(lambda connection: delete_begun(connection, needless))
                self._file.use(lambda connection: prune(connection, self.limits, now))

    def probe(self) -> bool:
        """Merge a file that another process changed, and retry if the last write failed; return whether it is writable.

        It does not wait. What is remembered and could not be written meanwhile is written as well.
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
        """Write what is queued, if the disk can be written, and close the file."""
        self._queue.flush()
        self._file.close()

    def _merge(self) -> None:
        """Merge the file with what is remembered, both ways; JournalError."""
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
