"""What the owner of a pod can write, and where: the keys that a policy reads, and the figure that would be enough."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import chain
from typing import Final, assert_never

from watchdog.core.amount import Cards
from watchdog.core.assessment import Assessment
from watchdog.core.declare import CONTAINER
from watchdog.core.model import ContainerKind, Gpu
from watchdog.core.policy import Allowance, Declaration, Policy
from watchdog.core.units import format_bytes, format_quantity, parse_number
from watchdog.report.text import inert

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
    """What the number 1 stands for under a declaration, as a clause: `1 means 1Mi on each GPU`."""
    if isinstance(declaration.unit, int):
        stands = "1 byte, and suffixes like 8Gi work" if declaration.unit == 1 else format_quantity(declaration.unit)
        return f"1 means {stands}{' on each GPU' if declaration.per == 'gpu' else ''}"
    card = "each card" if declaration.per == "gpu" else "a card"
    match declaration.unit:
        case "percent":
            return f"the number is a percentage of {card}"
        case "fraction":
            return f"the number is a fraction of {card}, like 0.5"
        case "share":
            return "the number is a count of shares of a GPU"
        case "mig":
            return "the number is how many MIG instances"
        case _:
            assert_never(declaration.unit)


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


_WHOLE_CARD: Final[dict[object, int]] = {"percent": 100, "fraction": 1}
_LESS: Final = "use less GPU memory or"
_MI: Final = 2**20


def advice(
    assessment: Assessment,
    policy: Policy,
    *,
    under_pressure: bool = False,
    gpus: Iterable[Gpu] = (),
) -> str:
    """What to do so that an account is within, as a clause: `use less GPU memory or declare more: set ... to ...`.

    Its key and number can be copied into the pod's definition. For a step under pressure what was requested is what
    counts, not a limit that the tenant named above it. More than the node's `gpus` have is not asked for, where they
    are given.
    """
    allowed, declared = assessment.allowed, assessment.declared
    if under_pressure and assessment.allowed_by_request is not None:
        allowed, declared = assessment.allowed_by_request, assessment.requested
    is_new, container = assessment.declared_by == "default", _declarer(assessment)
    found = declaration_for(assessment, policy, container)
    if found is not None and found[0].unit != "mig" and not (is_new and _is_ephemeral(assessment)):
        top_options = _Wish(assessment, *found, container)
        if allowed is None or declared is None or assessment.used_at_least <= allowed:
            return f"{_LESS} declare more" if is_new else f"{_LESS} declare more: raise {top_options.place}"
        missing = least(assessment, found[0], policy) if is_new else assessment.used_at_least - allowed
        return top_options.told(declared, missing, Cards(gpus=tuple(gpus)), under_pressure=under_pressure)
    if allowed is None or declared is None or assessment.used_at_least <= allowed:
        return f"{_LESS} declare more"
    if is_new:
        return _without_a_key(assessment, declared, policy)
    if ", " not in (assessment.declared_by or ""):
        # A whole card or MIG instance is what it is: there is no number to raise.
        return f"{_LESS} ask for more or larger GPUs than its {inert(assessment.declared_by or '')}"
    needed = round_up(declared + assessment.used_at_least - allowed)
    more = ", and the allowance is added to this" if needed < assessment.used_at_least else ""
    return f"{_LESS} declare at least {amount_to_write(needed)} in all{more}"


def _without_a_key(assessment: Assessment, declared: int, policy: Policy) -> str:
    use = f"use {'less' if declared else 'no'} GPU memory"
    if _is_ephemeral(assessment):
        return f"{use}: a container of `kubectl debug` can't declare any"
    if policy.declarations:
        first = policy.declarations[0]
        return f"{use} or declare what it needs with a {first.kind} matching {inert(first.key)}"
    return f"{use}: no key in this cluster lets a pod declare {'more' if declared else 'any'}"


def _is_ephemeral(assessment: Assessment) -> bool:
    return assessment.account.container in _ephemeral(assessment)


def _ephemeral(assessment: Assessment) -> frozenset[str]:
    """The containers that can't have resources (kubectl debug)."""
    return frozenset(each.name for each in assessment.pod.containers if each.kind is ContainerKind.EPHEMERAL)


def _declarer(assessment: Assessment) -> str | None:
    """The container of the account that is furthest above what it declares itself; the pod's only one; or None."""
    if assessment.account.container is not None:
        return assessment.account.container or None
    barred = _ephemeral(assessment)
    above = {each.container: each.used_at_least - each.declared for each in assessment.shares if each.container}
    able = [name for name in sorted(above) if name not in barred]
    if able:
        return max(able, key=lambda name: above[name])
    containers = [each.name for each in assessment.pod.containers if each.name not in barred]
    return containers[0] if len(containers) == 1 else None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A declaration of an account under a key, which counted or could count, to be made larger.

    `container` is the one that it would be written for, where that is to be chosen.
    """

    assessment: Assessment
    declaration: Declaration
    key: str
    container: str | None

    @property
    def place(self) -> str:
        """Where it stands: `resources.limits["veriff.com/gpu-memory"] of container main`."""
        key = inert(self.key)
        if self.declaration.kind != "resource":
            return f"the pod's {self.declaration.kind} {key}"
        whose = "its containers" if self._holder is None else f"container {inert(self._holder)}"
        return f'resources.limits["{key}"] of {whose}'

    def told(self, declared: int, missing: int, cards: Cards, *, under_pressure: bool) -> str:
        """What to set it to, as a clause, where `missing` bytes more than it comes to are needed.

        `declared` are the bytes that hold now, by it or by a default.
        """
        verb = f"{_LESS} declare more:"
        if self._is_new:
            verb = f"{_LESS if declared else 'use no GPU memory or'} declare what it needs:"
        number = self._number(0 if self._is_new else declared, missing, cards)
        each = " for each GPU" if self.declaration.per == "gpu" else ""
        unit = f", where {unit_words(self.declaration)}" if self._is_new and self.declaration.unit != 1 else ""
        if number is None:
            return f"{verb} {'set' if self._is_new else 'raise'} {self.place}{unit}"
        if each and number > _WHOLE_CARD.get(self.declaration.unit, number):
            return f"{_LESS} ask for a whole GPU: it needs more than {inert(self.key)} can give"
        text = amount_to_write(int(number)) if self.declaration.unit == 1 else plain_number(number)
        # Values of annotations and labels are texts: YAML takes a bare number for something else.
        text = text if self.declaration.kind == "resource" else f'"{text}"'
        also = self._or_limit() if not under_pressure else ""
        together = " together" if self._holder is None and len(self._numbers) > 1 else ""
        text += self._in_bytes(number, declared)
        return f"{verb} set {self.place} to at least {text}{unit or each}{together}{also}"

    def _in_bytes(self, number: Fraction, declared: int) -> str:
        """What the number comes to, in the unit of what is used, and why it may be less than that."""
        if not isinstance(self.declaration.unit, int):
            return ""
        amount, used = int(number * self.declaration.unit), self.assessment.used_at_least
        is_plain = self.declaration.unit == 1 and amount_to_write(amount).endswith(format_bytes(amount)[-2:])
        said = [] if is_plain else [format_bytes(amount)]
        if amount < used:
            is_part = bool(self._own) and self._own.get(self._holder or "", declared) < declared
            parts = ["what its other containers declare"] * is_part
            parts += ["the allowance"] * (self._is_new or (self.assessment.allowed or 0) > declared)
            said += [f"{' and '.join(parts)} {'are' if len(parts) > 1 else 'is'} added to this"] if parts else []
        return f" ({'; '.join(said)})" if said else ""

    @property
    def _is_in_gi(self) -> bool:
        return self.declaration.unit == 1 and self.assessment.used_at_least >= _GI

    @property
    def _is_new(self) -> bool:
        return self.assessment.declared_by == "default"

    @property
    def _numbers(self) -> dict[str, Fraction]:
        return {} if self._is_new else written(self.assessment, self.declaration, self.key)

    @property
    def _own(self) -> dict[str, int]:
        """What each container's part comes to, where several declare and no limit of the pod is put over that."""
        if len(self._numbers) < 2 or self.assessment.requested is not None:
            return {}
        return {each.container: each.declared for each in self.assessment.shares if each.container in self._numbers}

    @property
    def _holder(self) -> str | None:
        """Whose number to raise: of the one container that declares, or of the one furthest above what it declares."""
        if len(self._numbers) == 1:
            return next(iter(self._numbers)) or None
        return self.container if len(self._numbers) == 0 or self.container in self._own else None

    def _number(self, declared: int, missing: int, cards: Cards) -> Fraction | None:
        """The number to write; rounded as people write one, as long as the node's cards have that much."""
        own, numbers = self._own.get(self._holder or "", declared), self._numbers
        if self._holder in numbers:
            numbers = {self._holder: numbers[self._holder]}
        exact = own + missing
        wanted = round_up(max(exact, _GI if self._is_in_gi and exact > _GI // 2 else 1))
        room = cards.largest if self.declaration.per == "gpu" else cards.total_size
        if room is not None and wanted > room >= exact:
            wanted = min(-(-exact // _MI) * _MI, room)
        base = self.assessment.requested if self.assessment.requested is not None else own
        return scaled(self.declaration, numbers.values(), wanted, base)

    def _or_limit(self) -> str:
        annotation = self.declaration.limit_annotation
        if not annotation or self._is_new or len(self._numbers) != 1:
            return ""
        name = inert(annotation.replace(CONTAINER, self._holder or "CONTAINER"))
        return f", or set the pod's annotation {name} to that amount"
