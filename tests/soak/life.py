"""One life of the daemon: what `watchdog.daemon.main` does around the cycle, on the simulated node."""

import math
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Final

from tests.export.build import record
from tests.soak.around import BOTH, Around, full_disk
from tests.soak.clock import QUANTUM_S
from tests.soak.driver import Told, late
from tests.soak.fittings import NODE, OWN, Record, SimSources, counted
from tests.soak.kernel import Task
from tests.soak.laws import conserves, ignores_order, ignores_the_mode
from tests.soak.liveness import nobody_is_held_up
from tests.soak.table import SimulatedTable
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import Inputs
from watchdog.core.attribute import Unlisted
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle, Outcome, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.drain import Drains
from watchdog.daemon.enforcement import Enforcement, Environment, judge, stop_file
from watchdog.daemon.eviction import Evictions
from watchdog.daemon.kill import Kills
from watchdog.daemon.last_look import FRESH_S, LastLook, Next, PendingCycle, without_last_look
from watchdog.daemon.sampler import TimedReading, reject_late
from watchdog.daemon.sinks import restore
from watchdog.journal.actions import RestoredActions
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.lock import NodeLock
from watchdog.node.scan import Scanner

_ENVIRONMENT: Final = Environment(in_host_pid_namespace=True, pidfd_missing=None, own=OWN)


class WatchedKills(Kills):
    """Kills of which the book hears right before the first signal."""

    begins: Callable[[PlanEntry], None]

    def begin(
        self,
        entry: PlanEntry,
        number: int,
        release_timeout_s: float,
        objection: Callable[[PlanEntry], str | None],
        fresh_until_s: float = math.inf,
    ) -> Outcome:
        def noted(asked: PlanEntry) -> str | None:
            why = objection(asked)
            if why is None:
                self.begins(asked)
            return why

        return super().begin(entry, number, release_timeout_s, noted, fresh_until_s)


class Life:
    """A daemon from its start to its end."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._book = around.book
        self._asked_for = around.on_disk
        self._policy = deepcopy(self._asked_for)
        self._policy_file = PolicyFile(around.policy_file)
        self._policy_file.begin(around.clock.now())
        self._swaps = around.swaps
        self._policy_unsettled = self._decides = False
        self._driver = around.open_driver()
        self._table = SimulatedTable(around.kernel, self._tell, around.stir)
        self._scanner = Scanner(self._table)
        self._record = Record(around)
        self._lock = NodeLock(around.journal)
        self._kept: RestoredActions | None = None
        if around.control is not None:
            around.control.daemon_starts()
            around.control.tell = self._tell_drain
        self._drains = Drains(around.control)
        self._actions = WatchedKills(self._scanner, self._record, around.clock.now, self._drains)
        self._actions.begins = lambda entry: self._book.begins(entry, around.clock.now())
        self._sources = SimSources(around)
        # It has no API: an eviction fails at once.
        evictions = Evictions(None, self._record, around.clock.now)
        self.cycle = Cycle(self._scanner, self._actions, evictions, self._record, around.clock.now)
        self._enforcement = Enforcement(enforcing=False, suspended=())
        self._book.policy(self._asked_for, around.half, starts=True)
        self._book.standing.answers = self._table.answers
        self._book.standing.recycled = around.kernel.recycled
        self._book.enforcement(enforcing=False)
        self._book.daemon_starts(around.clock.now())

    def _tell(self, task: Task, number: int) -> None:
        if number:
            self._around.stir("signal")
        self._book.signals.signalled(task, number, self._around.clock.now())
        if number and task.is_served_from_outside:
            self._book.seen["neighbours broke"] += bool(self._around.kernel.neighbours(task))

    def _tell_drain(self, task: Task) -> None:
        self._around.stir("signal")
        self._book.signals.drained(task, self._around.clock.now())

    @property
    def has_seen_swaps(self) -> bool:
        """Whether it goes by the last policy that came as a ConfigMap does."""
        return self._swaps == self._around.swaps

    def beat(self) -> None:
        """What the daemon looks for between cycles."""
        now = self._around.clock.now()
        self._policy_file.check(now)
        if not self.has_seen_swaps or self._policy_file.is_ready:
            self._swaps = self._around.swaps
            self._policy_file.load()
            self._go_by(self._around.on_disk)
        with full_disk(self._around.disk_full):
            self._tend(now)
        self._judge()

    def _go_by(self, policy: Policy) -> None:
        self._book.actions.before_reload()
        self._book.timers.reload(self._asked_for, policy)
        self._book.policy(policy, self._around.half, starts=False)
        before, self._asked_for, self._policy = self._policy, policy, deepcopy(policy)
        self.cycle.ledger = self.cycle.ledger.reloaded(before, self._policy)

    def _tend(self, now: Now) -> None:
        journal = self._record.journal
        if journal is not None and self._lock.held:
            journal.probe()
            return
        if journal is not None:
            journal.close()
            self._record.journal = None
        if not self._lock.acquire():
            return
        known = self._kept.in_progress if self._kept is not None else None
        try:
            journal = Journal.open(self._around.journal, self._policy.journal, NODE.name, kept=self._kept)
        except JournalError:
            return
        try:
            found = restore(journal, self._lock, now, known)
        except JournalError:
            journal.close()
            return
        until_s = now.boottime_s + self._policy.release_timeout_s
        self._record.journal = journal
        self.cycle.take_over(found.unfinished, until_s, found.brakes)
        if self._kept is None:
            loss, self._around.loss = self._around.loss, ""
            if loss and (loss != BOTH or found.brakes.lost_s is not None):
                self._book.forget(now, lost=True)
            elif loss:
                self._book.forget(now, lost=False)
            self._book.journal_opens(now, counted(self._around.journal))
        else:
            self._book.brakes.reads(now)
        self._kept = journal.kept

    def _judge(self) -> None:
        now = self._around.clock.now()
        self._policy_file.check(now)
        if self._around.writer is not None:
            self._book.policy_is_written(now)
        has_journal = self._record.journal is not None
        stop = stop_file(self._around.journal)
        switches = self._sources.switches(now)
        enforcement = judge(
            self._policy, _ENVIRONMENT, self._around.journal, switches, has_lock=True, has_journal=has_journal
        )
        self._enforcement = enforcement.with_policy_unsettled() if self._policy_file.holds else enforcement
        self._policy_unsettled = self._enforcement.waits_for_policy and self._policy_file.has_settled
        decided, self._decides = self._decides, self._enforcement.enforcing or self._policy_unsettled
        if self._decides and not decided:
            self.cycle.ledger = self.cycle.ledger.reset()
        is_whole = not self._book.standing.is_half
        enforcing = self._policy.mode == "enforce" and has_journal and not stop.exists() and is_whole
        self._book.enforcement(enforcing=enforcing)

    def advance(self) -> None:
        """Let the actions in progress go on, and the disk take what it takes by now."""
        now = self._around.clock.now()
        with full_disk(self._around.disk_full):
            self._record.settle()
            self.cycle.advance(now, self._objection, policy_unsettled=self._policy_unsettled)
        self._book.actions.advanced(now)

    def look(self, dice: random.Random) -> None:
        """One cycle, from the first reading to the report."""
        around, book = self._around, self._book
        book.begun_now.clear()
        stirred = around.stirs
        asked = around.clock.now()
        told, took_s = self._ask(None, around.slow_s)
        reading = told.reading
        if took_s > self._policy.reset_after_s:
            reading = reject_late(reading, took_s)
            told = late(told, reading)
        self._judge()
        now = around.clock.now()
        view = self._inputs()
        book.actions.given(told, asked)
        before, unlisted = self.cycle.ledger, self.cycle.unlisted
        with full_disk(around.disk_full):
            opened = self.cycle.open(reading, view, asked, now)
            if not opened.snapshot.blind:
                self._drains.use(opened.attribution, len(opened.snapshot.gpus))
                self._drains.refresh(now)
        for gpu in reading.gpus:
            if gpu.listed:
                lines = (line for line in told.lines if line.gpu == gpu.uuid)
                around.kernel.listed[gpu.uuid] = {line.task.key for line in lines if line.task is not None}
        told = conserves(opened, told, around.kernel.recycled)
        book.read(told, asked, opened.inputs.overdue, written=self._is_writable)
        self._check(opened, before, unlisted, asked, dice)
        with full_disk(around.disk_full):
            waiting = PendingCycle(opened=self.cycle.intend(opened), since=now)
        second = self._last_look(waiting, dice)
        with full_disk(around.disk_full):
            self._close(waiting, second)
        if (second is not None or not opened.only) and around.stirs == stirred:
            nobody_is_held_up(book, opened.plan, around.clock.now(), written=self._is_writable)

    def _ask(self, only: frozenset[str] | None, slow_s: float) -> tuple[Told, float]:
        began_s = self._around.clock.boottime_s
        told = self._driver.read(only)
        self._around.pass_by(max(slow_s, QUANTUM_S))
        return told, self._around.clock.boottime_s - began_s

    def _last_look(self, waiting: PendingCycle, dice: random.Random) -> Told | None:
        """Wait for the disk, then ask the driver once more, as the daemon does; what it truly said in time."""
        around, book = self._around, self._book
        told: Told | None = None
        while (following := waiting.next(around.clock.now(), maintenance=False)) is not Next.CLOSE:
            if following is Next.WAIT:
                around.pass_by(QUANTUM_S)
                self.advance()
            else:
                around.stir("between the looks")
                waiting.ask()
                asked = around.clock.now()
                told, took_s = self._ask(waiting.opened.only, around.second_slow_s)
                around.second_slow_s *= dice.random() < 0.7
                waiting.take(TimedReading(reading=told.reading, asked=asked, took_s=took_s, only=waiting.opened.only))
                book.seen["last look"] += 1
                book.seen["last look too late"] += waiting.last_reading is None
            if dice.random() < 0.2:
                self.beat()
                self.advance()
        reading = book.standing.reading
        if reading is not None and waiting.last_reading is not None:
            reading.second, reading.only, reading.looked_s = (
                told,
                waiting.opened.only,
                waiting.last_reading.asked.boottime_s,
            )
        return told if waiting.last_reading is not None else None

    def _close(self, waiting: PendingCycle, second: Told | None) -> ClosedCycle:
        around, book = self._around, self._book
        self._judge()
        now = around.clock.now()
        opened = waiting.opened
        if opened.only:
            opened = opened.with_inputs(self._inputs())
        if waiting.late_s is not None:
            opened = without_last_look(opened, waiting.late_s)
        last: LastLook | None = None
        if second is not None and waiting.last_reading is not None:
            until_s = waiting.last_reading.asked.boottime_s + FRESH_S
            objection = partial(self._objection_to_first_signal, until_s)
            last = LastLook(
                reading=second.reading, at=now, fresh_until_s=until_s, objection=objection, inputs=self._inputs
            )
        finish = self.cycle.close(opened, last, now)
        for outcome in finish.outcomes:
            account = outcome.entry.account
            if outcome.result is Result.FAILED and outcome.number is None:
                book.timers.note_failed((account.uid, account.container, account.gpu))
        for entry in finish.plan.entries:
            if entry.withheld_by is not None:
                book.seen[f"withheld {entry.withheld_by}"] += 1
        for outcome in (*finish.began, *finish.outcomes):
            book.seen[f"{outcome.entry.do} {outcome.result}"] += 1
        if self._record.journal is not None:
            record(self._record.journal, self._report(opened, finish))
        return finish

    def _report(self, opened: OpenCycle, finish: ClosedCycle) -> CycleReport:
        now = self._around.clock.now()
        return CycleReport(
            node=NODE,
            at=opened.snapshot.at,
            policy=opened.inputs.policy,
            policy_loaded_at_s=0.0,
            enforcing=self._enforcement.enforcing,
            suspended=self._enforcement.suspended,
            snapshot=opened.snapshot,
            pods=opened.inputs.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=finish.outcomes,
            drains=opened.inputs.drains,
            scan_s=opened.scan_s,
            duration_s=now.boottime_s - opened.snapshot.at.boottime_s,
        )

    def _check(self, opened: OpenCycle, before: Ledger, unlisted: Unlisted, asked: Now, dice: random.Random) -> None:
        # An action that ends changes the ledger inside `open`: then it is not known by which one was decided.
        if any(state.under_way is not None for state in before.accounts.values()):
            return
        due = [entry for entry in opened.plan.entries if entry.due_in_s <= 0 and entry.do.enforces]
        if dice.random() < (0.3 if len(due) > 1 else 0.02):
            ignores_order(opened, before, asked, dice)
        if dice.random() < (0.1 if due else 0.01):
            ignores_the_mode(opened, before, unlisted, asked)

    @property
    def has_journal(self) -> bool:
        """Whether its journal is open."""
        return self._record.journal is not None

    @property
    def _is_writable(self) -> bool:
        return self._record.journal is not None and self._record.journal.writable and not self._record.hangs

    def _inputs(self) -> Inputs:
        now = self._around.clock.now()
        inputs = self._sources.inputs(
            self._policy,
            now,
            journal_writable=self._is_writable,
            enforcing=self._decides,
            policy_unsettled=self._policy_unsettled,
        )
        return replace(inputs, drains=self._drains.known)

    def _objection_to_first_signal(self, fresh_until_s: float, entry: PlanEntry) -> str | None:
        now = self._around.clock.now()
        if now.boottime_s > fresh_until_s:
            return "the last look was already too old"
        if self._policy_unsettled:
            return "the policy file has changed and may still be being written"
        return self._objection(entry)

    def _objection(self, entry: PlanEntry) -> str | None:
        if not self._decides:
            return "enforcement was turned off meanwhile"
        return self._sources.objection(entry, self._policy, self._around.clock.now())

    def end(self) -> None:
        """SIGTERM to the daemon."""
        with full_disk(self._around.disk_full):
            self.cycle.interrupt("the watchdog was stopped in the grace period", self._around.clock.now())
            if self._record.journal is not None:
                self._record.journal.close()
            self._lock.release()

    def die(self) -> None:
        """SIGKILL to the daemon: what had not reached the disk never will."""
        with full_disk(full=True):
            if self._record.journal is not None:
                self._record.journal.close()
            self._lock.release()
