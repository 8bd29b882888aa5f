"""Cards: how large a node's devices are, which of them a name stands for, and into how many shares they are cut."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gpu, Node
from watchdog.core.policy import Declaration

GPU_RESOURCE: Final = "nvidia.com/gpu"
_MIG: Final = "mig-"
_SHARED: Final = ".shared"  # what the device plugin appends where it renames a resource that it cuts into replicas
_REPLICAS: Final = ".replicas"
_LABEL: Final = "label:"
_PLAIN_PROFILE: Final = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The schedulable devices of a node: cards, and MIG instances. `complete` says that none of them is hidden.

    Sizes are in bytes, what tenants can share of a card; None where it is not known.
    """

    gpus: tuple[Gpu, ...]
    complete: bool = True

    @property
    def largest(self) -> int | None:
        """The size of the largest one, None unless all are known: the missing one may be larger."""
        return max(self._sizes(), default=None) if self._all_known() else None

    @property
    def together(self) -> int | None:
        """The sum of all sizes, None unless all are known."""
        return sum(self._sizes()) if self.gpus and self._all_known() else None

    @property
    def number(self) -> int | None:
        """How many there are, None where one may be hidden or there are none."""
        return len(self.gpus) or None if self.complete else None

    def size(self, uuid: str) -> int | None:
        """The size of one device; None where it is not known or gone."""
        return next((gpu.size for gpu in self.gpus if gpu.uuid == uuid), None)

    def smallest(self, profile: str | None) -> int | None:
        """The size of the smallest device that a profile stands for (None: a card), of those whose size is known."""
        return min((gpu.size for gpu in self._alike(profile) if gpu.size is not None), default=None)

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

    def _sizes(self) -> list[int]:
        return [gpu.size for gpu in self.gpus if gpu.size is not None]

    def _all_known(self) -> bool:
        return self.complete and all(gpu.size is not None for gpu in self.gpus)


def profile_of(resource: str) -> str | None:
    """The MIG profile that a resource is named after (`nvidia.com/mig-1g.10gb.me`); None where it is none of MIG."""
    name = resource.rpartition("/")[2]
    return name.removeprefix(_MIG).removesuffix(_SHARED) if name.startswith(_MIG) else None


def is_cut(resource: str, node: Node) -> bool:
    """Whether a resource stands for a share of a device: its name says so, or the labels of GPU feature discovery."""
    if resource.endswith(_SHARED):
        return True
    replicas = node.labels.get(f"{resource}{_REPLICAS}", "")
    return (replicas.isdecimal() and int(replicas) > 1) or _strategy(resource, node) != "none"


def shares_of(declaration: Declaration, node: Node) -> int | None:
    """Into how many shares a card is cut; None where the node does not say so, and the declaration does not apply."""
    if not isinstance(declaration.shares, str):
        return declaration.shares
    label = declaration.shares.removeprefix(_LABEL)
    text = node.labels.get(label, "")
    shares = int(text) if text.isascii() and text.isdecimal() else 0
    if shares == 1 and _strategy(label.removesuffix(_REPLICAS), node) == "none":
        return None
    return shares or None


def _strategy(resource: str, node: Node) -> str:
    return node.labels.get(f"{resource}.sharing-strategy", "") or "none"


def _plugin_name(profile: str) -> str:
    """A profile as NVIDIA's device plugin writes it into the name of a resource, where no + may stand."""
    return profile.lower().replace("+", ".")


def _plain(profile: str) -> str:
    match = _PLAIN_PROFILE.match(profile)
    return match[0] if match else profile
