"""What is new since the last cycle: gaps, staleness, the breaker, and actions that began or ended."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from watchdog.core.assessment import MOST_MISDECLARED, AccountKey, Assessment, Misdeclaration
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.units import format_duration
from watchdog.report.figures import all_gaps, pods_stale
from watchdog.report.sentences.action import delay_note, outcome_note, release_note
from watchdog.report.sentences.explanation import explanation
from watchdog.report.sentences.following import begun_writer, misdeclared_note, note
from watchdog.report.sentences.node import breaker_note
from watchdog.report.text import count, elapsed_s, fit, inert, span


class ChangeKind(StrEnum):
    """The name of an occurrence, in the log and in the journal."""

    WARNED = "warned"
    KILL_BEGUN = "kill_begun"
    KILL_ENDED = "kill_ended"
    EXPLAINED = "explained"
    RELEASED = "released"
    EVICT_BEGUN = "evict_begun"
    EVICT_BLOCKED = "evict_blocked"
    EVICT_DELAYED = "evict_delayed"
    EVICT_ENDED = "evict_ended"
    WOULD_ACT = "would_act"
    WITHHELD = "withheld"
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    JOURNAL_RESTORED = "journal_restored"
    BRAKES_PRESUMED = "brakes_presumed"
    MISDECLARED = "misdeclared"
    GAP_BEGAN = "gap_began"
    GAP_ENDED = "gap_ended"
    PODS_STALE = "pods_stale"
    PODS_FRESH = "pods_fresh"
    POLICY_LOADED = "policy_loaded"
    POLICY_REFUSED = "policy_refused"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    STARTED = "started"
    STOPPED = "stopped"


class ActionEvents(NamedTuple):
    """The names of an action's occurrences."""

    begun: ChangeKind
    blocked: ChangeKind
    ended: ChangeKind


def action_events(do: Do) -> ActionEvents:
    """How the occurrences of an action are named; a warning has only one."""
    match do:
        case Do.WARN:
            return ActionEvents(ChangeKind.WARNED, ChangeKind.WARNED, ChangeKind.WARNED)
        case Do.KILL:
            return ActionEvents(ChangeKind.KILL_BEGUN, ChangeKind.KILL_ENDED, ChangeKind.KILL_ENDED)
        case Do.EVICT:
            return ActionEvents(ChangeKind.EVICT_BEGUN, ChangeKind.EVICT_BLOCKED, ChangeKind.EVICT_ENDED)
        case _:
            assert_never(do)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One occurrence, with its sentence and whatever of the report it is about.

    `detail` is the brake, the reason of a suspension or gap, or the SHA-256 of a policy; `gpu` is of a gap.
    `was_begun`: the beginning of the action whose outcome this is was a change too. `for_owner`: what concerns the
    pod's owner, and not only who reads the log; `is_repeated`: log and journal have it already, the owner does not.
    """

    event: ChangeKind
    at: Now
    sentence: str
    assessment: Assessment | None = None
    entry: PlanEntry | None = None
    outcome: Outcome | None = None
    misdeclaration: Misdeclaration | None = None
    detail: str = ""
    gpu: str = ""
    was_begun: bool = False
    for_owner: bool = True
    is_repeated: bool = False


# A gap that comes and goes with every cycle is one gap: its end is reported once it has stayed away this long.
_GONE_S: Final = 10.0
# Gaps about processes carry PIDs, so a node with many short-lived ones has a new gap at every cycle, and a driver may
# have one each minute: of one reason so many beginnings are reported at once, and then one in two minutes, so that with
# their ends there is a line a minute. The counters have them all.
_BURST: Final = 10.0
_EVERY_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChange:
    """The beginning or the end of a gap, and its sentence."""

    gap: Gap
    began: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownGap:
    gap: Gap
    first: Now
    last: Now


class GapChanges:
    """Follows the gaps from report to report."""

    def __init__(self) -> None:
        self._seen: dict[tuple[GapReason, str], _KnownGap] = {}
        self._left: dict[GapReason, tuple[float, Now]] = {}

    @property
    def are_known(self) -> bool:
        """Whether a gap is known whose end has not been reported yet."""
        return bool(self._seen)

    def since(self, report: CycleReport) -> Iterator[GapChange]:
        """What has changed with this report."""
        for gap in all_gaps(report):
            key = (gap.reason, gap.what)
            seen = self._seen.get(key)
            # A first answer can be long in coming; once it is known what helps, the gap is reported once more.
            is_explained = seen is not None and bool(gap.problem.remedy) and not seen.gap.problem.remedy
            if seen is None and not self._may_report(gap.reason, report.at):
                continue
            if seen is None or is_explained:
                yield GapChange(gap=gap, began=True, sentence=f"{inert(gap.what)}: {inert(str(gap.problem), 600)}")
            told = seen.gap if seen is not None and not is_explained else gap
            self._seen[key] = _KnownGap(gap=told, first=seen.first if seen else report.at, last=report.at)
        yield from self._ended(report.at)

    def _ended(self, now: Now) -> Iterator[GapChange]:
        for key, seen in list(self._seen.items()):
            if elapsed_s(seen.last, now) >= _GONE_S:
                del self._seen[key]
                lasted = span(elapsed_s(seen.first, seen.last))
                sentence = f"{inert(seen.gap.what)}: data available again; it was missing for {lasted}."
                yield GapChange(gap=seen.gap, began=False, sentence=sentence)

    def _may_report(self, reason: GapReason, now: Now) -> bool:
        """Whether one more beginning of this reason may be reported now, which then counts."""
        left, at = self._left.get(reason, (_BURST, now))
        left = min(left + elapsed_s(at, now) / _EVERY_S, _BURST)
        may = left >= 1.0
        self._left[reason] = (left - 1.0 if may else left, now)
        return may


class Staleness:
    """Follows the age of the pod list from report to report; one that has never come has not grown old."""

    def __init__(self) -> None:
        self._since: Now | None = None

    @property
    def lasts(self) -> bool:
        """Whether the list was too old at the last report."""
        return self._since is not None

    def change(self, report: CycleReport) -> str:
        """The sentence of a change, which `lasts` then says the direction of; empty where nothing has changed."""
        stale, since = pods_stale(report), self._since
        if stale == self.lasts or report.pods.synced is None:
            return ""
        self._since = report.at if stale else None
        if since is not None:
            lasted = span(elapsed_s(since, report.at))
            return f"The pod list is up to date again and timers run. It was too old for {lasted}."
        age = format_duration(report.policy.stale_after_s)
        until = "it is written again" if report.pods.by_file else "the API server answers again"
        return f"The pod list is older than {age}: timers are paused and no action is taken until {until}."


def withheld(entry: PlanEntry, report: CycleReport) -> Change:
    """A step that is held back."""
    return Change(
        event=ChangeKind.WITHHELD,
        at=report.at,
        sentence=note(entry, report.at, policy=report.policy),
        assessment=entry.assessment,
        entry=entry,
        detail=entry.withheld_by.value if entry.withheld_by is not None else "",
    )


def delayed(entry: PlanEntry, report: CycleReport) -> Change:
    """An eviction that has not come about yet."""
    return Change(
        event=ChangeKind.EVICT_DELAYED,
        at=report.at,
        sentence=delay_note(entry),
        assessment=entry.assessment,
        entry=entry,
    )


def begun(outcome: Outcome) -> Change:
    """An action that has begun."""
    return _of(
        outcome,
        action_events(outcome.entry.do).begun,
        fit(begun_writer(outcome.entry, outcome.at, len(outcome.signalled))),
    )


def outcome_changes(
    outcome: Outcome, report: CycleReport | None = None, *, was_begun: bool = False
) -> Iterator[Change]:
    """What is new with the end of one action; the report, where there is one, says why nothing was done."""
    policy, suspended = (report.policy, report.suspended) if report is not None else (None, ())
    entry = outcome.entry
    if outcome.result is Result.OBSERVED:
        yield _of(
            outcome, ChangeKind.WOULD_ACT, note(entry, outcome.at, observing=True, policy=policy, suspended=suspended)
        )
    elif entry.do is Do.WARN:
        yield _of(outcome, ChangeKind.WARNED, note(entry, outcome.at))
    else:
        names = action_events(entry.do)
        event = names.blocked if outcome.result is Result.BLOCKED else names.ended
        yield replace(_of(outcome, event, outcome_note(outcome)), was_begun=was_begun)
        if outcome.release_s is not None:
            yield _of(outcome, ChangeKind.RELEASED, release_note(outcome))


def is_explained(outcome: Outcome) -> bool:
    """Whether its owner should be told: a kill of which a signal may have been sent, an eviction that came about."""
    if outcome.number is None or outcome.result in (Result.OBSERVED, Result.WITHDRAWN):
        return False
    return outcome.entry.do is Do.KILL or outcome.result is Result.DONE


def explained(outcome: Outcome, report: CycleReport) -> Change:
    """What the owner of the victim should be told, whole."""
    return _of(outcome, ChangeKind.EXPLAINED, explanation(outcome, report.policy))


def _of(outcome: Outcome, event: ChangeKind, sentence: str) -> Change:
    entry = outcome.entry
    return Change(
        event=event, at=outcome.at, sentence=sentence, assessment=entry.assessment, entry=entry, outcome=outcome
    )


class Changes:
    """Finds what each report has that the ones before it had not.

    `remedies` gives the sentence for a reason of suspension.
    """

    def __init__(self, remedies: Mapping[str, str] | None = None) -> None:
        self._remedies = remedies or {}
        self._policy = ""
        self._suspended: frozenset[str] = frozenset()
        self._staleness = Staleness()
        self._gaps = GapChanges()
        self._misdeclared: dict[str, Mapping[Misdeclaration, bool]] = {}  # by pod; whether its owner has been told
        self._begun: frozenset[int] = frozenset()
        self._breaker_open = False
        self._delayed: frozenset[tuple[AccountKey, float]] = frozenset()

    @property
    def has_gaps(self) -> bool:
        """Whether a gap is known whose end has not been reported yet."""
        return self._gaps.are_known

    def since(self, report: CycleReport, *, writes_events: bool = True) -> tuple[Change, ...]:
        """What is new in this report; each report is to be handed in once, in the order of their cycles.

        `writes_events`: Events are written now, which of two daemons on a node only the one with the lock does.
        """
        return (
            *self._policy_changes(report),
            *self._suspension_changes(report),
            *self._gap_changes(report),
            *self._staleness_changes(report),
            *self._misdeclaration_changes(report, writes_events=writes_events),
            *self._breaker_changes(report),
            *self._delay_changes(report),
            *(withheld(entry, report) for entry in report.plan.entries if entry.withheld_by and entry.is_new),
            *(self._begin(outcome) for outcome in report.began),
            *self.ended(report.outcomes, report),
            *(explained(each, report) for each in report.outcomes if is_explained(each)),
        )

    def ended(self, outcomes: Iterable[Outcome], report: CycleReport | None = None) -> Iterator[Change]:
        """What is new with the ends of these actions; without a report, the daemon's own end has interrupted them."""
        for outcome in outcomes:
            is_kill = outcome.entry.do is Do.KILL and outcome.number is not None
            if is_kill and outcome.signalled and outcome.number not in self._begun:
                yield self._begin(outcome)  # it failed in the very moment in which it began
            was_begun = outcome.number in self._begun
            if outcome.number is not None and was_begun:
                self._begun -= {outcome.number}
            yield from outcome_changes(outcome, report, was_begun=was_begun)

    def _begin(self, outcome: Outcome) -> Change:
        if outcome.number is not None:
            self._begun |= {outcome.number}
        return begun(outcome)

    def _policy_changes(self, report: CycleReport) -> Iterator[Change]:
        policy = report.policy
        if policy.sha256 == self._policy:
            return
        self._policy = policy.sha256
        rules = count(len(policy.rules), "rule")
        sentence = f"Policy {inert(policy.source)} is in effect: mode {policy.mode}, {rules}."
        yield Change(event=ChangeKind.POLICY_LOADED, at=report.at, sentence=sentence, detail=policy.sha256)

    def _suspension_changes(self, report: CycleReport) -> Iterator[Change]:
        before, self._suspended = self._suspended, frozenset(report.suspended)
        for reason in sorted(self._suspended - before):
            sentence = f"Enforcement is suspended: {self._remedies.get(reason, inert(reason))}."
            yield Change(event=ChangeKind.SUSPENDED, at=report.at, sentence=sentence, detail=reason)
        for reason in sorted(before - self._suspended):
            rest = "Enforcing again" if report.enforcing else "Still not enforcing"
            sentence = f"Reason for suspension resolved: {inert(reason)}. {rest}."
            yield Change(event=ChangeKind.RESUMED, at=report.at, sentence=sentence, detail=reason)

    def _gap_changes(self, report: CycleReport) -> Iterator[Change]:
        for change in self._gaps.since(report):
            event = ChangeKind.GAP_BEGAN if change.began else ChangeKind.GAP_ENDED
            gap = change.gap
            yield Change(
                event=event, at=report.at, sentence=change.sentence, detail=gap.reason.value, gpu=gap.gpu or ""
            )

    def _staleness_changes(self, report: CycleReport) -> Iterator[Change]:
        if sentence := self._staleness.change(report):
            event = ChangeKind.PODS_STALE if self._staleness.lasts else ChangeKind.PODS_FRESH
            yield Change(event=event, at=report.at, sentence=sentence)

    def _breaker_changes(self, report: CycleReport) -> Iterator[Change]:
        is_open = report.plan.ledger.brakes.opened is not None
        if is_open == self._breaker_open:
            return
        self._breaker_open = is_open
        event = ChangeKind.BREAKER_OPENED if is_open else ChangeKind.BREAKER_CLOSED
        yield Change(event=event, at=report.at, sentence=breaker_note(report))

    def _delay_changes(self, report: CycleReport) -> Iterator[Change]:
        """Evictions that something else than a disruption budget keeps from coming about, each once."""
        before, self._delayed = self._delayed, frozenset()
        for entry in report.plan.entries:
            if entry.pending_eviction is None:
                continue
            key = (entry.account, entry.pending_eviction.until_s)
            is_delayed = entry.pending_eviction.refused and not entry.pending_eviction.is_blocked
            if is_delayed and key not in before:
                yield delayed(entry, report)
            if is_delayed or key in before:
                self._delayed |= {key}

    def _misdeclaration_changes(self, report: CycleReport, *, writes_events: bool) -> Iterator[Change]:
        if not self._misdeclared and not any(each.misdeclarations for each in report.assessments):
            return
        listed = {pod.uid for pod in report.pods.pods}
        self._misdeclared = {uid: told for uid, told in self._misdeclared.items() if uid in listed}
        for assessment in report.assessments:
            told = dict(self._misdeclared.get(assessment.account.uid, {}))
            # A pod that no rule applies to is none of this policy's business, so only the log has it.
            for_owner = writes_events and assessment.rule is not None and is_for_owner(assessment, report)
            for skipped in assessment.misdeclarations:
                is_repeated = skipped in told
                if told[skipped] or not for_owner if is_repeated else len(told) >= MOST_MISDECLARED:
                    continue
                told[skipped] = for_owner
                yield Change(
                    event=ChangeKind.MISDECLARED,
                    at=report.at,
                    sentence=misdeclared_note(assessment, skipped),
                    assessment=assessment,
                    misdeclaration=skipped,
                    for_owner=for_owner,
                    is_repeated=is_repeated,
                )
            if told:
                self._misdeclared[assessment.account.uid] = told


def is_idle_for(assessment: Assessment, report: CycleReport) -> bool:
    """Whether nothing is done to this account: the daemon, or the account's rule, only observes now."""
    return not report.enforcing or assessment.observes


def is_for_owner(assessment: Assessment, report: CycleReport) -> bool:
    """Whether Events are written on this pod: on one that is only observed only if the policy wants it."""
    return report.policy.events.observe or not is_idle_for(assessment, report)
