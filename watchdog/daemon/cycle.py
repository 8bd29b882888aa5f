"""One cycle from top to bottom: scan, attribute, assess, decide, act."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

from watchdog.core.assess import assess, hidden_pods
from watchdog.core.assessment import AccountKey, Assessment, Attribution, Inputs
from watchdog.core.attribute import PodIndexMemory, Unlisted, attribute
from watchdog.core.brakes import Brake, BrakeMemory
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now, Snapshot
from watchdog.core.mps import mps_gpus
from watchdog.core.plan import (
    ClosedCycle,
    OpenCycle,
    Outcome,
    PlanEntry,
    Result,
    accept,
    note_sent,
    settle,
)
from watchdog.core.policy import Do
from watchdog.core.remembered import MOST_READ, DeclarationMemory
from watchdog.core.residual import LargeResiduals
from watchdog.core.transfers import Transfers
from watchdog.daemon.drain import clients_seen
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.intentions import Intentions, UnfinishedActions
from watchdog.daemon.kill import ActionRecord, reaction_s
from watchdog.daemon.kills import Kills
from watchdog.daemon.last_look import LastLook, justify, objection_to_first_signal, reassessor, retarget, still_listed
from watchdog.journal.actions import UnfinishedAction
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner


class Cycle:
    """Runs cycles over one node, and remembers the ledger from one to the next.

    `most_read` limits what a cycle reads of pods, as `DeclarationMemory` does.
    """

    def __init__(
        self,
        scanner: Scanner,
        kills: Kills,
        evictions: Evictions,
        record: ActionRecord,
        clock: Callable[[], Now],
        *,
        most_read: int = MOST_READ,
    ) -> None:
        self._scanner = scanner
        self._kills = kills
        self._evictions = evictions
        self._record = record
        self._intentions = Intentions(kills, evictions, record, clock)
        self._unfinished = UnfinishedActions()
        self.unlisted = Unlisted()
        self._resolved_intentions: set[int] = set()  # the cycle's intentions that have begun or were withdrawn
        self._began: list[Outcome] = []
        self._ended: list[Outcome] = []
        self._index = PodIndexMemory()
        self._memory = DeclarationMemory(most_read)
        # Last looks concern a few pods, which displace no others.
        self._memory_of_looks = DeclarationMemory(most_read, self._memory)
        self.ledger = Ledger()
        self.transfers = Transfers()
        self.residuals = LargeResiduals()

    def take_over(self, unfinished: tuple[UnfinishedAction, ...], until_s: float, brakes: BrakeMemory) -> None:
        """Continue where an earlier daemon ended: its actions count, and unfinished ones are waited for.

        `until_s` is the CLOCK_BOOTTIME until which they are waited for at most.
        """
        self._unfinished.add(unfinished, until_s)
        for action in unfinished:
            # Its scope is not stored: at worst, other containers of the pod wait needlessly.
            under_way = UnderWay(step=None, victim=action.victim, whole_pod=True, until_s=until_s)
            self.ledger = self.ledger.note_under_way(action.account, under_way)
        self.ledger = replace(self.ledger, brakes=self.ledger.brakes.inheriting(self._intentions.without(brakes)))

    @property
    def is_acting(self) -> bool:
        """Whether an action is in progress; an eviction that is pending does not count unless it drains clients."""
        return len(self._kills) + len(self._evictions) > 0 or self._evictions.are_draining

    @property
    def has_outcomes(self) -> bool:
        """Whether an action has begun or ended since the last cycle was closed, which the next one reports."""
        return bool(self._began or self._ended)

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of the next step of an action in progress; infinity if there is none."""
        return min(self._kills.next_wake_s, self._evictions.next_wake_s)

    def open(self, reading: DriverReading, inputs: Inputs, asked: Now, now: Now) -> OpenCycle:
        """Turn a reading into a plan. `asked` is when the reading was requested: it is no older than that."""
        snapshot = self._scanner.snapshot(reading, asked)
        overdue, hidden = self.unlisted.overdue(asked, inputs.pods.synced), hidden_pods(snapshot, inputs.pods.pods)
        acting = frozenset(account for account, state in self.ledger.accounts.items() if state.has_action)
        inputs = replace(inputs, overdue=overdue, hidden=hidden, acting=acting)
        attribution = attribute(snapshot, inputs.pods.pods, self._index)
        attribution, snapshot = self._note_transfers(attribution, snapshot, inputs)
        assessments = assess(attribution, snapshot, inputs, self._memory)
        self.unlisted = self.unlisted.after(attribution, inputs.pods.pods, asked)
        self.residuals = self.residuals.after(snapshot, attribution)
        is_listed = still_listed(self._scanner, snapshot)
        clients_of = clients_seen(assessments, attribution, snapshot, inputs.policy, asked)
        self._kills.note_clients(clients_of)
        self._evictions.note_clients(clients_of)
        if len(self._kills):
            self._add_ended(self._kills.on_reading(is_listed, assessments, now))
            self.ledger = note_sent(self.ledger, self._kills.sent())
        self._evictions.on_reading(is_listed, attribution, assessments, inputs, now)
        self._apply_evictions()
        for action in self._unfinished.take_ended(is_listed, now):
            reason = "the watchdog had ended before its memory was seen free"
            self._record.released(action.number, now, None, reason)
            if not self._unfinished.is_waiting(action.account):
                self.ledger = self.ledger.note_ended(action.account)
        plan = decide(assessments, self.ledger, asked, inputs)
        self._update_breaker(plan.ledger, asked, is_trial=not inputs.enforcing)
        plan = replace(plan, ledger=self.ledger)
        # A pod's use on other GPUs affects its budget, so all its GPUs are read again.
        concerned = {entry.account.uid for entry in plan.taken if self._needs_last_look(entry, inputs)}
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
            only=frozenset(only | mps_gpus(attribution) if only else only),
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

    def advance(
        self,
        now: Now,
        objection: Callable[[PlanEntry], str | None],
        *,
        to_begun: Callable[[PlanEntry], str | None] | None = None,
        policy_unsettled: bool = False,
    ) -> None:
        """Advance the actions in progress, also between cycles; `objection` gives a reason to stop one.

        `to_begun` gives that for a kill that has begun; None: it is the same. `policy_unsettled`: no grace period ends
        with SIGKILL for the moment.
        """
        outcomes = self._kills.advance(now, objection, to_begun=to_begun, policy_unsettled=policy_unsettled)
        for begun in self._kills.take_begun():
            self._note_killing(begun)
            self._began.append(begun)
        for outcome in outcomes:
            if outcome.result is Result.WITHDRAWN:
                self.ledger = self.ledger.note_not_begun(outcome.entry.assessment)
        self._add_ended(outcomes)
        self._evictions.advance(now, objection)
        self._apply_evictions()
        self._add_ended(self._intentions.withdraw_late())

    def interrupt(self, reason: str, now: Now) -> None:
        """Stop the actions in progress as they are."""
        self._intentions.interrupt(now)
        self._add_ended(self._kills.interrupt(reason, now))
        self._evictions.interrupt(now)
        self._apply_evictions()

    def intend(self, opened: OpenCycle) -> OpenCycle:
        """Write down what the cycle is about to begin; its `intentions` show when that is on disk."""
        self._resolved_intentions.clear()
        self._kills.release()
        begins = (
            entry
            for entry in opened.plan.taken
            if self._needs_last_look(entry, opened.inputs) and not entry.pending_eviction
        )
        return replace(opened, intentions=self._intentions.write(begins, opened.attribution))

    def drop(self, opened: OpenCycle, reason: str) -> None:
        """Withdraw the intentions of a cycle that have not begun, since it was not closed."""
        for entry in opened.plan.taken:
            number = self._intentions.claim(entry, opened, is_dropped=True).number
            if number is not None and number not in self._resolved_intentions:
                self._add_ended([self._intentions.withdraw(entry, number, reason)])

    def close(self, opened: OpenCycle, last_look: LastLook | None, now: Now) -> ClosedCycle:
        """Act on the plan, whose intentions are on disk; without a last look, nothing is killed or evicted."""
        reading = None if last_look is None else last_look.reading
        reassess = reassessor(self._scanner, opened, reading, now, self._memory_of_looks, self.transfers)
        reassessed = reassess(opened.inputs)
        if last_look is not None:
            before, planned = opened.inputs, self.ledger
            objection = partial(
                objection_to_first_signal, reassess=reassess, before=before, last_look=last_look, ledger=planned
            )
            last_look = replace(last_look, objection=objection)
        entries = list(opened.plan.entries)
        places = [place for place, entry in enumerate(entries) if entry.taken]
        # While the many processes of one kill are signalled, the last look ages for the others.
        for place in sorted(places, key=lambda place: self._kills.takes_long(entries[place].account)):
            result = self._act(entries[place], reassessed, opened, last_look, now)
            if isinstance(result, Outcome):
                entries[place] = result.entry
                has_begun = result.number is not None and result.result is Result.DONE
                (self._began if has_begun else self._ended).append(result)
            elif isinstance(result, PlanEntry):
                entries[place] = result
            else:
                entries[place] = self._withhold(entries[place], result)
        self._kills.release()
        self._apply_evictions()
        plan = replace(opened.plan, entries=tuple(entries), ledger=self.ledger)
        began, self._began = tuple(self._began), []
        return ClosedCycle(plan=plan, began=began, outcomes=self.take_ended())

    def take_ended(self) -> tuple[Outcome, ...]:
        """The outcomes since the last call."""
        outcomes, self._ended = tuple(self._ended), []
        return outcomes

    def _act(
        self,
        entry: PlanEntry,
        reassessed: Mapping[AccountKey, Assessment],
        opened: OpenCycle,
        last_look: LastLook | None,
        now: Now,
    ) -> Outcome | Brake | PlanEntry | None:
        """Act on one entry: its outcome, the brake that withholds it, or the entry; None: the next cycle does it."""
        claimed = self._intentions.claim(entry, opened)
        if claimed.number is not None:
            policy = opened.inputs.policy
            entry = retarget(entry, reassessed.get(entry.account), policy, self.ledger, now)
            justified = justify(entry, reassessed, opened.inputs, last_look, now)
            return self._begin(justified, entry, claimed.number, opened, last_look)
        if claimed.outcome is not None:
            self._apply_outcome(claimed.outcome)
        not_begun = claimed.outcome or claimed.withheld_by
        if not_begun is not None:
            return not_begun
        if entry.do.enforces and opened.inputs.acts_on(entry.assessment):
            return self._enforce_without_intention(entry, reassessed, opened, last_look, now)
        if not opened.inputs.acts_on(entry.assessment):
            if entry.do.enforces and opened.inputs.maintenance:  # since the plan was made
                return Brake.MAINTENANCE
            self.ledger = self.ledger.note_observed(entry.assessment, now) if entry.do.enforces else self.ledger
            return Outcome(entry=entry, result=Result.OBSERVED, at=now)
        return Outcome(entry=entry, result=Result.DONE, at=now, reaction_s=reaction_s(entry, now))

    def _enforce_without_intention(
        self,
        entry: PlanEntry,
        reassessed: Mapping[AccountKey, Assessment],
        opened: OpenCycle,
        last_look: LastLook | None,
        now: Now,
    ) -> Outcome | Brake | PlanEntry | None:
        """Enforce an entry without an intention in this cycle: its action began earlier, or can't begin at all."""
        if opened.inputs.maintenance:
            return Brake.MAINTENANCE
        if opened.inputs.policy_unsettled:
            return None
        if entry.escalates:
            self._kills.escalate(entry, now)
            self.ledger = self.ledger.note_escalated(entry.account, entry.definition.signature)
            return None
        if entry.pending_eviction is not None:
            return self._retry(justify(entry, reassessed, opened.inputs, last_look, now), entry, opened, last_look, now)
        if not self._can_enforce(entry.do):
            failed = Outcome(entry=entry, result=Result.FAILED, at=now, reason="no API")
            self._apply_outcome(failed)
            return failed
        return None  # enforcement was off when it was planned, or it waits for its turn, so nothing is on disk

    def _can_enforce(self, do: Do) -> bool:
        match do:
            case Do.WARN:
                return False  # it enforces nothing
            case Do.KILL:
                return True
            case Do.EVICT:
                return self._evictions.are_possible
            case _:
                assert_never(do)

    def _needs_last_look(self, entry: PlanEntry, inputs: Inputs) -> bool:
        """Whether the driver is queried again before an entry is acted on."""
        is_possible = self._can_enforce(entry.do)
        return is_possible and not entry.escalates and not inputs.policy_unsettled and inputs.acts_on(entry.assessment)

    def _begin(
        self,
        justified: PlanEntry | Outcome | str,
        entry: PlanEntry,
        number: int,
        opened: OpenCycle,
        last_look: LastLook | None,
    ) -> Outcome | PlanEntry:
        """Begin an action whose intention is on disk, if the last look still justifies it."""
        if last_look is None and opened.late:
            return self._withdraw(entry, number, opened.late, by_change=False)
        if last_look is None or not isinstance(justified, PlanEntry):
            reason = justified.reason if isinstance(justified, Outcome) else str(justified)
            return self._withdraw(entry, number, reason, by_change=last_look is not None)
        match entry.do:
            case Do.KILL:
                return self._kill(justified, number, opened.inputs, last_look)
            case Do.EVICT:
                why = last_look.objection(justified)
                if why is not None:
                    return self._withdraw(entry, number, why, by_change=True)
                self._resolved_intentions.add(number)
                return self._evict(justified, number, opened, last_look)
            case Do.WARN:
                raise AssertionError("a warning has no intention")
            case _:
                assert_never(entry.do)

    def _retry(
        self,
        justified: PlanEntry | Outcome | str,
        entry: PlanEntry,
        opened: OpenCycle,
        last_look: LastLook | None,
        now: Now,
    ) -> PlanEntry | None:
        """Try a pending eviction again, if the last look still justifies it."""
        if isinstance(justified, Outcome):
            self._evictions.give_up(entry.account, justified.result, justified.reason, now)
        if last_look is None or not isinstance(justified, PlanEntry):
            return None
        self._evictions.try_again(justified, opened, last_look.fresh_until_s)
        pending = self._evictions.pending.get(entry.account)
        if pending is None:
            return None  # it was given up while the driver was queried again
        return replace(justified, taken=False, withheld_by=Brake.PENDING, pending_eviction=pending)

    def _evict(self, entry: PlanEntry, number: int, opened: OpenCycle, last_look: LastLook) -> PlanEntry:
        reason = f"rule {entry.rule.name} has begun to evict by another step meanwhile"
        self._evictions.give_up(entry.account, Result.INTERRUPTED, reason, last_look.at)
        self._evictions.begin(entry, number, opened, last_look.fresh_until_s)
        pending = self._evictions.pending[entry.account]
        # An action that has begun counts, whatever its result.
        self.ledger = self.ledger.note_begun(entry.assessment, pending, last_look.at)
        return replace(entry, taken=False, withheld_by=Brake.PENDING, pending_eviction=pending)

    def _kill(self, entry: PlanEntry, number: int, inputs: Inputs, last_look: LastLook) -> Outcome | PlanEntry:
        timeout_s = inputs.policy.release_timeout_s

        def objection(entry: PlanEntry) -> str | None:
            why = last_look.objection(entry)
            self._resolved_intentions.add(number)  # after it a signal may have been sent, whatever fails
            return why

        result = self._kills.begin(entry, number, timeout_s, objection, last_look.fresh_until_s)
        self._resolved_intentions.add(number)
        if result is None or result.result is not Result.WITHDRAWN:
            # An action that has begun counts, whatever its result; so does one that is about to.
            at = last_look.at if result is None else result.at
            self.ledger = self.ledger.note_begun(entry.assessment, entry.under_way(at, timeout_s), at)
            self.ledger = note_sent(self.ledger, self._kills.sent())
        if result is None:
            return replace(entry, taken=False)
        if result.result is Result.DONE:
            self._note_killing(result)
        else:
            self._apply_outcome(result)
        return result

    def _note_killing(self, begun: Outcome) -> None:
        """Note that a kill has begun: an eviction of the same account that has not been accepted is given up."""
        self.ledger = note_sent(self.ledger, self._kills.sent())
        if self._evictions.pending:
            reason = f"rule {begun.entry.rule.name} has begun to kill meanwhile"
            self._evictions.give_up(begun.entry.account, Result.INTERRUPTED, reason, begun.at)

    def _withdraw(self, entry: PlanEntry, number: int, reason: str, *, by_change: bool) -> Outcome:
        self._resolved_intentions.add(number)
        outcome = self._intentions.withdraw(replace(entry, taken=False), number, reason, by_change=by_change)
        self._apply_outcome(outcome)
        return outcome

    def _update_breaker(self, ledger: Ledger, now: Now, *, is_trial: bool) -> None:
        """Use the plan's ledger; that the breaker has opened or closed is written down before anything else."""
        before, after = self.ledger.brakes.opened, ledger.brakes.opened
        if after is not before and after is not None and is_trial:
            ledger = replace(ledger, brakes=replace(ledger.brakes, opened=replace(after, observed=True)))
        elif after is not before and not (before is not None and before.observed):
            self._record.breaker(now if after is not None else None)
        self.ledger = ledger

    def _withhold(self, entry: PlanEntry, brake: Brake | None) -> PlanEntry:
        if brake is None:
            return replace(entry, taken=False)
        ledger = self.ledger.note_withheld(entry.account, brake.value)
        is_new, self.ledger = ledger is not self.ledger, ledger
        return replace(entry, taken=False, withheld_by=brake, is_new=is_new)

    def _add_ended(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._apply_outcome(outcome)
            self._ended.append(outcome)

    def _apply_evictions(self) -> None:
        """Process the results of evictions."""
        accepted, outcomes = self._evictions.pop_outcomes()
        for outcome, under_way in accepted:
            self.ledger = accept(self.ledger, outcome.entry, under_way)
            self._began.append(outcome)
        self._add_ended(outcomes)
        self.ledger = self.ledger.note_pending_evictions(self._evictions.pending)

    def _apply_outcome(self, outcome: Outcome) -> None:
        self.ledger = settle(self.ledger, outcome)
