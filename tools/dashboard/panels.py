"""How a panel is described, and how Grafana's JSON has it: the parts that every kind of panel shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, Final

Json = dict[str, Any]

# "Unknown is absent" in the metrics: an empty panel must not read as "nothing is wrong".
UNKNOWN: Final = "no data: unknown"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = ("green", "yellow", "orange", "red", "blue", "purple", "#8e8e8e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of a panel: over the time range, or `instant` at its end; `table`: labels become columns."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False

    def to_json(self, letter: str) -> Json:
        """Give it as a target of a panel."""
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.table else "time_series",
            "instant": self.instant,
            "legendFormat": self.legend or "__auto",
            "range": not self.instant,
            "refId": letter,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel: what it asks, in which unit, how it looks. `width` is of 24 columns, `height` in grid units.

    `steps` are the thresholds: a value from which on (None: the lowest) a colour holds. `none` is shown where
    there is no data. `points` is how many of a series are asked for at most, where that is not the panel's width.
    `step` is how long a step of time is at least. `repeat` is the variable of whose values each gets such a panel.
    `last` is the time that it shows, `1h` for example, whatever is chosen for the dashboard.
    """

    kind: str
    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    width: int
    height: int
    steps: Sequence[tuple[float | None, str]] = ((None, GREEN),)
    none: str = UNKNOWN
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[Json] = ()
    transformations: Sequence[Json] = ()
    repeat: str = ""
    points: int | None = None
    step: str = ""
    last: str = ""

    def to_json(self, number: int, place: Mapping[str, int]) -> Json:
        """Give it as it is in the dashboard."""
        defaults = {
            "color": {"mode": "thresholds"},
            "noValue": self.none,
            "thresholds": limits(*self.steps),
            "unit": self.unit,
            **self.defaults,
        }
        found: Json = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "gridPos": dict(place),
            "options": dict(self.options),
            "targets": [query.to_json(letter) for query, letter in zip(self.queries, ascii_uppercase, strict=False)],
        }
        if self.transformations:
            found["transformations"] = list(self.transformations)
        if self.points is not None:
            found["maxDataPoints"] = self.points
        if self.step:
            found["interval"] = self.step
        if self.last:
            found["timeFrom"] = self.last
        if self.repeat:
            found |= {"repeat": self.repeat, "repeatDirection": "h", "maxPerRow": 2}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the dashboard: its title, and its panels in the order in which they are laid out."""

    title: str
    panels: Sequence[Panel]


def override(name: str, properties: Mapping[str, object]) -> Json:
    """Set properties of the field of a name, or of all whose name matches a `/regular expression/`."""
    matcher = {"id": "byRegexp" if name.startswith("/") else "byName", "options": name}
    return {"matcher": matcher, "properties": [{"id": key, "value": value} for key, value in properties.items()]}


def limits(*steps: tuple[float | None, str]) -> Json:
    """Thresholds: from each value on (None: from the lowest) its colour."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def fixed(color: str) -> Json:
    """One colour whatever the value."""
    return {"mode": "fixed", "fixedColor": color}


def mapping(values: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Show words of a colour in place of numbers."""
    options = {
        value: {"text": text, "color": color, "index": at} for at, (value, (text, color)) in enumerate(values.items())
    }
    return [{"type": "value", "options": options}]
