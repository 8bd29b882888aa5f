"""Amounts: the number that a pod declares, its unit, and how many bytes that is on the node's cards."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from watchdog.core.model import Gpu, MigPlacement, Node, Snapshot
from watchdog.core.policy import Allowance, Declaration
from watchdog.core.units import LARGEST, format_bytes, parse_number

GPU_RESOURCE: Final = "nvidia.com/gpu"
_MIG: Final = "mig-"
_SHARED: Final = ".shared"  # what the device plugin appends where it renames a resource that it cuts into replicas
_REPLICAS: Final = ".replicas"
_COUNT: Final = f"{GPU_RESOURCE}.count"
# What HAMi's device plugin writes on its node (pkg/device/nvidia/device.go in Project-HAMi/HAMi).
_HAMI: Final = "hami.io/node-nvidia-register"
# Resources that no node lists, since the scheduler of their system checks them itself, and what shows that a node
# belongs to that system: an annotation or a resource, neither of which a tenant can write (docs/config.md of HAMi; of
# Volcano, doc/config.md in Project-HAMi/volcano-vgpu-device-plugin, whose plugin registers all but the percentage).
NEVER_LISTED: Final[Mapping[str, str]] = {
    "nvidia.com/gpumem": _HAMI,
    "nvidia.com/gpumem-percentage": _HAMI,
    "nvidia.com/gpucores": _HAMI,
    "volcano.sh/vgpu-memory-percentage": "volcano.sh/vgpu-number",
}
_REPLICAS_OF_CARDS: Final = f"{GPU_RESOURCE}{_REPLICAS}"
LABEL: Final = "label:"  # in front of the label that gives the number of shares
_PLAIN_PROFILE: Final = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The schedulable devices of a node: cards, and MIG instances. Sizes are in bytes; None if unknown."""

    gpus: tuple[Gpu, ...]
    # Whether these are certainly all devices, and all of them respond.
    complete: bool = True
    # Whether the node has at least one more device, of which nothing is known.
    hidden: bool = False
    # What shows that, or that there may be more, as a clause.
    why: str = ""
    # The UUIDs of the cards in MIG mode, which are no devices of their own.
    parents: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, node: Node) -> "Cards":
        """The devices of a reading, compared with the number that the driver and the node's object report.

        Earlier readings do not count: a restarted daemon would not have them, and would judge differently.
        """
        rows = {gpu.uuid for gpu in snapshot.gpus}
        count = CardCount.of(snapshot, node)
        unread = len(snapshot.missing) or len(snapshot.unseen - rows)
        hidden = bool(unread or count.missing)
        is_sure = not (hidden or snapshot.blind or node.awaited or count.uncertain)
        down = [gpu.uuid for gpu in snapshot.gpus if not gpu.up]
        why = count.missing or count.uncertain or (f"{down[0]} does not respond" if down else "")
        if snapshot.blind:
            why = "the driver does not answer"
        elif unread:
            why = f"the driver reports {_cards(unread)} more than can be read"
        parents = frozenset(parent.uuid for parent in snapshot.parents)
        return cls(gpus=snapshot.gpus, complete=is_sure and not down, hidden=hidden, why=why, parents=parents)

    @property
    def state(self) -> tuple[bool, bool, str, frozenset[str]]:
        """What a size in cards depends on besides the devices: `complete`, `hidden`, `why` and `parents`."""
        return self.complete, self.hidden, self.why, self.parents

    @property
    def largest(self) -> int | None:
        """The size of the largest device; None unless all sizes are known."""
        sizes = self._sizes(self.gpus)
        return max(sizes) if sizes else None

    @property
    def total_size(self) -> int | None:
        """The sum of the sizes of all memories; None unless all of them are known."""
        sizes = self._sizes(tuple({gpu.memory: gpu for gpu in self.gpus}.values()))
        return sum(sizes) if sizes else None

    @property
    def number(self) -> int | None:
        """The number of known devices; None if there are none."""
        return len(self.gpus) or None

    @property
    def sizes_are_certain(self) -> bool:
        """Whether no hidden card can have another size: all are known and respond, or all known ones have one size."""
        return self._excludes_other_sizes({gpu.size for gpu in self.gpus})

    def size(self, uuid: str) -> int | None:
        """The size of one device; None if it is unknown or the device is gone."""
        return next((gpu.size for gpu in self.gpus if gpu.uuid == uuid), None)

    def smallest(self, profile: str | None) -> int | None:
        """The size of the smallest device with a MIG profile (None: of the smallest card).

        None unless the size of every such device is known: the others may be smaller.
        """
        sizes = self._sizes(self._of_profile(profile))
        return min(sizes) if sizes and self._excludes_other_sizes(set(sizes)) else None

    def fit(self, uuids: list[str], profile: str | None) -> list[str]:
        """The devices of a list with a MIG profile (None: all), in order, then MIG instances of unknown profile."""
        fitting = {gpu.uuid for gpu in (self.gpus if profile is None else self._of_profile(profile))}
        nameless = {gpu.uuid for gpu in self.gpus if gpu.parent is not None and gpu.profile is None}
        return [uuid for uuid in uuids if uuid in fitting] + [u for u in uuids if u in nameless and u not in fitting]

    def has(self, devices: "Devices") -> bool:
        """Whether the node may have devices with these profiles, in these numbers."""
        if not self.complete or any(gpu.parent is not None and gpu.profile is None for gpu in self.gpus):
            return True
        return all(
            count <= len(self.gpus if name is None else self._of_profile(name)) for name, count in devices.counts
        )

    def _of_profile(self, profile: str | None) -> tuple[Gpu, ...]:
        if profile is None:
            # Where every card is cut into instances, the resource of cards means those (strategy "single").
            return tuple(gpu for gpu in self.gpus if gpu.parent is None) or self.gpus
        named = [(gpu, _plugin_name(gpu.profile)) for gpu in self.gpus if gpu.profile is not None]
        exact = tuple(gpu for gpu, name in named if name == profile)
        # The driver's attributes, where a device has no name, do not show the media extensions (1g.10gb+me).
        return exact or tuple(gpu for gpu, name in named if _plain(name) == _plain(profile))

    def instances(self, parent: str, profile: str | None, placement: MigPlacement | None) -> tuple[Gpu, ...]:
        """The MIG instances of a card that may be the one with this profile, as any source writes it, at this place.

        The place decides; only of an instance whose place is not known, or for one, the profile does.
        """
        wanted = None if profile is None else _plugin_name(profile)
        alike = tuple(gpu for gpu in self._of_profile(wanted) if gpu.parent == parent) if wanted else ()
        if placement is None:
            return alike
        there = tuple(gpu for gpu in self.gpus if gpu.parent == parent and gpu.placement == placement)
        return there or tuple(gpu for gpu in alike if gpu.placement is None)

    def _excludes_other_sizes(self, sizes: set[int | None] | set[int]) -> bool:
        """Whether no other card can have a size that is not among these."""
        return not self.hidden and (len(sizes) == 1 or all(gpu.up for gpu in self.gpus))

    @property
    def all_have_one_size(self) -> bool:
        """Whether all cards are known and have the same size."""
        return not self.hidden and len({gpu.size for gpu in self.gpus}) == 1

    @staticmethod
    def _sizes(gpus: tuple[Gpu, ...]) -> list[int]:
        """The sizes of devices; empty unless all of them are known."""
        sizes = [gpu.size for gpu in gpus if gpu.size is not None]
        return sizes if len(sizes) == len(gpus) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCount:
    """How many cards the node has: what the driver lists, compared with the node's object.

    Each text is a clause, empty if there is nothing to say.
    """

    # The node's object shows that the driver does not list all cards.
    missing: str = ""
    # The node offers more than the driver lists, and no label says why.
    uncertain: str = ""
    # The node offers more than there are, which is no evidence of a card that is missing, since the driver and GPU
    # feature discovery agree: another plugin offers each card several times, as HAMi's does, or sharing is unknown to
    # the labels.
    offered: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, node: Node) -> "CardCount":
        """Compare a reading with the node's labels and capacity."""
        cut = {gpu.parent for gpu in snapshot.gpus if gpu.parent is not None}
        physical = sum(gpu.parent is None for gpu in snapshot.gpus) + len(cut | {p.uuid for p in snapshot.parents})
        # With MIG the label counts instances or cards, depending on the strategy of the device plugin.
        known = {len(snapshot.gpus), physical}
        seen, count, replicas = max(known), _number(node.labels, _COUNT), _number(node.labels, _REPLICAS_OF_CARDS)
        lists, offered = f"the driver lists {_cards(seen)}", _offered(node)
        if count is not None and count > seen:
            return cls(missing=f"the node's label {_COUNT} is {count}, and {lists}")
        if -(-offered // (replicas or 1)) <= seen or replicas == 0:
            return cls()
        shared = f" with {replicas} to a card (label {_REPLICAS_OF_CARDS})" if replicas else ""
        offers = f"the node offers {offered} {GPU_RESOURCE}{shared}"
        if _HAMI in node.annotations:
            return cls(offered=f"{offers}, since HAMi offers each card several times, and {lists}")
        if count in known | _numbers_by_model(snapshot):
            return cls(offered=f"{offers}, while {lists}, and its label {_COUNT} agrees")
        if replicas:
            return cls(missing=f"{offers}, and {lists}")
        why = f"no label {_COUNT} or {_REPLICAS_OF_CARDS} says whether cards are shared or missing"
        return cls(uncertain=f"{offers}, {lists}, and {why}")


def _numbers_by_model(snapshot: Snapshot) -> set[int]:
    """The number of cards of each model: on a node with several, GPU feature discovery counts one of them."""
    return set(Counter(gpu.name for gpu in snapshot.gpus if gpu.parent is None).values())


def _cards(number: int) -> str:
    return "1 card" if number == 1 else f"{number} cards"


@lru_cache(maxsize=1024)  # asked of each resource of each container
def profile_of(resource: str) -> str | None:
    """The MIG profile in the name of a resource (`nvidia.com/mig-1g.10gb.me`); None if it is not a MIG resource."""
    name = resource.rpartition("/")[2]
    return name.removeprefix(_MIG).removesuffix(_SHARED) if name.startswith(_MIG) else None


def is_cut(resource: str, node: Node) -> bool:
    """Whether a resource is a share of a device, by its name or by the labels of GPU feature discovery."""
    if resource.endswith(_SHARED):
        return True
    return (_number(node.labels, f"{resource}{_REPLICAS}") or 0) > 1 or strategy_of(resource, node) != "none"


def shares_of(declaration: Declaration, node: Node) -> int | None:
    """The number of shares that a card is divided into; None if the node's labels do not give it."""
    if not isinstance(declaration.shares, str):
        return declaration.shares
    label = declaration.shares.removeprefix(LABEL)
    shares = _number(node.labels, label)
    if shares == 1 and strategy_of(label.removesuffix(_REPLICAS), node) == "none":
        return None
    return shares or None


def knows_shares(declaration: Declaration, node: Node) -> bool:
    """Whether the node's labels give the number of shares of a card, even if it is 1."""
    label = declaration.shares.removeprefix(LABEL) if isinstance(declaration.shares, str) else ""
    return not label or _number(node.labels, label) is not None


def is_checked(resource: str, node: Node) -> bool:
    """Whether the scheduler has checked a resource, against the node's capacity or what its device plugin registered.

    A pod that names its node itself bypasses the scheduler, and the kubelet admits what the node does not list
    (removeMissingExtendedResources in k8s.io/kubernetes/pkg/kubelet/lifecycle).
    """
    if not node.capacity or resource in node.capacity:
        return True
    evidence = NEVER_LISTED.get(resource)
    return evidence in node.capacity or evidence in node.annotations


def registrations(node: Node) -> frozenset[str]:
    """The annotations of a node that show which system checks resources that the node does not list."""
    return frozenset(node.annotations.keys() & NEVER_LISTED.values())


def with_listed(node: Node, resources: Iterable[str]) -> Node:
    """The node as if its capacity, where that is known, listed these resources too."""
    more = dict.fromkeys(resources, "0") if node.capacity else {}
    return replace(node, capacity={**more, **node.capacity}) if more.keys() - node.capacity.keys() else node


def _offered(node: Node) -> int:
    return sum(_number(node.capacity, key) or 0 for key in (GPU_RESOURCE, f"{GPU_RESOURCE}{_SHARED}"))


def _number(texts: Mapping[str, str], key: str) -> int | None:
    text = texts.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def strategy_of(resource: str, node: Node) -> str:
    """How the device plugin shares a resource, by the label of GPU feature discovery: `none` if it does not say."""
    return node.labels.get(f"{resource}.sharing-strategy", "") or "none"


def _plugin_name(profile: str) -> str:
    """A profile as NVIDIA's device plugin writes it in the name of a resource, which can't contain a +."""
    return profile.lower().replace("+", ".")


def _plain(profile: str) -> str:
    match = _PLAIN_PROFILE.match(profile)
    return match[0] if match else profile


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShare:
    """The memory of a number of cards."""

    # 1/2 is half a card, 2 is two.
    cards: Fraction
    # They are MIG instances of this profile; None: they are cards.
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Whole devices, whatever their size."""

    # The number of each MIG profile; the profile None means cards.
    counts: tuple[tuple[str | None, int], ...]


Size = int | CardShare | Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The amount that one declaration gives."""

    # Where it is declared.
    source: str
    # What it applies to. `total`: all GPUs together. `gpu`: each GPU, or each of the `count` most used ones. `any`:
    # whole devices, which can be counted either way.
    per: Literal["total", "gpu", "any"]
    # None: it can't be determined now, since it depends on labels of the node, on a card, or on a claim that is not
    # known.
    size: Size | None
    allowance: Allowance
    # The limit above `size` that the tenant has set; None: there is none.
    limit: int | CardShare | None = None
    # How many GPUs it is for; None: all.
    count: int | None = None
    # Whether the scheduler has checked it; otherwise it is the tenant's word.
    is_checked: bool = False
    # Why `size` can't be determined, as a clause.
    unknown: str = ""
    # Whether it stands for resource claims that are not read, which may be for anything.
    is_claim: bool = False


def read_size(declaration: Declaration, written: Mapping[str, str], shares: int | None) -> Size | None:
    """The sum of what is written under the keys of a declaration; None if it requests nothing.

    ValueError, with a sentence, if it is not a number or is impossible in this unit. `shares`: the number of
    shares per card.
    """
    numbers = {key: parse_number(text) for key, text in written.items()}
    if any(number.numerator < 0 for number in numbers.values()):
        raise ValueError("it is negative")
    if declaration.unit == "mig":
        return _devices(numbers)
    number = sum(numbers.values(), Fraction(0))
    match declaration.unit:
        case "cards":
            cards = int(number // (declaration.of or 1))
            return Devices(counts=((None, cards),)) if cards else None
        case "share":
            profile = profile_of(declaration.key) if declaration.kind == "resource" else None
            size: Size = CardShare(cards=number / (shares or 1), profile=profile)
        case "percent":
            size = CardShare(cards=number / 100)
        case "fraction":
            size = CardShare(cards=number)
        case "named":
            size = math.ceil(sum(count * _size_in_name(key) for key, count in numbers.items()))
        case int(unit):
            size = math.ceil(number * unit)
    # A count of 0 requests nothing; it does not promise to use nothing.
    is_unset = declaration.zero == "unset" or declaration.unit in ("share", "named")
    return size if number or not is_unset else None


def require_possible(size: Size | None) -> None:
    """Raise ValueError, with a sentence, for more bytes than a Kubernetes quantity can hold."""
    if isinstance(size, int) and size > LARGEST:
        raise ValueError(f"it is more than {LARGEST} bytes, the largest possible quantity")


_SIZE_IN_NAME: Final = re.compile(r"(\d{1,6})gb\Z", re.IGNORECASE)


def _size_in_name(resource: str) -> int:
    """The bytes at the end of a resource's name: `nvidia.com/gpu-10gb` is 10 GiB.

    nos calls them GB, and limits its clients to as many `G`, which are GiB (pkg/gpu/slicing in nebuly-ai/nos).
    """
    match = _SIZE_IN_NAME.search(resource)
    if match is None:
        raise ValueError("its name does not end with a size like 10gb")
    return int(match[1]) * 2**30


def _devices(numbers: Mapping[str, Fraction]) -> Devices | None:
    if any(number.denominator != 1 for number in numbers.values()):
        raise ValueError("it is not a whole number of MIG instances")
    counts = [(profile_of(key), number.numerator) for key, number in numbers.items() if number.numerator]
    return Devices(counts=tuple(counts)) if counts else None


def excess(size: Size, per: Literal["total", "gpu"], cards: Cards) -> str | None:
    """Why a size exceeds the known cards, as a sentence; None if it does not. MIG profiles are not compared."""
    if isinstance(size, Devices):
        whole = sum(count for profile, count in size.counts if profile is None)
        return f"{_cards(whole)} is more than the node has" if cards.number and whole > cards.number else None
    if capped(size, per, cards) == size:
        return None
    if isinstance(size, CardShare):
        is_one = per == "gpu" or cards.number == 1
        have = "a whole card" if is_one else f"all {cards.number} cards together"
    else:
        amount = format_bytes((cards.largest if per == "gpu" else cards.total_size) or 0)
        have = f"the largest card ({amount})" if per == "gpu" else f"all cards together ({amount})"
    return f"{describe(size)} is more than {have}; is the unit right?"


def least_sum(amounts: Collection["Amount"], cards: Cards) -> int:
    """The bytes that several amounts come to together at least, as far as that is known."""
    return sum(_least(amount, cards) for amount in amounts)


def _least(amount: Amount, cards: Cards) -> int:
    size, number = amount.size, (amount.count or 1) if amount.per == "gpu" else 1
    if isinstance(size, Devices):
        return sum(count * (cards.smallest(profile) or 0) for profile, count in size.counts)
    if isinstance(size, CardShare):
        return (_part_of(size.cards, cards.smallest(size.profile)) or 0) * number
    return (size or 0) * number


def capped(size: int | CardShare, per: Literal["total", "gpu"], cards: Cards) -> int | CardShare:
    """The smaller of a size and what the node's cards can hold, as far as that is known."""
    if isinstance(size, CardShare):
        most = 1 if per == "gpu" else cards.number
        return size if most is None or size.cards <= most else CardShare(cards=Fraction(most), profile=size.profile)
    room = cards.largest if per == "gpu" else cards.total_size
    return size if room is None or size <= room else room


def describe(size: int | CardShare) -> str:
    """A size for people: bytes, or a percentage of a card."""
    return format_bytes(size) if isinstance(size, int) else f"{float(size.cards * 100):.4g}% of a card"


class Placement(NamedTuple):
    """Where a container (or pod) uses memory."""

    # The UUIDs of the GPUs on which it does, most used first.
    most_used: list[str]
    # The one to be evaluated; None: all of them together.
    gpu: str | None
    cards: Cards


def bytes_of(amount: Amount, placement: Placement, *, by_request: bool = False) -> int | None:
    """An amount in bytes, by its limit if it has one; None if that depends on an unknown size."""
    requested = _bytes_of(amount.size, amount, placement)
    if by_request or amount.limit is None or requested is None:
        return requested
    limit = _bytes_of(amount.limit, amount, placement)
    room = placement.cards.size(placement.gpu) if placement.gpu is not None else None
    # A tenant sets the limit, so it must never exceed the size of the card.
    return None if limit is None else max(requested, limit if room is None else min(limit, room))


def _bytes_of(size: Size | None, amount: Amount, placement: Placement) -> int | None:
    if size is None:
        return None
    if isinstance(size, Devices):
        return _whole(size, placement)
    if amount.per == "total":
        return size if isinstance(size, int) else _spread(size, placement)
    if placement.gpu is None:
        one = size if isinstance(size, int) else _part_of(size.cards, placement.cards.smallest(size.profile))
        return None if one is None else one * (amount.count or 1)
    if amount.count is not None and placement.gpu not in placement.most_used[: amount.count]:
        return 0
    return size if isinstance(size, int) else _part_of(size.cards, placement.cards.size(placement.gpu))


def _spread(part: CardShare, placement: Placement) -> int | None:
    """The bytes of a number of cards: an equal part of each card in use, and of the smallest card for the rest.

    If none is in use yet, all of it is of the smallest card: the choice least favourable to the tenant.
    """
    if not placement.cards.sizes_are_certain:
        return None  # it may be on a hidden card of another size
    used = [placement.cards.size(gpu) for gpu in placement.most_used]
    sizes = [size for size in used if size is not None]
    if len(sizes) < len(used):
        return None
    if sizes and part.cards <= len(sizes):
        return _part_of(part.cards / len(sizes), sum(sizes))
    rest = _part_of(part.cards - len(sizes), placement.cards.smallest(part.profile))
    return None if rest is None else sum(sizes) + rest


def _whole(devices: Devices, placement: Placement) -> int | None:
    """The bytes of whole devices: the sizes of those in use, and for the others the smallest size of their kind."""
    left, total, mine = list(placement.most_used), 0, set[str]()
    for profile, count in sorted(devices.counts, key=lambda each: (each[0] is None, each[0] or "")):
        fitting = placement.cards.fit(left, profile)
        if len(fitting) > count and not placement.cards.sizes_are_certain and placement.gpu is None:
            return None  # one of its devices may be a hidden one of another size
        own = fitting[:count]
        left = [gpu for gpu in left if gpu not in own]
        mine.update(own)
        sizes = [placement.cards.size(gpu) for gpu in own]
        missing = count - len(own)  # a tenant's number: it must not become as many values
        smallest = placement.cards.smallest(profile) if missing else 0
        if placement.gpu is None and (smallest is None or any(size is None for size in sizes)):
            return None
        total += sum(size or 0 for size in sizes) + (smallest or 0) * missing
    if placement.gpu is None:
        return total
    return placement.cards.size(placement.gpu) if placement.gpu in mine else 0


def _part_of(share: Fraction, size: int | None) -> int | None:
    return None if size is None else math.ceil(share * size)
