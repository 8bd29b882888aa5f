"""Pressure: which cards are short of memory, and who gives way first on one of them."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from watchdog.core.findings import Assessment
from watchdog.core.model import Gpu
from watchdog.core.policy import Policy

_NONE: Final[frozenset[str]] = frozenset()
Rank = tuple[bool, int, int, str, str, str]


def short_cards(gpus: Iterable[Gpu], free_below: Fraction) -> frozenset[str]:
    """The GPUs of which less than this share is free; one that does not tell its numbers is never short."""
    return frozenset(gpu.uuid for gpu in gpus if _is_short(gpu, free_below))


def short_for(policy: Policy, gpus: Iterable[Gpu]) -> frozenset[str]:
    """The GPUs that are short of memory, where a rule of the policy has a step under pressure."""
    return short_cards(gpus, policy.free_below) if any(rule.minds_pressure for rule in policy.rules) else _NONE


def _is_short(gpu: Gpu, free_below: Fraction) -> bool:
    if gpu.total is None or gpu.used is None:
        return False
    free = gpu.total - gpu.used  # what the driver reserves is in `used`
    return free * free_below.denominator < gpu.total * free_below.numerator


def requested_of(assessment: Assessment) -> int:
    """What an account asked for, in bytes: below its declaration where a tenant may name a limit above the request."""
    requested = assessment.declared if assessment.requested is None else assessment.requested
    return requested or 0


def allowed_under_pressure(assessment: Assessment) -> int | None:
    """What steps under pressure compare with, in bytes; None where nothing holds that was declared."""
    return assessment.allowed if assessment.allowed_by_request is None else assessment.allowed_by_request


def card_of(assessment: Assessment) -> str | None:
    """The short card on which an account uses most; None: it uses none that is short."""
    if not assessment.short:
        return None
    return min(assessment.short, key=lambda gpu: (-_used_on(assessment, gpu), gpu))


def rank(assessment: Assessment, card: str) -> Rank:
    """Who gives way first: who is over its request, then lower priority, then the larger excess on that card.

    (The kubelet's order under node pressure, kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction.)
    """
    over = assessment.used_at_least - requested_of(assessment)
    excess = min(over, _used_on(assessment, card))
    return (over <= 0, assessment.pod.priority or 0, -excess, *assessment.account.sort_key)


def _used_on(assessment: Assessment, card: str) -> int:
    return sum(use.used or 0 for use in assessment.uses if use.gpu == card)
