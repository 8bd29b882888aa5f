"""What goes wrong on a node besides its pods: cards, the driver, the clocks, and the journal."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.soak.clock import whole
from tests.soak.driver import Card
from tests.soak.fittings import BOTH, NODE
from tests.soak.world import World
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.lock import lock_path


def card(world: World) -> None:
    """A card begins or ceases to answer as it should."""
    dice = world.dice
    gpu = dice.choice(sorted(world.cards.sizes))
    if dice.random() < 0.3:
        pids = [task.key.pid for task in world.kernel.living()]
        if pids:
            world.cards.silent.add((gpu, dice.choice(pids)))
            world.say("card silent of one process")
        return
    state = dice.choice(list(Card)) if dice.random() < 0.6 else Card.WELL
    world.cards.state[gpu] = state
    world.say(f"card {state.name.lower()}: {gpu}")


def blind(world: World) -> None:
    """NVML as a whole answers no more, or does again."""
    world.cards.blind = not world.cards.blind
    world.say("NVML blind" if world.cards.blind else "NVML sees")


def driver_speed(world: World) -> None:
    """The driver takes its time from now on, or no longer does."""
    world.slow_s = whole(world.dice.choice([0.0, 0.0, 0.0, 0.5, 12.0, 20.0]))
    world.second_slow_s = whole(world.dice.choice([0.0, 0.0, 0.5, 3.0, 12.0]))
    world.say(f"driver speed: {world.slow_s}, {world.second_slow_s}")


def clock_jumps(world: World) -> None:
    world.clock.jump(world.dice.choice([-86400.0, -3600.0, -30.0, 30.0, 3600.0, 86400.0]))
    world.say("wall clock jumped")


def suspend(world: World) -> None:
    world.pass_by(world.dice.choice([5.0, 60.0, 3600.0]))
    world.say("suspended")


def minutes(world: World) -> None:
    """Nothing happens for some minutes."""
    world.pass_by(world.dice.choice([310.0, 900.0]))
    world.say("minutes passed")


def disk(world: World) -> None:
    """The disk is full, or has room again."""
    world.disk_full = not world.disk_full
    world.say("disk full" if world.disk_full else "disk has room")


def disk_speed(world: World) -> None:
    """The disk takes its time for a commit from now on, or no longer does."""
    world.stall_s = whole(world.dice.choice([0.0, 0.5, 1.5, 3.0, 8.0]))
    world.say(f"disk speed: {world.stall_s}")


def lose_under_the_daemon(world: World) -> None:
    """The daemon, which has it open, notices before it is killed; the next one must count on."""
    has_journal = world.life is not None and world.life.has_journal and world.journal.exists()
    if world.life is None or not has_journal or world.disk_full or world.stall_s:
        return
    how = world.dice.choice([*_LOSSES])
    _LOSSES[how](world.journal)
    world.say(f"journal {how} under the daemon")
    for _ in range(3):
        world.life.beat()


def lose_between_daemons(world: World) -> None:
    """The daemon is killed, and the next one finds its journal damaged or missing, or its lock as well."""
    world.kill_nine()
    if not world.journal.exists():
        return
    how = world.dice.choice(["damaged", "missing", "emptied", BOTH])
    if how == "damaged":
        _remove(world.journal, "-wal", "-shm")
        with world.journal.open("r+b") as file:
            file.seek(100)  # the header lives, so that it is still seen to be a journal
            file.write(b"\xff" * 4096)
    else:
        _remove(world.journal, "", "-wal", "-shm", *([".lock"] if how == BOTH else []))
    if how == "emptied":
        world.journal.touch()
    world.loss = how
    world.cluster.dropped = False  # what was listed in the pods' lives is lost with it
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
    Journal.open(fresh, JournalLimits(), NODE.name).close()
    fresh.replace(journal)


_LOSSES: Final[dict[str, Callable[[Path], None]]] = {
    "removed": lambda journal: _remove(journal, ""),
    "removed with its lock": _remove_all,
    "emptied": _empty,
    "replaced": _replace,
}
