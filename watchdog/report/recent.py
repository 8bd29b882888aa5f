"""Recent actions: the last one per set of labels, for metrics, and the last day's, for everything else."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, Final

from msgspec.structs import replace

from watchdog.core.model import Now, elapsed_s
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Do
from watchdog.report.changes import BLOCKED, ENDED, ChangeKind
from watchdog.report.status import Moment, RecentStatus, SignalStatus

LAST_KEPT_S: Final = 900.0  # after the pod is gone
# Each is a series. The brakes of a policy bound kills and evictions, but nothing bounds warnings: a pod that returns
# every second under another name, over its limit, would be 900 of them.
MOST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAction:
    """The last action with these labels."""

    # Namespace, pod, container, action, result, rule.
    labels: tuple[str, ...]
    # That of the pod.
    uid: str
    # When it was (Unix time).
    wall_s: float
    # Since when the pod is gone; None: it is listed.
    gone_since: Now | None = None

    @property
    def action(self) -> str:
        """What the step did: warn, kill or evict."""
        return self.labels[3]

    @property
    def result(self) -> str:
        """The result, by its name."""
        return self.labels[4]

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.labels[5]


def last_action(outcome: Outcome) -> LastAction:
    """The last action that an outcome makes."""
    entry = outcome.entry
    pod = entry.assessment.pod
    container = entry.victim or entry.account.container or ""
    labels = (pod.namespace, pod.name, container, entry.do.value, outcome.result.value, entry.rule.name)
    return LastAction(labels=labels, uid=pod.uid, wall_s=outcome.at.wall_s)


def merge(before: tuple[LastAction, ...], more: Iterable[LastAction]) -> tuple[LastAction, ...]:
    """Both together: with the same labels the one that comes last, and no more than MOST in all.

    Times do not decide which one that is: the clock may have been set back in between. Kills and evictions are kept
    rather than warnings, and then the newer ones.
    """
    added = tuple(more)
    if not added:
        return before
    latest = {action.labels: action for action in (*before, *added)}
    if len(latest) <= MOST:
        return tuple(latest.values())
    ranked = sorted(latest.values(), key=lambda action: (action.action != Do.WARN, action.wall_s), reverse=True)
    return tuple(ranked[:MOST])


def aged(actions: tuple[LastAction, ...], report: CycleReport) -> tuple[LastAction, ...]:
    """Those that still count at a cycle: their pods are listed, or have not been gone for long.

    Times are capped at the end of the cycle. If the clock was set back since, a later time would keep an alert on its
    age firing until the clock catches up.
    """
    if not actions:
        return ()
    listed, ends_s = {pod.uid for pod in report.pods.pods}, report.at.wall_s + report.duration_s
    kept = []
    for action in actions:
        gone_since = None if action.uid in listed else action.gone_since or report.at
        if gone_since is None or elapsed_s(gone_since, report.at) <= LAST_KEPT_S:
            kept.append(_changed(action, min(action.wall_s, ends_s), gone_since))
    return tuple(kept)


def _changed(action: LastAction, wall_s: float, gone_since: Now | None) -> LastAction:
    is_same = (wall_s, gone_since) == (action.wall_s, action.gone_since)
    return action if is_same else replaced(action, wall_s=wall_s, gone_since=gone_since)


MOST_ACTIONS: Final = 20
KEPT_S: Final = 86400.0
_MOST_SIGNALS: Final = 10
INTENDED: Final = "intended"
SIGNALLED: Final = "signalled"
_KNOWN: Final = frozenset(Do)
_RELEASED: Final = ChangeKind.RELEASED.value
# Of an action without a number there is one row: of a warning, of observe mode, of an action that could not begin.
_ALONE: Final = (ChangeKind.WARNED, ChangeKind.WOULD_ACT, *ENDED)
EVENTS: Final = (INTENDED, SIGNALLED, _RELEASED, *_ALONE, *BLOCKED)


def is_action(recent: RecentStatus) -> bool:
    """Whether it was a kill or an eviction that really began, not a warning or what observe mode would do."""
    return recent.do.enforces and recent.result != Result.OBSERVED.value


class Recent:
    """The last actions, newest first.

    Only the thread that owns the journal calls `add_row`; the tuple is replaced whole, so any thread may read.
    """

    def __init__(self) -> None:
        self._numbered: tuple[_Numbered, ...] = ()  # each with the journal's number of it, if it has one
        self.actions: tuple[RecentStatus, ...] = ()

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Take in a row of the journal; most are not about an action."""
        event, number = row["event"], row.get("action_id")
        is_begun = event == INTENDED or (number is None and event in _ALONE)
        if is_begun and row.get("do") in _KNOWN:  # a later version may have written others
            self._numbered = _kept(((number, _begun(row)), *self._numbered))
        elif number is not None and event in EVENTS:
            self._numbered = tuple(
                (n, _continued(action, row) if n == number else action) for n, action in self._numbered
            )
        else:
            return
        self.actions = tuple(action for _, action in self._numbered)


_Numbered = tuple[int | None, RecentStatus]


# The columns of the journal that an action takes over.
_COLUMNS: Final = (
    *("namespace", "pod", "uid", "container", "gpu", "scope", "rule", "step", "used", "used_at_least"),
    *("used_beside", "allowed", "declared", "threshold"),
)


def _begun(row: Mapping[str, Any]) -> RecentStatus:
    is_whole, at = row["event"] != INTENDED, Moment(row["wall_s"])
    columns: dict[str, Any] = {column: row.get(column) for column in _COLUMNS}
    return RecentStatus(
        at=at,
        do=Do(row["do"]),
        why=row["sentence"],
        result=row.get("result") if is_whole else None,
        reason=row.get("reason") if is_whole else None,
        ended_at=at if is_whole else None,
        **columns,
    )


def _continued(action: RecentStatus, row: Mapping[str, Any]) -> RecentStatus:
    event, at = row["event"], Moment(row["wall_s"])
    if event == SIGNALLED:
        return replace(action, signals=_kept_signals((*action.signals, _signal(row))))
    if event in ENDED or event in BLOCKED:
        outcome, result = row["sentence"], row.get("result")
        action = replace(action, result=result, reason=row.get("reason"), outcome=outcome, ended_at=at)
        return replace(action, blocked_at=at, blocked_by=action.reason) if event in BLOCKED else action
    if event != _RELEASED:
        return action
    return replace(action, outcome=row["sentence"], released_at=at, unreleased=row.get("reason"))


def _signal(row: Mapping[str, Any]) -> SignalStatus:
    name, _, keys = str(row.get("detail") or "").partition(" ")
    try:
        processes = len(json.loads(keys))
    except ValueError:  # a list that was too long to be kept whole
        processes = None
    return SignalStatus(signal=name, at=Moment(row["wall_s"]), processes=processes)


def _kept_signals(signals: tuple[SignalStatus, ...]) -> tuple[SignalStatus, ...]:
    """The first of each signal and the newest: a container may fork all through its grace period."""
    if len(signals) <= _MOST_SIGNALS:
        return signals
    names = [sent.signal for sent in signals]
    oldest = next(number for number, name in enumerate(names) if name in names[:number])
    return (*signals[:oldest], *signals[oldest + 1 :])


def _kept(actions: tuple[_Numbered, ...]) -> tuple[_Numbered, ...]:
    """At most MOST_ACTIONS of the last day."""
    newest = actions[0][1].at or 0.0
    actions = tuple(numbered for numbered in actions if (numbered[1].at or 0.0) > newest - KEPT_S)
    if len(actions) <= MOST_ACTIONS:
        return actions
    # One too many: the oldest of the kind that makes up more than half is dropped, so that neither warnings
    # displace kills, nor kills warnings.
    is_hit = [is_action(action) for _, action in actions]
    last = max(number for number, each in enumerate(is_hit) if each is (sum(is_hit) > MOST_ACTIONS // 2))
    return (*actions[:last], *actions[last + 1 :])
