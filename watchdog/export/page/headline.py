"""The first sentence of the page: whether force is used, and who is over; what is wrong, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import Verdict
from watchdog.core.errors import Problem
from watchdog.core.model import GapReason
from watchdog.core.plan import CycleReport
from watchdog.export.page.crowd import crowd, lately
from watchdog.export.page.sight import Sight, gpu_label, named, not_known
from watchdog.export.page.standing import Standing
from watchdog.export.page.steps import Level
from watchdog.report.actions import capital, suspended_because
from watchdog.report.brakes import breaker_times
from watchdog.report.text import clock_time, inert, span

_HANGS: Final = (
    "look at the driver on the node: `nvidia-smi`, and the kernel log for NVRM and Xid. If both are well, delete the "
    "watchdog's pod: restarting is safe"
)
_STARTING: Final = "wait some seconds; if it stays so, read the watchdog's log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """How things are, in a sentence; what is to be known beside it; the remedy where something is wrong."""

    level: Level
    state: str
    rest: str = ""
    remedy: str = ""


def headline(sight: Sight, all_standings: Sequence[Standing]) -> Headline:
    """How things are, the worst first."""
    report = sight.report
    if report is None:
        return _beginning(sight)
    if not sight.health.turns:
        state = f"Hanging: the last pass ended {span(sight.health.last_pass_ago_s or 0.0)} ago; nobody new is acted on."
        return Headline(level=Level.BAD, state=state, rest="What stands below is as old as that.", remedy=_HANGS)
    if report.maintenance is not None:
        state = "Under maintenance: NVML is let go, and nothing is enforced."
        return Headline(level=Level.WATCH, state=state, rest=f"{capital(inert(report.maintenance, 600))}.")
    if report.snapshot.blind:
        return _blind(report, sight)
    return _seeing(report, sight, [each for each in all_standings if each.is_told])


def _beginning(sight: Sight) -> Headline:
    is_late = not sight.health.turns
    state = f"no pass has finished yet, {span(sight.health.uptime_s)} after the start; nothing is enforced."
    if is_late:
        return Headline(level=Level.BAD, state=f"Hanging: {state}", remedy=_HANGS)
    return Headline(level=Level.WATCH, state=f"Starting: {state}", remedy=_STARTING)


def _blind(report: CycleReport, sight: Sight) -> Headline:
    since_s = sight.health.blind_since
    since = f" since {clock_time(since_s, sight.now_s)}" if since_s is not None else ""
    problem = next((gap.problem for gap in report.snapshot.gaps if gap.gpu is None), Problem(""))
    why, remedy = problem.cause, problem.remedy
    state = f"Blind: NVML does not answer{since}; nobody new is acted on."
    rest = f"What it says: {inert(why, 600).rstrip('.')}." if why else ""
    return Headline(level=Level.BAD, state=state, rest=rest, remedy=inert(remedy, 600) or _HANGS)


def _seeing(report: CycleReport, sight: Sight, told: Sequence[Standing]) -> Headline:
    level, mode, remedy = _mode(report, sight)
    lost = [gpu_label(gpu) for gpu in report.snapshot.gpus if not gpu.up]
    done, breaker = list(lately(told, sight)), list(_breaker(report, sight))
    dark = not_known([gpu for gpu in sight.unlisted if gpu.up])
    who = [*_lost(lost), *([dark] if dark else []), *([] if told else done), crowd(told, sight)]
    rest = [*breaker, *(done if told else [])]
    if level is not Level.GOOD:  # what is wrong with the watchdog comes before what is wrong with anybody else
        who, rest = [], [*who, *rest]
    levels = {level, *(each.level for each in told), *((Level.BAD,) if lost else ())}
    levels |= {Level.WATCH} if done or breaker or dark or _is_unsure(report) else set()
    worst = next(each for each in (Level.BAD, Level.WATCH, Level.GOOD) if each in levels)
    return Headline(level=worst, state=" ".join([mode, *who]), rest=" ".join(rest), remedy=remedy)


def _is_unsure(report: CycleReport) -> bool:
    """Whether somebody may be over of whom it can't be said."""
    return any(each.verdict is Verdict.UNKNOWN for each in report.assessments)


def _mode(report: CycleReport, sight: Sight) -> tuple[Level, str, str]:
    """Whether force is used, and the remedy where it is not although it should be."""
    if sight.is_stale:
        synced = report.pods.synced
        age = f"is {span(sight.now_s - synced.wall_s)} old" if synced is not None else "has not come yet"
        why = next((str(gap.problem) for gap in report.pods.gaps if gap.reason is GapReason.PODS), "")
        state = f"The pod list {age}: no time counts, and nobody is acted on."
        return Level.BAD, state, inert(why, 600) or "see that whatever writes the pod list still runs"
    if report.suspended:
        remedy = "; ".join(sight.remedies.get(each, inert(each)) for each in report.suspended)
        return Level.BAD, f"Told to enforce, and only observing: {suspended_because(report.suspended)}.", remedy
    return Level.GOOD, "Enforcing." if report.enforcing else "Observing: nothing is done to anybody.", ""


def _lost(labels: Sequence[str]) -> Iterator[str]:
    if labels:
        yield f"{named(labels)} {'does' if len(labels) == 1 else 'do'} not answer."


def _breaker(report: CycleReport, sight: Sight) -> Iterator[str]:
    times = breaker_times(report)
    if times is not None and times.until_s is not None:
        yield f"The breaker is open: nobody is killed or evicted until {clock_time(times.until_s, sight.now_s)}."
    elif times is not None:
        yield "The breaker is open: one owner at a time is let through."
