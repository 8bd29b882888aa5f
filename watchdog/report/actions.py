"""Actions in sentences: what was used, what is sent, what came of it, and why nothing was done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from watchdog.core.assessment import Assessment
from watchdog.core.model import Now
from watchdog.core.plan import Outcome, PlanEntry, Result, Sent
from watchdog.core.policy import Do, Policy, Rule, Step
from watchdog.core.units import format_bytes, format_duration, format_percent, format_quantity
from watchdog.report.brakes import AGAIN, brief
from watchdog.report.text import LONGEST_NAME, clip, count, elapsed_s, inert, span


def usage(entry: PlanEntry, now: Now, limit: int = LONGEST_NAME, *, past: bool = False) -> str:
    """Say who uses (or, in the past, used) how much, how that stands against what is allowed, and for how long."""
    assessment = entry.assessment
    since_s = elapsed_s(entry.above_since, now)
    lasting = f", for {span(since_s)}" if since_s >= 0.05 else ""
    subject = capital(holder(assessment, limit))
    where = f" on {inert(assessment.account.gpu, limit)}" if assessment.account.gpu is not None else ""
    used = f"{amount_used(assessment)} of GPU memory{where}"
    return f"{subject} {'used' if past else 'uses'} {used}, {_comparison(entry, limit)}{lasting}."


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerms:
    """What a step holds an account to: bytes allowed and declared, and where they come from; None: nothing holds."""

    allowed: int | None
    declared: int | None
    origin: str


def terms(entry: PlanEntry, limit: int = LONGEST_NAME) -> StepTerms:
    """What an entry's step holds the account to.

    While its card is short that is what was requested, where the tenant has named a limit above it.
    """
    assessment = entry.assessment
    requested, by_request = assessment.requested, assessment.allowed_by_request
    if entry.definition.under_pressure and requested is not None and by_request is not None:
        return StepTerms(allowed=by_request, declared=requested, origin="requested")
    return StepTerms(allowed=assessment.allowed, declared=assessment.declared, origin=source(assessment, limit))


def _comparison(entry: PlanEntry, limit: int) -> str:
    held_to, used = terms(entry, limit), entry.assessment.used_at_least
    allowed, declared, origin = held_to.allowed, held_to.declared, held_to.origin
    if allowed is None or declared is None:
        return "with no declaration that holds"
    if allowed == 0:
        return f"where none is allowed (0 {origin})"
    if allowed != declared:
        origin = f"{format_bytes(declared)} {origin}, plus allowance"
    percent = round(100 * used / allowed)
    # A few MiB over a large amount would read as "100% of what is allowed".
    share = f"{format_bytes(used - allowed)} more than" if used > allowed and percent <= 100 else f"{percent}% of"
    return f"{share} the {format_bytes(allowed)} allowed ({origin})"


def because(
    entry: PlanEntry, limit: int = LONGEST_NAME, policy: Policy | None = None, *, in_bytes: bool = False
) -> str:
    """Name the rule and the mark, as a sentence: `Rule notebooks: above 110% for 10s`; `mark` has `in_bytes`."""
    return f"Rule {inert(entry.rule.name, limit)}: {mark(entry, policy, in_bytes=in_bytes)}."


def mark(entry: PlanEntry, policy: Policy | None = None, *, in_bytes: bool = False) -> str:
    """The mark of an entry's step for people: `above 110% for 10s`; of a step under pressure with the card it is for.

    With the policy it says how little free memory makes a card short; `in_bytes`, where nothing beside it does, what
    the mark is a share of: `above 110% of the 10.2Gi allowed for 10s`.
    """
    allowed, step = entry.assessment.allowed, entry.definition
    raised = step.above.amount is not None and allowed is not None and entry.threshold_bytes > step.above.amount
    card = inert(entry.card) if entry.card is not None else "its card"
    whole = terms(entry).allowed if in_bytes else None
    return (
        _plain_mark(step, whole) + (" (and above what is allowed)" if raised else "") + _while_short(step, card, policy)
    )


def mark_of(step: Step, policy: Policy | None = None) -> str:
    """The mark of a step for people: `above 110% for 10s`, `more than 512Mi above allowed, at once`."""
    return _plain_mark(step) + _while_short(step, "its card", policy)


def _plain_mark(step: Step, allowed: int | None = None) -> str:
    plus, whole = step.above.plus, f"the {format_bytes(allowed)} allowed" if allowed else ""
    if plus is not None:
        threshold = f"more than {format_quantity(plus)} above {whole or 'allowed'}"
    else:
        threshold = f"above {step.above}{f' of {whole}' if whole and step.above.amount is None else ''}"
    return f"{threshold} for {format_duration(step.for_s)}" if step.for_s else f"{threshold}, at once"


def _while_short(step: Step, card: str, policy: Policy | None) -> str:
    if not step.under_pressure:
        return ""
    free = f" (less than {format_percent(policy.pressure.free_below)} free)" if policy is not None else ""
    return f" while {card} is short of memory{free}"


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


def sent_signals(sent: Sequence[Sent]) -> str:
    """Which signals were really sent: `SIGTERM`, `SIGTERM, and 1 process SIGKILL after 10s`."""
    first, *others = sent or (None,)
    if first is None:
        return "no signal"
    if not others:
        return first.signal
    (last,) = others
    whose = "then" if first.keys <= last.keys else f"and {count(len(last.keys), 'process', 'processes')}"
    return f"{first.signal}, {whose} {last.signal} after {span(last.after_s)}"


def shown_as(entry: PlanEntry, *, past: bool = False) -> str:
    """How Kubernetes shows the end of a kill, as a sentence that is true whatever the program does on SIGTERM."""
    step, owner = entry.definition, entry.assessment.pod.owner
    ends, exits, is_main = ("ended", "exited", "was") if past else ("ends", "exits", "is")
    job = ", and its Job counts that as success" if owner is not None and owner.kind == "Job" else ""
    codes = f"Error with exit code 143 or 137 if a signal {ends} it, Completed if it {exits} with 0{job}"
    codes = codes if step.grace_s else "Error with exit code 137"
    if step.scope == "process":
        return f"Its container ends with it only if it {is_main} the main process, and not as OOMKilled: {codes}."
    if not step.grace_s:
        return f"Kubernetes shows this as {codes}, not as OOMKilled."
    return f"Kubernetes shows how the main process {ends}, not OOMKilled: {codes}."


def next_force(rule: Rule, step: int, allowed: int | None = None) -> str:
    """What the rule does further up its ladder: `the rule kills above 110% for 10s, which is 11.2Gi here`.

    `allowed` are the bytes of which its mark is a share.
    """
    later = later_force(rule, step)
    if later is None:
        return "the rule does nothing more"
    in_bytes = allowed and not later.under_pressure and later.above.amount is None
    threshold = (
        f", which is {format_bytes(later.above.threshold_bytes(allowed, later.do))} here"
        if in_bytes and allowed
        else ""
    )
    return f"the rule {later.do.verb.does} {mark_of(later)}{threshold}"


def later_force(rule: Rule, step: int) -> Step | None:
    """The next step of a rule that kills or evicts; one under pressure only where no other is left."""
    later = [each for each in rule.steps[step + 1 :] if each.do.is_force]
    return min(later, key=lambda each: each.under_pressure, default=None)


def capital(text: str) -> str:
    """A clause as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


# In short; the remedies stand beside the reasons themselves (watchdog.daemon.enforcement).
_SUSPENDED: Final = {
    "pid_namespace": "it does not run in the host's PID namespace",
    "procfs": "its /proc is of another PID namespace",
    "pidfd": "the pidfd calls are missing",
    "policy_section": "the policy has a section that has no effect in this version",
    "lock": "another watchdog holds the lock",
    "journal": "the journal can't be opened",
    "stop_file": "the stop file",
    "node_annotation": "the annotation of the node",
    "node_unknown": "the node's own object is not known",
    "policy_file": "the policy file is new or has changed, and has not settled",
}


def observing_because(
    assessment: Assessment, limit: int = LONGEST_NAME, policy: Policy | None = None, suspended: tuple[str, ...] = ()
) -> str:
    """Why nothing is done; `suspended` are the reasons why a daemon that was told to enforce does not."""
    rule = assessment.rule
    if assessment.observes and rule is not None:
        if rule.mode == "observe" or rule.active is None:
            return "this rule only observes"
        return f"this rule only observes outside its hours ({inert(rule.active.text, limit)})"
    if suspended:
        return f"enforcement is suspended ({suspended_because(suspended)})"
    if policy is not None and policy.mode == "enforce":
        return "enforcement was suspended"
    return "observe mode"


def suspended_because(suspended: tuple[str, ...]) -> str:
    """Why enforcement is suspended, in short."""
    return "; ".join(_SUSPENDED.get(each, inert(each)) for each in suspended)


def is_idle(assessment: Assessment, policy: Policy | None, suspended: tuple[str, ...]) -> bool:
    """Whether nothing is done, as far as that is known; without the policy it is not known of the mode."""
    return assessment.observes or bool(suspended) or (policy is not None and policy.mode == "observe")


# The API server refuses an Event whose note is longer (k8s.io/kubernetes pkg/apis/core/validation/events.go).
LONGEST_NOTE: Final = 1024


def acted(verb: str, entry: PlanEntry, processes: int | None, limit: int) -> str:
    """A verb with what it is done to."""
    match entry.do:
        case Do.WARN:
            return verb
        case Do.KILL:
            return f"{verb} {victims(entry, processes, limit)}"
        case Do.EVICT:
            return f"{verb} the pod with a grace period of {format_duration(entry.definition.grace_s)}"
        case _:
            assert_never(entry.do)


def by(entry: PlanEntry, limit: int) -> str:
    """By which rule and mark, in brackets."""
    return f" (rule {inert(entry.rule.name, limit)}, {mark(entry)})"


def fit(write: Callable[[int], str], size: int = LONGEST_NOTE) -> str:
    """Write with names as long as they are, or shorter where it would not fit the note of an Event, or `size` bytes."""
    for limit in (LONGEST_NAME, 63):
        text = write(limit)
        if len(text.encode("utf-8", errors="replace")) <= size:
            return text
    return clip(write(24), size)


def outcome_note(outcome: Outcome, size: int = LONGEST_NOTE) -> str:
    """Say what came of a step, in at most `size` bytes of UTF-8 (1 kB)."""

    def write(limit: int) -> str:
        what = _OUTCOMES[outcome.result](outcome, limit)
        return f"{capital(holder(outcome.entry.assessment, limit))}: {what}{by(outcome.entry, limit)}."

    return fit(write, size)


def delay_note(entry: PlanEntry) -> str:
    """Say that an eviction has not come about yet, and why, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        why = brief(entry.trying.refused, limit) if entry.trying is not None else ""
        what = f"{acted(entry.do.verb.doing, entry, None, limit)} has not come about yet {AGAIN}: {why}"
        return f"{capital(holder(entry.assessment, limit))}: {what}{by(entry, limit)}."

    return fit(write)


def release_note(outcome: Outcome) -> str:
    """Say when the memory of a kill was seen free, or that it was not, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        title = capital(holder(outcome.entry.assessment, limit))
        if outcome.release_s is not None:
            return (
                f"{title}: its memory was free again {span(outcome.release_s)} after {outcome.entry.do.first_effect}."
            )
        return f"{title}: its memory has not been seen free again{_reason(outcome, limit)}."

    return fit(write)


def _reason(outcome: Outcome, limit: int) -> str:
    return f": {brief(outcome.reason, limit)}" if outcome.reason else ""


def _tried(outcome: Outcome, limit: int) -> str:
    return acted(outcome.entry.do.verb.doing, outcome.entry, len(outcome.signalled) or None, limit)


def _done(outcome: Outcome, limit: int) -> str:
    begun = outcome.entry.do.first_effect
    freed = f"; the memory was free {span(outcome.release_s)} after {begun}" if outcome.release_s else ""
    done = acted(outcome.entry.do.verb.done, outcome.entry, len(outcome.signalled) or None, limit)
    how = f" with {sent_signals(outcome.sent)}" if outcome.sent else ""
    return f"{done}{how}{_reason(outcome, limit)}{freed}"


def _observed(outcome: Outcome, limit: int) -> str:
    done = acted(outcome.entry.do.verb.done, outcome.entry, None, limit)
    if outcome.entry.assessment.observes:
        return f"would have {done}, but {observing_because(outcome.entry.assessment, limit)}{_reason(outcome, limit)}"
    return f"observe mode would have {done}{_reason(outcome, limit)}"


_OUTCOMES: Final[dict[Result, Callable[[Outcome, int], str]]] = {
    Result.DONE: _done,
    Result.FAILED: lambda outcome, limit: f"{_tried(outcome, limit)} failed{_reason(outcome, limit)}",
    Result.BLOCKED: lambda outcome, limit: f"{_tried(outcome, limit)} is blocked {AGAIN}{_reason(outcome, limit)}",
    Result.GONE: lambda outcome, limit: f"{_tried(outcome, limit)} was not needed any more{_reason(outcome, limit)}",
    Result.INTERRUPTED: lambda outcome, limit: f"{_tried(outcome, limit)} was interrupted{_reason(outcome, limit)}",
    Result.WITHDRAWN: lambda outcome, limit: f"{_tried(outcome, limit)} was withdrawn{_reason(outcome, limit)}",
    Result.OBSERVED: _observed,
}
