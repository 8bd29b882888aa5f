"""The explanation that the owner of a victim should read: what happened, why, and what to change."""

from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.advice import advice
from watchdog.report.sentences.action import ENDINGS, replaced_by, sent_signals, shown_as, victims
from watchdog.report.sentences.brakes import observing_because
from watchdog.report.sentences.usage import StepTerms, amount_used, limit_sum, terms, threshold_text, title
from watchdog.report.text import elapsed_s, inert, said, span

_LONGEST_REASON: Final = 600


def explanation(outcome: Outcome, policy: Policy) -> str:
    """Tell an owner in three to six plain sentences what came of a step, by which rule, and what to change."""
    entry = outcome.entry
    sentences = (
        _what(outcome),
        _how_much(entry.assessment, terms(entry)),
        _rule(entry, outcome, policy),
        _how(outcome),
        f"To prevent this, {advice(entry.assessment, policy, under_pressure=entry.definition.under_pressure)}.",
        f"Questions: ask {inert(policy.events.contact)}." if policy.events.contact else "",
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _what(outcome: Outcome) -> str:
    entry = outcome.entry
    whole = title(entry.assessment)
    whom = f"{victims(entry, len(outcome.signalled) or None)} ({whole})" if entry.do is Do.KILL else whole
    verb = entry.do.verb
    too_much = entry.assessment.used_at_least > (terms(entry).allowed or 0)
    used = "exceeded its GPU memory limit" if too_much else "came close to its GPU memory limit"
    over = f"because {_short(entry.assessment)} {used}"
    if outcome.result is Result.DONE:
        return f"The watchdog {verb.done} {whom}, {over}."
    if outcome.result is Result.OBSERVED:
        why = observing_because(entry.assessment)
        return f"The watchdog would have {verb.done} {whom}, {over}; {why}, so no action was taken."
    reason = f": {said(outcome.for_owner or outcome.reason, _LONGEST_REASON)}" if outcome.reason else ""
    return f"The watchdog was going to {verb.base} {whom}, {over}; this {ENDINGS[outcome.result]}{reason}."


def _short(assessment: Assessment) -> str:
    return "the pod" if assessment.account.container is None else "the container"


def _how_much(assessment: Assessment, held_to: StepTerms) -> str:
    allowed, declared = held_to.allowed, held_to.declared
    used = f"It used {amount_used(assessment.used, assessment.used_at_least)}"
    if allowed is None or declared is None:
        return f"{used}."
    where = f" on {inert(assessment.account.gpu)}" if assessment.account.gpu is not None else ""
    return f"{used}{where}; its limit was {limit_sum(allowed, declared, held_to.origin)}."


def _rule(entry: PlanEntry, outcome: Outcome, policy: Policy) -> str:
    # What came after the first signal is not what it was killed for.
    above_s = elapsed_s(entry.above_since, outcome.at) - (outcome.release_s or 0.0)
    lasted = f"; {_short(entry.assessment)} had been above it for {span(above_s)}" if above_s >= 0.05 else ""
    threshold = format_bytes(entry.threshold_bytes)
    rule = f'Rule "{inert(entry.rule.name)}"'
    return f"{rule} {entry.do.verb.does} {threshold_text(entry, policy)} (threshold {threshold}){lasted}."


def _how(outcome: Outcome) -> str:
    entry = outcome.entry
    if entry.do is Do.EVICT and outcome.result is Result.DONE:
        return _how_evicted(outcome)
    if entry.do is not Do.KILL or not outcome.signalled or outcome.result is Result.GONE:
        return ""
    if outcome.result is Result.INTERRUPTED and [each.signal for each in outcome.sent] == ["SIGTERM"]:
        return "The processes got SIGTERM; that was in the grace period, so no SIGKILL was sent."
    freed = f", and the memory was free {span(outcome.release_s)} after the first signal" if outcome.release_s else ""
    return f"The processes got {sent_signals(outcome.sent)}{freed}. {shown_as(entry, past=True)}"


def _how_evicted(outcome: Outcome) -> str:
    grace = format_duration(outcome.entry.definition.grace_s)
    freed = f"; the memory was free {span(outcome.release_s)} after that" if outcome.release_s is not None else ""
    owner = outcome.entry.assessment.pod.owner
    after = "the pod has no controller to replace it"
    if owner is not None:
        after = replaced_by(owner)
    return f"The Eviction API accepted that, and its containers had {grace} to end{freed}; {after}."
