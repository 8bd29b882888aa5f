"""Limits that tenants set above their requests (point 8)."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.declaring import accounts, asking, only, under
from tests.worlds import MEMORY, VERIFF, Gi, Mi, assessed, container, gpu, planned, pod, process, snapshot, use
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import ContainerKind, Gpu, Pod
from watchdog.core.policy import Allowance, Declaration, LimitAnnotation

LIMITED = replace(VERIFF, limits=(LimitAnnotation(key="limit"),))
METAGPU = Declaration(resource="cnvrg.io/metagpu", unit="share", shares=100, limits=(LimitAnnotation(key="limit"),))
HAMI = Declaration(resource="gpumem", unit=Mi, per="gpu", limits=(LimitAnnotation(key="{container}.limit"),))
KAI = Declaration(annotation="gpu-memory", unit=Mi, per="gpu", limits=(LimitAnnotation(key="gpu-memory.limit"),))


def limited(request: str, limit: str) -> Pod:
    """A pod of one container with a request, and a limit in an annotation."""
    return asking({MEMORY: request}, annotations={"limit": limit})


def by_container(tenant: Pod, declaration: Declaration) -> list[Assessment]:
    """The accounts of containers m and n, of which each uses a byte."""
    seen = snapshot([use(1, 1), use(2, 1)], [process(1, "a/m"), process(2, "a/n")])
    return list(assessed(seen, [tenant], under(declaration, account="container")))


def test_the_limit_is_compared_and_the_request_under_pressure() -> None:
    """Point 8: steps compare with the limit, those under pressure with the request; each with its allowance."""
    allowance = Allowance(per_context=Mi, max_contexts=4, percent=Fraction(1, 2))
    account = only(limited("8Gi", "12Gi"), under(LIMITED, allowance=allowance), 15 * Gi)
    assert (account.declared, account.allowed) == (12 * Gi, 18 * Gi + Mi)
    assert (account.requested, account.allowed_by_request) == (8 * Gi, 12 * Gi + Mi)
    assert (account.verdict, account.declared_by) == (Verdict.WITHIN, MEMORY)


def test_between_request_and_limit_no_pod_is_killed() -> None:
    """The room above the request is the tenant's to use, as long as the card has it."""
    seen = (snapshot([use(1, used)]) for used in (12 * Gi, 12 * Gi + 1))
    assert [len(planned(each, [limited("8Gi", "12Gi")], under(LIMITED)).taken) for each in seen] == [0, 1]


LOAD, LOADED = (container("load", "2Gi", kind=ContainerKind.INIT, running=each) for each in (True, False))
SMALL = (gpu(0, 16 * Gi),)
OTHER = Declaration(resource="gpumem", unit=Mi)
MIG = Declaration(resource="nvidia.com/mig-*", unit="mig", limits=(LimitAnnotation(key="limit"),))


@pytest.mark.parametrize(
    ("tenant", "declarations", "cards", "declared", "requested"),
    [
        # Without a limit there is one number, not two equal ones.
        (asking({MEMORY: "8Gi"}), [LIMITED], (), 8 * Gi, None),
        (limited("8Gi", "12Gi"), [VERIFF], (), 8 * Gi, None),
        # A tenant sets it, so it never exceeds what the cards have, as far as they are seen.
        (limited("8Gi", "1Ti"), [LIMITED], SMALL, 16 * Gi, 8 * Gi),
        (limited("8Gi", "1Ti"), [LIMITED], (*SMALL, gpu(1, 16 * Gi)), 32 * Gi, 8 * Gi),
        # It is read in the unit of its declaration.
        (asking({METAGPU.key: "25"}, annotations={"limit": "50"}), [METAGPU], (), 40 * Gi, 20 * Gi),
        (asking({METAGPU.key: "25"}, annotations={"limit": "900"}), [METAGPU], (), 80 * Gi, 20 * Gi),
        # While an init container runs it is that one's, afterwards that of the main ones.
        (pod("a", LOAD, container("main", "8Gi"), annotations={"limit": "16Gi"}), [LIMITED], (), 16 * Gi, 2 * Gi),
        (pod("a", LOADED, container("main", "8Gi"), annotations={"limit": "16Gi"}), [LIMITED], (), 16 * Gi, 8 * Gi),
        # A container without a limit keeps its request in both.
        (
            pod(
                "a", container("m", "8Gi"), container("n", resources={"gpumem": "1024"}), annotations={"limit": "12Gi"}
            ),
            [LIMITED, OTHER],
            (),
            13 * Gi,
            9 * Gi,
        ),
        # A MIG instance has its own size, whatever limit a tenant sets.
        (
            asking({"nvidia.com/mig-1g.10gb": "1"}, annotations={"limit": "2"}),
            [MIG],
            (gpu(0, 10 * Gi, parent="GPU-p", gi=0, ci=0, profile="1g.10gb"),),
            10 * Gi,
            None,
        ),
    ],
)
def test_the_amounts_of_request_and_limit(
    tenant: Pod, declarations: list[Declaration], cards: tuple[Gpu, ...], declared: int, requested: int | None
) -> None:
    """Point 8: the limit replaces the request where there is one, in the same unit, for the same containers."""
    account = only(tenant, under(*declarations), cards=cards)
    assert (account.declared, account.requested, account.misdeclarations) == (declared, requested, ())


def test_cards_that_are_not_seen_cap_no_limit() -> None:
    """Point 8: a hidden card may have what the limit says."""
    account = only(limited("8Gi", "40Gi"), under(LIMITED), cards=SMALL, unseen=frozenset({"GPU at index 2"}))
    assert account.declared == 40 * Gi


def test_a_limit_for_each_gpu_is_capped_by_that_gpu() -> None:
    """On the smaller card a limit of 60Gi is the card."""
    kai = pod("a", annotations={"gpu-memory": "8192", "gpu-memory.limit": "61440"})
    found = accounts(kai, under(KAI), 1, 1, cards=(gpu(0, 40 * Gi), gpu(1, 80 * Gi)))
    assert [(each.declared, each.requested) for each in found] == [(40 * Gi, 8 * Gi), (60 * Gi, 8 * Gi)]


@pytest.mark.parametrize(
    ("tenant", "why"),
    [
        (limited("8Gi", "4Gi"), "4Gi is below what is requested, 8Gi"),
        (limited("8Gi", "-1"), "it is negative"),
        (limited("8Gi", "lots"), "'lots' is not a quantity"),
        (limited("8Gi", ""), "'' is not a quantity"),
        (asking({METAGPU.key: "10"}, annotations={"limit": "0"}), "0 is below what is requested, 10% of a card"),
        (asking({METAGPU.key: "10"}, annotations={"limit": "5"}), "5% of a card is below what is requested, 10% of a"),
    ],
)
def test_a_limit_that_cannot_be_is_reported_and_the_request_holds(tenant: Pod, why: str) -> None:
    """Point 8: below the request or unparsable, it is reported, and makes no account misdeclared."""
    account = only(tenant, under(LIMITED, METAGPU))
    assert (account.declared, account.requested, account.verdict) == (8 * Gi, None, Verdict.WITHIN)
    (skipped,) = account.misdeclarations
    assert skipped.source == "limit of the pod"
    assert skipped.why.startswith(why)


def test_a_limit_by_container_is_that_containers() -> None:
    """With {container} in its key, the annotation of one container does not affect another."""
    containers = (container(name, resources={"gpumem": "1024"}) for name in "mn")
    both = pod("a", *containers, annotations={"m.limit": "4096", "n.limit": "512"})
    first, second = by_container(both, HAMI)
    assert (first.declared, first.requested) == (4 * Gi, Gi)
    assert (second.declared, second.requested) == (Gi, None)
    assert [each.source for each in second.misdeclarations] == ["n.limit of container n"]


@pytest.mark.parametrize(
    ("requests", "limit", "parts"),
    [(("6Gi", "2Gi"), "12Gi", [9 * Gi, 3 * Gi]), (("0", "0"), "12Gi", [6 * Gi, 6 * Gi]), (("1", "2"), "4", [2, 3])],
)
def test_one_limit_for_all_containers_is_shared_in_proportion(
    requests: tuple[str, str], limit: str, parts: list[int]
) -> None:
    """Point 1: an annotation without {container} is one number for the pod, divided by request."""
    both = pod("a", *map(container, "mn", requests), annotations={"limit": limit})
    assert [each.declared for each in by_container(both, LIMITED)] == parts
