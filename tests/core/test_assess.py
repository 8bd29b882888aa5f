"""The assessment of an account: used, allowed and verdict."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

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
from watchdog.core.assessment import Verdict
from watchdog.core.model import UNREADABLE, ContainerKind, Gpu
from watchdog.core.policy import Allowance, Do, Threshold

DECLARES = pod("a", container(declared="4Gi"))


def test_every_process_of_a_pod_counts_for_its_account() -> None:
    """Point 9: containers that declare nothing and ephemeral ones count too, on every GPU."""
    debug = container("debug", kind=ContainerKind.EPHEMERAL)
    several = pod("a", container("main", "4Gi"), container("side"), debug)
    seen = snapshot(
        [use(1, Gi, 0), use(1, 2 * Gi, 1), use(2, 3 * Gi), use(3, 4 * Gi)],
        [process(1, "a/main"), process(2, "a/side"), process(3, "a/debug")],
        gpus=[gpu(0), gpu(1)],
    )
    (got,) = assessed(seen, [several], policy())
    assert (got.used, got.used_at_least) == (10 * Gi, 10 * Gi)


def test_in_container_accounts_an_unknown_container_stands_by_itself() -> None:
    """Point 9: bytes of an unknown container are in the account `container: ""`, without budget or default."""
    several = pod("a", container("main", "4Gi"))
    seen = snapshot([use(1, Gi), use(2, 70 * Gi)], [process(1, "a/main"), process(2, "a/new")])
    got = assessed(seen, [several], policy(rule(step(), account="container", default=1)))
    assert [(each.account.container, each.used, each.verdict) for each in got] == [
        ("", 70 * Gi, Verdict.UNDECLARED),
        ("main", Gi, Verdict.WITHIN),
    ]


@pytest.mark.parametrize(
    ("numbers", "used", "at_least", "verdict"),
    [
        ((1 * Gi, None), None, 1 * Gi, Verdict.UNKNOWN),
        ((5 * Gi, None), None, 5 * Gi, Verdict.OVER),
        ((4 * Gi, 0), 4 * Gi, 4 * Gi, Verdict.WITHIN),
        ((4 * Gi, 1), 4 * Gi + 1, 4 * Gi + 1, Verdict.OVER),
        ((None, None), None, 0, Verdict.UNKNOWN),
    ],
)
def test_unknown_bytes_are_neither_zero_nor_use(
    numbers: tuple[int | None, int | None], used: int | None, at_least: int, verdict: Verdict
) -> None:
    """Points 10 and 13: `used` is null if a part is unknown; over, strictly, is decided by what is known."""
    (got,) = assessed(snapshot([use(i, n) for i, n in enumerate(numbers, 5)]), [DECLARES], policy())
    assert (got.used, got.used_at_least, got.verdict) == (used, at_least, verdict)


def test_who_was_not_seen_is_unknown_where_not_everything_was_seen() -> None:
    """Points 10 and 16: a blind driver, or a GPU never listed or not listed now, is no basis for `within`."""
    dark = gpu(1, listed=False)
    unreadable = process(9, place=UNREADABLE)
    for seen in [
        snapshot(blind=True),
        snapshot(gpus=[gpu(0), dark], unseen=frozenset({"GPU-1"})),
        snapshot([use(5, 1, 0)], gpus=[gpu(0), gpu(1)], unseen=frozenset({"GPU-1"})),
        snapshot(gpus=[gpu(0), dark]),
        snapshot([use(9, 5)], [unreadable]),
    ]:
        (got,) = assessed(seen, [DECLARES], policy())
        assert (got.used, got.verdict) == (None, Verdict.UNKNOWN)


def test_a_process_of_nobody_that_uses_nothing_hides_nothing() -> None:
    """Law 11: a process with an unreadable cgroup and no bytes makes no other account unknown."""
    (got,) = assessed(snapshot([use(9, 0)], [process(9, place=UNREADABLE)]), [DECLARES], policy())
    assert (got.used, got.verdict) == (0, Verdict.WITHIN)


def test_a_lost_gpu_leaves_those_alone_that_run_elsewhere() -> None:
    """An unlisted GPU does not make a pod unknown that was never seen on it and is seen on another one."""
    seen = snapshot([use(1, Gi, 0)], gpus=[gpu(0), gpu(1, listed=False, up=False)])
    (got,) = assessed(seen, [DECLARES], policy())
    assert (got.used, got.verdict) == (Gi, Verdict.WITHIN)


@pytest.mark.parametrize(
    ("contexts", "percent", "allowed"),
    [
        (1, "0.02", 4 * Gi + 85899345 + 512 * Mi),
        (4, "0", 4 * Gi + 4 * 512 * Mi),
        (9, "0", 4 * Gi + 4 * 512 * Mi),
        (0, "0.02", 4 * Gi + 85899345),
    ],
)
def test_allowed_is_declared_and_what_the_driver_takes(contexts: int, percent: str, allowed: int) -> None:
    """Point 12: floor(declared x (1 + percent)) + per_context x contexts, at most max_contexts of them."""
    under = policy(allowance=Allowance(percent=Fraction(percent)))
    (got,) = assessed(snapshot([use(i, 1) for i in range(5, 5 + contexts)]), [DECLARES], under)
    assert got.allowed == allowed


def test_a_context_is_a_process_on_a_gpu() -> None:
    """Point 12: one process on two GPUs holds two contexts."""
    under = policy(allowance=Allowance(percent=Fraction(0)))
    (got,) = assessed(snapshot([use(5, 1, 0), use(5, 1, 1)], gpus=[gpu(0), gpu(1)]), [DECLARES], under)
    assert got.allowed == 5 * Gi


@pytest.mark.parametrize(
    ("gpus", "more"),
    [
        ([gpu(0), gpu(1, listed=False, up=False)], {}),
        ([gpu(0)], {"missing": frozenset({"GPU at index 1"})}),
        ([gpu(0), gpu(1, listed=False)], {"unseen": frozenset({"GPU-1"})}),
    ],
    ids=["lost", "missing since a restart", "silent"],
)
def test_a_card_that_drops_out_takes_nothing_out_of_the_allowance(gpus: list[Gpu], more: dict[str, Any]) -> None:
    """Law 3: contexts that can't be seen may exist, so the most that can count are granted."""
    under = policy(allowance=Allowance(percent=Fraction(0)))
    own = replace(VERIFF, allowance=Allowance(per_context=Mi, max_contexts=2, percent=Fraction(0)))
    for used, verdict in [(6 * Gi + 1, Verdict.OVER), (6 * Gi, Verdict.UNKNOWN), (9 * Gi // 2 + 1, Verdict.UNKNOWN)]:
        seen = snapshot([use(5, used, 0)], gpus=gpus, **more)
        (shared,) = assessed(seen, [DECLARES], under)
        (mixed,) = assessed(seen, [DECLARES], replace(under, declarations=(own,)))
        assert (shared.allowed, shared.verdict) == (6 * Gi, verdict)
        assert (mixed.allowed, mixed.verdict) == (4 * Gi + 2 * Mi, Verdict.OVER)


def test_a_declaration_can_bring_its_own_allowance() -> None:
    """Point 12: the declaration's allowance replaces the policy's."""
    own = replace(VERIFF, allowance=Allowance(per_context=Mi, max_contexts=2, percent=Fraction(1, 2)))
    (got,) = assessed(snapshot([use(5, 1)]), [DECLARES], policy(declarations=(own,), allowance=Allowance()))
    assert got.allowed == 6 * Gi + Mi


@pytest.mark.parametrize(
    ("threshold", "do", "threshold_bytes"),
    [
        (Threshold(share=Fraction(1)), Do.WARN, 1000),
        (Threshold(share=Fraction(1, 2)), Do.WARN, 500),
        (Threshold(share=Fraction(1, 2)), Do.KILL, 1000),
        (Threshold(share=Fraction(11, 10)), Do.KILL, 1100),
        (Threshold(plus=5), Do.KILL, 1005),
        (Threshold(amount=2000), Do.KILL, 2000),
        (Threshold(amount=20), Do.EVICT, 1000),
        (Threshold(amount=20), Do.WARN, 20),
        (Threshold(share=Fraction(1001, 1000)), Do.KILL, 1001),
    ],
)
def test_a_threshold_is_never_below_allowed_for_kill_and_evict(
    threshold: Threshold, do: Do, threshold_bytes: int
) -> None:
    """Point 14: a percentage, an amount above, or an amount; warnings alone may come below allowed."""
    assert threshold.threshold_bytes(1000, do) == threshold_bytes


def test_a_pod_that_neither_uses_nor_declares_has_no_account() -> None:
    """Only pods that use or declare GPU memory are in the report."""
    assert assessed(snapshot(), [pod("a"), pod("b", container(declared="1Gi", of="b"))], policy())[0].account.uid == "b"


def test_a_repeated_uid_makes_one_account() -> None:
    """Two pods with one UID in a broken list do not form the same account twice."""
    again = replace(DECLARES, namespace="other")
    assert len(assessed(snapshot([use(1, 1)]), [DECLARES, again], policy())) == 1


def test_the_key_of_the_declaration_is_reported() -> None:
    """The operator reads from which key an amount comes."""
    (got,) = assessed(snapshot([use(1, 1)]), [DECLARES], policy())
    assert got.declared_by == MEMORY
