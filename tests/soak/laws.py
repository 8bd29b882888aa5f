"""Laws about one cycle, held against it by asking the production code again or by counting."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from tests.soak.driver import TrueReading
from tests.soak.violation import fail
from watchdog.core.assess import assess
from watchdog.core.attribute import Unlisted, attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import GapReason, Now, ProcessKey, Snapshot
from watchdog.core.plan import OpenCycle, Plan, PlanEntry
from watchdog.core.policy import Mode
from watchdog.core.transfers import Transfers
from watchdog.daemon.actions.actions import Actions, actions_by_do
from watchdog.daemon.actions.clearance import ALWAYS_CLEAR
from watchdog.daemon.cycle import Cycle
from watchdog.journal.writer import JournalWriter
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner

LAW1: Final = "law 1, attribution conserves bytes"
LAW2: Final = "law 2, a plan does not depend on the order"
LAW7: Final = "law 7, observe and enforce make equal plans"
WHOSE: Final = "law 4, bytes are charged to their true owner"
T = TypeVar("T")


def hidden_bytes(opened: OpenCycle, truth: TrueReading) -> dict[tuple[str, int], int]:
    """The bytes that count as unknown because they may have changed hands, by card and PID."""
    marks = {gap.what.rpartition(" on ")[2] for gap in opened.snapshot.gaps if gap.reason is GapReason.TRANSFER}
    reported = {
        (use.gpu, use.key): use.surely for use in opened.attribution.attributed if use.used is None and use.gpu in marks
    }
    given = {(use.gpu, use.pid): use.used for use in opened.snapshot.uses}
    return {
        (line.gpu, line.pid): line.used - reported[line.gpu, line.task.key]
        for line in truth.lines
        if line.task is not None and (line.gpu, line.task.key) in reported and line.used is not None
        if given.get((line.gpu, line.pid)) is not None
    }


def conserves(
    opened: OpenCycle, truth: TrueReading, recycled: set[int], hidden: Mapping[tuple[str, int], int]
) -> TrueReading:
    """Law 1: every line of the reading is in exactly one place, with its bytes, and charged to whose they truly are.

    Bytes under a PID that has been given twice, or whose process has ended, may count as unknown: gives the
    reading with these made unknown. Of the `hidden` bytes only the rest counts.
    """
    placed: Counter[tuple[str, int]] = Counter()
    counted: dict[tuple[str, int], int | None] = {}
    owners: dict[tuple[str, int], tuple[str, ProcessKey]] = {}
    for use in opened.attribution.attributed:
        placed[use.gpu, use.key.pid] += 1
        counted[use.gpu, use.key.pid] = use.used
        owners[use.gpu, use.key.pid] = use.uid, use.key
    for other in opened.attribution.unattributed:
        placed[other.gpu, other.pid] += 1
        counted[other.gpu, other.pid] = other.used
    for line in truth.lines:
        at = (line.gpu, line.pid)
        if line.gpu in truth.dark and at not in placed:
            continue  # carried over from an earlier listing, and ended since
        if placed[at] != 1:
            fail(LAW1, f"{line} is in {placed[at]} places")
        is_doubted = counted[at] is None and (
            at in hidden or line.pid in recycled or line.task is None or not line.task.lives
        )
        if not (counted[at] == line.used or is_doubted):
            fail(LAW1, f"{line} is counted as {counted[at]}")
        if at in owners and counted[at] is not None and line.task is not None:
            truly = (line.task.pod, line.task.key)
            if owners[at] != truly:
                fail(WHOSE, f"{line} is charged to {owners[at]}")
    if len(placed) > len(truth.lines):
        fail(LAW1, f"{len(placed)} places for {len(truth.lines)} lines")
    lines = (
        replace(line, used=counted.get(at), unsure=at in hidden)
        if (at := (line.gpu, line.pid)) not in hidden or line.used is None
        else replace(line, used=line.used - hidden[at], unsure=True)
        for line in truth.lines
    )
    return replace(truth, lines=tuple(lines))


def ignores_order(opened: OpenCycle, before: Ledger, asked: Now, transfers: Transfers, dice: random.Random) -> None:
    """Law 2: the same cycle from shuffled input."""
    one, other = (_again(opened, before, asked, transfers, shuffle) for shuffle in (None, dice))
    _demand_equal(LAW2, one, other, opened.plan)
    if one.ledger != other.ledger:
        fail(LAW2, "the ledgers differ")


def _again(opened: OpenCycle, before: Ledger, asked: Now, transfers: Transfers, dice: random.Random | None) -> Plan:
    given, seen, pods = opened.inputs, opened.snapshot, opened.inputs.pods.pods
    if dice is not None:
        pods = _mixed(dice, pods)
        processes = dict(_mixed(dice, tuple(seen.processes.items())))
        seen = replace(seen, uses=_mixed(dice, seen.uses), gpus=_mixed(dice, seen.gpus), processes=processes)
    given = replace(given, pods=replace(given.pods, pods=pods))
    found = assess(transfers.hide(attribute(seen, pods), seen, given), seen, given)
    if dice is not None:
        found = _mixed(dice, found)
    return decide(found, before, asked, given)


def ignores_the_mode(opened: OpenCycle, before: Ledger, unlisted: Unlisted, asked: Now, transfers: Transfers) -> None:
    """Law 7: the same cycle under either mode, through the very code that runs it."""
    one, other = (_under(opened, before, unlisted, asked, transfers, mode).plan for mode in _MODES)
    _demand_equal(LAW7, one, other, opened.plan)
    if one.ledger.accounts != other.ledger.accounts:
        fail(LAW7, "the ledgers differ")


_MODES: Final[tuple[Mode, ...]] = ("enforce", "observe")


def _under(
    opened: OpenCycle, before: Ledger, unlisted: Unlisted, asked: Now, transfers: Transfers, mode: Mode
) -> OpenCycle:
    policy = replace(opened.inputs.policy, mode=mode)
    frozen = _Frozen(opened.snapshot)
    record = JournalWriter()
    by_do = actions_by_do(frozen, None, record, lambda: asked, ALWAYS_CLEAR)
    cycle = Cycle(frozen, Actions(by_do, record, lambda: asked, ALWAYS_CLEAR), record)
    cycle.ledger, cycle.unlisted, cycle.transfers = before, unlisted, transfers
    given = replace(opened.inputs, policy=policy, enforcing=mode == "enforce")
    return cycle.open(DriverReading(driver=None, interface="NVML"), given, asked, asked)


class _Frozen(Scanner):
    """A scanner that gives one snapshot again."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen

    def snapshot(self, reading: DriverReading, now: Now) -> Snapshot:
        return self._seen


def _demand_equal(law: str, *plans: Plan) -> None:
    first, *others = [[_essence(entry) for entry in plan.entries] for plan in plans]
    for other in others:
        if other != first:
            fail(law, f"{first}, then {other}")


def _essence(entry: PlanEntry) -> tuple[object, ...]:
    held = (entry.withheld_by, entry.taken, entry.escalates, entry.releases_in_s)
    return (entry.account, entry.step_index, entry.victim, entry.targets, entry.threshold_bytes, entry.due_in_s, *held)


def _mixed(dice: random.Random, values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dice.sample(values, len(values)))
