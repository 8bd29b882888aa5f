"""The last look, right before the first signal: what the GPUs concerned and their processes say by then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from watchdog.core.assess import allowed_under_pressure, assess
from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.attribute import attribute
from watchdog.core.decide import due_step, targets_of, victim_of
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now, ProcessKey, Snapshot
from watchdog.core.plan import OpenCycle, Outcome, PlanEntry, Result, View
from watchdog.core.policy import Do, Policy
from watchdog.node.driver import DriverReading
from watchdog.node.scan import Scanner


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLook:
    """The look right before the first signal: what the driver said, when it was asked, and until when that is good.

    `refusal` says right before a first signal what speaks against it at that moment, whatever the look says; None:
    nothing. `view` gives the pods, the node and the namespaces as they are at that moment.
    """

    reading: DriverReading
    at: Now
    fresh_until_s: float
    refusal: Callable[[PlanEntry], str | None]
    view: Callable[[], View]


Stand = Callable[[View], Mapping[AccountKey, Assessment]]


def look_again(scanner: Scanner, opened: OpenCycle, second: DriverReading | None, now: Now) -> Stand:
    """How the accounts stand that a cycle is about to act on, by a second reading of their GPUs."""
    if second is None or not opened.only:
        return lambda view: {}
    snapshot = scanner.look_again(opened.snapshot, second, opened.only, now)
    concerned = {entry.account.uid for entry in opened.plan.actions}

    def stand(view: View) -> Mapping[AccountKey, Assessment]:
        attribution = attribute(snapshot, view.pods.pods)
        pods = [pod for pod in view.pods.pods if pod.uid in concerned]
        setting = replace(view.setting, overdue=opened.overdue)
        return {each.account: each for each in assess(attribution, snapshot, pods, setting)}

    return stand


def refuse(entry: PlanEntry, stand: Stand, before: View, look: LastLook) -> str | None:
    """What speaks against a first signal right before it is sent; None: nothing.

    What has been written on the pod, the node or a namespace since the last look is judged by the same look: whoever
    writes often gains nothing by that.
    """
    why = look.refusal(entry)
    if why is not None:
        return why
    view, pod = look.view(), entry.assessment.pod
    is_same = view.setting.node == before.setting.node and view.setting.namespaces == before.setting.namespaces
    if is_same and pod in view.pods.pods:
        return None
    again = justify(entry, stand(view), view, look, look.at)
    if not isinstance(again, PlanEntry):
        return again.reason if isinstance(again, Outcome) else again
    has_same = again.assessment.pod.containers == pod.containers
    return None if has_same else "the containers of the pod had changed since the last look"


def retarget(entry: PlanEntry, assessment: Assessment | None, policy: Policy, ledger: Ledger, now: Now) -> PlanEntry:
    """The entry, or where another rule is for the pod by the last look, that one's step of the same kind if it is due.

    A tenant who writes the label that a rule goes by, again and again, is not spared for that. After a reload nothing
    holds that was planned before.
    """
    is_same_policy = any(rule is entry.rule for rule in policy.rules)
    if assessment is None or assessment.rule is entry.rule or not is_same_policy:
        return entry
    due = due_step(assessment, policy, ledger, now)
    return replace(due, taken=True) if due is not None and due.do is entry.do else entry


def justify(
    entry: PlanEntry, renewed: Mapping[AccountKey, Assessment], view: View, look: LastLook | None, now: Now
) -> PlanEntry | Outcome | str:
    """The entry by the last look and by what holds at that moment; otherwise what speaks against it."""
    if view.conditions.maintenance:
        return "the GPUs came under maintenance"
    if view.conditions.pods_stale:
        return "the pod list had become too old"
    if not view.acts_on(entry):
        return "enforcement was turned off by then"
    if view.is_held:
        return "the policy file had changed, and had not settled"
    if look is None:
        return "the driver did not answer in time for the last look"
    return renew(entry, renewed.get(entry.account), now)


def renew(entry: PlanEntry, assessment: Assessment | None, now: Now) -> PlanEntry | Outcome | str:
    """The entry by the last look; an outcome where nothing is left to act on, a reason where that can't be said."""
    if assessment is None or assessment.allowed is None:
        return "what it uses, or is allowed, was not known at the last look"
    step = entry.definition
    allowed = allowed_under_pressure(assessment) if step.under_pressure else assessment.allowed
    threshold_bytes = step.above.threshold_bytes(assessment.allowed if allowed is None else allowed, entry.do)
    if assessment.used_at_least <= threshold_bytes and assessment.used is None:
        return "not all of what it uses was known at the last look"
    victim = victim_of(assessment, entry.card) if entry.do is Do.KILL else entry.victim
    changed = _change(entry, assessment, victim)
    if assessment.used_at_least <= threshold_bytes:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its use was at or below the mark again")
    if changed is None and entry.card is not None and entry.card not in assessment.short:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its card had room again")
    changed = changed or _restart(entry, assessment.used_at_least, threshold_bytes)
    targets = targets_of(assessment, victim, step, entry.card)
    again = replace(entry, assessment=assessment, targets=targets, threshold_bytes=threshold_bytes)
    if again.mps_hazard is not None:
        return changed or "by then it would have broken the work of other pods: a process had become an MPS client"
    return changed or again


def _restart(entry: PlanEntry, used: int, threshold_bytes: int) -> str | None:
    """Why the step is not due any more: the last look is a reading like any other, and restarts its stretch."""
    stretch = entry.stretch
    if stretch is None or entry.definition.for_s <= 0:
        return None
    if min(used, stretch.least_used) > max(threshold_bytes, stretch.threshold_bytes):
        return None
    return "its limit had changed, and it was not above the highest one all the time"


def _change(entry: PlanEntry, assessment: Assessment, victim: str) -> str | None:
    """What has changed since the plan so that it does not hold any more; None: nothing."""
    if assessment.rule is not entry.rule:
        return "the policy, or the rule that is for the pod, had changed"
    if assessment.protected is not None:
        return f"the pod was protected by then: {assessment.protected}"
    if assessment.observes:
        return f"rule {entry.rule.name} only observed by then"
    return "another container was the one to act on by then" if victim != entry.victim else None


def still_listed(scanner: Scanner, snapshot: Snapshot) -> Callable[[ProcessKey], bool]:
    """Whether the driver may still list a process, be it only its memory after its end."""
    pids = {use.pid for use in snapshot.uses}

    def is_listed(key: ProcessKey) -> bool:
        process = snapshot.processes.get(key.pid)
        is_there = key.pid in pids and (process is None or process.key in (None, key))
        return is_there or snapshot.blind or scanner.may_be_listed(key, snapshot)

    return is_listed
