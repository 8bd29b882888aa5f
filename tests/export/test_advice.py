"""What an owner is told to change: numbers that can be copied, and that would have been enough."""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.export.build import policy
from tests.worlds import Gi, Mi, assessed, container, gpu, pod, process, rule, snapshot, step, use
from watchdog.core.findings import Assessment, Verdict
from watchdog.core.model import Node, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy
from watchdog.export.advice import advice

PERCENT = Declaration(kind="resource", key="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
FRACTION = Declaration(kind="annotation", key="gpu-fraction", unit="fraction", per="gpu")
SHARE = Declaration(kind="resource", key="nvidia.com/gpu.shared", unit="share", shares=4)
GPUMEM = Declaration(kind="resource", key="nvidia.com/gpumem", unit=Mi, per="gpu")
BLOCKS = Declaration(kind="resource", key="volcano.sh/gpu-mem.128Mi", unit=128 * Mi)
MIG = Declaration(kind="resource", key="nvidia.com/mig-*", unit="mig")
OF_CONTAINER = Declaration(kind="annotation", key="nvidia.com/container.{container}.gpu-memory.limit", unit=1)
OF_LABEL = Declaration(kind="label", key="sharedgpu/gpu_mem", unit=1)
BURST = Declaration(kind="resource", key="a.b/memory", unit=1, limit_annotation="a.b/limit")
DECIMAL = Declaration(kind="resource", key="a.b/gigabytes", unit=10**9)
BURST_PERCENT = replace(PERCENT, limit_annotation="a.b/limit")
ALLOWANCES = (NO_ALLOWANCE, Allowance(), Allowance(per_context=0, max_contexts=0, percent=Fraction(5, 100)))


def under(declaration: Declaration, allowance: Allowance = NO_ALLOWANCE, **more: object) -> Policy:
    """A policy with one declaration and a rule that kills above what is allowed."""
    return policy(rule(step(), name="r", **more), declarations=(declaration,), allowance=allowance)


def tenant(declaration: Declaration, number: str) -> Pod:
    """A pod with two containers, of which `main` declares this number."""
    key = declaration.key.replace("{container}", "main").replace("*", "1g.10gb")
    resources = {key: number} if declaration.kind == "resource" else {}
    made = pod("a", container("main", of="a", resources=resources), container("side", of="a"))
    written = {key: number}
    if declaration.kind == "annotation":
        return replace(made, annotations=written)
    return replace(made, labels=written) if declaration.kind == "label" else made


def account(holder: Pod, policy_: Policy, used: int) -> Assessment:
    """The account of that pod, which uses so much on one of two cards of 80Gi."""
    seen = snapshot([use(5, used)], [process(5, "a/main")], [gpu(0), gpu(1)])
    return next(each for each in assessed(seen, (holder,), policy_, Node(name="n1")) if each.used_at_least)


TABLE = [
    (GPUMEM, "1024", "nvidia.com/gpumem of at least 30720 on each GPU"),
    (BLOCKS, "8", "volcano.sh/gpu-mem.128Mi of at least 240"),
    (DECIMAL, "1", "a.b/gigabytes of at least 33"),
    (PERCENT, "10", "nvidia.com/gpumem-percentage of at least 38 on each GPU"),
    (FRACTION, "0.1", "gpu-fraction of at least 0.38 on each GPU"),
    (SHARE, "1", "nvidia.com/gpu.shared of at least 2"),
    (OF_CONTAINER, "1Gi", "nvidia.com/container.main.gpu-memory.limit of at least 30Gi"),
    (OF_LABEL, "1Gi", "sharedgpu/gpu_mem of at least 30Gi"),
    (BURST, "1Gi", "a.b/memory of at least 30Gi, or name that much as its limit in the annotation a.b/limit"),
]


@pytest.mark.parametrize(("declaration", "number", "says"), TABLE)
def test_the_number_is_in_the_unit_that_the_tenant_writes(declaration: Declaration, number: str, says: str) -> None:
    """Whatever a pod declares by, the advice is a number of that key's own unit."""
    policy_ = under(declaration)
    found = account(tenant(declaration, number), policy_, 30 * Gi)
    assert found.verdict is Verdict.OVER
    assert advice(found, policy_) == f"use less GPU memory or declare more: {says}"


@pytest.mark.parametrize("allowance", ALLOWANCES)
@pytest.mark.parametrize("used", [12 * Gi, 30 * Gi + 1, 47 * Gi + 12345])
@pytest.mark.parametrize(("declaration", "number"), [row[:2] for row in TABLE])
def test_whoever_follows_the_advice_is_within(
    declaration: Declaration, number: str, used: int, allowance: Allowance
) -> None:
    """The number is enough: with it in the pod's spec, and nothing else changed, the same use is within."""
    policy_ = under(declaration, allowance)
    before = account(tenant(declaration, number), policy_, used)
    if before.verdict is Verdict.WITHIN:
        return  # one share is 20Gi
    told = re.search(r" of at least (\S+?),?(?: |$)", advice(before, policy_))
    assert told is not None
    assert account(tenant(declaration, told[1]), policy_, used).verdict is Verdict.WITHIN


@pytest.mark.parametrize(
    ("declaration", "number", "used", "says"),
    [
        (PERCENT, "50", 79 * Gi, "nvidia.com/gpumem-percentage of at least 99 on each GPU"),
        (PERCENT, "50", 81 * Gi, "ask for a whole card: it needs more than nvidia.com/gpumem-percentage can give"),
        (FRACTION, "0.5", 81 * Gi, "ask for a whole card: it needs more than gpu-fraction can give"),
    ],
)
def test_more_than_a_card_is_not_asked_for(declaration: Declaration, number: str, used: int, says: str) -> None:
    """A fraction above the whole would be misdeclared: whoever needs more than a card is told so."""
    policy_ = under(declaration)
    assert advice(account(tenant(declaration, number), policy_, used), policy_).endswith(says)


def test_a_mig_instance_can_only_be_larger() -> None:
    """The number of a MIG resource is one of instances: more memory is another profile."""
    policy_ = under(MIG)
    instance = gpu(0, 10 * Gi, uuid="GPU-0", parent="GPU-9", gi=1, ci=0, profile="1g.10gb")
    seen = snapshot([use(5, 12 * Gi)], [process(5, "a/main")], [instance])
    (found,) = assessed(seen, (tenant(MIG, "1"),), policy_, Node(name="n1"))
    assert found.verdict is Verdict.OVER
    assert advice(found, policy_) == (
        "use less GPU memory or ask for more or larger GPUs than its nvidia.com/mig-1g.10gb"
    )


def test_units_of_several_containers_are_told_without_a_number() -> None:
    """Where two containers declare shares of cards it can't be said whose number to raise, and none is made up."""
    policy_ = under(PERCENT)
    both = {PERCENT.key: "10"}
    two = pod("a", container("main", of="a", resources=both), container("side", of="a", resources=both))
    assert advice(account(two, policy_, 30 * Gi), policy_).endswith(
        "declare more: a larger nvidia.com/gpumem-percentage"
    )
    plain = under(BLOCKS)
    both = {BLOCKS.key: "8"}
    two = pod("a", container("main", of="a", resources=both), container("side", of="a", resources=both))
    says = "volcano.sh/gpu-mem.128Mi of at least 240 over its containers together"
    assert advice(account(two, plain, 30 * Gi), plain).endswith(says)


@pytest.mark.parametrize(
    ("declarations", "says"),
    [
        ((FRACTION, GPUMEM, BLOCKS), "declare more: volcano.sh/gpu-mem.128Mi of at least 240"),
        ((FRACTION,), "declare more: a larger gpu-fraction"),
        ((OF_CONTAINER,), "declare at least 30Gi"),
        ((), "declare at least 30Gi"),
    ],
)
def test_a_pod_under_the_default_learns_what_it_could_declare_by(
    declarations: tuple[Declaration, ...], says: str
) -> None:
    """Whoever declares nothing is told the plainest key of the policy; an amount where there is none."""
    policy_ = policy(rule(step(), name="r", default=Gi), declarations=declarations, allowance=NO_ALLOWANCE)
    assert advice(account(pod("a"), policy_, 30 * Gi), policy_).endswith(says)


def test_two_keys_at_once_are_told_as_an_amount() -> None:
    """A pod whose containers declare by different keys has no one number to raise."""
    policy_ = policy(rule(step(), name="r"), declarations=(BLOCKS, OF_CONTAINER), allowance=NO_ALLOWANCE)
    notes: Mapping[str, str] = {"nvidia.com/container.side.gpu-memory.limit": "1Gi"}
    mixed = pod(
        "a", container("main", of="a", resources={BLOCKS.key: "8"}), container("side", of="a"), annotations=notes
    )
    assert advice(account(mixed, policy_, 30 * Gi), policy_) == "use less GPU memory or declare at least 30Gi"


def test_pressure_counts_the_request_alone() -> None:
    """A limit that the tenant named does not help while a card is short, so it is not offered."""
    policy_ = under(BURST)
    found = account(replace(tenant(BURST, "1Gi"), annotations={"a.b/limit": "60Gi"}), policy_, 30 * Gi)
    assert found.verdict is Verdict.WITHIN
    assert advice(found, policy_, under_pressure=True) == (
        "use less GPU memory or declare more: a.b/memory of at least 30Gi"
    )


def test_beside_a_limit_the_request_is_what_is_written() -> None:
    """The number under the key is the request, so the limit that the tenant named has no part in it."""
    policy_ = under(BURST_PERCENT)
    found = account(replace(tenant(PERCENT, "10"), annotations={"a.b/limit": "20"}), policy_, 30 * Gi)
    assert found.verdict is Verdict.OVER
    says = "nvidia.com/gpumem-percentage of at least 38 on each GPU, or name that much as its limit in the annotation"
    assert says in advice(found, policy_)


def test_where_nothing_is_known_to_be_too_much_the_advice_is_plain() -> None:
    """A warning below what is allowed, or an unknown limit, has no number in it."""
    policy_ = under(BLOCKS)
    found = account(tenant(BLOCKS, "800"), policy_, Gi)
    assert advice(found, policy_) == "use less GPU memory or declare more"
    assert advice(replace(found, allowed=None), policy_) == "use less GPU memory or declare more"
