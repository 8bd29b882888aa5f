"""The log: one line for each decision, on stderr."""

import logging
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final

from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.export.log_fields import fields_of
from watchdog.export.news import News
from watchdog.export.news_deeds import outcome_news
from watchdog.export.news_item import Event, NewsItem
from watchdog.export.repeats import Repeats
from watchdog.export.structured import structlog

_LEVELS: Final[Mapping[Event, int]] = {
    Event.WARNED: logging.WARNING,
    Event.KILL_BEGUN: logging.WARNING,
    Event.EVICT_BEGUN: logging.WARNING,
    Event.EVICT_BLOCKED: logging.WARNING,
    Event.EVICT_DELAYED: logging.WARNING,
    Event.WITHHELD: logging.WARNING,
    Event.BREAKER_OPENED: logging.WARNING,
    Event.MISDECLARED: logging.WARNING,
    Event.GAP_BEGAN: logging.WARNING,
    Event.PODS_STALE: logging.WARNING,
    Event.SUSPENDED: logging.WARNING,
    Event.POLICY_REFUSED: logging.ERROR,
}


class Log:
    """Tells each decision once. `remedies` as `News` takes them."""

    def __init__(self, remedies: Mapping[str, str] | None = None) -> None:
        self._news = News(remedies)
        self._crashes = Repeats()
        self._logger = structlog.get_logger()

    def log_report(self, report: CycleReport) -> None:
        """A line for each thing that is new in a report; none at rest."""
        self._tell(self._news.since(report))

    def log_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """A line for each deed that ended after the last pass."""
        self._tell(item for outcome in outcomes for item in outcome_news(outcome))

    def _tell(self, items: Iterable[NewsItem]) -> None:
        for item in items:
            if item.event is Event.EXPLAINED:
                continue  # for the journal: it says in full what the lines beside it say in short
            failed = item.outcome is not None and item.outcome.result in (Result.FAILED, Result.BLOCKED)
            level = logging.WARNING if failed else _LEVELS.get(item.event, logging.INFO)
            self._logger.log(level, item.event.value, **fields_of(item))

    def say(self, event: Event, message: str, **fields: Any) -> None:
        """A line about the daemon's own life: `started`, `stopped`, `policy_refused`."""
        self._logger.log(_LEVELS.get(event, logging.INFO), event.value, message=message, **fields)

    def inform(self, message: str) -> None:
        """A line about something that has been done, and that nobody has to look at."""
        self._logger.info("info", message=message)

    def warn(self, message: str) -> None:
        """A line about something that an operator should look at."""
        self._logger.warning("warning", message=message)

    def crash(self, error: Exception, now_s: float) -> None:
        """An error that nobody foresaw, with its traceback in one field; at most once a minute from the same place."""
        again = self._crashes.admit(_place(error), now_s)
        if again is None:
            return
        trace = "".join(traceback.format_exception(error))
        message = f"a pass failed for a reason that was not foreseen, and is tried again; please report this: {error!r}"
        often = f" ({again + 1} times since this was last said)" if again else ""
        self._logger.error("error", message=f"{message}{often}", traceback=trace)

    def loud(self, message: str, **fields: Any) -> None:
        """An error that an operator must see."""
        self._logger.error("error", message=message, **fields)


def _place(error: Exception) -> str:
    """Where an error was raised, and of which kind it is: its text may be another one each time."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__
