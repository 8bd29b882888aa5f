"""What an owner is advised to change: numbers that can be copied, and that would have been enough."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.report.build import policy, trainer
from tests.report.notes import BURST, FRACTION, GPUMEM, MIG, OF_CONTAINER, OF_LABEL, PERCENT, SHARE, declaring
from tests.worlds import Gi, Mi, assessed, container, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import ContainerKind, Node, Pod, Snapshot
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, LimitAnnotation, Policy
from watchdog.report.advice import advice

BLOCKS = Declaration(resource="volcano.sh/gpu-mem.128Mi", unit=128 * Mi)
DECIMAL = Declaration(resource="a.b/gigabytes", unit=10**9)
BURST_PERCENT = replace(PERCENT, limits=(LimitAnnotation(key="a.b/limit"),))
ALLOWANCES = (NO_ALLOWANCE, Allowance(), Allowance(per_context=0, max_contexts=0, percent=Fraction(5, 100)))
UNDECLARED = trainer(containers=(container("main", of="u1"), container("side", of="u1")))


def under(declaration: Declaration, allowance: Allowance = NO_ALLOWANCE, **more: object) -> Policy:
    """A policy with one declaration and a rule that kills above what is allowed."""
    return policy(rule(step(), name="r", **more), declarations=(declaration,), allowance=allowance)


def account(holder: Pod, policy_: Policy, used: int = 30 * Gi, by: str = "main") -> Assessment:
    """The account of that pod, of which a container uses so much on one of two cards of 80Gi."""
    return judged(holder, policy_, snapshot([use(5, used)], [process(5, f"u1/{by}")], [gpu(0), gpu(1)]))


def judged(holder: Pod, policy_: Policy, seen: Snapshot) -> Assessment:
    """The account of that pod that uses something."""
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
    (BURST, "1Gi", ('resources.limits["a.b/memory"] of container main to at least 30Gi, or set the pod\'s annotation '
                    "a.b/limit to that amount")),
]  # fmt: skip
DEFAULTED = (GPUMEM, BLOCKS, DECIMAL, OF_CONTAINER, OF_LABEL, BURST)


@pytest.mark.parametrize(("declaration", "number", "says"), TABLE)
def test_the_number_is_in_the_unit_that_the_tenant_writes(declaration: Declaration, number: str, says: str) -> None:
    """Whatever a pod declares by, the advice is a number of that key's own unit."""
    policy_ = under(declaration)
    found = account(declaring(declaration, number), policy_)
    assert found.verdict is Verdict.OVER
    assert advice(found, policy_) == f"use less GPU memory or declare more: set {says}"


@pytest.mark.parametrize("allowance", ALLOWANCES)
@pytest.mark.parametrize("used", [12 * Gi, 30 * Gi + 1, 47 * Gi + 12345])
@pytest.mark.parametrize(("declaration", "number"), [row[:2] for row in TABLE])
def test_the_advice_is_enough(declaration: Declaration, number: str, used: int, allowance: Allowance) -> None:
    """The number is enough: with it in the pod's spec, and nothing else changed, the same use is within."""
    policy_ = under(declaration, allowance)
    before = account(declaring(declaration, number), policy_, used)
    if before.verdict is Verdict.WITHIN:
        return  # one share is 20Gi
    assert account(declaring(declaration, number_in(advice(before, policy_))), policy_, used).verdict is Verdict.WITHIN


def number_in(text: str) -> str:
    """The number that an owner would copy."""
    reported = re.search(r' to at least "?([^\s",]+)', text)
    assert reported is not None, text
    return reported[1]


@pytest.mark.parametrize("default", [0, Gi])
@pytest.mark.parametrize("own", [None, NO_ALLOWANCE, Allowance(per_context=0, percent=Fraction(1, 3))])
@pytest.mark.parametrize("used", [12 * Gi, 47 * Gi + 12345])
@pytest.mark.parametrize("declaration", DEFAULTED)
def test_the_advice_to_a_pod_that_declares_nothing_is_enough_too(
    declaration: Declaration, used: int, own: Allowance | None, default: int
) -> None:
    """The number counts with the allowance that the new declaration brings, and with no other: it is enough too."""
    policy_ = under(replace(declaration, allowance=own), Allowance(), default=default)
    before = account(UNDECLARED, policy_, used)
    assert (before.verdict, before.declared_by) == (Verdict.OVER, "default")
    reported = advice(before, policy_)
    assert f"use {'less GPU memory' if default else 'no GPU memory'} or declare what it needs: set " in reported
    assert account(declaring(declaration, number_in(reported)), policy_, used).verdict is Verdict.WITHIN


@pytest.mark.parametrize("used", [14 * Gi, 14 * Gi + 600 * Mi])
@pytest.mark.parametrize("declaration", [OF_LABEL, replace(BLOCKS, unit=1)])
def test_no_more_is_asked_for_than_the_cards_have(declaration: Declaration, used: int) -> None:
    """Rounded up it would be more than a card of 14.6Gi has, and misdeclared: it is what is enough, to the Mi."""
    small = (gpu(0, 15360 * Mi, reserved=410 * Mi),)
    seen = snapshot([use(5, used)], [process(5, "u1/main")], small)
    asked = number_in(
        advice(judged(declaring(declaration, "8Gi"), under(declaration), seen), under(declaration), gpus=small)
    )
    after = judged(declaring(declaration, asked), under(declaration), seen)
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
    """A fraction above the whole would be misdeclared: an owner who needs more than a card reads that."""
    policy_ = under(declaration)
    assert advice(account(declaring(declaration, number), policy_, used), policy_).endswith(says)


def test_a_mig_instance_can_only_be_larger() -> None:
    """The number of a MIG resource is one of instances: more memory is another profile."""
    instance = gpu(0, 10 * Gi, uuid="GPU-0", parent="GPU-9", gi=1, ci=0, profile="1g.10gb")
    seen = snapshot([use(5, 12 * Gi)], [process(5, "u1/main")], [instance])
    found = judged(declaring(MIG, "1"), under(MIG), seen)
    assert found.verdict is Verdict.OVER
    assert advice(found, under(MIG)) == (
        "use less GPU memory or ask for more or larger GPUs than its nvidia.com/mig-1g.10gb"
    )


@pytest.mark.parametrize("declaration", [BLOCKS, PERCENT])
def test_of_several_containers_the_one_furthest_above_its_own_declaration_is_named(declaration: Declaration) -> None:
    """That is the one that is killed: its own number, so much higher that the pod as a whole is within."""

    def pod_of(side: str) -> Pod:
        numbers = {"main": "10", "side": side}
        return trainer(
            containers=tuple(container(name, of="u1", resources={declaration.key: n}) for name, n in numbers.items())
        )

    ours = [process(5, "u1/main"), process(6, "u1/side")]
    seen = snapshot([use(5, 2 * Gi), use(6, 28 * Gi)], ours, [gpu(0), gpu(1)])
    text = advice(judged(pod_of("10"), under(declaration), seen), under(declaration))
    assert f'set resources.limits["{declaration.key}"] of container side to at least ' in text
    assert judged(pod_of(number_in(text)), under(declaration), seen).verdict is Verdict.WITHIN


@pytest.mark.parametrize(
    ("declaration", "says"),
    [
        (BLOCKS, 'set resources.limits["volcano.sh/gpu-mem.128Mi"] of its containers to at least 240 (30Gi) together'),
        (PERCENT, 'raise resources.limits["nvidia.com/gpumem-percentage"] of its containers'),
    ],
)
def test_where_it_is_open_whose_number_to_raise_none_is_made_up(declaration: Declaration, says: str) -> None:
    """Two containers declare and a third one uses the memory: an amount of all of them, or no number at all."""
    declarers = (container(name, of="u1", resources={declaration.key: "8"}) for name in ("one", "two"))
    three = trainer(containers=(*declarers, container("main", of="u1")))
    found = account(three, under(declaration))
    assert advice(found, under(declaration)) == f"use less GPU memory or declare more: {says}"


@pytest.mark.parametrize(
    ("declarations", "says"),
    [
        ((FRACTION, GPUMEM, BLOCKS),
         (' or declare what it needs: set resources.limits["volcano.sh/gpu-mem.128Mi"] of container main to at least '
          "240 (30Gi), where 1 means 128Mi")),
        ((FRACTION,),
         (" or declare what it needs: set the pod's annotation gpu-fraction, where the number is a fraction of each "
          "card, like 0.5")),
        ((OF_CONTAINER,),
         (" or declare what it needs: set the pod's annotation nvidia.com/container.main.gpu-memory.limit to at least "
          '"30Gi"')),
        ((MIG,), " or declare what it needs with a resource matching nvidia.com/mig-*"),
        ((), ": no key in this cluster lets a pod declare more"),
    ],
)  # fmt: skip
def test_a_pod_under_the_default_learns_what_it_could_declare_by(
    declarations: tuple[Declaration, ...], says: str
) -> None:
    """Its owner reads the plainest key of the policy and its unit; or that there is none."""
    policy_ = policy(rule(step(), name="r", default=Gi), declarations=declarations, allowance=NO_ALLOWANCE)
    assert advice(account(UNDECLARED, policy_), policy_) == f"use less GPU memory{says}"


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("container", "use less GPU memory: a container of `kubectl debug` can't declare any"),
        ("pod", 'set resources.limits["volcano.sh/gpu-mem.128Mi"] of container main to at least 240 (30Gi)'),
    ],
)
def test_a_container_of_kubectl_debug_is_not_advised_what_it_can_not_do(by: str, says: str) -> None:
    """An ephemeral container can't have resources; where the pod counts as a whole another container declares."""
    debug = container("debug", of="u1", kind=ContainerKind.EPHEMERAL)
    policy_ = under(BLOCKS, default=Gi, account=by)
    found = account(trainer(containers=(container("main", of="u1"), debug)), policy_, by="debug")
    assert found.verdict is Verdict.OVER
    assert says in advice(found, policy_)


def test_two_keys_at_once_are_answered_with_an_amount() -> None:
    """A pod whose containers declare by different keys has no one number to raise."""
    policy_ = policy(rule(step(), name="r"), declarations=(BLOCKS, OF_CONTAINER), allowance=NO_ALLOWANCE)
    annotations = {"nvidia.com/container.side.gpu-memory.limit": "1Gi"}
    mixed = replace(declaring(BLOCKS, "8"), annotations=annotations)
    assert advice(account(mixed, policy_), policy_) == "use less GPU memory or declare at least 30Gi in all"


def test_pressure_counts_the_request_alone() -> None:
    """A limit that the tenant named does not help while a card is short, so it is not offered."""
    policy_ = under(BURST)
    found = account(replace(declaring(BURST, "1Gi"), annotations={"a.b/limit": "60Gi"}), policy_)
    assert found.verdict is Verdict.WITHIN
    assert advice(found, policy_, under_pressure=True) == (
        'use less GPU memory or declare more: set resources.limits["a.b/memory"] of container main to at least 30Gi'
    )


def test_beside_a_limit_the_request_is_what_is_written() -> None:
    """The number under the key is the request, so the limit that the tenant named has no part in it."""
    policy_ = under(BURST_PERCENT)
    found = account(replace(declaring(PERCENT, "10"), annotations={"a.b/limit": "20"}), policy_)
    assert found.verdict is Verdict.OVER
    says = "main to at least 38 for each GPU, or set the pod's annotation a.b/limit to that amount"
    assert says in advice(found, policy_)


def test_where_nothing_is_known_to_be_too_much_the_advice_has_no_number() -> None:
    """A warning below what is allowed, or an unknown limit, says where the number is and makes none up."""
    policy_ = under(BLOCKS)
    found = account(declaring(BLOCKS, "800"), policy_, Gi)
    says = 'use less GPU memory or declare more: raise resources.limits["volcano.sh/gpu-mem.128Mi"] of container main'
    assert advice(found, policy_) == advice(replace(found, allowed=None), policy_) == says
    assert advice(replace(found, declared_by=None), policy_) == "use less GPU memory or declare more"
