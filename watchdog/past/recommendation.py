"""What to declare, by what was used: percentiles and peaks, and the figure that is recommended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration
from watchdog.core.units import format_bytes, format_quantity
from watchdog.report.advice import number_of, plain_number, round_up
from watchdog.report.text import inert, span


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Workload:
    """Whose use it is: an owner and the name of a container; None: the pods declare as wholes."""

    namespace: str
    kind: str
    name: str
    container: str | None


@dataclass(slots=True, kw_only=True)
class Usage:
    """What one workload used. Times are seconds, amounts bytes.

    `held_s` has the time for which each amount was held by one pod, `unknown_s` the time in which an amount was not
    known, `idle_s` the time without any GPU process, `over_s` the time above what is allowed. `needed` is the least
    declaration that allows the most that was used, and some headroom: on the fullest GPU where `per_gpu`; `contexts`
    and `allowance` are what counted at that moment. `last` is the latest assessment.
    """

    last: Assessment
    declaration: tuple[Declaration, str] | None
    pods: set[str] = field(default_factory=set)
    held_s: dict[int, float] = field(default_factory=dict)
    unknown_s: float = 0.0
    idle_s: float = 0.0
    over_s: float = 0.0
    peak: int = 0
    peak_per_gpu: int = 0
    needed: int = 0
    contexts: int = 0
    allowance: Allowance = NO_ALLOWANCE
    per_gpu: bool = False

    @property
    def seen_s(self) -> float:
        """The time in which it held GPU memory, known how much or not."""
        return self.known_s + self.unknown_s

    @property
    def known_s(self) -> float:
        """The time in which amounts were held and known."""
        return sum(self.held_s.values())

    def percentile(self, percent: float) -> int | None:
        """The least amount that was not exceeded for so many percent of the known time; None: nothing is known."""
        left_s = self.known_s * percent / 100
        for amount in sorted(self.held_s):
            left_s -= self.held_s[amount]
            if left_s <= 1e-6:
                return amount
        return None


def with_headroom(used: int, most: int | None) -> int:
    """What was used and a tenth of it, but not beyond the most that its GPUs have (None: not known)."""
    wanted = -(-used * 11 // 10)
    return wanted if most is None else max(min(wanted, most), used)


_GENEROUS = 2  # declares so many times what would do
_LITTLE_S = 3600.0  # who was seen for less may not have done yet what it takes its memory for


class Stand(StrEnum):
    """How a declaration stands to what was used."""

    TOO_LITTLE = "too_little"
    TOO_MUCH = "too_much"
    FITS = "fits"
    NOTHING = "nothing"
    MISDECLARED = "misdeclared"
    WHOLE = "whole"
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to declare: the key, the value as it is written under it, what that comes to in bytes, and what it allows.

    In a unit that depends on the card both are what it comes to at least.
    """

    key: str
    value: str
    amount: int
    allows: int
    has_allowance: bool
    per_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How a workload's declaration stands, in words, and what to declare instead; None: nothing else."""

    stand: Stand
    reason: str
    suggestion: Suggestion | None = None


def advise(usage: Usage) -> Advice:
    """Hold what was used against what is declared.

    The suggestion allows the highest use that was seen and a tenth more: it is that less what the allowance gives,
    rounded up to 16Mi, from 1Gi on to 256Mi and from 8Gi on to 1Gi, and then to a whole number of the declaration's
    unit. To declare less is suggested only to who was seen for an hour at least.
    """
    stand = _stand(usage)
    suggestion = _suggestion(usage) if stand not in (Stand.UNUSED, Stand.UNKNOWN, Stand.WHOLE, Stand.FITS) else None
    declares_less = suggestion is not None and stand is not Stand.MISDECLARED and suggestion.amount < _declared(usage)
    if usage.seen_s < _LITTLE_S and declares_less:
        suggestion = None
    return Advice(stand=stand, reason=_reason(usage, stand), suggestion=suggestion)


def _declared(usage: Usage) -> int:
    return usage.last.declared or 0


def _enough(usage: Usage) -> int:
    """The amount that would do, as people write one."""
    return max(round_up(usage.needed), round_up(1))


def _stand(usage: Usage) -> Stand:
    last, declared = usage.last, usage.last.declared
    if usage.seen_s <= 0:
        return Stand.UNUSED
    if usage.known_s <= 0 and not usage.over_s:
        return Stand.UNKNOWN
    if last.declared_by is None:
        return Stand.MISDECLARED if last.verdict is Verdict.MISDECLARED else Stand.NOTHING
    if usage.over_s > 0:
        return Stand.TOO_LITTLE
    if usage.declaration is None or usage.declaration[0].unit == "mig" or declared is None:
        return Stand.WHOLE
    return Stand.TOO_MUCH if declared >= _GENEROUS * _enough(usage) else Stand.FITS


def _suggestion(usage: Usage) -> Suggestion | None:
    if usage.declaration is None or usage.declaration[0].unit == "mig":
        return None
    declaration, key = usage.declaration
    enough = _enough(usage)
    number = number_of(usage.last, declaration, key, enough, _declared(usage))
    if number is None:
        return None
    amount = int(number * declaration.unit) if isinstance(declaration.unit, int) else enough
    allows = usage.allowance.allowed(amount, usage.contexts)
    return Suggestion(
        key=key,
        value=format_quantity(int(number)) if declaration.unit == 1 else plain_number(number),
        amount=amount,
        allows=allows,
        has_allowance=allows > amount,
        per_gpu=declaration.per == "gpu",
    )


def _reason(usage: Usage, stand: Stand) -> str:
    last, seen_s = usage.last, usage.seen_s
    by, over = inert(last.declared_by or ""), _share(usage.over_s, seen_s)
    reasons = {
        Stand.TOO_LITTLE: f"declares too little: was over its limit for {over} of the time",
        Stand.TOO_MUCH: f"declares {format_bytes(_declared(usage))}, {_declared(usage) / _enough(usage):.1f} times "
        "what is needed",
        Stand.FITS: "its declaration covers its peak, and is less than twice what is needed",
        Stand.NOTHING: "declares nothing",
        Stand.MISDECLARED: f"its declaration is invalid: {_misdeclared(usage)}",
        Stand.WHOLE: f"requests whole devices by {by}: there is no number to change",
        Stand.UNUSED: "held no GPU memory in this time",
        Stand.UNKNOWN: "its use is unknown: the driver did not report it",
    }
    reason = reasons[stand]
    if seen_s < _LITTLE_S and stand not in (Stand.UNUSED, Stand.UNKNOWN, Stand.WHOLE):
        less = ", too short to recommend declaring less" if stand is Stand.TOO_MUCH else ""
        reason += f"; seen for only {span(seen_s)}{less}"
    if usage.unknown_s > 0 and stand is not Stand.UNKNOWN:
        reason += f"; for {_share(usage.unknown_s, seen_s)} of the time its use is unknown, and may have been higher"
    return reason


def _misdeclared(usage: Usage) -> str:
    said = [f"{skipped.source}: {skipped.why}" for skipped in usage.last.misdeclarations]
    return inert("; ".join(said) or "a total and an amount per GPU, or one amount for several containers", 400)


def _share(part_s: float, whole_s: float) -> str:
    percent = 100 * part_s / whole_s if whole_s else 0.0
    return "less than 1%" if percent < 1 else f"{percent:.0f}%"


_HOUR_S = 3600.0
# What somebody has to do something about comes first.
_ORDER = (
    Stand.TOO_LITTLE,
    Stand.MISDECLARED,
    Stand.NOTHING,
    Stand.TOO_MUCH,
    Stand.UNKNOWN,
    Stand.FITS,
    Stand.WHOLE,
    Stand.UNUSED,
)

Known = tuple[Workload, Usage, Advice]


def advised(usages: Mapping[Workload, Usage]) -> list[Known]:
    """Each workload with its advice, in the order in which they are told."""
    known = [(workload, usage, advise(usage)) for workload, usage in usages.items()]
    return sorted(known, key=lambda each: (_ORDER.index(each[2].stand), each[0].namespace, _key(each[0])))


def recommendation_document(known: list[Known]) -> list[dict[str, Any]]:
    """The workloads as JSON: amounts are bytes, times hours."""
    return [_document(workload, usage, advice) for workload, usage, advice in known]


def _document(workload: Workload, usage: Usage, advice: Advice) -> dict[str, Any]:
    has_peak = usage.known_s > 0 or usage.peak > 0
    suggestion = advice.suggestion
    return {
        "namespace": workload.namespace,
        "workload": {"kind": workload.kind, "name": workload.name},
        "container": workload.container,
        "pods": len(usage.pods),
        "seen_hours": _hours(usage.seen_s),
        "unknown_hours": _hours(usage.unknown_s),
        "idle_hours": _hours(usage.idle_s),
        "over_hours": _hours(usage.over_s),
        "p50_bytes": usage.percentile(50),
        "p99_bytes": usage.percentile(99),
        "peak_bytes": usage.peak if has_peak else None,
        "peak_is_at_least": usage.unknown_s > 0,
        "peak_per_gpu_bytes": usage.peak_per_gpu if has_peak else None,
        "declared_bytes": usage.last.declared,
        "declared_by": usage.last.declared_by,
        "declared_per": "gpu" if usage.per_gpu else "total",
        "stand": advice.stand.value,
        "reason": advice.reason,
        "suggested": None
        if suggestion is None
        else {
            "key": suggestion.key,
            "value": suggestion.value,
            "bytes": suggestion.amount,
            "allows": suggestion.allows,
            "per": "gpu" if suggestion.per_gpu else "total",
        },
    }


def _hours(seconds: float) -> float:
    return round(seconds / _HOUR_S, 4)


def _key(workload: Workload) -> tuple[str, str, str]:
    return (workload.kind, workload.name, workload.container or "")
