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
from watchdog.core.policy import Policy
from watchdog.core.units import LARGEST, brief
from watchdog.core.victims import is_hazardous

_LONGEST_SOURCE: Final = 600
# A pod that was written down before its claims were.
_UNREAD: Final = Claim(name="")


# The name of the claim, which several entries of a pod can have, the device, and which share of it: a claim that is
# given to another pod later has another device, or another share.
PartKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a claim: one device, or a share of one. Several containers, and pods, can hold the same part."""

    key: PartKey
    # The cards on which it may be; empty: not known. Several only if its size does not depend on which it is.
    gpus: tuple[str, ...]
    # Its bytes; None: it is a share without an amount.
    size: int | None
    # Whether it is all of a device.
    is_whole: bool = False
    # `claim train/gpu`.
    source: str = ""

    @property
    def gpu(self) -> str | None:
        """The card on which it is; None if that is not known."""
        return self.gpus[0] if len(self.gpus) == 1 else None


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


def claimed_by(pod: Pod, container: Container, cards: Cards, policy: Policy) -> Claimed | None:
    """What a container holds by claims; None if that is no GPU that the driver knows, or if claims are not read."""
    if not policy.reads_claims:
        return None
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
            key = claim.name, device.name, f"{number} {device.share}"
            found = (
                _part(device, key, cards, count_shares=policy.claims.count_shares)
                if device.is_driver_known
                else f"no ResourceSlice lists {device.name}, nor any device of its driver on this node"
            )
            if isinstance(found, str):
                gave_gpu = device.is_driver_known and (not device.is_listed or _gpus(device, cards)[1])
                return Claimed(source=_source(claim.name, device), unknown=found, gave_gpu=gave_gpu)
            if found is not None:
                parts.append(replace(found, source=_source(claim.name, device)))
    distinct, sources = {part.key: part for part in parts}, dict.fromkeys(part.source for part in parts)
    return Claimed(source=brief(", ".join(sources), _LONGEST_SOURCE), parts=tuple(distinct.values())) if parts else None


def _source(claim: str, device: ClaimedDevice) -> str:
    return f"claim {brief(claim)}/{brief(device.request)}"


def _part(device: ClaimedDevice, key: PartKey, cards: Cards, *, count_shares: bool) -> Part | str | None:
    """The part that a device is; None if it is no GPU of the driver's; why it is not known, as a clause."""
    gpus, is_gpu = _gpus(device, cards)
    if is_gpu and not gpus and any(gpu.parent == device.parent for gpu in cards.gpus):
        return f"none of the MIG instances of {device.parent} is known to be {device.name}"
    if device.is_listed and not is_gpu:
        # A network card has no UUID, whatever it calls its capacities.
        is_other = cards.complete or (device.uuid is None and device.parent is None)
        return None if is_other else f"{device.name} may be a card that can't be seen: {cards.why}"
    if device.memory or device.is_shared:
        return _share(device, key, gpus, cards, count_shares=count_shares)
    if not device.is_listed:
        return f"the ResourceSlices of this node do not list {device.name}, which is all its own"
    size = _size(gpus, cards) if gpus else device.size
    if size is None:
        return f"the size of {device.name} is not known"
    return Part(key=key, gpus=gpus, size=size, is_whole=True)


def _size(gpus: tuple[str, ...], cards: Cards) -> int | None:
    """The size of a device that may be each of these; None if it is not known, or depends on which it is."""
    sizes = {cards.size(gpu) for gpu in gpus}
    return sizes.pop() if len(sizes) == 1 else None


def _share(
    device: ClaimedDevice, key: PartKey, gpus: tuple[str, ...], cards: Cards, *, count_shares: bool
) -> Part | str:
    """The part that a share is: by its amount, by the number of its shares, or without either."""
    if device.memory or not (count_shares and device.shares):
        return Part(key=key, gpus=gpus, size=min(device.memory, LARGEST) if device.memory else None)
    if not device.shares_in_all:
        return f"the ResourceSlices of this node do not say how many shares {device.name} has"
    size = _size(gpus, cards)
    if size is None:
        return f"the size of {device.name} is not known"
    number = min(device.shares, device.shares_in_all)
    return Part(key=key, gpus=gpus, size=-(-size * number // device.shares_in_all))


def _gpus(device: ClaimedDevice, cards: Cards) -> tuple[tuple[str, ...], bool]:
    """The cards that a device may be, and whether it is one of the driver's.

    A MIG instance that is made when its pod starts has no UUID before that; its card has.
    """
    named = tuple(gpu.uuid for gpu in cards.gpus if gpu.uuid == device.uuid)
    if named or device.parent is None:
        return named, bool(named)
    alike = tuple(gpu.uuid for gpu in cards.instances(device.parent, device.profile, device.placement))
    return alike, bool(alike) or device.parent in cards.parents or any(g.parent == device.parent for g in cards.gpus)


def parts_of(claimed: Iterable[Claimed], gpu: str | None) -> tuple[Part, ...]:
    """The distinct parts that several containers hold on a card (None: on any); where one is may not be known."""
    parts = {part.key: part for each in claimed for part in each.parts}
    return tuple(part for part in parts.values() if gpu is None or gpu in part.gpus or not part.gpus)


def holders_of(claimed: Mapping[str, Claimed]) -> Mapping[PartKey, Sequence[str]]:
    """The containers that hold each part."""
    found: defaultdict[PartKey, list[str]] = defaultdict(list)
    for name, each in claimed.items():
        for part in each.parts:
            found[part.key].append(name)
    return found


def shared_parts(
    pod: Pod, parts: Iterable[Part], holders: Mapping[PartKey, Sequence[str]], spare: int, *, is_part: bool
) -> tuple[tuple[SharedPart, ...], frozenset[str]]:
    """The parts that other accounts hold too, and the containers that hold one together with others.

    `spare` is how much more the account may use than it uses; `is_part` says that it is that of one container.
    """
    claims = {claim.name for claim in pod.claims.values() if claim.shared_with}
    shared: list[SharedPart] = []
    joint: set[str] = set()
    for part in parts:
        names = holders[part.key]
        has_others = part.key[0] in claims
        if has_others or len(names) > 1:
            joint.update(names)
        if part.size is not None and (has_others or (is_part and len(names) > 1)):
            used = max(0, part.size - spare)
            shared.append(SharedPart(key=(pod.namespace, *part.key), size=part.size, used=used))
    return tuple(shared), frozenset(joint)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """What accounts use of a part together, and which of them comes first."""

    # For certain, in bytes.
    used: int
    # Whether that is all.
    is_all: bool
    # The one on which an action is possible, or in progress; None: there is none.
    first: AccountKey | None
    # That one or, without it, the one that uses the most.
    ahead: Assessment
    # The one on which an action is possible, whatever is in progress, and who is ahead likewise.
    next: AccountKey | None
    next_ahead: Assessment


_Member = tuple[Assessment, SharedPart]


def with_sums(assessments: Sequence[Assessment], ending: Collected[AccountKey]) -> tuple[Assessment, ...]:
    """The assessments with what others use of the parts of claims that they share; the same ones if none does.

    Each account is compared with the whole part, together with the others, so that time counts for all of them alike,
    whichever uses the most at the moment. Of those on which an action is possible and that use more than an equal
    share, only the one that uses the most is acted on: others can't hide behind a pod that is protected or being
    deleted, and who uses little does not pay for them. While one of them is being ended (`ending`), no other is; it
    itself is only as long as it would be chosen again.
    """
    members: defaultdict[tuple[str, ...], list[_Member]] = defaultdict(list)
    for each in assessments:
        for part in each.shared:
            members[part.key].append((each, part))
    sums = {key: _sum(those, ending) for key, those in members.items()}
    return tuple(_with_sum(each, sums) if each.shared else each for each in assessments)


def _sum(members: Sequence[_Member], ending: Collected[AccountKey]) -> _Sum:
    total = sum(part.used for _, part in members)
    number = sum(part.used > 0 for _, part in members)

    def order(member: _Member) -> tuple[int, tuple[str, str, str]]:
        return -member[1].used, member[0].account.sort_key

    def comes_first(member: _Member) -> bool:
        each, part = member
        together = each.used_at_least + total - part.used
        is_over = together > (each.allowed or 0)
        return is_over and part.used * number > part.size and _may_be_acted_on(each, together)

    able = [each for each in members if comes_first(each)]
    # A rule that only observes says what it would do, unless one that enforces has somebody to act on.
    able = [each for each in able if not each[0].observes] or able
    following = min(able or members, key=order)[0]
    under_way = [each for each in members if each[0].account in ending]
    first = min(under_way, key=order)[0] if under_way else following
    return _Sum(
        used=total,
        is_all=all(each.used is not None for each, _ in members),
        first=first.account if under_way or able else None,
        ahead=first,
        next=following.account if able else None,
        next_ahead=following,
    )


def _may_be_acted_on(each: Assessment, used: int) -> bool:
    """Whether some step of its rule would act on an account that uses this much, and could."""
    if each.rule is None or each.protected is not None or each.rule_gap is not None:
        return False
    steps = (step for step in each.rule.steps if step.do.enforces)
    above = (
        step
        for step in steps
        if (each.short if step.under_pressure else used > step.above.threshold_bytes(each.allowed or 0, step.do))
    )
    return any(not is_hazardous(each, step) for step in above)


def _with_sum(each: Assessment, sums: Mapping[tuple[str, ...], _Sum]) -> Assessment:
    """An account with the most that others use of one of its parts; what is used of several may be the same bytes."""
    own = [(sums[part.key], part) for part in each.shared]
    besides = [one.used - part.used if part.used else 0 for one, part in own]
    beside, is_limited = max(besides), each.allowed is not None and each.rule_gap is None
    over = [one for (one, _), more in zip(own, besides, strict=True) if each.used_at_least + more > (each.allowed or 0)]
    is_first = not beside or any(one.first == one.next == each.account for one in over)
    ahead = "" if is_first else next((title for one in over if (title := _ahead(one, each))), "")
    return replace(
        each,
        beside=beside,
        is_beside_known=all(one.is_all for one, part in own if part.used),
        behind_pod=ahead,
        verdict=Verdict.OVER if is_limited and over else each.verdict,
    )


def _ahead(one: _Sum, each: Assessment) -> str:
    """The pod of the account that is acted on instead of another, or that uses more; empty if there is none."""
    # If it was acted on and has come down meanwhile, what is left of that action must not hit it any more.
    ahead = one.next_ahead if one.first == each.account else one.ahead
    return "" if ahead.account == each.account else ahead.pod.title


def are_placed(claimed: Iterable[Claimed]) -> bool:
    """Whether amounts are given, all on known cards, so that each card is compared; a device may not exist yet."""
    parts = [part for each in claimed for part in each.parts]
    return any(part.size is not None for part in parts) and all(part.gpus or part.is_whole for part in parts)


def by_gpu(parts: Iterable[Part], gpu: str | None) -> Mapping[str, int]:
    """The bytes of the parts on a card (None: any) by card, as far as they have an amount, and a card that is known."""
    found: dict[str, int] = {}
    for part in parts:
        where = gpu if gpu in part.gpus else part.gpu
        if part.size is not None and where is not None:
            found[where] = found.get(where, 0) + part.size
    return found
