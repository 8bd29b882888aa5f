"""How each card is shared, by what the driver, resource claims and the node's labels show."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from watchdog.core.amount import GPU_RESOURCE, is_cut, strategy_of
from watchdog.core.assessment import Attribution
from watchdog.core.model import Node, Pod, Snapshot
from watchdog.core.mps import certain_mps_gpus


class Sharing(StrEnum):
    """How a card is shared."""

    WHOLE = "whole"  # nothing shows that it is; several pods may be on it all the same
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    DRA = "dra"  # resource claims gave it, or shares of it


_MPS: Final = "mps"  # in the labels of GPU feature discovery and of GKE
# docs/sharing.md has its source. The other value is `time-sharing`.
_GKE: Final = "cloud.google.com/gke-gpu-sharing-strategy"


def sharing_of(
    snapshot: Snapshot, attribution: Attribution, node: Node, pods: Iterable[Pod]
) -> Mapping[str, Sharing | None]:
    """How each GPU is shared, and each card in MIG mode, by UUID; None: the node's object is not known yet.

    What is known of the card itself comes before the labels, which are of all cards of the node.
    """
    by_mps = certain_mps_gpus(attribution)
    devices = (device for pod in pods for claim in pod.claims.values() for device in claim.devices)
    by_claim = {device.uuid for device in devices}
    by_labels = _by_labels(node)
    found: dict[str, Sharing | None] = {parent.uuid: Sharing.MIG for parent in snapshot.parents}
    for gpu in snapshot.gpus:
        if gpu.parent is not None:
            found[gpu.uuid] = Sharing.MIG
        elif gpu.uuid in by_mps:
            found[gpu.uuid] = Sharing.MPS
        else:
            found[gpu.uuid] = Sharing.DRA if gpu.uuid in by_claim else by_labels
    return found


def _by_labels(node: Node) -> Sharing | None:
    """What the labels of the node say of its cards.

    GPU feature discovery labels whole cards as `nvidia.com/gpu` also where the device plugin renames that resource
    (fullGPUResourceName in internal/lm/resource.go of NVIDIA/k8s-device-plugin).
    """
    if node.awaited:
        return None
    by_gke = node.labels.get(_GKE, "")
    if _MPS in (strategy_of(GPU_RESOURCE, node), by_gke):
        return Sharing.MPS
    return Sharing.TIME_SLICING if by_gke or is_cut(GPU_RESOURCE, node) else Sharing.WHOLE
