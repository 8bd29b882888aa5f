"""What the HTTP endpoints return: the loop publishes values, the HTTP thread renders and caches them."""

import gzip
import json
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from watchdog import clock
from watchdog.core.errors import WatchdogError
from watchdog.core.model import Now, elapsed_s
from watchdog.core.plan import CycleReport, Result
from watchdog.core.policy import longest_step_s
from watchdog.core.quiet import Resting, Ticks
from watchdog.export.card_page import card_page, found_gpu
from watchdog.export.health import Health
from watchdog.export.history import HistoryQuery, NothingSeenError, history_document
from watchdog.export.metrics import Metrics, render
from watchdog.export.page import page
from watchdog.export.page_headline import PageInput, PageQuery
from watchdog.export.pod_page import is_known, pod_page
from watchdog.export.report import Reports
from watchdog.export.subject_page import REFRESH_S, SubjectInput, SubjectQuery, nothing_of
from watchdog.report.figures import all_gaps
from watchdog.report.health import OK
from watchdog.report.hour import Hour, Mark
from watchdog.report.recent import KEPT_S
from watchdog.report.status import ChangeStatus, RecentStatus, Status, encode
from watchdog.report.status_build import status_of
from watchdog.report.summary import encoded, summary_of

# Of gzip: for a page of 1,900 series 0.8 ms and 11 kB; level 1 takes 0.3 ms and leaves 14 kB, level 9 1.8 ms and 10 kB.
_LEVEL: Final = 6
_KEPT_S: Final = 1.0
_MOST_CHANGES: Final = 20
# Any client can ask for other filters, pods and GPUs, and rendering takes turns with the loop: a page of 200 pods takes
# 50 ms.
_MOST_FILTERS: Final = 4
# Who was paged opens ten tabs at once, and all of them refresh at once. A page takes 6 ms, or 24 ms for a pod with 12
# accounts, and 6 kB.
_MOST_SUBJECTS: Final = 40
_MOST_SUBJECTS_S: Final = 0.25
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TooManyError(WatchdogError):
    """More different values were requested within a second than are made in one, or they take too long."""


class SecondCache(Generic[Key, Value]):
    """Caches a value per key for a second; safe for any thread.

    `most` bounds the keys whose values are kept, and so also how many are made in a second. `most_s` bounds the seconds
    of CPU (of the thread: `spent_s`) in which that is done: once they are over, no other value is made.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        most: int = 4,
        most_s: float = math.inf,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now_s = now_s
        self._most = most
        self._most_s = most_s
        self._spent_s = spent_s
        self._lock = threading.Lock()
        # With when it was made, and in which state.
        self._kept: dict[Key, tuple[float, object, Value]] = {}
        # When values were made, and how long each took.
        self._made: list[tuple[float, float]] = []
        # Whether one was.
        self._is_warm = False

    def get(self, key: Key, state: object, make: Callable[[], Value]) -> Value:
        """The value made under a key less than a second ago in the same state, or a new one; TooManyError.

        `state` is compared by `==` and kept, so it must be small. Other threads wait while one makes the value.
        """
        with self._lock:
            now_s = self._now_s()
            self._kept = {other: kept for other, kept in self._kept.items() if 0 <= now_s - kept[0] < _KEPT_S}
            self._made = [made for made in self._made if 0 <= now_s - made[0] < _KEPT_S]
            if key in self._kept:
                _, before, value = self._kept[key]
                if before == state:
                    return value
            is_full = key not in self._kept and len(self._kept) >= self._most
            if is_full or sum(took_s for _, took_s in self._made) >= self._most_s:
                raise TooManyError(f"more than {len(self._kept)} different pages of this kind at once: try again")
            began_s = self._spent_s()
            value = make()
            # The first of all compiles its template, which takes longer than to make ten.
            self._made += [(now_s, self._spent_s() - began_s)] if self._is_warm else []
            self._kept[key], self._is_warm = (now_s, state, value), True
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPage:
    """The page compressed with gzip, and the seconds until it reloads."""

    packed: bytes
    refresh_s: int


@dataclass(frozen=True, kw_only=True)
class _CachedStatus:
    """The status of a cycle, and its JSON, made on first use."""

    status: Status
    # When the cycle read the node.
    at: Now

    @cached_property
    def packed(self) -> bytes:
        return _packed(encode(self.status))

    @cached_property
    def packed_summary(self) -> bytes:
        return gzip.compress(encoded(summary_of(self.status)) + b"\n", compresslevel=1, mtime=0)


def _packed(document: Mapping[str, Any]) -> bytes:
    return gzip.compress(f"{json.dumps(document)}\n".encode(), compresslevel=1, mtime=0)


class _Kept:
    """The responses that are kept for a second."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.status: SecondCache[None, _CachedStatus | None] = SecondCache(now_s)
        self.pages: SecondCache[PageQuery, PackedPage] = SecondCache(now_s)
        self.filtered: SecondCache[PageQuery, PackedPage] = SecondCache(now_s, _MOST_FILTERS)
        self.subjects: SecondCache[SubjectQuery, PackedPage] = SecondCache(now_s, _MOST_SUBJECTS, _MOST_SUBJECTS_S)
        self.histories: SecondCache[HistoryQuery, bytes | None] = SecondCache(now_s, _MOST_SUBJECTS, _MOST_SUBJECTS_S)
        self.expositions: SecondCache[bool, bytes] = SecondCache(now_s)


class Endpoints:
    """The current responses. Each value is replaced whole, except the `health` and the last `hour`.

    `remedies` gives the remedy for each reason of suspension, `stop_file` is the path that the daemon watches.
    """

    def __init__(
        self,
        metrics: Metrics,
        interval_s: float,
        now: Callable[[], Now] = clock.now,
        remedies: Mapping[str, str] | None = None,
        stop_file: str = "",
        report: Callable[[float], bytes] | None = None,
    ) -> None:
        """`report` reads card-hours since a Unix time from the journal, as `Reports` takes it."""
        self.metrics = metrics
        self.reports = Reports(report, now)
        self.health = Health(interval_s, now, stop_file)
        self.hour = Hour()
        self._remedies: Mapping[str, str] = remedies or {}
        self._now = now
        self._recent: tuple[RecentStatus, ...] = ()
        self._changes: tuple[ChangeStatus, ...] = ()
        self._gaps_since: Mapping[str, float] = {}
        self._kept = _Kept(lambda: now().boottime_s)

    def begin_rest(self, resting: Resting) -> None:
        """From now on, until the next cycle is published, show the last one as of its last tick."""
        self.metrics.begin_rest(resting)
        self.health.begin_rest(resting)

    def publish(self, report: CycleReport, changes: Iterable[ChangeStatus] = (), ticks: Ticks | None = None) -> None:
        """Publish a finished cycle and what it has changed; or one that these ticks repeat, as of the last of them."""
        self._changes = (*reversed(tuple(changes)), *self._changes)[:_MOST_CHANGES]
        self.metrics.update(report, ticks)
        self._add_to_hour(report, is_repeated=ticks is not None)
        before, since_s = self._gaps_since, report.at.wall_s
        self._gaps_since = {gap.what: before.get(gap.what, since_s) for gap in all_gaps(report)}
        self.health.publish(report, ticks)

    def _add_to_hour(self, report: CycleReport, *, is_repeated: bool) -> None:
        at_s, snapshot = report.at.boottime_s, report.snapshot
        gap_s = math.inf if is_repeated else longest_step_s(report.policy.interval_s)
        self.hour.add(at_s, report.assessments, snapshot.gpus, report.utilization, gap_s=gap_s, blind=snapshot.blind)
        # A kill has its effect as it begins, all others once they are done.
        begun = [each.entry for each in report.began if each.entry.do.ends_processes]
        done = [each.entry for each in report.outcomes if each.result is Result.DONE]
        for entry in (*begun, *(each for each in done if not each.do.ends_processes)):
            cards = {use.gpu for use in entry.assessment.uses}
            self.hour.mark(cards, Mark(at_s, entry.do, entry.account))

    def set_journal(self, problem: str, recent: tuple[RecentStatus, ...] | None) -> None:
        """Set the journal's problem (empty: it works), and its recent actions; None: it is not open.

        Without a journal no action is taken, so the previous actions remain valid.
        """
        self.health.journal = problem or OK
        self._recent = self._recent if recent is None else recent

    @property
    def report(self) -> CycleReport | None:
        """The last finished cycle, as of the last tick that repeated it; None before the first."""
        return self.health.report

    @property
    def recent(self) -> tuple[RecentStatus, ...]:
        """The actions of the last day, newest first."""
        since_s = self._now().wall_s - KEPT_S
        return tuple(action for action in self._recent if (action.at or 0.0) > since_s)

    def page(self, query: PageQuery) -> PackedPage:
        """The status page as of now; TooManyError if too many different filters are requested."""
        pages = self._kept.filtered if query.pod else self._kept.pages
        return pages.get(query, self._state(), lambda: self._make_page(query))

    def exposition(self, *, openmetrics: bool) -> bytes:
        """The body of /metrics in one of its formats, compressed with gzip; made once per cycle, or when a second old.

        The one-second limit is for values that change without a cycle: the process metrics, the counts of Events, and
        whether the last cycle is too old to show.
        """

        def expose() -> bytes:
            return gzip.compress(render(self.metrics.registry, openmetrics=openmetrics), compresslevel=_LEVEL, mtime=0)

        return self._kept.expositions.get(openmetrics, self.metrics.revision, expose)

    def status(self) -> bytes | None:
        """The JSON of `/api/status`, compressed with gzip, made at most once a second; None before the first cycle."""
        cached = self._current()
        return cached.packed if cached is not None else None

    def summary(self) -> bytes | None:
        """The JSON of `/api/summary`, made as that of the status is."""
        cached = self._current()
        return cached.packed_summary if cached is not None else None

    def history(self, query: HistoryQuery) -> bytes | None:
        """The JSON of `/api/history`, compressed with gzip; None before the first cycle.

        NothingSeenError; QueryError; TooManyError as for the page.
        """
        return self._kept.histories.get(query, self._state(), lambda: self._make_history(query))

    def _make_history(self, query: HistoryQuery) -> bytes | None:
        cached = self._current()
        if cached is None:
            return None
        now = self._now()
        # While cycles complete, what the last one read still holds.
        known_s = now.boottime_s if self.health.liveness().ok else cached.at.boottime_s
        return _packed(history_document(query, self.hour, cached.status, known_s, now))

    def _current(self) -> _CachedStatus | None:
        state = self._state()  # read before the report: the value is never older than its state
        return self._kept.status.get(None, state, self._make_status)

    def _make_status(self) -> _CachedStatus | None:
        report = self.report
        if report is None:
            return None
        status = status_of(report, self.recent, self.health.status, self._changes, self._gaps_since, self.hour)
        return _CachedStatus(status=status, at=report.at)

    def _state(self) -> tuple[object, ...]:
        """The state that the responses depend on, apart from the time."""
        return *self.health.state, self._recent

    def subject_page(self, query: SubjectQuery) -> PackedPage | None:
        """The page of a pod or a GPU; None before the first cycle.

        NothingSeenError if nothing is known of it; TooManyError as for the page.
        """
        cached, report = self._current(), self.report
        if cached is None or report is None:
            return None
        now = self._now()
        seen = SubjectInput(
            seen=self._page_input(now, cached, PageQuery()),
            status=cached.status,
            report=report,
            hour=self.hour,
            now=now,
            query=query,
        )
        # Before the cache: names that nobody has take no room there.
        gpu = found_gpu(seen) if query.gpu else None
        if gpu is None and not (query.pod and is_known(seen)):
            raise NothingSeenError(nothing_of(seen))

        def make() -> PackedPage:
            html = pod_page(seen) if gpu is None else card_page(seen, gpu)
            return PackedPage(packed=gzip.compress(html.encode(), compresslevel=1, mtime=0), refresh_s=REFRESH_S)

        return self._kept.subjects.get(query, self._state(), make)

    def _make_page(self, query: PageQuery) -> PackedPage:
        html, refresh_s = page(self._page_input(self._now(), self._current(), query))
        return PackedPage(packed=gzip.compress(html.encode(), compresslevel=1, mtime=0), refresh_s=refresh_s)

    def _page_input(self, now: Now, cached: _CachedStatus | None, query: PageQuery) -> PageInput:
        return PageInput(
            status=cached.status if cached is not None else None,
            health=(cached.status.health if cached is not None else None) or self.health.status,
            now_s=now.wall_s,
            passed_s=elapsed_s(cached.at, now) if cached is not None else 0.0,
            remedies=self._remedies,
            query=query,
        )
