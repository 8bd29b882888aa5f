"""What the node's own object tells the daemon to do: observe only, or let the driver go. Both only ever lower force."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gap, Node

MODE: Final = "gpu-memory-watchdog/mode"  # annotation
RELEASE: Final = "gpu-memory-watchdog/release-driver"  # annotation
MIG_STATE: Final = "nvidia.com/mig.config.state"
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"

# Set by NVIDIA's MIG manager before it ends the clients of the GPUs, and before it reboots the node; afterwards the
# state is `success` or `failed` (NVIDIA/mig-parted, deployments/gpu-operator/reconfigure-mig.sh).
_MIG_CHANGES: Final = frozenset({"pending", "rebooting"})
# From the cordon of the node to the restart of its driver pod (NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go).
# Before that (`upgrade-required`) "no actions are performed"; from `validation-required` on the new driver runs.
_UPGRADES: Final = frozenset(
    {
        "node-maintenance-required",
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "post-maintenance-required",
        "pod-restart-required",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """What is asked for. `maintenance` is why the driver is to be let go, None: it is not.

    `ignored` is what the mode's annotation holds where that means nothing. `unseen` says that the node's object was
    asked for and is not known, or not any more, so that none of this can be.
    """

    observes: bool = False
    ignored: str | None = None
    maintenance: str | None = None
    unseen: bool = False


def switches(node: Node, gaps: Iterable[Gap]) -> Switches:
    """Read the switches of a node as its source has it; `gaps` are what that source could not learn of it.

    A node that is not known, and of which nothing is missing either, was never asked for: it asks for nothing.
    """
    if not node.known:
        return Switches(unseen=any(True for _ in gaps))
    mode = node.annotations.get(MODE)
    observes = mode is not None and mode.strip().lower() == "observe"
    return Switches(observes=observes, ignored=None if observes else mode, maintenance=maintenance_of(node))


def maintenance_of(node: Node) -> str | None:
    """Say by what a node's object tells that its driver is to be let go, or None."""
    for label, states in ((MIG_STATE, _MIG_CHANGES), (UPGRADE_STATE, _UPGRADES)):
        if node.labels.get(label) in states:
            return f"the node's label {label} is {node.labels[label]}"
    # As with other marks of a node its presence counts, an empty value too; only what plainly says no does not.
    release = node.annotations.get(RELEASE)
    if release is not None and release.strip().lower() != "false":
        return f"the node carries the annotation {RELEASE}"
    return None
