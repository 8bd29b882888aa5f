"""`/api/report`: what memory was held for, from the journal, which is read on a thread of its own."""

import gzip
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qs

from watchdog.core.errors import WatchdogError
from watchdog.core.model import Now
from watchdog.core.units import parse_duration
from watchdog.export.history import QueryError
from watchdog.report.text import inert, parse_moment

# How long a report is kept: the journal gets card-seconds every five minutes.
_KEPT_S: Final = 60.0
# The same of why there is none: longer than anybody waits for it.
_ERROR_KEPT_S: Final = 10.0
_MOST_KEPT: Final = 4
# How long a client waits for the disk; less than its connection is kept.
PATIENCE_S: Final = 4.0
# The two clocks may differ by this.
_EARLY_S: Final = 0.1
_MOST_FIELDS: Final = 8


class ReportError(WatchdogError):
    """There is no report at present; the text says why, and what to do."""


class PendingError(WatchdogError):
    """The journal is being read: ask once more when `done` is."""

    def __init__(self, done: "Future[bytes]") -> None:
        super().__init__("the journal is being read")
        self.done = done


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Since when: a duration like `7d`, or a moment of RFC 3339."""

    since: str

    @classmethod
    def of(cls, query: str) -> Self:
        """The query of an address; QueryError. Of repeated fields the last one counts."""
        try:
            made = cls(since=parse_qs(query, max_num_fields=_MOST_FIELDS).get("since", ["7d"])[-1])
            made.begin_s(0.0)
        except ValueError as error:
            raise QueryError(
                f"its query {inert(query, 100)} is not valid: write ?since=7d, or ?since=2026-01-31T14:00:00Z"
            ) from error
        return made

    def begin_s(self, now_s: float) -> float:
        """The Unix time from which on it asks; ValueError."""
        moment_s = parse_moment(self.since)
        return max(now_s - parse_duration(self.since) if moment_s is None else moment_s, 0.0)


class Reports:
    """Reads one report at a time, and keeps the last ones for a minute; safe for any thread."""

    def __init__(self, read: Callable[[float], bytes] | None, now: Callable[[], Now]) -> None:
        """`read` gives the JSON of a report since a Unix time, or a WatchdogError; None: there is no journal."""
        self._read = read
        self._now = now
        self._lock = threading.Lock()
        # What is being read or was, with when that began (CLOCK_BOOTTIME); the oldest first.
        self._reports: dict[ReportQuery, tuple[Future[bytes], float]] = {}

    def get(self, query: ReportQuery) -> bytes:
        """The JSON of a report, compressed with gzip; PendingError while it is read, ReportError if it can't be."""
        with self._lock:
            found, began_s = self._found_or_begun(query, self._now())
        if not found.done():
            if self._now().boottime_s - began_s >= PATIENCE_S - _EARLY_S:
                raise ReportError("the journal's disk does not answer: check `dmesg` on the node")
            raise PendingError(found)
        error = found.exception()
        if error is None:
            return found.result()
        raise ReportError(str(error)) if isinstance(error, WatchdogError) else error

    def _found_or_begun(self, query: ReportQuery, now: Now) -> tuple["Future[bytes]", float]:
        if self._read is None:
            raise ReportError("this daemon has no journal")
        found = self._reports.get(query)
        if found is not None and (not found[0].done() or now.boottime_s - found[1] < _kept_s(found[0])):
            return found
        if any(not future.done() for future, _ in self._reports.values()):
            raise ReportError("another report is being read: ask again in a second")
        self._reports.pop(query, None)
        while len(self._reports) >= _MOST_KEPT:
            del self._reports[next(iter(self._reports))]
        begun = self._reports[query] = Future[bytes](), now.boottime_s
        work = (self._read, query.begin_s(now.wall_s), begun[0])
        threading.Thread(target=_make, args=work, name="report", daemon=True).start()
        return begun


def _kept_s(report: "Future[bytes]") -> float:
    return _KEPT_S if report.exception() is None else _ERROR_KEPT_S


def _make(read: Callable[[float], bytes], since_s: float, made: "Future[bytes]") -> None:
    try:
        made.set_result(gzip.compress(read(since_s), compresslevel=1, mtime=0))
    except BaseException as error:  # raised again from the future
        made.set_exception(error)
