"""The kinds of panel that the dashboard has: how a number, a curve, a table, bars and states over time look."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.dashboard.panels import Json, Panel, Query, limits, mapping
from tools.dashboard.queries import counted

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


def stat(title: str, description: str, unit: str, *queries: Query, text: str = "value", **more: Any) -> Panel:
    """A number, or one for each series, on a ground that says whether it is well."""
    options = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST,
        "textMode": text,
        "wideLayout": True,
    }
    return _panel("stat", (title, description, unit), queries, (3, 4), options=options, **more)


def curves(title: str, description: str, unit: str, *queries: Query, **more: Any) -> Panel:
    """Lines over time; `look` changes how they are drawn: areas, stacks, a line at the threshold."""
    look = {**_LINE, **more.pop("look", {})}
    defaults = {"color": {"mode": "palette-classic"}, "custom": look, **more.pop("defaults", {})}
    options = {"legend": more.pop("legend", _LEGEND), "tooltip": _TOOLTIP}
    return _panel(
        "timeseries", (title, description, unit), queries, (12, 9), defaults=defaults, options=options, **more
    )


def bars(title: str, description: str, by: str, name: str, legend: str, *, none: str, **more: Any) -> Panel:
    """How often something was counted at each step of time, by labels, as stacked bars: a minute is four scrapes."""
    query = Query(expr=counted(by, name), legend=legend)
    look = {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
    columns = {**_LEGEND, "calcs": ["sum"]}
    drawn = {"look": look, "legend": columns, "defaults": {"min": 0, "decimals": 0}, "step": "1m", "width": 8}
    return curves(title, description, "short", query, none=f"{none}, or unknown", **drawn, **more)


def gauges(title: str, description: str, unit: str, *queries: Query, **more: Any) -> Panel:
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
    return _panel("bargauge", (title, description, unit), queries, (8, 9), options=options, **more)


def table(
    title: str, description: str, unit: str, columns: Mapping[str, str], *exprs: str, sort: str, **more: Any
) -> Panel:
    """Rows by their labels. `columns` are the labels and values (`Value #A`) that are shown, and their heads."""
    organize = {
        "excludeByName": dict.fromkeys(["Time", *more.pop("hidden", ())], True),
        "indexByName": {name: at for at, name in enumerate(columns)},
        "renameByName": {name: head for name, head in columns.items() if name != head},
    }
    options = {
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "showHeader": True,
        "sortBy": [{"displayName": sort, "desc": True}],
    }
    return _panel(
        "table",
        (title, description, unit),
        [Query(expr=expr, instant=True, table=True) for expr in exprs],
        (24, 9),
        options=options,
        defaults={"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}},
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
        **more,
    )


def heads(*labels: str) -> dict[str, str]:
    """Columns of labels under their own names."""
    return {label: label.capitalize() for label in labels}


def states(title: str, description: str, values: Mapping[str, tuple[str, str]], *queries: Query, **more: Any) -> Panel:
    """What held when, as coloured bands."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults = {"mappings": mapping(values), "custom": {"fillOpacity": 80, "lineWidth": 0}}
    head = (title, description, "short")
    return _panel("state-timeline", head, queries, (12, 7), options=options, defaults=defaults, **more)


def history(title: str, description: str, unit: str, *queries: Query, **more: Any) -> Panel:
    """A heat map: a line for each series, a cell for each span of time, coloured by the value."""
    options = {
        "colWidth": 0.95,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    look = {"points": 120, "defaults": {"custom": {"fillOpacity": 85, "lineWidth": 0}}}
    return _panel("status-history", (title, description, unit), queries, (12, 9), options=options, **look, **more)


def _panel(
    kind: str, head: tuple[str, str, str], queries: Sequence[Query], size: tuple[int, int], **more: Any
) -> Panel:
    """A panel with this title, description and unit, of this width and height unless others are given."""
    title, description, unit = head
    width, height = size
    place = {"width": width, "height": height}
    return Panel(kind=kind, title=title, description=description, unit=unit, queries=queries, **(place | more))


def share_cell(highest: float, steps: Sequence[tuple[float | None, str]]) -> Json:
    """How a share of a whole looks in a table: as a bar up to `highest`."""
    gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return {"unit": "percentunit", "min": 0, "max": highest, "custom.cellOptions": gauge, "thresholds": limits(*steps)}
