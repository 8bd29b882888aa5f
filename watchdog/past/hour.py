"""The last hour before a daemon started, from what an earlier one recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.brakes import in_this_boot_s
from watchdog.core.model import Now
from watchdog.core.plan import Result
from watchdog.core.policy import Do, Policy
from watchdog.journal.playback import DamagedRecordingError, RecordKind, recorded_cycles
from watchdog.journal.read import HistoryRow, history
from watchdog.past.replay import NodeAssessor
from watchdog.report.changes import ChangeKind
from watchdog.report.hour import HOUR_S, Hour, Mark
from watchdog.report.recent import SIGNALLED

# What shows that an action had its effect, with its result if it has one then.
_EFFECTS: Final = frozenset(
    {(ChangeKind.WARNED, Result.DONE), (SIGNALLED, None), (ChangeKind.EVICT_ENDED, Result.DONE)}
)


def recorded_hour(path: Path, policy: Policy, now: Now) -> tuple[Hour, str]:
    """The hour up to now from a journal, and why it ends early (empty: it does not); JournalError.

    Amounts are accurate to 64Mi. What was allowed is not recorded, so it is what the policy allows.
    """
    hour = Hour()
    try:
        _fill(hour, path, policy, now)
    except DamagedRecordingError as error:
        return hour, error.why
    return hour, ""


def _fill(hour: Hour, path: Path, policy: Policy, now: Now) -> None:
    assessor, since_s = NodeAssessor(policy), now.wall_s - HOUR_S
    effects, assessments = _effects(path, since_s), tuple[Assessment, ...]()
    effect, is_begun = next(effects, None), False
    for cycle in recorded_cycles(path, since_s):
        # What has an effect belongs to the cycle before it: in the next one its processes may be gone.
        while effect is not None and effect.wall_s < cycle.at.wall_s:
            _mark(hour, effect, assessments, now)
            effect = next(effects, None)
        assessor.forget(cycle.changed)
        at_s = in_this_boot_s(cycle.at, now)
        if at_s < now.boottime_s - HOUR_S:
            continue
        if cycle.kind is not RecordKind.SAME or not is_begun:
            assessments, is_begun = assessor.assess(cycle.node, cycle.at), True
        gap_s = 0.0 if cycle.kind is RecordKind.FIRST else HOUR_S
        hour.add(at_s, assessments, cycle.node.gpus, gap_s=gap_s, blind=cycle.node.hidden.blind)
    for rest in (effect, *effects):
        if rest is not None:
            _mark(hour, rest, assessments, now)


def _mark(hour: Hour, effect: HistoryRow, assessments: tuple[Assessment, ...], now: Now) -> None:
    account = AccountKey(uid=effect.uid or "", container=effect.account, gpu=effect.gpu)
    cards = {use.gpu for each in assessments if each.account == account for use in each.uses}
    at = Now(boottime_s=effect.boottime_s, wall_s=effect.wall_s, boot_id=effect.boot_id)
    hour.mark(cards, Mark(in_this_boot_s(at, now), Do(effect.do or ""), account))


def _effects(path: Path, since_s: float) -> Iterator[HistoryRow]:
    """The first effect of each action that had one."""
    seen = set[int]()
    for row in history(path, None, since_s, [*Do]):  # a later version may have written others
        if (row.event, row.result) in _EFFECTS and row.action_id not in seen:
            seen |= {row.action_id} if row.action_id is not None else set()
            yield row
