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
from watchdog.core.plan import PlanEntry, Result
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
from watchdog.journal.recent import read_intention, read_last, read_recent
from watchdog.journal.rows import (
    INSERT,
    ReportRows,
    Row,
    action_of,
    base_row,
    bound,
    entry_columns,
    signalled_sentence,
    taken_action,
)
from watchdog.journal.schema import Statement, is_blank, prune
from watchdog.journal.utilization import add_card_seconds, read_idle, write_idle
from watchdog.report.changes import ChangeKind, action_events
from watchdog.report.recent import LastAction, Recent
from watchdog.report.sentences.action import end_note, release_note
from watchdog.report.sentences.following import begun_note

_MOST_INTENTIONS: Final = 1000
_RESTORED: Final = (
    "journal {path} was {changed} while the daemon was running: {lacked} records of kills and evictions, which the "
    "brakes need or which are in progress, were written to it again; the history before this may be missing"
)
_CLOSE_EVERY_S: Final = 0.02
_FINAL: Final = frozenset({Result.FAILED, Result.BLOCKED, Result.GONE, Result.WITHDRAWN})


class _IntentionRows:
    """The rows of the intentions of actions in progress, whose columns their later rows repeat."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    def row(self, action: int) -> Row:
        """The row of an action's intention; empty if it is not known."""
        return self._rows.get(action, {})

    def add(self, action: int, row: Row) -> None:
        """Keep the row of an intention; beyond a limit the oldest is forgotten."""
        self._rows[action] = row
        while len(self._rows) > _MOST_INTENTIONS:
            del self._rows[next(iter(self._rows))]

    def remove(self, action: int) -> None:
        """Forget an action that has no further rows."""
        self._rows.pop(action, None)


class Journal:
    """The journal of one node, made by `open`.

    Only `open`, `intend`, `record_loss`, `unfinished`, `drained`, `last_actions`, `idle_times` and `add_utilization`
    raise (JournalError). What other methods can't write is kept in memory, up to a limit, and written once the disk can
    be written again. `recent` has the recent actions. `kept` is what this daemon remembers of it, for its next journal.
    `report_rows` makes the rows for `write`. `is_blank`: nothing had ever been written to it when it was opened.
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
        self.report_rows = ReportRows(node, remedies)
        self._file = file
        self._node = node
        self._queue = Queue(file, node)
        self._intentions = _IntentionRows()
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
        self._intentions.add(number, row)
        return number

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""
        sent = tuple(keys)
        sentence = signalled_sentence(self._intentions.row(action), signal, sent)
        self._put(action, "signalled", now, sentence, {"detail": f"{signal} {encode(sent)}"})

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn before the first signal: no brake counts it and nothing waits."""
        self.kept.withdraw(action)
        no_longer = "DELETE FROM begun WHERE action_id = :action_id", {"action_id": action}
        self.end(action, Result.WITHDRAWN, reason, now, no_longer)

    def end(self, action: int, result: Result, reason: str, now: Now, *more: Statement) -> None:
        """Record the end of an action: its processes are dead, its eviction was accepted, it failed or was stopped."""
        context = self._intentions.row(action)
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
        sentence = release_note(taken_action(self._intentions.row(action), Result.DONE, reason, release_s))
        self._put(action, ChangeKind.RELEASED.value, now, sentence, {"reason": reason or None}, (update, values))
        self.kept.remove(action)
        self._intentions.remove(action)

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
        return self._file.with_connection(lambda connection: read_last(connection, now.wall_s))

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
        base = base_row(event, self._node, now, sentence) | {"action_id": action, "detail": None}
        self._queue.put([*updates, self._statement(self._intentions.row(action) | base | columns)])

    def _statement(self, row: Row) -> Statement:
        values = bound(row)
        self.recent.add_row(values)
        return INSERT, values

    def _read_recent(self, connection: sqlite3.Connection) -> None:
        for row in read_recent(connection, clock.now().wall_s):
            self.recent.add_row(row)

    def _read_unfinished(self, connection: sqlite3.Connection) -> tuple[UnfinishedAction, ...]:
        actions = read_unfinished(connection)
        for action in actions:
            self._intentions.add(action.number, read_intention(connection, action.number))
        return tuple(actions)
