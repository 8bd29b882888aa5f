"""The generated pages and docs/benchmarks.md are what the code writes, and each PromQL query of a page finds series."""

import re
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bench.__main__ import TEMPLATE
from bench.gpu import PAGE
from tests.docs.test_docs import ROOT, TEXTS
from tests.journal.rig import begin
from tests.monitoring.questions import questions
from tests.monitoring.rules.exposed import LABELS, TARGET, metric_names, selectors
from tests.monitoring.rules.promtool import promtool
from tests.report.build import climbing
from tools.metrics_reference import REFERENCE, metrics_reference
from watchdog.core.model import PinnedLimit, ProcessKey
from watchdog.core.policy import JournalLimits
from watchdog.export.catalogue import FAMILIES, PREFIX
from watchdog.journal.journal import Journal
from watchdog.report.hour import Hour
from watchdog.report.status import HealthStatus, encode
from watchdog.report.status_build import status_of


def test_the_committed_page_is_what_the_code_gives() -> None:
    """A family that is added or means something else changes the page in the same commit."""
    committed = REFERENCE.read_text(encoding="utf-8")
    assert committed == metrics_reference(), "regenerate it with: python -m tools.metrics_reference"
    assert not re.findall(r"\{[a-z]+\}", committed.partition("\n## Questions\n")[0])


def test_each_family_says_what_it_means() -> None:
    """A help is one line of at most three sentences with its full stop, no two are alike, and none breaks a table."""
    helps = [family.help for family in FAMILIES]
    assert len(set(helps)) == len(helps)
    assert len({family.name for family in FAMILIES}) == len(helps)
    for text in helps:
        assert re.fullmatch(r"[^|\n\\\"]{10,280}\.", text), text
        assert len(re.findall(r"\. |\.$", text)) <= 3, text


def test_every_family_of_pods_and_cards_is_asked_for() -> None:
    """Each gauge of a card, pod or account has a query that uses it."""
    asked = "\n".join(question.query for question in questions())
    spared = {"gpu_memory_reserved_bytes"}  # is part of the residual, and of no question of its own
    gauges = [each.name for each in FAMILIES if each.name.startswith(("gpu_", "pod_", "account", "container_"))]
    assert [name for name in gauges if PREFIX + name not in asked and name not in spared] == []


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
    """A metric in a sentence or a table is one that the daemon can expose, or the family of several."""
    names = LABELS.keys() | {PREFIX + each.name for each in FAMILIES}
    families = {re.sub(r"_(?:bucket|count|sum|total|info)$", "", name) for name in LABELS}
    assert metric_names(TEXTS[page]) - names - families == set()


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


TEXT: Final = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
LIMIT: Final = PinnedLimit(key=ProcessKey(pid=101, start_ticks=1010), gpu="GPU-0", by_server=2**30)
REPORT: Final = replace(climbing(9), pinned=(LIMIT,))
HOUR: Final = Hour()
HOUR.add(0.0, REPORT.assessments, REPORT.snapshot.gpus, gap_s=1.0)
STATUS: Final = encode(status_of(REPORT, hour=HOUR))


def _tables() -> list[list[str]]:
    """The keys in the first column of each table, in their order."""
    blocks = re.split(r"^\|---\|---\|$", TEXT, flags=re.MULTILINE)[1:]
    return [re.findall(r"^\| `([a-z0-9_]+)` \|", block.partition("\n\n")[0], re.MULTILINE) for block in blocks]


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (0, STATUS),
        (1, STATUS["gpus"][0]),
        (2, STATUS["accounts"][0]),
        (3, STATUS["accounts"][0]["ladder"][0]),
        (4, STATUS["plan"][0]),
    ],
)
def test_every_key_of_the_status_is_documented(table: int, row: dict[str, Any]) -> None:
    """Each key of the status is on the page, in the order of the document, and no other."""
    assert _tables()[table] == list(row)


def test_every_key_of_what_was_done_lately_is_documented(tmp_path: Path) -> None:
    """The same for an action, as the journal of a daemon gives it."""
    with closing(Journal.open(tmp_path / "journal.db", JournalLimits(), "n1")) as journal:
        begin(journal)
        row = encode(journal.recent.actions[0])
    assert _tables()[5] == list(row)
    assert [f"`{name}`" in TEXT for name in row["signals"][0]] == [True] * 3


def test_every_key_of_the_health_is_documented() -> None:
    """The same for how the watchdog is."""
    assert _tables()[6] == list(HealthStatus.__struct_fields__)


def test_the_page_is_what_the_benchmarks_write() -> None:
    """What docs/benchmarks.md says around its figures is written in the template, and nowhere else."""
    parts = re.split(r"\{\w+\}", TEMPLATE.read_text(encoding="utf-8"))
    assert re.fullmatch(".*".join(map(re.escape, parts)), PAGE.read_text(encoding="utf-8"), re.DOTALL)
