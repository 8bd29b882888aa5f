"""The journal's records that outlive the daemon: unfinished actions, and what the brakes remember."""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import (
    FORGOTTEN_AFTER_S,
    MOST_REMEMBERED,
    Begun,
    BrakeMemory,
    BrakeScope,
    in_this_boot_s,
    owner_of,
)
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.journal.file import Statement
from watchdog.journal.rows import Row, storable_text
from watchdog.journal.schema import COLUMNS, UNFINISHED


class BegunRow(NamedTuple):
    """A row of `begun`, by column: an action of which owner began when. The owner's names are as stored."""

    action: int
    namespace: str
    owner_kind: str
    owner_name: str
    boot_id: str
    boottime_s: float
    wall_s: float

    @property
    def owner(self) -> BrakeScope:
        """The owner for whom it counts."""
        return (self.namespace, self.owner_kind, self.owner_name)

    @property
    def at(self) -> Now:
        """When it began."""
        return Now(boottime_s=self.boottime_s, wall_s=self.wall_s, boot_id=self.boot_id)


# Not the number of an action: the row marks when an earlier journal was lost, with the actions begun before.
LOST: Final = 0
_INSERT_BEGUN: Final = "INSERT OR IGNORE INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM begun WHERE deed IN (SELECT value FROM json_each(?))"
_SELECT_BEGUN: Final = "SELECT * FROM begun ORDER BY deed"
_OPEN_BREAKER: Final = "INSERT OR REPLACE INTO breaker VALUES (1, ?, ?, ?)"
_CLOSE_BREAKER: Final = "DELETE FROM breaker"


def begun_row(action: int, entry: PlanEntry, now: Now) -> BegunRow:
    """The row for an action that begins now."""
    namespace, kind, name = (storable_text(part) for part in owner_of(entry.assessment.pod))
    return BegunRow(action, namespace, kind, name, now.boot_id, now.boottime_s, now.wall_s)


def lost_row(now: Now) -> BegunRow:
    """The row that marks everything begun before this moment as lost."""
    return BegunRow(LOST, "", "", "", now.boot_id, now.boottime_s, now.wall_s)


def insert_begun(connection: sqlite3.Connection, row: BegunRow) -> bool:
    """Insert the row, in the transaction of its intention; return whether it was new."""
    return connection.execute(_INSERT_BEGUN, row).rowcount > 0


def delete_begun(connection: sqlite3.Connection, actions: Collection[int]) -> None:
    """Delete actions that no brake needs any more."""
    if actions:
        connection.execute(_FORGET, (json.dumps([*actions]),))


def write_breaker(connection: sqlite3.Connection, opened: Now | None) -> None:
    """Write when the breaker opened; None: it is closed."""
    if opened is None:
        connection.execute(_CLOSE_BREAKER)
    else:
        connection.execute(_OPEN_BREAKER, (opened.boot_id, opened.boottime_s, opened.wall_s))


def read_begun(connection: sqlite3.Connection) -> tuple[list[BegunRow], Now | None]:
    """The actions that count, oldest first, and when the breaker opened (None: it is closed)."""
    row = connection.execute("SELECT boottime_s, wall_s, boot_id FROM breaker").fetchone()
    opened = None
    if row is not None:
        boottime_s, wall_s, boot_id = row
        opened = Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id)
    return [BegunRow._make(row) for row in connection.execute(_SELECT_BEGUN)], opened


def brake_memory(rows: Collection[BegunRow], opened: Now | None, now: Now, read_at: Now) -> BrakeMemory:
    """The memory of the brakes from these rows, in the time of this boot.

    The age of actions of an earlier boot is taken from the wall clock at `read_at`, when this daemon first read them.
    """

    def in_s(moment: Now) -> float:
        return in_this_boot_s(moment, now if moment.boot_id == now.boot_id else read_at)

    moments = {row.action: in_s(row.at) for row in rows}
    lost_s = moments.pop(LOST, None)
    memory = BrakeMemory.of((row.owner, Begun(moments[row.action])) for row in rows if row.action != LOST)
    return replace(memory, opened=None if opened is None else Begun(in_s(opened)), lost_s=lost_s)


class ActionRow(NamedTuple):
    """A row of `deed`, with the columns used here; `targets` is JSON, pairs of PID and start ticks."""

    id: int
    uid: str
    container: str | None
    gpu: str | None
    step: int
    victim: str
    targets: str
    boot_id: str
    boottime_s: float
    wall_s: float
    result: str | None

    @property
    def action(self) -> "UnfinishedAction":
        """The row as an unfinished action."""
        return UnfinishedAction(
            number=self.id,
            uid=self.uid,
            account=AccountKey(uid=self.uid, container=self.container, gpu=self.gpu),
            step=self.step,
            victim=self.victim,
            targets=tuple(ProcessKey(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(self.targets)),
            began=Now(boottime_s=self.boottime_s, wall_s=self.wall_s, boot_id=self.boot_id),
            result=Result(self.result) if self.result is not None else None,
        )


_ACTION_COLUMNS: Final = ", ".join(ActionRow._fields)
_INSERT: Final = f"INSERT OR IGNORE INTO deed ({_ACTION_COLUMNS}) VALUES ({', '.join('?' * len(ActionRow._fields))})"
_SELECT_UNFINISHED: Final = f"SELECT {_ACTION_COLUMNS} FROM deed WHERE {UNFINISHED} ORDER BY id"
# For an AUTOINCREMENT table, sqlite_sequence has the highest number ever inserted, but not one set by UPDATE.
_LAST: Final = (
    "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'deed'), 0), "
    "coalesce((SELECT max(id) FROM deed), 0), coalesce((SELECT max(deed) FROM begun), 0))"
)
_MOMENTS: Final = "SELECT id, boot_id, boottime_s FROM deed UNION SELECT deed, boot_id, boottime_s FROM begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedAction:
    """An action without an end or release in the journal, as found by a daemon that starts."""

    number: int
    uid: str
    account: AccountKey
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    began: Now
    result: Result | None


def action_row(action: int, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> ActionRow:
    """The row for an action that is about to begin."""
    container, gpu = entry.account.container, entry.account.gpu
    return ActionRow(
        id=action,
        uid=storable_text(entry.account.uid),
        container=None if container is None else storable_text(container),
        gpu=None if gpu is None else storable_text(gpu),
        step=entry.step,
        victim=storable_text(entry.victim),
        targets=encode(keys),
        boot_id=now.boot_id,
        boottime_s=now.boottime_s,
        wall_s=now.wall_s,
        result=None,
    )


def insert_action(connection: sqlite3.Connection, row: ActionRow) -> bool:
    """Insert an action; return whether it was new."""
    return connection.execute(_INSERT, row).rowcount > 0


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number that an action ever had; 0 if there was none."""
    return int(connection.execute(_LAST).fetchone()[0])


def moments_of(connection: sqlite3.Connection) -> list[tuple[int, str, float]]:
    """The number of each action, with the boot ID and the boot time of its start."""
    return connection.execute(_MOMENTS).fetchall()


def renumber(connection: sqlite3.Connection, action: int, number: int) -> None:
    """Give an action another number, in every table."""
    for table, column in (("deed", "id"), ("begun", "deed"), ("occurrence", "deed")):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (number, action))


def withdrawn(action: int, now: Now) -> tuple[Statement, ...]:
    """Statements that mark an intended action as withdrawn and remove it from the brakes' memory."""
    values = {"deed": action, "at": now.wall_s, "result": Result.WITHDRAWN.value}
    return (
        ("UPDATE deed SET result = :result, ended_s = :at WHERE id = :deed", values),
        ("DELETE FROM begun WHERE deed = :deed", values),
    )


def read_unfinished(connection: sqlite3.Connection) -> list[ActionRow]:
    """The rows of unfinished actions, without an end or without an expected release, oldest first."""
    return [ActionRow._make(row) for row in connection.execute(_SELECT_UNFINISHED)]


def unfinished_actions(connection: sqlite3.Connection) -> list[tuple[UnfinishedAction, Row]]:
    """The unfinished actions, oldest first, each with the row of its intention."""
    return [(row.action, _read_context(connection, row.id)) for row in read_unfinished(connection)]


def encode(keys: tuple[ProcessKey, ...]) -> str:
    """Processes as JSON: pairs of PID and start ticks."""
    return json.dumps([[key.pid, key.start_ticks] for key in keys])


def _read_context(connection: sqlite3.Connection, action: int) -> Row:
    sql = f"SELECT {', '.join(COLUMNS)} FROM occurrence WHERE deed = ? AND event = 'intended'"
    row = connection.execute(sql, (action,)).fetchone()
    return dict(zip(COLUMNS, row, strict=True)) if row is not None else {}


_MOST_ROWS: Final = 2 * MOST_REMEMBERED  # up to this many are kept whatever their age: about 100 bytes each


class RestoredActions:
    """The actions that count for the brakes, the unfinished actions, and when the breaker opened."""

    def __init__(self) -> None:
        self._begun: dict[int, BegunRow] = {}
        self._open: dict[int, ActionRow] = {}
        self._opened: Now | None = None
        self._last = 0
        self._read_at: Now | None = None

    def merge(self, connection: sqlite3.Connection) -> int:
        """Merge with a journal both ways, in one transaction; return how many rows it lacked."""
        self._last = max(self._last, last_number(connection))
        self._make_room(connection)
        rows, opened = read_begun(connection)
        theirs = {row.action: row for row in rows}
        if LOST in theirs and LOST in self._begun:  # the later one holds longer
            self._begun[LOST] = max(theirs[LOST], self._begun[LOST], key=lambda row: row.wall_s)
            delete_begun(connection, [LOST])
        self._opened = self._opened or opened
        lacked = self.give_back(connection)
        self._begun = theirs | self._begun
        self._open |= {row.id: row for row in read_unfinished(connection)}
        return lacked

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Renumber the actions of a journal whose numbers are used for other actions here."""
        mine = {action: (row.boot_id, row.boottime_s) for action, row in self._begun.items() if action != LOST}
        mine |= {action: (row.boot_id, row.boottime_s) for action, row in self._open.items()}
        for action, boot_id, boottime_s in moments_of(connection) if mine else ():
            if mine.get(action, (boot_id, boottime_s)) != (boot_id, boottime_s):
                self._last += 1
                renumber(connection, action, self._last)

    def add(self, action: ActionRow, begun: BegunRow) -> None:
        """Add an action that has begun."""
        self._begun[begun.action] = begun
        self._open[action.id] = action
        self._last = max(self._last, action.id)

    def remove(self, action: int) -> None:
        """Remove an action that is over: nothing waits for it any more."""
        self._open.pop(action, None)

    def withdraw(self, action: int) -> None:
        """Remove an action that was withdrawn before it began: no brake counts it."""
        self.remove(action)
        self._begun.pop(action, None)

    def lose(self, now: Now) -> BegunRow:
        """Mark everything begun before this moment as lost; returns the row for that."""
        self._begun[LOST] = lost_row(now)
        return self._begun[LOST]

    def forget(self, now: Now) -> tuple[int, ...]:
        """Drop rows that no brake can need, if there are many; returns their numbers.

        A row is no longer needed once no window or back-off reaches back to it, or its owner has as many later rows as
        any window counts. Differences of numbers are no count of rows: withdrawn actions have none.
        """
        if len(self._begun) <= _MOST_ROWS:
            return ()
        moments = {action: in_this_boot_s(row.at, now) for action, row in self._begun.items()}
        of_owner: Counter[tuple[str, ...]] = Counter()
        needless: list[int] = []
        for place, action in enumerate(sorted(moments, key=lambda action: (-moments[action], -action))):
            of_owner[owner := self._begun[action].owner] += 1
            is_old = moments[action] < now.boottime_s - FORGOTTEN_AFTER_S
            if of_owner[owner] > MOST_REMEMBERED or (is_old and place >= _MOST_ROWS):
                needless.append(action)
        for action in needless:
            del self._begun[action]
        return tuple(needless)

    def note_breaker(self, opened: Now | None) -> None:
        """Note that the breaker has opened, or closed (None)."""
        self._opened = opened

    @property
    def in_progress(self) -> frozenset[int]:
        """The numbers of the unfinished actions."""
        return frozenset(self._open)

    @property
    def next_action(self) -> int:
        """The number of the next action; numbers are never reused."""
        return self._last + 1

    def memory(self, now: Now) -> BrakeMemory:
        """The memory of the brakes, in the time of this boot."""
        self._read_at = self._read_at or now
        return brake_memory(self._begun.values(), self._opened, now, self._read_at)

    def give_back(self, connection: sqlite3.Connection) -> int:
        """Write the rows of brakes and unfinished actions that a journal lacks; return how many those were."""
        lacked = sum([insert_action(connection, action) for action in self._open.values()])
        lacked += sum([insert_begun(connection, row) for row in self._begun.values()])
        write_breaker(connection, self._opened)
        return lacked
