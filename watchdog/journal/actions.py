"""The journal's records that outlive the daemon: unfinished actions, and what the brakes remember."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

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
from watchdog.core.listed import ListedByPod, merged
from watchdog.core.model import DRAIN, MaintenanceStart, Now, Pod, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.transfers import Transfer, TransferWindow, Windows
from watchdog.journal.errors import RowError
from watchdog.journal.recording import pack_pod, unpack_pod
from watchdog.journal.rows import storable_text
from watchdog.journal.schema import UNFINISHED


class BegunRow(NamedTuple):
    """A row of `begun`."""

    # The owner that the action counts for, as stored.
    owner: BrakeScope
    # When the action began.
    at: Now

    @classmethod
    def of(cls, entry: PlanEntry, now: Now) -> Self:
        """The row for an action that begins now."""
        return cls(owner=tuple(storable_text(part) for part in owner_of(entry.assessment.pod)), at=now)

    def insert(self, connection: sqlite3.Connection, number: int) -> int:
        """Insert it for the action of this number, unless it is there; return the number of rows inserted."""
        at = self.at
        values = (number, *self.owner, at.boot_id, at.boottime_s, at.wall_s)
        return connection.execute("INSERT OR IGNORE INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)", values).rowcount


_ACTION_COLUMNS: Final = "id, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result"
_INSERT_ACTION: Final = (
    f"INSERT INTO action ({_ACTION_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET result = excluded.result WHERE result IS NULL AND excluded.result IS NOT NULL"
)
_SELECT_UNFINISHED: Final = f"SELECT {_ACTION_COLUMNS} FROM action WHERE {UNFINISHED} ORDER BY id"


_SELECT_DRAINED: Final = (
    f"SELECT detail FROM occurrence WHERE event = 'signalled' AND boot_id = :boot_id AND detail LIKE '{DRAIN} %' "
    "ORDER BY id DESC LIMIT :most"
)
_MOST_DRAINED: Final = 10_000
# The reason of an action that the next daemon found without a result.
CUT_SHORT: Final = "the watchdog ended before it was over"
_SELECT_CUT_SHORT: Final = (
    "SELECT targets FROM action WHERE boot_id = :boot_id AND result = 'interrupted' AND EXISTS "
    "(SELECT 1 FROM occurrence WHERE action_id = action.id AND reason = :reason) ORDER BY id DESC LIMIT :most"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedAction:
    """A row of `action`: an action without an end, or whose memory has not been seen free. Names are as stored."""

    number: int
    account: AccountKey
    # Its place in the steps of the rule, from 0.
    step: int
    # The name of the container.
    victim: str
    targets: tuple[ProcessKey, ...]
    began: Now
    # None: it has no end.
    result: Result | None = None

    @classmethod
    def of(cls, number: int, entry: PlanEntry, targets: tuple[ProcessKey, ...], now: Now) -> Self:
        """An action that is about to begin."""
        uid, container, gpu = entry.account.uid, entry.account.container, entry.account.gpu
        account = AccountKey(
            uid=storable_text(uid),
            container=None if container is None else storable_text(container),
            gpu=None if gpu is None else storable_text(gpu),
        )
        victim = storable_text(entry.victim)
        return cls(number=number, account=account, step=entry.step_index, victim=victim, targets=targets, began=now)

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Self:
        """An action as selected from `action`."""
        number, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result = row
        return cls(
            number=number,
            account=AccountKey(uid=uid, container=container, gpu=gpu),
            step=step,
            victim=victim,
            targets=tuple(ProcessKey(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(targets)),
            began=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id),
            result=Result(result) if result is not None else None,
        )

    def insert(self, connection: sqlite3.Connection) -> int:
        """Insert it, unless it is there with its result; return the number of rows written."""
        account, began, result = self.account, self.began, self.result
        values = (
            *(self.number, account.uid, account.container, account.gpu, self.step, self.victim, encode(self.targets)),
            *(began.boot_id, began.boottime_s, began.wall_s, result.value if result is not None else None),
        )
        return connection.execute(_INSERT_ACTION, values).rowcount


def encode(keys: Iterable[ProcessKey]) -> str:
    """Processes as JSON: pairs of PID and start ticks."""
    return json.dumps([[key.pid, key.start_ticks] for key in keys])


def read_unfinished(connection: sqlite3.Connection) -> list[UnfinishedAction]:
    """The unfinished actions, oldest first; sqlite3.Error."""
    try:
        return [UnfinishedAction.from_row(row) for row in connection.execute(_SELECT_UNFINISHED)]
    except (ValueError, TypeError) as error:
        raise RowError(f"an action in it can't be read: {error}") from error


def read_drained(connection: sqlite3.Connection, boot_id: str) -> frozenset[ProcessKey]:
    """The latest processes of this boot that were asked to be drained; sqlite3.Error. Skips damaged rows.

    If a daemon ended during an action, a request of it may be missing here: any of its targets may have been drained.
    """
    values = {"boot_id": boot_id, "most": _MOST_DRAINED, "reason": CUT_SHORT}
    texts = [detail[len(DRAIN) :] for (detail,) in connection.execute(_SELECT_DRAINED, values)]
    texts += [targets for (targets,) in connection.execute(_SELECT_CUT_SHORT, values)]
    found: set[ProcessKey] = set()
    for text in texts:
        with suppress(ValueError, TypeError):
            found.update(ProcessKey(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(text))
    return frozenset(found)


def delete_begun(connection: sqlite3.Connection, actions: Collection[int]) -> None:
    """Delete actions that no brake needs any more."""
    if actions:
        connection.execute(
            "DELETE FROM begun WHERE action_id IN (SELECT value FROM json_each(?))", (json.dumps([*actions]),)
        )


def write_breaker(connection: sqlite3.Connection, opened: Now | None) -> None:
    """Write when the breaker opened; None: it is closed."""
    if opened is None:
        connection.execute("DELETE FROM breaker")
    else:
        values = (opened.boot_id, opened.boottime_s, opened.wall_s)
        connection.execute("INSERT OR REPLACE INTO breaker VALUES (1, ?, ?, ?)", values)


def write_maintenance(connection: sqlite3.Connection, start: MaintenanceStart | None) -> None:
    """Write when the maintenance in progress began; None: there is none."""
    if start is None:
        connection.execute("DELETE FROM maintenance")
    else:
        values = (int(start.seen), start.at.boot_id, start.at.boottime_s, start.at.wall_s)
        connection.execute("INSERT OR REPLACE INTO maintenance VALUES (1, ?, ?, ?, ?)", values)


def write_listed(connection: sqlite3.Connection, listed: ListedByPod) -> None:
    """Write which resources the node listed in pods' lives, in addition; a pod without any is forgotten."""
    gone = [(storable_text(uid),) for uid, resources in listed.items() if not resources]
    rows = ((storable_text(uid), storable_text(key)) for uid, resources in listed.items() for key in resources)
    connection.executemany("DELETE FROM listed WHERE uid = ?", gone)
    connection.executemany("INSERT OR IGNORE INTO listed VALUES (?, ?)", rows)


def read_listed(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Which resources the node listed in pods' lives, by UID; sqlite3.Error."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for uid, resource in connection.execute("SELECT uid, resource FROM listed LIMIT ?", (_MOST_LISTED,)):
        found[uid].add(resource)
    return {uid: frozenset(resources) for uid, resources in found.items()}


def read_maintenance(connection: sqlite3.Connection) -> MaintenanceStart | None:
    """When the maintenance began that was in progress when it was last noted; None: there was none. sqlite3.Error."""
    row = connection.execute("SELECT seen, boot_id, boottime_s, wall_s FROM maintenance").fetchone()
    if row is None:
        return None
    seen, boot_id, boottime_s, wall_s = row
    return MaintenanceStart(at=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id), seen=bool(seen))


def write_transfers(connection: sqlite3.Connection, windows: Windows) -> None:
    """Write these windows of transfers, and no others."""
    connection.execute("DELETE FROM transfer")
    for owner, window in windows.items():
        scope, at = (storable_text(part) for part in owner), window.began
        transfers = json.dumps([_encoded(transfer) for transfer in window.transfers])
        values = (*scope, transfers, at.boot_id, at.boottime_s, at.wall_s)
        connection.execute("INSERT OR REPLACE INTO transfer VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def _encoded(transfer: Transfer) -> list[str | int]:
    pid, start_ticks = transfer.key.pid, transfer.key.start_ticks
    return [transfer.gpu, pid, start_ticks, transfer.unknown, transfer.used, transfer.target, transfer.source]


def read_transfers(connection: sqlite3.Connection) -> Windows:
    """The windows of transfers; sqlite3.Error. Of a damaged row only the time counts."""
    windows: dict[BrakeScope, TransferWindow] = {}
    for *owner, text, boot_id, boottime_s, wall_s in connection.execute("SELECT * FROM transfer"):
        transfers: tuple[Transfer, ...] = ()
        with suppress(ValueError, TypeError):
            transfers = tuple(
                Transfer(
                    gpu=str(gpu),
                    key=ProcessKey(pid=int(pid), start_ticks=int(ticks)),
                    unknown=int(unknown),
                    used=int(used),
                    target=str(target),
                    source=str(source),
                )
                for gpu, pid, ticks, unknown, used, target, source in json.loads(text)
            )
        began = Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id)
        windows[tuple(owner)] = TransferWindow(began=began, transfers=transfers)
    return windows


def write_left(connection: sqlite3.Connection, pods: Iterable[Pod]) -> None:
    """Write the pods that have left, and no others."""
    connection.execute("DELETE FROM left_pod")
    for pod in pods:
        with suppress(UnicodeEncodeError, OverflowError):  # what MessagePack or SQLite can't hold
            connection.execute("INSERT OR REPLACE INTO left_pod VALUES (?, ?)", (pod.uid, pack_pod(pod)))


def read_left(connection: sqlite3.Connection) -> tuple[Pod, ...]:
    """The pods that had left when that was last noted; sqlite3.Error. Skips damaged rows."""
    pods = []
    for (body,) in connection.execute("SELECT body FROM left_pod ORDER BY uid"):
        with suppress(ValueError):
            pods.append(unpack_pod(body))
    return tuple(pods)


_MOST_LISTED: Final = 200_000  # rows: far more than any node's pods have in an hour
# Not the number of an action: the row marks when an earlier journal was lost, with the actions begun before.
_LOST: Final = 0
_MOST_ROWS: Final = 2 * MOST_REMEMBERED  # up to this many are kept whatever their age: about 100 bytes each
# For an AUTOINCREMENT table, sqlite_sequence has the highest number ever inserted, but not one set by UPDATE.
_LAST: Final = (
    "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'action'), 0), "
    "coalesce((SELECT max(id) FROM action), 0), coalesce((SELECT max(action_id) FROM begun), 0))"
)
_MOMENTS: Final = "SELECT id, boot_id, boottime_s FROM action UNION SELECT action_id, boot_id, boottime_s FROM begun"


class RestoredActions:
    """The actions that count for the brakes, the unfinished actions, and when the breaker opened.

    `maintenance` is when the maintenance in progress began; None: there is none. `left` are the pods that have left,
    `listed` the resources that the node listed in pods' lives, by UID. `transfers` are the windows in which bytes that
    may have changed hands count as unknown.
    """

    def __init__(self) -> None:
        self.listed: ListedByPod = {}
        self.maintenance: MaintenanceStart | None = None
        self.left: tuple[Pod, ...] = ()
        self.transfers: Windows = {}
        self._begun: dict[int, BegunRow] = {}
        self._open: dict[int, UnfinishedAction] = {}
        self._opened: Now | None = None
        self._last = 0
        self._read_at: Now | None = None

    def merge(self, connection: sqlite3.Connection) -> int:
        """Merge with a journal both ways, in one transaction; return how many rows it lacked."""
        self._last = max(self._last, int(connection.execute(_LAST).fetchone()[0]))
        self._make_room(connection)
        begun = {
            number: BegunRow(owner=tuple(owner), at=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id))
            for number, *owner, boot_id, boottime_s, wall_s in connection.execute(
                "SELECT * FROM begun ORDER BY action_id"
            )
        }
        if _LOST in begun and _LOST in self._begun:  # the later one holds longer
            self._begun[_LOST] = max(begun[_LOST], self._begun[_LOST], key=lambda row: row.at.wall_s)
            delete_begun(connection, [_LOST])
        if self._opened is None:
            for boot_id, boottime_s, wall_s in connection.execute("SELECT boot_id, boottime_s, wall_s FROM breaker"):
                self._opened = Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id)
        if self.maintenance is None:
            self.maintenance = read_maintenance(connection)
        self.left = self.left or read_left(connection)
        self.listed = merged(read_listed(connection), self.listed)
        self.transfers = {**read_transfers(connection), **self.transfers}
        lacked = self.write_missing(connection)
        self._begun = begun | self._begun
        self._open |= {action.number: action for action in read_unfinished(connection)}
        return lacked

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Renumber the actions of a journal whose numbers belong to other actions here."""
        mine = {number: row.at for number, row in self._begun.items() if number != _LOST}
        mine |= {number: action.began for number, action in self._open.items()}
        for number, boot_id, boottime_s in connection.execute(_MOMENTS).fetchall() if mine else ():
            own = mine.get(number)
            if own is not None and (own.boot_id, own.boottime_s) != (boot_id, boottime_s):
                self._last += 1
                for table, column in (("action", "id"), ("begun", "action_id"), ("occurrence", "action_id")):
                    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (self._last, number))

    def write_missing(self, connection: sqlite3.Connection) -> int:
        """Write the rows of brakes and unfinished actions that a journal lacks; return how many those were."""
        lacked = sum([action.insert(connection) for action in self._open.values()])
        lacked += sum([row.insert(connection, number) for number, row in self._begun.items()])
        write_breaker(connection, self._opened)
        write_maintenance(connection, self.maintenance)
        write_left(connection, self.left)
        write_listed(connection, self.listed)
        write_transfers(connection, self.transfers)
        return lacked

    def note_listed(self, changes: ListedByPod) -> None:
        """Note further resources that the node listed in pods' lives; a pod without any is forgotten."""
        self.listed = {uid: keys for uid, keys in {**self.listed, **changes}.items() if keys}

    def add(self, action: UnfinishedAction, begun: BegunRow) -> None:
        """Add an action that has begun."""
        self._begun[action.number] = begun
        self._open[action.number] = action
        self._last = max(self._last, action.number)

    def note_result(self, action: int, result: Result) -> None:
        """Note the result of an action whose memory is still waited for."""
        if action in self._open:
            self._open[action] = replace(self._open[action], result=result)

    def remove(self, action: int) -> None:
        """Remove an action that is over: nothing waits for it any more."""
        self._open.pop(action, None)

    def withdraw(self, action: int) -> None:
        """Remove an action that was withdrawn before it began: no brake counts it."""
        self.remove(action)
        self._begun.pop(action, None)

    def mark_lost(self, now: Now) -> None:
        """Mark everything begun before this moment as lost."""
        self._begun[_LOST] = BegunRow(owner=("", "", ""), at=now)

    def forget(self, now: Now) -> tuple[int, ...]:
        """Drop rows that no brake can need, if there are many; returns their numbers.

        A row is no longer needed once no window or back-off reaches back to it, or its owner has as many later rows as
        any window counts. Rows are counted, since numbers have gaps: withdrawn actions have no row.
        """
        if len(self._begun) <= _MOST_ROWS:
            return ()
        moments = {action: in_this_boot_s(row.at, now) for action, row in self._begun.items()}
        of_owner: Counter[BrakeScope] = Counter()
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
        """The memory of the brakes, in the time of this boot.

        The age of actions of an earlier boot is taken from the wall clock when this daemon first asked.
        """
        read_at = self._read_at = self._read_at or now

        def in_s(moment: Now) -> float:
            return in_this_boot_s(moment, now if moment.boot_id == now.boot_id else read_at)

        counted = [(row.owner, Begun(in_s(row.at))) for number, row in self._begun.items() if number != _LOST]
        lost = self._begun.get(_LOST)
        return replace(
            BrakeMemory.of(counted),
            opened=None if self._opened is None else Begun(in_s(self._opened)),
            lost_s=None if lost is None else in_s(lost.at),
        )
