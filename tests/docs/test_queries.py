"""Every PromQL query that a page prints: Prometheus reads it, and the metrics and labels in it exist."""

import re
import textwrap
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.docs.test_docs import ROOT, TEXTS
from tests.monitoring.rules.exposed import LABELS, TARGET, metric_names, selectors
from tests.monitoring.rules.promtool import promtool

_FENCE: Final = re.compile(r"^ *```promql\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_IN_CELL: Final = re.compile(r"`((?:count|sum|max|topk)\b[^`]*)`")
# On these pages each line is a query.
_BY_LINE: Final = ("rollout.md", "upgrade.md")


def _queries(page: Path) -> list[str]:
    text = TEXTS[page]
    blocks = [textwrap.dedent(block) for block in _FENCE.findall(text)]
    if page.name in _BY_LINE:
        blocks = [line for block in blocks for line in block.splitlines() if line]
    checklist = text.partition("### Checklist\n")[2].partition("\n## ")[0] if page.name == "rollout.md" else ""
    return blocks + _IN_CELL.findall(checklist)


QUERIES: Final = {page: found for page in TEXTS if (found := _queries(page))}


@pytest.mark.parametrize("page", QUERIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_metrics_and_labels_exist(page: Path) -> None:
    """A query that is copied from a page finds series: the daemon exposes each metric, with the labels asked for."""
    for query in QUERIES[page]:
        assert metric_names(query) <= LABELS.keys(), query
        # docs/prometheus.md finds labels that should not be there.
        for metric, labels in selectors(query) if page.name != "prometheus.md" else ():
            assert metric not in LABELS or labels <= LABELS[metric] | TARGET, query


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_metrics_that_are_named_exist(page: Path) -> None:
    """A metric in a sentence or a table is one that the daemon exposes, or the family of several."""
    families = {re.sub(r"_(?:bucket|count|sum|total|info)$", "", name) for name in LABELS}
    assert metric_names(TEXTS[page]) - LABELS.keys() - families == set()


@pytest.mark.slow
def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    """Prometheus's own parser accepts all of them."""
    queries = [query for found in QUERIES.values() for query in found]
    assert len(queries) > 80
    rules = [{"record": f"query:n{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "pages", "rules": rules}]}), encoding="utf-8")
    done = promtool("check", "rules", "--lint=all", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
