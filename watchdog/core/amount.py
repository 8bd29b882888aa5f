"""Amounts: the number that a pod declares, its unit, and the bytes that it comes to on the node's cards."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from watchdog.core.model import Gpu, Node, Snapshot
from watchdog.core.policy import Allowance, Declaration
from watchdog.core.units import LARGEST, format_bytes, parse_number

GPU_RESOURCE: Final = "nvidia.com/gpu"
_MIG: Final = "mig-"
_SHARED: Final = ".shared"  # what the device plugin appends where it renames a resource that it cuts into replicas
_REPLICAS: Final = ".replicas"
_COUNT: Final = ".count"
_LABEL: Final = "label:"
_PLAIN_PROFILE: Final = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The schedulable devices of a node: cards, and MIG instances. Sizes are in bytes; None where one is not known.

    `complete` says that these are all for sure, and none has dropped out. `hidden` says that there is one more, of
    which nothing is known.
    """

    gpus: tuple[Gpu, ...]
    complete: bool = True
    hidden: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, node: Node) -> "Cards":
        """The devices as they are known now: those that were read, held against the driver's and the node's own count.

        What the daemon itself saw earlier has no part in it: after a restart it would know less than before, and judge
        otherwise.
        """
        rows = {gpu.uuid for gpu in snapshot.gpus}
        cut = {gpu.parent for gpu in snapshot.gpus if gpu.parent is not None}
        physical = sum(gpu.parent is None for gpu in snapshot.gpus) + len(cut | {p.uuid for p in snapshot.parents})
        seen = max(len(rows), physical)
        hidden = bool(snapshot.missing or snapshot.unseen - rows) or _counted(node) > seen
        is_sure = not (hidden or snapshot.blind or node.awaited or _may_count(node) > seen)
        return cls(gpus=snapshot.gpus, complete=is_sure and all(gpu.up for gpu in snapshot.gpus), hidden=hidden)

    @property
    def largest(self) -> int | None:
        """The size of the largest one; None where the driver does not tell that of each."""
        return max(self._sizes()) if self._are_told else None

    @property
    def together(self) -> int | None:
        """The sum of all sizes; None where the driver does not tell each."""
        return sum(self._sizes()) if self._are_told else None

    @property
    def number(self) -> int | None:
        """How many are known; None where there are none."""
        return len(self.gpus) or None

    @property
    def are_alike(self) -> bool:
        """Whether the size of a card is known whichever it is: no card is out of sight, or all have the same size."""
        return self._tells({gpu.size for gpu in self.gpus})

    def size(self, uuid: str) -> int | None:
        """The size of one device; None where it is not known or gone."""
        return next((gpu.size for gpu in self.gpus if gpu.uuid == uuid), None)

    def smallest(self, profile: str | None) -> int | None:
        """The size of the smallest device that a profile stands for (None: a card).

        None where it is not known of each of them: the others may be smaller.
        """
        alike = self._alike(profile)
        sizes = [gpu.size for gpu in alike if gpu.size is not None]
        return min(sizes, default=None) if len(sizes) == len(alike) and self._tells(set(sizes)) else None

    def fit(self, uuids: Iterable[str], profile: str | None) -> list[str]:
        """Those of the devices that a profile stands for, in their order; then MIG instances of no known profile."""
        alike = {gpu.uuid for gpu in self._alike(profile)} if profile is not None else {gpu.uuid for gpu in self.gpus}
        nameless = {gpu.uuid for gpu in self.gpus if gpu.parent is not None and gpu.profile is None}
        listed = list(uuids)
        return [uuid for uuid in listed if uuid in alike] + [u for u in listed if u in nameless and u not in alike]

    def _alike(self, profile: str | None) -> tuple[Gpu, ...]:
        if profile is None:
            # Where every card is cut into instances, the resource of cards stands for those (strategy "single").
            return tuple(gpu for gpu in self.gpus if gpu.parent is None) or self.gpus
        named = [(gpu, _plugin_name(gpu.profile)) for gpu in self.gpus if gpu.profile is not None]
        exact = tuple(gpu for gpu, name in named if name == profile)
        # NVML's attributes, where a device has no name, do not tell the media extensions (1g.10gb+me).
        return exact or tuple(gpu for gpu, name in named if _plain(name) == _plain(profile))

    def _tells(self, sizes: set[int | None] | set[int]) -> bool:
        """Whether the cards of these sizes are all that a name can stand for."""
        return not self.hidden and (len(sizes) == 1 or all(gpu.up for gpu in self.gpus))

    @property
    def have_one_size(self) -> bool:
        """Whether each card has the size of every other one."""
        return not self.hidden and len({gpu.size for gpu in self.gpus}) == 1

    @property
    def _are_told(self) -> bool:
        return bool(self.gpus) and all(gpu.size is not None for gpu in self.gpus)

    def _sizes(self) -> list[int]:
        return [gpu.size for gpu in self.gpus if gpu.size is not None]


def profile_of(resource: str) -> str | None:
    """The MIG profile that a resource is named after (`nvidia.com/mig-1g.10gb.me`); None where it is none of MIG."""
    name = resource.rpartition("/")[2]
    return name.removeprefix(_MIG).removesuffix(_SHARED) if name.startswith(_MIG) else None


def is_cut(resource: str, node: Node) -> bool:
    """Whether a resource stands for a share of a device: its name says so, or the labels of GPU feature discovery."""
    if resource.endswith(_SHARED):
        return True
    return (_number(node.labels, f"{resource}{_REPLICAS}") or 0) > 1 or _strategy(resource, node) != "none"


def shares_of(declaration: Declaration, node: Node) -> int | None:
    """Into how many shares a card is cut; None where the node does not say so, and the declaration does not apply."""
    if not isinstance(declaration.shares, str):
        return declaration.shares
    label = declaration.shares.removeprefix(_LABEL)
    shares = _number(node.labels, label)
    if shares == 1 and _strategy(label.removesuffix(_REPLICAS), node) == "none":
        return None
    return shares or None


def tells_shares(declaration: Declaration, node: Node) -> bool:
    """Whether the node's labels say into how many shares a card is cut, be it that it is not."""
    label = declaration.shares.removeprefix(_LABEL) if isinstance(declaration.shares, str) else ""
    return not label or _number(node.labels, label) is not None


def is_checked(resource: str, node: Node) -> bool:
    """Whether the scheduler has held a resource against what the node has.

    A pod that names its node itself passes the scheduler by, and the kubelet admits what the node does not list
    (removeMissingExtendedResources in k8s.io/kubernetes/pkg/kubelet/lifecycle).
    """
    return not node.capacity or resource in node.capacity


def _counted(node: Node) -> int:
    """How many devices the node's object counts: by GPU feature discovery, or in its capacity, by the replicas of each.

    A card that drops out stays in the capacity. 0 where neither tells.
    """
    replicas = _number(node.labels, f"{GPU_RESOURCE}{_REPLICAS}")
    offered = -(-_offered(node) // replicas) if replicas else 0
    return max(_number(node.labels, f"{GPU_RESOURCE}{_COUNT}") or 0, offered)


def _may_count(node: Node) -> int:
    """How many devices there may be where no label tells: what is offered may be devices, or shares of some."""
    is_told = any(f"{GPU_RESOURCE}{end}" in node.labels for end in (_COUNT, _REPLICAS))
    return 0 if is_told else _offered(node)


def _offered(node: Node) -> int:
    return sum(_number(node.capacity, key) or 0 for key in (GPU_RESOURCE, f"{GPU_RESOURCE}{_SHARED}"))


def _number(texts: Mapping[str, str], key: str) -> int | None:
    text = texts.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _strategy(resource: str, node: Node) -> str:
    return node.labels.get(f"{resource}.sharing-strategy", "") or "none"


def _plugin_name(profile: str) -> str:
    """A profile as NVIDIA's device plugin writes it into the name of a resource, where no + may stand."""
    return profile.lower().replace("+", ".")


def _plain(profile: str) -> str:
    match = _PLAIN_PROFILE.match(profile)
    return match[0] if match else profile


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShare:
    """So many cards' worth of memory: 1/2 is half a card, 2 are two. `profile`: of MIG instances of that profile."""

    cards: Fraction
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Whole devices, whatever their size: how many of each MIG profile, None standing for cards."""

    counts: tuple[tuple[str | None, int], ...]


Size = int | CardShare | Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What one declaration says: `size`, and the `limit` above it that a tenant may have named.

    A size of None can't be determined now: it depends on labels of the node, or on a card, that is not known.
    `total`: over all GPUs. `gpu`: on each, or on the `count` most used where a count is known. `any`: whole devices,
    which go with both.
    """

    source: str
    per: Literal["total", "gpu", "any"]
    size: Size | None
    allowance: Allowance
    limit: int | CardShare | None = None
    count: int | None = None


def read_size(declaration: Declaration, written: Mapping[str, str], shares: int | None) -> Size | None:
    """What is written under the keys of a declaration, added up; None where it asks for nothing.

    ValueError, in a sentence, for what is no number or cannot be one of this unit. `shares` are those of a card.
    """
    numbers = {key: parse_number(text) for key, text in written.items()}
    if any(number < 0 for number in numbers.values()):
        raise ValueError("it is negative")
    number = sum(numbers.values(), Fraction(0))
    unit = declaration.unit
    if unit == "mig":
        return _devices(numbers)
    if unit == "share":
        profile = profile_of(declaration.key) if declaration.kind == "resource" else None
        # A resource of 0 asks for no share; it does not promise to use none.
        return CardShare(cards=number / (shares or 1), profile=profile) if number else None
    if unit == "percent":
        return CardShare(cards=number / 100)
    if unit == "fraction":
        return CardShare(cards=number)
    exact = number * unit
    return -(-exact.numerator // exact.denominator)


def refuse_beyond_all(size: Size | None) -> None:
    """Refuse, by a ValueError in a sentence, an amount of bytes that no quantity of Kubernetes can have."""
    if isinstance(size, int) and size > LARGEST:
        raise ValueError(f"it comes to more than {LARGEST} bytes, the most that a quantity can be")


def _devices(numbers: Mapping[str, Fraction]) -> Devices | None:
    if any(number.denominator != 1 for number in numbers.values()):
        raise ValueError("it is not a whole number of MIG instances")
    counts = [(profile_of(key), int(number)) for key, number in numbers.items() if number]
    return Devices(counts=tuple(counts)) if counts else None


def excess(size: Size, per: Literal["total", "gpu"], cards: Cards) -> str | None:
    """Say, in a sentence, that a size is more than the cards that are known can hold; None where it is not."""
    if isinstance(size, Devices) or capped(size, per, cards) == size:
        return None
    if isinstance(size, CardShare):
        have = "a whole card" if per == "gpu" else f"all {cards.number} cards together"
    else:
        amount = format_bytes((cards.largest if per == "gpu" else cards.together) or 0)
        have = f"the largest card ({amount})" if per == "gpu" else f"all cards together ({amount})"
    return f"{describe(size)} is more than {have}; is the unit right?"


def is_beyond_any(size: Size, per: Literal["total", "gpu"]) -> bool:
    """Whether no card that may be out of sight could hold a size."""
    return isinstance(size, CardShare) and per == "gpu"


def capped(size: int | CardShare, per: Literal["total", "gpu"], cards: Cards) -> int | CardShare:
    """A size, or what the cards of the node can hold at most, where that is known and less."""
    if isinstance(size, CardShare):
        most = 1 if per == "gpu" else cards.number
        return size if most is None or size.cards <= most else CardShare(cards=Fraction(most), profile=size.profile)
    room = cards.largest if per == "gpu" else cards.together
    return size if room is None or size <= room else room


def describe(size: int | CardShare) -> str:
    """A size for people: bytes, or a percentage of a card."""
    return format_bytes(size) if isinstance(size, int) else f"{float(size.cards * 100):.4g}% of a card"


class Holder(NamedTuple):
    """On which GPUs a container (or pod) uses memory, those with the most first, and which of them is asked about.

    `gpu` None: all of them.
    """

    most_used: list[str]
    gpu: str | None
    cards: Cards


def bytes_of(amount: Amount, holder: Holder, *, by_request: bool = False) -> int | None:
    """What an amount comes to, by its limit where it has one; None where a size is needed and not known."""
    requested = _bytes_of(amount.size, amount, holder)
    if by_request or amount.limit is None or requested is None:
        return requested
    limit = _bytes_of(amount.limit, amount, holder)
    room = holder.cards.size(holder.gpu) if holder.gpu is not None else None
    # A tenant names the limit, so it never exceeds the card that is asked about.
    return None if limit is None else max(requested, limit if room is None else min(limit, room))


def _bytes_of(size: Size | None, amount: Amount, holder: Holder) -> int | None:
    if size is None:
        return None
    if isinstance(size, Devices):
        return _whole(size, holder)
    if amount.per == "total":
        return size if isinstance(size, int) else _spread(size, holder)
    if holder.gpu is None:
        one = size if isinstance(size, int) else _part_of(size.cards, holder.cards.smallest(size.profile))
        return None if one is None else one * (amount.count or 1)
    if amount.count is not None and holder.gpu not in holder.most_used[: amount.count]:
        return 0
    return size if isinstance(size, int) else _part_of(size.cards, holder.cards.size(holder.gpu))


def _spread(part: CardShare, holder: Holder) -> int | None:
    """So many cards' worth over the cards that are used, each counting alike; what they can't hold is of the smallest.

    Where none is used yet all of it is of the smallest: the one that is least in the tenant's favour.
    """
    if not holder.cards.are_alike:
        return None  # it may be on a card that is out of sight and has another size
    used = [holder.cards.size(gpu) for gpu in holder.most_used]
    sizes = [size for size in used if size is not None]
    if len(sizes) < len(used):
        return None
    if sizes and part.cards <= len(sizes):
        return _part_of(part.cards / len(sizes), sum(sizes))
    rest = _part_of(part.cards - len(sizes), holder.cards.smallest(part.profile))
    return None if rest is None else sum(sizes) + rest


def _whole(devices: Devices, holder: Holder) -> int | None:
    """The sizes of the devices that are used, and of the smallest of their kind for those that are not used yet."""
    left, total, mine = list(holder.most_used), 0, set[str]()
    for profile, count in sorted(devices.counts, key=lambda each: (each[0] is None, each[0] or "")):
        fitting = holder.cards.fit(left, profile)
        if len(fitting) > count and not holder.cards.are_alike and holder.gpu is None:
            return None  # its own may be one that is out of sight and has another size
        own = fitting[:count]
        left = [gpu for gpu in left if gpu not in own]
        mine.update(own)
        sizes = [holder.cards.size(gpu) for gpu in own]
        missing = count - len(own)  # a tenant's number: it must not become as many values
        smallest = holder.cards.smallest(profile) if missing else 0
        if holder.gpu is None and (smallest is None or any(size is None for size in sizes)):
            return None
        total += sum(size or 0 for size in sizes) + (smallest or 0) * missing
    if holder.gpu is None:
        return total
    return holder.cards.size(holder.gpu) if holder.gpu in mine else 0


def _part_of(share: Fraction, size: int | None) -> int | None:
    if size is None:
        return None
    exact = share * size
    return -(-exact.numerator // exact.denominator)
