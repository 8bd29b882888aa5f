"""Cards: how large a node's devices are, which of them a name stands for, and into how many shares they are cut."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gpu, Node, Snapshot
from watchdog.core.policy import Declaration

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
