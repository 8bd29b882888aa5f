"""What the owner of a pod can declare, and where: the keys that a policy reads, and the amount that suffices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import chain
from typing import Final, Literal

from watchdog.core.amount import Cards, is_checked
from watchdog.core.assessment import Assessment
from watchdog.core.declare import CONTAINER
from watchdog.core.model import Claim, ClaimedDevice, ContainerKind, Gpu, Node
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy, Special
from watchdog.core.rules import has_labels
from watchdog.core.units import brief, format_bytes, format_quantity, parse_number
from watchdog.report.text import inert

_GI: Final = 2**30
# The values of `declared_by` of an account for which nothing is declared.
_NOT_DECLARED: Final = ("default", None)
# The step between two numbers of a unit: KAI reads two decimals of a fraction, the others are whole numbers.
_FINEST: Final[Mapping[object, Fraction]] = {
    "percent": Fraction(1),
    "fraction": Fraction(1, 100),
    "share": Fraction(1),
}


def declaration_of(assessment: Assessment, policy: Policy) -> tuple[Declaration, str] | None:
    """The declaration that applies with its key as written; for a default, the first that the owner could use."""
    if assessment.declared_by == "default":
        return next(((usable, usable.key) for usable in _usable(policy)), None)
    key = assessment.declared_by or ""
    names = [container.name for container in assessment.pod.containers]
    for declaration in policy.declarations:
        patterns = {declaration.key.replace(CONTAINER, name) for name in names} or {declaration.key}
        if any(fnmatchcase(key, pattern) for pattern in patterns):
            return declaration, key
    return None


def _declaration_for(
    assessment: Assessment, policy: Policy, container: str | None, node: Node | None
) -> tuple[Declaration, str] | None:
    """The result of `declaration_of`; an owner whose container is known can also use a key with its name in it."""
    if assessment.declared_by not in _NOT_DECLARED:
        return declaration_of(assessment, policy)
    usable = next(iter(_usable(policy, node)), None)
    if usable is not None:
        return usable, usable.key
    if container is None:
        return None
    keys = ((declaration, declaration.key.replace(CONTAINER, container)) for declaration in policy.declarations)
    return next((pair for pair in keys if _is_plain(pair[1])), None)


def declare_by(policy: Policy, node: Node | None = None) -> str | None:
    """The key by which a pod that declares nothing could do so; None: the policy has only patterns, or nothing."""
    return next((usable.key for usable in _usable(policy, node)), None)


def _usable(policy: Policy, node: Node | None = None) -> list[Declaration]:
    """The declarations whose key can be copied; first what the node has, and the plainest: an amount for all GPUs."""
    usable = [
        each for each in policy.declarations if _is_plain(each.key) and not (each.wrong_unit or each.counts_devices)
    ]

    def rank(plain: Declaration) -> tuple[bool, bool]:
        has = node is None or _has(node, plain, policy)
        return not has, not (isinstance(plain.unit, int) and plain.per == "total")

    return sorted(usable, key=rank)


def _has(node: Node, declaration: Declaration, policy: Policy) -> bool:
    """Whether a declaration applies on a node, and its resource, if it is one, can be requested there."""
    is_advertised = policy.capacity is not None and policy.capacity.resource == declaration.resource
    is_there = declaration.resource is None or is_advertised or is_checked(declaration.resource, node)
    return is_there and bool(has_labels(declaration.node_labels, node.labels))


def _is_plain(key: str) -> bool:
    return not set("*?{") & set(key)


def number_of(assessment: Assessment, declaration: Declaration, key: str, needed: int, base: int) -> Fraction | None:
    """The number to write in the declaration's unit; None if it depends on the card and can't be worked out.

    `base` is what the number that is written now amounts to, in bytes.
    """
    return _scaled(declaration, _written(assessment, declaration, key).values(), needed, base)


def _scaled(declaration: Declaration, numbers: Iterable[Fraction], needed: int, base: int) -> Fraction | None:
    """The number to write, from the numbers that are written now; only a single one can be scaled."""
    if isinstance(declaration.unit, int):
        return Fraction(-(-needed // declaration.unit))
    known = tuple(numbers)
    if not base or len(known) != 1 or not known[0]:
        return None
    # Relative to what the number amounts to here, neither the size of the card nor its shares need be known.
    finest = _FINEST.get(declaration.unit, Fraction(1))
    steps = needed * known[0] / base / finest
    return -(-steps.numerator // steps.denominator) * finest


def _written(assessment: Assessment, declaration: Declaration, key: str) -> dict[str, Fraction]:
    """The numbers under a key: a resource by container, of the account or of the pod; an annotation or label by ""."""
    pod, container = assessment.pod, assessment.account.container
    holders: Mapping[str, Mapping[str, str]] = {"": pod.annotations if declaration.kind == "annotation" else pod.labels}
    if declaration.kind == "resource":
        holders = {holder.name: holder.resources for holder in pod.containers if container in (None, holder.name)}
    found: dict[str, Fraction] = {}
    for name, values in holders.items():
        try:
            if key in values:
                found[name] = parse_number(values[key])
        except ValueError:
            continue
    return found


def _least(assessment: Assessment, allowance: Allowance, *, per_gpu: bool) -> int:
    """The bytes that an account without a declaration has to declare to be within its limit, on each GPU or in all."""
    by_gpu: dict[str, list[int]] = {}
    for use in assessment.uses:
        by_gpu.setdefault(use.gpu, []).append(use.used_at_least)
    parts = list(by_gpu.values()) if per_gpu else [list(chain.from_iterable(by_gpu.values()))]
    return max((needed(sum(part), len(part), allowance) for part in parts), default=0)


def needed(used: int, contexts: int, allowance: Allowance) -> int:
    """The least declared amount that allows this much use."""
    given = allowance.per_context * min(contexts, allowance.max_contexts)
    share = 1 + allowance.percent
    # What is allowed is this amount times the share, rounded down: rounded up here, it is enough.
    return max(-(-(used - given) * share.denominator // share.numerator), 0)


def unit_words(declaration: Declaration) -> str:
    """What the number 1 means under a declaration, as a clause: `1 means 1Mi on each GPU`."""
    if isinstance(declaration.unit, int):
        one = "1 byte, and suffixes like 8Gi work" if declaration.unit == 1 else format_quantity(declaration.unit)
        return f"1 means {one}{' on each GPU' if declaration.per == 'gpu' else ''}"
    card = "each card" if declaration.per == "gpu" else "a card"
    words: dict[Special, str] = {
        "percent": f"the number is a percentage of {card}",
        "fraction": f"the number is a fraction of {card}, like 0.5",
        "share": "the number is a count of shares of a GPU",
        "cards": f"{f'{declaration.of} make' if declaration.of else '1 means'} a whole GPU",
        "mig": "the number is how many MIG instances",
        "named": "the number is a count of slices of the size in the name",
    }
    return words[declaration.unit]


def plain_number(number: Fraction) -> str:
    """A number as people write it; a whole one without an exponent."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"


def _amount_to_write(amount: int) -> str:
    """An amount as a pod can declare it, in the unit of the reported use: `5.75Gi`, not `5888Mi`."""
    quarters, rest = divmod(amount * 4, _GI)
    if amount < _GI or rest:
        return format_quantity(amount)
    return f"{quarters // 4}{('', '.25', '.5', '.75')[quarters % 4]}Gi"


def round_up(amount: int) -> int:
    """An amount rounded as people write one: whole Gi from 8Gi on, quarters from 1Gi on, multiples of 16Mi below."""
    step = _GI if amount >= 8 * _GI else _GI // 4 if amount >= _GI else _GI // 64
    return -(-amount // step) * step


_WHOLE_CARD: Final[dict[object, int]] = {"percent": 100, "fraction": 1}
_LESS: Final = "use less GPU memory or"
_MI: Final = 2**20
_MOST_PLACES: Final = 20  # of thousands that a tenant can write


def advice(
    assessment: Assessment,
    policy: Policy,
    *,
    under_pressure: bool = False,
    gpus: Iterable[Gpu] = (),
    node: Node | None = None,
) -> str:
    """How to get an account within its limit, as a clause: `use less GPU memory or declare more: set ... to ...`.

    Its key and number can be copied into the pod's definition. For a step under pressure the request is what counts,
    not a limit above it. If the node's `gpus` are given, no more than they have is asked for; if the `node` is, a key
    that it has is preferred.
    """
    allowed, declared = assessment.allowed, assessment.declared
    if under_pressure and assessment.allowed_by_request is not None:
        allowed, declared = assessment.allowed_by_request, assessment.requested
    is_over = allowed is not None and declared is not None and assessment.compared > allowed
    is_new, container = assessment.declared_by == "default", _declarer(assessment)
    shared = _open_share(assessment) if is_new and is_over else None
    if shared is not None:
        least = round_up(max(_least(assessment, policy.allowance, per_gpu=True), 1))
        use = _LESS if declared else "use no GPU memory or"
        return f"{use} make the pod again with {_asked(*shared)} of at least {_amount_to_write(least)}"
    found = _declaration_for(assessment, policy, container, node) if assessment.declared_by is not None else None
    if found is not None and not found[0].counts_devices and not (is_new and _is_ephemeral(assessment)):
        raised = _RaisedDeclaration(assessment, *found, container)
        if allowed is None or declared is None or not is_over:
            return f"{_LESS} declare more" if is_new else f"{_LESS} declare more: raise {raised.place}"
        allowance, per_gpu = found[0].allowance or policy.allowance, found[0].per == "gpu"
        missing = _least(assessment, allowance, per_gpu=per_gpu) if is_new else assessment.compared - allowed
        return raised.clause(declared, missing, Cards(gpus=tuple(gpus)), under_pressure=under_pressure)
    if allowed is None or declared is None or not is_over:
        return f"{_LESS} declare more"
    enough = round_up(declared + assessment.compared - allowed)
    if is_new:
        return _without_a_key(assessment, declared, policy)
    return _raised_claim(assessment, enough) or _in_all(assessment, enough)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the owner of a pod can write so that its present use is within the limit."""

    kind: Literal["resource", "annotation", "label", "claim"]
    # Keys with their values; of a claim the request, and the amount that it needs.
    values: tuple[tuple[str, str], ...]
    # Of a resource its container; of a claim its name, or that of its template.
    name: str = ""
    # A template instead of a claim.
    is_template: bool = False


def to_write(assessment: Assessment, policy: Policy, node: Node, gpus: Iterable[Gpu] = ()) -> Written | None:
    """What is enough for an account that is over its limit, or declares nothing; None if no single line is.

    It has the number of `advice`. Where nothing is declared, and no limit is exceeded, it is what the account uses.
    """
    allowed, declared = assessment.allowed, assessment.declared
    is_new = assessment.declared_by in _NOT_DECLARED
    is_over = allowed is not None and declared is not None and assessment.compared > allowed
    if not (is_over or is_new) or not assessment.used_at_least:
        return None
    if is_new and (shared := _open_share(assessment)) is not None:
        return _of_claim(*shared, _least(assessment, policy.allowance, per_gpu=True))
    if not is_new and (shared := _claimed_share(assessment)) is not None:
        return _of_claim(*shared, (declared or 0) + assessment.compared - (allowed or 0))
    container = _declarer(assessment) or _largest(assessment)
    found = _declaration_for(assessment, policy, container, node)
    if found is None or found[0].counts_devices or (is_new and _is_ephemeral(assessment)):
        return None
    raised, allowance = _RaisedDeclaration(assessment, *found, container), found[0].allowance or policy.allowance
    allowance = allowance if is_over else NO_ALLOWANCE
    missing = _least(assessment, allowance, per_gpu=found[0].per == "gpu") if is_new else 0
    return raised.to_write(declared or 0, missing or assessment.compared - (allowed or 0), Cards(gpus=tuple(gpus)))


def _largest(assessment: Assessment) -> str | None:
    """The container that uses most, of those that can declare."""
    used: dict[str, int] = {}
    for use in assessment.uses:
        used[use.container or ""] = used.get(use.container or "", 0) + use.used_at_least
    able = used.keys() - _ephemeral(assessment) - {""}
    return max(sorted(able), key=used.__getitem__, default=None)


def _of_claim(claim: Claim, device: ClaimedDevice, least: int) -> Written:
    return Written(
        kind="claim",
        values=((device.request, _amount_to_write(round_up(max(least, 1)))),),
        name=claim.template or claim.name,
        is_template=bool(claim.template),
    )


def _in_all(assessment: Assessment, enough: int) -> str:
    if ", " not in (assessment.declared_by or ""):
        # A whole card or MIG instance has no number to raise.
        return f"{_LESS} ask for more or larger GPUs than its {inert(assessment.declared_by or '')}"
    more = ", and the allowance is added to this" if enough < assessment.used_at_least else ""
    return f"{_LESS} declare at least {_amount_to_write(enough)} in all{more}"


CLAIM_KEY: Final = "capacity.requests.memory"  # of a request of a ResourceClaim


def claimed_request(assessment: Assessment) -> tuple[str, str] | None:
    """The claim and its request whose amount counts, or would if it had one; None if anything else declares."""
    found = _claimed_share(assessment) or _open_share(assessment)
    return None if found is None else (found[0].name, _main_request(found[1]))


def _claimed_share(assessment: Assessment) -> tuple[Claim, ClaimedDevice] | None:
    """The one share of a card that declares, and its claim; None if anything else does."""
    found = _claimed_device(assessment, assessment.declared_by or "")
    return found if found is not None and found[1].memory else None


def _open_share(assessment: Assessment) -> tuple[Claim, ClaimedDevice] | None:
    """A share without an amount that could have had one, and its claim; None if the account has none."""
    found = _claimed_device(assessment, assessment.open_share)
    # What a claim consumes has every capacity of its device, also where it is 0.
    return found if found is not None and found[1].memory is not None else None


def _claimed_device(assessment: Assessment, source: str) -> tuple[Claim, ClaimedDevice] | None:
    """The device that a source like `claim NAME/REQUEST` is, and its claim; one with an amount before others."""
    every = [(claim, device) for claim in assessment.pod.claims.values() for device in claim.devices]
    own = [pair for pair in every if source == f"claim {brief(pair[0].name)}/{brief(pair[1].request)}"]
    return max(own, key=lambda pair: bool(pair[1].memory), default=None)


def _main_request(device: ClaimedDevice) -> str:
    """The request of a claim, without which of its alternatives was given."""
    return device.request.partition("/")[0]


def open_share(assessment: Assessment) -> str:
    """That a claim gave an account a share of a card without an amount, and what to add, as a clause; empty if not."""
    if not assessment.open_share:
        return ""
    text = f"{inert(assessment.open_share)} gives it a share of a card, but no amount of memory"
    found = _open_share(assessment)
    return f"{text}: to have one, make the pod again with {_asked(*found)}" if found is not None else text


def _asked(claim: Claim, device: ClaimedDevice) -> str:
    """What to ask for, up to an amount: `a ResourceClaim like c whose request gpu has capacity.requests.memory`."""
    kind = f"Template like {inert(claim.template)}" if claim.template else f" like {inert(claim.name)}"
    return f"a ResourceClaim{kind} whose request {inert(_main_request(device))} has {CLAIM_KEY}"


def _raised_claim(assessment: Assessment, least: int) -> str:
    """What to ask for instead of the share of a card that a claim gave; empty if anything else declares.

    A claim can't be changed once it has been given something (k8s.io/kubernetes/pkg/apis/resource/validation).
    """
    gpu = assessment.account.gpu
    if gpu is not None and not assessment.declared and (assessment.declared_by or "").startswith("claim "):
        return f"use no GPU memory on {inert(gpu)}: its claims gave it none there"
    found = _claimed_share(assessment)
    if found is None:
        return ""
    return f"{_LESS} make the pod again with {_asked(*found)} of at least {_amount_to_write(least)}"


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
    containers = assessment.pod.containers
    return frozenset(container.name for container in containers if container.kind is ContainerKind.EPHEMERAL)


def _declarer(assessment: Assessment) -> str | None:
    """The container of the account furthest above its own declaration; otherwise the pod's only one; or None."""
    if assessment.account.container is not None:
        return assessment.account.container or None
    barred = _ephemeral(assessment)
    above = {
        share.container: share.used_at_least - share.declared
        for share in assessment.shares
        if share.container and share.container not in barred
    }
    if above:
        return max(sorted(above), key=above.__getitem__)
    containers = [container.name for container in assessment.pod.containers if container.name not in barred]
    return containers[0] if len(containers) == 1 else None


def _place(kind: str, key: str, holder: str | None) -> str:
    """Where a key is: of a resource in which container, or in several (None)."""
    if kind != "resource":
        return f"the pod's {kind} {inert(key)}"
    whose = "its containers" if holder is None else f"container {inert(holder)}"
    return f'resources.limits["{inert(key)}"] of {whose}'


def declared_as(assessment: Assessment) -> tuple[tuple[str, str], ...]:
    """What applies to an account as it is written: each place, and the text there; of claims and defaults nothing."""
    pod, container = assessment.pod, assessment.account.container
    found: list[tuple[str, str]] = []
    for key in (assessment.declared_by or "").split(", "):
        own = [each for each in pod.containers if container in (None, each.name) and key in each.resources]
        found += [(_place("resource", key, each.name), each.resources[key]) for each in own]
        for kind, values in (("annotation", pod.annotations), ("label", pod.labels)):
            if not own and key in values:
                found.append((_place(kind, key, None), values[key]))
    return tuple(found[:_MOST_PLACES])


@dataclass(frozen=True, slots=True)
class _RaisedDeclaration:
    """A declaration under a key that applies or could apply to an account, to be raised."""

    assessment: Assessment
    declaration: Declaration
    key: str
    # The one that it would be written for, if that is a choice.
    container: str | None

    @property
    def place(self) -> str:
        """Where to write it: `resources.limits["veriff.com/gpu-memory"] of container main`."""
        return _place(self.declaration.kind, self.key, self._holder)

    def clause(self, declared: int, missing: int, cards: Cards, *, under_pressure: bool) -> str:
        """What to set it to, if it lacks `missing` bytes; `declared` are the bytes that count now."""
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
        text = self.written(number)
        # Values of annotations and labels are strings, and YAML parses a bare number as a number.
        text = text if self.declaration.kind == "resource" else f'"{text}"'
        also = self._or_limit() if not under_pressure else ""
        together = " together" if self._holder is None and len(self._numbers) > 1 else ""
        text += self._in_bytes(number, declared)
        return f"{verb} set {self.place} to at least {text}{unit or each}{together}{also}"

    def to_write(self, declared: int, missing: int, cards: Cards) -> Written | None:
        """The number of `clause`, under its key; None if it depends on what is not known, or is more than a card."""
        number = self._number(0 if self._is_new else declared, missing, cards)
        if number is None and self._is_new:
            number = self._part_of_card(missing, cards)
        most = _WHOLE_CARD.get(self.declaration.unit) if self.declaration.per == "gpu" else None
        is_together = self._holder is None and len(self._numbers) > 1
        if number is None or is_together or (most is not None and number > most):
            return None
        kind, key, text = self.declaration.kind, self.key, self.written(number)
        if kind == "resource":
            return None if self._holder is None else Written(kind=kind, values=((key, text),), name=self._holder)
        named = self.declaration.container_annotation
        is_named = bool(named) and self.container not in (None, self._first_container)
        values = ((key, text), *(((named, self.container or ""),) if is_named else ()))
        return Written(kind=kind, values=values)

    @property
    def _first_container(self) -> str | None:
        main = (each.name for each in self.assessment.pod.containers if each.kind is ContainerKind.MAIN)
        return next(main, None)

    def _part_of_card(self, needed: int, cards: Cards) -> Fraction | None:
        """Bytes as a percentage or a fraction of the smallest card that the account uses, rounded up."""
        whole, finest = _WHOLE_CARD.get(self.declaration.unit), _FINEST.get(self.declaration.unit, Fraction(1))
        sizes = [cards.size(uuid) for uuid in {use.gpu for use in self.assessment.uses}]
        if whole is None or None in sizes or not sizes:
            return None
        smallest = min(size or 0 for size in sizes)
        return -(-needed * whole // (smallest * finest)) * finest if smallest else None

    def written(self, number: Fraction) -> str:
        """A number as its key has it."""
        return _amount_to_write(int(number)) if self.declaration.unit == 1 else plain_number(number)

    def _in_bytes(self, number: Fraction, declared: int) -> str:
        """What the number amounts to, in the unit of the use, and why it may be less than the use."""
        if not isinstance(self.declaration.unit, int):
            return ""
        amount, used = int(number * self.declaration.unit), self.assessment.used_at_least
        is_plain = self.declaration.unit == 1 and _amount_to_write(amount).endswith(format_bytes(amount)[-2:])
        notes = [] if is_plain else [format_bytes(amount)]
        if amount < used:
            is_part = bool(self._own) and self._own.get(self._holder or "", declared) < declared
            parts = ["what its other containers declare"] * is_part
            parts += ["the allowance"] * (self._is_new or (self.assessment.allowed or 0) > declared)
            notes += [f"{' and '.join(parts)} {'are' if len(parts) > 1 else 'is'} added to this"] if parts else []
        return f" ({'; '.join(notes)})" if notes else ""

    @property
    def _is_new(self) -> bool:
        return self.assessment.declared_by in _NOT_DECLARED

    @property
    def _numbers(self) -> dict[str, Fraction]:
        return {} if self._is_new else _written(self.assessment, self.declaration, self.key)

    @property
    def _own(self) -> dict[str, int]:
        """What each container's part amounts to, if several declare and the pod has no limit above that."""
        if len(self._numbers) < 2 or self.assessment.requested is not None:
            return {}
        shares = self.assessment.shares
        return {share.container: share.declared for share in shares if share.container in self._numbers}

    @property
    def _holder(self) -> str | None:
        """Whose number to raise: that of the only container that declares, or of the one furthest above its own."""
        if len(self._numbers) == 1:
            return next(iter(self._numbers)) or None
        return self.container if len(self._numbers) == 0 or self.container in self._own else None

    def _number(self, declared: int, missing: int, cards: Cards) -> Fraction | None:
        """The number to write, rounded as people write one unless the node's cards have less than that."""
        own, numbers = self._own.get(self._holder or "", declared), self._numbers
        if self._holder in numbers:
            numbers = {self._holder: numbers[self._holder]}
        exact = own + missing
        is_in_gi = self.declaration.unit == 1 and self.assessment.used_at_least >= _GI
        wanted = round_up(max(exact, _GI if is_in_gi and exact > _GI // 2 else 1))
        room = cards.largest if self.declaration.per == "gpu" else cards.total_size
        if room is not None and wanted > room >= exact:
            wanted = min(-(-exact // _MI) * _MI, room)
        base = self.assessment.requested if self.assessment.requested is not None else own
        return _scaled(self.declaration, numbers.values(), wanted, base)

    def _or_limit(self) -> str:
        limit = next((limit for limit in self.declaration.limits if limit.unit is None), None)
        if limit is None or self._is_new or len(self._numbers) != 1:
            return ""
        name = inert(limit.key.replace(CONTAINER, self._holder or "CONTAINER"))
        return f", or set the pod's annotation {name} to that amount"
