"""Declarations in parts of cards: percent, fraction, share and MIG instances; and whole cards."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.declaring import TENCENT, accounts, asking, noted, only, under
from tests.worlds import MEMORY, VERIFF, Gi, Mi, assessed, container, gpu, pod, process, snapshot, use
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import Gpu, Node, Pod
from watchdog.core.policy import Allowance, Declaration

PERCENT = Declaration(resource="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
RATIO = Declaration(resource="koordinator.sh/gpu-memory-ratio", unit="percent")
FRACTION = Declaration(annotation="gpu-fraction", unit="fraction", per="gpu")
SHARES = Declaration(resource="nvidia.com/gpu", unit="share", shares="label:nvidia.com/gpu.replicas")
METAGPU = Declaration(resource="cnvrg.io/metagpu", unit="share", shares=100)
MIG = Declaration(resource="nvidia.com/mig-*", unit="mig")
NO_TABLE = replace(MIG, resource="example.com/none")
NOTED_PERCENT, NOTED_RATIO, NOTED_SHARES = (
    replace(each, resource=None, annotation=each.resource) for each in (PERCENT, RATIO, METAGPU)
)
RENAMED = replace(SHARES, resource="nvidia.com/gpu.shared")
ZONED = replace(VERIFF, node_labels={"zone": "a"})
CARDS = (gpu(0, 40 * Gi), gpu(1, 80 * Gi))
TEN = "nvidia.com/mig-1g.10gb"
NO_SIZE = gpu(0, total=None)  # type: ignore[arg-type]  # a unified chip has no memory of its own


def mig(number: int, profile: str | None, total: int | None = 10 * Gi) -> Gpu:
    """A MIG instance."""
    return gpu(number, total, parent="GPU-p", gi=number, ci=0, profile=profile)  # type: ignore[arg-type]


def seen(
    declaration: Declaration,
    written: dict[str, str] | str,
    cards: tuple[Gpu, ...] = CARDS,
    on: tuple[int, ...] = (0,),
    labels: dict[str, str] | None = None,
    **more: object,
) -> list[Assessment]:
    """The accounts of a pod that writes this under the key of a declaration and uses a byte on each of these cards."""
    written = {declaration.key: written} if isinstance(written, str) else written
    tenant = asking(written) if declaration.kind == "resource" else pod("a", annotations=written)
    found = snapshot([use(10 + number, 1, number) for number in on], gpus=cards)
    return list(assessed(found, [tenant], under(declaration, **more), Node(name="n1", labels=labels or {})))  # type: ignore[arg-type]


MIXED = (mig(0, "1g.10gb"), gpu(1, 80 * Gi))
TWO_SIZES = (mig(0, "1g.10gb"), mig(1, "3g.40gb", 40 * Gi))
PLUS = (mig(0, "1g.10gb+me", 9 * Gi), mig(1, "1g.10gb", 8 * Gi))
BOTH = {TEN: "1", "nvidia.com/mig-3g.40gb": "1"}


@pytest.mark.parametrize(
    ("declaration", "written", "cards", "on", "declared"),
    [
        # A percentage or share in total is of the cards in use; those not in use yet count as the smallest of the node.
        (RATIO, "200", CARDS, (0, 1), 120 * Gi),
        (RATIO, "200", CARDS, (1,), 120 * Gi),
        (RATIO, "200", CARDS, (0,), 80 * Gi),
        (RATIO, "50", CARDS, (1,), 40 * Gi),
        (RATIO, "50", CARDS, (), 20 * Gi),
        (RATIO, "50", CARDS, (0, 1), 30 * Gi),
        # Fractions are exact, and fractions of a byte are rounded up, in the tenant's favour.
        (FRACTION, "0.1", (gpu(0, 30 * Gi),), (0,), 3 * Gi),
        (FRACTION, "0.1", (gpu(0, 31),), (0,), 4),
        (FRACTION, "0.7", (gpu(0, 10),), (0,), 7),
        # Point 5: the size of a card is its total without what the driver reserves.
        (METAGPU, "50", (gpu(0, 80 * Gi, reserved=Gi),), (0,), 79 * Gi // 2),
        # If a node has a whole card and instances, what is not used yet is of the card.
        (METAGPU, "50", MIXED, (), 40 * Gi),
        (METAGPU, {"nvidia.com/gpu": "1"}, MIXED, (), 80 * Gi),
        (METAGPU, {"nvidia.com/gpu": "1"}, MIXED[:1], (), 10 * Gi),
        # 1g.10gb and 1g.10gb+me are two resources, and may differ in size.
        (MIG, {TEN: "1"}, PLUS, (), 8 * Gi),
        (MIG, {f"{TEN}.me": "1"}, PLUS, (), 9 * Gi),
        # A container may request instances of two profiles, with or without a table for them.
        (MIG, BOTH, TWO_SIZES, (0, 1), 50 * Gi),
        (NO_TABLE, BOTH, TWO_SIZES, (0,), 50 * Gi),
        # One that uses another instance than it requested has not declared that, unless its profile is not reported.
        (MIG, {TEN: "1"}, TWO_SIZES, (1,), 10 * Gi),
        (MIG, {TEN: "1"}, (TWO_SIZES[0], mig(1, None, 40 * Gi)), (1,), 40 * Gi),
        # One with an instance and a whole card that uses only the instance is still allowed the card.
        (NO_TABLE, {TEN: "1", "nvidia.com/gpu": "1"}, MIXED, (0,), 90 * Gi),
    ],
)
def test_a_part_is_of_the_cards_or_instances_that_are_used(
    declaration: Declaration, written: dict[str, str] | str, cards: tuple[Gpu, ...], on: tuple[int, ...], declared: int
) -> None:
    """Points 4 and 5: parts in total are of the cards in use, then of the smallest; an instance has its own size."""
    (account,) = seen(declaration, written, cards, on)
    assert account.declared == declared


@pytest.mark.parametrize(
    ("declaration", "written", "cards", "labels", "declared"),
    [
        (PERCENT, "25", CARDS, {}, [10, 20]),
        # A resource is not its own count: a share of it is that share of each GPU, on however many it runs.
        (replace(SHARES, per="gpu"), "1", CARDS, {"nvidia.com/gpu.replicas": "4"}, [10, 20]),
        (replace(MIG, per="gpu"), {TEN: "2"}, tuple(mig(number, "1g.10gb") for number in range(3)), {}, [10, 10, 0]),
    ],
)
def test_a_part_of_each_gpu_is_of_that_gpu(
    declaration: Declaration,
    written: dict[str, str] | str,
    cards: tuple[Gpu, ...],
    labels: dict[str, str],
    declared: list[int],
) -> None:
    """Point 3: with `per = "gpu"` each card or instance has an account of its own."""
    found = seen(declaration, written, cards, tuple(range(len(cards))), labels)
    assert [(each.account.gpu, each.declared) for each in found] == [
        (f"GPU-{number}", size * Gi) for number, size in enumerate(declared)
    ]


@pytest.mark.parametrize(
    ("declaration", "written", "why"),
    [
        (NOTED_PERCENT, "101", "101% of a card is more than a whole card; is the unit right?"),
        (PERCENT, "-1", "it is negative"),
        (PERCENT, "half", "'half' is not a quantity"),
        (NOTED_RATIO, "201", "201% of a card is more than all 2 cards together"),
        (FRACTION, "1.5", "150% of a card is more than a whole card"),
        (NOTED_SHARES, "201", "201% of a card is more than all 2 cards together"),
        (replace(NOTED_SHARES, per="gpu"), "101", "101% of a card is more than a whole card"),
        (replace(MIG, resource="nvidia.com/mig-1g.5gb"), "1.5", "it is not a whole number of MIG instances"),
        (replace(MIG, resource="nvidia.com/mig-1g.5gb"), "-1", "it is negative"),
    ],
)
def test_an_impossible_part_is_skipped_and_reported(declaration: Declaration, written: str, why: str) -> None:
    """Point 6: per GPU above a card, a total above all cards, negative, unparsable; the next source applies, if any."""
    (account,) = seen(declaration, written)
    assert account.verdict is Verdict.MISDECLARED
    assert [skipped.why[: len(why)] for skipped in account.misdeclarations] == [why]
    if declaration.kind == "annotation":
        both = asking({MEMORY: "1Gi"}, annotations={declaration.key: written})
        assert only(both, under(declaration, VERIFF), 0, 1, cards=CARDS).declared == Gi


@pytest.mark.parametrize(
    ("declaration", "written", "declared"),
    [(PERCENT, "150", 60 * Gi), (RATIO, "900", 360 * Gi), (METAGPU, "900", 360 * Gi)],
)
def test_a_part_that_the_scheduler_has_checked_counts_as_written(
    declaration: Declaration, written: str, declared: int
) -> None:
    """Point 6: more cards than there are get a remark, and no smaller number replaces them."""
    (account,) = seen(declaration, written, (gpu(0, 40 * Gi), gpu(1, 40 * Gi)))
    assert (account.declared, [each.counts for each in account.misdeclarations]) == (declared, [True])


LOST = (CARDS[0], gpu(1, 80 * Gi, up=False, listed=False))
ALIKE = (CARDS[0], gpu(1, 40 * Gi, up=False, listed=False))
HALF = asking({METAGPU.key: "50"})
HIDDEN: dict[str, object] = {"unseen": frozenset({"GPU at index 1"})}


@pytest.mark.parametrize(
    ("tenant", "declaration", "more", "verdict", "declared"),
    [
        # With a hidden card 900% may be right, but its bytes are unknown; 101% of each card never is.
        (asking({RATIO.key: "900"}), RATIO, HIDDEN, Verdict.UNKNOWN, None),
        (pod("a", annotations={RATIO.key: "900"}), NOTED_RATIO, HIDDEN, Verdict.UNKNOWN, None),
        (pod("a", annotations={PERCENT.key: "101"}), NOTED_PERCENT, HIDDEN, Verdict.UNKNOWN, Mi),
        # If a card has dropped out and the cards differ in size, the size of a part is unknown.
        (HALF, METAGPU, {"cards": LOST}, Verdict.UNKNOWN, None),
        (HALF, METAGPU, {"cards": ALIKE}, Verdict.WITHIN, 20 * Gi),
        (HALF, METAGPU, {"cards": LOST[:1], "missing": frozenset({"GPU at index 1"})}, Verdict.UNKNOWN, None),
        (asking({"nvidia.com/gpu": "2"}), METAGPU, {"cards": LOST}, Verdict.UNKNOWN, None),
        (asking({"nvidia.com/gpu": "1"}), METAGPU, {"cards": LOST}, Verdict.WITHIN, 40 * Gi),
        # And so it is of a card whose size NVML does not report, or a profile that the node does not have.
        (asking({RATIO.key: "50"}), RATIO, {"cards": (NO_SIZE,)}, Verdict.UNKNOWN, None),
        (asking({PERCENT.key: "50"}), PERCENT, {"cards": (NO_SIZE,)}, Verdict.UNKNOWN, None),
        (HALF, METAGPU, {"cards": (NO_SIZE,)}, Verdict.UNKNOWN, None),
        (asking({TEN: "1"}), MIG, {"cards": (mig(0, "7g.80gb"),)}, Verdict.UNKNOWN, None),
        (asking({TEN: "1"}), MIG, {"cards": (mig(0, "1g.10gb", None),)}, Verdict.UNKNOWN, None),
    ],
)
def test_a_part_of_a_card_that_is_not_seen_is_unknown(
    tenant: Pod, declaration: Declaration, more: dict[str, object], verdict: Verdict, declared: int | None
) -> None:
    """Points 5 and 6: no default, and no smaller number, takes the place of an amount that can't be determined."""
    account = only(tenant, under(declaration, default=Mi), **more)
    assert (account.verdict, account.declared) == (verdict, declared)
    assert (account.declared_by == "default") is (declared == Mi)


def test_a_part_of_cards_not_used_yet_is_unknown_where_they_differ_and_one_is_lost() -> None:
    """Points 5 and 6: as it is of those that are used; one of two used cards without a size is enough, too."""
    assert [seen(METAGPU, "50", cards, ())[0].declared for cards in (LOST, ALIKE)] == [None, 20 * Gi]
    (account,) = seen(RATIO, "50", (CARDS[0], replace(NO_SIZE, uuid="GPU-1", index=1)), (0, 1))
    assert account.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("unknown_on", "declared"), [(0, 40 * Gi), (1, None)])
def test_use_of_unknown_size_does_not_decide_of_which_card_a_part_is(unknown_on: int, declared: int | None) -> None:
    """Point 6: the driver may list a PID that another process has by now; its smaller card does not count."""
    uses = snapshot([use(1, 45 * Gi, 0), use(2, None, unknown_on)], gpus=(gpu(1, 40 * Gi), gpu(0, 80 * Gi)))
    (account,) = assessed(uses, [HALF], under(METAGPU))
    assert (account.verdict, account.declared) == (Verdict.UNKNOWN if declared is None else Verdict.OVER, declared)


REPLICAS, STRATEGY = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({REPLICAS: "4"}, 10 * Gi),
        ({REPLICAS: "4", STRATEGY: "mps"}, 10 * Gi),
        ({REPLICAS: "1", STRATEGY: "time-slicing"}, 40 * Gi),
        ({REPLICAS: "1", STRATEGY: "none"}, 40 * Gi),
        *(({REPLICAS: text}, 40 * Gi) for text in ("1", "0", "-4", "four", "²")),
        ({}, 40 * Gi),
    ],
)
def test_replicas_of_a_node_cut_its_cards(labels: dict[str, str], expected: int) -> None:
    """Point 5: it is a share if the node's labels say into how many; otherwise it is a whole card."""
    (account,) = seen(SHARES, "1", labels=labels)
    assert account.declared == expected


SHARING = asking({RENAMED.key: "1", MEMORY: "8Gi"}, annotations={"vram": "1Gi"})
ZONED_NOTE = Declaration(annotation="vram", unit=1, node_labels={"zone": "a"})
DARK = Node(name="n1", known=False)


@pytest.mark.parametrize(
    ("tenant", "declarations", "node", "expected"),
    [
        # Labels that disappear, or say that nothing is shared, never make a share another number.
        *(
            (SHARING, tables, Node(name="n1", labels=labels), (Verdict.UNKNOWN, None, RENAMED.key))
            for tables in ((RENAMED,), (RENAMED, VERIFF), (SHARES, RENAMED))
            for labels in ({}, {REPLICAS: "0"}, {REPLICAS: "1"})
        ),
        # An undetermined share changes nothing for a pod that declares by an earlier table, or asks for none.
        (SHARING, (VERIFF, RENAMED), Node(name="n1"), (Verdict.OVER, 8 * Gi, MEMORY)),
        (asking({RENAMED.key: "0"}), (RENAMED,), Node(name="n1"), (Verdict.OVER, Mi, "default")),
        # The labels a table requires may have disappeared; if another table names the resource, that counts.
        (SHARING, (ZONED,), Node(name="n1"), (Verdict.UNKNOWN, None, MEMORY)),
        (SHARING, (ZONED, VERIFF), Node(name="n1"), (Verdict.OVER, 8 * Gi, MEMORY)),
        (SHARING, (ZONED,), Node(name="n1", capacity={"cpu": "1"}), (Verdict.OVER, Mi, "default")),
        # Without the Node object the size of a share is unknown, and so is which tables count.
        (SHARING, (RENAMED, VERIFF), DARK, (Verdict.UNKNOWN, None, RENAMED.key)),
        (SHARING, (ZONED,), DARK, (Verdict.UNKNOWN, None, MEMORY)),
        (SHARING, (ZONED_NOTE, VERIFF), DARK, (Verdict.UNKNOWN, None, "vram")),
        (SHARING, (SHARES, VERIFF), DARK, (Verdict.OVER, 8 * Gi, MEMORY)),
        (asking({"nvidia.com/gpu": "1"}), (SHARES,), DARK, (Verdict.WITHIN, 80 * Gi, "nvidia.com/gpu")),
    ],
)
def test_without_labels_for_it_the_size_of_a_share_is_unknown(
    tenant: Pod, declarations: tuple[Declaration, ...], node: Node, expected: tuple[Verdict, int | None, str]
) -> None:
    """Points 1, 5 and 6: left alone, and no harsher number replaces it."""
    got = only(tenant, under(*declarations, default=Mi), 70 * Gi, node=node)
    assert (got.verdict, got.declared, got.declared_by, got.misdeclarations) == (*expected, ())


def test_shares_that_are_written_are_asked_for() -> None:
    """A resource of 0 requests no share; it does not promise to use nothing."""
    assert seen(METAGPU, "0")[0].verdict is Verdict.UNDECLARED


def test_a_share_has_no_allowance_of_itself() -> None:
    """Point 12: shares get no allowance from the policy, only their own."""
    common = Allowance(per_context=Gi, max_contexts=4, percent=Fraction(1, 10))
    none, own = (
        replace(METAGPU, allowance=Allowance(per_context=0, max_contexts=0, percent=percent))
        for percent in (Fraction(0), Fraction(1, 2))
    )
    allowed = [seen(each, "10", allowance=common)[0].allowed for each in (none, own, RATIO)]
    assert allowed == [4 * Gi, 6 * Gi, 4 * Gi + 4 * Gi // 10 + Gi]


def test_keys_that_match_a_wildcard_are_added() -> None:
    """`*` in a key matches any characters, and the numbers of all matching keys are added."""
    blocks = Declaration(resource="volcano.sh/gpu-mem.*", unit=128 * Mi)
    (account,) = seen(blocks, {"volcano.sh/gpu-mem.128Mi": "8", "volcano.sh/gpu-mem.x": "8", "volcano.sh/gpu": "9"})
    assert (account.declared, account.declared_by) == (2 * Gi, "volcano.sh/gpu-mem.128Mi, volcano.sh/gpu-mem.x")


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        (TEN, "1g.10gb"),
        (f"{TEN}.me", "1g.10gb+me"),
        (f"{TEN}.me.all", "1g.10gb+me.all"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/mig-1c.3g.40gb", "1c.3g.40gb"),
        (f"{TEN}.me", "1g.10gb"),
    ],
)
def test_a_profile_is_found_however_it_is_written(resource: str, profile: str) -> None:
    """The device plugin writes a dot for NVML's plus; if NVML gives no name, the extension is unknown."""
    rows = (mig(0, "7g.80gb", 80 * Gi), mig(1, profile, 9 * Gi))
    assert [seen(MIG, {resource: "1"}, rows, on)[0].declared for on in ((1,), ())] == [9 * Gi, 9 * Gi]


@pytest.mark.parametrize(
    ("resource", "labels"),
    [(f"{TEN}.shared", {}), (TEN, {f"{TEN}.replicas": "2"}), (TEN, {f"{TEN}.sharing-strategy": "time-slicing"})],
)
def test_an_instance_that_is_cut_is_not_whole(resource: str, labels: dict[str, str]) -> None:
    """A MIG instance under time-slicing is a share: neither the unit `mig` nor the whole instance is meant by it."""
    (account,) = seen(MIG, {resource: "1"}, MIXED[:1], labels=labels)
    assert (account.verdict, account.declared_by) == (Verdict.UNKNOWN, resource)
    half = Declaration(resource=resource, unit="share", shares=2)
    (account,) = seen(half, "1", (MIXED[0], mig(1, "1g.5gb", 4 * Gi)), (), labels)
    assert account.declared == 5 * Gi


def test_instances_go_with_amounts_for_each_gpu() -> None:
    """A container with MIG instances and one with an amount per GPU do not contradict each other."""
    hami = Declaration(resource="gpumem", unit=Mi, per="gpu")
    both = pod("a", container("m", resources={TEN: "1"}), container("n", resources={"gpumem": "1024"}))
    (account,) = assessed(snapshot([use(1, 1)], [process(1, "a/m")], gpus=MIXED[:1]), [both], under(MIG, hami))
    assert account.declared == 11 * Gi


@pytest.mark.parametrize(
    ("resources", "declared", "by"),
    [
        ({"t/mem": "4", "t/core": "99"}, Gi, "t/mem"),
        ({"t/mem": "4", "t/core": "100"}, 80 * Gi, "t/core"),
        ({"t/mem": "4", "t/core": "250"}, 120 * Gi, "t/core"),
        ({"t/core": "100"}, 80 * Gi, "t/core"),
        ({"t/mem": "4", "t/core": "-100"}, Gi, "t/mem"),
    ],
)
def test_enough_of_another_resource_means_whole_cards(resources: dict[str, str], declared: int, by: str) -> None:
    """200 of `tencent.com/vcuda-core` are two whole cards, without a memory limit or the default."""
    (account,) = seen(TENCENT, resources, on=(1,), default=Mi)
    assert (account.declared, account.declared_by, account.verdict) == (declared, by, Verdict.WITHIN)


@pytest.mark.parametrize(
    ("resources", "devices", "declared_on"),
    [
        ({"volcano.sh/vgpu-number": "1"}, None, [0, 40]),
        ({}, "1", [0, 40]),
        ({}, "2", [20, 40]),
        ({}, "none", [20, 40]),
        ({"nvidia.com/gpu": "1"}, "2", [0, 40]),
    ],
)
def test_a_count_limits_on_how_many_gpus_an_amount_for_each_holds(
    resources: dict[str, str], devices: str | None, declared_on: list[int]
) -> None:
    """Point 3: on the n that are used most, and 0 on the others; of an annotation, its own system's count."""
    count = {} if devices is None else {"gpu-fraction-num-devices": devices}
    half = asking(resources, annotations={"gpu-fraction": "0.5", **count})
    found = accounts(half, under(FRACTION), 1, 2, cards=CARDS)
    assert [each.declared for each in found] == [size * Gi for size in declared_on]


def test_what_kai_rounds_up_is_covered_by_the_allowance() -> None:
    """KAI turns 4096 of a T4's 15360 MiB into 0.27, which is 4147 MiB: within the usual 2%."""
    kai = Declaration(annotation="gpu-memory", unit=Mi, per="gpu")
    rounded = 27 * 15360 * Mi // 100
    assert rounded // Mi == 4147
    for percent, verdict in ((Fraction(2, 100), Verdict.WITHIN), (Fraction(0), Verdict.OVER)):
        own = replace(kai, allowance=Allowance(per_context=0, max_contexts=0, percent=percent))
        tenant = noted(gpu_memory="4096")
        assert only(tenant, under(own), rounded, cards=(gpu(0, 15360 * Mi),)).verdict is verdict
