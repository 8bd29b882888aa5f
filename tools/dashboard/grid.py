"""Where the panels stand, and the dashboard that they make."""

from collections.abc import Iterable, Iterator
from typing import Final

from tools.dashboard.panels import Json, Panel, Row
from tools.dashboard.top import annotations, variables

COLUMNS: Final = 24
# The version of Grafana 10.0; later ones bring it up to theirs when they load it, and 10.0 would not know a later one.
_SCHEMA: Final = 38


def dashboard(rows: Iterable[Row]) -> Json:
    """Give the whole dashboard, as Grafana imports it."""
    return {
        "uid": "gpu-memory-watchdog",
        "title": "GPU memory watchdog",
        "description": "Who uses GPU memory on Kubernetes, against what they declared, and what the watchdog did.",
        "tags": ["gpu", "kubernetes", "gpu-memory-watchdog"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [],
        "liveNow": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "weekStart": "",
        "templating": {"list": variables()},
        "annotations": {"list": annotations()},
        "panels": list(_placed(rows)),
    }


def _placed(rows: Iterable[Row]) -> Iterator[Json]:
    """The first row with its panels, and below it the titles of the others, which keep theirs: they are collapsed.

    What is collapsed asks for nothing. Its panels have the places that they get when it is opened, from below its title
    on; Grafana then moves the rows after it down.
    """
    number, top = 1, 0
    for row in rows:
        is_first = top == 0
        title, panels = _title(row, number, top, collapsed=not is_first), list(_laid_out(row, number + 1, top + 1))
        number, top = number + 1 + len(panels), top + 1
        if is_first:
            yield title
            yield from panels
            top = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        else:
            yield title | {"panels": panels}


def _laid_out(row: Row, number: int, top: int) -> Iterator[Json]:
    """Lay its panels out from left to right, in lines as high as their highest."""
    for line in _lines(row.panels):
        left = 0
        for panel in line:
            yield panel.to_json(number, {"h": panel.height, "w": panel.width, "x": left, "y": top})
            number, left = number + 1, left + panel.width
        top += max(panel.height for panel in line)


def _title(row: Row, number: int, top: int, *, collapsed: bool) -> Json:
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": row.title, "collapsed": collapsed, "gridPos": place, "panels": []}


def _lines(panels: Iterable[Panel]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if line and sum(each.width for each in line) + panel.width > COLUMNS:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line
