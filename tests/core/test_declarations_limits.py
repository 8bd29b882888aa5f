"""Limits that tenants set above their requests (point 8)."""

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
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import ContainerKind, Pod
from watchdog.core.policy import Allowance, Declaration

LIMITED = replace(VERIFF, limit_annotation="example.com/limit")
METAGPU = Declaration(resource="cnvrg.io/metagpu", unit="share", shares=100, limit_annotation="limit")
HAMI = Declaration(resource="gpumem", unit=Mi, per="gpu", limit_annotation="{container}.limit")
KAI = Declaration(annotation="gpu-memory", unit=Mi, per="gpu", limit_annotation="gpu-memory.limit")


def limited(request: str, limit: str) -> Pod:
    """A pod of one container with a request, and a limit in an annotation."""
    return pod("a", container(declared=request), annotations={"example.com/limit": limit})


def only(of: Pod, *declarations: Declaration, used: int = 1, card: int = 80 * Gi, **more: object) -> Assessment:
    """Its one account, on one card."""
    under = policy(declarations=declarations or (LIMITED,), **more)
    (account,) = assessed(snapshot([use(1, used)], gpus=[gpu(0, card)]), [of], under)
    return account


def test_the_limit_is_compared_and_the_request_under_pressure() -> None:
    """Point 8: steps compare with the limit, those under pressure with the request; each with its allowance."""
    allowance = Allowance(per_context=Mi, max_contexts=4, percent=Fraction(1, 2))
    account = only(limited("8Gi", "12Gi"), used=15 * Gi, allowance=allowance)
    assert (account.declared, account.allowed) == (12 * Gi, 18 * Gi + Mi)
    assert (account.requested, account.allowed_by_request) == (8 * Gi, 12 * Gi + Mi)
    assert (account.verdict, account.declared_by) == (Verdict.WITHIN, MEMORY)
    assert only(limited("8Gi", "12Gi"), used=12 * Gi + 1).verdict is Verdict.OVER


def test_between_request_and_limit_nobody_is_killed() -> None:
    """The room above the request is the tenant's to use, as long as the card has it."""
    under = policy(declarations=(LIMITED,))
    within = planned(snapshot([use(1, 10 * Gi)]), [limited("8Gi", "12Gi")], under)
    above = planned(snapshot([use(1, 13 * Gi)]), [limited("8Gi", "12Gi")], under)
    assert [len(plan.taken) for plan in (within, above)] == [0, 1]


def test_without_a_limit_there_is_no_request_beside_the_declaration() -> None:
    """A pod without a limit has one number, not two equal ones."""
    account = only(pod("a", container(declared="8Gi")))
    assert (account.requested, account.allowed_by_request) == (None, None)
    assert only(limited("8Gi", "12Gi"), VERIFF).requested is None


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("4Gi", "4Gi is below what is requested, 8Gi"),
        ("-1", "it is negative"),
        ("lots", "'lots' is not a quantity"),
        ("", "'' is not a quantity"),
    ],
)
def test_a_limit_that_cannot_be_is_said_and_the_request_holds(limit: str, why: str) -> None:
    """Point 8: below the request or unparsable, it is reported, and makes no account misdeclared."""
    account = only(limited("8Gi", limit))
    assert (account.declared, account.requested, account.verdict) == (8 * Gi, None, Verdict.WITHIN)
    (skipped,) = account.misdeclarations
    assert skipped.source == "example.com/limit of the pod"
    assert skipped.why.startswith(why)


def test_a_limit_is_capped_by_the_cards() -> None:
    """Point 8: a limit is set by the tenant, so it never exceeds what the cards have."""
    assert only(limited("8Gi", "1Ti"), card=16 * Gi).declared == 16 * Gi
    two = snapshot([use(1, 1)], gpus=[gpu(0, 16 * Gi), gpu(1, 16 * Gi)])
    (account,) = assessed(two, [limited("8Gi", "1Ti")], policy(declarations=(LIMITED,)))
    assert account.declared == 32 * Gi
    dark = replace(two, unseen=frozenset({"GPU at index 2"}))
    (account,) = assessed(dark, [limited("8Gi", "40Gi")], policy(declarations=(LIMITED,)))
    assert account.declared == 40 * Gi


def test_a_limit_for_each_gpu_is_capped_by_that_gpu() -> None:
    """On the smaller card a limit of 60Gi is the card."""
    kai = pod("a", annotations={"gpu-memory": "8192", "gpu-memory.limit": "61440"})
    seen = snapshot([use(1, 1, 0), use(2, 1, 1)], gpus=[gpu(0, 40 * Gi), gpu(1, 80 * Gi)])
    accounts = assessed(seen, [kai], policy(declarations=(KAI,)))
    assert [(each.declared, each.requested) for each in accounts] == [(40 * Gi, 8 * Gi), (60 * Gi, 8 * Gi)]


def test_a_limit_in_shares_is_a_number_of_shares() -> None:
    """The annotation is read in the unit of its declaration, and capped by what the cards have of it."""
    asked = container(resources={"cnvrg.io/metagpu": "25"})
    account = only(pod("a", asked, annotations={"limit": "50"}), METAGPU)
    assert (account.declared, account.requested) == (40 * Gi, 20 * Gi)
    assert only(pod("a", asked, annotations={"limit": "900"}), METAGPU).declared == 80 * Gi
    low = only(pod("a", asked, annotations={"limit": "0"}), METAGPU)
    assert low.declared == 20 * Gi
    assert [each.why for each in low.misdeclarations] == ["0 is below what is requested, 25% of a card"]
    below = only(pod("a", asked, annotations={"limit": "20"}), METAGPU)
    assert [each.why for each in below.misdeclarations] == ["20% of a card is below what is requested, 25% of a card"]


def test_a_limit_by_container_is_that_containers() -> None:
    """With {container} in its key, the annotation of one container does not affect another."""
    both = pod(
        "a",
        container("m", resources={"gpumem": "1024"}),
        container("n", resources={"gpumem": "1024"}),
        annotations={"m.limit": "4096", "n.limit": "512"},
    )
    seen = snapshot([use(1, 1), use(2, 1)], [process(1, "a/m"), process(2, "a/n")])
    under = policy(rule(step(), account="container"), declarations=(HAMI,))
    first, second = assessed(seen, [both], under)
    assert (first.declared, first.requested) == (4 * Gi, Gi)
    assert (second.declared, second.requested) == (Gi, None)
    assert [each.source for each in second.misdeclarations] == ["n.limit of container n"]


@pytest.mark.parametrize(
    ("requests", "limit", "parts"),
    [
        (("6Gi", "2Gi"), "12Gi", [9 * Gi, 3 * Gi]),
        (("0", "0"), "12Gi", [6 * Gi, 6 * Gi]),
        (("1", "2"), "4", [2, 3]),
    ],
)
def test_one_limit_for_all_containers_is_shared_in_proportion(
    requests: tuple[str, str], limit: str, parts: list[int]
) -> None:
    """Point 1: an annotation without {container} is one number for the pod, divided by request."""
    both = pod(
        "a", *(container(n, r) for n, r in zip("mn", requests, strict=True)), annotations={"example.com/limit": limit}
    )
    seen = snapshot([use(1, 1), use(2, 1)], [process(1, "a/m"), process(2, "a/n")])
    under = policy(rule(step(), account="container"), declarations=(LIMITED,))
    assert [each.declared for each in assessed(seen, [both], under)] == parts


def test_a_limit_is_for_the_containers_that_run_now() -> None:
    """While an init container runs, the pod's limit is its limit; afterwards that of the main ones."""
    load = container("load", "2Gi", kind=ContainerKind.INIT)
    both = pod("a", load, container("main", "8Gi"), annotations={"example.com/limit": "16Gi"})
    assert only(both).declared == 16 * Gi
    assert only(both).requested == 2 * Gi
    done = replace(both, containers=(replace(load, running=False), both.containers[1]))
    assert (only(done).declared, only(done).requested) == (16 * Gi, 8 * Gi)


def test_a_container_without_a_limit_keeps_its_request_in_both() -> None:
    """The limit of one container does not reduce another one's request."""
    two = pod("a", container("m", "8Gi"), container("n", resources={"gpumem": "1024"}))
    two = replace(two, annotations={"example.com/limit": "12Gi"})
    total = replace(HAMI, per="total")
    account = only(two, LIMITED, total)
    assert (account.declared, account.requested) == (13 * Gi, 9 * Gi)


def test_whole_cards_have_no_limit_to_name() -> None:
    """A MIG instance has its own size, whatever limit a tenant sets."""
    mig = Declaration(resource="nvidia.com/mig-*", unit="mig", limit_annotation="example.com/limit")
    owner = pod("a", container(resources={"nvidia.com/mig-1g.10gb": "1"}), annotations={"example.com/limit": "2"})
    rows = [gpu(0, 10 * Gi, parent="GPU-p", gi=0, ci=0, profile="1g.10gb")]
    (account,) = assessed(snapshot([use(1, 1)], gpus=rows), [owner], policy(declarations=(mig,)))
    assert (account.declared, account.requested, account.misdeclarations) == (10 * Gi, None, ())
