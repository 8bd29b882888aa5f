"""Capacity: how much GPU memory a node can advertise, and when a smaller amount than before is trusted."""

from watchdog.core.model import GapReason, Now, Snapshot
from watchdog.core.policy import Capacity
from watchdog.core.units import parse_number


def offered(capacity: Capacity, snapshot: Snapshot) -> int | None:
    """The amount that the node can advertise, in units of the resource; None if unknown, so nothing is changed.

    For "cards" it is the sum, over all cards and MIG instances that are up, of what tenants can share less `reserve`; a
    card in MIG mode does not count. An amount set in the policy is offered in full while any of them is up. A node
    whose cards are all gone offers nothing.
    """
    if not _is_known(snapshot):
        return None
    up = [gpu for gpu in snapshot.gpus if gpu.up]
    if capacity.amount is not None:
        return capacity.amount // capacity.unit if up else 0
    sizes = {gpu.memory: gpu.size for gpu in up}
    if None in sizes.values():
        return None
    # Rounded down, so that every unit offered exists.
    return sum(max(0, (size or 0) - capacity.reserve) for size in sizes.values()) // capacity.unit


def _is_known(snapshot: Snapshot) -> bool:
    """Whether every device of the node is known: a lost one is, one that could not be read is not."""
    if snapshot.blind:
        return False
    rows = {gpu.uuid for gpu in snapshot.gpus}
    parents = {parent.uuid for parent in snapshot.parents}
    if snapshot.unseen - rows - parents:
        return False  # a device exists whose UUID could not be read
    cut = {gpu.parent for gpu in snapshot.gpus}
    return not any(gap.reason is GapReason.MIG and gap.gpu in parents - cut for gap in snapshot.gaps)


def advertised(written: str | None) -> int | None:
    """What a node advertises, from the quantity as written; 0 without an entry, None if it is not a whole number."""
    if written is None:
        return 0
    try:
        number = parse_number(written)
    except ValueError:
        return None
    return int(number) if number.denominator == 1 else None


class Settling:
    """Delays a decrease until it has lasted for some time; an increase takes effect at once.

    The amount must not flap when the driver stops answering for a moment. The scheduler would place nothing meanwhile,
    and a kubelet that starts then would reject running pods (canAdmitPod in k8s.io/kubernetes/pkg/kubelet). Too large
    an amount for some seconds does less harm: a pod may start without a card. An unknown amount restarts the wait.
    """

    def __init__(self) -> None:
        self._since: Now | None = None
        self._highest = 0

    def settle(self, wanted: int | None, present: int | None, at: Now, hold_s: float) -> int | None:
        """What to advertise instead of `present` when `wanted` was found at this moment; None: no change.

        `hold_s` is how long, in seconds of CLOCK_BOOTTIME, every reading must have been smaller.
        """
        if wanted is None or wanted == present:
            self._since = None
            return None
        if present is None or wanted > present:
            self._since = None
            return wanted
        if self._since is None or self._since.boot_id != at.boot_id:
            self._since, self._highest = at, wanted
        self._highest = max(self._highest, wanted)
        if at.boottime_s - self._since.boottime_s < hold_s:
            return None
        self._since = None  # a further decrease waits again
        return self._highest
