"""That the pod list has grown too old to act on, and that it is fresh again: each told once."""

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_duration
from watchdog.export.phrases import elapsed_s, span
from watchdog.export.sums import pods_stale


class Staleness:
    """Follows the age of the pod list from report to report; one that has never come has not grown old."""

    def __init__(self) -> None:
        self._since: Now | None = None

    @property
    def lasts(self) -> bool:
        """Whether the list was too old at the last report."""
        return self._since is not None

    def news(self, report: CycleReport) -> str:
        """The sentence of a change, which `lasts` then says the direction of; empty where nothing has changed."""
        stale, since = pods_stale(report), self._since
        if stale == self.lasts or report.pods.synced is None:
            return ""
        self._since = report.at if stale else None
        if since is not None:
            lasted = span(elapsed_s(since, report.at))
            return f"The pod list is fresh again: time counts again. It was too old for {lasted}."
        age = format_duration(report.policy.stale_after_s)
        until = "it is written again" if report.pods.by_file else "the API server is heard again"
        return f"The pod list is older than {age}: no time counts and nobody is acted on until {until}."
