"""Usage, limits and thresholds in words: whose account it is, what it uses, how its limit adds up; in bytes."""

from dataclasses import dataclass

from watchdog.core.assessment import Assessment
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Policy, Step
from watchdog.core.units import format_bytes, format_duration, format_percent, format_quantity
from watchdog.report.status import AccountStatus, PlanStatus, Status, StepStatus
from watchdog.report.text import LONGEST_NAME, capital, elapsed_s, inert, span


def account_name(namespace: str, pod: str, container: str | None, limit: int = LONGEST_NAME) -> str:
    """The name of an account: `pod a/trainer`, `container main of pod a/trainer`; its names have `limit` characters."""
    whole = f"pod {inert(namespace, limit)}/{inert(pod, limit)}"
    if container is None:
        return whole
    return f"container {inert(container, limit)} of {whole}" if container else f"an unknown container of {whole}"


def amount_used(used: int | None, at_least: int) -> str:
    """The amount in use: `12.4Gi`, or `at least 12.4Gi` where a part of it is unknown."""
    return f"{'at least ' if used is None else ''}{format_bytes(at_least)}"


def origin(declared_by: str | None, default: str, limit: int = LONGEST_NAME) -> str:
    """Where a declared amount comes from: `declared by veriff.com/gpu-memory`, or from the `default` as it is named."""
    if declared_by == "default" and default:
        return f"from {default}"
    return f"declared by {inert(declared_by or 'nothing', limit)}"


def limit_sum(allowed: int, declared: int, source: str, how: str = "") -> str:
    """A limit and how it adds up: `10.2Gi: 8Gi declared by a.b/memory, plus 2.2Gi driver allowance`.

    `source` is where the declared amount comes from, `how` is put after the allowance.
    """
    if allowed == 0:
        return f"0 ({source})"
    if allowed == declared:
        return f"{format_bytes(allowed)}, {source}"
    allowance = f"{format_bytes(allowed - declared)} driver allowance{how}"
    return f"{format_bytes(allowed)}: {format_bytes(declared)} {source}, plus {allowance}"


def usage(entry: PlanEntry, now: Now, limit: int = LONGEST_NAME, *, past: bool = False) -> str:
    """Say who uses (or, in the past, used) how much, how that stands against what is allowed, and for how long."""
    assessment = entry.assessment
    since_s = elapsed_s(entry.above_since, now)
    lasting = f", for {span(since_s)}" if since_s >= 0.05 else ""
    subject = capital(title(assessment, limit))
    where = f" on {inert(assessment.account.gpu, limit)}" if assessment.account.gpu is not None else ""
    used = f"{amount_used(assessment.used, assessment.used_at_least)} of GPU memory{where}"
    return f"{subject} {'used' if past else 'uses'} {used}, {_comparison(entry, limit)}{lasting}."


def title(assessment: Assessment, limit: int = LONGEST_NAME) -> str:
    """The name of an account: `pod a/trainer`, `container main of pod a/trainer`."""
    return account_name(assessment.pod.namespace, assessment.pod.name, assessment.account.container, limit)


def source(assessment: Assessment, limit: int = LONGEST_NAME) -> str:
    """Where the declared amount comes from: `declared by veriff.com/gpu-memory`, `from the default of rule a`."""
    rule = assessment.rule
    return origin(assessment.declared_by, f"the default of rule {inert(rule.name, limit)}" if rule else "", limit)


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
    allowed, declared, by = held_to.allowed, held_to.declared, held_to.origin
    if allowed is None or declared is None:
        return "with no valid declaration"
    if allowed == 0:
        return f"but none is allowed (0 {by})"
    if allowed != declared:
        by = f"{format_bytes(declared)} {by}, plus allowance"
    percent = round(100 * used / allowed)
    # A few MiB over a large amount would read as "100% of what is allowed".
    share = f"{format_bytes(used - allowed)} more than" if used > allowed and percent <= 100 else f"{percent}% of"
    return f"{share} the {format_bytes(allowed)} allowed ({by})"


def because(
    entry: PlanEntry, limit: int = LONGEST_NAME, policy: Policy | None = None, *, in_bytes: bool = False
) -> str:
    """Name the rule and the threshold, as a sentence: `Rule notebooks: above 110% for 10s`."""
    return f"Rule {inert(entry.rule.name, limit)}: {threshold_text(entry, policy, in_bytes=in_bytes)}."


def threshold_text(entry: PlanEntry, policy: Policy | None = None, *, in_bytes: bool = False) -> str:
    """The threshold of an entry's step: `above 110% for 10s`; of a step under pressure with its card.

    With the policy it says how little free memory makes a card short; `in_bytes`, where nothing beside it does, what
    the threshold is a share of: `above 110% of the 10.2Gi allowed for 10s`.
    """
    allowed, step = entry.assessment.allowed, entry.definition
    raised = step.above.amount is not None and allowed is not None and entry.threshold_bytes > step.above.amount
    whole = terms(entry).allowed if in_bytes else None
    return (
        _plain_threshold(step, whole)
        + (" (and above what is allowed)" if raised else "")
        + _while_short_of(step, inert(entry.card) if entry.card is not None else "its card", policy)
    )


def step_threshold_text(step: Step, policy: Policy | None = None) -> str:
    """The threshold of a step for people: `above 110% for 10s`, `more than 512Mi above allowed, at once`."""
    return _plain_threshold(step) + _while_short_of(step, "its card", policy)


def _plain_threshold(step: Step, allowed: int | None = None) -> str:
    plus, whole = step.above.plus, f"the {format_bytes(allowed)} allowed" if allowed else ""
    if plus is not None:
        threshold = f"more than {format_quantity(plus)} above {whole or 'allowed'}"
    else:
        threshold = f"above {step.above}{f' of {whole}' if whole and step.above.amount is None else ''}"
    return f"{threshold} for {format_duration(step.for_s)}" if step.for_s else f"{threshold}, immediately"


def _while_short_of(step: Step, card: str, policy: Policy | None) -> str:
    free = format_percent(policy.pressure.free_below) if policy is not None else None
    return _while_short(card, free) if step.under_pressure else ""


def _while_short(card: str, free_below: str | None) -> str:
    return f" while {card} is short of memory{f' (less than {free_below} free)' if free_below is not None else ''}"


def threshold_in_bytes(
    entry: PlanStatus | StepStatus, step: StepStatus | None, account: AccountStatus, status: Status
) -> str:
    """The threshold of a step in bytes and as the policy has it: `above 11.2Gi (110% of its limit)`."""
    threshold_bytes, above = entry.height, inert(entry.above or "")
    is_pressure = step is not None and step.under_pressure
    by_request = is_pressure and account.allowed_by_request is not None
    base = "its requested limit" if by_request else "its limit"
    words = f" ({above} of {base})" if above.endswith("%") and threshold_bytes else ""
    words = f" ({above.removeprefix('+')} more than {base})" if above.startswith("+") else words
    if is_pressure:
        card = entry.card if isinstance(entry, PlanStatus) else None
        free = inert(status.free_below) if status.free_below is not None else None
        words += _while_short(inert(card) if card is not None else "its GPU", free)
    amount = format_bytes(threshold_bytes) if threshold_bytes else above if threshold_bytes is None else "zero"
    return f"above {amount}{words}"
