"""The last hour before a daemon started, from what an earlier one recorded."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.brakes import in_this_boot_s
from watchdog.core.model import Gpu, Now
from watchdog.core.plan import Result
from watchdog.core.policy import Do, Policy
from watchdog.journal.playback import DamagedRecordingError, RecordedCycle, RecordedNode, RecordKind, recorded_cycles
from watchdog.journal.read import HistoryRow, history
from watchdog.past.replay import NodeAssessor
from watchdog.report.changes import ChangeKind
from watchdog.report.hour import HOUR_S, POINT_S, Hour, Mark
from watchdog.report.recent import SIGNALLED

# What shows that an action had its effect, with its result if it has one then.
_EFFECTS: Final = frozenset(
    {(ChangeKind.WARNED, Result.DONE), (SIGNALLED, None), (ChangeKind.EVICT_ENDED, Result.DONE)}
)


def recorded_hour(path: Path, policy: Policy, now: Now, rest: Callable[[], None] = lambda: None) -> tuple[Hour, str]:
    """The hour up to now from a journal, and why it ends early (empty: it does not); JournalError.

    Amounts are accurate to 64Mi. What was allowed is not recorded, so it is what the policy allows. `rest` is called
    after each cycle: a busy hour has thousands of them, each of which takes up to a millisecond.
    """
    hour = Hour()
    try:
        _fill(hour, path, policy, now, rest)
    except DamagedRecordingError as error:
        return hour, error.why
    return hour, ""


def _fill(hour: Hour, path: Path, policy: Policy, now: Now, rest: Callable[[], None]) -> None:
    since_s = now.wall_s - HOUR_S
    effects, player = _effects(path, since_s), _Player(hour, policy)
    effect = next(effects, None)
    try:
        for cycle in recorded_cycles(path, since_s):
            # What has an effect belongs to the cycle before it: in the next one its processes may be gone.
            while effect is not None and effect.wall_s < cycle.at.wall_s:
                _mark(hour, effect, player, now)
                effect = next(effects, None)
            at_s = in_this_boot_s(cycle.at, now)
            if at_s >= now.boottime_s - HOUR_S:
                player.add(cycle, at_s)
            else:
                player.skip(cycle)
            rest()
    finally:
        player.end()
    for left in (effect, *effects):
        if left is not None:
            _mark(hour, left, player, now)


class _Player:
    """Adds recorded cycles to an hour.

    A pod is assessed again only if more has changed than the bytes that it uses, and what has not changed is added once
    for each point: assessing 100 pods takes 4 ms, adding their amounts 0.2 ms.
    """

    def __init__(self, hour: Hour, policy: Policy) -> None:
        self._hour = hour
        self._assessor = NodeAssessor(policy)
        # By the UID of their pod; of a cycle before the last one, but for amounts in `_moved`.
        self._assessments: dict[str, tuple[Assessment, ...]] = {}
        # The bytes by container of pods whose amounts have changed since they were assessed.
        self._moved: dict[str, Mapping[str, int]] = {}
        # Whether `_moved` can have a pod.
        self._sums: dict[str, bool] = {}
        # The last cycle: its time, GPUs, and whether it was blind; None before the first.
        self._last: tuple[float, tuple[Gpu, ...], bool] | None = None
        # When everything was added for the last time.
        self._whole_s = -math.inf

    def skip(self, cycle: RecordedCycle) -> None:
        """Take note of a cycle from before the hour."""
        self._assessor.forget(cycle.changed)

    def add(self, cycle: RecordedCycle, at_s: float) -> None:
        """Add a cycle of the hour."""
        node, blind = cycle.node, cycle.node.hidden.blind
        if self._last is not None and not blind and (cycle.is_moved or cycle.kind is RecordKind.SAME):
            moved, renewed = self._move(cycle)
            is_whole = at_s // POINT_S != self._whole_s // POINT_S
        else:
            self.end()
            self._assessor.forget(cycle.changed)
            moved, renewed, is_whole = frozenset(), self._renew(cycle), True
        if is_whole:
            gap_s = 0.0 if cycle.kind is RecordKind.FIRST else HOUR_S
            self._hour.add(at_s, self._of(node.pods), node.gpus, gap_s=gap_s, blind=blind)
            self._whole_s = at_s
        else:
            self._hour.add_cycle(at_s, self._of(renewed), node.gpus, gap_s=HOUR_S)
            self._add_moved(moved, at_s)
        self._last = at_s, node.gpus, blind

    def end(self) -> None:
        """Add that what has not changed was still there in the last cycle."""
        if self._last is not None and self._last[0] > self._whole_s:
            self._whole_s, gpus, blind = self._last
            self._hour.add(self._whole_s, self._of(self._assessments), gpus, gap_s=HOUR_S, blind=blind)

    def cards(self, account: AccountKey) -> set[str]:
        """The GPUs on which an account has memory."""
        own = self._assessments.get(account.uid, ())
        return {use.gpu for each in own if each.account == account for use in each.uses}

    def _move(self, cycle: RecordedCycle) -> tuple[frozenset[str], frozenset[str]]:
        """Take in a cycle in which only amounts have changed: the UIDs of the pods that moved, and were assessed."""
        moved = set[str]()
        for uid in (changed := cycle.changed or frozenset()):
            amounts = _amounts(cycle.node, uid) if self._is_sum(uid, cycle.node.gpus) else None
            if amounts is not None:
                self._moved[uid] = amounts
                moved.add(uid)
        if others := changed - moved:
            self._assessor.forget(others)
            return frozenset(moved), self._renew(cycle)
        return frozenset(moved), frozenset()

    def _renew(self, cycle: RecordedCycle) -> frozenset[str]:
        renewed = self._assessor.renew(cycle.node, cycle.at)
        self._assessments |= {uid: self._assessor.of(uid) for uid in renewed}
        for uid in renewed | (self._assessments.keys() - cycle.node.pods.keys()):
            self._moved.pop(uid, None)
            self._sums.pop(uid, None)
            if uid not in cycle.node.pods:
                self._assessments.pop(uid, None)
        return renewed

    def _is_sum(self, uid: str, gpus: Iterable[Gpu]) -> bool:
        """Whether what a pod's accounts use is only a sum, and what they may use does not depend on it.

        It does where each GPU counts by itself, or where the pod has GPUs of several sizes.
        """
        if uid not in self._sums:
            own = self._assessments.get(uid, ())
            used = {use.gpu for each in own for use in each.uses}
            self._sums[uid] = len({gpu.total for gpu in gpus if gpu.uuid in used}) <= 1 and all(
                each.used is not None and each.account.gpu is None and not each.shared for each in own
            )
        return self._sums[uid]

    def _add_moved(self, uids: Iterable[str], at_s: float) -> None:
        """Add the amounts of these pods, which have moved."""
        for uid in uids:
            for each in self._assessments.get(uid, ()):
                if (series := self._hour.get(each.account)) is not None:
                    series.add_cycle(at_s, _sum(self._moved[uid], each.account.container), each.allowed, HOUR_S)

    def _of(self, uids: Iterable[str]) -> Iterator[Assessment]:
        """The assessments of these pods, with their latest amounts."""
        for uid in uids:
            moved = self._moved.get(uid)
            for each in self._assessments.get(uid, ()):
                used = None if moved is None else _sum(moved, each.account.container)
                yield each if used is None else replace(each, used=used, used_at_least=used)


def _amounts(node: RecordedNode, uid: str) -> Mapping[str, int] | None:
    """The bytes that a pod uses, by container; None if some are unknown."""
    found: dict[str, int] = {}
    for container, used in node.amounts_of(uid):
        if used is None:
            return None
        found[container] = found.get(container, 0) + used
    return found


def _sum(amounts: Mapping[str, int], container: str | None) -> int:
    """The bytes of a container (None: of all)."""
    return sum(amounts.values()) if container is None else amounts.get(container, 0)


def _mark(hour: Hour, effect: HistoryRow, player: _Player, now: Now) -> None:
    account = AccountKey(uid=effect.uid or "", container=effect.account, gpu=effect.gpu)
    at = Now(boottime_s=effect.boottime_s, wall_s=effect.wall_s, boot_id=effect.boot_id)
    hour.mark(player.cards(account), Mark(in_this_boot_s(at, now), Do(effect.do or ""), account))


def _effects(path: Path, since_s: float) -> Iterator[HistoryRow]:
    """The first effect of each action that had one."""
    seen = set[int]()
    for row in history(path, None, since_s, [*Do]):  # a later version may have written others
        if (row.event, row.result) in _EFFECTS and row.action_id not in seen:
            seen |= {row.action_id} if row.action_id is not None else set()
            yield row
