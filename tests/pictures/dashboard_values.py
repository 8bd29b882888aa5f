"""How a panel's values are written: their units, the words and colours that the panel gives them, a table's rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tests.monitoring.prometheus import Sample

Json = dict[str, Any]
# Grafana's names of colours, as this page has them; all can be read on white.
COLORS: Final = {
    "green": "#2b7a3d",
    "dark-green": "#1d5a2b",
    "yellow": "#8a6100",
    "orange": "#b04a00",
    "dark-orange": "#7a3300",
    "red": "#c0202f",
    "dark-red": "#7d0f1b",
    "blue": "#1f5fae",
    "purple": "#6b3fa0",
    "text": "#222222",
    "transparent": "#222222",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value as it is shown; `share` is how long its bar is, 0 to 1, where it has one."""

    text: str
    color: str = "#222222"
    share: float | None = None


def color(name: str) -> str:
    """A colour for CSS."""
    return COLORS.get(name, name)


def cell(value: float | None, panel: Json, field: str = "") -> Cell:
    """A value with the unit, the words and the colour of its panel and of the overrides of its field."""
    known = {**panel["fieldConfig"]["defaults"], **overridden(panel, field)}
    if value is None:
        return _unknown(known)
    for mapped in known.get("mappings", ()):
        if mapped["type"] == "value" and (found := mapped["options"].get(f"{value:g}")):
            return Cell(text=found["text"], color=color(found["color"]))
    look = known.get("custom.cellOptions", {}).get("type")
    if panel["type"] == "table" and look not in ("color-text", "gauge"):
        return Cell(text=written(value, known["unit"]))
    shade = next(
        step["color"]
        for step in reversed(known["thresholds"]["steps"])
        if step["value"] is None or value >= step["value"]
    )
    share = min(max(value / known["max"], 0.0), 1.0) if look == "gauge" or panel["type"] == "bargauge" else None
    return Cell(text=written(value, known["unit"]), color=color(shade), share=share)


def _unknown(known: Json) -> Cell:
    for mapped in known.get("mappings", ()):
        if mapped["type"] == "special":
            return Cell(text=mapped["options"]["result"]["text"], color=color(mapped["options"]["result"]["color"]))
    return Cell(text=known["noValue"], color="#6a6a6a")


def overridden(panel: Json, field: str) -> Json:
    """The properties that a panel gives one field."""
    overrides = panel["fieldConfig"]["overrides"]
    return {
        each["id"]: each["value"]
        for found in overrides
        if found["matcher"] == {"id": "byName", "options": field}
        or (found["matcher"]["id"] == "byRegexp" and field.startswith(found["matcher"]["options"].strip("/^ ")))
        for each in found["properties"]
    }


def written(value: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "dateTimeAsIso":
        return f"{datetime.fromtimestamp(value / 1000, UTC):%H:%M:%S}"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    if unit == "bytes":
        size = next((each for each in range(4, 0, -1) if abs(value) >= 1024**each), 0)
        return f"{value / 1024**size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[size]}"
    return f"{value:.6g}"


def table(panel: Json, answers: Mapping[str, Sequence[Sample]]) -> tuple[list[str], list[list[Cell]]]:
    """A table's heads and rows, put together by the labels that all of its queries give."""
    organize = panel["transformations"][-1]["options"]
    columns = {name: organize["renameByName"].get(name, name) for name in organize["indexByName"]}
    known = [set().union(*(each.labels for each in found)) for found in answers.values()]
    shared = sorted(set.intersection(*known)) if known else []
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for letter, found in answers.items():
        for sample in found:
            row = rows.setdefault(tuple(sample.labels.get(name, "") for name in shared), {})
            row.update(sample.labels)
            row["Value" if len(answers) == 1 else f"Value #{letter}"] = sample.value
    shown = {
        name: head for name, head in columns.items() if any(row.get(name) not in (None, "") for row in rows.values())
    }
    by = {head: name for name, head in columns.items()}[panel["options"]["sortBy"][0]["displayName"]]
    ordered = sorted(rows.values(), key=lambda row: -row.get(by, -1.0))
    cells = [
        [
            cell(row.get(name), panel, head) if name.startswith("Value") else Cell(text=row.get(name, ""))
            for name, head in shown.items()
        ]
        for row in ordered
    ]
    return list(shown.values()), cells
