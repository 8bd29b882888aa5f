"""Usage, limits and thresholds in words: whose account it is, what it uses, and how its limit adds up."""

from typing import Final, NamedTuple

from watchdog.core.assessment import Assessment
from watchdog.core.model import Now, elapsed_s
from watchdog.core.plan import Count, PlanEntry
from watchdog.core.policy import Policy, Step
from watchdog.core.transfers import UNKNOWN_S, Transfer
from watchdog.core.units import format_bytes, format_duration, format_percent, format_quantity
from watchdog.report.sentences.node import gpu_labels
from watchdog.report.status import AccountStatus, Status, StepStatus
from watchdog.report.text import capital, inert, span


def account_name(namespace: str, pod: str, container: str | None) -> str:
    """The name of an account: `pod a/trainer`, `container main of pod a/trainer`."""
    whole = f"pod {inert(namespace)}/{inert(pod)}"
    if container is None:
        return whole
    return f"container {inert(container)} of {whole}" if container else f"an unknown container of {whole}"


def title(assessment: Assessment) -> str:
    """The name of an assessed account."""
    return account_name(assessment.pod.namespace, assessment.pod.name, assessment.account.container)


def amount_used(used: int | None, at_least: int) -> str:
    """The amount in use: `12.4Gi`, or `at least 12.4Gi` if a part of it is unknown."""
    return f"{'at least ' if used is None else ''}{format_bytes(at_least)}"


def origin(declared_by: str | None, default: str) -> str:
    """Where a declared amount comes from: `declared by veriff.com/gpu-memory`, or `from` a `default`."""
    if declared_by == "default" and default:
        return f"from {default}"
    return f"declared by {inert(declared_by or 'nothing')}"


def source(assessment: Assessment) -> str:
    """Where the declared amount comes from, with a default named after its rule: `from the default of rule "a"`."""
    rule = assessment.rule
    return origin(assessment.declared_by, f'the default of rule "{inert(rule.name)}"' if rule else "")


# Powers of 1024 between a unit and the one that was meant, with what they come to in words. Someone may well declare
# 300 times too little, but nobody 20,000 times.
_SCALES: Final = (
    (2**8, 2**11, "about a thousand"),
    (2**14, 2**21, "about a million"),
    (2**24, 2**31, "about a billion"),
)


def unit_suspicion(used: int, declared: int | None, declared_by: str | None) -> str:
    """That an account uses so many times what it declares that the unit is probably wrong; empty if it does not."""
    if not declared or declared_by in (None, "default"):
        return ""
    times = next((words for low, high, words in _SCALES if low <= used / declared <= high), None)
    if times is None:
        return ""
    return (
        f"it uses {format_bytes(used)}, {times} times the {format_bytes(declared)} that it declares by "
        f"{inert(declared_by)}: is the unit of that table right?"
    )


def limit_sum(allowed: int, declared: int, source: str, how: str = "") -> str:
    """A limit and how it adds up: `10.2Gi: 8Gi declared by a.b/memory, plus 2.2Gi driver allowance`.

    `source` is where the declared amount comes from, `how` follows the allowance.
    """
    if allowed == 0:
        return f"0 ({source})"
    if allowed == declared:
        return f"{format_bytes(allowed)}, {source}"
    allowance = f"{format_bytes(allowed - declared)} driver allowance{how}"
    return f"{format_bytes(allowed)}: {format_bytes(declared)} {source}, plus {allowance}"


def usage(entry: PlanEntry, now: Now, *, past: bool = False) -> str:
    """An account's use, present or past, compared with its limit, and for how long it has been over."""
    assessment = entry.assessment
    lasting = _lasting(entry, now)
    where = f" on {inert(assessment.account.gpu)}" if assessment.account.gpu is not None else ""
    used = f"{amount_used(assessment.used, assessment.used_at_least)} of GPU memory{where}"
    verb = "used" if past else "uses"
    sum_of_all = format_bytes(assessment.compared)
    together = f", {sum_of_all} together with the other pods on its claim (not counting their allowances)"
    together = together if assessment.beside else ""
    return f"{capital(title(assessment))} {verb} {used}{together}, {_comparison(entry)}{lasting}."


def idle_note(assessment: Assessment, idle_s: float) -> str:
    """That an account has held memory for some time and computed nothing."""
    where = f" on {inert(assessment.account.gpu)}" if assessment.account.gpu is not None else ""
    held = f"{amount_used(assessment.used, assessment.used_at_least)} of GPU memory{where}"
    return f"{capital(title(assessment))} holds {held} and has computed nothing for {span(idle_s)}."


def utilization_unknown(account: AccountStatus, status: Status) -> str:
    """Why it is unknown how busy an account is, as a clause; empty if it is known, nothing runs, or a `scan` asks."""
    silent = {each.gpu for each in account.containers if each.utilization is None}
    if account.utilization is not None or not silent or status.health is None:
        return ""
    gpus = [gpu for gpu in status.gpus if gpu.uuid in silent]
    if said := dict.fromkeys(inert(gpu.utilization_unknown, 600) for gpu in gpus if gpu.utilization_unknown):
        return "; ".join(said)
    if busy := [gpu for gpu in gpus if gpu.utilization is not None]:
        return f"the driver does not reliably say which processes keep {gpu_labels(busy)} busy"
    return "it has not been read in the last 30s"


def idle_short(account: AccountStatus) -> str:
    """For how long an account has held memory idle, if that is reported: `idle for 2h 10m`; else empty."""
    return f"idle for {span(account.idle_s)}" if account.idle and account.idle_s is not None else ""


def idle_card_hours(account: AccountStatus, status: Status) -> str:
    """What an account holds, as a share of each card, times the hours in which it has computed nothing: `0.34`.

    The share is that of `report`: of what pods can use. Empty if a part is unknown or it is next to nothing.
    """
    memory = {gpu.uuid: gpu.memory for gpu in status.gpus if gpu.parent is None}
    sizes = {uuid: each.total - (each.reserved or 0) for uuid, each in memory.items() if each.total is not None}
    cards = 0.0
    for process in account.processes:
        size = sizes.get(process.gpu, 0)
        if process.used is None or size <= 0:
            return ""
        cards += process.used / size
    hours = cards * (account.idle_s or 0.0) / 3600
    return "" if hours < 0.005 else f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def _lasting(entry: PlanEntry, now: Now) -> str:
    """For how long it has been above the threshold; with dips, for how much of which time."""
    since_s, tally = elapsed_s(entry.above_since, now), entry.tally
    lasting = f", for {span(since_s)}" if since_s >= 0.05 else ""
    if tally is None or tally.above_s < 0.05:
        return lasting
    share = f"for {span(tally.above_s)} of the last {span(max(elapsed_s(tally.since, now), tally.above_s))}"
    if entry.count is Count.TALLY:
        return f", {share}"
    part = "container" if entry.account.container is not None else "GPU"
    return f"{lasting}; the pod was above the threshold in one {part} or another {share}"


class StepTerms(NamedTuple):
    """The bytes that a step allows and that are declared."""

    # None: no declaration applies; likewise `declared`.
    allowed: int | None
    declared: int | None
    # Where that is declared.
    origin: str


def terms(entry: PlanEntry) -> StepTerms:
    """What the step of an entry compares with.

    Under pressure that is the request, if the tenant has named a limit above it.
    """
    assessment = entry.assessment
    requested, by_request = assessment.requested, assessment.allowed_by_request
    if entry.definition.under_pressure and requested is not None and by_request is not None:
        return StepTerms(by_request, requested, "requested")
    return StepTerms(assessment.allowed, assessment.declared, source(assessment))


def _comparison(entry: PlanEntry) -> str:
    (allowed, declared, by), used = terms(entry), entry.assessment.compared
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


def because(entry: PlanEntry, policy: Policy | None = None, *, in_bytes: bool = False) -> str:
    """The rule and the threshold, `Rule "notebooks": above 110% for 10s`, as a sentence."""
    dips = " (or for twice that, with dips counting double against it)" if entry.tally is not None else ""
    return f'Rule "{inert(entry.rule.name)}": {threshold_text(entry, policy, in_bytes=in_bytes)}{dips}.'


def threshold_text(entry: PlanEntry, policy: Policy | None = None, *, in_bytes: bool = False) -> str:
    """The threshold of an entry's step: `above 110% for 10s`.

    With the policy it includes how little free memory makes a card short. `in_bytes` adds the amount that the
    threshold is a share of, for a text that does not give it elsewhere: `above 110% of the 10.2Gi allowed for 10s`.
    """
    allowed, step = entry.assessment.allowed, entry.definition
    free_below = format_percent(policy.pressure.free_below) if policy is not None else None
    raised = step.above.amount is not None and allowed is not None and entry.threshold_bytes > step.above.amount
    return (
        _plain_threshold(step, terms(entry).allowed if in_bytes else None)
        + (" (and above what is allowed)" if raised else "")
        + _pressure(step, "its card" if entry.gpu is None else inert(entry.gpu), free_below)
    )


def step_threshold_text(step: Step) -> str:
    """The threshold of a step that is not due: `above 110% for 10s`, `more than 512Mi above allowed, immediately`."""
    return _plain_threshold(step) + _pressure(step, "its card")


def _plain_threshold(step: Step, allowed: int | None = None) -> str:
    plus, whole = step.above.plus, f"the {format_bytes(allowed)} allowed" if allowed else ""
    if plus is not None:
        threshold = f"more than {format_quantity(plus)} above {whole or 'allowed'}"
    else:
        threshold = f"above {step.above}{f' of {whole}' if whole and step.above.amount is None else ''}"
    return f"{threshold} for {format_duration(step.for_s)}" if step.for_s else f"{threshold}, immediately"


def _pressure(step: Step | StepStatus, card: str, free_below: str | None = None) -> str:
    free = f" (less than {free_below} free)" if free_below is not None else ""
    return f" while {card} is short of memory{free}" if step.under_pressure else ""


def threshold_in_bytes(step: StepStatus, account: AccountStatus, status: Status) -> str:
    """The threshold of a step in bytes and as the policy has it: `above 11.2Gi (110% of its limit)`."""
    threshold_bytes, above = step.threshold_bytes, inert(step.above)
    base = "its requested limit" if step.under_pressure and account.allowed_by_request is not None else "its limit"
    words = f" ({above} of {base})" if above.endswith("%") and threshold_bytes else ""
    words = f" ({above.removeprefix('+')} more than {base})" if above.startswith("+") else words
    words += _pressure(step, "its GPU", status.free_below)
    amount = format_bytes(threshold_bytes) if threshold_bytes else above if threshold_bytes is None else "zero"
    return f"above {amount}{words}"


def transfer_note(transfer: Transfer) -> str:
    """That memory may have gone from one pod to another, for the owners of both."""
    return (
        f"Pod {inert(transfer.target)} may have been charged {format_bytes(transfer.unknown)} on {transfer.gpu} that "
        f"{inert(transfer.source)} used: its processes ended, and process {transfer.key.pid} grew by as much, as with "
        f"memory shared by CUDA IPC. These bytes count as unknown for up to {format_duration(UNKNOWN_S)}, then they "
        f"count for {inert(transfer.target)}."
    )
