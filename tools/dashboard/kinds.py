"""The kinds of panel that the dashboard has: how a number, a curve, a table, bars and states over time look."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.dashboard.panels import Json, Panel, Query, limits, mapping

_LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_TOOLTIP: Final = {"mode": "multi", "sort": "desc"}
_LEGEND: Final = {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True}
_LINE: Final = {
    "drawStyle": "line",
    "lineInterpolation": "linear",
    "lineWidth": 1,
    "fillOpacity": 0,
    "showPoints": "auto",
    "pointSize": 4,
    "spanNulls": False,
    "stacking": {"mode": "none", "group": "A"},
    "thresholdsStyle": {"mode": "off"},
}


def stat(title: str, description: str, unit: str, *queries: Query, width: int = 3, **more: Any) -> Panel:
    """A number, or one for each series, on a ground that says whether it is well."""
    options = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST,
        "textMode": more.pop("text", "value"),
        "wideLayout": True,
    }
    return Panel(
        kind="stat",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=width,
        height=more.pop("height", 4),
        options=options,
        **more,
    )


def curves(title: str, description: str, unit: str, *queries: Query, width: int = 12, **more: Any) -> Panel:
    """Lines over time; `look` changes how they are drawn: areas, stacks, a line at the threshold."""
    look = {**_LINE, **more.pop("look", {})}
    color = more.pop("color", {"mode": "palette-classic"})
    return Panel(
        kind="timeseries",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=width,
        height=more.pop("height", 9),
        defaults={"color": color, "custom": look, **more.pop("defaults", {})},
        options={"legend": more.pop("legend", _LEGEND), "tooltip": _TOOLTIP},
        **more,
    )


def bars(title: str, description: str, unit: str, *queries: Query, width: int = 8, **more: Any) -> Panel:
    """How much was counted at each step of time, as stacked bars of whole numbers: a minute is four scrapes."""
    look = {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
    legend = {**_LEGEND, "calcs": ["sum"]}
    defaults = {"min": 0, "decimals": 0, **more.pop("defaults", {})}
    drawn = {"look": look, "legend": legend, "defaults": defaults, "step": "1m"}
    return curves(title, description, unit, *queries, width=width, **drawn, **more)


def gauges(title: str, description: str, unit: str, *queries: Query, width: int = 8, **more: Any) -> Panel:
    """A bar for each series, against a scale."""
    options = {
        "displayMode": "basic",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": _LAST,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    return Panel(
        kind="bargauge",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=width,
        height=more.pop("height", 9),
        options=options,
        **more,
    )


def table(
    title: str, description: str, unit: str, columns: Mapping[str, str], *queries: Query, sort: str = "", **more: Any
) -> Panel:
    """Rows by their labels. `columns` are the labels and values (`Value #A`) that are shown, and their heads."""
    shown = list(columns)
    hidden = [name for name in more.pop("hidden", ()) if name not in columns]
    organize = {
        "excludeByName": dict.fromkeys(["Time", *hidden], True),
        "indexByName": {name: at for at, name in enumerate(shown)},
        "renameByName": {name: head for name, head in columns.items() if name != head},
    }
    options = {
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "showHeader": True,
        "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
    }
    return Panel(
        kind="table",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=more.pop("width", 24),
        height=more.pop("height", 9),
        options=options,
        defaults={"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}},
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
        **more,
    )


def states(
    title: str, description: str, values: Mapping[str, tuple[str, str]], *queries: Query, width: int = 12, **more: Any
) -> Panel:
    """What held when, as coloured bands."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        kind="state-timeline",
        title=title,
        description=description,
        unit="short",
        queries=queries,
        width=width,
        height=more.pop("height", 7),
        options=options,
        defaults={"mappings": mapping(values), "custom": {"fillOpacity": 80, "lineWidth": 0}},
        **more,
    )


def history(
    title: str, description: str, unit: str, *queries: Query, steps: Sequence[tuple[float | None, str]], width: int = 12
) -> Panel:
    """A heat map: a line for each series, a cell for each span of time, coloured by the value."""
    options = {
        "colWidth": 0.95,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        kind="status-history",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=width,
        height=9,
        options=options,
        steps=steps,
        points=120,
        defaults={"custom": {"fillOpacity": 85, "lineWidth": 0}},
    )


def share_cell(highest: float, steps: Sequence[tuple[float | None, str]]) -> Json:
    """How a share of a whole stands in a table: as a bar up to `highest`."""
    gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return {"unit": "percentunit", "min": 0, "max": highest, "custom.cellOptions": gauge, "thresholds": limits(*steps)}
