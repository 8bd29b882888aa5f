"""Declarations in parts of cards: percent, fraction, share and MIG instances; and whole cards."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.worlds import (
    MEMORY,
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
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import Gpu, Node
from watchdog.core.policy import Allowance, Declaration, Unless

PERCENT = Declaration(resource="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
RATIO = Declaration(resource="koordinator.sh/gpu-memory-ratio", unit="percent")
FRACTION = Declaration(annotation="gpu-fraction", unit="fraction", per="gpu")
SHARES = Declaration(resource="nvidia.com/gpu", unit="share", shares="label:nvidia.com/gpu.replicas")
METAGPU = Declaration(resource="cnvrg.io/metagpu", unit="share", shares=100)
MIG = Declaration(resource="nvidia.com/mig-*", unit="mig")
NOTED_PERCENT = replace(PERCENT, resource=None, annotation=PERCENT.resource)
NOTED_RATIO = replace(RATIO, resource=None, annotation=RATIO.resource)
NOTED_SHARES = replace(METAGPU, resource=None, annotation=METAGPU.resource)
CARDS = (gpu(0, 40 * Gi), gpu(1, 80 * Gi))


def mig(number: int, profile: str | None, total: int = 10 * Gi) -> Gpu:
    """A MIG instance."""
    return gpu(number, total, parent="GPU-p", gi=number, ci=0, profile=profile)


def seen(
    declaration: Declaration,
    written: dict[str, str],
    *,
    cards: tuple[Gpu, ...] = CARDS,
    on: tuple[int, ...] = (0,),
    labels: dict[str, str] | None = None,
    **more: object,
) -> list[Assessment]:
    """The accounts of a pod with this declaration that uses a byte on each of these cards."""
    of_container = declaration.kind == "resource"
    written_by = pod("a", container(resources=written if of_container else {}))
    written_by = replace(written_by, annotations={} if of_container else written)
    uses = [use(10 + number, 1, number) for number in on]
    node = Node(name="n1", labels=labels or {})
    under = policy(declarations=(declaration,), **more)
    return list(assessed(snapshot(uses, gpus=cards), [written_by], under, node))


def declared(declaration: Declaration, written: dict[str, str], **more: object) -> int | None:
    """What the one account declares."""
    (account,) = seen(declaration, written, **more)  # type: ignore[arg-type]
    return account.declared


def test_a_percentage_for_each_gpu_is_of_that_gpu() -> None:
    """25% of a 40Gi card and of an 80Gi card are two amounts."""
    accounts = seen(PERCENT, {PERCENT.key: "25"}, on=(0, 1))
    assert [(each.account.gpu, each.declared) for each in accounts] == [("GPU-0", 10 * Gi), ("GPU-1", 20 * Gi)]


def test_a_percentage_in_total_is_of_the_cards_that_are_used() -> None:
    """200% are two cards; those not in use yet count as the smallest of the node."""
    ratio = {RATIO.key: "200"}
    assert declared(RATIO, ratio, on=(0, 1)) == 120 * Gi
    assert declared(RATIO, ratio, on=(1,)) == 120 * Gi
    assert declared(RATIO, ratio, on=(0,)) == 80 * Gi
    assert declared(RATIO, {RATIO.key: "50"}, on=(1,)) == 40 * Gi
    assert declared(RATIO, {RATIO.key: "50"}, on=()) == 20 * Gi
    assert declared(RATIO, {RATIO.key: "50"}, on=(0, 1)) == 30 * Gi


def test_a_fraction_is_exact() -> None:
    """A third of a card of 3 bytes is 1 byte, and fractions of a byte are rounded up, in the tenant's favour."""
    third = {"gpu-fraction": "0.1"}
    assert declared(FRACTION, third, cards=(gpu(0, 30 * Gi),)) == 3 * Gi
    assert declared(FRACTION, third, cards=(gpu(0, 31),)) == 4
    assert declared(FRACTION, {"gpu-fraction": "0.7"}, cards=(gpu(0, 10),)) == 7


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
def test_a_part_that_cannot_be_is_skipped_and_said(declaration: Declaration, written: str, why: str) -> None:
    """Point 6: per GPU above a card, a total above all cards, negative, unparsable; nothing is left, so left alone."""
    (account,) = seen(declaration, {declaration.key: written})
    assert account.verdict is Verdict.MISDECLARED
    assert [skipped.why[: len(why)] for skipped in account.misdeclarations] == [why]


@pytest.mark.parametrize(
    ("declaration", "written", "declared"),
    [(PERCENT, "150", 60 * Gi), (RATIO, "900", 320 * Gi), (METAGPU, "900", 320 * Gi)],
)
def test_a_part_that_the_scheduler_has_checked_counts_as_written(
    declaration: Declaration, written: str, declared: int
) -> None:
    """Point 6: more cards than there are get a remark, and no smaller number replaces them."""
    (account,) = seen(declaration, {declaration.key: written}, cards=(gpu(0, 40 * Gi), gpu(1, 40 * Gi)))
    got = account.declared if declaration is PERCENT else (account.declared or 0) - 40 * Gi
    assert (got, [each.counts for each in account.misdeclarations]) == (declared, [True])


def test_the_next_declaration_takes_the_place_of_an_implausible_part() -> None:
    """Point 6: after a skipped percentage the next source applies."""
    both = pod("a", container(resources={MEMORY: "1Gi"}), annotations={RATIO.key: "900"})
    (account,) = assessed(snapshot([use(1, 1)]), [both], policy(declarations=(NOTED_RATIO, VERIFF)))
    assert (account.declared, account.declared_by) == (Gi, MEMORY)


def test_a_hidden_card_makes_no_total_implausible() -> None:
    """Point 6: with a hidden card 900% may be right, but its bytes are unknown; 101% of each card never is."""
    dark = replace(snapshot([use(1, 1)]), unseen=frozenset({"GPU at index 1"}))
    for declaration, key in ((RATIO, "resources"), (NOTED_RATIO, "annotations")):
        nine = {RATIO.key: "900"}
        declaring = pod("a", container(resources=nine if key == "resources" else {}))
        declaring = replace(declaring, annotations=nine if key == "annotations" else {})
        (account,) = assessed(dark, [declaring], policy(rule(step(), default=Mi), declarations=(declaration,)))
        assert (account.verdict, account.declared) == (Verdict.UNKNOWN, None)
    noted = pod("a", annotations={PERCENT.key: "101"})
    (account,) = assessed(dark, [noted], policy(declarations=(NOTED_PERCENT,)))
    assert account.verdict is Verdict.MISDECLARED


def test_what_is_a_part_of_a_card_out_of_sight_is_unknown() -> None:
    """Points 5 and 6: if a card has dropped out and the cards differ in size, the size of a part is unknown."""
    half = {METAGPU.key: "50"}
    lost = (gpu(0, 40 * Gi), gpu(1, 80 * Gi, up=False, listed=False))
    alike = (gpu(0, 40 * Gi), gpu(1, 40 * Gi, up=False, listed=False))
    for on in ((0,), ()):
        (account,) = seen(METAGPU, half, cards=lost, on=on)
        assert (account.verdict, account.declared, account.declared_by) == (Verdict.UNKNOWN, None, METAGPU.key)
        assert declared(METAGPU, half, cards=alike, on=on) == 20 * Gi
    (account,) = seen(METAGPU, {"nvidia.com/gpu": "2"}, cards=lost)
    assert account.verdict is Verdict.UNKNOWN
    (account,) = seen(METAGPU, {"nvidia.com/gpu": "1"}, cards=lost)
    assert account.declared == 40 * Gi
    uses = snapshot([use(1, 30 * Gi)], gpus=lost[:1], missing=frozenset({"GPU at index 1"}))
    (account,) = assessed(uses, [pod("a", container(resources=half))], policy(declarations=(METAGPU,)))
    assert account.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("unknown_on", "declared"), [(0, 40 * Gi), (1, None)])
def test_a_use_of_unknown_size_says_nothing_of_the_card_that_a_part_is_of(
    unknown_on: int, declared: int | None
) -> None:
    """Point 6: the driver may list a PID that another process has by now; its smaller card does not count."""
    small, large = gpu(1, 40 * Gi), gpu(0, 80 * Gi)
    uses = snapshot([use(1, 45 * Gi, 0), use(2, None, unknown_on)], gpus=(small, large))
    (account,) = assessed(uses, [pod("a", container(resources={METAGPU.key: "50"}))], policy(declarations=(METAGPU,)))
    assert (account.verdict, account.declared) == (Verdict.UNKNOWN if declared is None else Verdict.OVER, declared)


def test_shares_are_of_the_size_that_tenants_can_share() -> None:
    """Point 5: card size is NVML's total minus reserved."""
    assert declared(METAGPU, {METAGPU.key: "50"}, cards=(gpu(0, 80 * Gi, reserved=Gi),)) == 79 * Gi // 2


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"nvidia.com/gpu.replicas": "4"}, 10 * Gi),
        ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}, 10 * Gi),
        ({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "time-slicing"}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "1"}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, 40 * Gi),
        ({}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "0"}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "-4"}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "four"}, 40 * Gi),
        ({"nvidia.com/gpu.replicas": "²"}, 40 * Gi),
    ],
)
def test_replicas_of_a_node_cut_its_cards(labels: dict[str, str], expected: int) -> None:
    """Point 5: it is a share if the node's labels say into how many; otherwise it is a whole card."""
    (account,) = seen(SHARES, {"nvidia.com/gpu": "1"}, labels=labels)
    assert account.declared == expected


@pytest.mark.parametrize(
    "labels",
    [{}, {"nvidia.com/gpu.replicas": "0"}, {"nvidia.com/gpu.replicas": "1"}],
)
def test_without_replicas_what_a_shared_resource_declares_is_unknown(labels: dict[str, str]) -> None:
    """Points 5 and 6: labels that disappear, or say that nothing is shared, never make a share the smaller default."""
    renamed = replace(SHARES, resource="nvidia.com/gpu.shared")
    for under in ((renamed,), (renamed, VERIFF), (SHARES, renamed)):
        for default in (None, Mi):
            sharing = pod("a", container(resources={"nvidia.com/gpu.shared": "1", MEMORY: "1Mi"}))
            node = Node(name="n1", labels=labels)
            (got,) = assessed(
                snapshot([use(1, 9 * Gi)]),
                [sharing],
                policy(rule(step(), default=default), declarations=under),
                node,
            )
            assert (got.verdict, got.declared_by, got.misdeclarations) == (
                Verdict.UNKNOWN,
                "nvidia.com/gpu.shared",
                (),
            )


def test_what_comes_first_counts_whatever_comes_after_it() -> None:
    """Points 1 and 6: an undetermined share changes nothing for a pod that declares by an earlier table."""
    renamed = replace(SHARES, resource="nvidia.com/gpu.shared")
    both = pod("a", container(resources={"nvidia.com/gpu.shared": "1", MEMORY: "1Gi"}))
    (got,) = assessed(snapshot([use(1, 1)]), [both], policy(declarations=(VERIFF, renamed)))
    assert (got.declared, got.declared_by) == (Gi, MEMORY)
    none = pod("a", container(resources={"nvidia.com/gpu.shared": "0"}))
    (got,) = assessed(snapshot([use(1, 1)]), [none], policy(rule(step(), default=Gi), declarations=(renamed,)))
    assert got.declared_by == "default"


def test_a_table_for_other_nodes_leaves_what_it_names_unknown() -> None:
    """Point 6: the labels a table requires may have disappeared; if another table names the resource, that counts."""
    zoned = replace(VERIFF, node_labels={"zone": "a"})
    asking = pod("a", container(declared="8Gi"))
    under = policy(rule(step(), default=Mi), declarations=(zoned,))
    (got,) = assessed(snapshot([use(1, Gi)]), [asking], under)
    assert (got.verdict, got.declared_by) == (Verdict.UNKNOWN, MEMORY)
    (got,) = assessed(snapshot([use(1, Gi)]), [asking], replace(under, declarations=(zoned, VERIFF)))
    assert (got.verdict, got.declared) == (Verdict.WITHIN, 8 * Gi)
    unlisted = Node(name="n1", capacity={"cpu": "1"})
    (got,) = assessed(snapshot([use(1, Gi)]), [asking], under, unlisted)
    assert got.declared_by == "default"


def test_labels_that_are_not_known_decide_nothing() -> None:
    """Without the Node object the size of a share is unknown: left alone, and no harsher number replaces it."""
    renamed = replace(SHARES, resource="nvidia.com/gpu.shared")
    zoned = replace(VERIFF, node_labels={"zone": "a"})
    noted = Declaration(annotation="vram", unit=1, node_labels={"zone": "a"})
    dark = Node(name="n1", known=False)
    asks = {"nvidia.com/gpu.shared": "1", MEMORY: "8Gi"}
    for declarations in ((renamed, VERIFF), (zoned,), (noted, VERIFF)):
        under = policy(rule(step(), default=Mi), declarations=declarations)
        asking = pod("a", container(resources=asks), annotations={"vram": "1Gi"})
        (account,) = assessed(snapshot([use(1, 70 * Gi)]), [asking], under, dark)
        assert (account.verdict, account.declared) == (Verdict.UNKNOWN, None), declarations
    whole = pod("a", container(resources={"nvidia.com/gpu": "1"}))
    (account,) = assessed(snapshot([use(1, 70 * Gi)]), [whole], policy(declarations=(SHARES,)), dark)
    assert (account.verdict, account.declared) == (Verdict.WITHIN, 80 * Gi)
    plain = pod("a", container(resources=asks))
    (account,) = assessed(snapshot([use(1, 7 * Gi)]), [plain], policy(declarations=(SHARES, VERIFF)), dark)
    assert account.declared == 8 * Gi


def test_shares_that_are_written_are_asked_for() -> None:
    """A resource of 0 requests no share; it does not promise to use nothing."""
    (account,) = seen(METAGPU, {METAGPU.key: "0"})
    assert account.verdict is Verdict.UNDECLARED


def test_a_share_and_an_instance_have_no_allowance_of_themselves() -> None:
    """Point 12: shares get no allowance from the policy, only their own."""
    common = Allowance(per_context=Gi, max_contexts=4, percent=Fraction(1, 10))
    own = replace(METAGPU, allowance=Allowance(per_context=0, max_contexts=0, percent=Fraction(1, 2)))
    none = replace(METAGPU, allowance=Allowance(per_context=0, max_contexts=0, percent=Fraction(0)))
    assert [each.allowed for each in seen(none, {METAGPU.key: "10"}, allowance=common)] == [4 * Gi]
    assert [each.allowed for each in seen(own, {METAGPU.key: "10"}, allowance=common)] == [6 * Gi]
    percent = seen(RATIO, {RATIO.key: "10"}, allowance=common)
    assert [each.allowed for each in percent] == [4 * Gi + 4 * Gi // 10 + Gi]


def test_keys_that_match_a_wildcard_are_added() -> None:
    """`*` in a key stands for any characters, and the numbers of all matching keys are added."""
    blocks = Declaration(resource="volcano.sh/gpu-mem.*", unit=128 * Mi)
    (account,) = seen(blocks, {"volcano.sh/gpu-mem.128Mi": "8", "volcano.sh/gpu-mem.x": "8", "volcano.sh/gpu": "9"})
    assert (account.declared, account.declared_by) == (2 * Gi, "volcano.sh/gpu-mem.128Mi, volcano.sh/gpu-mem.x")


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me"),
        ("nvidia.com/mig-1g.10gb.me.all", "1g.10gb+me.all"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/mig-1c.3g.40gb", "1c.3g.40gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb"),
    ],
)
def test_a_profile_is_found_however_it_is_written(resource: str, profile: str) -> None:
    """The device plugin writes a dot for NVML's plus; if NVML gives no name, the extension is unknown."""
    rows = (mig(0, "7g.80gb", 80 * Gi), mig(1, profile, 9 * Gi))
    assert declared(MIG, {resource: "1"}, cards=rows, on=(1,)) == 9 * Gi
    assert declared(MIG, {resource: "1"}, cards=rows, on=()) == 9 * Gi


def test_an_extension_is_another_profile_where_both_are_there() -> None:
    """1g.10gb and 1g.10gb+me are two resources, and may differ in size."""
    rows = (mig(0, "1g.10gb+me", 9 * Gi), mig(1, "1g.10gb", 8 * Gi))
    assert declared(MIG, {"nvidia.com/mig-1g.10gb": "1"}, cards=rows, on=()) == 8 * Gi
    assert declared(MIG, {"nvidia.com/mig-1g.10gb.me": "1"}, cards=rows, on=()) == 9 * Gi


def test_profiles_of_several_keys_add_up() -> None:
    """A container may request instances of two profiles."""
    rows = (mig(0, "1g.10gb"), mig(1, "3g.40gb", 40 * Gi))
    both = {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-3g.40gb": "1"}
    assert declared(MIG, both, cards=rows, on=(0, 1)) == 50 * Gi
    assert declared(replace(MIG, resource="example.com/none"), both, cards=rows) == 50 * Gi


def test_another_instance_than_asked_for_is_not_declared() -> None:
    """A container that requests a 10Gi instance and uses a 40Gi one has declared 10Gi."""
    rows = (mig(0, "1g.10gb"), mig(1, "3g.40gb", 40 * Gi))
    assert declared(MIG, {"nvidia.com/mig-1g.10gb": "1"}, cards=rows, on=(1,)) == 10 * Gi


def test_an_instance_without_a_profile_may_be_the_one() -> None:
    """If the driver does not report the profile of the instance in use, its own size counts."""
    rows = (mig(0, "1g.10gb"), mig(1, None, 40 * Gi))
    assert declared(MIG, {"nvidia.com/mig-1g.10gb": "1"}, cards=rows, on=(1,)) == 40 * Gi


@pytest.mark.parametrize("rows", [(mig(0, "7g.80gb"),), (mig(0, "1g.10gb", total=None),)])  # type: ignore[arg-type]
def test_an_instance_of_no_known_size_leaves_the_account_unknown(rows: tuple[Gpu, ...]) -> None:
    """A profile that the node does not have, or a size that NVML does not report, is no reason to act."""
    (account,) = seen(MIG, {"nvidia.com/mig-1g.10gb": "1"}, cards=rows, on=(0,))
    assert (account.verdict, account.allowed) == (Verdict.UNKNOWN, None)
    assert account.declared_by == "nvidia.com/mig-1g.10gb"


def test_instances_declared_one_by_one_have_accounts_of_their_own() -> None:
    """`per = "gpu"` with MIG compares each instance by itself."""
    rows = (mig(0, "1g.10gb"), mig(1, "1g.10gb"), mig(2, "1g.10gb"))
    accounts = seen(replace(MIG, per="gpu"), {"nvidia.com/mig-1g.10gb": "2"}, cards=rows, on=(0, 1, 2))
    assert [each.declared for each in accounts] == [10 * Gi, 10 * Gi, 0]


@pytest.mark.parametrize(
    ("resource", "labels"),
    [
        ("nvidia.com/mig-1g.10gb.shared", {}),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb.replicas": "2"}),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb.sharing-strategy": "time-slicing"}),
    ],
)
def test_an_instance_that_is_cut_is_not_whole(resource: str, labels: dict[str, str]) -> None:
    """A MIG instance under time-slicing is a share: neither the unit `mig` nor the whole instance is meant by it."""
    rows = (mig(0, "1g.10gb"),)
    (account,) = seen(MIG, {resource: "1"}, cards=rows, labels=labels)
    assert (account.verdict, account.declared_by) == (Verdict.UNKNOWN, resource)
    half = Declaration(resource=resource, unit="share", shares=2)
    assert declared(half, {resource: "1"}, cards=(*rows, mig(1, "1g.5gb", 4 * Gi)), on=(), labels=labels) == 5 * Gi


def test_cards_of_a_mixed_node_are_not_its_instances() -> None:
    """If a node has a whole card and instances, a share or whole card not used yet is of the card."""
    mixed = (mig(0, "1g.10gb"), gpu(1, 80 * Gi))
    assert declared(METAGPU, {METAGPU.key: "50"}, cards=mixed, on=()) == 40 * Gi
    assert declared(METAGPU, {"nvidia.com/gpu": "1"}, cards=mixed, on=()) == 80 * Gi
    assert declared(METAGPU, {"nvidia.com/gpu": "1"}, cards=mixed[:1], on=()) == 10 * Gi


def test_a_card_whose_size_is_not_told_leaves_its_parts_unknown() -> None:
    """Unified chips have no memory of their own: half of it is unknown, and no reason to act."""
    for declaration, written in ((RATIO, "50"), (PERCENT, "50"), (METAGPU, "50")):
        (account,) = seen(declaration, {declaration.key: written}, cards=(gpu(0, total=None),))  # type: ignore[arg-type]
        assert account.verdict is Verdict.UNKNOWN
    one_known = (gpu(0, 40 * Gi), gpu(1, total=None))  # type: ignore[arg-type]
    (account,) = seen(RATIO, {RATIO.key: "50"}, cards=one_known, on=(0, 1))
    assert account.verdict is Verdict.UNKNOWN


def test_a_device_is_counted_once() -> None:
    """A container with an instance and a whole card that uses only the instance is still allowed the card."""
    mixed = (mig(0, "1g.10gb"), gpu(1, 80 * Gi))
    both = {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/gpu": "1"}
    assert declared(replace(MIG, resource="example.com/none"), both, cards=mixed, on=(0,)) == 90 * Gi


def test_instances_go_with_amounts_for_each_gpu() -> None:
    """A container with MIG instances and one with an amount per GPU do not contradict each other."""
    hami = Declaration(resource="gpumem", unit=Mi, per="gpu")
    both = pod(
        "a",
        container("m", resources={"nvidia.com/mig-1g.10gb": "1"}),
        container("n", resources={"gpumem": "1024"}),
    )
    uses = snapshot([use(1, 1, 0)], [process(1, "a/m")], gpus=[mig(0, "1g.10gb")])
    (account,) = assessed(uses, [both], policy(declarations=(MIG, hami)))
    assert account.declared == 11 * Gi


def test_a_resource_is_not_its_own_count() -> None:
    """`per = "gpu"` with a share of `nvidia.com/gpu` is that share of each GPU, on however many it runs."""
    each = replace(SHARES, per="gpu")
    accounts = seen(each, {"nvidia.com/gpu": "1"}, on=(0, 1), labels={"nvidia.com/gpu.replicas": "4"})
    assert [account.declared for account in accounts] == [10 * Gi, 20 * Gi]


def test_from_a_number_on_another_resource_stands_for_whole_cards() -> None:
    """200 of `tencent.com/vcuda-core` are two whole cards, without a memory limit or the default."""
    core = Unless(resource="t/core", at_least=100)
    tencent = Declaration(resource="t/mem", unit=256 * Mi, unless=core)
    for cores, expected in (("99", Gi), ("100", 80 * Gi), ("250", 120 * Gi)):
        (account,) = seen(tencent, {"t/mem": "4", "t/core": cores}, on=(1,), rules=(rule(step(), default=Mi),))
        assert account.declared == expected, cores
        assert account.verdict is Verdict.WITHIN
    (alone,) = seen(tencent, {"t/core": "100"}, on=(1,))
    assert (alone.declared, alone.declared_by) == (80 * Gi, "t/core")
    (negative,) = seen(tencent, {"t/mem": "4", "t/core": "-100"}, on=(1,))
    assert negative.declared == Gi


@pytest.mark.parametrize(
    ("resources", "annotations", "declared_on"),
    [
        ({"volcano.sh/vgpu-number": "1"}, {}, [0, 40]),
        ({}, {"gpu-fraction-num-devices": "1"}, [0, 40]),
        ({}, {"gpu-fraction-num-devices": "2"}, [20, 40]),
        ({}, {"gpu-fraction-num-devices": "none"}, [20, 40]),
        ({"nvidia.com/gpu": "1"}, {"gpu-fraction-num-devices": "2"}, [0, 40]),
    ],
)
def test_a_count_says_on_how_many_gpus_an_amount_for_each_holds(
    resources: dict[str, str], annotations: dict[str, str], declared_on: list[int]
) -> None:
    """Point 3: on the n that are used most, and 0 on the others; of an annotation, its own system's count."""
    half = pod("a", container(resources=resources), annotations={"gpu-fraction": "0.5", **annotations})
    uses = snapshot([use(1, 1, 0), use(2, 2, 1)], gpus=CARDS)
    accounts = assessed(uses, [half], policy(declarations=(FRACTION,)))
    assert [each.declared for each in accounts] == [size * Gi for size in declared_on]


def test_what_kai_rounds_up_is_covered_by_slack() -> None:
    """KAI turns 4096 of a T4's 15360 MiB into 0.27, which is 4147 MiB: within the usual 2%."""
    kai = Declaration(annotation="gpu-memory", unit=Mi, per="gpu")
    asked = pod("a", annotations={"gpu-memory": "4096"})
    card = (gpu(0, 15360 * Mi),)
    rounded = 27 * 15360 * Mi // 100
    assert rounded // Mi == 4147
    for percent, verdict in ((Fraction(2, 100), Verdict.WITHIN), (Fraction(0), Verdict.OVER)):
        slack = replace(kai, allowance=Allowance(per_context=0, max_contexts=0, percent=percent))
        (account,) = assessed(snapshot([use(1, rounded)], gpus=card), [asked], policy(declarations=(slack,)))
        assert account.verdict is verdict
