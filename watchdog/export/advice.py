"""What the owner of a pod can change: which key of which container to set, and to what, in the unit in which it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from watchdog.core.amount import Cards
from watchdog.core.assessment import Assessment
from watchdog.core.declare import CONTAINER
from watchdog.core.model import ContainerKind, Gpu
from watchdog.core.policy import Declaration, Policy
from watchdog.core.units import format_bytes
from watchdog.export.declaring import (
    amount_to_write,
    declaration_for,
    least,
    plain_number,
    round_up,
    scaled,
    unit_words,
    written,
)
from watchdog.export.phrases import LONGEST_NAME, inert

_WHOLE_CARD: Final[dict[object, int]] = {"percent": 100, "fraction": 1}
_LESS: Final = "use less GPU memory or"
_MI: Final = 2**20
_GI: Final = 2**30


def advice(
    assessment: Assessment,
    policy: Policy,
    *,
    under_pressure: bool = False,
    gpus: Iterable[Gpu] = (),
    limit: int = LONGEST_NAME,
) -> str:
    """What to do so that an account is within, as a clause: `use less GPU memory or declare more: set ... to ...`.

    Its key and number can be copied into the pod's definition. For a step under pressure what was requested is what
    counts, not a limit that the tenant named above it. More than the node's `gpus` have is not asked for, where they
    are given. Names have at most `limit` characters.
    """
    allowed, declared = assessment.allowed, assessment.declared
    if under_pressure and assessment.allowed_by_request is not None:
        allowed, declared = assessment.allowed_by_request, assessment.requested
    is_new, container = assessment.declared_by == "default", _declarer(assessment)
    found = declaration_for(assessment, policy, container)
    if found is not None and found[0].unit != "mig" and not (is_new and _is_ephemeral(assessment)):
        wish = _Wish(assessment, *found, container, limit)
        if allowed is None or declared is None or assessment.used_at_least <= allowed:
            return f"{_LESS} declare more" if is_new else f"{_LESS} declare more: raise {wish.place}"
        missing = least(assessment, found[0], policy) if is_new else assessment.used_at_least - allowed
        return wish.told(declared, missing, Cards(gpus=tuple(gpus)), under_pressure=under_pressure)
    if allowed is None or declared is None or assessment.used_at_least <= allowed:
        return f"{_LESS} declare more"
    if is_new:
        return _without_a_key(assessment, declared, policy, limit)
    if ", " not in (assessment.declared_by or ""):
        # A whole card or MIG instance is what it is: there is no number to raise.
        return f"{_LESS} ask for more or larger GPUs than its {inert(assessment.declared_by or '', limit)}"
    needed = round_up(declared + assessment.used_at_least - allowed)
    more = ", and the allowance comes on top" if needed < assessment.used_at_least else ""
    return f"{_LESS} declare at least {amount_to_write(needed)} in all{more}"


def _without_a_key(assessment: Assessment, declared: int, policy: Policy, limit: int) -> str:
    use = f"use {'less' if declared else 'no'} GPU memory"
    if _is_ephemeral(assessment):
        return f"{use}: a container of `kubectl debug` can't declare any"
    if policy.declarations:
        first = policy.declarations[0]
        return f"{use} or declare what it needs: by a {first.kind} named like {inert(first.key, limit)}"
    return f"{use}: there is no key here by which a pod could declare {'more' if declared else 'some'}"


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
    limit: int

    @property
    def place(self) -> str:
        """Where it stands: `resources.limits["veriff.com/gpu-memory"] of container main`."""
        key = inert(self.key, self.limit)
        if self.declaration.kind != "resource":
            return f"the pod's {self.declaration.kind} {key}"
        whose = "its containers" if self._holder is None else f"container {inert(self._holder, self.limit)}"
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
            return f"{_LESS} ask for a whole GPU: it needs more than {inert(self.key, self.limit)} can give"
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
            said += [f"{' and '.join(parts)} {'come' if len(parts) > 1 else 'comes'} on top"] if parts else []
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
        room = cards.largest if self.declaration.per == "gpu" else cards.together
        if room is not None and wanted > room >= exact:
            wanted = min(-(-exact // _MI) * _MI, room)
        base = self.assessment.requested if self.assessment.requested is not None else own
        return scaled(self.declaration, numbers.values(), wanted, base)

    def _or_limit(self) -> str:
        annotation = self.declaration.limit_annotation
        if not annotation or self._is_new or len(self._numbers) != 1:
            return ""
        name = inert(annotation.replace(CONTAINER, self._holder or "CONTAINER"), self.limit)
        return f", or name that much as its limit in the pod's annotation {name}"
