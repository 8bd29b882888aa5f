"""Actions in words, from the intention to the memory seen free: what is done to which pod, how it ended, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from watchdog.core.assessment import Assessment
from watchdog.core.model import Node, Owner, elapsed_s, is_signal
from watchdog.core.plan import Count, Outcome, PlanEntry, Result, Sent
from watchdog.core.policy import Do, Policy, Step
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.advice import advice
from watchdog.report.sentences.brakes import AND_IS_RETRIED, observing_because
from watchdog.report.sentences.draining import DRAINED_FIRST, ENDED_BY_DRAIN, WAS_ASKED, drained, is_drain
from watchdog.report.sentences.usage import amount_used, limit_sum, terms, threshold_text, title
from watchdog.report.status import AccountStatus, RecentStatus, Status, StepStatus, UnderWayStatus
from watchdog.report.text import capital, clock_time, count, fit, inert, quoted, span

_LONGEST_REASON: Final = 600
# How an action ended that did not succeed.
ENDINGS: Final[dict[str, str]] = {
    Result.FAILED: "failed",
    Result.BLOCKED: "is blocked",
    Result.GONE: "was no longer needed",
    Result.INTERRUPTED: "was interrupted",
    Result.WITHDRAWN: "was withdrawn",
    Result.OBSERVED: "was only observed",
}
HALF_DONE: Final = frozenset({Result.INTERRUPTED, Result.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenAction:
    """An action that was taken and has ended: of an outcome, or of rows of the journal."""

    # The account or the pod, as a subject within a sentence.
    title: str
    do: Do
    result: str
    # Why it ended so; empty if that needs no reason.
    reason: str
    # Whom it hit: `3 processes of container main`; empty for a warning.
    whom: str
    # The rule and its threshold; empty if they are not known.
    by: str
    # What was sent: ` with SIGTERM`.
    how: str = ""
    # How long after its first effect its memory was seen free; None: not yet.
    release_s: float | None = None
    # Why the rule only observed it; empty if that was the mode.
    observes: str = ""

    @classmethod
    def of(cls, outcome: Outcome) -> "TakenAction":
        """The action of an outcome."""
        entry, is_done = outcome.entry, outcome.result is Result.DONE
        signals = f" with {sent_signals(outcome.sent)}" if outcome.signalled else ""
        return cls(
            title=title(entry.assessment),
            do=entry.do,
            result=outcome.result,
            reason=outcome.reason,
            whom=_whom(entry, len(outcome.signalled) or None),
            by=by_rule(entry.rule.name, threshold_text(entry)),
            how=f"{signals}{drained(outcome.sent)}" if is_done else "",
            release_s=outcome.release_s,
            observes=observing_because(entry.assessment) if entry.assessment.observes else "",
        )


def by_rule(rule: str, threshold: str) -> str:
    """The rule and its threshold, as they stand in brackets: `rule "r", above 100%`."""
    return f'rule "{inert(rule)}", {threshold}'


def outcome_note(outcome: Outcome) -> str:
    """The result of a step, in at most 1 kB of UTF-8."""
    return end_note(TakenAction.of(outcome))


def end_note(taken: TakenAction) -> str:
    """The result of an action, in at most 1 kB of UTF-8."""
    return _note(taken.title, _result(taken), taken.by)


def release_note(taken: TakenAction) -> str:
    """When the memory of an action was seen free, or that it was not, in at most 1 kB of UTF-8."""
    if taken.release_s is not None:
        return _note(taken.title, f"its memory was free again {_freed_after(taken)}", "")
    return _note(taken.title, f"its memory is not confirmed free{_reason(taken)}", "")


def _note(subject: str, what: str, by: str) -> str:
    return fit(f"{capital(subject)}: {what}{f' ({by})' if by else ''}.")


def _result(taken: TakenAction) -> str:
    verb, reason = taken.do.verb, _reason(taken)
    if taken.result == Result.DONE:
        freed = f"; the memory was free {_freed_after(taken)}" if taken.release_s else ""
        return f"{_with(verb.done, taken.whom)}{taken.how}{reason}{freed}"
    if taken.result == Result.OBSERVED:
        done = _with(verb.done, taken.whom)
        return (
            f"would have {done}, but {taken.observes}{reason}"
            if taken.observes
            else f"observe mode would have {done}{reason}"
        )
    retried = f" {AND_IS_RETRIED}" if taken.result == Result.BLOCKED else ""
    return f"{_with(verb.doing, taken.whom)} {ENDINGS[taken.result]}{retried}{reason}"


def _freed_after(taken: TakenAction) -> str:
    return f"{span(taken.release_s or 0.0)} after {taken.do.verb.first_effect}"


def _reason(taken: TakenAction) -> str:
    return f": {quoted(taken.reason, _LONGEST_REASON)}" if taken.reason else ""


def acted(verb: str, entry: PlanEntry, processes: int | None = None) -> str:
    """A verb with its object: `kill all processes of container main`, `killing 3 processes of container main`."""
    return _with(verb, _whom(entry, processes))


def _with(verb: str, whom: str) -> str:
    return f"{verb} {whom}" if whom else verb


def _whom(entry: PlanEntry, processes: int | None) -> str:
    """Whom an action hits, and how softly; empty for a warning."""
    match entry.do:
        case Do.WARN:
            return ""
        case Do.KILL:
            return victims(entry, processes)
        case Do.EVICT:
            return f"the pod with a grace period of {format_duration(entry.definition.grace_s)}"
        case _:
            assert_never(entry.do)


def victims(entry: PlanEntry, processes: int | None = None) -> str:
    """The victims of a kill: `all processes of container main`, or once `processes` got a signal, how many.

    Before that no number is known: only processes on a GPU are listed, and a kill ends those without one too.
    """
    scope, container = entry.effective_step.scope, entry.victim
    if processes is None:
        return planned_victims(scope, container)
    where = "in all containers of the pod" if scope == "pod" else f"of {_container(container)}"
    return f"{count(processes, 'process', 'processes')} {where}"


def planned_victims(scope: str | None, container: str | None) -> str:
    """Whom a kill of a scope is going to end: `all processes of container main`."""
    if scope == "pod":
        return "all processes of the pod"
    which = "the largest GPU process" if scope == "process" else "all processes"
    return f"{which} of {_container(container)}"


def _container(name: str | None) -> str:
    return f"container {inert(name)}" if name else "one of its containers"


def acted_later(step: StepStatus, account: AccountStatus) -> str:
    """What a step would do whose threshold has not been reached: `kill all processes of container main`."""
    names = {process.container for process in account.processes if process.container}
    named = sorted(names | {account.container} if account.container else names)
    match step.do:
        case Do.WARN:
            return "warn"
        case Do.EVICT:
            return "evict the pod"
        case Do.KILL if step.scope == "pod" or len(named) == 1:
            return f"kill {planned_victims(step.scope, named[0] if named else None)}"
        case Do.KILL:
            which = "the largest GPU process" if step.scope == "process" else "all processes"
            return f"kill {which} of the container furthest over its own declaration,"
        case _:
            assert_never(step.do)


_SCOPES: Final = {
    "process": "its largest GPU process",
    "container": "all processes of the container",
    "pod": "all processes of the pod",
}


def acted_by(step: Step) -> str:
    """What a step of a policy does, to whichever pod: `warn, again every 1h`."""
    match step.do:
        case Do.WARN:
            return f"warn, again every {format_duration(step.repeat_s)}"
        case Do.EVICT:
            return f"evict with grace {format_duration(step.grace_s)}"
        case Do.KILL:
            how = f"SIGTERM, SIGKILL after {format_duration(step.grace_s)}" if step.grace_s else "SIGKILL immediately"
            return f"kill {_SCOPES[step.scope]} (scope {step.scope}): {how}"
        case _:
            assert_never(step.do)


def afterwards(entry: PlanEntry) -> str:
    """What becomes of the pod after an action, as a sentence; empty if it just goes on."""
    owner = entry.assessment.pod.owner
    match entry.do:
        case Do.WARN:
            return ""
        case Do.KILL if entry.effective_step.scope == "process":
            return ""
        case Do.KILL:
            return "The pod's restart policy decides whether the container restarts."
        case Do.EVICT if owner is None:
            return "No controller will replace the pod."
        case Do.EVICT:
            return f"{capital(replaced_by(owner))}."
        case _:
            assert_never(entry.do)


def signals(grace_s: float) -> str:
    """The signals of a kill: `SIGTERM, then SIGKILL after 10s`."""
    return f"SIGTERM, then SIGKILL after {format_duration(grace_s)}" if grace_s else "SIGKILL immediately"


def sent_signals(sent: Sequence[Sent]) -> str:
    """The signals that were really sent: `SIGTERM`, `SIGTERM, then SIGKILL to 1 process after 10s`."""
    first, *others = [each for each in sent if is_signal(each.signal)] or (None,)
    if first is None:
        return "no signal"
    if not others:
        return first.signal
    (last,) = others
    whom = "" if first.keys <= last.keys else f" to {count(len(last.keys), 'process', 'processes')}"
    return f"{first.signal}, then {last.signal}{whom} after {span(last.after_s)}"


def shown_as(entry: PlanEntry, *, past: bool = False) -> str:
    """How Kubernetes shows the end of a kill, as a sentence that is true whatever the program does on SIGTERM."""
    step, owner = entry.effective_step, entry.assessment.pod.owner
    exits, is_main = ("exited", "was") if past else ("exits", "is")
    job = " (its Job counts that as success)" if owner is not None and owner.kind == "Job" else ""
    codes = f"Error (exit code 143 or 137), or Completed if its main process {exits} with 0{job}"
    codes = codes if step.grace_s else "Error (exit code 137)"
    if step.scope == "process":
        return (
            f"The container ends only if this {is_main} its main process. Kubernetes then shows {codes}, not OOMKilled."
        )
    if not step.grace_s:
        return f"Kubernetes shows this as {codes}, not as OOMKilled."
    return f"Kubernetes does not report OOMKilled. The container shows {codes}."


def replaced_by(owner: Owner | None) -> str:
    """What replaces an evicted pod: `replacing the pod is up to its Job train`."""
    if owner is None:
        return "the pod has no controller to replace it"
    return f"replacing the pod is up to its {inert(owner.kind)} {inert(owner.name)}"


def under_way_sentence(under_way: UnderWayStatus, status: Status) -> str:
    """An action in progress: which signals were sent, and that its memory is waited for."""
    timeout_s, grace_s = status.release_timeout_s, under_way.grace_s or 0
    if under_way.is_draining:
        whose = f"container {inert(under_way.container)}" if under_way.container is not None else "this pod"
        return f"A kill of {whose} is in progress: {DRAINED_FIRST}."
    waits = f"the watchdog then waits{f' up to {format_duration(timeout_s)}' if timeout_s else ''}"
    match under_way.do:
        case Do.WARN:
            return "A warning is being given."
        case Do.EVICT:
            return (
                "An eviction of this pod is in progress: the API server has accepted it. Its containers have "
                f"{format_duration(grace_s)} to exit; {waits} for its memory to be freed."
            )
        case Do.KILL | None:  # None: by a step that the rule no longer has
            whose = f"container {inert(under_way.container)}" if under_way.container is not None else "this pod"
            got = _signals_so_far(under_way, grace_s, status)
            return f"A kill of {whose} is in progress: its processes {got}; {waits} for their memory to be freed."
        case _:
            assert_never(under_way.do)


def _signals_so_far(under_way: UnderWayStatus, grace_s: float, status: Status) -> str:
    killed, now = under_way.sigkill_at, status.at
    sent = tuple(filter(is_signal, under_way.signals))
    is_past = killed is not None and killed <= now
    if under_way.ended and under_way.signals and not sent:
        return ENDED_BY_DRAIN
    if under_way.ended and not sent:
        return "had ended before a signal was sent"
    if not grace_s:
        # If a later step has ended the grace period, the status does not have the moment of SIGKILL.
        at = f" at {clock_time(killed, now)}" if killed is not None and is_past else ""
        return f"got {' and '.join(sent) or 'SIGKILL'}{at}{' and have ended' * under_way.ended}"
    got = f"got SIGTERM{f' at {clock_time(under_way.begun_at, now)}' if under_way.begun_at is not None else ''}"
    if under_way.ended and "SIGKILL" not in sent:
        return f"{got} and have ended"
    at = f"at {clock_time(killed, now)}" if killed is not None else f"after {format_duration(grace_s)}"
    left = "got" if "SIGKILL" in sent else "were due" if is_past or status.hangs_since is not None else "get"
    return f"{got}, and those still running {left} SIGKILL {at}"


def delay_note(entry: PlanEntry) -> str:
    """That an eviction has not succeeded yet, and why, in at most 1 kB of UTF-8."""
    why = quoted(entry.pending_eviction.refused, _LONGEST_REASON) if entry.pending_eviction is not None else ""
    what = f"{acted(entry.do.verb.doing, entry)} has not succeeded yet {AND_IS_RETRIED}: {why}"
    return _note(title(entry.assessment), what, by_rule(entry.rule.name, threshold_text(entry)))


def result_short(action: RecentStatus) -> str:
    """The result of a recent action: `was killed`, `kill is in progress`, `would have been evicted`."""
    verb = action.do.verb
    if action.result is None:
        return f"{verb.noun} is in progress"
    if action.result == Result.OBSERVED:
        return f"would have been {verb.done}"
    if action.result == Result.DONE:
        return f"was {verb.done}"
    return f"{verb.noun} {ENDINGS.get(action.result, 'ended')}"


def recent_action(
    action: RecentStatus, now_s: float, *, is_live: bool = False, is_earlier: bool = False
) -> tuple[str, ...]:
    """A recent kill or eviction of a pod: when and why, what delayed it, its signals, and its memory.

    `is_live`: by the daemon, so one without an end is in progress. `is_earlier`: of an earlier pod of the same name.
    """
    sentences = (
        _when_and_why(action, now_s, is_live=is_live, is_earlier=is_earlier),
        _obstacle(action, now_s),
        _signals_at(action, now_s),
        _release(action, now_s),
    )
    return tuple(filter(None, sentences))


def _when_and_why(action: RecentStatus, now_s: float, *, is_live: bool, is_earlier: bool) -> str:
    verb, result = action.do.verb, action.result
    limit = f", its limit was {format_bytes(action.allowed)}" if action.allowed is not None else ""
    ruled = (
        f', and rule "{inert(action.rule)}" {verb.does} {inert(action.threshold)}'
        if action.rule and action.threshold
        else ""
    )
    used = f"{amount_used(action.used, action.used_at_least or 0)} of GPU memory"
    if action.used_beside:
        together = (action.used_at_least or 0) + action.used_beside
        used += f" ({format_bytes(together)} together with the other pods on its claim)"
    why = f"it used {used}{limit}{ruled}"
    whom = f" (container {inert(action.container)})" if action.container and action.do.takes_scope else ""
    at = f"{clock_time(action.effect_at or 0.0, now_s)}{whom}"
    if result == Result.DONE:
        return f"{'An earlier pod of this name' if is_earlier else 'It'} was {verb.done} at {at}: {why}."
    started = f"{capital(verb.an_action)} of {'an earlier pod of this name' if is_earlier else 'this pod'} started"
    if result is None and is_live:
        return f"{started} at {at} and is in progress: {why}."
    if result == Result.BLOCKED:
        return f"{started} at {at}: {why}."  # the next sentence has the obstacle
    end = "its end is not in the journal" if result is None else f"it {ENDINGS.get(result, 'has ended')}"
    return f"{started} at {at}: {why}. Result: {end}."


def _obstacle(action: RecentStatus, now_s: float) -> str:
    """Why an eviction was delayed or failed, or a kill was no longer needed."""
    explained = {Result.GONE} if action.do.ends_processes else {Result.GONE, Result.WITHDRAWN, *HALF_DONE}
    if action.result in explained and action.reason:
        return f"The reason: {quoted(action.reason, _LONGEST_REASON)}."
    if action.blocked_at is None or not action.blocked_by:
        return ""
    return f"It was blocked at {clock_time(action.blocked_at, now_s)}: {quoted(action.blocked_by, _LONGEST_REASON)}."


def _signals_at(action: RecentStatus, now_s: float) -> str:
    first: dict[str, float] = {}
    for sent in action.signals:
        first.setdefault(inert(sent.signal or "a signal", 20), sent.at or 0.0)
    if not first:
        return ""
    because = f": {quoted(action.reason, _LONGEST_REASON)}" if action.result in HALF_DONE and action.reason else ""
    before = [first.pop(name) for name in tuple(first) if is_drain(name)]
    asked = f"{WAS_ASKED} at {clock_time(before[0], now_s)}" if before else ""
    if not first:
        return f"{asked}{because}."
    got = " and ".join(f"{name} at {clock_time(first[name], now_s)}" for name in sorted(first, key=first.__getitem__))
    spared = ", and no SIGKILL was sent" if action.result == Result.INTERRUPTED and "SIGKILL" not in first else ""
    return f"{asked}{'. ' * bool(asked)}Its processes got {got}{spared}{because}."


def _release(action: RecentStatus, now_s: float) -> str:
    if action.released_at is None or action.result != Result.DONE:
        return ""
    at = clock_time(action.released_at, now_s)
    if action.unreleased is None:
        return f"Its memory was confirmed free at {at}."
    return f"Its memory was not confirmed free by {at}: {quoted(action.unreleased, _LONGEST_REASON)}."


def explanation(outcome: Outcome, policy: Policy, node: Node | None = None) -> str:
    """The result of a step for the pod's owner, in three to six sentences: what, why, how, and what to change."""
    entry = outcome.entry
    remedy = advice(entry.assessment, policy, under_pressure=entry.definition.under_pressure, node=node)
    sentences = (
        _what_and_why(outcome),
        _how_much(entry),
        _by_rule(entry, outcome, policy),
        _how(outcome),
        f"To prevent this, {remedy}.",
        f"Questions: ask {inert(policy.events.contact)}." if policy.events.contact else "",
    )
    return " ".join(filter(None, sentences))


def _what_and_why(outcome: Outcome) -> str:
    entry, verb = outcome.entry, outcome.entry.do.verb
    whole = title(entry.assessment)
    whom = f"{victims(entry, len(outcome.signalled) or None)} ({whole})" if entry.do.ends_processes else whole
    assessment, allowed = entry.assessment, terms(entry).allowed or 0
    used = "exceeded" if assessment.compared > allowed else "came close to"
    together = " together with the other pods on its claim" if assessment.beside else ""
    over = f"because {_short(assessment)}{together} {used} its GPU memory limit"
    if outcome.result is Result.DONE:
        return f"The watchdog {verb.done} {whom}, {over}."
    if outcome.result is Result.OBSERVED:
        why = observing_because(entry.assessment)
        return f"The watchdog would have {verb.done} {whom}, {over}; {why}, so no action was taken."
    reason = f": {quoted(outcome.for_owner or outcome.reason, _LONGEST_REASON)}" if outcome.reason else ""
    return f"The watchdog was going to {verb.base} {whom}, {over}; this {ENDINGS[outcome.result]}{reason}."


def _short(assessment: Assessment) -> str:
    return "the pod" if assessment.account.container is None else "the container"


def _how_much(entry: PlanEntry) -> str:
    assessment, (allowed, declared, by) = entry.assessment, terms(entry)
    used = f"It used {amount_used(assessment.used, assessment.used_at_least)}"
    if assessment.beside:
        used += f", {format_bytes(assessment.compared)} together with them"
    if allowed is None or declared is None:
        return f"{used}."
    where = f" on {inert(assessment.account.gpu)}" if assessment.account.gpu is not None else ""
    return f"{used}{where}; its limit was {limit_sum(allowed, declared, by)}."


def _by_rule(entry: PlanEntry, outcome: Outcome, policy: Policy) -> str:
    # What came after the first signal is not what it was killed for.
    above_s = elapsed_s(entry.above_since, outcome.at) - (outcome.release_s or 0.0)
    whom, lasting = _short(entry.assessment), span(above_s)
    if entry.tally is not None:  # short dips did not save it
        whom = whom if entry.count is Count.TALLY else "one part of the pod or another"
        whole_s = max(elapsed_s(entry.tally.since, outcome.at) - (outcome.release_s or 0.0), entry.tally.above_s)
        above_s, lasting = entry.tally.above_s, f"{span(entry.tally.above_s)} of the last {span(whole_s)}"
    lasted = f"; {whom} had been above it for {lasting}" if above_s >= 0.05 else ""
    threshold = format_bytes(entry.threshold_bytes)
    rule = f'Rule "{inert(entry.rule.name)}"'
    return f"{rule} {entry.do.verb.does} {threshold_text(entry, policy)} (threshold {threshold}){lasted}."


def _how(outcome: Outcome) -> str:
    entry = outcome.entry
    if entry.do.deletes_pod and outcome.result is Result.DONE:
        grace = format_duration(entry.definition.grace_s)
        freed = f"; the memory was free {span(outcome.release_s)} after that" if outcome.release_s is not None else ""
        after = replaced_by(entry.assessment.pod.owner)
        return f"The Eviction API accepted that, and its containers had {grace} to end{freed}; {after}."
    if not entry.do.ends_processes or not outcome.signalled or outcome.result is Result.GONE:
        return ""
    if outcome.result is Result.INTERRUPTED and [sent.signal for sent in outcome.sent] == ["SIGTERM"]:
        return "The processes got SIGTERM; that was in the grace period, so no SIGKILL was sent."
    freed = f", and the memory was free {_freed_after(TakenAction.of(outcome))}" if outcome.release_s else ""
    return f"The processes got {sent_signals(outcome.sent)}{freed}. {shown_as(entry, past=True)}"
