"""One pass from top to bottom: scan, attribute, assess, decide, act.

A pass with force in it has a pause in the middle: the driver is asked once more for the GPUs concerned, and the loop
waits for that answer as it waits for the first one, free to let other deeds go on.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from watchdog.act.deed import reaction_s
from watchdog.act.evictions import Evictions
from watchdog.act.kills import Deeds
from watchdog.core.brakes import Brake, BrakeMemory
from watchdog.core.decide import decide
from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now
from watchdog.core.passes import Finish, Pass, View
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.settling import accept, settle
from watchdog.core.steady import Assessor
from watchdog.cycle.leftovers import Leftover, Leftovers
from watchdog.cycle.second_look import look_again, renew, still_listed
from watchdog.node.driver import DriverReading
from watchdog.node.scan import Scanner

__all__ = ["Cycle", "Finish", "Pass", "View"]


class Cycle:
    """Runs passes over one node, and remembers the ledger from one to the next."""

    def __init__(self, scanner: Scanner, deeds: Deeds, evictions: Evictions) -> None:
        self._scanner = scanner
        self._assessor = Assessor()
        self._deeds = deeds
        self._evictions = evictions
        self._leftovers = Leftovers()
        self._began: list[Outcome] = []
        self._ended: list[Outcome] = []
        self.ledger = Ledger()

    def take_over(self, leftovers: tuple[Leftover, ...], brakes: BrakeMemory) -> None:
        """Go on where an earlier daemon ended: its deeds without an end are waited for, and all of them count."""
        self._leftovers.add(leftovers)
        for each in leftovers:
            # Which scope it had is not kept: that all of the pod waits is one wait too many at most.
            under_way = UnderWay(step=None, victim=each.victim, whole_pod=True, until_s=each.until_s)
            self.ledger = self.ledger.note_under_way(each.account, "", None, under_way)
        self.ledger = replace(self.ledger, brakes=self.ledger.brakes.inheriting(brakes))

    @property
    def is_acting(self) -> bool:
        """Whether a deed is under way; an eviction that has not come about is none."""
        return len(self._deeds) + len(self._evictions) > 0

    @property
    def next_wake_s(self) -> float:
        """Boot time at which a deed under way wants to go on; infinity where none does."""
        return min(self._deeds.next_wake_s, self._evictions.next_wake_s)

    def open(self, reading: DriverReading, view: View, asked: Now, now: Now) -> Pass:
        """Take a reading as far as the plan. What it says held at the moment when it was `asked` for, or later."""
        snapshot = self._scanner.snapshot(reading, asked)
        attribution, assessments = self._assessor.assess(snapshot, view.pods.pods, view.setting)
        is_listed = still_listed(self._scanner, snapshot)
        if len(self._deeds):
            self._note(self._deeds.see(is_listed, assessments, now))
        self._evictions.see(is_listed, attribution, assessments, view, now)
        self._absorb()
        for leftover in self._leftovers.see(is_listed, now):
            self._deeds.note_released(leftover.deed, now)
            if not self._leftovers.is_waiting(leftover.account):
                self.ledger = self.ledger.note_ended(leftover.account)
        plan = decide(assessments, view.setting.policy, self.ledger, asked, view.conditions)
        self._turn_breaker(plan.ledger, asked, is_trial=not view.enforcing)
        plan = replace(plan, ledger=self.ledger)
        # What a pod uses elsewhere has a part in its budget: all its GPUs are looked at again.
        concerned = {entry.account.uid for entry in plan.actions if self._needs_look(entry, view)}
        return Pass(
            view=view,
            snapshot=snapshot,
            attribution=attribution,
            assessments=assessments,
            plan=plan,
            scan_s=now.boottime_s - asked.boottime_s,
            only=frozenset(use.gpu for use in attribution.attributed if use.uid in concerned),
        )

    def advance(self, now: Now, objection: Callable[[PlanEntry], str | None]) -> None:
        """Let the deeds under way go on, between passes too; `objection` says what speaks against one in its grace."""
        self._note(self._deeds.advance(now, objection))
        self._evictions.advance(now, objection)
        self._absorb()

    def interrupt(self, reason: str, now: Now) -> None:
        """Stop the deeds under way where they are."""
        self._note(self._deeds.interrupt(reason, now))
        self._evictions.interrupt(now)
        self._absorb()

    def close(self, opened: Pass, second: DriverReading | None, now: Now) -> Finish:
        """Act on the plan; `second` is the second look, without which nobody is killed or evicted."""
        renewed = look_again(self._scanner, opened, second, now)
        entries: list[PlanEntry] = []
        for entry in opened.plan.entries:
            if not entry.taken:
                entries.append(entry)
                continue
            if entry.do.is_force and opened.view.conditions.maintenance:  # since the plan was made
                entries.append(self._hold(entry, Brake.MAINTENANCE))
                continue
            result = self._act(entry, renewed, opened, now)
            if isinstance(result, Outcome):
                entries.append(result.entry)
                has_begun = result.deed is not None and result.result is Result.DONE
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
        self, entry: PlanEntry, renewed: dict[AccountKey, Assessment], opened: Pass, now: Now
    ) -> Outcome | Brake | PlanEntry | None:
        """Do what one entry says: how it ended, what holds it, the entry as it stands; None: the next pass will see."""
        if not opened.view.acts_on(entry):
            self.ledger = self.ledger.note_observed(entry.assessment, now) if entry.do.is_force else self.ledger
            return Outcome(entry=entry, result=Result.OBSERVED, at=now)
        if entry.do is Do.WARN:
            return Outcome(entry=entry, result=Result.DONE, at=now, reaction_s=reaction_s(entry, now))
        if entry.hastens:
            self._deeds.hasten(entry, now)
            self.ledger = self.ledger.note_hastened(entry.account, entry.definition.signature)
            return None
        again: PlanEntry | Outcome | None = entry
        if self._needs_look(entry, opened.view):
            again = renew(entry, renewed.get(entry.account), now)
        if isinstance(again, PlanEntry):
            return self._kill(again, opened.view) if entry.do is Do.KILL else self._evict(again, opened, now)
        if isinstance(again, Outcome) and entry.trying is not None:
            self._evictions.give_up(entry.account, again.result, again.reason, now)
            return None
        return self._settled(again)

    def _needs_look(self, entry: PlanEntry, view: View) -> bool:
        """Whether the driver is asked again before an entry is acted on."""
        is_possible = entry.do is Do.KILL or (entry.do is Do.EVICT and self._evictions.are_possible)
        return is_possible and not entry.hastens and view.acts_on(entry)

    def _evict(self, entry: PlanEntry, opened: Pass, now: Now) -> Outcome | Brake | PlanEntry | None:
        if entry.trying is not None:
            self._evictions.try_again(entry, opened.attribution, opened.view)
        else:
            reason = f"rule {entry.rule.name} has begun to evict by another step meanwhile"
            self._evictions.give_up(entry.account, Result.INTERRUPTED, reason, now)
            result = self._evictions.begin(entry, opened.attribution, opened.view)
            if result is not None:
                return self._settled(result) if isinstance(result, Outcome) else result
        trying = self._evictions.trying.get(entry.account)
        if trying is None:
            return None  # it was given up while the driver was asked again
        if entry.trying is None:  # what has been intended counts, whatever comes of it
            self.ledger = self.ledger.note_begun(entry.assessment, entry.rule.name, trying, now)
        return replace(entry, taken=False, withheld_by=Brake.PENDING, trying=trying)

    def _kill(self, entry: PlanEntry, view: View) -> Outcome | Brake:
        timeout_s = view.setting.policy.release_timeout_s
        result = self._deeds.begin(entry, timeout_s)
        if isinstance(result, Outcome):
            if result.deed is not None:  # what has been intended counts, whatever came of it
                under_way = _under_way(entry, timeout_s, result.at)
                self.ledger = self.ledger.note_begun(entry.assessment, entry.rule.name, under_way, result.at)
            if result.result is not Result.DONE:
                self._settle(result)
            elif self._evictions.trying:
                reason = f"rule {entry.rule.name} has begun to kill meanwhile"
                self._evictions.give_up(entry.account, Result.INTERRUPTED, reason, result.at)
        return result

    def _turn_breaker(self, ledger: Ledger, now: Now, *, is_trial: bool) -> None:
        """Take the plan's ledger; a breaker that has turned is written down before anything else is done."""
        before, after = self.ledger.brakes.opened, ledger.brakes.opened
        if after is not before and after is not None and is_trial:
            ledger = replace(ledger, brakes=replace(ledger.brakes, opened=replace(after, observed=True)))
        elif after is not before and not (before is not None and before.observed):
            self._deeds.note_breaker(now if after is not None else None)
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

    def _settled(self, outcome: Outcome | None) -> Outcome | None:
        if outcome is not None:
            self._settle(outcome)
        return outcome

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
