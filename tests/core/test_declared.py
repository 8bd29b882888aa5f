"""What a pod declares, by whichever key."""

from dataclasses import replace

import pytest

from tests.core.declaring import HAMI, NOTE, TENCENT, accounts, asking, noted, only, under
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
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Verdict
from watchdog.core.model import Container, ContainerKind, Node, Pod
from watchdog.core.policy import Allowance, Declaration, Policy
from watchdog.core.units import LARGEST

KUBESHARE = Declaration(label="sharedgpu/gpu_mem", unit=1)
BY_CONTAINER = Declaration(annotation="{container}.vram", unit=1)
THERE = replace(VERIFF, node_labels={"zone": "b*"})
TWO = (container("main"), container("side"))
NOTED = pod("a", container(declared="1Gi"), annotations={"vram": "4Gi"})
LIMITED = asking({"t/mem": "4", "t/core": "50"})


def at(capacity: dict[str, str], labels: dict[str, str] | None = None) -> Node:
    """A node that lists this capacity, with labels."""
    return Node(name="n1", labels=labels or {}, capacity=capacity)


@pytest.mark.parametrize(
    ("tenant", "given", "declared", "by"),
    [
        (asking({MEMORY: "104Mi"}), under(VERIFF, HAMI), 104 * Mi, MEMORY),
        (asking({MEMORY: "109051904"}), under(VERIFF, HAMI), 104 * Mi, MEMORY),
        (asking({MEMORY: "1500m"}), under(VERIFF, HAMI), 2, MEMORY),
        (asking({HAMI.key: "3000"}), under(VERIFF, HAMI), 3000 * Mi, HAMI.key),
        (asking({HAMI.key: "3000", MEMORY: "1Gi"}), under(VERIFF, HAMI), Gi, MEMORY),
        (asking({"example.com/other": "1"}), under(VERIFF, HAMI), None, None),
        # Of a pod's annotation or label and its containers' resources the first counts, once, and never the sum.
        (pod("a", *TWO, annotations={"vram": "4Gi"}), under(NOTE), 4 * Gi, "vram"),
        (pod("a", *TWO, labels={KUBESHARE.key: str(Gi)}), under(KUBESHARE), Gi, KUBESHARE.key),
        (NOTED, under(NOTE, VERIFF), 4 * Gi, "vram"),
        (NOTED, under(VERIFF, NOTE), Gi, MEMORY),
        # The default is for a pod of which no container declares.
        (pod("a", *TWO), under(default=4 * Gi), 4 * Gi, "default"),
        (pod("a", container("m", "1Gi"), container("n")), under(default=4 * Gi), Gi, MEMORY),
        (LIMITED, under(TENCENT), Gi, "t/mem"),
    ],
)
def test_the_first_source_that_a_container_has_counts(
    tenant: Pod, given: Policy, declared: int | None, by: str | None
) -> None:
    """Points 1 and 7: sources are tried in the policy's order, whatever the order in the pod."""
    seen = only(tenant, given)
    assert (seen.declared, seen.declared_by) == (declared, by)


@pytest.mark.parametrize(("zone", "declared"), [({"zone": "b2"}, Gi), ({"zone": "c"}, None), ({}, None)])
def test_a_table_for_some_nodes_counts_on_those(zone: dict[str, str], declared: int | None) -> None:
    """A declaration with `node_labels` applies only if all of them match; `*` requires the label to exist."""
    tenant = asking({MEMORY: "1Gi"})
    assert only(tenant, under(THERE), node=at({}, zone)).declared == declared
    anywhere = replace(VERIFF, node_labels={"zone": "*"})
    assert only(tenant, under(anywhere), node=at({}, zone)).declared == (Gi if zone else None)


def _other(name: str, declared: str, kind: ContainerKind, *, running: bool = True) -> Container:
    return container(name, declared, kind=kind, running=running)


DONE, BUSY = (_other("i", "8Gi", ContainerKind.INIT, running=each) for each in (False, True))
FIRST, LAST = (_other(name, declared, ContainerKind.SIDECAR) for name, declared in (("s", "2Gi"), ("t", "4Gi")))
MAIN = container("m", "1Gi")


@pytest.mark.parametrize(
    ("containers", "declared"),
    [
        ([container("a1", "1Gi"), container("a2", "2Gi")], 3),
        ([DONE, MAIN], 1),
        ([BUSY, MAIN], 8),
        ([FIRST, MAIN], 3),
        ([FIRST, BUSY, LAST, MAIN], 10),
        ([FIRST, DONE, LAST, MAIN], 7),
        ([MAIN, container("e", kind=ContainerKind.EPHEMERAL)], 1),
    ],
    ids=["sum", "init over", "init runs", "sidecar", "init runs after one sidecar", "both sidecars", "ephemeral"],
)
def test_declared_is_the_sum_of_the_containers_that_count_now(containers: list[Container], declared: int) -> None:
    """Point 2: an init container's own and the sidecars before it while it runs, else main and sidecars: no maximum."""
    seen = snapshot([use(5, 1)], [process(5, f"a/{containers[-1].name}")])
    (got,) = assessed(seen, [pod("a", *containers)], under())
    assert (got.declared, got.behind) == (declared * Gi, False)


ONE_CARD = asking({HAMI.key: "8192", "nvidia.com/gpu": "1"})


@pytest.mark.parametrize(
    ("tenant", "uses", "declared"),
    [
        (asking({HAMI.key: "8192"}), (Gi, 3 * Gi), [8 * Gi, 8 * Gi]),
        (ONE_CARD, (Gi, 3 * Gi), [0, 8 * Gi]),
        (ONE_CARD, (6 * Gi, 3 * Gi), [8 * Gi, 0]),
        # Law 3: which card that is can't be known while the use on one of two is unknown.
        (ONE_CARD, (None, 3 * Gi), [None, None]),
    ],
)
def test_an_amount_per_gpu_holds_on_each_that_is_used_up_to_the_number_asked_for(
    tenant: Pod, uses: tuple[int | None, ...], declared: list[int | None]
) -> None:
    """Point 3: each GPU has an account; with `nvidia.com/gpu: n` the others than the n used most are allowed 0."""
    found = accounts(tenant, under(HAMI), *uses)
    assert [(each.account.gpu, each.declared) for each in found] == [*zip(("GPU-0", "GPU-1"), declared, strict=True)]
    assert [each.verdict is Verdict.UNKNOWN for each in found] == [each is None for each in declared]


@pytest.mark.parametrize(("tenant", "size"), [(ONE_CARD, 8), (asking({"nvidia.com/gpu": "1"}), 80)])
def test_use_of_unknown_size_on_the_only_card_moves_no_amount(tenant: Pod, size: int) -> None:
    """Law 3: if only one card is used, it is that one."""
    assert only(tenant, under(HAMI), None, cards=(gpu(0), gpu(1))).declared == size * Gi


def test_a_pod_with_a_total_and_a_per_gpu_declaration_is_misdeclared() -> None:
    """Point 3: a total and an amount per GPU can't be added, so a pod for which both were checked is left alone."""
    mixed = pod("a", container("m", "1Gi"), container("n", resources={HAMI.key: "1024"}))
    assert {each.verdict for each in accounts(mixed, under(VERIFF, HAMI), 70 * Gi)} == {Verdict.MISDECLARED}


PER_GPU = replace(NOTE, annotation="gpu.{container}", per="gpu")
ALSO = replace(NOTE, annotation="all.{container}")


@pytest.mark.parametrize(
    ("resources", "annotations", "tables", "declared", "skipped"),
    [
        ({MEMORY: "1Gi"}, {"gpu.n": "1Gi"}, (PER_GPU, VERIFF), Gi, ["gpu.n of container n"]),
        ({HAMI.key: "1024"}, {"all.n": "9Gi"}, (ALSO, HAMI), Gi, ["all.n of container n"]),
        ({}, {"all.m": "1Gi", "gpu.n": "9Gi"}, (ALSO, PER_GPU), Gi, ["gpu.n of container n"]),
        ({}, {"all.m": "1Gi", "gpu.n": "9Gi", "all.n": "2Gi"}, (PER_GPU, ALSO), 9 * Gi, ["all.m of container m"]),
        ({MEMORY: "1Gi"}, {"gpu.n": "1Gi", "all.n": "2Gi"}, (PER_GPU, ALSO, VERIFF), 3 * Gi, ["gpu.n of container n"]),
    ],
)
def test_what_a_tenant_writes_besides_lifts_no_limit(
    resources: dict[str, str],
    annotations: dict[str, str],
    tables: tuple[Declaration, ...],
    declared: int,
    skipped: list[str],
) -> None:
    """Point 6: of a total and an amount per GPU what was checked stays, otherwise what comes first in the policy."""
    mixed = pod("a", container("m", resources=resources), container("n"), annotations=annotations)
    (got,) = assessed(snapshot([use(1, 60 * Gi)], [process(1, "a/m")]), [mixed], under(*tables, default=0))
    assert (got.verdict, got.declared) == (Verdict.OVER, declared)
    assert [each.source for each in got.misdeclarations] == skipped


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
    seen = only(asking(resources), under(default=Gi), 79 * Gi, node=at({}, labels))
    assert (seen.verdict, seen.declared) == (verdict, declared)


def test_a_mig_resource_declares_the_instance() -> None:
    """Point 4: a MIG resource declares the instances that it names, by their own size."""
    rows = (gpu(0, 10 * Gi, parent="GPU-p", gi=7, ci=0, profile="1g.10gb"), gpu(1, 40 * Gi, profile="3g.40gb"))
    seen = only(asking({"nvidia.com/mig-1g.10gb": "1"}), under(default=Mi), 9 * Gi, cards=rows)
    assert (seen.declared, seen.declared_by, seen.verdict) == (10 * Gi, "nvidia.com/mig-1g.10gb", Verdict.WITHIN)


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "t/core"])
@pytest.mark.parametrize("number", ["1000000000", str(2**63 - 1), "999999999999999999999999"])
def test_a_huge_number_of_devices_costs_nothing(key: str, number: str) -> None:
    """A tenant writes the number, and a rejected pod stays listed: memory must not grow with it."""
    greedy = asking({key: number, "t/mem": "4"})
    assert only(greedy, under(TENCENT), Gi).verdict in (Verdict.WITHIN, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("core", "capacity", "declared"),
    [("100", "cpu", 80 * Gi), ("100000", "cpu", Gi), ("100000", "t/core", 80_000 * Gi)],
)
def test_more_whole_cards_than_there_are_count_only_if_they_were_checked(
    core: str, capacity: str, declared: int
) -> None:
    """Point 6: what makes a declaration give way is the tenant's word too, where the scheduler has not checked it."""
    greedy = asking({"t/core": core, "t/mem": "4"})
    (got,) = assessed(snapshot([use(5, 2)]), [greedy], under(TENCENT), node=at({capacity: "1"}))
    assert got.declared == declared


@pytest.mark.parametrize(
    ("per", "written", "holds"),
    [
        ("total", "120Gi", True),
        ("total", "121Gi", False),
        ("gpu", "80Gi", True),
        ("gpu", "81Gi", False),
        *(
            (per, text, False)
            for per in ("total", "gpu")
            for text in ("-1Gi", "much", "", "1e30", "1e99", "nan", "٣Gi")
        ),
        ("total", "9223372036854775808", False),
    ],
)
def test_an_annotation_that_cannot_be_true_is_skipped_and_reported(per: str, written: str, holds: bool) -> None:
    """Point 6: above the sum of the cards, per GPU above the largest, negative, unparsable, beyond any quantity.

    The next source applies instead, then `default`; if nothing is left, the pod is left alone.
    """
    cards = (gpu(0, 40 * Gi), gpu(1, 80 * Gi))
    table = replace(NOTE, per=per)  # type: ignore[arg-type]
    (alone,) = accounts(noted(vram=written), under(table), 0, 1, cards=cards)[-1:]
    assert (alone.verdict is not Verdict.MISDECLARED) is holds
    assert [each.source for each in alone.misdeclarations] == ([] if holds else ["vram of the pod"])
    if not holds:
        assert only(noted(vram=written), under(table, default=Gi), 0, 1, cards=cards).declared_by == "default"
        both = pod("a", container(resources={MEMORY: "1Gi"}), annotations={"vram": written})
        assert only(both, under(table, VERIFF), 0, 1, cards=cards).declared == Gi


def test_thousands_of_declarations_in_one_pod_stay_few_in_what_is_reported() -> None:
    """Law 10: what a tenant writes without end makes neither remarks, nor sources, nor accounts without end."""
    names = ["main", *(f"c{each}" for each in range(2_000))]
    wrong = pod("a", *map(container, names), annotations={f"{name}.vram": "900Pi" for name in names})
    (alone,) = accounts(wrong, under(BY_CONTAINER), Gi)
    assert (alone.verdict, len(alone.misdeclarations)) == (Verdict.MISDECLARED, 32)
    valid = replace(wrong, annotations={f"{name}.vram": "1" for name in names})
    (alone,) = accounts(valid, under(BY_CONTAINER), Gi)
    assert (alone.verdict, alone.declared, len(alone.declared_by or "")) == (Verdict.OVER, 2_001, 600)
    each = accounts(valid, replace(under(BY_CONTAINER), rules=(rule(step(), account="container"),)), Gi)
    assert (len(each), each[-1].account.container) == (101, "main")


def test_the_size_of_a_card_is_total_minus_reserved() -> None:
    """Point 5: what tenants can share of a card is its total without what the driver reserves.

    Compute instances of one GPU instance share its memory.
    """
    cards = (gpu(0, 80 * Gi, reserved=Gi),)
    assert only(noted(vram="79.5Gi"), under(NOTE), cards=cards).verdict is Verdict.MISDECLARED
    shared = tuple(gpu(number, 20 * Gi, parent="GPU-9", gi=1, ci=number) for number in range(2))
    assert only(noted(vram="21Gi"), under(NOTE), cards=shared).verdict is Verdict.MISDECLARED


@pytest.mark.parametrize(
    ("tenant", "declarations", "used", "expected"),
    [
        # What is left counts, whatever was skipped beside it: another container's declaration, or its whole card.
        (
            pod("a", container("main", "1Gi"), container("n"), annotations={"n.vram": "900Gi"}),
            (BY_CONTAINER, VERIFF),
            50 * Gi,
            (Verdict.OVER, Gi),
        ),
        (
            asking({"nvidia.com/gpu": "1"}, annotations={"main.vram": "8Pi"}),
            (BY_CONTAINER,),
            6 * Gi,
            (Verdict.WITHIN, 80 * Gi),
        ),
        # The API server accepts none of these resources, so the intent is unknown, and no default replaces it.
        *((asking({MEMORY: text}), (VERIFF,), 60 * Gi, (Verdict.MISDECLARED, None)) for text in ("-1Gi", "much", "")),
    ],
)
def test_what_is_skipped_takes_nothing_away(
    tenant: Pod, declarations: tuple[Declaration, ...], used: int, expected: tuple[Verdict, int | None]
) -> None:
    """Points 4 and 6: an impossible amount neither exempts its pod nor makes a default stricter than what is left."""
    got = only(tenant, under(*declarations, default=Mi), used)
    assert ((got.verdict, got.declared), len(got.misdeclarations)) == (expected, 1)


@pytest.mark.parametrize(
    ("written", "declared"),
    [("81Gi", 81 * Gi), ("8Pi", 8 * 2**50), ("9223372036854775807", LARGEST), ("1e30", LARGEST)],
)
def test_a_resource_that_the_scheduler_has_checked_is_a_declaration_whatever_its_size(
    written: str, declared: int
) -> None:
    """Point 6: a remark points out an implausible amount, and no smaller value ever replaces it."""
    got = only(asking({MEMORY: written}), under(default=Gi, allowance=Allowance()), 60 * Gi)
    assert (got.verdict, got.declared, got.declared_by) == (Verdict.WITHIN, declared, MEMORY)
    assert [(each.source, each.counts) for each in got.misdeclarations] == [(f"{MEMORY} of container main", True)]
    assert declared <= (got.allowed or 0) <= LARGEST


BLOCKS = Declaration(resource="volcano.sh/gpu-mem.*", unit=128 * Mi)


@pytest.mark.parametrize(
    ("resources", "capacity", "by"),
    [
        ({MEMORY: "81Gi"}, {}, MEMORY),
        ({MEMORY: "81Gi"}, {MEMORY: "0"}, MEMORY),
        ({MEMORY: "81Gi"}, {"cpu": "4"}, "default"),
        ({"nvidia.com/gpu": "8"}, {"cpu": "4"}, "default"),
        ({"nvidia.com/gpu": str(2**63 - 1)}, {"cpu": "4"}, "default"),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}, "nvidia.com/gpu"),
        # One that the node does not list takes nothing away from one that it does.
        ({"volcano.sh/gpu-mem.a": "8", "volcano.sh/gpu-mem.b": "8000"}, {"volcano.sh/gpu-mem.a": "9"}, BLOCKS.key),
    ],
)
def test_a_resource_that_the_node_does_not_list_is_like_an_annotation(
    resources: dict[str, str], capacity: dict[str, str], by: str
) -> None:
    """Points 4 and 6: a pod that names its node itself bypasses the scheduler, and can write anything."""
    got = only(asking(resources), under(VERIFF, BLOCKS, default=4 * Gi), 6 * Gi, node=at(capacity))
    assert (got.declared_by or "").startswith(by.partition("*")[0])
    if by == BLOCKS.key:
        assert (got.declared, len(got.misdeclarations)) == (Gi, 1)


HIDDEN: dict[str, tuple[dict[str, object], Node]] = {
    "down": ({"cards": (gpu(0, 40 * Gi), gpu(1, 40 * Gi, up=False))}, NODE),
    "unnamed": ({"unseen": frozenset({"GPU at index 1"})}, NODE),
    "lost before the start": ({"missing": frozenset({"GPU at index 1"})}, NODE),
    "blind": ({"blind": True}, NODE),
    "node not read": ({}, Node(name="n1", known=False, awaited=True)),
    "count": ({}, at({}, {"nvidia.com/gpu.count": "2"})),
    "capacity": ({}, at({"nvidia.com/gpu": "2", MEMORY: "60Gi"})),
    "shares": ({}, at({"nvidia.com/gpu.shared": "8", MEMORY: "1"}, {"nvidia.com/gpu.replicas": "4"})),
}


@pytest.mark.parametrize(("hidden", "node"), HIDDEN.values(), ids=HIDDEN)
def test_a_card_that_is_not_seen_makes_nothing_implausible(hidden: dict[str, object], node: Node) -> None:
    """Point 6: with a lost card 100Gi may be right: a resource counts, an annotation is undetermined."""
    seen = {"cards": (gpu(0, 40 * Gi),), "node": node} | hidden
    resource = only(asking({MEMORY: "100Gi"}), under(default=4 * Gi), 30 * Gi, **seen)
    assert (resource.declared, resource.misdeclarations) == (100 * Gi, ())
    for written, by, declared in (("100Gi", "vram", None), ("20Gi", "vram", 20 * Gi), ("-1", "default", 4 * Gi)):
        got = only(noted(vram=written), under(NOTE, default=4 * Gi), 30 * Gi, **seen)
        assert (got.declared_by, got.declared) == (by, declared)
        assert (got.verdict is Verdict.UNKNOWN, bool(got.misdeclarations)) == (declared is None, by == "default")


@pytest.mark.parametrize(
    "node",
    [
        at({"nvidia.com/gpu": "1"}),
        at({"nvidia.com/gpu": "10"}, {"nvidia.com/gpu.count": "1"}),
        at({"nvidia.com/gpu.shared": "4"}, {"nvidia.com/gpu.replicas": "4"}),
        Node(name="n1", known=False),
    ],
    ids=["capacity", "a plugin that splits cards", "shares", "no source"],
)
def test_where_every_card_is_seen_too_much_is_too_much(node: Node) -> None:
    """Point 6: what the node itself counts is not taken for more cards than there are."""
    assert only(noted(vram="100Gi"), under(NOTE, default=4 * Gi), 30 * Gi, node=node).declared_by == "default"


@pytest.mark.parametrize(("default", "declared"), [(0, 20 * Gi), (30 * Gi, 30 * Gi), (None, None)])
def test_in_an_init_phase_without_a_declaration_the_others_count(default: int | None, declared: int | None) -> None:
    """Point 7: the scheduler has reserved what the main containers declare, so it applies if the default is less."""
    loading = pod("a", container("load", kind=ContainerKind.INIT), container("main", "20Gi"))
    (got,) = assessed(snapshot([use(1, Gi)], [process(1, "a/load")]), [loading], under(VERIFF, default=default))
    assert got.declared == declared


def test_a_trifle_on_a_container_that_does_not_run_is_no_shield() -> None:
    """Point 7: what a finished init container or an ephemeral one declares does not lift the default of the others."""
    for kind in (ContainerKind.INIT, ContainerKind.EPHEMERAL):
        shielded = pod("a", container("other", "1", kind=kind, running=False), container("main"))
        for default in (0, 4 * Gi):
            (got,) = assessed(
                snapshot([use(1, 60 * Gi)], [process(1, "a/main")]), [shielded], under(VERIFF, default=default)
            )
            assert (got.verdict, got.declared) == (Verdict.OVER, max(default, 1))


def test_in_container_accounts_the_default_is_for_each_that_declares_nothing() -> None:
    """Point 7: each has a default of its own, as one total, even beside a container with an amount per GPU."""
    mixed = pod("a", container("m", resources={HAMI.key: "1024"}), container("n"))
    processes = [process(1, "a/m"), process(2, "a/n")]
    seen = snapshot([use(1, 1, 0), use(2, 3 * Gi, 0), use(2, 3 * Gi, 1)], processes, gpus=[gpu(0), gpu(1)])
    found = assessed(seen, [mixed], under(HAMI, account="container", default=4 * Gi))
    assert [(each.account.container, each.account.gpu, each.declared, each.verdict) for each in found] == [
        ("m", "GPU-0", Gi, Verdict.WITHIN),
        ("n", None, 4 * Gi, Verdict.OVER),
    ]


def test_a_default_of_zero_forbids_and_leaves_no_allowance() -> None:
    """Point 7: with `default = "0"` the first byte is too much; without a default nothing ever is."""
    seen = only(pod("a"), under(default=0, allowance=Allowance()))
    assert (seen.allowed, seen.verdict) == (0, Verdict.OVER)
    assert only(pod("a"), under(), 80 * Gi).verdict is Verdict.UNDECLARED


def test_a_pods_one_number_is_not_split_among_containers() -> None:
    """In container accounts an annotation of the pod counts only if the pod has one container."""
    by_container = under(NOTE, VERIFF, account="container", default=Mi)
    assert only(noted(vram="4Gi"), by_container, Gi).declared == 4 * Gi
    shared = pod("a", container("main"), container("side", "1Gi"), annotations={"vram": "4Gi"})
    seen = snapshot([use(1, 2 * Gi), use(2, 2 * Gi)], [process(1, "a/main"), process(2, "a/side")])
    found = assessed(seen, [shared], by_container)
    assert [(each.declared_by, each.verdict) for each in found] == [
        ("default", Verdict.OVER),
        (MEMORY, Verdict.OVER),
    ]
    assert [each.source for each in found[0].misdeclarations] == ["vram of the pod"]
    without = assessed(seen, [shared], under(NOTE, account="container"))
    assert {each.verdict for each in without} == {Verdict.MISDECLARED}
