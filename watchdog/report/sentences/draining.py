"""MPS in words: the clients that are drained before an action, what a hazard is, and how much a client may pin."""

from collections.abc import Iterator, Sequence
from typing import Final

from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.model import DRAIN
from watchdog.core.plan import PlanEntry, Sent
from watchdog.core.policy import Policy
from watchdog.core.units import format_bytes
from watchdog.report.status import PinnedTotalStatus
from watchdog.report.text import count, inert

DRAINED_FIRST: Final = "the MPS server is asked to end its clients first"
DRAINED_FIRST_SHORT: Final = "MPS clients are drained first"
ENDED_BY_DRAIN: Final = "ended once its MPS clients had been drained"
WAS_ASKED: Final = "The MPS server was asked to end its clients"


def is_drain(name: str) -> bool:
    """Whether what was sent is a request to drain a client, as the journal names it."""
    return name == DRAIN


def draining(entry: PlanEntry, *, observing: bool = False) -> str:
    """That MPS clients are drained before the action, as a sentence with a space before it; empty if there are none."""
    number = len(entry.to_drain)
    if not number:
        return ""
    asked, spared = ("would be", "would not be") if observing else ("is", "are not")
    spared = f"so that other pods on the server {spared} affected"
    grace = (
        "" if observing else f" The grace period does not extend {'its' if number == 1 else 'their'} work on the GPU."
    )
    return f" The MPS server {asked} asked to end {count(number, 'client')} first, {spared}.{grace}"


def drained(sent: Sequence[Sent]) -> str:
    """That MPS clients were drained before the action: `, after 2 MPS clients were drained`; empty if none was."""
    number = len({key for each in sent if is_drain(each.signal) for key in each.keys})
    return f", after {count(number, 'MPS client')} {'was' if number == 1 else 'were'} drained" if number else ""


def drained_by(policy: Policy) -> Iterator[str]:
    """What a policy says on draining, as a line of its summary."""
    if policy.mps is not None:
        yield f"MPS clients are drained before they are ended, by the control daemons of {', '.join(policy.mps.pipe)}"


def asked_to_end(clients: int, whose: str) -> str:
    """That some clients were to be drained: `the MPS server was asked to end 2 clients of the pod`."""
    return f"the MPS server was asked to end {count(clients, 'client')} of {whose}"


def hazard_because(hazard: Hazard | None) -> str:
    """Why an action would break the work of other pods; None: what it would break is not known."""
    role = HazardRole.HIDDEN if hazard is None else hazard.role
    if role is HazardRole.HIDDEN or hazard is None:
        return "MPS clients may be missing in this reading (see the data gaps), and ending one can break the others"
    who = f"container {inert(hazard.container or '')}"
    if hazard.key is not None:
        who = f"process {hazard.key.pid} ({inert(hazard.name)}) in {who}"
    if role is HazardRole.SERVER:
        return f"{who} may be an MPS server, and the work of all its clients would break with it"
    broken = "ending it can break the work of the other clients"
    return f"{who} is a client of an MPS server outside its pod that can't be drained, and {broken}"


def claim_limit(most: int) -> str:
    """What claims let each of an account's MPS clients pin, in a sentence."""
    limit = format_bytes(most)
    return f"By its claim each of its MPS clients may pin at most {limit}; that is no limit for all of them together."


def pinned_limits(pinned: PinnedTotalStatus, declared: int | None) -> str:
    """What MPS lets an account's clients use, and whether that exceeds what the account declares; a clause."""
    most, together = format_bytes(pinned.most), format_bytes(pinned.together)
    text = f"its MPS client may pin at most {most}"
    if pinned.clients > 1:
        text = f"each of its {pinned.clients} MPS clients may pin at most {most}, together {together}"
    if pinned.exceeds_declared and declared is not None:
        text += f", more than the {format_bytes(declared)} declared: MPS alone does not keep it within its declaration"
    return text
