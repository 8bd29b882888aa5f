"""What a journal holds, read beside the daemon that writes it: the world's own count of actions and events."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ActionRow:
    """An action as the journal has it: whose pod, when it was intended (CLOCK_BOOTTIME, s), and what came of it."""

    number: int
    uid: str
    namespace: str
    owner: str
    began_s: float
    wall_s: float
    pids: tuple[int, ...]
    result: str | None


def actions(journal: Path) -> list[ActionRow]:
    """Every action, oldest first; none where there is no journal yet."""
    sql = """
        SELECT id, uid, namespace, owner_name, action.boottime_s, action.wall_s, targets, result
        FROM action JOIN begun ON begun.action_id = action.id ORDER BY id
    """
    with _open(journal) as connection:
        rows = connection.execute(sql).fetchall() if connection is not None else []
    return [
        ActionRow(number, uid, namespace, owner, began_s, wall_s, tuple(pid for pid, _ in json.loads(targets)), result)
        for number, uid, namespace, owner, began_s, wall_s, targets, result in rows
    ]


def boottime_s() -> float:
    """CLOCK_BOOTTIME, by which the journal has its times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_intended(journal: Path) -> bool:
    """Whether an intention is on disk, without a lock that the daemon would notice."""
    with contextlib.suppress(FileNotFoundError):
        return any(b"intended" in file.read_bytes() for file in (journal.with_name(f"{journal.name}-wal"), journal))
    return False


def breaker_opened_s(journal: Path) -> float | None:
    """Since when the breaker is open by the journal (CLOCK_BOOTTIME, seconds); None: it is closed."""
    with _open(journal) as connection:
        row = connection.execute("SELECT boottime_s FROM breaker").fetchone() if connection is not None else None
    return row[0] if row is not None else None


def events(journal: Path, *names: str) -> list[tuple[str, str | None, int | None]]:
    """The occurrences of these names in the order in which they were written: name, UID and number of the action."""
    marks = ", ".join("?" * len(names))
    sql = f"SELECT event, uid, action_id FROM occurrence WHERE event IN ({marks}) ORDER BY id"
    with _open(journal) as connection:
        return connection.execute(sql, names).fetchall() if connection is not None else []


@contextlib.contextmanager
def _open(journal: Path) -> Iterator[sqlite3.Connection | None]:
    """A reader; None before the daemon has made the tables."""
    try:
        connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        yield None
        return
    try:
        is_made = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'breaker'").fetchone()[0]
        yield connection if is_made else None
    finally:
        connection.close()
