"""One life of the daemon: what `watchdog.daemon` does around the cycle, on the simulated node."""

import random
from dataclasses import replace
from typing import Final

from tests.soak.around import Around, full_disk
from tests.soak.clock import QUANTUM_S
from tests.soak.driver import Told, late
from tests.soak.fittings import NODE, OWN, Record, Sources
from tests.soak.kernel import Task
from tests.soak.laws import conserves, ignores_order, ignores_the_mode
from tests.soak.liveness import nobody_is_held_up
from tests.soak.table import SimulatedTable
from watchdog.act.evictions import Evictions
from watchdog.act.kills import Deeds
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.cycle.cycle import Cycle, Finish, Pass, View
from watchdog.cycle.late import outdated, without_second_look
from watchdog.cycle.leftovers import left_over
from watchdog.export.journal import Journal, JournalError
from watchdog.loop.enforcement import Enforcement, Footing, judge, stop_file
from watchdog.node.scan import Scanner

_FOOTING: Final = Footing(in_host_pid_namespace=True, pidfd_missing=None, own=OWN)
_SECOND_LOOK_S: Final = 2.0


class Life:
    """A daemon from its start to its end."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._book = around.book
        self._plan = around.plan
        self._policy: Policy = around.plan.compiled()
        self._driver = around.open_driver()
        self._table = SimulatedTable(around.kernel, self._tell, around.stir)
        self._scanner = Scanner(self._table)
        self._record = Record(around)
        self._deeds = Deeds(self._scanner, self._record, around.clock.now)
        self._sources = Sources(around)
        # It has no API: an eviction fails at once.
        self.cycle = Cycle(self._scanner, self._deeds, Evictions(None, self._record, around.clock.now))
        self._enforcement = Enforcement(enforcing=False, suspended=())
        self._book.standing.plan = self._plan
        self._book.standing.answers = self._table.answers
        self._book.standing.recycled = around.kernel.recycled
        self._book.enforcement(enforcing=False)
        self._book.daemon_starts(around.clock.now())

    def _tell(self, task: Task, number: int) -> None:
        if number:
            self._around.stir("signal")
        self._book.signals.signalled(task, number, self._around.clock.now())

    def beat(self) -> None:
        """What the daemon looks for between passes."""
        now = self._around.clock.now()
        if self._around.plan is not self._plan:
            self._plan = self._book.standing.plan = self._around.plan
            self._policy = self._plan.compiled()
            self._book.timers.doubt()
        with full_disk(self._around.disk_full):
            self._tend(now)
        self._judge()

    def _tend(self, now: Now) -> None:
        journal = self._record.journal
        if journal is not None:
            journal.probe()
            return
        try:
            journal = Journal.open(self._around.journal, self._policy.journal, NODE.name)
        except JournalError:
            return
        try:
            unfinished, brakes = journal.unfinished(), journal.brakes(now)
        except JournalError:
            journal.close()
            return
        for deed in unfinished:
            if deed.result is None:
                journal.end(deed.deed, Result.INTERRUPTED, "the watchdog ended in the middle of it", now)
        until_s = now.boottime_s + self._policy.release_timeout_s
        self._record.journal = journal
        self.cycle.take_over(left_over(unfinished, until_s), brakes)
        self._book.journal_opens(now)

    def _judge(self) -> None:
        before = self._enforcement
        has_journal = self._record.journal is not None
        stop = stop_file(self._around.journal)
        switches = self._sources.switches(self._around.clock.now())
        self._enforcement = judge(
            self._policy, _FOOTING, self._around.journal, switches, has_lock=True, has_journal=has_journal
        )
        if self._enforcement.enforcing and not before.enforcing:
            self.cycle.ledger = self.cycle.ledger.begun_anew()
        self._book.enforcement(enforcing=self._plan.mode == "enforce" and has_journal and not stop.exists())

    def advance(self) -> None:
        """Let the deeds under way go on."""
        now = self._around.clock.now()
        with full_disk(self._around.disk_full):
            self.cycle.advance(now, self._objection)
        self._book.deeds.advanced(now)

    def look(self, dice: random.Random) -> None:
        """One pass, from the first reading to the report."""
        around, book = self._around, self._book
        book.begun_now.clear()
        stirred = around.stirs
        asked = around.clock.now()
        told, took_s = self._ask(None, around.slow_s)
        reading = told.reading
        if took_s > self._policy.reset_after_s:
            reading = outdated(reading, took_s)
            told = late(told, reading)
        self._judge()
        now = around.clock.now()
        view = self._view()
        book.deeds.given(told, asked)
        before = self.cycle.ledger
        with full_disk(around.disk_full):
            opened = self.cycle.open(reading, view, asked, now)
        for gpu in reading.gpus:
            if gpu.listed:
                lines = (line for line in told.lines if line.gpu == gpu.uuid)
                around.kernel.listed[gpu.uuid] = {line.task.key for line in lines if line.task is not None}
        told = conserves(opened, told, around.kernel.recycled)
        book.read(told, asked, written=self._is_writable)
        self._check(opened, before, asked, dice)
        opened, second = self._second_look(opened, took_s, dice)
        with full_disk(around.disk_full):
            self._close(opened, second)
        if second is not None and around.stirs == stirred:
            nobody_is_held_up(book, opened.plan, around.clock.now(), written=self._is_writable)

    def _ask(self, only: frozenset[str] | None, slow_s: float) -> tuple[Told, float]:
        began_s = self._around.clock.boottime_s
        told = self._driver.read(only)
        self._around.pass_by(max(slow_s, QUANTUM_S))
        return told, self._around.clock.boottime_s - began_s

    def _second_look(self, opened: Pass, took_s: float, dice: random.Random) -> tuple[Pass, Told | None]:
        if not opened.only:
            return opened, None
        around, book = self._around, self._book
        patience_s = min(max(_SECOND_LOOK_S, 2 * took_s), self._policy.reset_after_s)
        around.stir("between the looks")
        told, again_s = self._ask(opened.only, around.second_slow_s)
        if dice.random() < 0.2:
            self.beat()
            self.advance()
        opened = replace(opened, view=self._view())
        book.seen["second look"] += 1
        if again_s > patience_s:
            book.seen["second look too late"] += 1
            return without_second_look(opened, again_s), None
        reading = book.standing.reading
        if reading is not None:
            reading.second, reading.only = told, opened.only
        return opened, told

    def _close(self, opened: Pass, second: Told | None) -> Finish:
        around, book = self._around, self._book
        now = around.clock.now()
        answer = second.reading if second is not None and self._enforcement.enforcing else None
        finish = self.cycle.close(opened, answer, now)
        for outcome in finish.outcomes:
            account = outcome.entry.account
            if outcome.result is Result.FAILED and outcome.deed is None:
                book.timers.note_failed((account.uid, account.container, account.gpu))
        for entry in finish.plan.entries:
            if entry.withheld_by is not None:
                book.seen[f"withheld {entry.withheld_by}"] += 1
        for outcome in (*finish.began, *finish.outcomes):
            book.seen[f"{outcome.entry.do} {outcome.result}"] += 1
        if self._record.journal is not None:
            self._record.journal.record(self._report(opened, finish))
        return finish

    def _report(self, opened: Pass, finish: Finish) -> CycleReport:
        now = self._around.clock.now()
        return CycleReport(
            node=NODE,
            at=opened.snapshot.at,
            policy=opened.view.setting.policy,
            policy_loaded_at_s=0.0,
            enforcing=self._enforcement.enforcing,
            suspended=self._enforcement.suspended,
            snapshot=opened.snapshot,
            pods=opened.view.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=finish.outcomes,
            scan_s=opened.scan_s,
            duration_s=now.boottime_s - opened.snapshot.at.boottime_s,
        )

    def _check(self, opened: Pass, before: Ledger, asked: Now, dice: random.Random) -> None:
        # A deed that ends changes the ledger inside `open`: then it is not known by which one was decided.
        if any(state.under_way is not None for state in before.accounts.values()):
            return
        due = [entry for entry in opened.plan.entries if entry.due_in_s <= 0 and entry.do.is_force]
        if dice.random() < (0.3 if len(due) > 1 else 0.02):
            ignores_order(opened, before, asked, dice)
        if dice.random() < (0.1 if due else 0.01):
            ignores_the_mode(opened, before, asked)

    @property
    def _is_writable(self) -> bool:
        return self._record.journal is not None and self._record.journal.writable

    def _view(self) -> View:
        now = self._around.clock.now()
        enforcing = self._enforcement.enforcing
        return self._sources.view(self._policy, now, journal_writable=self._is_writable, enforcing=enforcing)

    def _objection(self, entry: PlanEntry) -> str | None:
        if not self._enforcement.enforcing:
            return "enforcement was withdrawn in the grace period"
        return self._sources.objection(entry, self._policy, self._around.clock.now())

    def end(self) -> None:
        """SIGTERM to the daemon."""
        with full_disk(self._around.disk_full):
            self.cycle.interrupt("the watchdog was stopped in the grace period", self._around.clock.now())
            if self._record.journal is not None:
                self._record.journal.close()

    def die(self) -> None:
        """SIGKILL to the daemon: what had not reached the disk never will."""
        with full_disk(full=True):
            if self._record.journal is not None:
                self._record.journal.close()
