"""Findings from the API server's responses: one cause is one finding, which says where the fault is."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.doctor.build import given
from tests.cli.doctor.rows import (
    BY_NODE,
    DAY_S,
    GOOD_API,
    NO_LIST,
    NOW_S,
    REFUSED,
    UNKNOWN_NODE,
    api,
    lacking,
    peer,
    shown,
    under,
    within,
)
from watchdog.cli.doctor import diagnose
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Finding, FindingState, Purpose
from watchdog.kube.kinds import Right
from watchdog.kube.rights import ALL_RIGHTS

CHECK_OF = {
    "pods": "right_pods",
    "events": "right_events",
    "nodes": "right_node",
    "namespaces": "right_namespaces",
    "resourceslices": "right_slices",
    "resourceclaims": "right_slices",
    "pods/eviction": "right_evict",
    "nodes/status": "right_capacity",
}
APPLY = (
    "as an administrator: `gpu-watchdog rights --policy policy.toml --namespace gpu --service-account watchdog | "
    "kubectl apply -f -`"
)


def _wrong(facts: Facts) -> list[Finding]:
    return [finding for finding in diagnose(facts).findings if finding.state is not FindingState.OK]


def _one(facts: Facts) -> Finding:
    (finding,) = _wrong(facts)
    return finding


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (api(ended="unreachable", problem=REFUSED, offset_s=None), "api"),
        (peer(-3 * DAY_S, -2 * DAY_S, 0.3), "api_certificate"),
        (shown("token", ends_s=NOW_S - 3600), "api_credentials"),
        (shown("certificate"), "api_credentials"),
        (api(ended="anonymous"), "api_credentials"),
    ],
)
def test_one_cause_is_one_finding(facts: Facts, name: str) -> None:
    """If the API can't be queried, that is the only finding; pods, rights and the node are not mentioned."""
    finding = _one(facts)
    assert (finding.name, finding.state, Purpose.OBSERVE in finding.purposes) == (name, FindingState.MISSING, True)
    names = {each.name for each in diagnose(facts).findings}
    assert not names & {"pods", "pods_readable", "node_object", "namespaces", "node_name"}


@pytest.mark.parametrize("right", ALL_RIGHTS, ids=lambda right: f"{right.target}-{right.verbs[0]}")
def test_each_missing_right_has_its_consequence(right: Right) -> None:
    """A missing verb is reported with its resource, the consequence, and the command that grants it."""
    for verb in right.verbs:
        finding = _one(lacking(right.target, verb))
        assert finding.name == ("right_evict" if (right.target, verb) == ("pods", "get") else CHECK_OF[right.target])
        assert finding.what.startswith(f"this account is not allowed to {verb} {right.target}: ")
        assert finding.remedy == APPLY


def test_the_command_names_the_account() -> None:
    """The command names an account other than the default; a user that is no service account is named beside it."""
    by_account = {
        "system:serviceaccount:gpu-memory-watchdog:gpu-watchdog": "rights --policy policy.toml | kubectl apply -f -`",
        "kubernetes-admin": "apply -f -`, with the user kubernetes-admin in place of the service account",
        "system:node:n1": "apply -f -`, with the user system:node:n1 in place of the service account",
        "": "rights --policy policy.toml | kubectl apply -f -`",
    }
    facts = lacking("pods/eviction", "create").api
    for name, reported in by_account.items():
        account = replace(facts.account, name=name)
        assert _one(replace(GOOD_API, api=replace(facts, account=account))).remedy.endswith(reported)


def test_in_a_pod_the_command_is_run_in_it() -> None:
    """In the daemon's pod the remedy is a command for the administrator's machine that reads the policy in the pod."""
    facts = lacking("pods/eviction", "create").api
    name = "system:serviceaccount:gpu-memory-watchdog:gpu-watchdog"
    usual = replace(facts, account=replace(facts.account, name=name))
    nameless = replace(usual, account=replace(usual.account, pod=""))
    where = Path("/etc/gpu-watchdog/policy.toml")
    other = "rights --policy policy.toml --namespace gpu --service-account watchdog"
    for reported, path, command in (
        (usual, where, "-n gpu-memory-watchdog exec watchdog-x -- gpu-watchdog rights"),
        (nameless, where, "-n gpu-memory-watchdog exec POD -- gpu-watchdog rights"),
        (facts, Path("policy.toml"), f"-n gpu exec watchdog-x -- gpu-watchdog {other}"),
    ):
        spoilt = given(replace(GOOD_API, api=reported), kubeconfig=None, policy=path)
        (finding,) = [each for each in _wrong(spoilt) if each.name == "right_evict"]
        assert finding.remedy == f"as an administrator: `kubectl {command} | kubectl apply -f -`"


def test_what_a_missing_right_blocks() -> None:
    """Observing needs pods; enforcing also node, namespaces and evictions; Events, claims, capacity block nothing."""
    possible = {
        (right.target, right.verbs[0]): (diagnose(facts).observe, diagnose(facts).enforce)
        for right in ALL_RIGHTS
        for facts in [lacking(right.target, *right.verbs)]
    }
    assert possible == {
        ("pods", "list"): (False, False),
        ("events", "create"): (True, True),
        ("nodes", "list"): (True, False),
        ("namespaces", "list"): (True, False),
        ("resourceslices", "list"): (True, True),
        ("resourceclaims", "get"): (True, True),
        ("pods", "get"): (True, False),
        ("pods/eviction", "create"): (True, False),
        ("nodes/status", "patch"): (True, True),
    }


def test_a_missing_right_is_reported_once() -> None:
    """A list that fails for lack of a right has no second finding; its consequence for rules has."""
    pods = within(lacking("pods", "list"), pods=replace(NO_LIST, gaps=()))
    assert {each.name for each in _wrong(pods)} == {"right_pods"}
    nodes = within(lacking("nodes", "list"), node=UNKNOWN_NODE)
    assert {each.name for each in _wrong(nodes)} == {"right_node"}
    assert {each.name for each in _wrong(under(nodes, BY_NODE))} == {"right_node", "node_object"}


def test_files_are_read_beside_the_api() -> None:
    """A node file that is given counts, whatever the account may list."""
    facts = given(lacking("nodes", "list"), node_object=Path("n.json"))
    assert {each.name for each in _wrong(under(facts, BY_NODE))} == {"right_node"}


def test_the_clock_is_reported_beside_rejected_credentials() -> None:
    """A wrong clock is reported with any response: a 401 has a Date too."""
    names = {each.name for each in _wrong(shown("token", ends_s=NOW_S - 60, offset_s=-7200.0))}
    assert names == {"api_clock", "api_credentials"}


def test_what_was_learned_in_time_is_reported() -> None:
    """Queries that ran out of time report what was learned, and what they were waiting for."""
    facts = api(ended="late", asking="the pods of this node", waited_s=20.4)
    found = {each.name: each.what for each in diagnose(facts).findings}
    assert found["api"].endswith("within 20s; the last one was for the pods of this node")
    assert {"api_config", "api_credentials", "api_clock", "right_pods"} <= found.keys()
    assert "pods" not in found
