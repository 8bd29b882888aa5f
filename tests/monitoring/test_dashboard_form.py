"""The dashboard's form: what Grafana needs to import it, and what a reader needs."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.monitoring.grafana import panels_of
from tests.monitoring.rules.exposed import LABELS, metric_names
from tests.report.build import climbing
from tools.dashboard import NOT_SHOWN
from tools.dashboard.written import FILE, text
from watchdog.export.metrics import Metrics

Json = dict[str, Any]
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = panels_of(DOCUMENT)
ROWS = [each for each in DOCUMENT["panels"] if each["type"] == "row"]
VARIABLES = {each["name"]: each for each in DOCUMENT["templating"]["list"]}
MARKS = [each for each in DOCUMENT["annotations"]["list"] if not each.get("builtIn")]
# What Grafana itself gives (https://grafana.com/docs/grafana/latest/dashboards/variables/add-template-variables/).
BUILT_IN = {"__from", "__to", "__range", "__interval", "__interval_ms", "__rate_interval"}
# The ids of getCategories in packages/grafana-data/src/valueFormats of Grafana that are used here.
UNITS = {"bytes", "s", "short", "percentunit", "dateTimeAsIso"}

every_panel = pytest.mark.parametrize("panel", PANELS, ids=[each["title"] for each in PANELS])


def queries() -> Iterator[str]:
    """Every PromQL expression of the dashboard."""
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    yield from (mark["expr"] for mark in MARKS)
    yield from (each["query"]["query"] for each in VARIABLES.values() if each["type"] == "query")


def test_the_file_is_as_it_would_be_written() -> None:
    """It is not edited by hand: `python -m tools.dashboard` writes it again."""
    assert FILE.read_text(encoding="utf-8") == text()


def test_it_can_be_imported() -> None:
    """It has a fixed uid and no id, an old enough schema for Grafana 10, and asks for its data source by a variable."""
    assert DOCUMENT["uid"] == "gpu-memory-watchdog"
    assert "id" not in DOCUMENT
    assert DOCUMENT["schemaVersion"] <= 38
    assert [*VARIABLES] == ["datasource", "cluster", "node", "namespace", "pod", "gpu"]
    for each in (*PANELS, *MARKS, *(VARIABLES[name] for name in VARIABLES if name != "datasource")):
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, each


def test_numbers_and_places_are_unique() -> None:
    """No two panels have one number or overlap, none sticks out, and they are in the order of their places."""
    numbers = [panel["id"] for panel in (*ROWS, *PANELS)]
    assert len(set(numbers)) == len(numbers)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    # What is seen at first, and each collapsed row once it is opened.
    for seen in (DOCUMENT["panels"], *([row, *row["panels"]] for row in ROWS)):
        cells: dict[tuple[int, int], int] = {}
        for panel in seen:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, panel["title"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert cells.setdefault((x, y), panel["id"]) == panel["id"], panel["title"]
        tops = [panel["gridPos"]["y"] for panel in seen]
        assert tops == sorted(tops)


def test_only_the_first_row_is_open() -> None:
    """The dashboard opens with the overview; the other rows are titles, which ask Prometheus for nothing yet."""
    assert [row["collapsed"] for row in ROWS] == [False] + [True] * (len(ROWS) - 1)
    assert [bool(row["panels"]) for row in ROWS] == [row["collapsed"] for row in ROWS]
    assert max(row["gridPos"]["y"] for row in ROWS) < 20


@every_panel
def test_each_panel_explains_itself(panel: Json) -> None:
    """A panel has a title, a sentence on what it shows, a unit, and words for where there is no data."""
    defaults = panel["fieldConfig"]["defaults"]
    assert re.fullmatch(r"[A-Z][^.]+", panel["title"])
    assert re.fullmatch(r"\S.{30,}[.]", panel["description"]), panel["description"]
    assert defaults["unit"] in UNITS
    assert "unknown" in defaults["noValue"]
    assert defaults["thresholds"]["steps"][0]["value"] is None
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert target["instant"] is not target["range"]


@every_panel
def test_a_table_heads_each_column_once(panel: Json) -> None:
    """What a table shows is what its queries give: each value has a head, and what has a property is shown."""
    if panel["type"] != "table":
        return
    organize = panel["transformations"][-1]["options"]
    letters = [target["refId"] for target in panel["targets"]]
    values = {f"Value #{letter}" for letter in letters} if len(letters) > 1 else {"Value"}
    shown, hidden = set(organize["indexByName"]), set(organize["excludeByName"])
    assert values <= shown | hidden
    heads = [organize["renameByName"].get(name, name) for name in organize["indexByName"]]
    assert len(set(heads)) == len(heads)
    styled = {each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]}
    sorted_by = {each["displayName"] for each in panel["options"]["sortBy"]}
    assert styled | sorted_by <= set(heads)
    asked = " ".join(target["expr"] for target in panel["targets"])
    assert all(re.search(rf"\b{label}\b", asked) for label in shown - values)


def names(of: Mapping[str, object]) -> set[str]:
    """The variables that a part of the dashboard asks for."""
    found = re.findall(r"\$\{?(\w+)", json.dumps(of))
    return {name for name in found if not name.startswith(("__data", "__url", "__all"))}


def test_every_variable_exists_and_is_asked_for() -> None:
    """No query asks for a variable that is not there, and none is offered that changes nothing."""
    asked = set().union(*(names(each) for each in (*PANELS, *MARKS, *VARIABLES.values())))
    assert asked - BUILT_IN == set(VARIABLES)


def test_each_variable_narrows_the_next() -> None:
    """The choice goes from cluster to pod; All means whatever there is, a missing label too."""
    before: list[str] = []
    for name in ("cluster", "node", "namespace", "pod"):
        variable = VARIABLES[name]
        assert (variable["multi"], variable["includeAll"], variable["allValue"]) == (True, True, ".*")
        assert variable["current"]["value"] == ["$__all"]
        assert names(variable) - {"datasource"} == set(before), name
        assert names(variable["query"]) == set(before), name
        before.append(name)


def test_every_metric_has_its_place() -> None:
    """Each metric of the collector is asked for somewhere, but for what the metrics' own page is better for."""
    metrics = Metrics()
    metrics.update(climbing())
    asked = " ".join(queries())
    assert {family.name for family in metrics.collect() if family.name not in asked} == NOT_SHOWN


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_each_query_is_narrowed(query: str) -> None:
    """Every metric exists, every selector obeys the choice of cluster and node, and so does every join."""
    selectors = re.findall(r"\b(?:gpu_watchdog_\w+|process_\w+|up\b)(\{[^}]*\})?", query)
    assert selectors
    assert metric_names(query) <= LABELS.keys()
    if "label_values(gpu_watchdog_build_info, cluster)" not in query:
        for selector in selectors:
            assert 'cluster=~"$cluster"' in selector, query
    for labels in re.findall(r"\bon \(([^)]*)\)", query):
        assert labels.startswith("cluster, node"), query
    assert not re.search(r"\b(instance|exported_\w+)\b", query)
