"""What comes next for an account, in words: which step, when, and what withholds it."""

from collections.abc import Iterator
from typing import NamedTuple

from watchdog.core.assessment import Assessment, Misdeclaration, Verdict
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Do, Policy, Step
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.sentences.action import acted, acted_later, signals, under_way_sentence
from watchdog.report.sentences.brakes import held_for, observing_because, withheld_because
from watchdog.report.sentences.draining import draining
from watchdog.report.sentences.usage import because, source, step_threshold_text, threshold_in_bytes, title, usage
from watchdog.report.status import AccountStatus, PlanStatus, Status, StepStatus
from watchdog.report.text import LONGEST_NOTE, capital, clip, clock_time, fit, inert, span, whole_intervals


def note(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> str:
    """Why a step is due and what follows, in at most 1 kB of UTF-8.

    `observing`: no action is taken, because of `suspended` if the policy says enforce. `processes` is how many got the
    first signal, None before it. With the policy the text has the numbers of the brake that withholds a step.
    """
    why = f"{usage(entry, now)} {because(entry, policy)}"
    doing = acted(entry.do.verb.doing, entry, processes)
    if entry.withheld_by is not None:
        due_in_s = entry.due_in_s if policy is None else whole_intervals(entry.due_in_s, policy.interval_s)
        when, then = (f"would be due in {span(due_in_s)}", " then") if due_in_s > 0 else ("is due", "")
        held = f"withheld{then}{held_for(entry, now.wall_s)}, because {withheld_because(entry, policy)}"
        return fit(f"{why} No action taken: {doing} {when} but {held}.")
    idle = observing_because(entry.assessment, policy, suspended) if observing else ""
    if not entry.do.enforces:
        return fit(f"{why} {'Would warn' if idle else 'This is a warning'}: {_after_warning(entry, idle)}.")
    how = f": {signals(entry.definition.grace_s)}" if entry.do.ends_processes else ""
    if idle:
        would = acted(entry.do.verb.base, entry, processes)
        return fit(f"{why} Would {would}{how}.{draining(entry, observing=True)} No action is taken: {idle}.")
    return fit(f"{why} {capital(doing)}{how}.{draining(entry)}")


def begun_note(entry: PlanEntry, now: Now, processes: int | None, policy: Policy | None = None) -> str:
    """A kill or eviction that begins, for the record, in at most 1 kB of UTF-8.

    A kill is in the past, since its processes may have ended by the time it is read; it names no signal that may never
    be sent.
    """
    if not entry.do.ends_processes:
        return note(entry, now, processes=processes, policy=policy)
    grace_s = entry.definition.grace_s
    how = f"SIGTERM, with a grace period of {format_duration(grace_s)}" if grace_s else signals(grace_s)
    killing = capital(acted(Do.KILL.verb.doing, entry, processes))
    return fit(f"{usage(entry, now, past=True)} {because(entry, policy)} {killing}: {how}.{draining(entry)}")


class Forecast(NamedTuple):
    """An entry of a plan in words."""

    sentence: str
    # The sentence without the account and the time.
    detail: str


def forecast(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> Forecast:
    """A plan entry in words: the account, the step, when and why it comes, and what withholds it.

    `suspended` is why no action is taken although the policy enforces; `stale`: the pod list is too old, so timers
    are paused.
    """
    # Without the policy its mode is unknown.
    idle = entry.assessment.observes or bool(suspended) or (policy is not None and policy.mode == "observe")
    how = f" ({signals(entry.definition.grace_s)})" if entry.do.ends_processes else ""
    if not entry.do.enforces and entry.due_in_s > 0 and entry.stretch is not None:
        how = " again" if entry.stretch.counted_s >= entry.definition.for_s or entry.is_tally_due else ""
    parts = [
        f"{'would ' if idle else ''}{acted(entry.do.verb.base, entry)}{how}.{draining(entry, observing=True)}",
        because(entry, policy, in_bytes=True),
    ]
    if entry.withheld_by is not None:
        then = " then" if entry.due_in_s > 0 else ""
        parts.append(f"Withheld{then}{held_for(entry, now.wall_s)}, because {withheld_because(entry, policy)}.")
    elif idle:
        parts.append(f"No action will be taken: {observing_because(entry.assessment, policy, suspended)}.")
    if stale and entry.due_in_s > 0:
        parts.append("The pod list is out of date: timers are paused until it is updated.")
    what = " ".join(parts)
    when = f"in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "due now"
    return Forecast(sentence=fit(f"{capital(title(entry.assessment))}, {when}: {what}"), detail=fit(capital(what)))


def _after_warning(entry: PlanEntry, idle: str) -> str:
    """What the rule does after a warning; `idle` is why it does not (empty: it does)."""
    assessment, later = entry.assessment, _later_enforcement(entry)
    if later is None:
        return "the rule takes no further action"
    if assessment.protected is not None:
        return f"no kill or eviction follows, because this pod is protected ({inert(assessment.protected)})"
    threshold = ""
    if assessment.allowed and not later.under_pressure and later.above.amount is None:
        threshold = f" (threshold {format_bytes(later.above.threshold_bytes(assessment.allowed, later.do))})"
    idle = idle or (observing_because(assessment) if assessment.observes else "")
    nothing = f"; no action will be taken: {idle}" if idle else ""
    return f"the rule {later.do.verb.does} {step_threshold_text(later)}{threshold}{nothing}"


def _later_enforcement(entry: PlanEntry) -> Step | None:
    """The next step of the rule that kills or evicts; one under pressure only if there is no other."""
    later = [step for step in entry.rule.steps[entry.step_index + 1 :] if step.do.enforces]
    return min(later, key=lambda step: step.under_pressure, default=None)


def misdeclared_note(assessment: Assessment, skipped: Misdeclaration) -> str:
    """What is wrong with a declaration of a pod, and what applies instead of it, in at most 1 kB of UTF-8."""
    pod, declaration, why = inert(assessment.pod.title), inert(skipped.source), inert(skipped.why, 400)
    if skipped.counts:
        return clip(f"Pod {pod}: {declaration} is used as written: {why}", LONGEST_NOTE)
    if assessment.verdict is Verdict.MISDECLARED:
        instead = "No other declaration applies, so the pod is only measured and no action is taken on it."
    elif assessment.declared is None:
        instead = "It declares nothing else, so the pod is only measured and no action is taken on it."
    else:
        instead = f"{format_bytes(assessment.declared)} {source(assessment)} applies instead."
    end = "" if why.endswith(("?", ".")) else "."
    return clip(f"Pod {pod}: {declaration} is ignored: {why}{end} {instead}", LONGEST_NOTE)


def what_follows(entries: tuple[PlanStatus, ...]) -> list[PlanStatus]:
    """The steps that would really come: once a kill or eviction of an account is due, its lesser steps do not."""
    due = [entry for entry in entries if entry.do.enforces and entry.is_now]
    return [entry for entry in entries if entry.due_in_s <= 0 or not any(_exceeds(other, entry) for other in due)]


def _exceeds(other: PlanStatus, entry: PlanStatus) -> bool:
    """Whether the other is a later step of the same account."""
    return (other.uid, other.key) == (entry.uid, entry.key) and (other.step or 0) > (entry.step or 0)


def coming(account: AccountStatus, entries: tuple[PlanStatus, ...]) -> list[PlanStatus]:
    """The steps of one account that come next, without those that only wait for the action in progress."""
    if account.under_way is not None:
        entries = tuple(entry for entry in entries if entry.withheld_by != "pending")
    return what_follows(entries)


def following(account: AccountStatus, status: Status) -> Iterator[str]:
    """What the rule of an account does, will do, or would do."""
    under_way = account.under_way
    if under_way is not None:
        yield under_way_sentence(under_way, status)
    planned = tuple(entry for entry in status.plan if entry.key == account.key)
    enforcing = [entry for entry in planned if entry.do.enforces]
    for entry in coming(account, planned):
        if not (entry.do.enforces and _is_overtaken(entry, enforcing)):
            yield _coming(entry, status)
    ahead = [step for step in account.ladder if step.state != "above" and step.threshold_bytes is not None]
    if ahead and account.protected is None:
        # A kill in progress does not withhold a stronger one on the same container, which ends its grace period.
        is_kill = under_way is not None and (under_way.do is None or under_way.do.ends_processes)
        is_held = any(entry.withheld_by not in (None, "pending" if is_kill else None) for entry in enforcing)
        is_paused = status.pods_stale or status.hangs_since is not None or status.breaker.open
        acts = is_enforced(account, status) and not is_held and not is_paused
        steps = "; ".join(_later_step(step, account, status) for step in ahead)
        which = "Higher" if planned else "The"
        yield f"{which} steps of that rule{'' if acts else ' (not currently enforced)'}: {steps}."


def _is_overtaken(entry: PlanStatus, enforcing: list[PlanStatus]) -> bool:
    """Whether another step of the account is due first, or is withheld by a brake that would withhold this one too."""
    others = [other for other in enforcing if other is not entry]
    is_held = any(other.withheld_by not in (None, "pending") for other in others)
    return not entry.is_now and entry.withheld_by is None and (is_held or any(other.is_now for other in others))


def is_enforced(account: AccountStatus, status: Status) -> bool:
    """Whether steps that are due are taken, and not only recorded."""
    return status.enforcing and not account.observes


def _coming(entry: PlanStatus, status: Status) -> str:
    text = entry.detail or entry.sentence  # an older daemon sends no detail
    what = text[:1].lower() + text[1:]
    if entry.due_in_s <= 0:
        return f"Due now: {what}"
    # While the pod list is stale or no cycle ends, no time counts.
    is_counting = not status.pods_stale and status.hangs_since is None
    at = f", at {clock_time(status.at + entry.due_in_s, status.at)}" if is_counting else ""
    return f"In {span(entry.due_in_s)}{at}, if its use stays above the threshold: {what}"


def _later_step(step: StepStatus, account: AccountStatus, status: Status) -> str:
    """A step as a clause: `kill all processes of container main above 11.2Gi (110% of its limit) for 10s`."""
    lasting = f" for {format_duration(step.for_s)}" if step.for_s else ", immediately"
    return f"{acted_later(step, account)} {threshold_in_bytes(step, account, status)}{lasting}"
