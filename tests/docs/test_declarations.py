"""The tables of docs/declarations.md, played: what each system writes, and what is compared with what."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.docs.shapes import (
    Line,
    System,
    read_compared,
    read_declared,
    read_node,
    read_pairs,
    read_pod,
    read_uses,
    shapes,
    systems,
)
from tests.worlds import assessed, parse_policy, process, snapshot, use
from watchdog.config.load import load_policy
from watchdog.config.scheme import all_schemes
from watchdog.core.assessment import Assessment
from watchdog.core.model import Place, PlaceKind, Pod
from watchdog.core.policy import Policy
from watchdog.kube.objects import parse_pods

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = ROOT / "config" / "policy.toml"
RULE: Final = '\n[[rule]]\nname = "all"\nmatch = {}\n'
EXAMPLES, GAPS = parse_pods((ROOT / "tests" / "kube" / "declaring_pods.json").read_bytes(), "gpu-1")
ALL: Final = tuple(systems())
SHAPE_POLICY, SHAPE_ROWS = shapes()


def _written(pod: Pod) -> dict[str, str]:
    resources = (each.resources for each in pod.containers)
    extended = {key: value for own in resources for key, value in own.items() if "/" in key}
    return {**pod.labels, **pod.annotations, **extended}


def _example(cell: str) -> Pod:
    """The example pod of a row: it writes the same, and as little else as any."""
    pairs = read_pairs(cell)
    fitting = [pod for pod in EXAMPLES if pairs.items() <= _written(pod).items()]
    assert fitting, f"tests/kube/declaring_pods.json has no pod with {pairs}"
    return min(fitting, key=lambda pod: len([key for key in _written(pod) if "/" in key]))


def _assess(pod: Pod, cell: str, under: Policy, *, everywhere: bool) -> tuple[Assessment, ...]:
    """The assessment of a pod whose first container uses a byte on the first card, or on every one."""
    node, cards = read_node(cell)
    (identity, *_) = pod.containers[0].ids
    place = Place(kind=PlaceKind.POD, pod=pod.uid, container=identity)
    uses = [use(7, 1, card.index) for card in (cards if everywhere else cards[:1])]
    return assessed(snapshot(uses, [process(7, place=place)], cards), [pod], under, node)


def _rows() -> list[object]:
    return [pytest.param(s, row, id=f"{s.name}: {row[0]}, {row[1]}") for s in ALL for row in s.rows]


def _check(row: tuple[str, ...], under: Policy) -> Assessment:
    declared, gpus, requested = read_declared(row[2])
    found = _assess(_example(row[0]), row[1], under, everywhere=gpus is not None)
    assert not any(each.misdeclarations for each in found)
    granted = [each for each in found if each.declared]
    assert [(each.declared, each.requested) for each in granted] == [(declared, requested)] * (gpus or 1)
    assert all((each.account.gpu is None) is (gpus is None) for each in granted)
    return granted[0]


@pytest.mark.parametrize(("system", "row"), _rows())
def test_what_a_system_writes_is_understood(system: System, row: tuple[str, ...]) -> None:
    """The schemes of a system, with the table that its section may add, read from its pods what the page says."""
    found = _check(row, parse_policy(f"schemes = {json.dumps(system.schemes)}\n{system.tables}{RULE}", system.name))
    if not system.by_name_only and f'"{found.declared_by}"' not in system.tables:
        _check(row, load_policy(SHIPPED))


@pytest.mark.parametrize("system", ALL, ids=lambda system: system.name)
def test_a_section_says_how_its_schemes_are_selected(system: System) -> None:
    """What `*` leaves out has its tables on the page, ready to be copied and changed; the rest needs none."""
    assert {all_schemes()[name].by_name_only for name in system.schemes} == {system.by_name_only}
    if system.by_name_only:
        of_schemes = parse_policy(f"schemes = {json.dumps(system.schemes)}", system.name).declarations
        assert parse_policy(system.tables, system.name).declarations == of_schemes


def test_every_example_is_in_a_table_and_is_read_whole() -> None:
    """No pod of the examples is left without a row, and the parser of pods understands them all."""
    assert GAPS == ()
    used = {_example(row[0]).uid for system in ALL for row in system.rows}
    assert {pod.name for pod in EXAMPLES if pod.uid not in used} == set()
    assert sorted(name for system in ALL for name in system.schemes) == sorted(
        name for name, each in all_schemes().items() if each.tables
    )
    assert len(EXAMPLES) >= 30


def _lines(row: tuple[str, ...]) -> list[Line]:
    _, node_cell, pod_cell, account, uses_cell, _ = row
    kind, _, default = account.partition(", default ")
    rule = f'{RULE}account = "{kind}"\n' + (f'default = "{default}"\n' if default else "")
    node, cards = read_node(node_cell)
    uses, processes = read_uses(uses_cell)
    under = parse_policy(SHAPE_POLICY + rule, "declarations.md")
    found = assessed(snapshot(uses, processes, cards), [read_pod(pod_cell)], under, node)
    assert all(each.allowed == each.declared for each in found)
    assert all(each.allowed_by_request == each.requested for each in found)
    return sorted(
        Line(
            each.account.container or "",
            each.account.gpu or "",
            each.used_at_least,
            each.declared,
            each.requested,
            each.verdict.value,
        )
        for each in found
    )


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}, {row[3]}") for row in SHAPE_ROWS])
def test_what_is_compared_with_what(row: tuple[str, ...]) -> None:
    """For each shape of pod the page says which accounts there are, what they use, and what that is compared with."""
    assert _lines(row) == read_compared(row[5])
