"""Recent actions: the last of each kind, and those that every surface shows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, Final

from msgspec.structs import replace

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Do
from watchdog.report.changes import ChangeKind
from watchdog.report.status import Moment, RecentStatus, SignalStatus
from watchdog.report.text import elapsed_s

LAST_KEPT_S: Final = 900.0  # after the pod has gone
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
        """What is kept rather than another one: kills and evictions before warnings, then the newer one."""
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
    """Those that still count at a cycle: their pods are listed, or have not been gone for long.

    None is later than the end of the cycle: a stamp that is was written by a clock that has been set back since. An
    alert that asks how long ago it was would hold until the clock gets there.
    """
    if not actions:
        return ()
    listed, ends_s = {pod.uid for pod in report.pods.pods}, report.at.wall_s + report.duration_s
    found = (_age(_clamped(action, ends_s), report.at, is_listed=action.uid in listed) for action in actions)
    return tuple(action for action in found if action is not None)


def _clamped(action: LastAction, most_s: float) -> LastAction:
    return action if action.wall_s <= most_s else replaced(action, wall_s=most_s)


def _age(action: LastAction, now: Now, *, is_listed: bool) -> LastAction | None:
    if is_listed:
        return replaced(action, gone_since=None) if action.gone_since is not None else action
    gone_since = action.gone_since or now
    return None if elapsed_s(gone_since, now) > LAST_KEPT_S else replaced(action, gone_since=gone_since)


MOST_ACTIONS: Final = 20
KEPT_S: Final = 86400.0
# Whatever there are more of: neither do warnings drive out the kills, nor kills the warnings.
_LEAST_OF_A_KIND: Final = MOST_ACTIONS // 2
_MOST_SIGNALS: Final = 10
INTENDED: Final = "intended"
_SIGNALLED: Final = "signalled"
_KNOWN: Final = frozenset(Do)
_BLOCKED: Final = ChangeKind.EVICT_BLOCKED.value
_ENDED: Final = frozenset({ChangeKind.KILL_ENDED.value, ChangeKind.EVICT_ENDED.value, _BLOCKED})
_RELEASED: Final = ChangeKind.RELEASED.value
# Without a number there is only one row: of a warning, of what observe mode would do, of what could not even begin.
_ALONE: Final = frozenset(
    {ChangeKind.WARNED.value, ChangeKind.WOULD_ACT.value, ChangeKind.KILL_ENDED.value, ChangeKind.EVICT_ENDED.value}
)
EVENTS: Final = (INTENDED, _SIGNALLED, _RELEASED, *sorted(_ENDED | _ALONE))


def is_action(recent: RecentStatus) -> bool:
    """Whether it was a kill or an eviction that was really begun, and not a warning or what observe mode would do."""
    return recent.do.enforces and recent.result != Result.OBSERVED.value


class Recent:
    """The last actions, newest first.

    Only the thread that owns the journal calls `take`; the tuple is replaced whole, so any thread may read.
    """

    def __init__(self) -> None:
        self._numbered: tuple[_Numbered, ...] = ()  # each with the journal's number of it, if it has one
        self.actions: tuple[RecentStatus, ...] = ()

    def take(self, row: Mapping[str, Any]) -> None:
        """Take in a row of the journal; most are not about an action."""
        event, number = row["event"], row.get("deed")
        is_begun = event == INTENDED or (number is None and event in _ALONE)
        if is_begun and row.get("do") in _KNOWN:  # a later version may have written of others
            self._numbered = _kept(((number, _begun(row)), *self._numbered))
        elif number is not None and event in EVENTS:
            self._numbered = tuple((n, _told(each, row) if n == number else each) for n, each in self._numbered)
        else:
            return
        self.actions = tuple(each for _, each in self._numbered)


_Numbered = tuple[int | None, RecentStatus]


def _begun(row: Mapping[str, Any]) -> RecentStatus:
    is_whole, at = row["event"] != INTENDED, Moment(row["wall_s"])
    return RecentStatus(
        at=at,
        namespace=row.get("namespace"),
        pod=row.get("pod"),
        uid=row.get("uid"),
        container=row.get("container"),
        gpu=row.get("gpu"),
        do=Do(row["do"]),
        scope=row.get("scope"),
        rule=row.get("rule"),
        step=row.get("step"),
        used=row.get("used"),
        used_at_least=row.get("used_at_least"),
        allowed=row.get("allowed"),
        declared=row.get("declared"),
        why=row["sentence"],
        result=row.get("result") if is_whole else None,
        reason=row.get("reason") if is_whole else None,
        mark=row.get("mark"),
        ended_at=at if is_whole else None,
    )


def _told(action: RecentStatus, row: Mapping[str, Any]) -> RecentStatus:
    event, at = row["event"], Moment(row["wall_s"])
    if event == _SIGNALLED:
        return replace(action, signals=_kept_signals((*action.signals, _signal(row))))
    if event in _ENDED:
        outcome, result = row["sentence"], row.get("result")
        action = replace(action, result=result, reason=row.get("reason"), outcome=outcome, ended_at=at)
        return replace(action, blocked_at=at, blocked_by=action.reason) if event == _BLOCKED else action
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
    names = [each.signal for each in signals]
    oldest = next(number for number, name in enumerate(names) if name in names[:number])
    return (*signals[:oldest], *signals[oldest + 1 :])


def _kept(actions: tuple[_Numbered, ...]) -> tuple[_Numbered, ...]:
    """At most so many, the newest of each kind."""
    newest = actions[0][1].at or 0.0
    actions = tuple(each for each in actions if (each[1].at or 0.0) > newest - KEPT_S)
    if len(actions) <= MOST_ACTIONS:
        return actions
    # There is one too many: of which kind there are more than half, its oldest goes.
    is_hit = sum(is_action(each) for _, each in actions) > _LEAST_OF_A_KIND
    last = max(number for number, (_, each) in enumerate(actions) if is_action(each) is is_hit)
    return (*actions[:last], *actions[last + 1 :])
