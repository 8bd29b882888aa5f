"""What resource claims gave a container, on which card: shares of memory, and whole devices.

The scheduler has decided it; what a claim asked for says nothing (docs/declarations.md).
"""

from collections import defaultdict
from collections.abc import Container as Collected
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.amount import Cards
from watchdog.core.assessment import AccountKey, Assessment, SharedPart, Verdict
from watchdog.core.model import Claim, ClaimedDevice, Container, Pod
from watchdog.core.units import LARGEST, brief

_LONGEST_SOURCE: Final = 600
# A pod that was written down before its claims were.
_UNREAD: Final = Claim(name="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a claim: one device, or a share of one. Several containers, and pods, can hold the same part."""

    # The name of the claim, which several entries of a pod can have, and the place of the device in it.
    key: tuple[str, int]
    # The cards on which it may be; empty: not known. Several only if they have the same size.
    gpus: tuple[str, ...]
    # Its bytes; None: it is a share without an amount.
    size: int | None
    # Whether it is all of a device.
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the claims of a container gave it."""

    # `claim train/gpu`.
    source: str
    parts: tuple[Part, ...] = ()
    # Why that is not known, as a clause; empty if it is.
    unknown: str = ""
    # Whether it is known all the same that it gave a GPU.
    gave_gpu: bool = False

    @property
    def is_about_gpus(self) -> bool:
        """Whether it certainly gave a GPU, or a share of one."""
        return bool(self.parts) or self.gave_gpu

    @property
    def gives_amounts(self) -> bool:
        """Whether it gives any amount, or may do so."""
        return bool(self.unknown) or any(part.size is not None for part in self.parts)


def claimed_by(pod: Pod, container: Container, cards: Cards) -> Claimed | None:
    """What a container holds by claims; None if that is no GPU that the driver knows."""
    sources: dict[str, None] = {}
    parts: list[Part] = []
    for used in container.claims:
        entry, _, request = used.partition("/")
        claim = pod.claims.get(entry, _UNREAD if not pod.claims else None)
        if claim is None:
            continue  # beyond those that are read
        if claim.unknown:
            why = f"container {container.name} may have a GPU by the ResourceClaim {brief(claim.name or entry)}, and "
            return Claimed(source=f"claim {brief(claim.name or entry)}", unknown=why + claim.unknown)
        for number, device in enumerate(claim.devices):
            if request and device.request.partition("/")[0] != request:
                continue
            found = _part(device, (claim.name, number), cards)
            if isinstance(found, str):
                gave_gpu = not device.is_listed or _gpus(device, cards)[1]
                return Claimed(source=_source(claim.name, device), unknown=found, gave_gpu=gave_gpu)
            if found is not None:
                sources[_source(claim.name, device)] = None
                parts.append(found)
    distinct = {part.key: part for part in parts}
    return Claimed(source=brief(", ".join(sources), _LONGEST_SOURCE), parts=tuple(distinct.values())) if parts else None


def _source(claim: str, device: ClaimedDevice) -> str:
    return f"claim {brief(claim)}/{brief(device.request)}"


def _part(device: ClaimedDevice, key: tuple[str, int], cards: Cards) -> Part | str | None:
    """The part that a device is; None if it is no GPU of the driver's; why it is not known, as a clause."""
    gpus, is_gpu = _gpus(device, cards)
    if is_gpu and not gpus and any(gpu.parent == device.parent for gpu in cards.gpus):
        return f"none of the MIG instances of {device.parent} is known to be {device.name}"
    if device.is_listed and not is_gpu:
        # A network card has no UUID, whatever it calls its capacities.
        is_other = cards.complete or (device.uuid is None and device.parent is None)
        return None if is_other else f"{device.name} may be a card that can't be seen: {cards.why}"
    if device.memory or device.is_shared:
        return Part(key=key, gpus=gpus, size=min(device.memory, LARGEST) if device.memory else None)
    if not device.is_listed:
        return f"the ResourceSlices of this node do not list {device.name}, which is all its own"
    sizes = [cards.size(gpu) for gpu in gpus] or [device.size]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return f"the size of {device.name} is not known"
    return Part(key=key, gpus=gpus, size=min(known), is_whole=True)


def _gpus(device: ClaimedDevice, cards: Cards) -> tuple[tuple[str, ...], bool]:
    """The cards that a device may be, and whether it is one of the driver's.

    A MIG instance that is made when its pod starts has no UUID before that; its card has.
    """
    named = tuple(gpu.uuid for gpu in cards.gpus if gpu.uuid == device.uuid)
    if named or device.parent is None:
        return named, bool(named)
    alike = tuple(gpu.uuid for gpu in cards.instances(device.parent, device.profile))
    return alike, bool(alike) or device.parent in cards.parents or any(g.parent == device.parent for g in cards.gpus)


def parts_of(claimed: Iterable[Claimed], gpu: str | None) -> tuple[Part, ...]:
    """The distinct parts that several containers hold on a card (None: on any); where one is may not be known."""
    parts = {part.key: part for each in claimed for part in each.parts}
    return tuple(part for part in parts.values() if gpu is None or gpu in part.gpus or not part.gpus)


def shared_parts(
    pod: Pod, parts: Iterable[Part], claimed: Mapping[str, Claimed], used: int, allowed: int
) -> tuple[SharedPart, ...]:
    """The parts that other pods hold too, of an account that uses and may use so much in all.

    `claimed` is what the claims of each container gave it.
    """
    names = {claim.name for claim in pod.claims.values() if claim.shared_with}
    return tuple(
        SharedPart(
            key=(pod.namespace, *part.key),
            used=max(0, used - (allowed - part.size)),
            containers=frozenset(
                name for name, each in claimed.items() if any(own.key == part.key for own in each.parts)
            ),
        )
        for part in parts
        if part.key[0] in names and part.size is not None
    )


def with_sums(assessments: Sequence[Assessment], acting: Collected[AccountKey]) -> tuple[Assessment, ...]:
    """The assessments with what other pods use of the parts of claims that they share; the same ones if none does.

    Each such pod is compared with the whole part, together with the others, so that time counts for all of them alike,
    whichever uses the most at the moment; that one alone is acted on, and no second one while an action is in progress.
    """
    used: defaultdict[tuple[str, str, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    first: dict[tuple[str, str, int], tuple[tuple[bool, int, str], Pod]] = {}
    for each in assessments:
        for part in each.shared:
            used[part.key][each.pod.uid] += part.used
    if not used:
        return tuple(assessments)
    for each in assessments:
        for part in each.shared:
            order = each.account not in acting, -used[part.key][each.pod.uid], each.pod.uid
            first[part.key] = min(first.get(part.key, (order, each.pod)), (order, each.pod), key=lambda one: one[0])
    return tuple(_with_sum(each, used, first) if each.shared else each for each in assessments)


def _with_sum(
    each: Assessment,
    used: Mapping[tuple[str, str, int], Mapping[str, int]],
    first: Mapping[tuple[str, str, int], tuple[tuple[bool, int, str], Pod]],
) -> Assessment:
    uid = each.pod.uid
    beside = sum(size for part in each.shared for other, size in used[part.key].items() if other != uid)
    ahead = next((first[part.key][1].title for part in each.shared if first[part.key][1].uid != uid), "")
    is_limited = each.allowed is not None and each.rule_gap is None
    is_over = is_limited and each.used_at_least + beside > (each.allowed or 0)
    return replace(
        each,
        beside=beside,
        behind_pod=ahead if beside else "",
        verdict=Verdict.OVER if is_over else each.verdict,
    )


def are_placed(claimed: Iterable[Claimed]) -> bool:
    """Whether amounts are given, all on known cards, so that each card is compared; a device may not exist yet."""
    parts = [part for each in claimed for part in each.parts]
    return any(part.size is not None for part in parts) and all(part.gpus or part.is_whole for part in parts)


def by_gpu(parts: Iterable[Part]) -> Mapping[str, int]:
    """The bytes of parts by card, as far as they have an amount and a card."""
    found: dict[str, int] = {}
    for part in parts:
        if part.size is not None and part.gpus:
            found[part.gpus[0]] = found.get(part.gpus[0], 0) + part.size
    return found
