"""One cycle from top to bottom: scan, attribute, assess, decide, and what comes right before it acts."""

from dataclasses import replace
from functools import partial

from watchdog.core.assess import assess, hidden_pods
from watchdog.core.assessment import Attribution, Inputs
from watchdog.core.attribute import PodIndexMemory, Unlisted, attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now, Snapshot
from watchdog.core.plan import ClosedCycle, OpenCycle
from watchdog.core.remembered import MOST_READ, DeclarationMemory
from watchdog.core.residual import LargeResiduals
from watchdog.core.transfers import Transfers
from watchdog.daemon.actions.action import ActionReading, ActionRecord
from watchdog.daemon.actions.actions import Actions
from watchdog.daemon.actions.last_look import LastLook, objection_to_first_signal, reassessor, still_listed
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner


class Cycle:
    """Runs cycles over one node, and remembers the ledger from one to the next.

    `most_read` limits what a cycle reads of pods, as `DeclarationMemory` does.
    """

    def __init__(
        self,
        scanner: Scanner,
        actions: Actions,
        record: ActionRecord,
        *,
        most_read: int = MOST_READ,
    ) -> None:
        self._scanner = scanner
        self.actions = actions
        self._record = record
        self.unlisted = Unlisted()
        self._index = PodIndexMemory()
        self._memory = DeclarationMemory(most_read)
        # Last looks concern a few pods, which displace no others.
        self._memory_of_looks = DeclarationMemory(most_read, self._memory)
        self.transfers = Transfers()
        self.residuals = LargeResiduals()

    @property
    def ledger(self) -> Ledger:
        """What is remembered from one cycle to the next."""
        return self.actions.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self.actions.ledger = ledger

    def open(self, reading: DriverReading, inputs: Inputs, asked: Now, now: Now) -> OpenCycle:
        """Turn a reading into a plan. `asked` is when the reading was requested: it is no older than that."""
        snapshot = self._scanner.snapshot(reading, asked)
        overdue, hidden = self.unlisted.overdue(asked, inputs.pods.synced), hidden_pods(snapshot, inputs.pods.pods)
        acting = frozenset(account for account, state in self.ledger.accounts.items() if state.has_action)
        ending = frozenset(key for key in acting if self.ledger.accounts[key].under_way is not None)
        inputs = replace(inputs, overdue=overdue, hidden=hidden, acting=acting, ending=ending)
        attribution = attribute(snapshot, inputs.pods.pods, self._index)
        attribution, snapshot = self._note_transfers(attribution, snapshot, inputs)
        assessments = assess(attribution, snapshot, inputs, self._memory)
        inputs = replace(inputs, unread=self._memory.unread)
        self.unlisted = self.unlisted.after(attribution, inputs.pods.pods, asked)
        self.residuals = self.residuals.after(snapshot, attribution)
        reading_of_actions = ActionReading(
            snapshot=snapshot,
            attribution=attribution,
            assessments=assessments,
            inputs=inputs,
            still_listed=still_listed(self._scanner, snapshot),
            asked=asked,
            now=now,
        )
        self.actions.on_reading(reading_of_actions)
        plan = decide(assessments, self.ledger, asked, inputs)
        self._update_breaker(plan.ledger, asked, is_trial=not inputs.enforcing)
        plan = replace(plan, ledger=self.ledger)
        # A pod's use on other GPUs affects its budget, so all its GPUs are read again.
        concerned = {entry.account.uid for entry in plan.taken if self.actions.needs_last_look(entry, inputs)}
        only = {use.gpu for use in attribution.attributed if use.uid in concerned}
        return OpenCycle(
            inputs=inputs,
            snapshot=snapshot,
            attribution=attribution,
            assessments=assessments,
            plan=plan,
            scan_s=now.boottime_s - asked.boottime_s,
            transfers=self.transfers.begun,
            residual_gaps=self.residuals.gaps(asked),
            only=frozenset(only | self.actions.further_gpus if only else only),
        )

    def _note_transfers(
        self, attribution: Attribution, snapshot: Snapshot, inputs: Inputs
    ) -> tuple[Attribution, Snapshot]:
        """Find memory that has changed hands, which counts as unknown for some time, with a gap."""
        self.transfers = self.transfers.after(attribution, snapshot, inputs)
        if self.transfers.begun:
            self._record.transfers(self.transfers.windows)
        gaps = self.transfers.gaps(snapshot.at)
        if not gaps:
            return attribution, snapshot
        hidden = self.transfers.hide(attribution, snapshot, inputs)
        return hidden, replace(snapshot, gaps=(*snapshot.gaps, *gaps))

    def close(self, opened: OpenCycle, last_look: LastLook | None, now: Now) -> ClosedCycle:
        """Act on the plan, whose intentions are on disk; without a last look, nothing is killed or evicted."""
        reassess = reassessor(self._scanner, opened, last_look, now, self._memory_of_looks, self.transfers)
        if last_look is not None:
            objection = partial(
                objection_to_first_signal,
                reassess=reassess,
                before=opened.inputs,
                last_look=last_look,
                ledger=self.ledger,
            )
            last_look = replace(last_look, objection=objection)
        return self.actions.act(opened, last_look, reassess(opened.inputs), now)

    def _update_breaker(self, ledger: Ledger, now: Now, *, is_trial: bool) -> None:
        """Use the plan's ledger; that the breaker has opened or closed is written down before anything else."""
        before, after = self.ledger.brakes.opened, ledger.brakes.opened
        if after is not before and after is not None and is_trial:
            ledger = replace(ledger, brakes=replace(ledger.brakes, opened=replace(after, observed=True)))
        elif after is not before and not (before is not None and before.observed):
            self._record.breaker(now if after is not None else None)
        self.ledger = ledger
