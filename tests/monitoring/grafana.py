"""What Grafana makes of a dashboard's queries before Prometheus gets them: variables, and the marks in the graphs.

After Grafana's own code: escaping.ts, annotations.ts and metric_find_query.ts in packages/grafana-prometheus/src,
and MultiValueVariable and metricNamesToVariableValues of @grafana/scenes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.monitoring.prometheus import Prometheus, Sample, Series

Json = dict[str, Any]
_STEPS_S: Final = {"": 0.0, "1m": 60.0}
_DEPLOYED_S: Final = 15.0  # how often deploy/prometheus scrapes: the tests scrape more often, and scale steps by it
_REFERENCE: Final = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_LABEL_VALUES: Final = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)")
_QUERY_RESULT: Final = re.compile(r"query_result\((.+)\)")


def panels_of(document: Json) -> list[Json]:
    """Every panel of a dashboard, those of collapsed rows among them, without the titles of rows."""
    found = [panel for top in document["panels"] for panel in (top, *top.get("panels", ()))]
    return [panel for panel in found if panel["type"] != "row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark in the graphs: when (Unix seconds), its title and its text."""

    at: float
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """A viewer of the dashboard: which time range (Unix seconds), and what is chosen in its variables.

    What is not in `chosen` is All, or the first of the values where a variable has no All. `interval_s` is the scrape
    interval that the data source is set up with; it is the step of the graphs, too.
    """

    prometheus: Prometheus
    document: Json
    start: float
    end: float
    interval_s: float
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def ask(self, title: str, letter: str = "A") -> list[Sample] | list[Series]:
        """What a query of a panel gives: the panel of this title, the query of this letter."""
        panel = self.panel(title)
        (target,) = (each for each in panel["targets"] if each["refId"] == letter)
        if target["instant"]:
            return self.prometheus.query(self.written(target["expr"]), at=self.end)
        step_s = self.step_s(panel)
        expr = self.written(target["expr"], step_s)
        return self.prometheus.query_range(expr, start=self.start, end=self.end, step_s=step_s)

    def panel(self, title: str) -> Json:
        """The panel of this title."""
        (found,) = (each for each in panels_of(self.document) if each["title"] == title)
        return dict(found)

    def step_s(self, panel: Json) -> float:
        """The step of a panel's graph: that of the scrapes, or the shortest that the panel has, to the same scale."""
        return max(self.interval_s, _STEPS_S[panel.get("interval", "")] * self.interval_s / _DEPLOYED_S)

    def marks(self, annotation: Json) -> list[Mark]:
        """The marks that an annotation puts in the time range: one for each value that its series have had."""
        found = self.prometheus.query_range(
            self.written(annotation["expr"]), start=self.start, end=self.end, step_s=self.interval_s
        )
        assert annotation["useValueForTime"], annotation["name"]
        return [
            Mark(
                at=milliseconds / 1000,
                title=_legend(annotation["titleFormat"], series.labels),
                text=_legend(annotation["textFormat"], series.labels),
            )
            for series in found
            for milliseconds in sorted({value for _, value in series.points})
            if self.start <= milliseconds / 1000 <= self.end
        ]

    def titled(self, form: str, labels: Mapping[str, str]) -> str:
        """The name of a series in a legend."""
        return " ".join(_legend(form, labels).split())

    def options(self, name: str) -> dict[str, str]:
        """The values that a variable offers, with the text that each is shown by."""
        variable = self._variable(name)
        query = variable["query"]["query"]
        if found := _LABEL_VALUES.fullmatch(query):
            match = {"match[]": self.written(found[1])} if found[1] else {}
            values = self.prometheus.api(f"label/{found[2]}/values", **match, start=self.start, end=self.end)
            return {each: each for each in values}
        found = _QUERY_RESULT.fullmatch(query)
        assert found, query
        answers = self.prometheus.query(self.written(found[1]), at=self.end)
        # As JavaScript writes named groups.
        expression = re.compile(variable["regex"].removeprefix("/").removesuffix("/g").replace("(?<", "(?P<"))
        return dict(_picked(expression, each) for each in answers)

    def written(self, query: str, step_s: float = 0.0) -> str:
        """The query as Prometheus gets it, for a graph of this step (at least that of the scrapes)."""
        return _REFERENCE.sub(lambda found: self._value(found[1] or found[2], step_s or self.interval_s), query)

    def _value(self, name: str, step_s: float) -> str:
        built_in = {
            "__range": f"{round(self.end - self.start)}s",
            "__interval": f"{step_s:g}s",
            "__interval_ms": f"{step_s * 1000:g}",
            "__rate_interval": f"{max(step_s + self.interval_s, 4 * self.interval_s):g}s",
            "__from": str(round(self.start * 1000)),
            "__to": str(round(self.end * 1000)),
        }
        if name in built_in:
            return built_in[name]
        variable = self._variable(name)
        values = list(self.chosen.get(name, ()))
        if not values and variable["includeAll"]:
            return str(variable["allValue"])
        values = [_escaped(each) for each in values or list(self.options(name))[:1]]
        return values[0] if len(values) == 1 else f"({'|'.join(values)})"

    def _variable(self, name: str) -> Json:
        (found,) = (each for each in self.document["templating"]["list"] if each["name"] == name)
        return dict(found)


def _escaped(value: str) -> str:
    """A value for a regular expression in a string of PromQL."""
    return re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def _picked(expression: re.Pattern[str], sample: Sample) -> tuple[str, str]:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    text = f"{{{labels}}} {sample.value:g} {sample.at * 1000:g}"
    groups: dict[str, str] = {}
    for found in expression.finditer(text):
        groups |= {name: value for name, value in found.groupdict().items() if value}
    return groups["value"], groups["text"]


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda found: labels.get(found[1], ""), form)
