"""A real Prometheus on loopback, with data of its own; it is ended with the tests, however they end."""

import math
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.monitoring.asking import ask, wait_for
from tests.monitoring.served import Config, Served

INTERVAL: Final = "200ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series of an instant query's answer: its labels, its value, and for when (Unix seconds)."""

    labels: Mapping[str, str]
    value: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of a range query's answer: its labels, and times (Unix seconds) with values."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


def configuration(
    *scrapes: Config,
    rules: Iterable[Path] = (),
    alertmanagers: Sequence[str] = (),
    external_labels: Mapping[str, str] | None = None,
    interval: str = INTERVAL,
) -> Config:
    """A whole configuration; `alertmanagers` are addresses `HOST:PORT`, scrapes and rules come each `interval`."""
    made: Config = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
            "external_labels": dict(external_labels or {}),
        },
        "rule_files": [str(each) for each in rules],
        "scrape_configs": list(scrapes),
    }
    if alertmanagers:
        made["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]}
    return made


class Prometheus(Served):
    """A context manager: it is ready inside, and gone after it. See `configuration` for what it takes."""

    def __init__(self, folder: Path, config: Config, *, resend: str = "1s", program: Path | None = None) -> None:
        """`folder` gets configuration, log and data; `program` is another one than the distribution's."""
        own = (
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.enable-lifecycle",
            "--web.enable-admin-api",
            # Resent each second, as often as rules are evaluated here: the default, 1m, is for evaluations each minute.
            f"--rules.alert.resend-delay={resend}",
        )
        super().__init__("prometheus", folder, config, *own, program=program)

    def api(self, path: str, **parameters: str | float) -> Any:
        """The `data` of /api/v1/PATH. Raises RefusedError, with what is wrong with a query."""
        asked = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        return ask(self.port, "GET", f"/api/v1/{path}{asked}").object["data"]

    def query(self, expr: str, *, at: float | None = None) -> list[Sample]:
        """What an expression gives now, or at a time (Unix seconds); a scalar is a sample without labels."""
        data = self.api("query", query=expr, **({} if at is None else {"time": at}))
        if data["resultType"] == "scalar":
            data = {"result": [{"metric": {}, "value": data["result"]}]}
        return [
            Sample(labels=each["metric"], value=float(each["value"][1]), at=each["value"][0]) for each in data["result"]
        ]

    def value(self, expr: str) -> float:
        """The one value that an expression gives; NaN where it gives none."""
        found = self.query(expr)
        assert len(found) <= 1, (expr, found)
        return found[0].value if found else math.nan

    def query_range(self, expr: str, *, start: float, end: float, step_s: float) -> list[Series]:
        """What an expression gives from `start` to `end` (Unix seconds) in steps."""
        return _series(self.api("query_range", query=expr, start=start, end=end, step=step_s))

    def samples(self, selector: str) -> list[Series]:
        """The series of a selector with the samples of the last 10 minutes, by their own times."""
        return _series(self.api("query", query=f"{selector}[10m]"))

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that it has loaded, with its `health` and `lastError`."""
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """The targets that it scrapes, with `labels`, `discoveredLabels`, `health` and `lastError`."""
        found: list[dict[str, Any]] = self.api("targets")["activeTargets"]
        return found

    def wait_for(self, expr: str, limit_s: float = 60.0) -> list[Sample]:
        """Wait until an expression gives something."""
        return wait_for(lambda: self.query(expr), lambda: f"{expr}\n{self.trouble()}", limit_s)

    def trouble(self) -> str:
        """What does not work, for a failing test: targets that are down, rules with errors, the end of the log."""
        down = [f"{each['scrapeUrl']}: {each['lastError']}" for each in self.targets() if each["health"] != "up"]
        bad = [f"{each['name']}: {each['lastError']}" for each in self.rules() if each["health"] == "err"]
        return "\n".join([*down, *bad, self.server.tail()])


def _series(data: Any) -> list[Series]:
    return [
        Series(labels=each["metric"], points=tuple((at, float(value)) for at, value in each["values"]))
        for each in data["result"]
    ]
