"""What stands in a line of the log about an occurrence."""

from collections.abc import Mapping
from typing import Any, Final

from watchdog.core.assessment import Assessment
from watchdog.core.plan import Outcome, PlanEntry
from watchdog.export.news_item import Event, NewsItem
from watchdog.export.phrases import inert

_DETAILS: Final[Mapping[Event, str]] = {
    Event.WITHHELD: "brake",
    Event.POLICY_LOADED: "sha256",
    Event.POLICY_REFUSED: "sha256",
}


def fields_of(item: NewsItem) -> dict[str, Any]:
    """What a line has besides its name: the sentence, and what it is about."""
    fields: dict[str, Any] = {"message": item.sentence}
    if item.entry is not None:
        fields |= _account(item.entry.assessment) | _entry(item.entry)
    elif item.assessment is not None:
        fields |= _account(item.assessment)
    if item.outcome is not None:
        fields |= _outcome(item.outcome)
        if item.event in (Event.KILL_BEGUN, Event.EVICT_BEGUN):
            del fields["result"]  # it has only begun
    if item.gpu:
        fields["gpu"] = item.gpu
    if item.detail:
        fields[_DETAILS.get(item.event, "reason")] = item.detail
    return fields


def _account(assessment: Assessment) -> dict[str, Any]:
    return {
        "namespace": assessment.pod.namespace,
        "pod": assessment.pod.name,
        "uid": assessment.pod.uid,
        "container": assessment.account.container or "",
        "gpu": assessment.account.gpu or "",
        "rule": assessment.rule.name if assessment.rule is not None else "",
        "used": assessment.used,
        "declared": assessment.declared,
        "allowed": assessment.allowed,
    }


def _entry(entry: PlanEntry) -> dict[str, Any]:
    container = entry.victim or entry.account.container or ""
    return {"container": container, "action": entry.do.value, "step": entry.step}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    fields = {
        "result": outcome.result.value,
        "reason": outcome.reason or None,
        "deed": outcome.deed,
        "pids": [key.pid for key in outcome.signalled] or None,
        "victims": [inert(victim, 300) for victim in outcome.victims] or None,
        "reaction_s": _rounded(outcome.reaction_s),
        "release_s": _rounded(outcome.release_s),
    }
    return {key: value for key, value in fields.items() if value is not None}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
