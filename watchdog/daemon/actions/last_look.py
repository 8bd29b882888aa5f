"""The last look right before the first signal: when it is taken, and whether the signal is still justified by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from watchdog.core.assess import assess
from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.decide import due_step
from watchdog.core.errors import Problem
from watchdog.core.gate import is_behind_another
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gap, GapReason, Now, ProcessKey, Snapshot
from watchdog.core.plan import Moment, Objection, OpenCycle, Outcome, PlanEntry, Result
from watchdog.core.policy import Policy, Scope
from watchdog.core.remembered import DeclarationMemory
from watchdog.core.transfers import Transfers
from watchdog.core.victims import targets_of, victims_of
from watchdog.daemon.sampler import RETRIED_NEXT_CYCLE, TimedReading
from watchdog.journal.writer import COMMIT_WITHIN_S
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner

# The greatest age of the last look when the first signal is sent.
FRESH_S: Final = 2.0
# The loop wakes when the disk's time is up. This much later, it is the loop that is late.
_PROMPT_S: Final = 0.5
# A last look that came too late is repeated once.
_MOST_REQUESTS: Final = 2


class Next(Enum):
    """What an open cycle needs next."""

    WAIT = auto()  # for the disk, or for the driver
    READ = auto()  # the GPUs concerned, for the last look
    CLOSE = auto()


@dataclass(slots=True, kw_only=True)
class PendingCycle:
    """A cycle that has a plan and is not closed yet."""

    opened: OpenCycle
    # From when on the disk has time for its intentions.
    since: Now
    # That of the last look, if it came in time.
    last_reading: TimedReading | None = None
    # How many seconds a last look took that came too late; None: none did.
    late_s: float | None = field(default=None, init=False)
    # Whether the loop saw only long after `write_until_s` whether the intentions were on disk, so that nothing may
    # begin.
    was_late: bool = field(default=False, init=False)
    # How many last looks were asked for.
    _requests: int = field(default=0, init=False)
    # Whether one is being waited for.
    _is_asked: bool = field(default=False, init=False)
    # Whether the intentions were already seen to be on disk.
    _was_written: bool = field(default=False, init=False)

    @property
    def write_until_s(self) -> float:
        """CLOCK_BOOTTIME by which the intentions must be on disk."""
        return self.since.boottime_s + COMMIT_WITHIN_S

    @property
    def waits_for_disk(self) -> bool:
        """Whether only the disk is waited for, and not the driver."""
        return not self._is_asked

    def next(self, now: Now, *, maintenance: bool) -> Next:
        """What to do now: wait for the intentions to be on disk, then query the driver, then close the cycle."""
        if self._is_asked:
            return Next.WAIT
        if maintenance:
            return Next.CLOSE
        is_first, self._was_written = not self._was_written, self.opened.is_written
        if is_first and not self.was_late and now.boottime_s > self.write_until_s + _PROMPT_S:
            self.was_late, self.since = True, now  # from here a disk that has not written has its own time
        if not self.opened.is_written and now.boottime_s < self.write_until_s:
            return Next.WAIT
        if self.was_late:
            return Next.CLOSE
        is_read = self.last_reading is not None or self._requests >= _MOST_REQUESTS or self._is_over(now)
        return Next.CLOSE if is_read or not self.opened.needs_last_look else Next.READ

    def _is_over(self, now: Now) -> bool:
        """Whether the plan's reading is so old that a reading now would restart every stretch."""
        age_s = now.boottime_s - self.opened.snapshot.at.boottime_s
        return age_s >= self.opened.inputs.policy.reset_after_s

    def on_request(self) -> None:
        """Note that the driver has been queried."""
        self._is_asked = self._was_written = True
        self._requests += 1

    def on_reading(self, reading: TimedReading) -> None:
        """Take the driver's answer; one that comes too late is not used."""
        self._is_asked = False
        is_in_time = reading.took_s <= FRESH_S
        self.last_reading, self.late_s = (reading, None) if is_in_time else (None, reading.took_s)


def without_last_look(opened: OpenCycle, took_s: float) -> OpenCycle:
    """A cycle whose last look took too long, with a gap that reports it; nothing is done."""
    why = Problem(
        f"the driver took {took_s:.1f} s for the last look before a signal (limit: {FRESH_S:.0f} s), so no signal was "
        "sent",
        RETRIED_NEXT_CYCLE,
    )
    gap = Gap(reason=GapReason.DRIVER_TIMEOUT, what=f"{opened.snapshot.interface} last look", problem=why)
    return replace(opened, snapshot=replace(opened.snapshot, gaps=(*opened.snapshot.gaps, gap)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLook:
    """The reading right before the first signal."""

    reading: DriverReading
    # When it was requested.
    asked: Now
    # When it is judged.
    at: Now
    # The objection to an action, whatever the reading shows; called right before its first signal.
    objection: Objection
    # Gives the pods, the node and the namespaces at that moment.
    inputs: Callable[[], Inputs]

    @property
    def fresh_until_s(self) -> float:
        """CLOCK_BOOTTIME until which it may be used."""
        return self.asked.boottime_s + FRESH_S


Reassess = Callable[[Inputs], Mapping[AccountKey, Assessment]]


def reassessor(
    scanner: Scanner,
    opened: OpenCycle,
    last: LastLook | None,
    now: Now,
    memory: DeclarationMemory,
    transfers: Transfers,
) -> Reassess:
    """A function that reassesses the accounts that a cycle is about to act on, by a last reading of their GPUs.

    What `transfers` made unknown in the cycle stays so.
    """
    if last is None or not opened.only:
        return lambda inputs: {}
    snapshot = scanner.rescan(opened.snapshot, last.reading, opened.only, now, asked=last.asked)
    concerned = {entry.account.uid for entry in opened.plan.taken}
    # What others use of a claim counts together with that.
    parts = {part.key for entry in opened.plan.taken for part in entry.assessment.shared}
    concerned |= {each.pod.uid for each in opened.assessments if any(part.key in parts for part in each.shared)}

    def reassess(inputs: Inputs) -> Mapping[AccountKey, Assessment]:
        attribution = transfers.hide(attribute(snapshot, inputs.pods.pods), snapshot, inputs)
        pods = tuple(pod for pod in inputs.pods.pods if pod.uid in concerned)
        known = opened.inputs
        given = replace(inputs, pods=replace(inputs.pods, pods=pods)).as_read_in(known)
        return {assessment.account: assessment for assessment in assess(attribution, snapshot, given, memory)}

    return reassess


def objection_to_first_signal(
    entry: PlanEntry, moment: Moment, *, reassess: Reassess, before: Inputs, last_look: LastLook, ledger: Ledger
) -> str | None:
    """Why a first signal must not be sent, right before it is; None if there is no reason.

    If the pod, the node or a namespace has changed since the last look, the same reading is assessed again instead of a
    new one, so a tenant can't delay the signal by changing its objects often. For the same reason a change counts only
    if the step is not due any more, or something else would be ended.
    """
    why = last_look.objection(entry, moment)
    if why is not None:
        return why
    inputs, pod = last_look.inputs(), entry.assessment.pod
    is_same = inputs.has_same_objects(before)
    if is_same and pod in inputs.pods.pods:
        return None
    reassessed = reassess(inputs)
    due = retarget(entry, reassessed.get(entry.account), inputs.policy, ledger, last_look.at)
    justified = justify(due, reassessed, inputs, last_look, last_look.at)
    if not isinstance(justified, PlanEntry):
        return justified.reason if isinstance(justified, Outcome) else justified
    return None if _ended_by(justified) == _ended_by(entry) else "what it would have ended had changed"


def _ended_by(entry: PlanEntry) -> tuple[Scope | None, str, Mapping[str, frozenset[str]]]:
    """What an action would end: its scope, its victim, and the IDs of the containers that it acts on for their use."""
    using = {use.container for use in entry.assessment.uses if use.container}
    names = using if entry.definition.hits_whole_pod else {entry.victim}
    ids = {container.name: container.ids for container in entry.assessment.pod.containers if container.name in names}
    return (entry.definition.scope, entry.victim, ids) if entry.do.takes_scope else (None, "", ids)


def retarget(entry: PlanEntry, assessment: Assessment | None, policy: Policy, ledger: Ledger, now: Now) -> PlanEntry:
    """The entry or, if another rule applies to the pod at the last look, that rule's due step with the same action.

    A tenant can't avoid enforcement by changing the label that a rule matches again and again. After a reload, earlier
    plans are void.
    """
    is_same_policy = any(rule is entry.rule for rule in policy.rules)
    if assessment is None or assessment.rule is entry.rule or not is_same_policy:
        return entry
    due = due_step(assessment, policy, ledger, now, entry.do)
    return entry if due is None else replace(due, taken=True)


def justify(
    entry: PlanEntry, reassessed: Mapping[AccountKey, Assessment], inputs: Inputs, last_look: LastLook | None, now: Now
) -> PlanEntry | Outcome | str:
    """The entry updated by the last look; an outcome or a reason if it must not begin."""
    if inputs.maintenance:
        return "the GPUs came under maintenance"
    if inputs.pods_stale:
        return "the pod list had become too old"
    if not inputs.acts_on(entry.assessment):
        return "enforcement had been turned off"
    if inputs.policy_unsettled:
        return "the policy file had changed and might still be being written"
    if last_look is None:
        return "the driver did not respond to the last look in time"
    return update(entry, reassessed.get(entry.account), now)


def update(entry: PlanEntry, assessment: Assessment | None, now: Now) -> PlanEntry | Outcome | str:
    """The entry updated by the last look; an outcome if nothing is left to do, a reason if that is uncertain."""
    if assessment is None or assessment.allowed is None:
        return "its use or its limit was unknown at the last look"
    step = entry.definition
    allowed = assessment.allowed_under_pressure if step.under_pressure else assessment.allowed
    threshold_bytes = step.above.threshold_bytes(assessment.allowed if allowed is None else allowed, entry.do)
    if assessment.compared <= threshold_bytes and not assessment.is_compared_known:
        return "part of its use was unknown at the last look"
    changed = _change(entry, assessment)
    if assessment.compared <= threshold_bytes:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its use was at or below the threshold again")
    if changed is None and entry.gpu is not None and entry.gpu not in assessment.short:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its GPU was no longer short of memory")
    if is_behind_another(assessment, threshold_bytes):
        changed = changed or f"pod {assessment.behind_pod} used more of the claim that both have"
    changed = changed or _restart(entry, assessment.compared, threshold_bytes)
    targets = targets_of(assessment, entry.victim, step, entry.gpu)
    updated = replace(entry, assessment=assessment, targets=targets, threshold_bytes=threshold_bytes)
    if updated.hazard is not None:
        return changed or "ending one of its processes could have broken the work of other pods"
    return changed or updated


def _restart(entry: PlanEntry, used: int, threshold_bytes: int) -> str | None:
    """Why the step is no longer due: like any reading, the last look may restart its stretch."""
    stretch = entry.stretch
    if stretch is None or entry.definition.for_s <= 0 or entry.tally is not None:  # a tally outlasts such readings
        return None
    if min(used, stretch.least_used) > max(threshold_bytes, stretch.threshold_bytes):
        return None
    return "its limit had changed, and its use had not been above the new threshold the whole time"


def _change(entry: PlanEntry, assessment: Assessment) -> str | None:
    """The change since the plan was made that invalidates the entry; None if there is none."""
    if assessment.rule is not entry.rule:
        return "the policy, or the rule that applies to the pod, had changed"
    if assessment.protected is not None:
        return f"the pod had become protected: {assessment.protected}"
    if assessment.observes:
        return f"rule {entry.rule.name} had switched to only observing"
    # Another container may be furthest over by now: with several of similar use, none would ever be ended.
    victims = victims_of(assessment, entry.gpu)
    is_victim = bool(victims) if entry.definition.hits_whole_pod else entry.victim in victims
    if not entry.do.takes_scope or is_victim:
        return None
    return "no container that it would have ended was over its own declaration any more"


def still_listed(scanner: Scanner, snapshot: Snapshot) -> Callable[[ProcessKey], bool]:
    """A function: whether the driver may still list a process, or its memory after it has ended."""
    pids = {use.pid for use in snapshot.uses}

    def is_listed(key: ProcessKey) -> bool:
        process = snapshot.processes.get(key.pid)
        is_there = key.pid in pids and (process is None or process.key in (None, key))
        return is_there or snapshot.blind or scanner.may_be_listed(key, snapshot)

    return is_listed
