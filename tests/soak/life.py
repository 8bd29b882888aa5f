"""One life of the daemon: what `watchdog.daemon.main` does around the cycle, on the simulated node."""

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.report.build import record
from tests.soak.clock import QUANTUM_S
from tests.soak.cluster import KEYS, MOST_READ, Tenant
from tests.soak.driver import TrueReading, late
from tests.soak.fittings import BOTH, NODE, OWN, Record, SimSources, counted, full_disk
from tests.soak.kernel import Task
from tests.soak.laws import conserves, hidden_bytes, ignores_order, ignores_the_mode
from tests.soak.liveness import nobody_is_held_up
from tests.soak.table import SimulatedTable
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import Inputs
from watchdog.core.attribute import Unlisted
from watchdog.core.ledger import Ledger
from watchdog.core.left import LeftPods
from watchdog.core.listed import ListedResources
from watchdog.core.model import Now
from watchdog.core.plan import Moment, Objection, OpenCycle, Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.transfers import Transfers
from watchdog.daemon.actions.action import Action
from watchdog.daemon.actions.actions import Actions
from watchdog.daemon.actions.evictions import Evictions
from watchdog.daemon.actions.kills import Kills
from watchdog.daemon.actions.last_look import FRESH_S, LastLook, Next, PendingCycle, without_last_look
from watchdog.daemon.actions.mps import Drains
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.cycle_report import report_of
from watchdog.daemon.enforcement import Environment, Permission
from watchdog.daemon.sampler import TimedReading, reject_late
from watchdog.journal.actions import RestoredActions
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.keeper import restore
from watchdog.journal.lock import NodeLock
from watchdog.node.scan import Scanner
from watchdog.options import stop_file
from watchdog.report.changes import ChangeKind

if TYPE_CHECKING:
    from tests.soak.world import World

_ENVIRONMENT: Final = Environment(in_host_pid_namespace=True, pidfd_missing=None, own=OWN)


class WatchedKills(Kills):
    """Kills of which the book hears right before the first signal."""

    begins: Callable[[PlanEntry], None]

    def start(
        self,
        entry: PlanEntry,
        number: int,
        release_timeout_s: float,
        objection: Objection,
        fresh_until_s: float = math.inf,
    ) -> Outcome | None:
        has_begun = False

        def noted(asked: PlanEntry, moment: Moment) -> str | None:
            nonlocal has_begun
            why = objection(asked, moment)
            if why is None and not has_begun:
                has_begun = True
                self.begins(asked)
            return why

        return super().start(entry, number, release_timeout_s, noted, fresh_until_s)


class Life:
    """A daemon from its start to its end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._book = world.book
        self._asked_for = world.on_disk
        self._policy = deepcopy(self._asked_for)
        self._policy_file = PolicyFile(world.policy_file)
        self._policy_file.begin(world.clock.now())
        self._swaps = world.swaps
        self._driver = world.open_driver()
        self._table = SimulatedTable(world.kernel, self._tell, world.stir)
        self._scanner = Scanner(self._table)
        self._record = Record(world)
        self._lock = NodeLock(world.journal)
        self._kept: RestoredActions | None = None
        if world.control is not None:
            world.control.daemon_starts()
            world.control.tell = self._tell_drain
        self._drains = Drains(world.control)
        kills = WatchedKills(self._scanner, self._record, world.clock.now, self._drains)
        kills.begins = lambda entry: self._book.begins(entry, world.clock.now())
        self._sources = SimSources(world, LeftPods(self._record.left))
        self._listed = ListedResources()
        self._permission = Permission(world.journal, _ENVIRONMENT, self._policy_file, self._sources, lambda _: None)
        # It has no API: an eviction fails at once.
        evictions = Evictions(None, self._record, world.clock.now, self._drains)
        by_do: dict[Do, Action] = {Do.KILL: kills, Do.EVICT: evictions}
        self._actions = Actions(by_do, self._record, world.clock.now, self._drains)
        self.cycle = Cycle(self._scanner, self._actions, self._record, most_read=MOST_READ)
        self._book.policy(self._asked_for, world.half, starts=True)
        self._book.standing.answers = self._table.answers
        self._book.standing.recycled = world.kernel.recycled
        self._book.enforcement(enforcing=False)
        self._book.daemon_starts(world.clock.now())

    def _tell(self, task: Task, number: int) -> None:
        if number:
            self._world.stir("signal")
        self._book.signals.signalled(task, number, self._world.clock.now())
        if number and task.is_served_from_outside:
            self._book.seen["neighbours broke"] += bool(self._world.kernel.neighbours(task))

    def _tell_drain(self, task: Task) -> None:
        self._world.stir("signal")
        self._book.signals.drained(task, self._world.clock.now())

    @property
    def has_seen_swaps(self) -> bool:
        """Whether it goes by the last policy that came as a ConfigMap does."""
        return self._swaps == self._world.swaps

    def beat(self) -> None:
        """What the daemon looks for between cycles."""
        now = self._world.clock.now()
        self._policy_file.check(now)
        if not self.has_seen_swaps or self._policy_file.is_ready:
            self._swaps = self._world.swaps
            self._policy_file.load()
            self._go_by(self._world.on_disk)
        with full_disk(self._world.disk_full):
            self._tend(now)
        self._judge()

    def _go_by(self, policy: Policy) -> None:
        self._book.actions.before_reload()
        self._book.timers.reload(self._asked_for, policy)
        self._book.policy(policy, self._world.half, starts=False)
        before, self._asked_for, self._policy = self._policy, policy, deepcopy(policy)
        self.cycle.ledger = self.cycle.ledger.reloaded(before, self._policy)
        self._drains.configure(self._policy)

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
        journal = None
        try:
            journal = Journal.open(self._world.journal, self._policy.journal, NODE.name, kept=self._kept)
            found = restore(journal, self._lock, now, known)
            # As the keeper does, so that a daemon that has seen nothing leaves no blank journal, which counts as lost.
            journal.record_event(ChangeKind.STARTED.value, "the daemon has started", now)
        except JournalError:
            if journal is not None:
                journal.close()
            return
        until_s = now.boottime_s + self._policy.release_timeout_s
        self._record.journal = journal
        self._listed.restore(found.listed, now)
        journal.listed(self._listed.by_pod)
        self._actions.take_over(found.unfinished, until_s, found.brakes)
        self._sources.left.restore(found.left, now)
        self.cycle.transfers = self.cycle.transfers.inheriting(found.transfers, now)
        if self._kept is None:
            loss, self._world.loss = self._world.loss, ""
            if loss:
                self._book.forget(now, lost=loss != BOTH or found.brakes.lost_s is not None)
            unfinished = {each.number for each in found.unfinished}
            self._book.journal_opens(now, counted(self._world.journal), unfinished)
        else:
            self._book.brakes.reads(now)
        self._kept = journal.kept

    def _judge(self) -> None:
        now = self._world.clock.now()
        if self._world.writer is not None:
            self._book.policy_is_written(now)
        has_journal = self._record.journal is not None
        if self._permission.update(self._policy, now, has_lock=True, has_journal=has_journal):
            self.cycle.ledger = self.cycle.ledger.reset()
        is_stopped = stop_file(self._world.journal).exists() or self._book.standing.is_half
        self._book.enforcement(enforcing=self._policy.mode == "enforce" and has_journal and not is_stopped)

    def advance(self) -> None:
        """Let the actions in progress go on, and the disk take what it takes by now."""
        now = self._world.clock.now()
        with full_disk(self._world.disk_full):
            self._record.settle()
            self._actions.advance(now, self._objection, policy_unsettled=self._permission.policy_unsettled)
        self._book.actions.advanced(now)

    def look(self) -> None:
        """One cycle, from the first reading to the report."""
        world, book = self._world, self._book
        book.begun_now.clear()
        stirred = world.stirs
        asked = world.clock.now()
        truth, took_s = self._ask(None, world.slow_s)
        reading = truth.reading
        if took_s > self._policy.reset_after_s:
            reading = reject_late(reading, took_s)
            truth = late(truth, reading)
        self._judge()
        now = world.clock.now()
        view = self._inputs()
        book.actions.given(truth, asked)
        before, unlisted, transfers = self.cycle.ledger, self.cycle.unlisted, self.cycle.transfers
        with full_disk(world.disk_full):
            try:
                opened = self.cycle.open(reading, view, asked, now)
                self._sources.left.on_reading(opened.attribution, self._scanner.may_live, now)
            except BaseException:
                book.transfers.cut_off(self.cycle.transfers.begun)
                raise
            if not opened.snapshot.blind:
                self._drains.refresh(now)
        for gpu in reading.gpus:
            if gpu.listed:
                lines = (line for line in truth.lines if line.gpu == gpu.uuid)
                world.kernel.listed[gpu.uuid] = {line.task.key for line in lines if line.task is not None}
        world.kernel.unlooked.clear()
        hidden = hidden_bytes(opened, truth)
        is_written = self.has_journal and self._is_writable and not world.disk_full
        book.transfers.read(
            *(truth.lines, hidden, book.standing.tenants, asked),
            dark=truth.dark | (world.cards.sizes.keys() - {gpu.uuid for gpu in reading.gpus}),
            written=is_written,
            has_journal=self.has_journal,
        )
        truth = conserves(opened, truth, world.kernel.recycled, hidden)
        book.read(truth, asked, opened.inputs.overdue, opened.inputs.unread, written=self._is_writable)
        self._check(opened, before, unlisted, asked, transfers)
        with full_disk(world.disk_full):
            waiting = PendingCycle(opened=self._actions.intend(opened), since=now)
        second = self._last_look(waiting)
        with full_disk(world.disk_full):
            self._close(waiting, second)
        world.kernel.unlooked.clear()
        if (second is not None or not opened.only) and world.stirs == stirred:
            nobody_is_held_up(book, opened.plan, world.clock.now(), written=self._is_writable)

    def _ask(self, only: frozenset[str] | None, slow_s: float) -> tuple[TrueReading, float]:
        began_s = self._world.clock.boottime_s
        truth = self._driver.read(only)
        self._world.pass_by(max(slow_s, QUANTUM_S))
        return truth, self._world.clock.boottime_s - began_s

    def _last_look(self, waiting: PendingCycle) -> TrueReading | None:
        """Wait for the disk, then ask the driver once more, as the daemon does; what it truly said in time."""
        world, book = self._world, self._book
        truth: TrueReading | None = None
        while (following := waiting.next(world.clock.now(), maintenance=False)) is not Next.CLOSE:
            if following is Next.WAIT:
                world.pass_by(QUANTUM_S)
                self.advance()
            else:
                world.stir("between the looks")
                waiting.on_request()
                asked = world.clock.now()
                truth, took_s = self._ask(waiting.opened.only, world.second_slow_s)
                world.second_slow_s *= world.dice.random() < 0.7
                waiting.on_reading(
                    TimedReading(reading=truth.reading, asked=asked, took_s=took_s, only=waiting.opened.only)
                )
                book.seen["last look"] += 1
                book.seen["last look too late"] += waiting.last_reading is None
            if world.dice.random() < 0.2:
                self.beat()
                self.advance()
        reading = book.standing.reading
        if reading is not None and waiting.last_reading is not None:
            reading.second, reading.only = truth, waiting.opened.only
            reading.looked_s = waiting.last_reading.asked.boottime_s
        return truth if waiting.last_reading is not None else None

    def _close(self, waiting: PendingCycle, second: TrueReading | None) -> None:
        world, book = self._world, self._book
        self._judge()
        now = world.clock.now()
        opened = waiting.opened
        if opened.only:
            opened = opened.with_inputs(self._inputs())
        if waiting.late_s is not None:
            opened = without_last_look(opened, waiting.late_s)
        last: LastLook | None = None
        if second is not None and waiting.last_reading is not None:
            asked = waiting.last_reading.asked
            objection = partial(self._objection_to_first_signal, asked.boottime_s + FRESH_S)
            last = LastLook(reading=second.reading, asked=asked, at=now, objection=objection, inputs=self._inputs)
        finish = self.cycle.close(opened, last, now)
        for outcome in finish.outcomes:
            if outcome.number is None:
                self._note_not_written(outcome)
        for entry in finish.plan.entries:
            if entry.withheld_by is not None:
                book.seen[f"withheld {entry.withheld_by}"] += 1
        for outcome in (*finish.began, *finish.outcomes):
            book.seen[f"{outcome.entry.do} {outcome.result}"] += 1
        if self._record.journal is not None:
            ended, enforcement = world.clock.now(), self._permission.enforcement
            report = report_of(opened, finish, enforcement, policy_loaded_s=0.0, maintenance=None, ended=ended)
            record(self._record.journal, report)

    def _note_not_written(self, outcome: Outcome) -> None:
        """An action has ended before the daemon wrote anything down."""
        book, account, pod = self._book, outcome.entry.account, outcome.entry.assessment.pod
        if outcome.result in (Result.FAILED, Result.GONE):
            book.brakes.ends_unused((pod.namespace, pod.workload.kind, pod.workload.name))
        if outcome.result is Result.FAILED:
            book.timers.note_failed((account.uid, account.container, account.gpu))

    def _check(self, opened: OpenCycle, before: Ledger, unlisted: Unlisted, asked: Now, transfers: Transfers) -> None:
        # An action that ends changes the ledger inside `open`: then it is not known by which one was decided.
        if any(state.under_way is not None for state in before.accounts.values()):
            return
        dice = self._world.dice
        due = [entry for entry in opened.plan.entries if entry.due_in_s <= 0 and entry.do.enforces]
        # Pods that it has not read yet would be read at once by a cycle that is repeated from the beginning.
        has_read_all = not opened.inputs.unread
        if dice.random() < (0.3 if len(due) > 1 else 0.02) and has_read_all:
            ignores_order(opened, before, asked, self.cycle.transfers, dice)
        if dice.random() < (0.1 if due else 0.01) and has_read_all:
            ignores_the_mode(opened, before, unlisted, asked, transfers)

    @property
    def has_journal(self) -> bool:
        return self._record.journal is not None

    def has_noted(self, tenants: Iterable[Tenant]) -> bool:
        """Whether it has written down what the node listed for all of these."""
        asked = {
            t.uid
            for t in tenants
            if t.kind in KEYS and t.kind != "note" and any(box.declares is not None for box in t.boxes)
        }
        return self._is_writable and asked <= self._listed.by_pod.keys()

    @property
    def _is_writable(self) -> bool:
        return self._record.journal is not None and self._record.journal.writable and not self._record.hangs

    def _inputs(self) -> Inputs:
        now = self._world.clock.now()
        inputs = self._sources.inputs(
            self._policy,
            now,
            journal_writable=self._is_writable,
            enforcing=self._permission.decides,
            policy_unsettled=self._permission.policy_unsettled,
        )
        changes = self._listed.update(inputs.pods.pods, inputs.node, self._policy, now)
        if changes and self._record.journal is not None:
            self._record.journal.listed(changes)
        return replace(inputs, drains=self._drains.known, listed=self._listed.by_pod)

    def _objection_to_first_signal(self, fresh_until_s: float, entry: PlanEntry, moment: Moment) -> str | None:
        if self._world.clock.boottime_s > fresh_until_s:
            return "the last look was already too old"
        return self._objection(entry, moment)

    def _objection(self, entry: PlanEntry, moment: Moment) -> str | None:
        return self._permission.objection(entry, self._policy, self._world.clock.now(), moment)

    def end(self) -> None:
        with full_disk(self._world.disk_full):
            self._actions.interrupt(self._world.clock.now())
            if self._record.journal is not None:
                self._record.journal.close()
            self._lock.release()

    def die(self) -> None:
        """SIGKILL to the daemon: what had not reached the disk never will."""
        with full_disk(full=True):
            if self._record.journal is not None:
                self._record.journal.close()
            self._lock.release()
