"""Resources that the node does not list: nobody has checked them, so they never raise what a pod is allowed."""

from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from tests.core.declaring import HAMI, NOTE, TENCENT, under
from tests.worlds import MEMORY, VERIFF, Gi, Mi, assessed, at, container, gpu, pod, policy, process, snapshot, use
from watchdog.core.amount import NEVER_LISTED
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.listed import ListedResources
from watchdog.core.model import ContainerKind, Gpu, Node
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Capacity, Declaration

SHARE: Final = Declaration(
    resource="nvidia.com/gpu", unit="share", shares="label:nvidia.com/gpu.replicas", allowance=NO_ALLOWANCE
)
OTHER: Final = Declaration(resource="koordinator.sh/gpu-memory", unit=1)
MIG: Final = Declaration(resource="nvidia.com/mig-*", unit="mig")
BY_CONTAINER: Final = Declaration(annotation="{container}.vram", unit=1)
KAI: Final = Declaration(annotation="gpu-memory", unit=Mi, per="gpu")
PERCENTAGE: Final = Declaration(resource="volcano.sh/vgpu-memory-percentage", unit="percent", per="gpu")
SLICED: Final = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
REGISTERED: Final = {"hami.io/node-nvidia-register": "[]"}
GPU: Final = "nvidia.com/gpu"
ONE: Final = {GPU: "1"}
CARD: Final = gpu(0, 80 * Gi)
SMALL: Final = gpu(1, 10 * Gi, parent="GPU-p", gi=7, ci=0, profile="1g.10gb")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the containers of a pod request on a node that lists some of it, what it is allowed, and by what.

    `remarks` are whether what is remarked counts all the same.
    """

    asks: tuple[dict[str, str], ...]
    tables: tuple[Declaration, ...]
    allowed: int | None
    by: str | None
    remarks: tuple[bool, ...] = ()
    lists: tuple[str, ...] = ("cpu", GPU)
    labels: dict[str, str] = field(default_factory=dict)
    registered: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    default: int | None = None
    cards: tuple[Gpu, ...] = (CARD,)
    capacity: Capacity | None = None
    allowance: Allowance | None = None
    account: str = "pod"
    ever: frozenset[str] = frozenset()


def judged(case: Case) -> Assessment:
    """The account in which the first container uses a gibibyte."""
    allowance = case.allowance or policy().allowance
    rules = under(*case.tables, default=case.default, account=case.account, allowance=allowance, capacity=case.capacity)
    labels = {"nvidia.com/gpu.count": str(len(case.cards)), **case.labels}
    node = Node(name="n1", labels=labels, annotations=case.registered, capacity=dict.fromkeys(case.lists, "4"))
    boxes = (container(f"c{number}", resources=asked) for number, asked in enumerate(case.asks))
    tenant = pod("a", *boxes, annotations=case.annotations)
    seen = snapshot([use(7, Gi)], [process(7, "a/c0")], case.cards)
    found = assessed(seen, [tenant], rules, node, listed={"a": case.ever})
    return next(each for each in found if each.used)


def sliced(**values: object) -> Case:
    """A pod with one share of four and something else beside it."""
    given = {"tables": (HAMI, SHARE), "labels": SLICED, "allowed": 20 * Gi, "by": GPU, "remarks": (False,)}
    return Case(**{**given, **values})  # type: ignore[arg-type]


TWO_CARDS: Final = (CARD, gpu(1, 80 * Gi))
RAISING: Final = {
    "gpumem beside a share": sliced(asks=({**ONE, HAMI.key: "80000"},)),
    "gpumem beside a share, two cards": sliced(asks=({**ONE, HAMI.key: "80000"},), cards=TWO_CARDS),
    "an allowance beside a share": sliced(
        asks=({**ONE, OTHER.key: "20Gi"},), tables=(OTHER, SHARE), allowance=Allowance()
    ),
    "a sidecar": sliced(asks=(ONE, {OTHER.key: "79Gi"}), tables=(SHARE, OTHER)),
    "a container beside one that declares": Case(
        asks=({MEMORY: "1Gi"}, {OTHER.key: "5Gi"}),
        tables=(VERIFF, OTHER),
        lists=(MEMORY,),
        allowed=Gi,
        by=MEMORY,
        remarks=(False,),
    ),
    "more of a resource than fits": sliced(asks=({**ONE, HAMI.key: "900000"},)),
    "a MIG profile that no device has": sliced(asks=({**ONE, f"{MIG.key[:-1]}7g.80gb": "1"},), tables=(MIG, SHARE)),
    "a MIG profile that no device has, beside a default": Case(
        asks=({f"{MIG.key[:-1]}7g.80gb": "1"},), tables=(MIG,), default=Gi, allowed=Gi, by="default", remarks=(False,)
    ),
    "more MIG devices than there are": Case(
        asks=({f"{MIG.key[:-1]}1g.10gb": "2"},),
        tables=(MIG,),
        cards=(SMALL,),
        default=Gi,
        allowed=Gi,
        by="default",
        remarks=(False,),
    ),
    "a whole card by cores, beside a default": Case(
        asks=({"t/core": "100", "t/mem": "4"},),
        tables=(TENCENT,),
        default=Gi,
        allowed=Gi,
        by="default",
        remarks=(False,),
    ),
    "a whole card by cores, beside checked memory": Case(
        asks=({"t/core": "100", "t/mem": "4"},),
        tables=(TENCENT,),
        lists=("t/mem",),
        allowed=Gi,
        by="t/mem",
        remarks=(False,),
    ),
    "more cards by cores than there are": Case(
        asks=({"t/core": "900"},), tables=(TENCENT,), default=Gi, allowed=Gi, by="default", remarks=(False,)
    ),
    "more cards by cores than there are, and nothing else": Case(
        asks=({"t/core": "900"},), tables=(TENCENT,), allowed=None, by=None, remarks=(False,)
    ),
    "a whole card beside a default": Case(
        asks=(ONE,), tables=(VERIFF,), lists=("cpu",), default=Gi, allowed=Gi, by="default", remarks=(False,)
    ),
    "an amount beside an annotation": Case(
        asks=({OTHER.key: "70Gi"},),
        tables=(OTHER, NOTE),
        annotations={"vram": "2Gi"},
        allowed=2 * Gi,
        by="vram",
        remarks=(False,),
    ),
    "an amount in container accounts": Case(
        asks=({OTHER.key: "70Gi"}, {}),
        tables=(OTHER,),
        default=Gi,
        account="container",
        allowed=Gi,
        by="default",
        remarks=(False,),
    ),
    "a wrong unit": Case(
        asks=({OTHER.key: "70Gi"},),
        tables=(replace(OTHER, wrong_unit="it is smaller"),),
        default=Gi,
        allowed=Gi,
        by="default",
        remarks=(False, False),
    ),
    "two amounts that no card can hold together": Case(
        asks=({OTHER.key: "50Gi"}, {OTHER.key: "50Gi"}),
        tables=(OTHER,),
        allowed=None,
        by=None,
        remarks=(False,),
    ),
    "two such amounts beside a default": Case(
        asks=({OTHER.key: "50Gi"}, {OTHER.key: "50Gi"}),
        tables=(OTHER,),
        default=Gi,
        allowed=Gi,
        by="default",
        remarks=(False,),
    ),
    "a number of cards for a checked amount": Case(
        asks=({HAMI.key: "8000", GPU: "8", "volcano.sh/vgpu-number": "1"},),
        tables=(HAMI,),
        lists=("volcano.sh/vgpu-number",),
        registered=REGISTERED,
        cards=TWO_CARDS,
        allowed=8000 * Mi,
        by=HAMI.key,
        remarks=(False,),
    ),
}
COUNTING: Final = {
    "less than a whole card": Case(asks=({**ONE, HAMI.key: "8000"},), tables=(HAMI,), allowed=8000 * Mi, by=HAMI.key),
    "less than a share, on a node with one card": sliced(
        asks=({**ONE, HAMI.key: "8000"},), allowed=8000 * Mi, by=HAMI.key, remarks=()
    ),
    "nothing else applies": Case(
        asks=({OTHER.key: "7Gi"},), tables=(OTHER,), allowed=7 * Gi, by=OTHER.key, remarks=(True,)
    ),
    "a share of unknown size binds nothing": Case(
        asks=({**ONE, OTHER.key: "7Gi"},),
        tables=(OTHER, SHARE),
        labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"},
        allowed=7 * Gi,
        by=OTHER.key,
        remarks=(True,),
    ),
    "HAMi with the labels of an earlier time-slicing": sliced(
        asks=({**ONE, HAMI.key: "40000"},), registered=REGISTERED, allowed=40000 * Mi, by=HAMI.key, remarks=()
    ),
    "HAMi beside a default": Case(
        asks=({"nvidia.com/vgpu": "1", HAMI.key: "40000"},),
        tables=(HAMI,),
        lists=("nvidia.com/vgpu",),
        registered=REGISTERED,
        default=Gi,
        allowed=40000 * Mi,
        by=HAMI.key,
    ),
    "Volcano's percentage on a node of Volcano": Case(
        asks=({"volcano.sh/vgpu-number": "1", PERCENTAGE.key: "50", "volcano.sh/vgpu-memory": "2000"},),
        tables=(PERCENTAGE, Declaration(resource="volcano.sh/vgpu-memory", unit=Mi, per="gpu")),
        lists=("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"),
        allowed=40 * Gi,
        by=PERCENTAGE.key,
    ),
    "a capacity that is unknown or empty": Case(
        asks=({OTHER.key: "70Gi"},), tables=(OTHER,), lists=(), default=Gi, allowed=70 * Gi, by=OTHER.key
    ),
    "listed earlier in the pod's life": Case(
        asks=({OTHER.key: "70Gi"},),
        tables=(OTHER,),
        ever=frozenset({OTHER.key}),
        default=Gi,
        allowed=70 * Gi,
        by=OTHER.key,
    ),
    "advertised by the daemon": Case(
        asks=({MEMORY: "70Gi"},),
        tables=(VERIFF,),
        capacity=Capacity(resource=MEMORY),
        default=Gi,
        allowed=70 * Gi,
        by=MEMORY,
    ),
    "an annotation beside a default": Case(
        asks=({},), tables=(KAI,), annotations={"gpu-memory": "40000"}, default=Gi, allowed=40000 * Mi, by="gpu-memory"
    ),
    "another resource that no table reads": Case(
        asks=({MEMORY: "2Gi", "example.com/x": "9"},), tables=(VERIFF,), lists=(MEMORY,), allowed=2 * Gi, by=MEMORY
    ),
}


@pytest.mark.parametrize("case", RAISING.values(), ids=RAISING)
def test_a_resource_that_the_node_does_not_list_never_raises_a_limit(case: Case) -> None:
    """Point 6: it counts for no more than what applies without it, and a remark says so."""
    got = judged(case)
    assert (got.allowed, got.declared_by) == (case.allowed, case.by)
    assert tuple(each.counts for each in got.misdeclarations) == case.remarks
    assert (got.verdict is Verdict.MISDECLARED) is (case.allowed is None)


@pytest.mark.parametrize("case", COUNTING.values(), ids=COUNTING)
def test_what_was_checked_or_is_all_there_is_counts(case: Case) -> None:
    """Point 6: innocent pods keep what they declare; without anything else, what nobody has checked counts too."""
    got = judged(case)
    assert (got.allowed, got.declared_by) == (case.allowed, case.by)
    assert tuple(each.counts for each in got.misdeclarations) == case.remarks


def test_annotations_that_are_too_much_together_are_remarked() -> None:
    """Point 6: each fits on the card, so each counts; that they can't all fit is reported."""
    asked = {f"c{number}.vram": "56Gi" for number in range(3)}
    got = judged(Case(asks=({}, {}, {}), tables=(BY_CONTAINER,), annotations=asked, allowed=None, by=None))
    assert (got.allowed, [each.counts for each in got.misdeclarations]) == (168 * Gi, [True])
    (remark,) = got.misdeclarations
    assert remark.source == "c0.vram, c1.vram, c2.vram of the pod"
    assert remark.why == "together 168Gi is more than all cards together (80Gi)"
    roomy = (CARD, gpu(1, 80 * Gi), gpu(2, 80 * Gi))
    assert not judged(
        Case(asks=({}, {}, {}), tables=(BY_CONTAINER,), annotations=asked, cards=roomy, allowed=None, by=None)
    ).misdeclarations


def test_the_keys_that_are_never_listed_are_those_of_the_schemes() -> None:
    """Point 6: a key that its scheme no longer has would stay checked unnoticed."""
    from watchdog.config.scheme import all_schemes

    known = {table.get("resource") for scheme in all_schemes().values() for table in scheme.tables}
    assert known >= NEVER_LISTED.keys()


def test_what_an_init_container_requests_unlisted_does_not_keep_it_from_being_the_victim() -> None:
    """Points 6 and 21: it lingers, uses more than its pod may, and is no victim within its own declaration."""
    load = container("load", "2Gi", kind=ContainerKind.INIT, running=False, resources={OTHER.key: "70Gi"})
    tenant = pod("a", load, container("main", "4Gi"))
    node = Node(name="n1", capacity={MEMORY: "80Gi"})
    seen = snapshot([use(7, 30 * Gi)], [process(7, "a/load")], (CARD,))
    (got,) = assessed(seen, [tenant], under(OTHER, VERIFF), node)
    assert (got.allowed, got.verdict, got.shares[0].declared) == (4 * Gi, Verdict.OVER, 2 * Gi)


POLICY: Final = under(OTHER)
TENANT: Final = pod("a", container(resources={OTHER.key: "70Gi", "cpu": "1"}))
LISTING: Final = Node(name="n1", capacity={OTHER.key: "80Gi", "cpu": "4"})
DROPPED: Final = Node(name="n1", capacity={"cpu": "4"})
KNOWN: Final = {"a": frozenset({OTHER.key})}


def test_what_was_listed_in_a_pods_life_is_remembered() -> None:
    """Point 6: the kubelet drops a resource for a while when a node registers again; later pods are unchecked."""
    listed = ListedResources()
    assert listed.update((TENANT,), LISTING, POLICY, at(0)) == KNOWN
    assert listed.update((TENANT,), DROPPED, POLICY, at(900)) == {}
    late = replace(TENANT, uid="b")
    assert listed.update((TENANT, late), DROPPED, POLICY, at(901)) == {}
    assert listed.by_pod == KNOWN


def test_a_pod_that_has_left_keeps_what_was_listed_while_its_processes_run() -> None:
    """Points 6 and 28: it counts as finished, but what was checked for it still holds, however long ago it left."""
    listed, left = ListedResources(), replace(TENANT, is_finished=True, left_since=at(0))
    listed.update((TENANT,), LISTING, POLICY, at(0))
    assert listed.update((left,), DROPPED, POLICY, at(7200)) == {}
    assert listed.update((left,), DROPPED, POLICY, at(7201)) == {}
    assert listed.by_pod == KNOWN


def test_a_pod_that_comes_to_the_list_just_after_the_drop_counts_as_checked() -> None:
    """Point 6: the pods and the Node object come by two watches, so the drop may be seen before the pod."""
    listed = ListedResources()
    listed.update((), LISTING, POLICY, at(0))
    assert listed.update((TENANT,), DROPPED, POLICY, at(59)) == KNOWN


def test_a_daemon_takes_over_what_an_earlier_one_knew_and_forgets_pods_long_gone() -> None:
    """Point 6: a restart while the node does not list a resource makes no pod unchecked; the journal does not grow."""
    listed = ListedResources()
    listed.restore(KNOWN, at(0))
    assert listed.update((TENANT,), DROPPED, POLICY, at(1)) == {}
    assert listed.by_pod == KNOWN
    for now_s in range(300, 3601, 300):
        assert listed.update((), DROPPED, POLICY, at(now_s)) == {}
    assert listed.update((replace(TENANT, uid="c"),), DROPPED, POLICY, at(3700)) == {"a": frozenset()}
    assert listed.by_pod == {}


def test_no_number_of_pods_that_come_and_go_keeps_others_from_being_remembered() -> None:
    """Point 6: what an innocent pod was checked for holds, however many pods a tenant makes in an hour."""
    listed = ListedResources()
    for number in range(60):
        others = tuple(replace(TENANT, uid=f"{number}/{each}") for each in range(100))
        listed.update(others, LISTING, POLICY, at(number))
    assert listed.update((TENANT,), LISTING, POLICY, at(60)) == {**KNOWN, "10/0": frozenset()}
    assert listed.update((TENANT,), DROPPED, POLICY, at(1000)) == {}
    assert KNOWN.items() <= listed.by_pod.items()
    assert len(listed.by_pod) == 5000


def test_a_pod_that_a_list_lacks_while_the_node_is_suspended_is_not_forgotten() -> None:
    """Point 6: in a suspend no list is read, so the pod has been missing in one, and not for hours."""
    listed = ListedResources()
    listed.update((TENANT,), LISTING, POLICY, at(0))
    assert listed.update((), DROPPED, POLICY, at(7200)) == {}
    assert listed.update((TENANT,), DROPPED, POLICY, at(7201)) == {}
    assert listed.by_pod == KNOWN
