"""`python -m tests.pictures.dashboard FOLDER` writes dashboard.png: what the dashboard's queries give.

Grafana is not among the programs of the tests. So this is no screenshot of it: it is what the queries of
deploy/grafana/gpu-memory-watchdog.json gave on two simulated nodes (real daemons, a stub of NVML, a real Prometheus),
drawn plainly, and it says so. Needs root, for the cgroups, and the Debian packages prometheus and chromium.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final

from tests.browser.browsing import chromium
from tests.monitoring.grafana import Viewer, panels_of
from tests.monitoring.prometheus import Series
from tests.monitoring.shared_node import GPU, INTERVAL_S, shared_node
from tests.pictures.dashboard_graphs import PALETTE, Curve, Graph
from tests.pictures.dashboard_values import Cell, Json, cell, color, overridden, table
from tools.dashboard.written import FILE

# What is drawn, row by row: enough to judge the dashboard by, little enough to be read in a README.
SHOWN: Final = (
    ("Overview", "Over now", "Pods killed", "Failed or blocked", "Set to enforce, but suspended", "Withheld"),
    (
        "Overview",
        "Would have acted",
        "Memory of all cards in use",
        "Cards lost",
        "Unattributed memory",
        "Breakers open",
    ),
    ("Card models and sharing", "Cards by model and sharing"),
    ("Cards", "Cards"),
    ("Allocated against used", "Declared, used and size of all cards", "Declared, by card"),
    ("Utilization and idle memory", "Utilization, by container", "Idle memory"),
    ("Pods against what they declared", "Pods against what they declared"),
    ("Over time", "Who is on $gpu", "Use against declared and allowed"),
    ("Ladder and actions", "Actions", "Actions over time"),
    ("Health of the watchdog", "Watchdogs"),
)
# Of the pods one is killed and one only warned: two to read one graph by.
CHOSEN: Final = {"gpu": [GPU], "pod": ["nb-7", "creeper"]}
_PAUSE_S: Final = 14.0
_LINES: Final = {"solid": "solid", "dash": "dashed", "dot": "dotted"}
_CAPTION: Final = (
    "What the queries of the Grafana dashboard gave on two simulated nodes: real daemons on a stub of NVML, scraped by "
    "a real Prometheus, over {seconds:.0f} s. Drawn by tests/pictures/dashboard.py; this is not a screenshot of "
    "Grafana. Empty is unknown. Upright dashed lines mark actions: red a kill, orange an eviction (which "
    "fails: these nodes have no API), yellow a warning."
)
_STYLE: Final = """
body { font: 15px/1.35 sans-serif; margin: 0; padding: 20px; width: 1640px; background: #f3f4f6; color: #222; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 18px 0 6px; } p { margin: 0 0 6px; }
.row { display: grid; grid-auto-flow: column; grid-auto-columns: 1fr; gap: 10px; margin-bottom: 10px; }
section { background: #fff; border: 1px solid #ccd; padding: 8px 10px; min-width: 0; }
h3 { font-size: 14px; margin: 0 0 6px; color: #444; } .number { font-size: 30px; font-weight: bold; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: #555; border-bottom: 1px solid #aab; font-weight: normal; padding: 2px 8px 2px 0; }
td { border-bottom: 1px solid #e4e6ee; padding: 3px 8px 3px 0; white-space: nowrap; }
.bar { display: inline-block; width: 90px; height: 11px; background: #e4e6ee; margin-right: 6px; }
.bar i { display: block; height: 100%; } svg { width: 100%; display: block; } svg text { font-size: 12px; fill: #555; }
.grid { stroke: #e4e6ee; } .legend { margin: 4px 0 0; padding: 0; columns: 2; font-size: 13px; list-style: none; }
.legend i { display: inline-block; width: 18px; margin-right: 6px; vertical-align: middle; }
"""


def page(viewer: Viewer) -> str:
    """The page that is photographed."""
    panels = {panel["title"]: panel for panel in panels_of(viewer.document)}
    parts = ["<h1>GPU memory watchdog</h1>", f"<p>{_CAPTION.format(seconds=viewer.end - viewer.start)}</p>"]
    before = ""
    for row, *titles in SHOWN:
        parts.append("" if row == before else f"<h2>{escape(row)}</h2>")
        drawn = "".join(_panel(viewer, panels[title]) for title in titles)
        parts.append(f'<div class="row">{drawn}</div>')
        before = row
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>{"".join(parts)}'


def _panel(viewer: Viewer, panel: Json) -> str:
    # Only the graph of single pods is narrowed to them.
    if panel["title"] != "Use against declared and allowed":
        viewer = replace(viewer, chosen={"gpu": viewer.chosen["gpu"]})
    title = panel["title"].replace("$gpu", viewer.options("gpu")[GPU])
    body = {"stat": _stat, "table": _table, "bargauge": _bars, "timeseries": _graph}[panel["type"]](viewer, panel)
    return f"<section><h3>{escape(title)}</h3>{body}</section>"


def _answers(viewer: Viewer, panel: Json) -> dict[str, Any]:
    return {target["refId"]: viewer.ask(panel["title"], target["refId"]) for target in panel["targets"]}


def _stat(viewer: Viewer, panel: Json) -> str:
    (found,) = _answers(viewer, panel).values()
    shown = cell(found[0].value if found else None, panel)
    return f'<span class="number" style="color: {shown.color}">{escape(shown.text)}</span>'


def _bar(shown: Cell) -> str:
    if shown.share is None:
        return ""
    return f'<span class="bar"><i style="width: {shown.share:.0%}; background: {shown.color}"></i></span>'


def _bars(viewer: Viewer, panel: Json) -> str:
    (found,) = _answers(viewer, panel).values()
    legend = panel["targets"][0]["legendFormat"]
    rows = []
    for sample in sorted(found, key=lambda each: -each.value):
        shown = cell(sample.value, panel)
        name = viewer.titled(legend, sample.labels)
        rows.append(f"<tr><td>{escape(name)}<td>{_bar(shown)}{escape(shown.text)}")
    return f"<table>{''.join(rows)}</table>"


def _table(viewer: Viewer, panel: Json) -> str:
    heads, rows = table(panel, _answers(viewer, panel))
    top = "".join(f"<th>{escape(head)}" for head in heads)
    lines = [
        "".join(f'<td style="color: {each.color}">{_bar(each)}{escape(each.text)}' for each in row) for row in rows
    ]
    return f"<table><tr>{top}{''.join(f'<tr>{line}' for line in lines)}</table>"


def _graph(viewer: Viewer, panel: Json) -> str:
    marks = [
        (mark.at, color(annotation["iconColor"]))
        for annotation in viewer.document["annotations"]["list"]
        if annotation["enable"] and not annotation.get("builtIn")
        for mark in viewer.marks(annotation)
    ]
    graph = Graph(
        curves=list(_curves(viewer, panel)),
        start=viewer.start,
        end=viewer.end,
        unit=panel["fieldConfig"]["defaults"]["unit"],
        step_s=viewer.step_s(panel),
        marks=marks,
    )
    return graph.svg() + graph.legend()


def _curves(viewer: Viewer, panel: Json) -> Iterator[Curve]:
    custom = panel["fieldConfig"]["defaults"]["custom"]
    legends = {target["refId"]: target["legendFormat"] for target in panel["targets"]}
    palette = iter(PALETTE * 9)
    for letter, found in _answers(viewer, panel).items():
        for series in found:
            assert isinstance(series, Series)
            name = viewer.titled(legends[letter], series.labels)
            given = overridden(panel, name)
            own = given.get("color")
            yield Curve(
                name=name,
                points=series.points,
                color=color(own["fixedColor"]) if own else next(palette),
                stacked=custom["stacking"]["mode"] == "normal"
                and custom["drawStyle"] == "line"
                and "custom.stacking" not in given,
                line=_LINES[given.get("custom.lineStyle", {}).get("fill", "solid")],
                bars=custom["drawStyle"] == "bars",
            )


def main() -> None:
    """Let it happen, ask, draw, and photograph the page."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as root, shared_node(Path(root), pause_s=_PAUSE_S, cluster="") as happened:
        viewer = Viewer(
            prometheus=happened.prometheus,
            document=json.loads(FILE.read_text(encoding="utf-8")),
            start=happened.start,
            end=happened.end,
            interval_s=INTERVAL_S,
            chosen=CHOSEN,
        )
        text = page(viewer)
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        sheet = browser.new_page(viewport={"width": 1680, "height": 800})
        sheet.set_content(text)
        sheet.screenshot(path=str(folder / "dashboard.png"), full_page=True)


if __name__ == "__main__":
    main()
