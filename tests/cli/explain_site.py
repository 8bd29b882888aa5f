"""A daemon's endpoints and its journal, and `explain` with these."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.report.build import climbing, entry, killed, record
from tests.worlds import at
from watchdog import clock
from watchdog.cli.explain import Explanation, UnexplainedError, explain_pod
from watchdog.core.model import ProcessKey
from watchdog.core.plan import CycleReport, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.journal.journal import Journal

NOW_S = at(40).wall_s
KEYS = tuple(ProcessKey(pid=pid, start_ticks=pid * 10) for pid in (101, 102, 103))


@dataclass
class Site:
    """A daemon's endpoints and its journal; its clock is the machine's until `second` is set."""

    journal: Path
    url: str = ""
    second: float | None = None

    def __post_init__(self) -> None:
        self.endpoints = Endpoints(Metrics(), 1.0, lambda: clock.now() if self.second is None else at(self.second))

    def explain(self, pod: str = "a/trainer", url: str | None = "") -> Explanation:
        """Ask this daemon, another address, or (None) the journal alone."""
        return explain_pod(pod, self.url if url == "" else url, self.journal, NOW_S)

    def refusal(self, pod: str = "a/trainer", url: str | None = "") -> str:
        """Why it explains nothing."""
        with pytest.raises(UnexplainedError) as error:
            self.explain(pod, url)
        return str(error.value)

    def text(self, pod: str = "a/trainer", url: str | None = "") -> str:
        """The explanation as one line."""
        return " ".join(" ".join(self.explain(pod, url).lines(100)).split())


def write(path: Path, *reports: CycleReport, node: str = "n1", action: bool = False) -> None:
    """A journal with what is new in these reports, and with one action in the middle of them."""
    with closing(Journal.open(path, JournalLimits(), node)) as journal:
        if action:
            number = journal.intend(entry(), KEYS, at(31))
            journal.signalled(number, at(31), "SIGTERM", KEYS)
            journal.end(number, Result.DONE, "", at(32))
            journal.released(number, at(32), 0.8, "")
        for report in reports:
            record(journal, report)


def after_the_kill() -> CycleReport:
    """The cycle in which a kill has ended."""
    return replace(climbing(31), outcomes=(killed(release_s=0.8),))


def half_killed(path: Path, result: Result, reason: str, *signals: str) -> None:
    """A journal with a kill that got as far as these signals, one a second."""
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        number = journal.intend(entry(), KEYS, at(31))
        for second, name in enumerate(signals):
            journal.signalled(number, at(31 + second), name, KEYS)
        journal.end(number, result, reason, at(35))
