"""Where a pod declares GPU memory, or could, and which number it would write there."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import chain
from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.declare import CONTAINER
from watchdog.core.policy import Allowance, Declaration, Policy
from watchdog.core.units import format_quantity, parse_number

_GI: Final = 2**30
# The finest number of each unit that is written: KAI reads two decimals of a fraction, the others are whole numbers.
_FINEST: Final[Mapping[object, Fraction]] = {
    "percent": Fraction(1),
    "fraction": Fraction(1, 100),
    "share": Fraction(1),
}


def declaration_of(assessment: Assessment, policy: Policy) -> tuple[Declaration, str] | None:
    """The declaration that counted with its key as written; for a default, the first that the owner could use."""
    if assessment.declared_by == "default":
        return next(((each, each.key) for each in _usable(policy)), None)
    key = assessment.declared_by or ""
    return next(((each, key) for each in policy.declarations if _names(each, key, assessment)), None)


def declaration_for(assessment: Assessment, policy: Policy, container: str | None) -> tuple[Declaration, str] | None:
    """Likewise; an owner whose container is known could also use a key with that container's name in it."""
    found = declaration_of(assessment, policy)
    if found is not None or assessment.declared_by != "default" or container is None:
        return found
    keys = ((each, each.key.replace(CONTAINER, container)) for each in policy.declarations)
    return next(((each, key) for each, key in keys if _is_plain(key)), None)


def declare_by(policy: Policy) -> str | None:
    """The key by which a pod that declares nothing could do so; None: the policy has only patterns, or nothing."""
    return next((each.key for each in _usable(policy)), None)


def _usable(policy: Policy) -> list[Declaration]:
    """The declarations whose key can be copied, the plainest first: an amount for all GPUs together."""
    usable = [each for each in policy.declarations if _is_plain(each.key)]
    return sorted(usable, key=lambda each: not (isinstance(each.unit, int) and each.per == "total"))


def _is_plain(key: str) -> bool:
    return not set("*?{") & set(key)


def _names(declaration: Declaration, key: str, assessment: Assessment) -> bool:
    holders = [container.name for container in assessment.pod.containers]
    patterns = {declaration.key.replace(CONTAINER, name) for name in holders} or {declaration.key}
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def number_of(assessment: Assessment, declaration: Declaration, key: str, needed: int, base: int) -> Fraction | None:
    """How much to write in the declaration's unit; None where a unit that depends on the card can't be worked out.

    `base` is what the number that is written now comes to, in bytes.
    """
    return scaled(declaration, written(assessment, declaration, key).values(), needed, base)


def scaled(declaration: Declaration, numbers: Iterable[Fraction], needed: int, base: int) -> Fraction | None:
    """Likewise, of the numbers that are written now; only where one is can it be scaled."""
    if isinstance(declaration.unit, int):
        return Fraction(-(-needed // declaration.unit))
    known = tuple(numbers)
    if not base or len(known) != 1 or not known[0]:
        return None
    # By what the number comes to here, neither the size of the card nor its shares need be known.
    finest = _FINEST.get(declaration.unit, Fraction(1))
    steps = needed * known[0] / base / finest
    return -(-steps.numerator // steps.denominator) * finest


def written(assessment: Assessment, declaration: Declaration, key: str) -> dict[str, Fraction]:
    """The numbers under this key: by container those of the account or the pod; by "" an annotation or label."""
    pod, container = assessment.pod, assessment.account.container
    holders: Mapping[str, Mapping[str, str]] = {"": pod.annotations if declaration.kind == "annotation" else pod.labels}
    if declaration.kind == "resource":
        holders = {each.name: each.resources for each in pod.containers if container in (None, each.name)}
    found: dict[str, Fraction] = {}
    for name, holder in holders.items():
        try:
            if key in holder:
                found[name] = parse_number(holder[key])
        except ValueError:
            continue
    return found


def least(assessment: Assessment, declaration: Declaration, policy: Policy) -> int:
    """The bytes by which an account that declares nothing yet would be within, declared in this way."""
    allowance = declaration.allowance or policy.allowance
    by_gpu: dict[str, list[int]] = {}
    for use in assessment.uses:
        by_gpu.setdefault(use.gpu, []).append(use.used or 0)
    parts = list(by_gpu.values()) if declaration.per == "gpu" else [list(chain.from_iterable(by_gpu.values()))]
    return max((needed(sum(part), len(part), allowance) for part in parts), default=0)


def needed(used: int, contexts: int, allowance: Allowance) -> int:
    """The least declared amount with which so much is allowed."""
    given = allowance.per_context * min(contexts, allowance.max_contexts)
    share = 1 + allowance.percent
    # What is allowed is this amount times the share, rounded down: rounded up here, it is enough.
    return max(-(-(used - given) * share.denominator // share.numerator), 0)


def unit_words(declaration: Declaration) -> str:
    """What the number 1 stands for under a declaration, as a clause: `1 stands for 1Mi on each GPU`."""
    if isinstance(declaration.unit, int):
        stands = "1 byte, and 8Gi can be written" if declaration.unit == 1 else format_quantity(declaration.unit)
        return f"1 stands for {stands}{' on each GPU' if declaration.per == 'gpu' else ''}"
    card = "each card" if declaration.per == "gpu" else "a card"
    return {
        "percent": f"the number is a percentage of {card}",
        "fraction": f"the number is a fraction of {card}, like 0.5",
        "share": "the number is how many shares of a card",
        "mig": "the number is how many MIG instances",
    }[declaration.unit]


def plain_number(number: Fraction) -> str:
    """A number as people write it, without an exponent where it is whole."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"


def amount_to_write(amount: int) -> str:
    """An amount as a pod can declare it, in the unit in which people read what it uses: `5.75Gi`, not `5888Mi`."""
    quarters, rest = divmod(amount * 4, _GI)
    if amount < _GI or rest:
        return format_quantity(amount)
    return f"{quarters // 4}{('', '.25', '.5', '.75')[quarters % 4]}Gi"


def round_up(amount: int) -> int:
    """An amount as people write one: whole Gi from 8Gi on, quarters of it from 1Gi on, 16Mi below."""
    step = _GI if amount >= 8 * _GI else _GI // 4 if amount >= _GI else _GI // 64
    return -(-amount // step) * step
