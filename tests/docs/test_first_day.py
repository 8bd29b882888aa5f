"""What rollout.md and sharing.md show: a good scan, and which of two numbers counts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.docs.shapes import read_node, read_pairs
from tests.export.build import Story, trainer_node
from tests.worlds import Gi, Mi, assessed, container, parse_policy, pod, process, snapshot, use
from watchdog.cli.scan import scan_text
from watchdog.config.load import load_policy
from watchdog.core.policy import Policy
from watchdog.core.units import parse_quantity
from watchdog.report.status_build import status_of

_ROOT: Final = Path(__file__).parents[2]
_FIRST_DAY: Final = (_ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")
_SHARING: Final = (_ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
_SECTION: Final = _SHARING.partition("## Time-slicing with a memory resource\n")[2].partition("\n## ")[0]
(_POLICY,) = re.findall(r"^```toml\n(.*?)^```$", _SECTION, re.MULTILINE | re.DOTALL)
_ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in _SECTION.splitlines() if line[:3] == "| `"
]


def test_the_sample_of_a_good_scan_is_what_it_prints() -> None:
    """Who compares with the page compares with what the program prints under the policy that ships."""
    under = replace(load_policy(_ROOT / "config" / "policy.toml"), source="/etc/gpu-watchdog/policy.toml")
    seen = trainer_node(4.0)
    cards = tuple(replace(each, name="NVIDIA H100") for each in seen.gpus)
    printed = scan_text(status_of(Story(under=under).see(replace(seen, gpus=cards))), under.source)
    (sample,) = re.findall(r"^```text\n(.*?)^```$", _FIRST_DAY, re.MULTILINE | re.DOTALL)
    assert sample == printed


def _declared(row: list[str], under: Policy) -> int | None:
    node, cards = read_node(row[1])
    one = container(resources=read_pairs(row[0]))
    uses = [use(1, Gi, card.index) for card in cards]
    (got,) = assessed(snapshot(uses, [process(1)], cards), [pod("a", one)], under, node)
    return got.declared


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row[0]}, {row[1]}")
def test_which_number_counts_beside_replicas(row: list[str]) -> None:
    """A pod that asks for a replica and for bytes is held to what the page says, on shared nodes and on others."""
    assert _declared(row, parse_policy(_POLICY, "sharing.md")) == parse_quantity(row[2])


def test_the_policy_of_both_is_whole() -> None:
    """It advertises what its first table reads, and has the brakes, the rule and the protection that it needs."""
    under = parse_policy(_POLICY, "sharing.md")
    assert under.capacity is not None
    assert under.capacity.resource == under.declarations[0].key
    assert under.brakes.breaker is not None
    assert under.rules
    assert under.allowance.per_context == 512 * Mi
