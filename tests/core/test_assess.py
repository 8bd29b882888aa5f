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
    inputs,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assess import assess
from watchdog.core.assessment import AccountKey, Attribution, Verdict
from watchdog.core.model import UNREADABLE, ContainerKind, Gpu, Snapshot
from watchdog.core.policy import Allowance, Declaration, Do

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


def test_in_container_accounts_an_unknown_container_is_one_by_itself() -> None:
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


TWO_CARDS = [gpu(0), gpu(1, listed=False)]
NOT_READABLE = [process(9, place=UNREADABLE)]


@pytest.mark.parametrize(
    ("seen", "used"),
    [
        (snapshot(blind=True), None),
        (snapshot(gpus=TWO_CARDS, unseen=frozenset({"GPU-1"})), None),
        (snapshot(gpus=TWO_CARDS), None),
        (snapshot([use(5, 1, 0)], gpus=[gpu(0), gpu(1)], unseen=frozenset({"GPU-1"})), None),
        (snapshot([use(9, 5)], NOT_READABLE), None),
        # Law 11: a process with an unreadable cgroup and no bytes hides nothing.
        (snapshot([use(9, 0)], NOT_READABLE), 0),
        # A lost GPU does not hide anything of a pod that was never seen on it and is seen on another one.
        (snapshot([use(1, Gi, 0)], gpus=[gpu(0), gpu(1, listed=False, up=False)]), Gi),
    ],
)
def test_what_was_not_seen_is_unknown_where_not_everything_was_seen(seen: Snapshot, used: int | None) -> None:
    """Points 10 and 16: a blind driver, or a GPU never listed or not listed now, is no basis for `within`."""
    (got,) = assessed(seen, [DECLARES], policy())
    assert (got.used, got.verdict) == (used, Verdict.UNKNOWN if used is None else Verdict.WITHIN)


OWN = replace(VERIFF, allowance=Allowance(per_context=Mi, max_contexts=2, percent=Fraction(1, 2)))


@pytest.mark.parametrize(
    ("uses", "percent", "own", "allowed"),
    [
        ([(5, 0)], "0.02", VERIFF, 4 * Gi + 85899345 + 512 * Mi),
        ([(5 + each, 0) for each in range(4)], "0", VERIFF, 4 * Gi + 4 * 512 * Mi),
        ([(5 + each, 0) for each in range(9)], "0", VERIFF, 4 * Gi + 4 * 512 * Mi),
        ([], "0.02", VERIFF, 4 * Gi + 85899345),
        ([(5, 0), (5, 1)], "0", VERIFF, 5 * Gi),  # a process on two GPUs has two contexts
        ([(5, 0)], "0.02", OWN, 6 * Gi + Mi),  # the declaration's replaces the policy's
    ],
)
def test_allowed_is_declared_and_what_the_driver_takes(
    uses: list[tuple[int, int]], percent: str, own: Declaration, allowed: int
) -> None:
    """Point 12: floor(declared x (1 + percent)) + per_context x contexts, at most max_contexts of them."""
    under = policy(declarations=(own,), allowance=Allowance(percent=Fraction(percent)))
    seen = snapshot([use(pid, 1, number) for pid, number in uses], gpus=[gpu(0), gpu(1)])
    (got,) = assessed(seen, [DECLARES], under)
    assert (got.allowed, got.declared_by) == (allowed, MEMORY)


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


@pytest.mark.parametrize(
    ("threshold", "do", "threshold_bytes"),
    [
        ("100%", Do.WARN, 1000),
        ("50%", Do.WARN, 500),
        ("50%", Do.KILL, 1000),
        ("110%", Do.KILL, 1100),
        ("100.1%", Do.KILL, 1001),
        ("+5", Do.KILL, 1005),
        ("2000", Do.KILL, 2000),
        ("20", Do.EVICT, 1000),
        ("20", Do.WARN, 20),
    ],
)
def test_a_threshold_is_never_below_allowed_for_kill_and_evict(threshold: str, do: Do, threshold_bytes: int) -> None:
    """Point 14: a percentage, an amount above, or an amount; warnings alone may come below allowed."""
    assert step(threshold).above.threshold_bytes(1000, do) == threshold_bytes


def test_each_pod_that_uses_or_declares_has_one_account() -> None:
    """Others are not in the report, and two pods with one UID in a broken list do not form the same account twice.

    What a finished pod declares is free again, so it has an account only for a process that has outlived it.
    """
    pods = [pod("a"), pod("b", container(declared="1Gi", of="b")), DECLARES, replace(DECLARES, namespace="other")]
    assert [each.account.uid for each in assessed(snapshot(), pods[:2], policy())] == ["b"]
    assert [each.account.uid for each in assessed(snapshot([use(1, 1)]), pods, policy())] == ["a", "b"]
    finished = [replace(each, is_finished=True) for each in pods]
    assert [each.account.uid for each in assessed(snapshot([use(1, 1)]), finished, policy())] == ["a"]


def test_an_account_that_is_acted_on_and_uses_nothing_uses_0_bytes() -> None:
    """Points 10 and 15: what is not seen, where everything is seen, is 0, once for each account."""
    tenants = {"a": pod("a"), "b": pod("b", container(declared="1Gi", of="b"))}
    per_gpu = policy(declarations=(replace(VERIFF, per="gpu"),))
    for uid, gpu_uuid, under in (("a", None, policy()), ("b", None, policy()), ("b", "GPU-0", per_gpu)):
        key = AccountKey(uid=uid, gpu=gpu_uuid)
        given = replace(inputs(under, [tenants[uid]]), acting=frozenset({key}))
        (account,) = assess(Attribution(), snapshot(), given)
        assert (account.account, account.used) == (key, 0)
