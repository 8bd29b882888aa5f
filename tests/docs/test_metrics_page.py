"""docs/metrics.md is made of what the code exports."""

import re

from tests.monitoring.questions import questions
from tools.metrics_reference import REFERENCE, metrics_reference
from watchdog.export.catalogue import FAMILIES, PREFIX


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
