"""Reading the past from a journal, while the daemon writes it or long after."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.core.model import Now
from watchdog.export.journal_errors import JournalError, explain
from watchdog.export.journal_read import reading
from watchdog.export.phrases import rfc3339
from watchdog.past.frame import unpack
from watchdog.past.look import Body, Look, looks

_FIRST: Final = (
    "SELECT coalesce((SELECT max(id) FROM past WHERE is_full AND wall_s <= :since), "
    "(SELECT min(id) FROM past WHERE is_full))"
)
_SPANS: Final = (
    "SELECT id, boot_id, until_s, until_wall_s FROM past_span "
    "WHERE until_wall_s >= :since AND id IN (SELECT span FROM past WHERE id >= :first) ORDER BY id"
)
_BODIES: Final = "SELECT id, boottime_s, wall_s, body FROM past WHERE span = :span AND id >= :first ORDER BY id"


class NothingRecordedError(JournalError):
    """The journal is sound, and no pass of the time that is asked for stands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one daemon's life in which every pass was recorded, until a moment."""

    until: Now
    looks: Iterator[Look]


def spans(path: Path, since_s: float) -> Iterator[Span]:
    """The spans that reach beyond a Unix time, oldest first; the first may begin up to an hour before it.

    Each is to be used up before the next is asked for. JournalError names the file and the remedy;
    NothingRecordedError where nothing was recorded in that time.
    """
    with reading(path) as connection:
        connection.execute("BEGIN")  # the daemon may write and delete meanwhile
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'").fetchone()[0]:
            raise JournalError(f"journal {path} was written by an older gpu-watchdog, which recorded no past")
        first = connection.execute(_FIRST, {"since": since_s}).fetchone()[0]
        found = connection.execute(_SPANS, {"since": since_s, "first": first}).fetchall()  # none where there is none
        if not found:
            raise _nothing(connection, path, since_s)
        for number, boot_id, until_s, until_wall_s in found:
            until = Now(boottime_s=until_s, wall_s=until_wall_s, boot_id=boot_id)
            bodies = _bodies(connection, number, first, boot_id)
            yield Span(until=until, looks=_sound(looks(bodies, until), path))


def _sound(found: Iterator[Look], path: Path) -> Iterator[Look]:
    """The looks, with the journal's name in whatever is wrong with them."""
    try:
        yield from found
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except (ValueError, TypeError, KeyError) as error:
        why = f"the past in journal {path} can't be read ({error})"
        raise JournalError(f"{why}: `--since` with a shorter time may leave that part out") from error


def _bodies(connection: sqlite3.Connection, span: int, first: int, boot_id: str) -> Iterator[Body]:
    for number, boottime_s, wall_s, body in connection.execute(_BODIES, {"span": span, "first": first}):
        try:
            frames = unpack(body)
        except ValueError as error:
            raise ValueError(f"record {number}: {error}") from error
        yield Body(since=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id), frames=frames)


def _nothing(connection: sqlite3.Connection, path: Path, since_s: float) -> JournalError:
    last = connection.execute("SELECT max(until_wall_s) FROM past_span").fetchone()[0]
    if last is None:
        return NothingRecordedError(f"journal {path} holds no past: the daemon has not recorded a pass in it yet")
    if last >= since_s:
        return JournalError(
            f"the past in journal {path} has no beginning, so it can't be understood: the daemon writes one within "
            "the hour"
        )
    return NothingRecordedError(
        f"the daemon has recorded nothing in {path} since {rfc3339(since_s)}: its last pass there was at "
        f"{rfc3339(last)}; `--since` takes a longer time"
    )
