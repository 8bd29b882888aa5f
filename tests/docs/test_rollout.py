"""What rollout.md, sharing.md and others promise: a good scan, the stages, and which of two numbers counts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.docs.rollout_policy import PAGE, SHIPPED, TABLES, staged_policy, stages
from tests.docs.shapes import read_node, read_pairs
from tests.report.build import Story, trainer_node
from tests.worlds import Gi, Mi, assessed, container, parse_policy, pod, process, snapshot, use
from watchdog.cli.scan import scan_text
from watchdog.config.load import load_policy
from watchdog.core.model import Node
from watchdog.core.policy import Policy
from watchdog.core.rules import rule_of
from watchdog.core.units import parse_quantity
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import rights_of
from watchdog.report.status_build import status_of

_DOCS: Final = Path(__file__).parents[2] / "docs"
_SHARING: Final = (_DOCS / "sharing.md").read_text(encoding="utf-8")
_SECTION: Final = _SHARING.partition("## Time-slicing with a memory resource\n")[2].partition("\n## ")[0]
(_POLICY,) = TABLES.findall(_SECTION)
_ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in _SECTION.splitlines() if line[:3] == "| `"
]
_STAGE: Final = {"example.com/gpu-memory-stage": "enforce"}
_OUT: Final = {"example.com/gpu-memory": "observe"}
# Commands that run a shell or its tools in the pod.
_SHELLS: Final = re.compile(r"gpu-memory-watchdog exec [^\n]*-- *(?:sh|bash|touch|rm|cat|ls|env)\b")


def _policy(page: str) -> Policy:
    (text, *_) = TABLES.findall((_DOCS / page).read_text(encoding="utf-8"))
    return parse_policy(text, page)


@pytest.mark.parametrize(
    ("node", "namespace", "expected"),
    [
        ({}, {}, ("rest", "observe")),
        (_STAGE, {}, ("staged", None)),
        ({"example.com/gpu-memory-stage": "x"}, {}, ("rest", "observe")),
        (_STAGE, _OUT, ("not-yet", "observe")),
        ({}, _OUT, ("not-yet", "observe")),
    ],
)
def test_a_label_begins_and_ends_a_stage(
    node: dict[str, str], namespace: dict[str, str], expected: tuple[str, str | None]
) -> None:
    """A node enforces once it is labelled, but not for a namespace that has opted out; nothing else enforces."""
    found = rule_of(pod("a"), _policy("rollout.md"), Node(name="n1", labels=node), {"ns": namespace})
    assert found is not None
    assert (found.name, found.mode) == expected  # type: ignore[union-attr]


def test_the_stages_differ_in_nothing_but_acting() -> None:
    """What the rest would do is what the stage does, so that its counts say what the next stage will be like."""
    under = _policy("rollout.md")
    assert under.mode == "enforce"
    steps = {rule.name: rule.steps for rule in under.rules}
    assert steps["rest"] == steps["staged"]
    # Nothing is due in the second in which a node is labelled.
    assert all(step.for_s > 0 for rule in under.rules for step in rule.steps)
    assert Piece.NAMESPACES in {each.piece for each in rights_of(under)}


def test_the_stages_leave_what_is_declared_and_protected() -> None:
    """What the page has one replace takes no declaration, protection or contact away from the policy that ships."""
    of_others = r"^\[+(?:declaration|allowance|protect|events|journal|safety|capacity)"
    assert not re.findall(of_others, stages(), re.MULTILINE)
    shipped = SHIPPED.read_text(encoding="utf-8")
    before, after = parse_policy(shipped, "shipped"), parse_policy(staged_policy(), "rollout.md")
    assert (after.declarations, after.protect, after.events) == (before.declarations, before.protect, before.events)
    assert (after.mode, [each.name for each in after.rules]) == ("enforce", ["not-yet", "staged", "rest"])
    found = "".join(re.findall(r"\*\*Replace only.*?\n\n", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert all(f"`{each}`" in found for each in ("[[declaration]]", "[protect]", "contact", "[[rule]]", "[brakes]"))


@pytest.mark.parametrize("label", ["4", "10"])
def test_a_share_on_gke(label: str) -> None:
    """GKE's labels are read by the table of docs/sharing.md, where without it a share would count as a whole card."""
    under = parse_policy(
        TABLES.findall(_SHARING.partition("## GKE")[2])[0] + '\n[[rule]]\nname = "all"\nmatch = {}\n', "sharing.md"
    )
    labels = {
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": label,
    }
    one = container(resources={"nvidia.com/gpu": "1"})
    for node, declared in ((labels, 80 * Gi // int(label)), ({}, 80 * Gi)):
        (got,) = assessed(snapshot([use(1, Gi)]), [pod("a", one)], under, Node(name="n1", labels=node))
        assert got.declared == declared


@pytest.mark.parametrize("page", sorted(path for path in _DOCS.rglob("*.md") if "templates" not in path.parts))
def test_no_page_runs_a_shell_in_the_pod(page: Path) -> None:
    """The image has no shell and none of its tools; such a command would fail in an emergency."""
    assert not _SHELLS.findall(page.read_text(encoding="utf-8"))


def test_the_sample_of_a_good_scan_is_what_it_prints() -> None:
    """Who compares with the page compares with what the program prints under the policy that ships."""
    under = replace(load_policy(SHIPPED), source="/etc/gpu-watchdog/policy.toml")
    seen = trainer_node(4.0)
    cards = tuple(replace(each, name="NVIDIA H100") for each in seen.gpus)
    printed = scan_text(status_of(Story(under=under).see(replace(seen, gpus=cards))), under.source)
    (sample,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
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
