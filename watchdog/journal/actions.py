"""What must outlive the daemon: actions begun and ended, what the brakes remember, and how long rows are kept."""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import FORGOTTEN_AFTER_S, MOST_REMEMBERED, Begun, BrakeMemory, in_this_boot_s, owner_of
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.file import Statement
from watchdog.journal.rows import Row, storable
from watchdog.journal.schema import COLUMNS, delete_past, past_size

_BATCH: Final = 1000  # rows a transaction: a long one would keep actions waiting
_MOST_BATCHES: Final = 10  # a call: intentions wait meanwhile, and the next call goes on
_FREE_PAGES: Final = 4096  # a call
# No wait for memory lasts so long: what is unfinished after it belongs to a daemon that never came back.
_UNFINISHED_S: Final = 86400.0

UNFINISHED: Final = "(result IS NULL OR (result IN ('done', 'interrupted') AND released_s IS NULL))"
# Within a boot the wall clock has no say: a jump of it must take neither the history nor what is waited for.
_OPEN: Final = f"SELECT id FROM deed WHERE {UNFINISHED} AND (boot_id = :boot_id OR wall_s >= :open)"
_OLDEST: Final = (
    "DELETE FROM occurrence WHERE id IN (SELECT id FROM occurrence "
    "WHERE wall_s < :before AND (boot_id <> :boot_id OR boottime_s < :booted_before) AND "
    f"(deed IS NULL OR deed NOT IN ({_OPEN})) "
    "ORDER BY wall_s, id LIMIT :batch)"
)
_DEEDS: Final = (
    f"DELETE FROM deed WHERE id NOT IN ({_OPEN}) AND "
    "NOT EXISTS (SELECT 1 FROM occurrence WHERE occurrence.deed = deed.id)"
)


def prune(connection: sqlite3.Connection, limits: JournalLimits, now: Now) -> int:
    """Delete what is too old or too much, and give the space back; the number of rows deleted. sqlite3.Error."""
    moment: dict[str, str | float] = {"boot_id": now.boot_id, "open": now.wall_s - max(_UNFINISHED_S, limits.max_age_s)}
    aged: dict[str, str | float] = {
        "before": now.wall_s - limits.max_age_s,
        "booted_before": now.boottime_s - limits.max_age_s,
    }
    whatever: dict[str, str | float] = {"before": float("inf"), "booted_before": float("inf")}
    deleted = 0
    for _ in range(_MOST_BATCHES):
        removed = _delete(connection, moment | aged, _BATCH)
        deleted += removed
        if removed < _BATCH:
            break
    for _ in range(_MOST_BATCHES):
        removed = delete_past(connection, now.wall_s - limits.max_age_s, limits.max_size * 3 // 4, _BATCH)
        deleted += removed
        if removed < _BATCH:
            break
    for _ in range(_MOST_BATCHES):
        _give_back(connection)
        excess = 1 - limits.max_size / size(connection)
        if excess <= 0:
            break
        # What was done is worth more than what was seen: the past goes first, as long as it has more than a quarter.
        keep = max(past_size(connection) + limits.max_size - size(connection), limits.max_size // 4)
        if removed := delete_past(connection, -float("inf"), keep, _BATCH):
            deleted += removed
            continue
        rows = connection.execute("SELECT count(*) FROM occurrence").fetchone()[0]
        removed = _delete(connection, moment | whatever, min(int(rows * excess) + 1, _BATCH))
        deleted += removed
        if not removed:
            break
    if deleted:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return deleted


def size(connection: sqlite3.Connection) -> int:
    """Bytes of the journal's pages."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _delete(connection: sqlite3.Connection, limits: dict[str, str | float], batch: int) -> int:
    values = {**limits, "batch": batch}
    connection.execute("BEGIN IMMEDIATE")
    removed = connection.execute(_OLDEST, values).rowcount
    connection.execute(_DEEDS, values)
    connection.execute("COMMIT")
    return removed


def _give_back(connection: sqlite3.Connection) -> None:
    # Each step of the statement frees one page; `execute` takes a single step of one that has no columns.
    connection.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES});")


# Number of the action, namespace, kind and name of the owner, boot, boot time and wall clock.
BegunRow = tuple[int, str, str, str, str, float, float]

# The number of no action: from its moment on it is not known what was begun earlier (a journal that was lost).
LOST: Final = 0
_INSERT_BRAKE: Final = "INSERT OR IGNORE INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM begun WHERE deed IN (SELECT value FROM json_each(?))"
_SELECT: Final = "SELECT * FROM begun ORDER BY deed"
_OPEN_BRAKES: Final = "INSERT OR REPLACE INTO breaker VALUES (1, ?, ?, ?)"
_CLOSE: Final = "DELETE FROM breaker"


def begun_row(action: int, entry: PlanEntry, now: Now) -> BegunRow:
    """Whose action this is."""
    namespace, kind, name = (str(storable(part) or "") for part in owner_of(entry.assessment.pod))
    return (action, namespace, kind, name, now.boot_id, now.boottime_s, now.wall_s)


def lost_row(now: Now) -> BegunRow:
    """That everything begun before this moment is lost."""
    return (LOST, "", "", "", now.boot_id, now.boottime_s, now.wall_s)


def moment_of(row: BegunRow) -> Now:
    """When it was begun."""
    return Now(boot_id=row[4], boottime_s=row[5], wall_s=row[6])


def insert_begun(connection: sqlite3.Connection, row: BegunRow) -> bool:
    """Write down whose action it is, in the transaction of its intention; whether it was not there yet."""
    return connection.execute(_INSERT_BRAKE, row).rowcount > 0


def delete_begun(connection: sqlite3.Connection, actions: Collection[int]) -> None:
    """Forget actions that no brake needs any more."""
    if actions:
        connection.execute(_FORGET, (json.dumps([*actions]),))


def turn_breaker(connection: sqlite3.Connection, opened: Now | None) -> None:
    """Write down since when the breaker is open; None: it is closed."""
    if opened is None:
        connection.execute(_CLOSE)
    else:
        connection.execute(_OPEN_BRAKES, (opened.boot_id, opened.boottime_s, opened.wall_s))


def read_begun(connection: sqlite3.Connection) -> tuple[list[BegunRow], Now | None]:
    """The actions that count, oldest first, and since when the breaker is open."""
    row = connection.execute("SELECT boot_id, boottime_s, wall_s FROM breaker").fetchone()
    opened = None if row is None else Now(boot_id=row[0], boottime_s=row[1], wall_s=row[2])
    return connection.execute(_SELECT).fetchall(), opened


def brake_memory(rows: Collection[BegunRow], opened: Now | None, now: Now, read_at: Now) -> BrakeMemory:
    """What the brakes remember of that, in the time of this boot.

    The age of what an earlier boot left is what the wall clock made it at `read_at`, when this daemon first read it.
    """

    def in_s(moment: Now) -> float:
        return in_this_boot_s(moment, now if moment.boot_id == now.boot_id else read_at)

    moments = {row[0]: in_s(moment_of(row)) for row in rows}
    lost_s = moments.pop(LOST, None)
    memory = BrakeMemory.of((row[1:4], Begun(moments[row[0]])) for row in rows if row[0] != LOST)
    return replace(memory, opened=None if opened is None else Begun(in_s(opened)), lost_s=lost_s)


# Number, UID, container, GPU, step, victim, targets as JSON, boot, boot time, wall clock, result.
ActionRow = tuple[Any, ...]

_INSERT: Final = (
    "INSERT OR IGNORE INTO deed "
    "(id, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_UNFINISHED: Final = (
    "SELECT id, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result "
    f"FROM deed WHERE {UNFINISHED} ORDER BY id"
)
# Of an AUTOINCREMENT table the sequence has the highest number that was ever inserted, but not one given later.
_LAST: Final = (
    "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'deed'), 0), "
    "coalesce((SELECT max(id) FROM deed), 0), coalesce((SELECT max(deed) FROM begun), 0))"
)
_MOMENTS: Final = "SELECT id, boot_id, boottime_s FROM deed UNION SELECT deed, boot_id, boottime_s FROM begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedAction:
    """An action whose end or release the journal does not have: what a daemon finds when it starts again."""

    number: int
    uid: str
    account: AccountKey
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    began: Now
    result: Result | None


def action_row(action: int, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> ActionRow:
    """An action that is about to begin."""
    account = [storable(part) for part in (entry.account.uid, entry.account.container, entry.account.gpu)]
    moment = (now.boot_id, now.boottime_s, now.wall_s)
    return (action, *account, entry.step, storable(entry.victim), encode(keys), *moment, None)


def insert_action(connection: sqlite3.Connection, row: ActionRow) -> bool:
    """Write an action down; whether it was not there yet."""
    return connection.execute(_INSERT, row).rowcount > 0


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number that an action ever had; 0: there was none."""
    return int(connection.execute(_LAST).fetchone()[0])


def moments_of(connection: sqlite3.Connection) -> list[tuple[int, str, float]]:
    """The actions with their numbers, and when each was begun: the boot and its time."""
    return connection.execute(_MOMENTS).fetchall()


def renumber(connection: sqlite3.Connection, action: int, number: int) -> None:
    """Give an action another number, wherever it stands."""
    for table, column in (("deed", "id"), ("begun", "deed"), ("occurrence", "deed")):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (number, action))


def withdrawn(action: int, now: Now) -> tuple[Statement, ...]:
    """What makes an intended action one that never began; the brakes forget it in the same transaction."""
    values = {"deed": action, "at": now.wall_s, "result": Result.WITHDRAWN.value}
    return (
        ("UPDATE deed SET result = :result, ended_s = :at WHERE id = :deed", values),
        ("DELETE FROM begun WHERE deed = :deed", values),
    )


def read_unfinished(connection: sqlite3.Connection) -> list[ActionRow]:
    """Actions without an end, or without the release that is to come, oldest first."""
    return connection.execute(_SELECT_UNFINISHED).fetchall()


def unfinished_actions(connection: sqlite3.Connection) -> list[tuple[UnfinishedAction, Row]]:
    """Actions without an end, or without the release that is to come, oldest first, each with its intention's row."""
    return [(_unfinished(row), _read_context(connection, row[0])) for row in read_unfinished(connection)]


def encode(keys: tuple[ProcessKey, ...]) -> str:
    """Processes as JSON: pairs of PID and start ticks."""
    return json.dumps([[key.pid, key.start_ticks] for key in keys])


def _read_context(connection: sqlite3.Connection, action: int) -> Row:
    sql = f"SELECT {', '.join(COLUMNS)} FROM occurrence WHERE deed = ? AND event = 'intended'"
    row = connection.execute(sql, (action,)).fetchone()
    return dict(zip(COLUMNS, row, strict=True)) if row is not None else {}


def _unfinished(row: tuple[Any, ...]) -> UnfinishedAction:
    action, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result = row
    return UnfinishedAction(
        number=action,
        uid=uid,
        account=AccountKey(uid=uid, container=container, gpu=gpu),
        step=step,
        victim=victim,
        targets=tuple(ProcessKey(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(targets)),
        began=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id),
        result=Result(result) if result is not None else None,
    )


_MOST_ROWS: Final = 2 * MOST_REMEMBERED  # fewer are all kept, whatever their age: about 100 bytes each


class RestoredActions:
    """The actions that count for the brakes, those that are not over, and since when the breaker is open."""

    def __init__(self) -> None:
        self._begun: dict[int, BegunRow] = {}
        self._open: dict[int, ActionRow] = {}
        self._opened: Now | None = None
        self._last = 0
        self._read_at: Now | None = None

    def merge(self, connection: sqlite3.Connection) -> int:
        """Take over what a journal has, and write into it what it lacks, all in one transaction; how much it lacked."""
        self._last = max(self._last, last_number(connection))
        self._make_room(connection)
        rows, opened = read_begun(connection)
        theirs = {row[0]: row for row in rows}
        if LOST in theirs and LOST in self._begun:  # the later one holds longer
            self._begun[LOST] = max(theirs[LOST], self._begun[LOST], key=lambda row: row[-1])
            delete_begun(connection, [LOST])
        self._opened = self._opened or opened
        lacked = self.give_back(connection)
        self._begun = theirs | self._begun
        self._open |= {row[0]: row for row in read_unfinished(connection)}
        return lacked

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Give new numbers to the actions of a journal whose numbers stand for others here, perhaps in progress."""
        mine = {action: row[4:6] for action, row in self._begun.items() if action != LOST}
        mine |= {action: (row[7], row[8]) for action, row in self._open.items()}
        for action, boot_id, boottime_s in moments_of(connection) if mine else ():
            if mine.get(action, (boot_id, boottime_s)) != (boot_id, boottime_s):
                self._last += 1
                renumber(connection, action, self._last)

    def add(self, action: ActionRow, begun: BegunRow) -> None:
        """An action has begun."""
        self._begun[begun[0]] = begun
        self._open[action[0]] = action
        self._last = max(self._last, action[0])

    def remove(self, action: int) -> None:
        """An action is over: nobody has to wait for it any more."""
        self._open.pop(action, None)

    def withdraw(self, action: int) -> None:
        """An action was withdrawn before it began: no brake counts it."""
        self.remove(action)
        self._begun.pop(action, None)

    def lose(self, now: Now) -> BegunRow:
        """Everything begun before this moment is lost; the row that says so."""
        self._begun[LOST] = lost_row(now)
        return self._begun[LOST]

    def forget(self, now: Now) -> tuple[int, ...]:
        """Drop the rows that no brake can need, where there are many; their numbers.

        A row is needed no more once no window and no back-off reaches back to it, or once its owner has as many later
        ones as any window counts. Numbers say nothing: those of withdrawn actions have no row.
        """
        if len(self._begun) <= _MOST_ROWS:
            return ()
        moments = {action: in_this_boot_s(moment_of(row), now) for action, row in self._begun.items()}
        of_owner: Counter[tuple[str, ...]] = Counter()
        needless: list[int] = []
        for place, action in enumerate(sorted(moments, key=lambda action: (-moments[action], -action))):
            of_owner[owner := self._begun[action][1:4]] += 1
            is_old = moments[action] < now.boottime_s - FORGOTTEN_AFTER_S
            if of_owner[owner] > MOST_REMEMBERED or (is_old and place >= _MOST_ROWS):
                needless.append(action)
        for action in needless:
            del self._begun[action]
        return tuple(needless)

    def turn(self, opened: Now | None) -> None:
        """The breaker has opened, or closed (None)."""
        self._opened = opened

    @property
    def in_progress(self) -> frozenset[int]:
        """The actions that are not over."""
        return frozenset(self._open)

    @property
    def next_action(self) -> int:
        """The number of the next action; numbers are never used again."""
        return self._last + 1

    def memory(self, now: Now) -> BrakeMemory:
        """What the brakes remember of it, in the time of this boot."""
        self._read_at = self._read_at or now
        return brake_memory(self._begun.values(), self._opened, now, self._read_at)

    def give_back(self, connection: sqlite3.Connection) -> int:
        """Write into a journal what it lacks of this: rows of the brakes, actions in progress; how many they were."""
        lacked = sum([insert_action(connection, action) for action in self._open.values()])
        lacked += sum([insert_begun(connection, row) for row in self._begun.values()])
        turn_breaker(connection, self._opened)
        return lacked
