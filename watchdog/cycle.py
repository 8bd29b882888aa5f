"""One pass from top to bottom: scan, attribute, assess, decide, act.

A pass with force in it has a pause in the middle: the driver is asked once more for the GPUs concerned, and the loop
waits for that answer as it waits for the first one, free to let other deeds go on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from watchdog.act import Deeds, reaction_s
from watchdog.core.assess import Setting, assess
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Brake, BrakeMemory
from watchdog.core.decide import decide
from watchdog.core.findings import AccountKey, Assessment, Attribution
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now, PodList, ProcessKey, Snapshot
from watchdog.core.plan import Conditions, Outcome, Plan, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.pressure import allowed_under_pressure
from watchdog.core.steady import Assessor
from watchdog.core.victim import targets_of, victim_of
from watchdog.leftovers import Leftover, Leftovers
from watchdog.node.driver import DriverReading
from watchdog.node.scan import Scanner


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a pass takes as given besides the reading: the pods, the policy and node, brakes, and whether it may act."""

    pods: PodList
    setting: Setting
    conditions: Conditions
    enforcing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass as far as its plan. `only` are the GPUs to be looked at again before it can act; empty: none."""

    view: View
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    scan_s: float
    only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What a pass came to: the plan as it stands at the end, what began, and what has ended since the last pass."""

    plan: Plan
    began: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]


class Cycle:
    """Runs passes over one node, and remembers the ledger from one to the next."""

    def __init__(self, scanner: Scanner, deeds: Deeds) -> None:
        self._scanner = scanner
        self._assessor = Assessor()
        self._deeds = deeds
        self._leftovers = Leftovers()
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
        """Whether a deed is under way."""
        return len(self._deeds) > 0

    @property
    def next_wake_s(self) -> float:
        """Boot time at which a deed under way wants to go on; infinity where none does."""
        return self._deeds.next_wake_s

    def open(self, reading: DriverReading, view: View, asked: Now, now: Now) -> Pass:
        """Take a reading as far as the plan. What it says held at the moment when it was `asked` for, or later."""
        snapshot = self._scanner.snapshot(reading, asked)
        attribution, assessments = self._assessor.assess(snapshot, view.pods.pods, view.setting)
        still_listed = self._listed(snapshot)
        if len(self._deeds):
            self._note(self._deeds.see(still_listed, assessments, now))
        for leftover in self._leftovers.see(still_listed, now):
            self._deeds.note_released(leftover.deed, now)
            if not self._leftovers.is_waiting(leftover.account):
                self.ledger = self.ledger.note_ended(leftover.account)
        plan = decide(assessments, view.setting.policy, self.ledger, asked, view.conditions)
        self._turn_breaker(plan.ledger, asked, is_trial=not view.enforcing)
        plan = replace(plan, ledger=self.ledger)
        kills = [entry for entry in plan.actions if entry.do is Do.KILL and not entry.hastens]
        # What a pod uses elsewhere has a part in its budget: all its GPUs are looked at again.
        concerned = {entry.account.uid for entry in kills if _acts(entry, view)}
        return Pass(
            view=view,
            snapshot=snapshot,
            attribution=attribution,
            assessments=assessments,
            plan=plan,
            scan_s=now.boottime_s - asked.boottime_s,
            only=frozenset(use.gpu for use in attribution.attributed if use.uid in concerned),
        )

    def advance(self, now: Now, is_permitted: Callable[[PlanEntry], bool]) -> None:
        """Let the deeds under way go on, between passes too."""
        self._note(self._deeds.advance(now, is_permitted))

    def interrupt(self, reason: str, now: Now) -> None:
        """Stop the deeds under way where they are."""
        self._note(self._deeds.interrupt(reason, now))

    def close(self, opened: Pass, second: DriverReading | None, now: Now) -> Finish:
        """Act on the plan; `second` is the second look, without which nothing is killed."""
        renewed = self._look_again(opened, second, now)
        began: list[Outcome] = []
        entries: list[PlanEntry] = []
        for entry in opened.plan.entries:
            if not entry.taken:
                entries.append(entry)
                continue
            result = self._act(entry, renewed, opened.view, now)
            if isinstance(result, Outcome):
                entries.append(result.entry)
                (began if result.deed is not None and result.result is Result.DONE else self._ended).append(result)
            else:
                entries.append(self._hold(entry, result))
        plan = replace(opened.plan, entries=tuple(entries), ledger=self.ledger)
        return Finish(plan=plan, began=tuple(began), outcomes=self.take_ended())

    def take_ended(self) -> tuple[Outcome, ...]:
        """What has ended since it was last asked for."""
        outcomes, self._ended = tuple(self._ended), []
        return outcomes

    def _act(
        self, entry: PlanEntry, renewed: dict[AccountKey, Assessment], view: View, now: Now
    ) -> Outcome | Brake | None:
        """Do what one entry says; None: not now, the next pass will see."""
        if not _acts(entry, view):
            self.ledger = self.ledger.note_observed(entry.assessment, now) if entry.do.is_force else self.ledger
            return Outcome(entry=entry, result=Result.OBSERVED, at=now)
        if entry.do is Do.WARN:
            return Outcome(entry=entry, result=Result.DONE, at=now, reaction_s=reaction_s(entry, now))
        if entry.do is Do.EVICT:
            outcome = Outcome(entry=entry, result=Result.FAILED, at=now, reason="no API")
            self._settle(outcome)
            return outcome
        if entry.hastens:
            self._deeds.hasten(entry, now)
            self.ledger = self.ledger.note_hastened(entry.account, entry.definition.signature)
            return None
        again = _renew(entry, renewed.get(entry.account), now)
        return self._kill(again, view) if isinstance(again, PlanEntry) else self._settled(again)

    def _kill(self, entry: PlanEntry, view: View) -> Outcome | Brake:
        timeout_s = view.setting.policy.release_timeout_s
        result = self._deeds.begin(entry, timeout_s)
        if isinstance(result, Outcome):
            if result.deed is not None:  # what has been intended counts, whatever came of it
                under_way = _under_way(entry, timeout_s, result.at)
                self.ledger = self.ledger.note_begun(entry.assessment, entry.rule.name, under_way, result.at)
            if result.result is not Result.DONE:
                self._settle(result)
        return result

    def _look_again(self, opened: Pass, second: DriverReading | None, now: Now) -> dict[AccountKey, Assessment]:
        if second is None or not opened.only:
            return {}
        view = opened.view
        snapshot = self._scanner.look_again(opened.snapshot, second, opened.only, now)
        attribution = attribute(snapshot, view.pods.pods)
        concerned = {entry.account.uid for entry in opened.plan.actions}
        pods = [pod for pod in view.pods.pods if pod.uid in concerned]
        return {each.account: each for each in assess(attribution, snapshot, pods, view.setting)}

    def _listed(self, snapshot: Snapshot) -> Callable[[ProcessKey], bool]:
        """Whether the driver may still list a process, be it only its memory after its end."""
        pids = {use.pid for use in snapshot.uses}

        def is_listed(key: ProcessKey) -> bool:
            process = snapshot.processes.get(key.pid)
            is_there = key.pid in pids and (process is None or process.key in (None, key))
            return is_there or snapshot.blind or self._scanner.may_be_listed(key, snapshot)

        return is_listed

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

    def _settle(self, outcome: Outcome) -> None:
        account = outcome.entry.account
        if outcome.deed is not None:
            self.ledger = self.ledger.note_ended(account)
        if outcome.result is Result.FAILED:
            self.ledger = self.ledger.note_failed(account, outcome.entry.definition.signature, outcome.at)


def _acts(entry: PlanEntry, view: View) -> bool:
    """Whether an entry that is let through is acted on: nothing observes, neither the mode nor the rule."""
    return view.enforcing and not entry.assessment.observes


def _under_way(entry: PlanEntry, release_timeout_s: float, now: Now) -> UnderWay:
    step = entry.definition
    return UnderWay(
        step=step.signature,
        victim=entry.victim,
        whole_pod=step.scope == "pod",
        cards=entry.cards,
        until_s=now.boottime_s + step.grace_s + release_timeout_s,
    )


def _renew(entry: PlanEntry, assessment: Assessment | None, now: Now) -> PlanEntry | Outcome | None:
    """The entry by the second look; an outcome where nothing is left to act on, None where that can't be said."""
    if assessment is None or assessment.allowed is None:
        return None
    step = entry.definition
    allowed = allowed_under_pressure(assessment) if step.under_pressure else assessment.allowed
    height = step.above.height(assessment.allowed if allowed is None else allowed, entry.do)
    if assessment.used_at_least <= height:
        if assessment.used is None:
            return None
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its use was at or below the mark again")
    changed = assessment.rule is not entry.rule or assessment.protected is not None or assessment.observes
    victim = victim_of(assessment, entry.card)
    if changed or victim != entry.victim:
        return None
    if entry.card is not None and entry.card not in assessment.short:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its card had room again")
    targets = targets_of(assessment, victim, step.scope, entry.card)
    return replace(entry, assessment=assessment, targets=targets, height=height)
