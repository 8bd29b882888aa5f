"""What happens next to each account, in a few words and by urgency, from a status."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from watchdog.core.assessment import Verdict
from watchdog.report.sentences.action import under_way_sentence
from watchdog.report.sentences.draining import DRAINED_FIRST_SHORT
from watchdog.report.sentences.following import coming, is_enforced
from watchdog.report.status import AccountStatus, PendingStatus, PlanStatus, Status, StatusKey, UnderWayStatus
from watchdog.report.text import span

_NEVER_S: Final = 1e9
_VERDICTS: Final = {
    Verdict.OVER.value: 0,
    Verdict.UNKNOWN.value: 1,
    Verdict.MISDECLARED.value: 2,
    Verdict.WITHIN.value: 3,
    Verdict.UNDECLARED.value: 4,
}


class Level(StrEnum):
    """How urgent something is, the most urgent first; the value is a CSS class."""

    BAD = "bad"
    WATCH = "watch"
    GOOD = "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What comes next for an account."""

    # In a few words: `kill in 7s`.
    short: str
    # In sentences.
    detail: str
    level: Level
    # Seconds from the cycle on.
    due_s: float = 0.0
    # Whether a brake withholds it, or will once it is due.
    is_held: bool = False
    # Whether it is a kill or an eviction.
    enforces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountProgress:
    """An account with what comes next for it."""

    account: AccountStatus
    # In the order in which they come.
    steps: tuple[NextStep, ...]

    @property
    def level(self) -> Level:
        """How urgent the account is."""
        if any(step.level is Level.BAD for step in self.steps):
            return Level.BAD
        return Level.WATCH if self.needs_attention else Level.GOOD

    @property
    def needs_attention(self) -> bool:
        """Whether it is over its limit, or something comes next for it."""
        return bool(self.steps) or self.account.verdict == Verdict.OVER

    @property
    def gravest(self) -> NextStep | None:
        """The next kill or eviction; if there is none, a warning."""
        return next((step for step in self.steps if step.enforces), self.steps[0] if self.steps else None)

    @property
    def urgency(self) -> tuple[int, float, int, float, str]:
        """The key to sort by: level, when a kill or eviction is due, verdict, and the share of the limit in use."""
        account, level = self.account, list(Level).index(self.level)
        due_s = min((step.due_s for step in self.steps if step.enforces and not step.is_held), default=_NEVER_S)
        if account.under_way is not None:
            due_s = -1.0
        share = account.least / account.allowed if account.allowed else float(account.least)
        return level, due_s, _VERDICTS.get(account.verdict, 1), -share, account.title


def by_urgency(status: Status, elapsed_s: float = 0.0) -> tuple[AccountProgress, ...]:
    """All accounts with what comes next for them, `elapsed_s` after the cycle; the most urgent first."""
    planned = steps_by_account(status)
    found = (
        AccountProgress(account=account, steps=tuple(_steps(account, planned.get(account.key, ()), status, elapsed_s)))
        for account in status.accounts
    )
    return tuple(sorted(found, key=lambda progress: progress.urgency))


def steps_by_account(status: Status) -> Mapping[StatusKey, tuple[PlanStatus, ...]]:
    """The steps of the plan by account, in the order of the plan."""
    found: defaultdict[StatusKey, list[PlanStatus]] = defaultdict(list)
    for step in status.plan:
        if step.key is not None:
            found[step.key].append(step)
    return {key: tuple(steps) for key, steps in found.items()}


def _steps(
    account: AccountStatus, entries: tuple[PlanStatus, ...], status: Status, elapsed_s: float
) -> Iterator[NextStep]:
    if account.under_way is not None:
        short = under_way_short(account.under_way, status, elapsed_s)
        sentence = under_way_sentence(account.under_way, status)
        yield NextStep(short=short, detail=sentence, level=Level.BAD, enforces=True)
    for entry in sorted(coming(account, entries), key=lambda entry: (entry.due_in_s, not entry.do.enforces)):
        paused = is_paused(entry, status)
        acts = is_enforced(account, status) and entry.withheld_by is None and not paused
        yield NextStep(
            short=planned_short(entry, account, status, elapsed_s),
            detail=entry.detail or entry.sentence,
            level=Level.BAD if entry.do.enforces and acts else Level.WATCH,
            due_s=entry.due_in_s,
            is_held=entry.withheld_by is not None and not paused,
            enforces=entry.do.enforces,
        )


def planned_short(entry: PlanStatus, account: AccountStatus, status: Status, elapsed_s: float = 0.0) -> str:
    """A step of the plan in a few words: `kill in 7s`, `kill withheld: owner, 3m`, `would evict in 3s`.

    Whether it is withheld comes before the time, since a narrow column cuts the end.
    """
    noun, when, would = entry.do.verb.noun, due_short(entry, elapsed_s), not is_enforced(account, status)
    what = f"would {entry.do.verb.base}" if would else noun
    if is_paused(entry, status):
        state = f"withheld: {'hung' if status.hangs_since is not None else 'stale'}"
    elif entry.pending is not None:
        return _pending_short(entry.pending, noun, elapsed_s)
    elif entry.withheld_by is None:
        return f"{what} {when}"
    elif entry.due_in_s > elapsed_s:
        return f"{what} (withheld) {when}"
    else:
        state = f"withheld: {brake_short(entry, elapsed_s)}"
    return f"{what} ({state})" if would else f"{what} {state}"


def due_short(entry: PlanStatus, elapsed_s: float = 0.0) -> str:
    """When a step is due, as of `elapsed_s` after the cycle: `in 7s`, `now`."""
    left_s = entry.due_in_s - elapsed_s
    return f"in {_left(left_s)}" if left_s > 0 else "now"


def brake_short(entry: PlanStatus, elapsed_s: float = 0.0) -> str:
    """The brake that withholds a step, and for how long at least: `owner, 3m`."""
    left_s = (entry.releases_in_s or 0.0) - elapsed_s
    return f"{entry.withheld_by}, {_left(left_s)}" if left_s > 0 else f"{entry.withheld_by}"


def _left(seconds: float) -> str:
    # Whole seconds, since tenths would only flicker; rounded up: at 0 it is over.
    return span(float(ceil(seconds)))


def under_way_short(under_way: UnderWayStatus, status: Status, elapsed_s: float = 0.0) -> str:
    """An action that has begun in a few words: `being killed, SIGKILL in 4s`."""
    if under_way.do is None or under_way.do.ends_processes:  # None: by a step that the rule no longer has
        return _killing_short(under_way, status, elapsed_s)
    return f"being {under_way.do.verb.done}"


def _killing_short(under_way: UnderWayStatus, status: Status, elapsed_s: float) -> str:
    if under_way.ended:
        return f"{'killed' if under_way.signals else 'ended'}, memory not freed yet"
    if under_way.is_draining:
        return f"being killed, {DRAINED_FIRST_SHORT}"
    left_s = under_way.sigkill_at - status.at if under_way.sigkill_at is not None else 0.0
    if status.hangs_since is not None and left_s > 0:
        return "being killed, SIGKILL may follow"
    if left_s - elapsed_s > 0:
        return f"being killed, SIGKILL in {_left(left_s - elapsed_s)}"
    return "killed, memory not freed yet"


def _pending_short(pending: PendingStatus, noun: str, elapsed_s: float) -> str:
    if pending.next_in_s is None:
        return f"{noun} requested"
    state, left_s = "blocked" if pending.blocked else "refused", pending.next_in_s - elapsed_s
    return f"{noun} {state}, attempt {pending.tries}, next {f'in {_left(left_s)}' if left_s > 0 else 'now'}"


def is_paused(entry: PlanStatus, status: Status) -> bool:
    """Whether its timer is paused: no cycle ends, or the pod list is stale."""
    return status.hangs_since is not None or (status.pods_stale and entry.due_in_s > 0)
