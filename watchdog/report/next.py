"""What comes next for an account, in sentences."""

from collections.abc import Callable, Iterable

from watchdog.core.assessment import Assessment, Misdeclaration, Verdict
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.actions import (
    LONGEST_NOTE,
    acted,
    because,
    capital,
    fit,
    holder,
    is_idle,
    later_force,
    next_force,
    observing_because,
    signals,
    source,
    usage,
)
from watchdog.report.brakes import NO_TIME_COUNTS, OUT_OF_DATE, letting_go, withheld_because
from watchdog.report.figures import pods_stale
from watchdog.report.text import clip, inert, span


def note(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> str:
    """Say why a step is due and what follows, in at most 1 kB of UTF-8: the note of an Event.

    `observing` says that nothing will be done, `suspended` why, where the policy says enforce; `processes` is how many
    will be signalled (default: those listed). With the policy the sentence has the numbers of what holds a step back.
    """
    return fit(note_writer(entry, now, observing=observing, processes=processes, policy=policy, suspended=suspended))


def note_writer(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> Callable[[int], str]:
    """What `note` says, as a function of the longest name that is written out; for `fit`."""

    def write(limit: int) -> str:
        why = f"{usage(entry, now, limit)} {because(entry, limit, policy)}"
        if entry.withheld_by is not None:
            return f"{why} {_withheld(entry, now, policy, limit, processes)}"
        idle = observing_because(entry.assessment, limit, policy, suspended) if observing else ""
        return f"{why} {_follow(entry, limit, idle=idle, processes=processes)}"

    return write


def begun_writer(entry: PlanEntry, now: Now, processes: int, policy: Policy | None = None) -> Callable[[int], str]:
    """What is kept of a kill or eviction that begins, as a function of the longest name; for `fit`.

    Of a kill it is read when the processes have ended, so in the past, and it names no signal that may never be sent.
    """
    if entry.do is not Do.KILL:
        return note_writer(entry, now, processes=processes, policy=policy)

    def write(limit: int) -> str:
        grace_s = entry.definition.grace_s
        how = f"SIGTERM, with a grace period of {format_duration(grace_s)}" if grace_s else signals(entry.definition)
        killing = capital(acted(Do.KILL.verb.doing, entry, processes, limit))
        return f"{usage(entry, now, limit, past=True)} {because(entry, limit, policy)} {killing}: {how}."

    return write


def misdeclared_note(assessment: Assessment, skipped: Misdeclaration, size: int = LONGEST_NOTE) -> str:
    """Say what is wrong with a declaration of a pod, and what holds instead of it, in at most `size` bytes of UTF-8."""
    pod = inert(assessment.pod.title)
    if skipped.counts:
        return clip(f"Pod {pod}: {inert(skipped.source)} counts as written: {inert(skipped.why, 400)}", size)
    if assessment.verdict is Verdict.MISDECLARED:
        instead = "No other declaration holds, so the pod is measured and left alone."
    elif assessment.declared is None:
        instead = "Nothing is declared instead, so the pod is measured and left alone."
    else:
        instead = f"{format_bytes(assessment.declared)} {source(assessment)} holds instead."
    why = inert(skipped.why, 400)
    end = "" if why.endswith(("?", ".")) else "."
    return clip(f"Pod {pod}: {inert(skipped.source)} is skipped: {why}{end} {instead}", size)


def forecast(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> str:
    """Say which step of whose comes when, or what holds it back: a line of a plan.

    `suspended`: why nothing is done although the policy enforces; `stale`: the pod list is too old; no timer runs.
    """

    def write(limit: int) -> str:
        who = capital(holder(entry.assessment, limit))
        return f"{who}, {_when(entry)}: {_detail(entry, now, policy, suspended, limit, stale=stale)}"

    return fit(write)


def detail(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> str:
    """The same for a place that names the account and counts the time itself: what is done, why, what holds it back."""
    return fit(lambda limit: capital(_detail(entry, now, policy, suspended, limit, stale=stale)))


def _detail(
    entry: PlanEntry, now: Now, policy: Policy | None, suspended: tuple[str, ...], limit: int, *, stale: bool
) -> str:
    idle = is_idle(entry.assessment, policy, suspended)
    action = acted(entry.do.verb.base, entry, None, limit)
    how = f" ({signals(entry.definition)})" if entry.do is Do.KILL else ""
    nothing = ""
    if entry.withheld_by is not None:
        then = " then" if entry.due_in_s > 0 else ""
        nothing = f" Held back{then}{letting_go(entry, now)}, because {withheld_because(entry, policy, limit)}."
    elif idle:
        nothing = f" Nothing will be done: {observing_because(entry.assessment, limit, policy, suspended)}."
    why = because(entry, limit, policy, in_bytes=True)
    still = f" {OUT_OF_DATE}: {NO_TIME_COUNTS}." if stale and entry.due_in_s > 0 else ""
    return f"{'would ' if idle else ''}{action}{how}. {why}{nothing}{still}"


def _when(entry: PlanEntry) -> str:
    return f"in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "due now"


def _withheld(entry: PlanEntry, now: Now, policy: Policy | None, limit: int, processes: int | None) -> str:
    doing = acted(entry.do.verb.doing, entry, processes, limit)
    when = f"would be due in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "is due"
    held = f"held back{' then' if entry.due_in_s > 0 else ''}{letting_go(entry, now)}"
    return f"Not acted on: {doing} {when} but {held}, because {withheld_because(entry, policy, limit)}."


def _follow(entry: PlanEntry, limit: int, *, idle: str, processes: int | None) -> str:
    """What follows; `idle` says why nothing does (empty: it does)."""
    verb = entry.do.verb
    if entry.do is Do.WARN:
        return f"{'Would warn' if idle else 'This is a warning'}: {_outlook(entry, limit, idle)}."
    how = f": {signals(entry.definition)}" if entry.do is Do.KILL else ""
    if idle:
        return f"Would {acted(verb.base, entry, processes, limit)}{how}. Nothing is done: {idle}."
    return f"{capital(acted(verb.doing, entry, processes, limit))}{how}."


def _outlook(entry: PlanEntry, limit: int, idle: str) -> str:
    """What comes after a warning: what the rule does, or why nothing will be done to this pod."""
    why, later = entry.assessment.protected, later_force(entry.rule, entry.step)
    if later is not None and why is not None:
        return f"nothing more follows, since this pod is protected ({inert(why, limit)})"
    rule = next_force(entry.rule, entry.step, entry.assessment.allowed)
    if later is None:
        return rule
    observing = idle or (observing_because(entry.assessment, limit) if entry.assessment.observes else "")
    return f"{rule}; nothing will be done: {observing}" if observing else rule


def outlook(report: CycleReport) -> list[str]:
    """The sentences of what would follow, in the order of the plan."""
    stale = pods_stale(report)
    entries = what_follows(report.plan.entries)
    return [forecast(each, report.at, report.policy, report.suspended, stale=stale) for each in entries]


def what_follows(entries: Iterable[PlanEntry]) -> list[PlanEntry]:
    """The entries of a plan that would really come: where one is acted on now, no lesser step of its account does."""
    entries = tuple(entries)
    acted_on = {entry.account: entry.step for entry in entries if entry.taken and entry.do.is_force}
    return [each for each in entries if each.due_in_s <= 0 or each.step >= acted_on.get(each.account, 0)]
