"""A replay as JSON, and the counts that sum it up."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from watchdog.core.policy import Do, Policy
from watchdog.past.replay import Found, Replayed
from watchdog.report.actions import mark
from watchdog.report.brakes import withheld_because
from watchdog.report.text import rfc3339

# The keys of the JSON.
TOTALS: Final = {Do.KILL: "kills", Do.EVICT: "evictions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRecord:
    """What the journal says of the same time: kills and evictions begun and only observed, by their events."""

    begun: int
    observed: int
    withheld: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A replay with all that is told of it: since when it was asked for, under which policy, and what was recorded."""

    since_s: float
    policy: Policy
    replayed: Replayed
    record: StoryRecord

    @property
    def actions(self) -> tuple[Found, ...]:
        """The first action of each incident, held back or not."""
        return tuple(each for each in self.replayed.found if each.entry.do.is_force)

    @property
    def warnings(self) -> tuple[Found, ...]:
        """The first warning of each incident."""
        return tuple(each for each in self.replayed.found if not each.entry.do.is_force)


def story_document(story: Story) -> dict[str, Any]:
    """A replay as JSON."""
    record = story.record
    return {
        "policy": {"source": story.policy.source, "sha256": story.policy.sha256, "mode": story.policy.mode},
        "since": rfc3339(story.since_s),
        "seen_s": round(story.replayed.seen_s, 3),
        "deeds": [_document(each, story.policy) for each in story.actions],
        "warnings": [_document(each, story.policy) for each in story.warnings],
        "summary": summary(story),
        "then": {"begun": record.begun, "would_act": record.observed, "withheld": record.withheld},
    }


def summary(story: Story) -> dict[str, Any]:
    """The counts: actions let through by kind, incidents, workloads, and actions held back to the end by brake."""
    through = [each for each in story.actions if each.is_let_through]
    held = [each for each in story.actions if not each.is_let_through]
    return {
        **{plural: sum(each.entry.do is do for each in through) for do, plural in TOTALS.items()},
        "observed_by_rule": sum(each.entry.assessment.observes for each in through),
        "incidents": len(story.actions),
        "workloads": len(_workloads(story.actions)),
        "withheld": dict(sorted(Counter(_brake(each) for each in held).items())),
        "warnings": len(story.warnings),
    }


def _document(found: Found, policy: Policy) -> dict[str, Any]:
    entry, assessment = found.entry, found.entry.assessment
    pod, account = assessment.pod, entry.account
    return {
        "due_at": rfc3339(found.due.wall_s),
        "at": None if found.at is None else rfc3339(found.at.wall_s),
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "workload": {"kind": pod.workload.kind, "name": pod.workload.name},
        "container": entry.victim or account.container,
        "account": {"container": account.container, "gpu": account.gpu},
        "do": entry.do.value,
        "scope": entry.definition.scope if entry.do is Do.KILL else None,
        "rule": entry.rule.name,
        "step": entry.step,
        "mark": mark(entry),
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "allowed": assessment.allowed,
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "observes": assessment.observes,
        "processes": [{"pid": key.pid, "start_ticks": key.start_ticks} for key in entry.targets],
        "withheld": [
            {
                "by": each.entry.withheld_by,
                "because": withheld_because(each.entry, policy),
                "at": rfc3339(each.at.wall_s),
                "lets_go_at": None if each.lets_go_s is None else rfc3339(each.lets_go_s),
            }
            for each in found.withheld
        ],
        "withheld_by": None if found.is_let_through else _brake(found),
        "goes_on": found.goes_on,
    }


def _brake(found: Found) -> str:
    """The brake that held last."""
    brake = found.withheld[-1].entry.withheld_by if found.withheld else None
    return "" if brake is None else brake.value


def _workloads(found: Iterable[Found]) -> set[tuple[str, str, str]]:
    pods = [each.entry.assessment.pod for each in found]
    return {(pod.namespace, pod.workload.kind, pod.workload.name) for pod in pods}
