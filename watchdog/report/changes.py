"""What is new since the last cycle: gaps, staleness, the breaker, and actions that began or ended."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from watchdog.core.assessment import MOST_MISDECLARED, AccountKey, Assessment, Misdeclaration
from watchdog.core.model import MAINTENANCE, Gap, GapReason, Now, Pod, elapsed_s
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.units import format_duration
from watchdog.report.figures import all_gaps, pods_stale
from watchdog.report.recurrence import Recurrence
from watchdog.report.sentences.action import TakenAction, delay_note, explanation, outcome_note, release_note
from watchdog.report.sentences.following import begun_note, misdeclared_note, note
from watchdog.report.sentences.node import breaker_note, maintenance_line, with_reason_given
from watchdog.report.sentences.usage import idle_note, transfer_note
from watchdog.report.text import count, inert, span


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
    TRANSFERRED = "transferred"
    IDLE = "idle"
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
    """The names of an action's occurrences; a warning has only one."""
    match do:
        case Do.WARN:
            return ActionEvents(ChangeKind.WARNED, ChangeKind.WARNED, ChangeKind.WARNED)
        case Do.KILL:
            return ActionEvents(ChangeKind.KILL_BEGUN, ChangeKind.KILL_ENDED, ChangeKind.KILL_ENDED)
        case Do.EVICT:
            return ActionEvents(ChangeKind.EVICT_BEGUN, ChangeKind.EVICT_BLOCKED, ChangeKind.EVICT_ENDED)
        case _:
            assert_never(do)


_OF_ENFORCING: Final = tuple(action_events(do) for do in Do if do.enforces)
BEGUN: Final = tuple(names.begun for names in _OF_ENFORCING)
ENDED: Final = tuple(names.ended for names in _OF_ENFORCING)
BLOCKED: Final = tuple(names.blocked for names in _OF_ENFORCING if names.blocked is not names.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One occurrence, with its sentence and the part of the report that it is about."""

    event: ChangeKind
    at: Now
    sentence: str
    # What it is about, each with what it is part of: an outcome with its entry and assessment. None: it is about none.
    assessment: Assessment | None = None
    entry: PlanEntry | None = None
    outcome: Outcome | None = None
    misdeclaration: Misdeclaration | None = None
    # The pod that it is about, where that may have no account any more.
    pod: Pod | None = None
    # The brake, the reason of a suspension or gap, or the SHA-256 of a policy.
    detail: str = ""
    # That of a gap.
    gpu: str = ""
    # Whether the beginning of the action whose outcome this is was a change too.
    was_begun: bool = False
    # Whether it concerns the pod's owner, and not only readers of the log.
    for_owner: bool = True
    # Whether log and journal have it already; the owner does not.
    is_repeated: bool = False


# A gap that comes and goes with every cycle is one gap: its end is reported once it has been absent for this long.
_GONE_S: Final = 10.0
# Gaps about processes carry PIDs, so a node with many short-lived ones has a new gap in every cycle, and a driver may
# have one each minute. Of one reason this many beginnings are reported at once, and then one in two minutes, so that
# with their ends there is a line a minute. The counters have them all.
_BURST: Final = 10.0
_EVERY_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownGap:
    gap: Gap
    first: Now
    last: Now


class GapChanges:
    """Follows the gaps from report to report."""

    def __init__(self) -> None:
        self._known: dict[tuple[GapReason, str], _KnownGap] = {}
        self._budgets: dict[GapReason, tuple[float, Now]] = {}

    @property
    def reasons(self) -> frozenset[GapReason]:
        """The reasons of the gaps whose end has not been reported yet."""
        return frozenset(reason for reason, _ in self._known)

    def since(self, report: CycleReport) -> Iterator[Change]:
        """What has changed with this report."""
        for gap in all_gaps(report):
            key = (gap.reason, gap.what)
            known = self._known.get(key)
            # The first remedy can take time to arrive; once there is one, the gap is reported once more.
            is_explained = known is not None and bool(gap.problem.remedy) and not known.gap.problem.remedy
            if known is None and not self._may_report(gap.reason, report.at):
                continue
            if known is None or is_explained:
                sentence = f"{inert(gap.what)}: {inert(str(gap.problem), 600)}"
                yield _gap_change(ChangeKind.GAP_BEGAN, gap, sentence, report.at)
            reported = known.gap if known is not None and not is_explained else gap
            self._known[key] = _KnownGap(gap=reported, first=known.first if known else report.at, last=report.at)
        yield from self._ended(report.at)

    def _ended(self, now: Now) -> Iterator[Change]:
        for key, known in list(self._known.items()):
            if elapsed_s(known.last, now) >= _GONE_S:
                del self._known[key]
                lasted = span(elapsed_s(known.first, known.last))
                sentence = f"{inert(known.gap.what)}: data available again; it was missing for {lasted}."
                yield _gap_change(ChangeKind.GAP_ENDED, known.gap, sentence, now)

    def _may_report(self, reason: GapReason, now: Now) -> bool:
        """Whether one more beginning of this reason may be reported now, which then counts."""
        left, at = self._budgets.get(reason, (_BURST, now))
        left = min(left + elapsed_s(at, now) / _EVERY_S, _BURST)
        may = left >= 1.0
        self._budgets[reason] = (left - 1.0 if may else left, now)
        return may


def _gap_change(event: ChangeKind, gap: Gap, sentence: str, at: Now) -> Change:
    return Change(event=event, at=at, sentence=sentence, detail=gap.reason.value, gpu=gap.gpu or "")


def outcome_changes(
    outcome: Outcome, report: CycleReport | None = None, *, was_begun: bool = False
) -> Iterator[Change]:
    """What is new with the end of one action; the report, if there is one, has the reason why no action was taken."""
    policy, suspended = (report.policy, report.switched_off_by) if report is not None else (None, ())
    entry = outcome.entry
    if outcome.result is Result.OBSERVED:
        would = note(entry, outcome.at, observing=True, policy=policy, suspended=suspended)
        yield _outcome_change(ChangeKind.WOULD_ACT, outcome, would)
    elif not entry.do.enforces:
        yield _outcome_change(ChangeKind.WARNED, outcome, note(entry, outcome.at))
    else:
        names = action_events(entry.do)
        event = names.blocked if outcome.result is Result.BLOCKED else names.ended
        yield replace(_outcome_change(event, outcome, outcome_note(outcome)), was_begun=was_begun)
        if outcome.release_s is not None:
            yield _outcome_change(ChangeKind.RELEASED, outcome, release_note(TakenAction.of(outcome)))


def _is_for_victim(outcome: Outcome) -> bool:
    """Whether its owner gets an explanation: of a kill that may have sent a signal, or an eviction that succeeded."""
    if outcome.number is None or outcome.result in (Result.OBSERVED, Result.WITHDRAWN):
        return False
    return outcome.entry.do.ends_processes or outcome.result is Result.DONE


def _entry_change(event: ChangeKind, entry: PlanEntry, at: Now, sentence: str) -> Change:
    brake = entry.withheld_by.value if entry.withheld_by is not None and event is ChangeKind.WITHHELD else ""
    return Change(event=event, at=at, sentence=sentence, assessment=entry.assessment, entry=entry, detail=brake)


def _outcome_change(event: ChangeKind, outcome: Outcome, sentence: str) -> Change:
    return replace(_entry_change(event, outcome.entry, outcome.at, sentence), outcome=outcome)


class Changes:
    """Finds what is new in each report.

    `remedies` gives the sentence for a reason of suspension.
    """

    def __init__(self, remedies: Mapping[str, str] | None = None) -> None:
        self._remedies = remedies or {}
        self._policy = ""
        self._suspended: frozenset[str] = frozenset()
        self._stale_since: Now | None = None
        self._gaps = GapChanges()
        self._recurrence = Recurrence()
        self._misdeclared: dict[str, Mapping[Misdeclaration, bool]] = {}  # by pod; whether its owner knows
        self._begun: frozenset[int] = frozenset()
        self._breaker_open = False
        self._delayed: frozenset[tuple[AccountKey, float]] = frozenset()

    @property
    def gap_reasons(self) -> frozenset[GapReason]:
        """The reasons of the gaps whose end has not been reported yet."""
        return self._gaps.reasons

    def since(self, report: CycleReport, *, writes_events: bool = True) -> tuple[Change, ...]:
        """What is new in this report; pass each report once, in the order of the cycles.

        `writes_events`: this daemon writes Events, which of two on a node only the one with the lock does.
        """
        return (
            *self._policy_changes(report),
            *self._suspension_changes(report),
            *self._gaps.since(report),
            *self._staleness_changes(report),
            *self._misdeclaration_changes(report, writes_events=writes_events),
            *_transfer_changes(report),
            *_idle_changes(report),
            *self._breaker_changes(report),
            *self._delay_changes(report),
            *filter(self._is_reported, self._withheld_changes(report)),
            *(self._begin(outcome) for outcome in report.began),
            *filter(self._is_reported, self.ended(report.outcomes, report)),
            *(
                _outcome_change(ChangeKind.EXPLAINED, outcome, explanation(outcome, report.policy, report.node))
                for outcome in report.outcomes
                if _is_for_victim(outcome)
            ),
        )

    def take_left_out(self, now: Now) -> str:
        """A sentence, at most once in ten minutes, about accounts whose changes recur too often to report each."""
        return self._recurrence.take_spent(now)

    def _is_reported(self, change: Change) -> bool:
        """Whether a change is reported: warnings and withheld actions come with each incident of an account."""
        entry = change.entry
        if entry is None or not (change.event is ChangeKind.WITHHELD or not entry.do.enforces):
            return True
        return self._recurrence.admit(f"{change.event} {change.detail}", entry, change.at)

    def _withheld_changes(self, report: CycleReport) -> Iterator[Change]:
        for entry in report.plan.entries:
            if entry.withheld_by and entry.is_new:
                sentence = note(entry, report.at, policy=report.policy)
                yield _entry_change(ChangeKind.WITHHELD, entry, report.at, sentence)

    def ended(self, outcomes: Iterable[Outcome], report: CycleReport | None = None) -> Iterator[Change]:
        """What is new with the ends of these actions; without a report, the daemon's own end has interrupted them."""
        for outcome in outcomes:
            has_begun = outcome.entry.do.ends_processes and outcome.sent
            if outcome.number is not None and has_begun and outcome.number not in self._begun:
                yield self._begin(outcome)  # it failed as soon as it began
            was_begun = outcome.number in self._begun
            if outcome.number is not None and was_begun:
                self._begun -= {outcome.number}
            yield from outcome_changes(outcome, report, was_begun=was_begun)

    def _begin(self, outcome: Outcome) -> Change:
        if outcome.number is not None:
            self._begun |= {outcome.number}
        sentence = begun_note(outcome.entry, outcome.at, len(outcome.signalled) or None)
        return _outcome_change(action_events(outcome.entry.do).begun, outcome, sentence)

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
            why = maintenance_line(report) if reason == MAINTENANCE else ""
            remedy = with_reason_given(
                self._remedies.get(reason, inert(reason)), reason, report.stops, report.node.name
            )
            sentence = f"Enforcement is suspended: {'; '.join(filter(None, (why, remedy)))}."
            yield Change(event=ChangeKind.SUSPENDED, at=report.at, sentence=sentence, detail=reason)
        for reason in sorted(before - self._suspended):
            rest = "Enforcing again" if report.enforcing else "Still not enforcing"
            sentence = f"Reason for suspension resolved: {inert(reason)}. {rest}."
            yield Change(event=ChangeKind.RESUMED, at=report.at, sentence=sentence, detail=reason)

    def _staleness_changes(self, report: CycleReport) -> Iterator[Change]:
        """That the pod list has become stale or fresh; one that has never arrived has not become stale."""
        stale, since = pods_stale(report), self._stale_since
        if stale == (since is not None) or report.pods.synced is None:
            return
        if since is not None:
            self._stale_since = None
            lasted = span(elapsed_s(since, report.at))
            sentence = f"The pod list is up to date again and timers run. It was too old for {lasted}."
            yield Change(event=ChangeKind.PODS_FRESH, at=report.at, sentence=sentence)
            return
        self._stale_since = report.at
        age = format_duration(report.policy.stale_after_s)
        until = "it is written again" if report.pods.by_file else "the API server answers again"
        sentence = f"The pod list is older than {age}: timers are paused and no action is taken until {until}."
        yield Change(event=ChangeKind.PODS_STALE, at=report.at, sentence=sentence)

    def _breaker_changes(self, report: CycleReport) -> Iterator[Change]:
        is_open = report.plan.ledger.brakes.opened is not None
        if is_open == self._breaker_open:
            return
        self._breaker_open = is_open
        event = ChangeKind.BREAKER_OPENED if is_open else ChangeKind.BREAKER_CLOSED
        yield Change(event=event, at=report.at, sentence=breaker_note(report))

    def _delay_changes(self, report: CycleReport) -> Iterator[Change]:
        """Evictions that something other than a disruption budget delays, each once."""
        before, self._delayed = self._delayed, frozenset()
        for entry in report.plan.entries:
            if entry.pending_eviction is None:
                continue
            key = (entry.account, entry.pending_eviction.until_s)
            is_delayed = entry.pending_eviction.refused and not entry.pending_eviction.is_blocked
            if is_delayed and key not in before:
                yield _entry_change(ChangeKind.EVICT_DELAYED, entry, report.at, delay_note(entry))
            if is_delayed or key in before:
                self._delayed |= {key}

    def _misdeclaration_changes(self, report: CycleReport, *, writes_events: bool) -> Iterator[Change]:
        if not self._misdeclared and not any(assessment.misdeclarations for assessment in report.assessments):
            return
        listed = {pod.uid for pod in report.pods.pods}
        self._misdeclared = {uid: known for uid, known in self._misdeclared.items() if uid in listed}
        for assessment in report.assessments:
            known = dict(self._misdeclared.get(assessment.account.uid, {}))
            # A pod that no rule applies to does not concern this policy, so only the log has it.
            for_owner = writes_events and assessment.rule is not None and is_for_owner(assessment, report)
            for skipped in assessment.misdeclarations:
                is_repeated = skipped in known
                if known[skipped] or not for_owner if is_repeated else len(known) >= MOST_MISDECLARED:
                    continue
                known[skipped] = for_owner
                yield Change(
                    event=ChangeKind.MISDECLARED,
                    at=report.at,
                    sentence=misdeclared_note(assessment, skipped),
                    assessment=assessment,
                    misdeclaration=skipped,
                    for_owner=for_owner,
                    is_repeated=is_repeated,
                )
            if known:
                self._misdeclared[assessment.account.uid] = known


def _transfer_changes(report: CycleReport) -> Iterator[Change]:
    """Memory that has changed hands, for the owners of both pods."""
    assessments = {assessment.account.uid: assessment for assessment in report.assessments}
    for found in report.transfers:
        sentence = transfer_note(found.transfer)
        for pod in (found.target, *found.sources):
            known = assessments.get(pod.uid)
            is_observed = report.observes if known is None else is_only_observed(known, report)
            yield Change(
                event=ChangeKind.TRANSFERRED,
                at=report.at,
                sentence=sentence,
                assessment=known,
                pod=pod,
                gpu=found.transfer.gpu,
                for_owner=report.policy.events.observe or not is_observed,
            )


def _idle_changes(report: CycleReport) -> Iterator[Change]:
    """Accounts that have held memory without computing for long enough."""
    for assessment in report.assessments:
        if assessment.account in report.utilization.found_idle:
            yield Change(
                event=ChangeKind.IDLE,
                at=report.at,
                sentence=idle_note(assessment, report.utilization.idle_s[assessment.account]),
                assessment=assessment,
                for_owner=is_for_owner(assessment, report),
            )


def is_only_observed(assessment: Assessment, report: CycleReport) -> bool:
    """Whether no action is taken on this account: the daemon, or the account's rule, only observes now."""
    return report.observes or assessment.observes


def is_for_owner(assessment: Assessment, report: CycleReport) -> bool:
    """Whether Events are written on this pod: on one that is only observed, only if the policy asks for it."""
    return report.policy.events.observe or not is_only_observed(assessment, report)
