"""Capacity: how much GPU memory a node has to offer, and when a smaller amount than before is believed."""

from watchdog.core.model import GapReason, Now, Snapshot
from watchdog.core.policy import Capacity
from watchdog.core.units import parse_number


def offered(capacity: Capacity, snapshot: Snapshot) -> int | None:
    """What the node has to offer, in units of the resource; None: it is not known, and nothing is to be changed.

    Of "cards" it is the sum over the rows that are up, of each what tenants can share of it less `reserve`: a MIG
    instance is a row like a card, and a card in MIG mode is none. An amount of the policy is offered whole while a row
    is up: a node whose cards are all gone has nothing to offer, whatever the policy says.
    """
    if not _is_known(snapshot):
        return None
    up = [gpu for gpu in snapshot.gpus if gpu.up]
    if capacity.amount is not None:
        return capacity.amount // capacity.unit if up else 0
    sizes = [gpu.size for gpu in up]
    if any(size is None for size in sizes):
        return None
    # Rounded down on the sum: a unit that is offered is there.
    return sum(max(0, size - capacity.reserve) for size in sizes if size is not None) // capacity.unit


def _is_known(snapshot: Snapshot) -> bool:
    """Whether every device of the node is known: one that is lost is, one that could not be looked into is not."""
    if snapshot.blind:
        return False
    rows = {gpu.uuid for gpu in snapshot.gpus}
    parents = {parent.uuid for parent in snapshot.parents}
    if snapshot.unseen - rows - parents:
        return False  # a device that is there and could not even be named
    cut = {gpu.parent for gpu in snapshot.gpus}
    return not any(gap.reason is GapReason.MIG and gap.gpu in parents - cut for gap in snapshot.gaps)


def advertised(written: str | None) -> int | None:
    """What a node advertises, of a quantity as written; where the entry is missing, or is none, 0 or None."""
    if written is None:
        return 0
    try:
        number = parse_number(written)
    except ValueError:
        return None
    return int(number) if number.denominator == 1 else None


class Settling:
    """Holds a smaller amount back until it has been seen for a while; a larger one counts at once.

    A driver that stops answering for a moment, card by card, must not make the amount flap: the scheduler would place
    nothing meanwhile, and a kubelet that starts in that moment rejects pods that run (canAdmitPod of each pod of the
    node, in k8s.io/kubernetes/pkg/kubelet). Too large an amount for some seconds does less: a pod starts that finds no
    card. A reading that is not known counts nothing: the wait starts over.
    """

    def __init__(self) -> None:
        self._since: Now | None = None
        self._highest = 0

    def settle(self, wanted: int | None, present: int | None, at: Now, hold_s: float) -> int | None:
        """What to advertise where `present` is advertised and `wanted` was found `at` a moment; None: no change.

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
        self._since = None  # what is smaller still waits again
        return self._highest
