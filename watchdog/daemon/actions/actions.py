"""All actions of the daemon: from an entry of a plan to its outcomes, and what the ledger remembers of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, assert_never

from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.brakes import Brake, BrakeMemory
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now
from watchdog.core.plan import ClosedCycle, Moment, Objection, OpenCycle, Outcome, PlanEntry, Result, accept, settle
from watchdog.core.policy import Do
from watchdog.daemon.actions.action import Action, ActionReading, ActionRecord, Judged, reaction_s
from watchdog.daemon.actions.clearance import Clearances
from watchdog.daemon.actions.evictions import Evictions, Evictor
from watchdog.daemon.actions.intentions import Intentions, UnfinishedActions
from watchdog.daemon.actions.kills import Kills, Processes
from watchdog.daemon.actions.last_look import LastLook, justify, retarget
from watchdog.journal.actions import UnfinishedAction


class Clients(Protocol):
    """What acts through the API: one for each action that does."""

    @property
    def evictor(self) -> Evictor:
        """What makes attempts to evict."""


def actions_by_do(
    processes: Processes,
    clients: Clients | None,
    record: ActionRecord,
    clock: Callable[[], Now],
    clearances: Clearances,
) -> dict[Do, Action]:
    """What does what a step says, for each step that enforces; a new one is added here. No `clients`: no API."""

    def action_of(do: Do) -> Action | None:
        match do:
            case Do.WARN:
                return None  # a warning is an outcome of the cycle
            case Do.KILL:
                return Kills(processes, record, clock, clearances)
            case Do.EVICT:
                return Evictions(None if clients is None else clients.evictor, record, clock, clearances)
            case _:
                assert_never(do)

    return {do: action for do in Do if (action := action_of(do)) is not None}


class Actions:
    """Acts on the entries of plans, and carries on with what it has begun from wake-up to wake-up."""

    def __init__(
        self,
        by_do: Mapping[Do, Action],
        record: ActionRecord,
        clock: Callable[[], Now],
        clearances: Clearances,
    ) -> None:
        self._by_do = by_do
        self._record = record
        self._clearances = clearances
        self._intentions = Intentions(by_do, record, clock)
        self._unfinished = UnfinishedActions()
        self._resolved: set[int] = set()  # the open cycle's intentions that have begun or were withdrawn
        self._began: list[Outcome] = []
        self._ended: list[Outcome] = []
        self.ledger = Ledger()

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
    def need_readings(self) -> bool:
        """Whether an action is in progress that readings continue; an eviction that is pending is not."""
        return any(action.needs_readings for action in self._by_do.values())

    @property
    def have_outcomes(self) -> bool:
        """Whether an action has begun or ended since the last cycle was closed, which the next one reports."""
        return bool(self._began or self._ended)

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of the next step of an action in progress; infinity if there is none."""
        return min(action.next_wake_s for action in self._by_do.values())

    def on_reading(self, reading: ActionReading) -> None:
        """Process a reading, before the plan is made from it: actions whose memory is free end."""
        if reading.may_hinder or self._clearances.are_needed:
            self._clearances.on_reading(reading)
        for action in self._by_do.values():
            action.on_reading(reading)
            self._collect(action)
        for ended in self._unfinished.take_ended(reading.still_listed, reading.now):
            reason = "the watchdog had ended before its memory was seen free"
            self._record.released(ended.number, reading.now, None, reason)
            if not self._unfinished.is_waiting(ended.account):
                self.ledger = self.ledger.note_ended(ended.account)

    def advance(self, now: Now, objection: Objection, *, policy_unsettled: bool = False) -> None:
        """Advance the actions in progress, also between cycles; one to which there is an objection is called off.

        `policy_unsettled`: no grace period ends with SIGKILL for the moment.
        """
        for action in self._by_do.values():
            action.advance(now, objection, policy_unsettled=policy_unsettled)
            self._collect(action)
        self._end(self._intentions.withdraw_late())

    def interrupt(self, now: Now) -> None:
        """Stop the actions in progress as they are, since the daemon ends."""
        self._intentions.interrupt(now)
        for action in self._by_do.values():
            action.interrupt(now)
            self._collect(action)

    def needs_last_look(self, entry: PlanEntry, inputs: Inputs) -> bool:
        """Whether the driver is queried again before an entry is acted on."""
        action = self._by_do.get(entry.do)
        is_possible = action is not None and action.lacks is None
        return is_possible and not entry.escalates and not inputs.policy_unsettled and inputs.acts_on(entry.assessment)

    @property
    def further_gpus(self) -> frozenset[str]:
        """The GPUs that a last look reads as well, whatever it is for."""
        return self._clearances.gpus

    def intend(self, opened: OpenCycle) -> OpenCycle:
        """Write down what the cycle is about to begin; its `intentions` show when that is on disk."""
        self._resolved.clear()
        self._release()
        begins = (
            entry
            for entry in opened.plan.taken
            if self.needs_last_look(entry, opened.inputs) and not entry.pending_eviction
        )
        return replace(opened, intentions=self._intentions.write(begins, opened.attribution))

    def drop(self, opened: OpenCycle, reason: str) -> None:
        """Withdraw the intentions of a cycle that have not begun, since it was not closed."""
        for entry in opened.plan.taken:
            number = self._intentions.claim(entry, opened, is_dropped=True).number
            if number is not None and number not in self._resolved:
                self._end([self._intentions.withdraw(entry, number, reason)])

    def act(
        self, opened: OpenCycle, last_look: LastLook | None, reassessed: Mapping[AccountKey, Assessment], now: Now
    ) -> ClosedCycle:
        """Act on the plan, whose intentions are on disk; without a last look, nothing is killed or evicted."""
        entries = list(opened.plan.entries)
        places = [place for place, entry in enumerate(entries) if entry.taken]
        # While the many processes of one kill are signalled, the last look ages for the others.
        for place in sorted(places, key=lambda place: self._takes_long(entries[place])):
            result = self._act_on(entries[place], reassessed, opened, last_look, now)
            if isinstance(result, Outcome):
                entries[place] = result.entry
                has_begun = result.number is not None and result.result is Result.DONE
                (self._began if has_begun else self._ended).append(result)
            elif isinstance(result, PlanEntry):
                entries[place] = result
            else:
                entries[place] = self._withhold(entries[place], result)
        self._release()
        for action in self._by_do.values():
            self._collect(action)
        plan = replace(opened.plan, entries=tuple(entries), ledger=self.ledger)
        began, self._began = tuple(self._began), []
        return ClosedCycle(plan=plan, began=began, outcomes=self.take_ended())

    def take_ended(self) -> tuple[Outcome, ...]:
        """The outcomes since the last call."""
        outcomes, self._ended = tuple(self._ended), []
        return outcomes

    def _act_on(
        self,
        entry: PlanEntry,
        reassessed: Mapping[AccountKey, Assessment],
        opened: OpenCycle,
        last_look: LastLook | None,
        now: Now,
    ) -> Outcome | Brake | PlanEntry | None:
        """Act on one entry: its outcome, the brake that withholds it, or the entry; None: the next cycle does it."""
        inputs = opened.inputs
        claimed = self._intentions.claim(entry, opened)
        if claimed.number is not None:
            entry = retarget(entry, reassessed.get(entry.account), inputs.policy, self.ledger, now)
            judged = justify(entry, reassessed, inputs, last_look, now)
            return self._begin(judged, entry, claimed.number, opened, last_look)
        if claimed.outcome is not None:
            self._settle(claimed.outcome)
        not_begun = claimed.outcome or claimed.withheld_by
        if not_begun is not None:
            return not_begun
        if not entry.do.enforces:
            return self._note_observed_or_done(entry, inputs, now)
        if inputs.acts_on(entry.assessment):
            judged = "" if entry.escalates else justify(entry, reassessed, inputs, last_look, now)
            return self._enforce_without_intention(entry, judged, opened, last_look, now)
        if inputs.maintenance:  # since the plan was made
            return Brake.MAINTENANCE
        self.ledger = self.ledger.note_observed(entry.assessment, now)
        return Outcome(entry=entry, result=Result.OBSERVED, at=now)

    @staticmethod
    def _note_observed_or_done(entry: PlanEntry, inputs: Inputs, now: Now) -> Outcome:
        """The outcome of an entry that enforces nothing."""
        if not inputs.acts_on(entry.assessment):
            return Outcome(entry=entry, result=Result.OBSERVED, at=now)
        return Outcome(entry=entry, result=Result.DONE, at=now, reaction_s=reaction_s(entry, now))

    def _enforce_without_intention(
        self, entry: PlanEntry, judged: Judged, opened: OpenCycle, last_look: LastLook | None, now: Now
    ) -> Outcome | Brake | PlanEntry | None:
        """Enforce an entry without an intention in this cycle: its action began earlier, or can't begin at all."""
        action = self._by_do[entry.do]
        if opened.inputs.maintenance:
            return Brake.MAINTENANCE
        if opened.inputs.policy_unsettled:
            return None
        if entry.escalates:
            self.ledger = self.ledger.note_escalated(entry.account, entry.definition.signature)
        if entry.escalates or entry.pending_eviction is not None:
            return action.carry_on(entry, judged, opened, last_look, now)
        if action.lacks is not None:
            failed = Outcome(entry=entry, result=Result.FAILED, at=now, reason=action.lacks)
            self._settle(failed)
            return failed
        return None  # enforcement was off when it was planned, or it waits for its turn, so nothing is on disk

    def _begin(
        self, judged: Judged, entry: PlanEntry, number: int, opened: OpenCycle, last_look: LastLook | None
    ) -> Outcome | PlanEntry:
        """Begin an action whose intention is on disk, if the last look still justifies it."""
        if last_look is None and opened.late:
            return self._withdraw(entry, number, opened.late, by_change=False)
        if last_look is None or not isinstance(judged, PlanEntry):
            reason = judged.reason if isinstance(judged, Outcome) else str(judged)
            return self._withdraw(entry, number, reason, by_change=last_look is not None)
        against = last_look.objection

        def objection(entry: PlanEntry, moment: Moment) -> str | None:
            why = against(entry, moment)
            self._resolved.add(number)  # after it a signal may have been sent, whatever fails
            return why

        action = self._by_do[entry.do]
        begun = action.begin(judged, number, opened, last_look, objection)
        self._resolved.add(number)
        if begun.progress is not None:
            # An action that has begun counts, whatever its result; so does one that is about to.
            self.ledger = self.ledger.note_begun(judged.assessment, begun.progress, begun.at)
        self.ledger = action.noted_in(self.ledger)
        if begun.outcome is None:
            return begun.entry
        if begun.outcome.result is Result.DONE:
            self._note_begun(action, begun.outcome)
        else:
            self._settle(begun.outcome)
        return begun.outcome

    def _withdraw(self, entry: PlanEntry, number: int, reason: str, *, by_change: bool) -> Outcome:
        self._resolved.add(number)
        outcome = self._intentions.withdraw(replace(entry, taken=False), number, reason, by_change=by_change)
        self._settle(outcome)
        return outcome

    def _withhold(self, entry: PlanEntry, brake: Brake | None) -> PlanEntry:
        if brake is None:
            return replace(entry, taken=False)
        ledger = self.ledger.note_withheld(entry.account, brake.value)
        is_new, self.ledger = ledger is not self.ledger, ledger
        return replace(entry, taken=False, withheld_by=brake, is_new=is_new)

    def _takes_long(self, entry: PlanEntry) -> bool:
        action = self._by_do.get(entry.do)
        return action is not None and action.takes_long(entry)

    def _release(self) -> None:
        for action in self._by_do.values():
            action.release()

    def _collect(self, action: Action) -> None:
        """Take what has happened to the actions of a kind."""
        progress = action.pop_progress()
        self.ledger = action.noted_in(self.ledger)
        for begun, under_way in progress.begun:
            if under_way is not None:
                self.ledger = accept(self.ledger, begun.entry, under_way)
            self._note_begun(action, begun)
            self._began.append(begun)
        for outcome in progress.ended:
            if outcome.result is Result.WITHDRAWN:
                self.ledger = self.ledger.note_not_begun(outcome.entry.assessment)
        self._end(progress.ended)

    def _note_begun(self, action: Action, begun: Outcome) -> None:
        for other in self._by_do.values():
            if other is not action:
                other.give_way(begun)

    def _end(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._settle(outcome)
            self._ended.append(outcome)

    def _settle(self, outcome: Outcome) -> None:
        self.ledger = settle(self.ledger, outcome)
