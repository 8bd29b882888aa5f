"""What a pod declares, by whichever key."""

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
from watchdog.core.amount import Cards
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.declare import declare
from watchdog.core.model import Container, ContainerKind, Node, Pod, Process
from watchdog.core.policy import Allowance, Declaration, Policy, Unless
from watchdog.core.units import LARGEST

HAMI = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
KAI = Declaration(annotation="gpu-memory", unit=Mi, per="gpu")
KUBESHARE = Declaration(label="sharedgpu/gpu_mem", unit=1)
TOTAL_NOTE = Declaration(annotation="vram", unit=1)


def only(pod_: Pod, under: Policy, *uses: int, node: Node = NODE) -> Assessment:
    """The one account of a pod whose process number i (from 0) uses this much on card i."""
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
    (got,) = assessed(
        snapshot([use(5, 1)], [process(5, f"a/{containers[-1].name}")]), [pod("a", *containers)], policy()
    )
    assert (got.declared, got.behind) == (declared * Gi, False)


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
    """Point 4: a container with a whole card may fill it; the default is for those that declare nothing."""
    whole = pod("a", container(resources=resources))
    under = policy(rule(step(), default=Gi))
    seen = only(whole, under, 79 * Gi, node=Node(name="n1", labels=labels))
    assert (seen.verdict, seen.declared) == (verdict, declared)


def test_whole_cards_take_no_default_where_another_source_is_wrong() -> None:
    """Points 4 and 6: an annotation that can't be true is reported, and the card stays the container's own."""
    noted = Declaration(annotation="{container}.vram", unit=1)
    whole = pod("a", container(resources={"nvidia.com/gpu": "1"}), annotations={"main.vram": "8Pi"})
    seen = only(whole, policy(rule(step(), default=4 * Gi), declarations=(noted,)), 6 * Gi)
    assert (seen.verdict, seen.declared, len(seen.misdeclarations)) == (Verdict.WITHIN, 80 * Gi, 1)


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "tencent.com/vcuda-core"])
@pytest.mark.parametrize("number", ["1000000000", str(2**63 - 1), "999999999999999999999999"])
def test_a_huge_number_of_devices_costs_nothing(key: str, number: str) -> None:
    """A tenant writes the number, and a rejected pod stays listed: memory must not grow with it."""
    unless = Declaration(
        resource="tencent.com/vcuda-memory",
        unit=Gi,
        unless=Unless(resource="tencent.com/vcuda-core", at_least=100),
    )
    greedy = pod("a", container(resources={key: number, "tencent.com/vcuda-memory": "1"}))
    assert only(greedy, policy(declarations=(unless,)), Gi).verdict in (Verdict.WITHIN, Verdict.UNKNOWN)


def test_unknown_use_moves_no_amount_to_another_gpu() -> None:
    """Law 3: which GPU an amount for one GPU applies to is unknown while the use on one of two is."""
    hami = pod("a", container(resources={"nvidia.com/gpumem": "8192", "nvidia.com/gpu": "1"}))
    under = policy(rule(step()), declarations=(HAMI,))
    seen = snapshot([use(1, 6 * Gi, 0), use(2, 3 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    assert [(a.account.gpu, a.declared) for a in assessed(seen, [hami], under)] == [("GPU-0", 8 * Gi), ("GPU-1", 0)]
    dark = snapshot([use(1, None, 0), use(2, 3 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    assert {(a.verdict, a.declared) for a in assessed(dark, [hami], under)} == {(Verdict.UNKNOWN, None)}
    one = snapshot([use(1, None, 0)], gpus=[gpu(0), gpu(1)])
    assert [a.declared for a in assessed(one, [hami], under)] == [8 * Gi]
    whole = pod("a", container(resources={"nvidia.com/gpu": "1"}))
    assert [a.declared for a in assessed(one, [whole], under)] == [80 * Gi]


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
    noted = pod("a", annotations={"vram": "79.5Gi"})
    under = policy(declarations=(TOTAL_NOTE,))
    (seen,) = assessed(snapshot([use(1, 1)], gpus=[gpu(0, 80 * Gi, reserved=Gi)]), [noted], under)
    assert seen.verdict is Verdict.MISDECLARED


@pytest.mark.parametrize("written", ["81Gi", "-1Gi", "much", "", "1e30", "1e99", "9223372036854775808", "nan", "٣Gi"])
def test_an_annotation_that_cannot_be_true_is_skipped_and_reported(written: str) -> None:
    """Point 6: above the cards, negative, unparsable, beyond any quantity: the next source applies, then `default`."""
    noted = pod("a", container(resources={"nvidia.com/gpumem": "1024"}), annotations={"vram": written})
    alone = pod("a", annotations={"vram": written})
    under = policy(rule(step()), declarations=(TOTAL_NOTE,))
    assert only(alone, under, 1).verdict is Verdict.MISDECLARED
    assert only(alone, policy(rule(step(), default=Gi), declarations=(TOTAL_NOTE,)), 1).declared_by == "default"
    declared = declare(noted, policy(declarations=(TOTAL_NOTE, replace(HAMI, per="total"))), NODE, Cards(gpus=(gpu(),)))
    assert declared.amounts["main"].size == Gi
    assert [remark.source for remark in declared.remarks] == ["vram of the pod"]


@pytest.mark.parametrize(
    ("written", "declared"),
    [("81Gi", 81 * Gi), ("8Pi", 8 * 2**50), ("9223372036854775807", LARGEST), ("1e30", LARGEST)],
)
def test_a_resource_that_the_scheduler_has_checked_is_a_declaration_whatever_its_size(
    written: str, declared: int
) -> None:
    """Point 6: a remark points out an implausible amount, and no smaller value ever replaces it."""
    greedy = pod("a", container(declared=written))
    got = only(greedy, policy(rule(step(), default=Gi), allowance=Allowance()), 60 * Gi)
    assert (got.verdict, got.declared, got.declared_by) == (Verdict.WITHIN, declared, MEMORY)
    assert [(each.source, each.counts) for each in got.misdeclarations] == [(f"{MEMORY} of container main", True)]
    assert declared <= (got.allowed or 0) <= LARGEST


@pytest.mark.parametrize(
    ("capacity", "declared"),
    [({}, 81 * Gi), ({MEMORY: "0"}, 81 * Gi), ({"cpu": "4"}, Gi)],
)
def test_a_resource_that_the_node_does_not_list_is_like_an_annotation(capacity: dict[str, str], declared: int) -> None:
    """Point 6: a pod that names its node itself bypasses the scheduler, and can write anything."""
    greedy = pod("a", container(declared="81Gi"))
    node = Node(name="n1", capacity=capacity)
    assert only(greedy, policy(rule(step(), default=Gi)), 1, node=node).declared == declared


def test_a_resource_that_the_node_lists_holds_beside_one_that_it_does_not() -> None:
    """Point 6: an unchecked resource takes nothing away from one that the scheduler has checked."""
    blocks = Declaration(resource="volcano.sh/gpu-mem.*", unit=128 * Mi)
    both = pod("a", container(resources={"volcano.sh/gpu-mem.a": "8", "volcano.sh/gpu-mem.b": "8000"}))
    node = Node(name="n1", capacity={"volcano.sh/gpu-mem.a": "100"})
    got = only(both, policy(rule(step(), default=Mi), declarations=(blocks,)), 1, node=node)
    assert (got.declared, len(got.misdeclarations)) == (Gi, 1)


@pytest.mark.parametrize("number", ["8", str(2**63 - 1)])
def test_more_whole_cards_than_there_are_do_not_exempt(number: str) -> None:
    """Points 4 and 6: a pod that bypasses the scheduler gets no cards by writing a number."""
    greedy = pod("a", container(resources={"nvidia.com/gpu": number}))
    under = policy(rule(step(), default=4 * Gi))
    unlisted = Node(name="n1", capacity={"cpu": "4"})
    assert only(greedy, under, 6 * Gi, node=unlisted).declared_by == "default"
    assert (
        only(greedy, under, 6 * Gi, node=Node(name="n1", capacity={"nvidia.com/gpu": "8"})).verdict is not Verdict.OVER
    )


@pytest.mark.parametrize("written", ["-1Gi", "much", "", "nan"])
def test_no_default_takes_the_place_of_a_resource_that_is_no_amount(written: str) -> None:
    """Point 6: the API server accepts none of these, so the intent is unknown: misdeclared, and left alone."""
    odd = pod("a", container(declared=written))
    got = only(odd, policy(rule(step(), default=Gi)), 60 * Gi)
    assert (got.verdict, len(got.misdeclarations)) == (Verdict.MISDECLARED, 1)


def test_a_total_may_fill_all_cards_and_an_amount_per_gpu_the_largest() -> None:
    """Point 6: a total is compared with the sum of the cards, an amount per GPU with the largest card."""
    cards = Cards(gpus=(gpu(0, 40 * Gi), gpu(1, 80 * Gi)))
    for declaration, written, holds in [
        (TOTAL_NOTE, "120Gi", True),
        (TOTAL_NOTE, "121Gi", False),
        (replace(TOTAL_NOTE, per="gpu"), "80Gi", True),
        (replace(TOTAL_NOTE, per="gpu"), "81Gi", False),
    ]:
        noted = pod("a", annotations={"vram": written})
        declared = declare(noted, policy(declarations=(declaration,)), NODE, cards)
        assert ("" in declared.amounts) is holds, (declaration.per, written)


HIDDEN: list[tuple[dict[str, object], Node]] = [
    ({"gpus": (gpu(0, 40 * Gi), gpu(1, 40 * Gi, up=False))}, NODE),
    ({"unseen": frozenset({"GPU at index 1"})}, NODE),
    ({"missing": frozenset({"GPU at index 1"})}, NODE),
    ({"blind": True}, NODE),
    ({}, Node(name="n1", known=False, awaited=True)),
    ({}, Node(name="n1", labels={"nvidia.com/gpu.count": "2"})),
    ({}, Node(name="n1", capacity={"nvidia.com/gpu": "2", MEMORY: "60Gi"})),
    (
        {},
        Node(name="n1", labels={"nvidia.com/gpu.replicas": "4"}, capacity={"nvidia.com/gpu.shared": "8", MEMORY: "1"}),
    ),
]
IDS = ["down", "unnamed", "lost before the start", "blind", "node not read", "count", "capacity", "shares"]


@pytest.mark.parametrize(("hidden", "node"), HIDDEN, ids=IDS)
def test_a_card_that_is_not_seen_makes_nothing_implausible(hidden: dict[str, object], node: Node) -> None:
    """Point 6: with a lost card 100Gi may be right: a resource counts, an annotation is undetermined."""
    seen = replace(snapshot([use(5, 30 * Gi)], gpus=[gpu(0, 40 * Gi)]), **hidden)  # type: ignore[arg-type]
    (got,) = assessed(seen, [pod("a", container(declared="100Gi"))], policy(rule(step(), default=4 * Gi)), node)
    assert (got.declared, got.misdeclarations) == (100 * Gi, ())
    under = policy(rule(step(), default=4 * Gi), declarations=(TOTAL_NOTE,))
    (got,) = assessed(seen, [pod("a", annotations={"vram": "100Gi"})], under, node)
    assert (got.verdict, got.declared, got.misdeclarations) == (Verdict.UNKNOWN, None, ())
    (got,) = assessed(seen, [pod("a", annotations={"vram": "20Gi"})], under, node)
    assert got.declared == 20 * Gi
    (got,) = assessed(seen, [pod("a", annotations={"vram": "-1"})], under, node)
    assert got.declared_by == "default"


@pytest.mark.parametrize(
    "node",
    [
        Node(name="n1", capacity={"nvidia.com/gpu": "1"}),
        Node(name="n1", labels={"nvidia.com/gpu.count": "1"}, capacity={"nvidia.com/gpu": "10"}),
        Node(name="n1", labels={"nvidia.com/gpu.replicas": "4"}, capacity={"nvidia.com/gpu.shared": "4"}),
        Node(name="n1", known=False),
    ],
    ids=["capacity", "a plugin that splits cards", "shares", "no source"],
)
def test_where_every_card_is_seen_too_much_is_too_much(node: Node) -> None:
    """Point 6: what the node itself counts is not taken for more cards than there are."""
    under = policy(rule(step(), default=4 * Gi), declarations=(TOTAL_NOTE,))
    (got,) = assessed(snapshot([use(5, 30 * Gi)]), [pod("a", annotations={"vram": "100Gi"})], under, node)
    assert got.declared_by == "default"


def test_a_skipped_annotation_takes_nothing_away_from_what_is_left() -> None:
    """Point 6: an impossible annotation does not exempt a tenant if another declaration is valid."""
    noted = Declaration(annotation="{container}.vram", unit=1)
    half = pod("a", container("main", "1Gi"), container("n"), annotations={"n.vram": "900Gi"})
    got = only(half, policy(rule(step(), default=Mi), declarations=(noted, VERIFF)), 50 * Gi)
    assert (got.verdict, got.declared, len(got.misdeclarations)) == (Verdict.OVER, Gi, 1)


def test_a_default_is_one_total_in_container_accounts_too() -> None:
    """Point 7: the default is a total, even beside a container that declares an amount per GPU."""
    mixed = pod("a", container("m", resources={"nvidia.com/gpumem": "1024"}), container("n"))
    seen = snapshot([use(1, 1, 0), use(2, 3 * Gi, 0), use(2, 3 * Gi, 1)], _of("m", "n"), gpus=[gpu(0), gpu(1)])
    under = policy(rule(step(), account="container", default=4 * Gi), declarations=(HAMI,))
    got = {(a.account.container, a.account.gpu): a.verdict for a in assessed(seen, [mixed], under)}
    assert got == {("m", "GPU-0"): Verdict.WITHIN, ("n", None): Verdict.OVER}


def _of(*names: str) -> list[Process]:
    """A process in each of these containers, PIDs counting from 1."""
    return [process(pid, f"a/{name}") for pid, name in enumerate(names, 1)]


def test_the_default_is_for_a_pod_of_which_no_container_declares() -> None:
    """Point 7: in a pod account the default applies only if no container declares."""
    under = policy(rule(step(), default=4 * Gi))
    assert only(pod("a", container("m"), container("n")), under, 1).declared == 4 * Gi
    assert only(pod("a", container("m", "1Gi"), container("n")), under, 1).declared == 1 * Gi


def test_in_container_accounts_the_default_is_for_each_that_declares_nothing() -> None:
    """Point 7: each container account without a declaration has its own default."""
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
    """Point 7: without a declaration or default it is `undeclared`, however much is used."""
    assert only(pod("a"), policy(), 80 * Gi).verdict is Verdict.UNDECLARED


def test_unless_and_node_labels_switch_a_source_off() -> None:
    """A declaration with `unless` or `node_labels` applies only if its condition is met."""
    tencent = Declaration(resource="t/mem", unit=256 * Mi, unless=Unless(resource="t/core", at_least=100))
    limited = pod("a", container(resources={"t/mem": "4", "t/core": "50"}))
    assert only(limited, policy(declarations=(tencent,)), 1).declared == Gi
    only_there = policy(declarations=(replace(VERIFF, node_labels={"zone": "b*"}),))
    declaring = pod("a", container(declared="1Gi"))
    assert only(declaring, only_there, 1, node=Node(name="n", labels={"zone": "b2"})).declared == Gi
    assert only(declaring, only_there, 1, node=Node(name="n", labels={"zone": "c"})).declared is None
    anywhere = policy(declarations=(replace(VERIFF, node_labels={"zone": "*"}),))
    assert only(declaring, anywhere, 1, node=Node(name="n")).declared is None


def test_a_pods_one_number_is_not_split_among_containers() -> None:
    """In container accounts an annotation of the pod counts only if the pod has one container."""
    under = policy(rule(step(), account="container", default=Mi), declarations=(TOTAL_NOTE,))
    alone = pod("a", container("main"), annotations={"vram": "4Gi"})
    assert only(alone, under, Gi).declared == 4 * Gi
    two = pod("a", container("main"), container("side"), annotations={"vram": "4Gi"})
    assert only(two, under, Gi).verdict is Verdict.MISDECLARED
