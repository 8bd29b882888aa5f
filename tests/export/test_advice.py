"""What an owner is told to change: numbers that can be copied, and that would have been enough."""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.export.build import policy
from tests.worlds import Gi, Mi, assessed, container, gpu, pod, process, rule, snapshot, step, use
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import ContainerKind, Node, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy
from watchdog.report.advice import advice
from watchdog.report.text import shorten_names

PERCENT = Declaration(resource="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
FRACTION = Declaration(annotation="gpu-fraction", unit="fraction", per="gpu")
SHARE = Declaration(resource="nvidia.com/gpu.shared", unit="share", shares=4)
GPUMEM = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
BLOCKS = Declaration(resource="volcano.sh/gpu-mem.128Mi", unit=128 * Mi)
MIG = Declaration(resource="nvidia.com/mig-*", unit="mig")
OF_CONTAINER = Declaration(annotation="nvidia.com/container.{container}.gpu-memory.limit", unit=1)
OF_LABEL = Declaration(label="sharedgpu/gpu_mem", unit=1)
BURST = Declaration(resource="a.b/memory", unit=1, limit_annotation="a.b/limit")
DECIMAL = Declaration(resource="a.b/gigabytes", unit=10**9)
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
    (GPUMEM, "1024", 'resources.limits["nvidia.com/gpumem"] of container main to at least 30720 (30Gi) for each GPU'),
    (BLOCKS, "8", 'resources.limits["volcano.sh/gpu-mem.128Mi"] of container main to at least 240 (30Gi)'),
    (DECIMAL, "1", 'resources.limits["a.b/gigabytes"] of container main to at least 33 (30.7Gi)'),
    (PERCENT, "10", 'resources.limits["nvidia.com/gpumem-percentage"] of container main to at least 38 for each GPU'),
    (FRACTION, "0.1", 'the pod\'s annotation gpu-fraction to at least "0.38" for each GPU'),
    (SHARE, "1", 'resources.limits["nvidia.com/gpu.shared"] of container main to at least 2'),
    (OF_CONTAINER, "1Gi", 'the pod\'s annotation nvidia.com/container.main.gpu-memory.limit to at least "30Gi"'),
    (OF_LABEL, "1Gi", 'the pod\'s label sharedgpu/gpu_mem to at least "30Gi"'),
    (
        BURST,
        "1Gi",
        (
            'resources.limits["a.b/memory"] of container main to at least 30Gi, or set the pod\'s annotation '
            "a.b/limit to that amount"
        ),
    ),
]
DEFAULTED = (GPUMEM, BLOCKS, DECIMAL, OF_CONTAINER, OF_LABEL, BURST)


@pytest.mark.parametrize(("declaration", "number", "says"), TABLE)
def test_the_number_is_in_the_unit_that_the_tenant_writes(declaration: Declaration, number: str, says: str) -> None:
    """Whatever a pod declares by, the advice is a number of that key's own unit."""
    policy_ = under(declaration)
    found = account(tenant(declaration, number), policy_, 30 * Gi)
    assert found.verdict is Verdict.OVER
    assert advice(found, policy_) == f"use less GPU memory or declare more: set {says}"


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
    assert account(tenant(declaration, number_in(advice(before, policy_))), policy_, used).verdict is Verdict.WITHIN


def number_in(text: str) -> str:
    """The number that an owner would copy."""
    told = re.search(r' to at least "?([^\s",]+)', text)
    assert told is not None, text
    return told[1]


@pytest.mark.parametrize("default", [0, Gi])
@pytest.mark.parametrize("own", [None, NO_ALLOWANCE, Allowance(per_context=0, percent=Fraction(1, 3))])
@pytest.mark.parametrize("used", [12 * Gi, 47 * Gi + 12345])
@pytest.mark.parametrize("declaration", DEFAULTED)
def test_whoever_declares_nothing_and_follows_the_advice_is_within(
    declaration: Declaration, used: int, own: Allowance | None, default: int
) -> None:
    """The number counts with the allowance that the new declaration brings, and with no other: it is enough too."""
    policy_ = under(replace(declaration, allowance=own), Allowance(), default=default)
    before = account(pod("a", container("main", of="a"), container("side", of="a")), policy_, used)
    assert (before.verdict, before.declared_by) == (Verdict.OVER, "default")
    told = advice(before, policy_)
    assert f"use {'less GPU memory' if default else 'no GPU memory'} or declare what it needs: set " in told
    assert account(tenant(declaration, number_in(told)), policy_, used).verdict is Verdict.WITHIN


@pytest.mark.parametrize("used", [14 * Gi, 14 * Gi + 600 * Mi])
def test_no_more_is_asked_for_than_the_cards_have(used: int) -> None:
    """Rounded up it would be more than a card of 14.6Gi has, and misdeclared: what is enough is told to the Mi."""
    small = (gpu(0, 15360 * Mi, reserved=410 * Mi),)
    policy_ = under(BLOCKS)
    seen = snapshot([use(5, used)], [process(5, "a/main")], small)
    for declaration, number in ((OF_LABEL, "8Gi"), (replace(BLOCKS, unit=1), "8Gi")):
        policy_ = under(declaration)
        (before,) = assessed(seen, (tenant(declaration, number),), policy_, Node(name="n1"))
        asked = number_in(advice(before, policy_, gpus=small))
        (after,) = assessed(seen, (tenant(declaration, asked),), policy_, Node(name="n1"))
        assert (after.verdict, after.misdeclarations) == (Verdict.WITHIN, ()), asked


@pytest.mark.parametrize(
    ("declaration", "number", "used", "says"),
    [
        (PERCENT, "50", 79 * Gi, "container main to at least 99 for each GPU"),
        (PERCENT, "50", 81 * Gi, "ask for a whole GPU: it needs more than nvidia.com/gpumem-percentage can give"),
        (FRACTION, "0.5", 81 * Gi, "ask for a whole GPU: it needs more than gpu-fraction can give"),
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


def test_of_several_containers_the_one_furthest_above_its_own_declaration_is_named() -> None:
    """That is the one that is killed: its own number, so much higher that the pod as a whole is within."""
    for declaration in (BLOCKS, PERCENT):
        policy_ = under(declaration)
        both = {declaration.key: "10"}
        two = pod("a", container("main", of="a", resources=both), container("side", of="a", resources=both))
        ours = [process(5, "a/main"), process(6, "a/side")]
        seen = snapshot([use(5, 2 * Gi), use(6, 28 * Gi)], ours, [gpu(0), gpu(1)])
        (before,) = assessed(seen, (two,), policy_, Node(name="n1"))
        told = advice(before, policy_)
        assert f'set resources.limits["{declaration.key}"] of container side to at least ' in told
        more = {declaration.key: number_in(told)}
        raised = pod("a", container("main", of="a", resources=both), container("side", of="a", resources=more))
        (after,) = assessed(seen, (raised,), policy_, Node(name="n1"))
        assert after.verdict is Verdict.WITHIN


def test_where_it_is_open_whose_number_to_raise_none_is_made_up() -> None:
    """Two containers declare and a third one uses the memory: an amount of all of them, or no number at all."""
    for declaration, says in (
        (BLOCKS, 'set resources.limits["volcano.sh/gpu-mem.128Mi"] of its containers to at least 240 (30Gi) together'),
        (PERCENT, 'raise resources.limits["nvidia.com/gpumem-percentage"] of its containers'),
    ):
        policy_, both = under(declaration), {declaration.key: "8"}
        declaring = (container(name, of="a", resources=both) for name in ("one", "two"))
        three = pod("a", *declaring, container("main", of="a"))
        assert advice(account(three, policy_, 30 * Gi), policy_) == f"use less GPU memory or declare more: {says}"


@pytest.mark.parametrize(
    ("declarations", "says"),
    [
        (
            (FRACTION, GPUMEM, BLOCKS),
            (
                'less GPU memory or declare what it needs: set resources.limits["volcano.sh/gpu-mem.128Mi"] of '
                "container main to at least 240 (30Gi), where 1 means 128Mi"
            ),
        ),
        (
            (FRACTION,),
            (
                "less GPU memory or declare what it needs: set the pod's annotation gpu-fraction, where the number is "
                "a fraction of each card, like 0.5"
            ),
        ),
        (
            (OF_CONTAINER,),
            (
                "less GPU memory or declare what it needs: set the pod's annotation "
                'nvidia.com/container.main.gpu-memory.limit to at least "30Gi"'
            ),
        ),
        ((MIG,), "less GPU memory or declare what it needs with a resource matching nvidia.com/mig-*"),
        ((), "less GPU memory: no key in this cluster lets a pod declare more"),
    ],
)
def test_a_pod_under_the_default_learns_what_it_could_declare_by(
    declarations: tuple[Declaration, ...], says: str
) -> None:
    """Whoever declares nothing is told the plainest key of the policy and its unit; or that there is none."""
    policy_ = policy(rule(step(), name="r", default=Gi), declarations=declarations, allowance=NO_ALLOWANCE)
    assert advice(account(pod("a"), policy_, 30 * Gi), policy_) == f"use {says}"


def test_a_container_of_kubectl_debug_is_told_nothing_that_it_could_not_do() -> None:
    """An ephemeral container can't have resources; where the pod counts as a whole another container declares."""
    debug = container("debug", of="a", kind=ContainerKind.EPHEMERAL)
    seen = snapshot([use(5, 30 * Gi)], [process(5, "a/debug")], [gpu(0)])
    for account_, says in (
        ("container", "use less GPU memory: a container of `kubectl debug` can't declare any"),
        ("pod", 'set resources.limits["volcano.sh/gpu-mem.128Mi"] of container main to at least 240 (30Gi)'),
    ):
        policy_ = under(BLOCKS, default=Gi, account=account_)
        found = assessed(seen, (pod("a", container("main", of="a"), debug),), policy_, Node(name="n1"))
        (over,) = [each for each in found if each.verdict is Verdict.OVER]
        assert says in advice(over, policy_)


def test_two_keys_at_once_are_told_as_an_amount() -> None:
    """A pod whose containers declare by different keys has no one number to raise."""
    policy_ = policy(rule(step(), name="r"), declarations=(BLOCKS, OF_CONTAINER), allowance=NO_ALLOWANCE)
    notes: Mapping[str, str] = {"nvidia.com/container.side.gpu-memory.limit": "1Gi"}
    mixed = pod(
        "a", container("main", of="a", resources={BLOCKS.key: "8"}), container("side", of="a"), annotations=notes
    )
    assert advice(account(mixed, policy_, 30 * Gi), policy_) == "use less GPU memory or declare at least 30Gi in all"


def test_pressure_counts_the_request_alone() -> None:
    """A limit that the tenant named does not help while a card is short, so it is not offered."""
    policy_ = under(BURST)
    found = account(replace(tenant(BURST, "1Gi"), annotations={"a.b/limit": "60Gi"}), policy_, 30 * Gi)
    assert found.verdict is Verdict.WITHIN
    assert advice(found, policy_, under_pressure=True) == (
        'use less GPU memory or declare more: set resources.limits["a.b/memory"] of container main to at least 30Gi'
    )


def test_beside_a_limit_the_request_is_what_is_written() -> None:
    """The number under the key is the request, so the limit that the tenant named has no part in it."""
    policy_ = under(BURST_PERCENT)
    found = account(replace(tenant(PERCENT, "10"), annotations={"a.b/limit": "20"}), policy_, 30 * Gi)
    assert found.verdict is Verdict.OVER
    says = "main to at least 38 for each GPU, or set the pod's annotation a.b/limit to that amount"
    assert says in advice(found, policy_)


def test_where_nothing_is_known_to_be_too_much_the_advice_has_no_number() -> None:
    """A warning below what is allowed, or an unknown limit, says where the number stands and makes none up."""
    policy_ = under(BLOCKS)
    found = account(tenant(BLOCKS, "800"), policy_, Gi)
    says = 'use less GPU memory or declare more: raise resources.limits["volcano.sh/gpu-mem.128Mi"] of container main'
    assert advice(found, policy_) == advice(replace(found, allowed=None), policy_) == says
    assert advice(replace(found, declared_by=None), policy_) == "use less GPU memory or declare more"


def test_long_names_are_shortened_before_the_number_is_lost() -> None:
    """A key of 316 characters, as Kubernetes allows, leaves room in the note of an Event."""
    long = replace(BLOCKS, resource=f"{'d' * 253}/{'k' * 63}")
    told = shorten_names(advice(account(tenant(long, "8"), under(long), 30 * Gi), under(long)), 180)
    assert len(told) < 180
    assert told.endswith("of container main to at least 240 (30Gi)")
