"""What a pod declares, from whichever key it says so."""

from dataclasses import replace

import pytest

from tests.worlds import (
    MEMORY,
    NODE,
    VERIFF,
    Gi,
    Mi,
    assessed,
    container,
    gpu,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.declare import declare
from watchdog.core.findings import Assessment, Verdict
from watchdog.core.model import Container, ContainerKind, Node, Pod
from watchdog.core.policy import Allowance, Declaration, Policy, Unless

HAMI = Declaration(kind="resource", key="nvidia.com/gpumem", unit=Mi, per="gpu")
KAI = Declaration(kind="annotation", key="gpu-memory", unit=Mi, per="gpu")
KUBESHARE = Declaration(kind="label", key="sharedgpu/gpu_mem", unit=1)
TOTAL_NOTE = Declaration(kind="annotation", key="vram", unit=1)


def only(pod_: Pod, under: Policy, *uses: int, node: Node = NODE) -> Assessment:
    """The one account of a pod whose process number i (from 0) uses so much on card i."""
    seen = snapshot(
        [use(10 + i, used, i) for i, used in enumerate(uses)], gpus=[gpu(i) for i in range(max(len(uses), 1))]
    )
    (assessment,) = assessed(seen, [pod_], under, node)
    return assessment


@pytest.mark.parametrize(
    ("resources", "declared", "by"),
    [
        ({MEMORY: "104Mi"}, 104 * Mi, MEMORY),
        ({MEMORY: "109051904"}, 104 * Mi, MEMORY),
        ({MEMORY: "1500m"}, 2, MEMORY),
        ({"nvidia.com/gpumem": "3000"}, 3000 * Mi, "nvidia.com/gpumem"),
        ({"nvidia.com/gpumem": "3000", MEMORY: "1Gi"}, 1 * Gi, MEMORY),
        ({"example.com/other": "1"}, None, None),
    ],
)
def test_the_first_source_that_a_container_has_counts(
    resources: dict[str, str], declared: int | None, by: str | None
) -> None:
    """Point 1: sources are tried in the policy's order, whatever the order in the pod."""
    under = policy(declarations=(VERIFF, HAMI))
    seen = only(pod("a", container(resources=resources)), under, 1)
    assert (seen.declared, seen.declared_by) == (declared, by)


def test_an_annotation_or_label_is_read_once_a_pod() -> None:
    """Point 1: two containers do not double what a pod's annotation says."""
    two = (container("main"), container("side"))
    noted = pod("a", *two, annotations={"vram": "4Gi"})
    assert only(noted, policy(declarations=(TOTAL_NOTE,)), 1).declared == 4 * Gi
    labelled = pod("a", *two, labels={"sharedgpu/gpu_mem": str(Gi)})
    assert only(labelled, policy(declarations=(KUBESHARE,)), 1).declared == Gi


def test_the_first_source_wins_between_pod_and_containers() -> None:
    """Point 1: between a pod's annotation and its containers' resources the policy's order decides, never the sum."""
    both = pod("a", container(declared="1Gi"), annotations={"vram": "4Gi"})
    assert only(both, policy(declarations=(TOTAL_NOTE, VERIFF)), 1).declared == 4 * Gi
    assert only(both, policy(declarations=(VERIFF, TOTAL_NOTE)), 1).declared == 1 * Gi


def _init(name: str, declared: str, *, running: bool) -> Container:
    return container(name, declared, kind=ContainerKind.INIT, running=running)


def _sidecar(name: str, declared: str) -> Container:
    return container(name, declared, kind=ContainerKind.SIDECAR)


@pytest.mark.parametrize(
    ("containers", "declared"),
    [
        ([container("a1", "1Gi"), container("a2", "2Gi")], 3),
        ([_init("i", "8Gi", running=False), container("m", "1Gi")], 1),
        ([_init("i", "8Gi", running=True), container("m", "1Gi")], 8),
        ([_sidecar("s", "2Gi"), container("m", "1Gi")], 3),
        ([_sidecar("s", "2Gi"), _init("i", "8Gi", running=True), _sidecar("t", "4Gi"), container("m", "1Gi")], 10),
        ([_sidecar("s", "2Gi"), _init("i", "8Gi", running=False), _sidecar("t", "4Gi"), container("m", "1Gi")], 7),
        ([container("m", "1Gi"), container("e", kind=ContainerKind.EPHEMERAL)], 1),
    ],
    ids=["sum", "init over", "init runs", "sidecar", "init runs after one sidecar", "both sidecars", "ephemeral"],
)
def test_declared_is_the_sum_of_the_containers_that_count_now(containers: list[Container], declared: int) -> None:
    """Point 2: an init container's own and the sidecars before it while it runs, else main and sidecars: no maximum."""
    assert only(pod("a", *containers), policy(), 1).declared == declared * Gi


def test_per_gpu_holds_on_each_gpu_that_is_used() -> None:
    """Point 3: `per = "gpu"` makes an account of each GPU."""
    hami = pod("a", container(resources={"nvidia.com/gpumem": "1024"}))
    seen = snapshot([use(1, 3 * Gi, 0), use(2, 1 * Mi, 1)], gpus=[gpu(0), gpu(1)])
    got = assessed(seen, [hami], policy(declarations=(HAMI,)))
    assert [(a.account.gpu, a.declared, a.verdict) for a in got] == [
        ("GPU-0", Gi, Verdict.OVER),
        ("GPU-1", Gi, Verdict.WITHIN),
    ]


def test_per_gpu_with_a_count_holds_on_the_most_used() -> None:
    """Point 3: with `nvidia.com/gpu: n` it holds on the n GPUs used most and is 0 on the others."""
    hami = pod("a", container(resources={"nvidia.com/gpumem": "8192", "nvidia.com/gpu": "1"}))
    seen = snapshot([use(1, 1 * Gi, 0), use(2, 3 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    got = assessed(seen, [hami], policy(declarations=(HAMI,)))
    assert [(a.account.gpu, a.declared) for a in got] == [("GPU-0", 0), ("GPU-1", 8 * Gi)]


def test_a_pod_with_a_total_and_a_per_gpu_declaration_is_misdeclared() -> None:
    """Point 3: a total and an amount per GPU can't be added, so such a pod is left alone."""
    mixed = pod("a", container("m", "1Gi"), container("n", resources={"nvidia.com/gpumem": "1024"}))
    for assessment in assessed(snapshot([use(1, 70 * Gi)]), [mixed], policy(declarations=(VERIFF, HAMI))):
        assert assessment.verdict is Verdict.MISDECLARED


@pytest.mark.parametrize(
    ("resources", "labels", "verdict", "declared"),
    [
        ({"nvidia.com/gpu": "1"}, {}, Verdict.WITHIN, 80 * Gi),
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu.sharing-strategy": "none"}, Verdict.WITHIN, 160 * Gi),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, Verdict.OVER, Gi),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu.replicas": "4"}, Verdict.OVER, Gi),
        ({}, {}, Verdict.OVER, Gi),
    ],
    ids=["one card", "two cards", "time-slicing", "replicas", "nothing"],
)
def test_whole_cards_take_no_default(
    resources: dict[str, str], labels: dict[str, str], verdict: Verdict, declared: int
) -> None:
    """Point 4: who has a card of its own may fill it; the default is for those that declare nothing."""
    whole = pod("a", container(resources=resources))
    under = policy(rule(step(), default=Gi))
    seen = only(whole, under, 79 * Gi, node=Node(name="n1", labels=labels))
    assert (seen.verdict, seen.declared) == (verdict, declared)


def test_whole_cards_take_no_default_where_another_source_is_wrong() -> None:
    """Points 4 and 6: a declaration that can't be true is said, and the card stays the container's own."""
    whole = pod("a", container(declared="8Pi", resources={"nvidia.com/gpu": "1"}))
    seen = only(whole, policy(rule(step(), default=4 * Gi)), 6 * Gi)
    assert (seen.verdict, seen.declared, len(seen.misdeclarations)) == (Verdict.WITHIN, 80 * Gi, 1)


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "tencent.com/vcuda-core"])
@pytest.mark.parametrize("number", ["1000000000", str(2**63 - 1), "999999999999999999999999"])
def test_a_huge_number_of_devices_costs_nothing(key: str, number: str) -> None:
    """A tenant writes the number, and a rejected pod stays in the list: it must not become as many values."""
    unless = Declaration(
        kind="resource",
        key="tencent.com/vcuda-memory",
        unit=Gi,
        unless=Unless(resource="tencent.com/vcuda-core", at_least=100),
    )
    greedy = pod("a", container(resources={key: number, "tencent.com/vcuda-memory": "1"}))
    assert only(greedy, policy(declarations=(unless,)), Gi).verdict in (Verdict.WITHIN, Verdict.UNKNOWN)


def test_unknown_use_moves_no_amount_to_another_gpu() -> None:
    """Law 3: on which GPUs an amount for one GPU holds is open while the use on one of two is unknown."""
    hami = pod("a", container(resources={"nvidia.com/gpumem": "8192", "nvidia.com/gpu": "1"}))
    under = policy(rule(step()), declarations=(HAMI,))
    seen = snapshot([use(1, 6 * Gi, 0), use(2, 3 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    assert [(a.account.gpu, a.declared) for a in assessed(seen, [hami], under)] == [("GPU-0", 8 * Gi), ("GPU-1", 0)]
    dark = snapshot([use(1, None, 0), use(2, 3 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    assert {(a.verdict, a.declared) for a in assessed(dark, [hami], under)} == {(Verdict.UNKNOWN, None)}
    one = snapshot([use(1, None, 0)], gpus=[gpu(0), gpu(1)])
    assert [a.declared for a in assessed(one, [hami], under)] == [8 * Gi]


def test_the_default_is_not_for_the_init_phase_of_a_pod_that_declares() -> None:
    """Point 7: in a pod account it applies only if no container declares, whichever runs at the moment."""
    load = replace(container("load"), kind=ContainerKind.INIT, running=True)
    loading = pod("a", load, container("main", "20Gi"))
    under = policy(rule(step(), default=0))
    seen = snapshot([use(1, Gi)], [process(1, "a/load")])
    (got,) = assessed(seen, [loading], under)
    assert (got.verdict, got.declared) == (Verdict.UNDECLARED, None)


def test_a_mig_resource_declares_the_instance() -> None:
    """Point 4: a MIG resource declares the instances that it names, by their own size."""
    owner = pod("a", container(resources={"nvidia.com/mig-1g.10gb": "1"}))
    rows = [gpu(0, 10 * Gi, parent="GPU-p", gi=7, ci=0, profile="1g.10gb"), gpu(1, 40 * Gi, profile="3g.40gb")]
    (seen,) = assessed(snapshot([use(1, 9 * Gi)], gpus=rows), [owner], policy(rule(step(), default=Mi)))
    assert (seen.declared, seen.declared_by, seen.verdict) == (10 * Gi, "nvidia.com/mig-1g.10gb", Verdict.WITHIN)


def test_the_size_of_a_card_is_total_minus_reserved() -> None:
    """Point 5: what tenants can share of a card is its total without what the driver reserves."""
    assert gpu(0, 80 * Gi, reserved=Gi).size == 79 * Gi
    (seen,) = assessed(
        snapshot(gpus=[gpu(0, 80 * Gi, reserved=Gi)]), [pod("a", container(declared="79.5Gi"))], policy()
    )
    assert seen.verdict is Verdict.MISDECLARED


@pytest.mark.parametrize("written", ["81Gi", "-1Gi", "much", "", "1e99", "nan", "٣Gi"])
def test_what_cannot_be_true_is_skipped_and_said(written: str) -> None:
    """Point 6: an implausible, negative or unparsable amount is reported and the next source applies."""
    bad = pod("a", container(resources={MEMORY: written, "nvidia.com/gpumem": "1024"}))
    alone = pod("a", container(resources={MEMORY: written}))
    assert only(alone, policy(), 1).verdict is Verdict.MISDECLARED
    assert only(alone, policy(rule(step(), default=Gi)), 1).declared_by == "default"
    declared = declare(bad, policy(declarations=(VERIFF, replace(HAMI, per="total"))), NODE, [gpu()])
    assert declared.containers["main"].size == Gi
    assert [skipped.source for skipped in declared.skipped] == [f"{MEMORY} of container main"]


def test_a_total_may_fill_all_cards_and_an_amount_per_gpu_the_largest() -> None:
    """Point 6: a total is held against the sum of the cards, an amount per GPU against the largest card."""
    cards = [gpu(0, 40 * Gi), gpu(1, 80 * Gi)]
    for declaration, written, holds in [
        (VERIFF, "120Gi", True),
        (VERIFF, "121Gi", False),
        (replace(VERIFF, per="gpu"), "80Gi", True),
        (replace(VERIFF, per="gpu"), "81Gi", False),
    ]:
        declared = declare(pod("a", container(declared=written)), policy(declarations=(declaration,)), NODE, cards)
        assert bool(declared.containers) is holds, (declaration.per, written)


@pytest.mark.parametrize(
    "hidden", [{"gpus": (gpu(0, 40 * Gi), gpu(1, 40 * Gi, up=False))}, {"unseen": frozenset({"GPU at index 1"})}]
)
def test_a_card_that_is_not_seen_makes_nothing_implausible(hidden: dict[str, object]) -> None:
    """Point 6: with a card lost or not named 60Gi may be true; no smaller default takes its place."""
    seen = replace(snapshot([use(5, 30 * Gi)], gpus=[gpu(0, 40 * Gi)]), **hidden)  # type: ignore[arg-type]
    (got,) = assessed(seen, [pod("a", container(declared="60Gi"))], policy(rule(step(), default=4 * Gi)))
    assert got.declared == 60 * Gi


def test_a_pod_of_which_one_container_is_misdeclared_is_left_alone() -> None:
    """Point 6: half a sum would make an offender of whoever wrote the other half wrong."""
    half = pod("a", container("m", "1Gi"), container("n", "900Gi"))
    assert only(half, policy(rule(step(), default=Mi)), 50 * Gi).verdict is Verdict.MISDECLARED


def test_the_default_is_for_a_pod_of_which_no_container_declares() -> None:
    """Point 7: in a pod account the default applies only if no container declares."""
    under = policy(rule(step(), default=4 * Gi))
    assert only(pod("a", container("m"), container("n")), under, 1).declared == 4 * Gi
    assert only(pod("a", container("m", "1Gi"), container("n")), under, 1).declared == 1 * Gi


def test_in_container_accounts_the_default_is_for_each_that_declares_nothing() -> None:
    """Point 7: each container account without a declaration has the default of its own."""
    mixed = pod("a", container("m", "1Gi"), container("n"))
    seen = snapshot([use(1, 1), use(2, 1)], [process(1, "a/m"), process(2, "a/n")])
    got = assessed(seen, [mixed], policy(rule(step(), account="container", default=4 * Gi)))
    assert [(a.account.container, a.declared) for a in got] == [("m", Gi), ("n", 4 * Gi)]


def test_a_default_of_zero_forbids_and_leaves_no_allowance() -> None:
    """Point 7: with `default = "0"` the first byte is too much."""
    under = policy(rule(step(), default=0), allowance=Allowance())
    seen = only(pod("a"), under, 1)
    assert (seen.allowed, seen.verdict) == (0, Verdict.OVER)


def test_without_a_default_whoever_declares_nothing_is_left_alone() -> None:
    """Point 7: no declaration and no default is `undeclared`, however much is used."""
    assert only(pod("a"), policy(), 80 * Gi).verdict is Verdict.UNDECLARED


def test_unless_and_node_labels_switch_a_source_off() -> None:
    """A declaration with `unless` or `node_labels` applies only where its condition holds."""
    tencent = Declaration(kind="resource", key="t/mem", unit=256 * Mi, unless=Unless(resource="t/core", at_least=100))
    limited = pod("a", container(resources={"t/mem": "4", "t/core": "50"}))
    assert only(limited, policy(declarations=(tencent,)), 1).declared == Gi
    only_there = policy(declarations=(replace(VERIFF, node_labels={"zone": "b*"}),))
    declaring = pod("a", container(declared="1Gi"))
    assert only(declaring, only_there, 1, node=Node(name="n", labels={"zone": "b2"})).declared == Gi
    assert only(declaring, only_there, 1, node=Node(name="n", labels={"zone": "c"})).declared is None
    anywhere = policy(declarations=(replace(VERIFF, node_labels={"zone": "*"}),))
    assert only(declaring, anywhere, 1, node=Node(name="n")).declared is None


def test_a_pods_one_number_is_not_split_among_containers() -> None:
    """In container accounts an annotation of the pod counts only where the pod has one container."""
    under = policy(rule(step(), account="container", default=Mi), declarations=(TOTAL_NOTE,))
    alone = pod("a", container("main"), annotations={"vram": "4Gi"})
    assert only(alone, under, Gi).declared == 4 * Gi
    two = pod("a", container("main"), container("side"), annotations={"vram": "4Gi"})
    assert only(two, under, Gi).verdict is Verdict.MISDECLARED
