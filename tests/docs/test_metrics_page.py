"""docs/metrics.md is made of what the code exports, and its queries are queries."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.monitoring.programs import find
from tests.monitoring.questions import questions
from tools import ROOT
from tools.metrics_reference import REFERENCE, metrics_reference
from watchdog.export.catalogue import FAMILIES, PREFIX, MetricKind

_NAMED = re.compile(rf"\b{PREFIX}([a-z_]+)")
# What the daemon exports besides, and what others do.
_OTHERS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "up", "kube_node_status_allocatable"}


def test_the_committed_page_is_what_the_code_gives() -> None:
    """A family that is added or means something else changes the page in the same commit."""
    committed = REFERENCE.read_text(encoding="utf-8")
    assert committed == metrics_reference(), "regenerate it with: python -m tools.metrics_reference"
    assert not re.findall(r"\{[a-z]+\}", committed.partition("\n## Questions\n")[0])


def test_the_tool_says_that_the_page_is_up_to_date() -> None:
    """The tool runs as the documentation of the project says, from the root of a checkout."""
    command = [sys.executable, "-m", "tools.metrics_reference", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 0


def test_each_family_says_what_it_means() -> None:
    """A help is one line of at most three sentences with its full stop, no two are alike, and none breaks a table."""
    helps = [family.help for family in FAMILIES]
    assert len(set(helps)) == len(helps)
    assert len({family.name for family in FAMILIES}) == len(helps)
    for text in helps:
        assert re.fullmatch(r"[^|\n\\\"]{10,280}\.", text), text
        assert len(re.findall(r"\. |\.$", text)) <= 3, text


def test_queries_name_families_that_there_are() -> None:
    """A query of a family that is renamed would give nothing for ever."""
    there = {family.name for family in FAMILIES}
    there |= {f"{each.name}_bucket" for each in FAMILIES if each.kind is MetricKind.HISTOGRAM}
    for question in questions():
        named = set(_NAMED.findall(question.query))
        others = [name for name in _OTHERS if name in question.query]
        assert named <= there, question.query
        assert named or others, question.query


def test_every_family_of_pods_and_cards_is_asked_for() -> None:
    """What people scrape, they are shown what for: each gauge of a card, pod or account stands in a query."""
    asked = "\n".join(question.query for question in questions())
    spared = {"gpu_memory_reserved_bytes"}  # is part of the residual, and of no question of its own
    gauges = [each.name for each in FAMILIES if each.name.startswith(("gpu_", "pod_", "account", "container_"))]
    assert [name for name in gauges if PREFIX + name not in asked and name not in spared] == []


@pytest.mark.slow
def test_promtool_reads_every_query(tmp_path: Path) -> None:
    """`promtool check rules` takes each query of the page."""
    rules = [{"record": f"query:{number}", "expr": each.query} for number, each in enumerate(questions())]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}), encoding="utf-8")
    command = [str(find("promtool")), "check", "rules", "--lint=all", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(rules)} rules found" in ended.stdout
