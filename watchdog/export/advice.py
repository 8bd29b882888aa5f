"""What the owner of a pod can change: how much to declare, in the unit in which it is written."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final

from watchdog.core.findings import Assessment
from watchdog.core.policy import Declaration, Policy
from watchdog.core.units import format_quantity, parse_number
from watchdog.export.phrases import inert

_GI: Final = 2**30
# The finest number of each unit that is written: KAI reads two decimals of a fraction, the others are whole numbers.
_FINEST: Final[Mapping[object, Fraction]] = {
    "percent": Fraction(1),
    "fraction": Fraction(1, 100),
    "share": Fraction(1),
}
_WHOLE_CARD: Final[Mapping[object, int]] = {"percent": 100, "fraction": 1}
_LESS: Final = "use less GPU memory or"


def advice(assessment: Assessment, policy: Policy, *, under_pressure: bool = False) -> str:
    """What to do so that an account is within, as a clause: `use less GPU memory or declare more: ...`.

    Its number can be copied into the pod's spec. For a step under pressure what was requested is what counts, not a
    limit that the tenant named above it.
    """
    allowed, declared = assessment.allowed, assessment.declared
    if under_pressure and assessment.allowed_by_request is not None:
        allowed, declared = assessment.allowed_by_request, assessment.requested
    if allowed is None or declared is None or assessment.used_at_least <= allowed:
        return f"{_LESS} declare more"
    needed = round_up(declared + assessment.used_at_least - allowed)
    found = declaration_of(assessment, policy)
    if found is not None and found[0].unit != "mig":
        return _declare_more(assessment, *found, needed, declared, is_limit_told=not under_pressure)
    if assessment.declared_by not in (None, "default") and ", " not in (assessment.declared_by or ""):
        # A whole card or MIG instance is what it is: there is no number to raise.
        return f"{_LESS} ask for more or larger GPUs than its {inert(assessment.declared_by or '')}"
    return f"{_LESS} declare at least {format_quantity(needed)}"


def _declare_more(
    assessment: Assessment, declaration: Declaration, key: str, needed: int, declared: int, *, is_limit_told: bool
) -> str:
    # Beside a limit that the tenant has named, what is written under the key is the request.
    base = declared if assessment.requested is None else assessment.requested
    number = number_of(assessment, declaration, key, needed, base)
    if number is None:
        return f"{_LESS} declare more: a larger {inert(key)}"
    if declaration.per == "gpu" and number > _WHOLE_CARD.get(declaration.unit, number):
        return f"{_LESS} ask for a whole card: it needs more than {inert(key)} can give"
    together = " over its containers together" if _declaring(assessment, declaration, key) > 1 else ""
    text = format_quantity(int(number)) if declaration.unit == 1 else plain_number(number)
    each = " on each GPU" if declaration.per == "gpu" else ""
    limit = ""
    if is_limit_told and declaration.limit_annotation:
        container = assessment.account.container or "CONTAINER"
        annotation = inert(declaration.limit_annotation.replace("{container}", container))
        limit = f", or name that much as its limit in the annotation {annotation}"
    return f"{_LESS} declare more: {inert(key)} of at least {text}{each}{together}{limit}"


def number_of(assessment: Assessment, declaration: Declaration, key: str, needed: int, base: int) -> Fraction | None:
    """How much to write in the declaration's unit; None where a unit that depends on the card can't be worked out.

    `base` is what the number that is written now comes to, in bytes.
    """
    if isinstance(declaration.unit, int):
        return Fraction(-(-needed // declaration.unit))
    written = _written(assessment, declaration, key)
    if not base or len(written) != 1 or not written[0]:
        return None
    # By what the number comes to here, neither the size of the card nor its shares need be known.
    finest = _FINEST.get(declaration.unit, Fraction(1))
    steps = needed * written[0] / base / finest
    return -(-steps.numerator // steps.denominator) * finest


def _declaring(assessment: Assessment, declaration: Declaration, key: str) -> int:
    return len(_written(assessment, declaration, key)) if assessment.account.container is None else 1


def _written(assessment: Assessment, declaration: Declaration, key: str) -> list[Fraction]:
    """The numbers under this key, of each container of the account or of the pod."""
    pod, container = assessment.pod, assessment.account.container
    holders: list[Mapping[str, str]] = [pod.annotations if declaration.kind == "annotation" else pod.labels]
    if declaration.kind == "resource":
        holders = [each.resources for each in pod.containers if container in (None, each.name)]
    found = []
    for holder in holders:
        try:
            found += [parse_number(holder[key])] if key in holder else []
        except ValueError:
            continue
    return found


def declaration_of(assessment: Assessment, policy: Policy) -> tuple[Declaration, str] | None:
    """The declaration that counted with its key as written; for a default, the first that the owner could use."""
    if assessment.declared_by == "default":
        return next(((each, each.key) for each in _usable(policy)), None)
    key = assessment.declared_by or ""
    return next(((each, key) for each in policy.declarations if _names(each, key, assessment)), None)


def declare_by(policy: Policy) -> str | None:
    """The key by which a pod that declares nothing could do so; None: the policy has only patterns, or nothing."""
    return next((each.key for each in _usable(policy)), None)


def _usable(policy: Policy) -> list[Declaration]:
    """The declarations whose key can be copied, the plainest first: an amount for all GPUs together."""
    usable = [each for each in policy.declarations if not set("*?{") & set(each.key)]
    return sorted(usable, key=lambda each: not (isinstance(each.unit, int) and each.per == "total"))


def _names(declaration: Declaration, key: str, assessment: Assessment) -> bool:
    holders = [container.name for container in assessment.pod.containers]
    patterns = {declaration.key.replace("{container}", name) for name in holders} or {declaration.key}
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def plain_number(number: Fraction) -> str:
    """A number as people write it, without an exponent where it is whole."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"


def round_up(amount: int) -> int:
    """An amount as people write one: whole Gi from 8Gi on, quarters of it from 1Gi on, 16Mi below."""
    step = _GI if amount >= 8 * _GI else _GI // 4 if amount >= _GI else _GI // 64
    return -(-amount // step) * step
