"""What happens to the journal: it is removed, emptied, replaced or damaged, under the daemon or while none runs."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.soak.around import BOTH
from tests.soak.world import World
from watchdog.journal.lock import lock_path
from watchdog.journal.schema import APPLICATION_ID, MIGRATIONS


def lose_under_the_daemon(world: World) -> None:
    """The daemon, which has it open, notices before it is killed; the next one must count on."""
    around = world.around
    if (
        world.life is None
        or not world.life.has_journal
        or around.disk_full
        or around.stall_s
        or not around.journal.exists()
    ):
        return
    how = world.dice.choice([*_LOSSES])
    _LOSSES[how](around.journal)
    world.say(f"journal {how} under the daemon")
    for _ in range(3):
        world.life.beat()


def lose_between_daemons(world: World) -> None:
    """The daemon is killed, and the next one finds its journal damaged or missing, or its lock as well."""
    world.kill_nine()
    around = world.around
    if not around.journal.exists():
        return
    how = world.dice.choice(["damaged", "missing", "emptied", BOTH])
    if how == "damaged":
        _remove(around.journal, "-wal", "-shm")
        with around.journal.open("r+b") as file:
            file.seek(100)  # the header lives, so that it is still seen to be a journal
            file.write(b"\xff" * 4096)
    else:
        _remove(around.journal, "", "-wal", "-shm", *([".lock"] if how == BOTH else []))
    if how == "emptied":
        around.journal.touch()
    around.loss = how
    world.say(f"journal {how} between daemons")


def _remove(journal: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        journal.with_name(journal.name + suffix).unlink(missing_ok=True)


def _remove_all(journal: Path) -> None:
    lock_path(journal).unlink(missing_ok=True)
    _remove(journal, "", "-wal", "-shm")


def _empty(journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as other, other:
        for table in ("begun", "breaker", "action", "occurrence"):
            other.execute(f"DELETE FROM {table}")


def _replace(journal: Path) -> None:
    fresh = journal.with_name("fresh.db")
    with closing(sqlite3.connect(fresh)) as other:
        for script in MIGRATIONS:
            other.executescript(script)
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    fresh.replace(journal)


_LOSSES: Final[dict[str, Callable[[Path], None]]] = {
    "removed": lambda journal: _remove(journal, ""),
    "removed with its lock": _remove_all,
    "emptied": _empty,
    "replaced": _replace,
}
