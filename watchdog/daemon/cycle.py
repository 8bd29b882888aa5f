"""One cycle from top to bottom: scan, attribute, assess, decide, act; and what an answer that came late is worth."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

from watchdog.core.assess import hidden_pods
from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.attribute import Unlisted
from watchdog.core.brakes import Brake, BrakeMemory
from watchdog.core.decide import decide
from watchdog.core.errors import Problem
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.mps import mps_gpus
from watchdog.core.plan import Finish, OpenCycle, Outcome, PlanEntry, Result, View, accept, note_sent, settle
from watchdog.core.policy import Do
from watchdog.core.steady import Assessor
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.intentions import Inherited, InheritedActions, Intentions
from watchdog.daemon.kill import reaction_s
from watchdog.daemon.kills import Kills
from watchdog.daemon.second_look import LastLook, justify, look_again, refuse, retarget, still_listed
from watchdog.node.driver import DriverReading
from watchdog.node.scan import Scanner


class Cycle:
    """Runs passes over one node, and remembers the ledger from one to the next."""

    def __init__(self, scanner: Scanner, actions: Kills, evictions: Evictions) -> None:
        self._scanner = scanner
        self._assessor = Assessor()
        self._actions = actions
        self._evictions = evictions
        self._intentions = Intentions(actions, evictions)
        self._leftovers = InheritedActions()
        self.unlisted = Unlisted()
        self._settled: set[int] = set()  # of what the cycle has intended: what has begun or was withdrawn
        self._began: list[Outcome] = []
        self._ended: list[Outcome] = []
        self.ledger = Ledger()

    def take_over(self, leftovers: tuple[Inherited, ...], brakes: BrakeMemory) -> None:
        """Go on where an earlier daemon ended: its actions without an end are waited for, and all of them count."""
        self._leftovers.add(leftovers)
        for each in leftovers:
            # Which scope it had is not kept: that all of the pod waits is one wait too many at most.
            under_way = UnderWay(step=None, victim=each.victim, whole_pod=True, until_s=each.until_s)
            self.ledger = self.ledger.note_under_way(each.account, under_way)
        self.ledger = replace(self.ledger, brakes=self.ledger.brakes.inheriting(self._intentions.without(brakes)))

    @property
    def is_acting(self) -> bool:
        """Whether an action is in progress; an eviction that has not come about is none."""
        return len(self._actions) + len(self._evictions) > 0

    @property
    def next_wake_s(self) -> float:
        """Boot time at which an action in progress wants to go on; infinity where none does."""
        return min(self._actions.next_wake_s, self._evictions.next_wake_s)

    def open(self, reading: DriverReading, view: View, asked: Now, now: Now) -> OpenCycle:
        """Take a reading as far as the plan. What it says held at the moment when it was `asked` for, or later."""
        snapshot = self._scanner.snapshot(reading, asked)
        overdue = self.unlisted.overdue(asked, view.pods.synced)
        setting = replace(view.setting, overdue=overdue)
        attribution, assessments = self._assessor.assess(snapshot, view.pods.pods, setting)
        hidden = hidden_pods(snapshot, view.pods.pods)
        view = replace(view, conditions=replace(view.conditions, hidden=hidden))
        self.unlisted = self.unlisted.after(attribution, view.pods.pods, asked)
        is_listed = still_listed(self._scanner, snapshot)
        if len(self._actions):
            self._note(self._actions.see(is_listed, assessments, now))
            self.ledger = note_sent(self.ledger, self._actions.sent())
        self._evictions.see(is_listed, attribution, assessments, view, now)
        self._absorb()
        for leftover in self._leftovers.see(is_listed, now):
            self._actions.note_released(leftover.number, now)
            if not self._leftovers.is_waiting(leftover.account):
                self.ledger = self.ledger.note_ended(leftover.account)
        plan = decide(assessments, view.setting.policy, self.ledger, asked, view.conditions)
        self._turn_breaker(plan.ledger, asked, is_trial=not view.enforcing)
        plan = replace(plan, ledger=self.ledger)
        # What a pod uses elsewhere has a part in its budget: all its GPUs are looked at again.
        concerned = {entry.account.uid for entry in plan.actions if self._needs_look(entry, view)}
        only = {use.gpu for use in attribution.attributed if use.uid in concerned}
        return OpenCycle(
            view=view,
            snapshot=snapshot,
            attribution=attribution,
            assessments=assessments,
            plan=plan,
            scan_s=now.boottime_s - asked.boottime_s,
            only=frozenset(only | mps_gpus(attribution) if only else only),
            overdue=overdue,
        )

    def advance(self, now: Now, objection: Callable[[PlanEntry], str | None], *, is_held: bool = False) -> None:
        """Let the actions in progress go on, between cycles too; `objection` says what speaks against one in its grace.

        `is_held`: no SIGKILL ends a grace period for the moment.
        """
        self._note(self._actions.advance(now, objection, is_held=is_held))
        self._evictions.advance(now, objection)
        self._absorb()
        self._note(self._intentions.withdraw_late())

    def interrupt(self, reason: str, now: Now) -> None:
        """Stop the actions in progress where they are."""
        self._intentions.interrupt()
        self._note(self._actions.interrupt(reason, now))
        self._evictions.interrupt(now)
        self._absorb()

    def intend(self, opened: OpenCycle) -> OpenCycle:
        """Have what the cycle is about to begin written down; that it is on disk shows in its `intentions` later."""
        self._settled.clear()
        begins = (entry for entry in opened.plan.actions if self._needs_look(entry, opened.view) and not entry.trying)
        return replace(opened, intentions=self._intentions.write(begins, opened.attribution))

    def drop(self, opened: OpenCycle, reason: str) -> None:
        """Give up what a cycle has intended and not come to: it is not closed, or not to its end."""
        for entry in opened.plan.actions:
            number = self._intentions.number(entry, opened)
            if isinstance(number, int) and number not in self._settled:
                self._note([self._intentions.withdraw(entry, number, reason)])

    def close(self, opened: OpenCycle, look: LastLook | None, now: Now) -> Finish:
        """Act on the plan, of which the intentions are on disk; without a last look nobody is killed or evicted."""
        stand = look_again(self._scanner, opened, None if look is None else look.reading, now)
        renewed = stand(opened.view)
        if look is not None:
            look = replace(look, refusal=partial(refuse, stand=stand, before=opened.view, look=look))
        entries: list[PlanEntry] = []
        for entry in opened.plan.entries:
            if not entry.taken:
                entries.append(entry)
                continue
            result = self._act(entry, renewed, opened, look, now)
            if isinstance(result, Outcome):
                entries.append(result.entry)
                has_begun = result.number is not None and result.result is Result.DONE
                (self._began if has_begun else self._ended).append(result)
            elif isinstance(result, PlanEntry):
                entries.append(result)
            else:
                entries.append(self._hold(entry, result))
        self._absorb()
        plan = replace(opened.plan, entries=tuple(entries), ledger=self.ledger)
        began, self._began = tuple(self._began), []
        return Finish(plan=plan, began=began, outcomes=self.take_ended())

    def take_ended(self) -> tuple[Outcome, ...]:
        """What has ended since it was last asked for."""
        outcomes, self._ended = tuple(self._ended), []
        return outcomes

    def _act(
        self,
        entry: PlanEntry,
        renewed: Mapping[AccountKey, Assessment],
        opened: OpenCycle,
        look: LastLook | None,
        now: Now,
    ) -> Outcome | Brake | PlanEntry | None:
        """Do what one entry says: how it ended, what holds it, the entry as it is; None: the next cycle will see."""
        number = self._intentions.number(entry, opened)
        if isinstance(number, int):
            policy = opened.view.setting.policy
            entry = retarget(entry, renewed.get(entry.account), policy, self.ledger, now)
            justified = justify(entry, renewed, opened.view, look, now)
            return self._begin(justified, entry, number, opened, look)
        if isinstance(number, Outcome):
            self._settle(number)
        if number is not None:
            return number
        if entry.do.is_force and opened.view.acts_on(entry):
            return self._go_on(entry, renewed, opened, look, now)
        if not opened.view.acts_on(entry):
            if entry.do.is_force and opened.view.conditions.maintenance:  # since the plan was made
                return Brake.MAINTENANCE
            self.ledger = self.ledger.note_observed(entry.assessment, now) if entry.do.is_force else self.ledger
            return Outcome(entry=entry, result=Result.OBSERVED, at=now)
        return Outcome(entry=entry, result=Result.DONE, at=now, reaction_s=reaction_s(entry, now))

    def _go_on(
        self,
        entry: PlanEntry,
        renewed: Mapping[AccountKey, Assessment],
        opened: OpenCycle,
        look: LastLook | None,
        now: Now,
    ) -> Outcome | Brake | PlanEntry | None:
        """Enforcement that needs no intention: it has begun earlier, or can't begin at all."""
        if opened.view.conditions.maintenance:
            return Brake.MAINTENANCE
        if opened.view.is_held:
            return None
        if entry.escalates:
            self._actions.escalate(entry, now)
            self.ledger = self.ledger.note_escalated(entry.account, entry.definition.signature)
            return None
        if entry.trying is not None:
            return self._retry(justify(entry, renewed, opened.view, look, now), entry, opened, look, now)
        if entry.do is Do.EVICT and not self._evictions.are_possible:
            failed = Outcome(entry=entry, result=Result.FAILED, at=now, reason="no API")
            self._settle(failed)
            return failed
        return None  # it was planned while nothing could be done, so nothing is on disk

    def _needs_look(self, entry: PlanEntry, view: View) -> bool:
        """Whether the driver is asked again before an entry is acted on."""
        is_possible = entry.do.is_force and (entry.do is not Do.EVICT or self._evictions.are_possible)
        return is_possible and not entry.escalates and not view.is_held and view.acts_on(entry)

    def _begin(
        self, again: PlanEntry | Outcome | str, entry: PlanEntry, number: int, opened: OpenCycle, look: LastLook | None
    ) -> Outcome | PlanEntry:
        """Begin what is on disk, if the last look still bears it out."""
        if look is None or not isinstance(again, PlanEntry):
            return self._withdraw(entry, number, again.reason if isinstance(again, Outcome) else str(again))
        match entry.do:
            case Do.KILL:
                self._settled.add(number)
                return self._kill(again, number, opened.view, look)
            case Do.EVICT:
                why = look.refusal(again)
                if why is not None:
                    return self._withdraw(entry, number, why)
                self._settled.add(number)
                return self._evict(again, number, opened, look)
            case Do.WARN:
                raise AssertionError("nothing is written down of a warning")
            case _:
                assert_never(entry.do)

    def _retry(
        self, again: PlanEntry | Outcome | str, entry: PlanEntry, opened: OpenCycle, look: LastLook | None, now: Now
    ) -> PlanEntry | None:
        """Try an eviction again that has begun, if the last look still bears it out."""
        if isinstance(again, Outcome):
            self._evictions.give_up(entry.account, again.result, again.reason, now)
        if look is None or not isinstance(again, PlanEntry):
            return None
        self._evictions.try_again(again, opened.attribution, opened.view, look.fresh_until_s)
        trying = self._evictions.trying.get(entry.account)
        # None: it was given up while the driver was asked again.
        return None if trying is None else replace(again, taken=False, withheld_by=Brake.PENDING, trying=trying)

    def _evict(self, entry: PlanEntry, number: int, opened: OpenCycle, look: LastLook) -> PlanEntry:
        reason = f"rule {entry.rule.name} has begun to evict by another step meanwhile"
        self._evictions.give_up(entry.account, Result.INTERRUPTED, reason, look.at)
        self._evictions.begin(entry, number, opened.attribution, opened.view, look.fresh_until_s)
        trying = self._evictions.trying[entry.account]
        # What has been begun counts, whatever comes of it.
        self.ledger = self.ledger.note_begun(entry.assessment, trying, look.at)
        return replace(entry, taken=False, withheld_by=Brake.PENDING, trying=trying)

    def _kill(self, entry: PlanEntry, number: int, view: View, look: LastLook) -> Outcome:
        timeout_s = view.setting.policy.release_timeout_s
        result = self._actions.begin(entry, number, timeout_s, look.refusal)
        if result.result is not Result.WITHDRAWN:  # what has been begun counts, whatever came of it
            under_way = _under_way(entry, timeout_s, result.at)
            self.ledger = self.ledger.note_begun(entry.assessment, under_way, result.at)
            self.ledger = note_sent(self.ledger, self._actions.sent())
        if result.result is not Result.DONE:
            self._settle(result)
        elif self._evictions.trying:
            reason = f"rule {entry.rule.name} has begun to kill meanwhile"
            self._evictions.give_up(entry.account, Result.INTERRUPTED, reason, result.at)
        return result

    def _withdraw(self, entry: PlanEntry, number: int, reason: str) -> Outcome:
        self._settled.add(number)
        outcome = self._intentions.withdraw(replace(entry, taken=False), number, reason)
        self._settle(outcome)
        return outcome

    def _turn_breaker(self, ledger: Ledger, now: Now, *, is_trial: bool) -> None:
        """Take the plan's ledger; a breaker that has turned is written down before anything else is done."""
        before, after = self.ledger.brakes.opened, ledger.brakes.opened
        if after is not before and after is not None and is_trial:
            ledger = replace(ledger, brakes=replace(ledger.brakes, opened=replace(after, observed=True)))
        elif after is not before and not (before is not None and before.observed):
            self._actions.note_breaker(now if after is not None else None)
        self.ledger = ledger

    def _hold(self, entry: PlanEntry, brake: Brake | None) -> PlanEntry:
        if brake is None:
            return replace(entry, taken=False)
        news = self.ledger.note_reported(entry.account, brake.value)
        is_news, self.ledger = news is not self.ledger, news
        return replace(entry, taken=False, withheld_by=brake, news=is_news)

    def _note(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._settle(outcome)
            self._ended.append(outcome)

    def _absorb(self) -> None:
        """Take over what has come of evictions."""
        progress = self._evictions.take()
        for each in progress.accepted:
            self.ledger = accept(self.ledger, each.outcome.entry, each.under_way)
            self._began.append(each.outcome)
        self._note(progress.outcomes)
        self.ledger = self.ledger.note_tried(self._evictions.trying)

    def _settle(self, outcome: Outcome) -> None:
        self.ledger = settle(self.ledger, outcome)


def _under_way(entry: PlanEntry, release_timeout_s: float, now: Now) -> UnderWay:
    step = entry.definition
    return UnderWay(
        step=step.signature,
        victim=entry.victim,
        whole_pod=entry.hits_whole_pod,
        cards=entry.cards,
        until_s=now.boottime_s + step.grace_s + release_timeout_s,
    )


def without_last_look(opened: OpenCycle, took_s: float) -> OpenCycle:
    """The cycle of which the last look took too long: nothing follows from it, and that is reported."""
    why = Problem(
        f"the driver took {took_s:.1f} s for the look right before the first signal, which may be 2 s old at most",
        "nothing was signalled, and the next pass looks again",
    )
    gap = Gap(reason=GapReason.NVML_TIMEOUT, what="NVML last look", problem=why)
    return replace(opened, snapshot=replace(opened.snapshot, gaps=(*opened.snapshot.gaps, gap)))


def outdated(reading: DriverReading, took_s: float) -> DriverReading:
    """What a reading that took too long is worth: nothing is known, and why."""
    why = Problem(
        f"the driver took {took_s:.0f} s to answer", "what it said is too old to go by, and the next pass looks again"
    )
    gap = Gap(reason=GapReason.NVML_TIMEOUT, what="NVML", problem=why)
    gpus = tuple(replace(gpu, listed=False) for gpu in reading.gpus)
    uses = tuple(replace(use, used=None) for use in reading.uses)
    return replace(reading, gpus=gpus, uses=uses, gaps=(*reading.gaps, gap), blind=True)
