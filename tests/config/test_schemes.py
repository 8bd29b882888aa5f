"""Schemes: what each built-in table makes of a pod, which of them a policy selects, and what `check` shows of them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Final

from tests.docs.shapes import read_node
from tests.worlds import assessed, container, parse_policy, pod, process, snapshot, use
from watchdog.config.load import load_policy
from watchdog.core.assessment import Assessment
from watchdog.core.model import Place, PlaceKind, Pod
from watchdog.core.policy import Policy
from watchdog.kube.objects import parse_pods

ROOT: Final = Path(__file__).parents[2]
EARLIER: Final = Path(__file__).with_name("earlier_declarations.toml").read_text(encoding="utf-8")
RULE: Final = '\n[[rule]]\nname = "all"\nmatch = {}\n'
ACTIVE: Final = 12
SHARED: Final = "2 x 16Gi, label nvidia.com/gpu.replicas=4"
NODES: Final = (
    "4 x 80Gi",
    "40Gi, 80Gi",
    SHARED,
    "7 x 9728Mi MIG 1g.10gb, 1 x 9Gi MIG 1g.10gb+me, 1 x 4Gi MIG 1g.5gb",
)


def tables() -> list[str]:
    """The earlier tables, each as a policy file has it."""
    return [f"[[declaration]]{each}" for each in EARLIER.split("[[declaration]]")[1:]]


def worlds() -> Iterator[tuple[Pod, str]]:
    """The example pods of every system on each node; and pods that request two of the active resources at once."""
    examples, _ = parse_pods((ROOT / "tests" / "kube" / "declaring_pods.json").read_bytes(), "gpu-1")
    yield from product(examples, NODES)
    active = parse_policy("".join(tables()[:ACTIVE]), "earlier").declarations
    for one, other in combinations((each.key.replace("*", "1g.10gb") for each in active), 2):
        yield pod("both", container(of="both", resources={one: "2", other: "3"})), SHARED


def attributed(each: Pod, cell: str, under: Policy) -> tuple[Assessment, ...]:
    """What is compared for a pod on a node, where its first container uses a byte on every card."""
    node, cards = read_node(cell)
    (identity, *_) = each.containers[0].ids
    place = Place(kind=PlaceKind.POD, pod=each.uid, container=identity)
    uses = [use(7, 1, card.index) for card in cards]
    return assessed(snapshot(uses, [process(7, place=place)], cards), [each], under, node)


def differences(before: Policy, after: Policy) -> list[str]:
    """The pods that declare or may use another number of bytes, or by another key, under the second policy."""
    after = replace(after, rules=before.rules)
    return [
        f"{each.name} on {cell}: {each.containers}"
        for each, cell in worlds()
        if attributed(each, cell, before) != attributed(each, cell, after)
    ]


def test_the_shipped_policy_declares_what_it_did_before_there_were_schemes() -> None:
    """No pod's bytes change because its table has moved from the policy into the program."""
    before = parse_policy("".join(tables()[:ACTIVE]) + RULE, "earlier")
    after = load_policy(ROOT / "config" / "policy.toml")
    assert after.declarations == before.declarations
    assert differences(before, after) == []
