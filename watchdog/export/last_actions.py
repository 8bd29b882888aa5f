"""What was last done to each pod, and when: kept for a while after the pod, for that is what alerts go by."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome
from watchdog.core.policy import Do
from watchdog.export.phrases import elapsed_s

KEPT_S: Final = 900.0  # after the pod has gone
# Each is a series. The brakes of a policy bound kills and evictions, and nothing bounds warnings: a pod that comes back
# each second under another name, over its limit, would be 900 of them.
MOST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAction:
    """What was last done to a pod in this way: labels namespace, pod, container, action, result, rule."""

    labels: tuple[str, ...]
    uid: str
    wall_s: float
    gone_since: Now | None = None

    @property
    def action(self) -> str:
        """What the step did: warn, kill or evict."""
        return self.labels[3]

    @property
    def result(self) -> str:
        """What came of it."""
        return self.labels[4]

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.labels[5]

    @property
    def rank(self) -> tuple[bool, float]:
        """What is kept rather than another one: force before warnings, then what is newer."""
        return self.action != Do.WARN, self.wall_s


def last_action(outcome: Outcome) -> LastAction:
    """What an outcome leaves behind."""
    entry = outcome.entry
    pod = entry.assessment.pod
    container = entry.victim or entry.account.container or ""
    labels = (pod.namespace, pod.name, container, entry.do.value, outcome.result.value, entry.rule.name)
    return LastAction(labels=labels, uid=pod.uid, wall_s=outcome.at.wall_s)


def merge(before: tuple[LastAction, ...], more: Iterable[LastAction]) -> tuple[LastAction, ...]:
    """Both together: of the same labels the one that comes last, and in all no more than MOST.

    Their stamps don't tell which one that is: between two of them the clock may have been set back.
    """
    added = tuple(more)
    if not added:
        return before
    latest = {action.labels: action for action in (*before, *added)}
    if len(latest) <= MOST:
        return tuple(latest.values())
    return tuple(sorted(latest.values(), key=lambda action: action.rank, reverse=True)[:MOST])


def aged(actions: tuple[LastAction, ...], report: CycleReport) -> tuple[LastAction, ...]:
    """Those that still count at a pass: their pods are listed, or have not been gone for long.

    None is later than the end of the pass: a stamp that is was written by a clock that has been set back since. An
    alert that asks how long ago it was would hold until the clock gets there.
    """
    if not actions:
        return ()
    listed, ends_s = {pod.uid for pod in report.pods.pods}, report.at.wall_s + report.duration_s
    found = (_age(_clamped(action, ends_s), report.at, is_listed=action.uid in listed) for action in actions)
    return tuple(action for action in found if action is not None)


def _clamped(action: LastAction, most_s: float) -> LastAction:
    return action if action.wall_s <= most_s else replace(action, wall_s=most_s)


def _age(action: LastAction, now: Now, *, is_listed: bool) -> LastAction | None:
    if is_listed:
        return replace(action, gone_since=None) if action.gone_since is not None else action
    gone_since = action.gone_since or now
    return None if elapsed_s(gone_since, now) > KEPT_S else replace(action, gone_since=gone_since)
