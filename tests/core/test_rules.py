"""Which rule applies to a pod, when that is unknown, and when a rule only observes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.worlds import Gi, assessed, at, container, inputs, owner, planned, pod, policy, rule, snapshot, step, use
from watchdog.config.fields import hours
from watchdog.core.assess import assess
from watchdog.core.assessment import Verdict
from watchdog.core.attribute import attribute
from watchdog.core.keys import keys_of
from watchdog.core.model import Gap, GapReason, Node, Now, PodKeys
from watchdog.core.policy import Match, Mode, Protect, Rule
from watchdog.core.rules import Namespaces, hours_at, observes, rule_of

NODE = Node(name="n1", labels={"pool": "shared", "tier": "gold"})
NAMELESS = Node(name="n1", known=False)
NAMESPACES = {"ns": {"team": "ml", "stage": ""}, "bare": {}}


@pytest.mark.parametrize(
    ("match", "changes", "expected"),
    [
        (Match(), {}, True),
        (Match(namespaces=("jupyter-*",)), {"namespace": "jupyter-x"}, True),
        (Match(namespaces=("jupyter-*",)), {}, False),
        (Match(pods=("pod-?",)), {}, True),
        (Match(pods=("ns/pod-a",)), {}, True),
        (Match(pods=("other/pod-a",)), {}, False),
        (Match(pods=("pod-*",)), {"namespace": "pod-land", "name": "x"}, False),
        (Match(pods=("ns*",)), {}, False),  # without a slash it is a name, not a namespace
        (Match(labels={"tier": "d*"}), {"labels": {"tier": "dev", "x": ""}}, True),
        (Match(labels={"tier": "d*", "y": "*"}), {"labels": {"tier": "dev", "x": ""}}, False),
        (Match(labels={"tier": "*"}), {}, False),
        (Match(owner_kinds=("Job", "Deploy*")), {"owner": owner("Deployment")}, True),
        (Match(owner_kinds=("Job",)), {"owner": owner("CronJob")}, False),
        (Match(owner_kinds=("Pod",)), {}, True),
        (Match(owner_kinds=("Pod",)), {"owner": owner("Job")}, False),
        (Match(owner_kinds=("Job",)), {}, False),
        (Match(node_labels={"pool": "share?"}), {}, True),
        (Match(node_labels={"pool": "shared", "tier": "iron"}), {}, False),
        (Match(node_labels={"zone": "*"}), {}, False),
        (Match(namespace_labels={"team": "m?", "stage": ""}), {}, True),
        (Match(namespace_labels={"team": "web"}), {}, False),
        (Match(namespace_labels={"team": "*"}), {"namespace": "bare"}, False),
        (Match(namespaces=("ns",), namespace_labels={"team": "ml"}, node_labels={"pool": "*"}, pods=("*",)), {}, True),
    ],
)
def test_every_condition_of_a_match(match: Match, changes: dict[str, Any], *, expected: bool) -> None:
    """Every condition must match; a pod without a controller is of kind Pod; `*` requires the label to exist."""
    under = policy(rule(match=match))
    assert rule_of(pod("a", **changes), under, NODE, NAMESPACES) == (under.rules[0] if expected else None)


def test_the_first_rule_that_matches_is_the_rule() -> None:
    """A pod has one rule, the first whose every condition matches it; without one it is measured and left alone."""
    dev = rule(name="dev", match=Match(namespaces=("jupyter-*",), labels={"tier": "dev"}))
    jobs = rule(name="jobs", match=Match(owner_kinds=("Job",), pods=("pod-?",)))
    rest = rule(name="rest", match=Match(node_labels={"pool": "shared"}))
    under = policy(dev, jobs, rest)
    found = {
        "dev": pod("a", namespace="jupyter-x", labels={"tier": "dev"}, owner=owner("Job")),
        "jobs": pod("a", namespace="jupyter-x", owner=owner("Job")),
        "rest": pod("abc", owner=owner("Job")),
    }
    for name, each in found.items():
        assert rule_of(each, under, NODE, {}) == next(r for r in under.rules if r.name == name)
    assert rule_of(found["rest"], under, Node(name="n1"), {}) is None
    (got,) = assessed(
        snapshot([use(1, 70 * Gi)]), [pod("a", container(declared="1Gi"))], policy(replace(dev, mode="observe"))
    )
    assert (got.rule, got.verdict, got.rule_gap, got.observes) == (None, Verdict.OVER, None, False)


BY_NODE = rule(name="by node", match=Match(node_labels={"pool": "shared"}))
BY_NAMESPACE = rule(name="by namespace", match=Match(namespace_labels={"team": "ml"}))
HARSH = rule(step(), name="harsh")
TENANT = pod("a", container(declared="1Gi"))
SEEN = snapshot([use(5, 70 * Gi)])


@pytest.mark.parametrize(
    ("rules", "node", "namespaces", "expected"),
    [
        ((BY_NODE, HARSH), NAMELESS, {}, GapReason.NODE),
        ((BY_NODE,), NAMELESS, {}, GapReason.NODE),
        ((HARSH, BY_NODE), NAMELESS, {}, "harsh"),
        ((BY_NODE, HARSH), NODE, {}, "by node"),
        ((BY_NODE, HARSH), Node(name="n1"), {}, "harsh"),
        ((BY_NAMESPACE, HARSH), NODE, {}, GapReason.NAMESPACES),
        ((BY_NAMESPACE,), NODE, {"other": {"team": "ml"}}, GapReason.NAMESPACES),
        ((BY_NAMESPACE, HARSH), NODE, {"ns": {}}, "harsh"),
        ((BY_NAMESPACE, HARSH), NAMELESS, NAMESPACES, "by namespace"),
        ((BY_NODE, BY_NAMESPACE), NAMELESS, NAMESPACES, GapReason.NODE),
        # The pod's own object is enough to say that a rule is not for it.
        ((replace(BY_NODE, match=replace(BY_NODE.match, namespaces=("x",))), HARSH), NAMELESS, {}, "harsh"),
        ((replace(BY_NODE, match=replace(BY_NODE.match, labels={"a": "b"})), HARSH), NAMELESS, {}, "harsh"),
        ((replace(BY_NAMESPACE, match=replace(BY_NAMESPACE.match, owner_kinds=("Job",))), HARSH), NODE, {}, "harsh"),
        # Of two conditions one that does not match is enough, and one that does is not.
        ((rule(match=Match(node_labels={"pool": "x"}, namespace_labels={"a": "b"})), HARSH), NODE, {}, "harsh"),
        ((rule(match=replace(BY_NODE.match, namespace_labels={"a": "b"})), HARSH), NODE, {}, GapReason.NAMESPACES),
        ((rule(match=replace(BY_NODE.match, namespace_labels={"team": "x"})), HARSH), NAMELESS, NAMESPACES, "harsh"),
    ],
)
def test_a_rule_that_cannot_be_judged_is_neither_taken_nor_skipped(
    rules: tuple[object, ...], node: Node, namespaces: Namespaces, expected: GapReason | str
) -> None:
    """If the deciding labels are unknown, no later rule applies: it may be harsher than the intended one."""
    found = rule_of(pod("a"), policy(*rules), node, namespaces)  # type: ignore[arg-type]
    assert found is not None
    assert (found.reason if isinstance(found, Gap) else found.name) == expected


@pytest.mark.parametrize(
    ("first", "node", "names"),
    [
        (BY_NODE, NAMELESS, ("node n1", "by node", "`node n1`", "--node-object FILE")),
        (BY_NAMESPACE, NODE, ("namespace ns", "by namespace", "`namespaces`", "--namespaces FILE")),
    ],
)
def test_a_pod_whose_rule_is_not_known_is_left_alone(first: Rule, node: Node, names: tuple[str, ...]) -> None:
    """It has no rule and no step, its verdict is unknown however much it uses, and a gap names what is missing."""
    (got,) = assessed(SEEN, [TENANT], policy(first, HARSH), node)
    assert (got.rule, got.verdict, got.used, got.declared) == (None, Verdict.UNKNOWN, 70 * Gi, Gi)
    assert got.rule_gap is not None
    assert all(each in f"{got.rule_gap.what}: {got.rule_gap.problem!s}" for each in names), got.rule_gap
    (undeclared,) = assessed(SEEN, [pod("a")], policy(first, HARSH), node)
    assert undeclared.verdict is Verdict.UNKNOWN


def test_nothing_is_planned_for_a_pod_whose_rule_is_not_known() -> None:
    """The rule that comes after the one in doubt does not act: with it alone the same pod would be killed."""
    assert planned(SEEN, [TENANT], policy(HARSH)).entries
    assert not planned(SEEN, [TENANT], policy(BY_NAMESPACE, HARSH)).entries


OFFICE = hours().read("Mon-Fri 08:00-18:00 UTC")  # the worlds begin on Friday 15 January 2027, 08:00


@pytest.mark.parametrize(
    ("mode", "active", "second", "expected"),
    [
        (None, None, 0, False),
        ("enforce", None, 0, False),
        ("observe", None, 0, True),
        (None, OFFICE, 0, False),
        (None, OFFICE, -1, True),
        (None, OFFICE, 36_000 - 1, False),
        (None, OFFICE, 36_000, True),
        (None, OFFICE, 86_400, True),
        ("enforce", OFFICE, -1, True),
        ("observe", OFFICE, 0, True),
    ],
)
def test_when_a_rule_only_observes(mode: Mode | None, active: object, second: float, *, expected: bool) -> None:
    """A rule observes by its own mode, or outside its hours by the wall clock, whatever the policy's mode."""
    mine = rule(step(), mode=mode, active=active)
    assert observes(mine, at(second)) is expected
    for policy_mode in ("observe", "enforce"):
        (got,) = assessed(replace(SEEN, at=at(second)), [TENANT], policy(mine, mode=policy_mode))
        assert (got.observes, got.verdict) == (expected, Verdict.OVER)


def test_the_plan_does_not_depend_on_the_hours() -> None:
    """Law 7 for rules: the plan is the same outside their hours and in their own mode."""
    before = replace(SEEN, at=at(-1))
    plain, observing = (planned(before, [TENANT], policy(rule(step(), active=each))) for each in (None, OFFICE))
    assert [entry.targets for entry in observing.entries] == [entry.targets for entry in plain.entries]
    assert [entry.assessment.observes for entry in observing.entries] == [True]


def test_the_hours_of_all_rules_at_once() -> None:
    """The only effect of time on rules: whether each rule with hours is active, in their order."""
    night = hours().read("Mon-Sun 18:00-08:00 UTC")
    under = policy(rule(active=OFFICE), rule(), rule(active=night), rule(mode="observe"))
    assert [hours_at(under, at(second)) for second in (-1, 0, 36_000)] == [(False, True), (True, False), (False, True)]


def test_labels_of_namespaces_reach_the_assessment() -> None:
    """The rule of an account is the one for its namespace's labels, and without them it has none."""
    under, named = policy(BY_NAMESPACE, HARSH), []
    labels: list[Namespaces] = [NAMESPACES, {"ns": {}}, {}]
    for known in labels:
        (got,) = assess(attribute(SEEN, [TENANT]), SEEN, inputs(under, [TENANT], namespaces=known))
        named.append(got.rule.name if got.rule else None)
    assert named == ["by namespace", "harsh", None]


def test_a_pod_that_was_read_for_another_policy_has_no_rule() -> None:
    """Point 6: what the new policy names may have been left out, so the pod is left alone until it is read again."""
    before = policy(rule(step()))
    under, known = replace(before, protect=Protect(annotation="spare")), keys_of(before)
    found = rule_of(replace(TENANT, keys=known), under, NODE, NAMESPACES)
    assert isinstance(found, Gap)
    assert (found.reason, found.what) == (GapReason.PODS, f"pod {TENANT.title}")
    for keys, now in ((known, before), (known | keys_of(under), under), (None, under)):
        assert rule_of(replace(TENANT, keys=keys), now, NODE, NAMESPACES) == before.rules[0]


@pytest.mark.parametrize(("left_since", "remedy"), [(None, "wait"), (at(0), "crictl stop")], ids=["listed", "left"])
def test_a_pod_of_which_too_little_is_known_has_no_rule(left_since: Now | None, remedy: str) -> None:
    """Point 39: the gap says what helps; a pod that has left is not listed again, however long one waits."""
    found = rule_of(pod("a", keys=PodKeys(), left_since=left_since), policy(Rule(name="all")), NODE, NAMESPACES)
    assert isinstance(found, Gap)
    assert remedy in found.problem.remedy
