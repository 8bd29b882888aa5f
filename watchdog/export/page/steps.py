"""What follows for an account, in the few words that are read first, and in the sentence behind them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.brakes import Brake
from watchdog.core.ledger import AccountState
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Do
from watchdog.core.units import format_duration
from watchdog.export.page.sight import Sight
from watchdog.report.actions import because, capital, is_idle, observing_because, signals, victims
from watchdog.report.brakes import letting_go, withheld_because
from watchdog.report.status_build import sigkill_s
from watchdog.report.text import clock_time, span


class Level(StrEnum):
    """How much something asks for a reader: the CSS class that says it beside the words."""

    BAD = "bad"
    WATCH = "watch"
    GOOD = "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """What follows: in a few words (`kill in 7s`), in a sentence, and how much it asks for a reader.

    `is_held`: a brake holds it back, or will, and the sentence says which and until when. `is_force`: it is no warning.
    """

    short: str
    sentence: str
    level: Level
    is_held: bool = False
    is_force: bool = False


_VERBS: Final = {Do.WARN: "warn", Do.KILL: "kill", Do.EVICT: "evict"}


def steps_of(assessment: Assessment, sight: Sight) -> tuple[StepLine, ...]:
    """What is in progress with an account, and then what follows in the order in which it is due."""
    report = sight.report
    if report is None:
        return ()
    under_way = _under_way(assessment, sight.state(assessment), report, sight)
    entries = sight.entries.get(assessment.account, [])
    if under_way is not None:  # that the next action waits for this one is nothing to read
        entries = [each for each in entries if each.withheld_by is not Brake.PENDING]
    ordered = sorted(entries, key=lambda each: (each.due_in_s, not each.do.is_force))
    return (*((under_way,) if under_way is not None else ()), *(_step(each, report, sight) for each in ordered))


def _step(entry: PlanEntry, report: CycleReport, sight: Sight) -> StepLine:
    verb, left_s, is_force = _VERBS[entry.do], sight.left_s(entry), entry.do.is_force
    when = f"in {span(left_s)}" if left_s > 0 else "now"
    action = _planned(entry)
    why = because(entry, policy=report.policy, in_bytes=True)
    if sight.as_of:
        sentence = f"{capital(action)}. No pass has ended since then: until one does nothing is done. {why}"
        return StepLine(short=f"{verb} put off", sentence=sentence, level=Level.WATCH, is_force=is_force)
    if sight.is_stale and entry.due_in_s > 0:
        sentence = f"{capital(action)}. The pod list is out of date: until it is read anew no time counts. {why}"
        return StepLine(short=f"{verb} put off", sentence=sentence, level=Level.WATCH, is_force=is_force)
    if entry.withheld_by is not None:
        # What is not due yet is not held back yet.
        short = f"{verb} held back" if entry.due_in_s <= 0 else f"{verb} {when}, then held back"
        held = f"Held back{letting_go(entry, report.at)}, because {withheld_because(entry, report.policy)}."
        sentence = f"{capital(action)}. {held} {why}"
        return StepLine(short=short, sentence=sentence, level=Level.WATCH, is_held=True, is_force=is_force)
    if is_idle(entry.assessment, report.policy, report.suspended):
        # That the whole daemon only observes is said at the top.
        own = f" Nothing will be done: {observing_because(entry.assessment)}." if entry.assessment.observes else ""
        sentence = f"Would {action}.{own} {why}"
        return StepLine(short=f"would {verb} {when}", sentence=sentence, level=Level.WATCH, is_force=is_force)
    level = Level.BAD if is_force else Level.WATCH
    return StepLine(short=f"{verb} {when}", sentence=f"{capital(action)}. {why}", level=level, is_force=is_force)


def _planned(entry: PlanEntry) -> str:
    """What would be done, as a clause."""
    if entry.do is Do.KILL:
        return f"kill {victims(entry)} ({signals(entry.definition)})"
    grace = format_duration(entry.definition.grace_s)
    return f"evict the pod with a grace period of {grace}" if entry.do is Do.EVICT else "warn the pod's owner"


def _under_way(
    assessment: Assessment, state: AccountState | None, report: CycleReport, sight: Sight
) -> StepLine | None:
    """An action that has begun and whose memory has not been seen free."""
    if state is None or state.under_way is None:
        return None
    rule = assessment.rule
    number = state.under_way.step_reading(rule) if rule is not None else None
    step = rule.steps[number] if rule is not None and number is not None else None
    whom = f"container {state.under_way.victim}" if state.under_way.victim else "the pod"
    timeout = f"at most {format_duration(report.policy.release_timeout_s)}"
    if step is not None and step.do is Do.EVICT:
        sentence = (
            f"Its containers have {format_duration(step.grace_s)} to end, then its memory is waited for, {timeout}."
        )
        return StepLine(short="being evicted", sentence=sentence, level=Level.BAD, is_force=True)
    killed_s = sigkill_s(state.under_way, step, report)
    if state.under_way.ended:
        sent = " and ".join(state.under_way.sent)
        ended = f"got {sent} and have ended" if sent else "had ended before a signal was sent"
        sentence = f"The processes of {whom} {ended}; their memory is waited for, {timeout}."
        short = f"{'killed' if sent else 'ended'}, waiting for its memory"
        return StepLine(short=short, sentence=sentence, level=Level.BAD, is_force=True)
    if killed_s is not None and sight.as_of and killed_s > report.at.wall_s:
        sentence = f"SIGTERM was sent to {whom}. What is left was to get SIGKILL: no pass has ended since to send it."
        return StepLine(short="being killed, SIGKILL put off", sentence=sentence, level=Level.BAD, is_force=True)
    if killed_s is not None and killed_s > sight.now_s:
        sentence = f"SIGTERM was sent to {whom}; what is left gets SIGKILL at {clock_time(killed_s, sight.now_s)}."
        return StepLine(
            short=f"being killed, SIGKILL in {span(killed_s - sight.now_s)}",
            sentence=sentence,
            level=Level.BAD,
            is_force=True,
        )
    sentence = f"The processes of {whom} have got their signals, and their memory is waited for, {timeout}."
    return StepLine(short="killed, waiting for its memory", sentence=sentence, level=Level.BAD, is_force=True)
