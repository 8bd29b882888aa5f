"""The clauses that sentences about an account are made of: who, how much, by which rule, whom it hits, why not."""

from typing import Final

from watchdog.core.findings import Assessment
from watchdog.core.model import Now
from watchdog.core.plan import Brake, PlanEntry
from watchdog.core.policy import Do, Rule, Step
from watchdog.core.units import format_bytes, format_duration, format_quantity
from watchdog.export.phrases import LONGEST_NAME, count, elapsed_s, inert, span

_WHY: Final = {
    Brake.PENDING: "an earlier kill or eviction here has not ended yet",
    Brake.STALE: "the pod list is too old to act on",
    Brake.OWNER: "the brake on kills and evictions of this owner holds",
    Brake.OWNER_BACKOFF: "its owner's last kill or eviction is too recent",
    Brake.NAMESPACE: "the brake on kills and evictions in this namespace holds",
    Brake.NODE: "the brake on kills and evictions on this node holds",
    Brake.BREAKER: "so many owners are over at once that the policy or the node is in doubt, not the pods",
    Brake.JOURNAL: "the journal can't be written, and nothing is killed without a record",
    Brake.MAINTENANCE: "the node's GPUs are under maintenance",
    Brake.UNKNOWN_CONTAINER: "it is not known which container the memory belongs to",
}


def usage(entry: PlanEntry, now: Now, limit: int = LONGEST_NAME) -> str:
    """Say who uses how much, how that stands against what is allowed, and for how long."""
    assessment = entry.assessment
    since_s = elapsed_s(entry.above_since, now)
    lasting = f", for {span(since_s)}" if since_s >= 0.05 else ""
    subject = capital(holder(assessment, limit))
    where = f" on {inert(assessment.account.gpu, limit)}" if assessment.account.gpu is not None else ""
    used = f"{amount_used(assessment)} of GPU memory{where}"
    return f"{subject} uses {used}, {_comparison(assessment, limit)}{lasting}."


def amount_used(assessment: Assessment) -> str:
    """The use in bytes for people; `at least` where a part of it is unknown."""
    return f"{'at least ' if assessment.used is None else ''}{format_bytes(assessment.used_at_least)}"


def holder(assessment: Assessment, limit: int = LONGEST_NAME) -> str:
    """Whom an account belongs to: `pod a/trainer`, `container main of pod a/trainer`."""
    pod = f"pod {inert(assessment.pod.namespace, limit)}/{inert(assessment.pod.name, limit)}"
    container = assessment.account.container
    if container is None:
        return pod
    return f"container {inert(container, limit)} of {pod}" if container else f"an unknown container of {pod}"


def source(assessment: Assessment, limit: int = LONGEST_NAME) -> str:
    """Where the declared amount comes from: `declared by veriff.com/gpu-memory`, `by default of rule notebooks`."""
    if assessment.declared_by == "default" and assessment.rule is not None:
        return f"by default of rule {inert(assessment.rule.name, limit)}"
    return f"declared by {inert(assessment.declared_by or 'nothing', limit)}"


def _comparison(assessment: Assessment, limit: int) -> str:
    used, allowed, declared = assessment.used_at_least, assessment.allowed, assessment.declared
    if allowed is None or declared is None:
        return "with no declaration that holds"
    if allowed == 0:
        return f"where none is allowed (0 {source(assessment, limit)})"
    origin = source(assessment, limit)
    if allowed != declared:
        origin = f"{format_bytes(declared)} {origin}, plus allowance"
    percent = round(100 * used / allowed)
    # A few MiB over a large amount would read as "100% of what is allowed".
    share = f"{format_bytes(used - allowed)} more than" if used > allowed and percent <= 100 else f"{percent}% of"
    return f"{share} the {format_bytes(allowed)} allowed ({origin})"


def because(entry: PlanEntry, limit: int = LONGEST_NAME) -> str:
    """Name the rule and the mark, as a sentence: `Rule notebooks: above 110% for 10s`."""
    return f"Rule {inert(entry.rule.name, limit)}: {mark(entry)}."


def mark(entry: PlanEntry) -> str:
    """The mark of an entry's step for people: `above 110% for 10s`."""
    allowed, step = entry.assessment.allowed, entry.definition
    raised = step.above.amount is not None and allowed is not None and entry.height > step.above.amount
    return mark_of(step) + (" (and above what is allowed)" if raised else "")


def mark_of(step: Step) -> str:
    """The mark of a step for people: `above 110% for 10s`, `more than 512Mi above allowed, at once`."""
    plus = step.above.plus
    height = f"above {step.above}" if plus is None else f"more than {format_quantity(plus)} above allowed"
    return f"{height} for {format_duration(step.for_s)}" if step.for_s else f"{height}, at once"


def victims(entry: PlanEntry, processes: int | None = None, limit: int = LONGEST_NAME) -> str:
    """Name what a kill is aimed at: `3 processes of container main`."""
    number = len(entry.targets) if processes is None else processes
    who = count(number, "process", "processes") if number else "the processes"
    if entry.definition.scope == "pod":
        return f"{who} in all containers of the pod"
    return f"{who} of container {inert(entry.victim, limit)}" if entry.victim else f"{who} of the pod"


def signals(step: Step) -> str:
    """How a kill goes about it: `SIGTERM, then SIGKILL after 10s`."""
    return f"SIGTERM, then SIGKILL after {format_duration(step.grace_s)}" if step.grace_s else "SIGKILL at once"


def withheld_because(entry: PlanEntry, limit: int = LONGEST_NAME) -> str:
    """Why a brake holds an entry back, as the end of a sentence."""
    if entry.withheld_by is Brake.PROTECTED:
        why = entry.assessment.protected
        return f"the pod is protected: {inert(why, limit)}" if why else "a DaemonSet would put the pod back at once"
    return _WHY[entry.withheld_by] if entry.withheld_by is not None else "nothing holds it back"


def next_force(rule: Rule, step: int) -> str:
    """What the rule does further up its ladder: `the rule kills above 110% for 10s`."""
    for later in rule.steps[step + 1 :]:
        if later.do.is_force and not later.under_pressure:
            return f"the rule {'kills' if later.do is Do.KILL else 'evicts'} {mark_of(later)}"
    return "the rule does nothing more"


def capital(text: str) -> str:
    """A clause as the beginning of a sentence."""
    return text[:1].upper() + text[1:]
