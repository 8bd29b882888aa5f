"""The journal as the daemon uses it: intentions and results of actions, changes, and earlier daemons' records."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from watchdog import clock
from watchdog.core.brakes import BrakeMemory
from watchdog.core.listed import ListedByPod
from watchdog.core.model import MaintenanceStart, Now, Pod, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.core.transfers import Windows
from watchdog.core.utilization import IdleTimes, SpentByHour
from watchdog.journal.actions import (
    BegunRow,
    RestoredActions,
    UnfinishedAction,
    delete_begun,
    encode,
    read_drained,
    read_unfinished,
    write_breaker,
    write_left,
    write_listed,
    write_maintenance,
    write_transfers,
)
from watchdog.journal.errors import JournalError
from watchdog.journal.file import LOST, JournalFile, Queue
from watchdog.journal.rows import (
    INSERT,
    Row,
    action_of,
    base_row,
    bound,
    entry_columns,
    row_of,
    signalled_sentence,
    taken_action,
)
from watchdog.journal.schema import COLUMNS, Statement, is_blank, prune
from watchdog.journal.utilization import add_card_seconds, read_idle, write_idle
from watchdog.report.changes import BEGUN, BLOCKED, ENDED, Change, ChangeKind, Changes, action_events
from watchdog.report.recent import EVENTS, KEPT_S, LAST_KEPT_S, MOST, MOST_ACTIONS, LastAction, Recent
from watchdog.report.sentences.action import end_note, release_note
from watchdog.report.sentences.following import begun_note

_ENDS: Final = (ChangeKind.WARNED, *ENDED, *BLOCKED)
_NAMED: Final = ", ".join(f"'{event.value}'" for event in _ENDS)
# A row with a time in the future was written with a wrong clock.
_SELECT_LATELY: Final = (
    "SELECT namespace, pod, coalesce(container, ''), do, result, rule, uid, wall_s FROM occurrence "
    f"WHERE wall_s BETWEEN :since AND :now AND event IN ({_NAMED}) AND result IS NOT NULL "
    "AND result <> 'withdrawn' AND namespace IS NOT NULL AND do IS NOT NULL AND rule IS NOT NULL "
    "ORDER BY id DESC LIMIT :most"
)
_ALL_COLUMNS: Final = ", ".join(COLUMNS)
_NAMED_RECENT: Final = ", ".join(f"'{event}'" for event in EVENTS)
# Two bounded queries instead of one over the whole day, which can have thousands of occurrences. An action has a
# handful of rows of these kinds, one on a fork bomb some twenty.
_SELECT_RECENT: Final = (
    f"SELECT {_ALL_COLUMNS} FROM occurrence WHERE wall_s > :since AND event IN ({_NAMED_RECENT}) AND id IN ("
    "SELECT id FROM (SELECT id FROM occurrence WHERE action_id IN "
    "(SELECT id FROM action WHERE wall_s > :since ORDER BY id DESC LIMIT :most)) "
    "UNION ALL "
    "SELECT id FROM (SELECT id FROM occurrence "
    f"WHERE wall_s > :since AND action_id IS NULL AND event IN ({_NAMED_RECENT}) "
    "ORDER BY wall_s DESC LIMIT :most)"
    ") ORDER BY id"
)
_SELECT_INTENTION: Final = f"SELECT {_ALL_COLUMNS} FROM occurrence WHERE action_id = ? AND event = 'intended'"
_MOST_CONTEXTS: Final = 1000
_RESTORED: Final = (
    "journal {path} was {changed} while the daemon was running: {lacked} records of kills and evictions, which the "
    "brakes need or which are in progress, were written to it again; the history before this may be missing"
)
# Actions write these themselves, immediately, and not with the later report.
_WRITTEN_BY_ACTIONS: Final = frozenset({*BEGUN, *ENDED, ChangeKind.RELEASED})
_CLOSE_EVERY_S: Final = 0.02
_FINAL: Final = frozenset({Result.FAILED, Result.BLOCKED, Result.GONE, Result.WITHDRAWN})


class Journal:
    """The journal of one node, made by `open`.

    Only `open`, `intend`, `record_loss`, `unfinished`, `drained`, `last_actions`, `idle_times` and `add_utilization`
    raise (JournalError). What other methods can't write is kept in memory, up to a limit, and written once the disk can
    be written again. `recent` has the recent actions. `kept` is what this daemon remembers of it, for its next journal.
    `is_blank`: nothing had ever been written to it when it was opened.
    """

    def __init__(
        self,
        file: JournalFile,
        limits: JournalLimits,
        node: str,
        remedies: Mapping[str, str] | None,
        kept: RestoredActions | None,
    ) -> None:
        self.path = file.path
        self.limits = limits
        self.kept = kept or RestoredActions()
        self.recent = Recent()
        self._file = file
        self._node = node
        self._introduction: Changes | None = Changes(remedies)
        self._queue = Queue(file, node)
        self._contexts: dict[int, Row] = {}  # the row of each action's intention, whose columns its later rows repeat
        self.is_blank: bool = file.with_connection(is_blank)
        self._changed = "lost or replaced"  # reported only if it lacks something that is remembered
        self._merge()
        file.with_connection(self._read_recent)

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
        except BaseException:
            file.close()
            raise

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
        keys, number = tuple(targets), self.kept.next_action
        row = base_row("intended", self._node, now, begun_note(entry, now, len(keys))) | entry_columns(entry)
        values = bound({**row, "action_id": number, "detail": encode(keys)})
        action, begun = UnfinishedAction.of(number, entry, keys, now), BegunRow.of(entry, now)

        def write(connection: sqlite3.Connection) -> None:
            action.insert(connection)
            begun.insert(connection, number)
            connection.execute(INSERT, values)

        self._file.transaction(write)
        self.kept.add(action, begun)
        self.recent.add_row(values)
        self._remember(number, row)
        return number

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""
        sent = tuple(keys)
        sentence = signalled_sentence(self._context(action), signal, sent)
        self._put(action, "signalled", now, sentence, {"detail": f"{signal} {encode(sent)}"})

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn before the first signal: no brake counts it and nothing waits."""
        self.kept.withdraw(action)
        no_longer = "DELETE FROM begun WHERE action_id = :action_id", {"action_id": action}
        self.end(action, Result.WITHDRAWN, reason, now, no_longer)

    def end(self, action: int, result: Result, reason: str, now: Now, *more: Statement) -> None:
        """Record the end of an action: its processes are dead, its eviction was accepted, it failed or was stopped."""
        context = self._context(action)
        event = action_events(action_of(context.get("do"))).ended.value
        update = "UPDATE action SET result = :result, ended_s = :at WHERE id = :action_id"
        values = {"result": result.value, "at": now.wall_s, "action_id": action}
        columns: Row = {"result": result.value, "reason": reason or None}
        self._put(action, event, now, end_note(taken_action(context, result, reason)), columns, (update, values), *more)
        if result in _FINAL:
            self.kept.remove(action)  # its memory may still be waited for, and that row has its columns too
        else:
            self.kept.note_result(action, result)

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long an action's memory took to be seen free; None if it was not, in time."""
        update = "UPDATE action SET released_s = :at, release_s = :release_s WHERE id = :action_id"
        values = {"at": now.wall_s, "release_s": release_s, "action_id": action}
        sentence = release_note(taken_action(self._context(action), Result.DONE, reason, release_s))
        self._put(action, ChangeKind.RELEASED.value, now, sentence, {"reason": reason or None}, (update, values))
        self.kept.remove(action)
        self._contexts.pop(action, None)

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed. If that can't be written now, it is written later."""
        self.kept.note_breaker(opened)
        self._write_state(lambda connection: write_breaker(connection, opened))

    def maintenance(self, start: MaintenanceStart | None) -> None:
        """Record when the maintenance in progress began; None: there is none. A write that fails is made up for."""
        self.kept.maintenance = start
        self._write_state(lambda connection: write_maintenance(connection, start))

    def left(self, pods: tuple[Pod, ...]) -> None:
        """Record the pods that have left, and no others. A write that fails is made up for."""
        self.kept.left = pods
        self._write_state(lambda connection: write_left(connection, pods))

    def listed(self, changes: ListedByPod) -> None:
        """Record further resources that the node listed in pods' lives. A write that fails is made up for."""
        self.kept.note_listed(changes)
        self._write_state(lambda connection: write_listed(connection, changes))

    def transfers(self, windows: Windows) -> None:
        """Record whose bytes count as unknown, or did in the last hour. A write that fails is made up for."""
        self.kept.transfers = windows
        self._write_state(lambda connection: write_transfers(connection, windows))

    def add_utilization(self, spent: SpentByHour, idle: IdleTimes) -> None:
        """Add card-seconds, and record for how long accounts have computed nothing; JournalError: nothing is added."""

        def write(connection: sqlite3.Connection) -> None:
            add_card_seconds(connection, spent)
            write_idle(connection, idle)

        if not self.writable:
            raise JournalError(self.problem)  # only `probe` tries whether the disk can be written again
        self._file.transaction(write)

    def idle_times(self) -> IdleTimes | None:
        """For how long accounts had computed nothing when that was last noted; None: none had. JournalError."""
        return self._file.with_connection(read_idle)

    def _write_state(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write what is remembered too, so that it is written later if it can't be now."""
        if self.writable:
            with suppress(JournalError):
                self._file.transaction(write)

    def record_loss(self, now: Now) -> None:
        """Record that earlier actions are lost, so that the brakes count as full from now on; JournalError."""
        self.kept.mark_lost(now)
        self._file.transaction(self.kept.write_missing)

    def brakes(self, now: Now) -> BrakeMemory:
        """What the brakes remember from earlier daemons, in the time of this boot."""
        return self.kept.memory(now)

    def record_event(self, event: str, sentence: str, now: Now) -> None:
        """Record an event of the daemon itself: that it started, stopped, or rejected a policy."""
        self.write([base_row(event, self._node, now, sentence)])

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
        self._queue.put([self._statement(row) for row in rows])

    def count_lost(self, number: int) -> None:
        """Count lost records; the next write reports them."""
        self._queue.count_lost(number)

    def queue_statements(self, statements: Iterable[Statement]) -> None:
        """Queue these to be written together with the next statements."""
        self._queue.put_later(statements)

    def unfinished(self) -> tuple[UnfinishedAction, ...]:
        """The actions without a known end or release, oldest first; JournalError. To be called once, at startup.

        The caller closes each one: with `end` if it has no result, and with `released`.
        """
        return self._file.with_connection(self._read_unfinished)

    def drained(self, now: Now) -> frozenset[ProcessKey]:
        """The processes that were to be drained in this boot; JournalError."""
        return self._file.with_connection(lambda connection: read_drained(connection, now.boot_id))

    def last_actions(self, now: Now) -> tuple[LastAction, ...]:
        """The actions on pods in the last 15 minutes, oldest first; JournalError."""
        values = {"since": now.wall_s - LAST_KEPT_S, "now": now.wall_s, "most": MOST}
        rows = self._file.with_connection(lambda connection: connection.execute(_SELECT_LATELY, values).fetchall())
        return tuple(LastAction(labels=row[:6], uid=row[6], wall_s=row[7]) for row in reversed(rows))

    def prune(self, now: Now) -> None:
        """Delete what is beyond the limits of age and size, but never an unfinished action."""
        if self.writable:
            needless = self.kept.forget(now)
            with suppress(JournalError):
                self._file.with_connection(lambda connection: delete_begun(connection, needless))
                self._file.with_connection(lambda connection: prune(connection, self.limits, now))

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
                self._file.transaction(self.kept.write_missing)
            self._queue.flush()
        return self.writable

    def close(self, within_s: float = 0.0) -> str:
        """Write what is queued, trying for this long if the disk can't be written, and close the file.

        Returns what could not be written and is lost, and why; empty: nothing.
        """
        until = time.monotonic() + within_s
        self._queue.flush()
        while not self._queue.is_empty and time.monotonic() < until:
            time.sleep(_CLOSE_EVERY_S)
            self.probe()
        lost, problem = self._queue.waiting, self.problem
        self._file.close()
        return f"{problem}; records that are lost: {lost}" if lost else ""

    def _merge(self) -> None:
        """Merge the file with what is remembered, both ways; JournalError."""
        lacked = self._file.transaction(self.kept.merge)
        changed, self._changed = self._changed, ""
        if lacked or changed == LOST:
            notice = _RESTORED.format(path=self.path, changed=changed, lacked=lacked)
            self._file.notices += (notice,)
            self.record_event(ChangeKind.JOURNAL_RESTORED.value, notice, clock.now())

    def _put(self, action: int, event: str, now: Now, sentence: str, columns: Row, *updates: Statement) -> None:
        """Queue an occurrence of an action, with the columns of its intention, after these updates."""
        row = self._context(action) | base_row(event, self._node, now, sentence) | {"action_id": action, "detail": None}
        self._queue.put([*updates, self._statement(row | columns)])

    def _statement(self, row: Row) -> Statement:
        values = bound(row)
        self.recent.add_row(values)
        return INSERT, values

    def _read_recent(self, connection: sqlite3.Connection) -> None:
        values = {"since": clock.now().wall_s - KEPT_S, "most": MOST_ACTIONS}
        for row in connection.execute(_SELECT_RECENT, values):
            self.recent.add_row(dict(zip(COLUMNS, row, strict=True)))

    def _read_unfinished(self, connection: sqlite3.Connection) -> tuple[UnfinishedAction, ...]:
        actions = read_unfinished(connection)
        for action in actions:
            row = connection.execute(_SELECT_INTENTION, (action.number,)).fetchone()
            self._remember(action.number, dict(zip(COLUMNS, row, strict=True)) if row is not None else {})
        return tuple(actions)

    def _context(self, action: int) -> Row:
        return self._contexts.get(action, {})

    def _remember(self, action: int, context: Row) -> None:
        self._contexts[action] = context
        while len(self._contexts) > _MOST_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
