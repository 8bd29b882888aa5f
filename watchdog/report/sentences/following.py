"""What comes next for an account, in words: which step, when, or what holds it back."""

from collections.abc import Callable, Iterator
from typing import Final

from watchdog.core.assessment import Assessment, Misdeclaration, Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Do, Policy, Rule, Step
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.sentences.action import acted, aim, signals, under_way_sentence, victims_planned
from watchdog.report.sentences.brakes import (
    entry_letting_go,
    held_back,
    is_idle,
    letting_go,
    observing_because,
    withheld_because,
)
from watchdog.report.sentences.usage import because, source, step_threshold_text, threshold_in_bytes, title, usage
from watchdog.report.status import AccountStatus, PlanStatus, Status, StepStatus
from watchdog.report.text import LONGEST_NOTE, capital, clip, clock_time, fit, inert, span


def note(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> str:
    """Say why a step is due and what follows, in at most 1 kB of UTF-8: the note of an Event.

    `observing` says that nothing will be done, `suspended` why, where the policy says enforce; `processes` is how many
    will be signalled (default: those listed). With the policy the sentence has the numbers of what holds a step back.
    """
    return fit(note_writer(entry, now, observing=observing, processes=processes, policy=policy, suspended=suspended))


def note_writer(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> Callable[[int], str]:
    """What `note` says, as a function of the longest name that is written out; for `fit`."""

    def write(limit: int) -> str:
        why = f"{usage(entry, now, limit)} {because(entry, limit, policy)}"
        if entry.withheld_by is not None:
            return f"{why} {_withheld(entry, now, policy, limit, processes)}"
        idle = observing_because(entry.assessment, limit, policy, suspended) if observing else ""
        return f"{why} {_follow(entry, limit, idle=idle, processes=processes)}"

    return write


def begun_writer(entry: PlanEntry, now: Now, processes: int, policy: Policy | None = None) -> Callable[[int], str]:
    """What is kept of a kill or eviction that begins, as a function of the longest name; for `fit`.

    Of a kill it is read when the processes have ended, so in the past, and it names no signal that may never be sent.
    """
    if entry.do is not Do.KILL:
        return note_writer(entry, now, processes=processes, policy=policy)

    def write(limit: int) -> str:
        grace_s = entry.definition.grace_s
        how = (
            f"SIGTERM, with a grace period of {format_duration(grace_s)}"
            if grace_s
            else signals(entry.definition.grace_s)
        )
        killing = capital(acted(Do.KILL.verb.doing, entry, processes, limit))
        return f"{usage(entry, now, limit, past=True)} {because(entry, limit, policy)} {killing}: {how}."

    return write


def forecast(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> str:
    """Say which step of whose comes when, or what holds it back: a line of a plan.

    `suspended`: why nothing is done although the policy enforces; `stale`: the pod list is too old; no timer runs.
    """

    def write(limit: int) -> str:
        who = capital(title(entry.assessment, limit))
        return f"{who}, {_when(entry)}: {_detail(entry, now, policy, suspended, limit, stale=stale)}"

    return fit(write)


def detail(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> str:
    """The same for a place that names the account and counts the time itself: what is done, why, what holds it back."""
    return fit(lambda limit: capital(_detail(entry, now, policy, suspended, limit, stale=stale)))


def _detail(
    entry: PlanEntry, now: Now, policy: Policy | None, suspended: tuple[str, ...], limit: int, *, stale: bool
) -> str:
    idle = is_idle(entry.assessment, policy, suspended)
    action = acted(entry.do.verb.base, entry, None, limit)
    how = f" ({signals(entry.definition.grace_s)})" if entry.do is Do.KILL else ""
    nothing = ""
    if entry.withheld_by is not None:
        then = " then" if entry.due_in_s > 0 else ""
        nothing = f" Held back{then}{entry_letting_go(entry, now)}, because {withheld_because(entry, policy, limit)}."
    elif idle:
        nothing = f" No action will be taken: {observing_because(entry.assessment, limit, policy, suspended)}."
    why = because(entry, limit, policy, in_bytes=True)
    still = (
        " The pod list is out of date: timers are paused until it is updated." if stale and entry.due_in_s > 0 else ""
    )
    return f"{'would ' if idle else ''}{action}{how}. {why}{nothing}{still}"


def _when(entry: PlanEntry) -> str:
    return f"in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "due now"


def _withheld(entry: PlanEntry, now: Now, policy: Policy | None, limit: int, processes: int | None) -> str:
    doing = acted(entry.do.verb.doing, entry, processes, limit)
    held = held_back(entry.due_in_s, entry_letting_go(entry, now), withheld_because(entry, policy, limit))
    return f"No action taken: {doing} {held}."


def _follow(entry: PlanEntry, limit: int, *, idle: str, processes: int | None) -> str:
    """What follows; `idle` says why nothing does (empty: it does)."""
    verb = entry.do.verb
    if entry.do is Do.WARN:
        return f"{'Would warn' if idle else 'This is a warning'}: {_outlook(entry, limit, idle)}."
    how = f": {signals(entry.definition.grace_s)}" if entry.do is Do.KILL else ""
    if idle:
        return f"Would {acted(verb.base, entry, processes, limit)}{how}. No action is taken: {idle}."
    return f"{capital(acted(verb.doing, entry, processes, limit))}{how}."


def _outlook(entry: PlanEntry, limit: int, idle: str) -> str:
    """What comes after a warning: what the rule does, or why nothing will be done to this pod."""
    why, later = entry.assessment.protected, later_enforcement(entry.rule, entry.step)
    if later is not None and why is not None:
        return f"no kill or eviction follows, because this pod is protected ({inert(why, limit)})"
    rule = _next_enforcement(entry.rule, entry.step, entry.assessment.allowed)
    if later is None:
        return rule
    observing = idle or (observing_because(entry.assessment, limit) if entry.assessment.observes else "")
    return f"{rule}; no action will be taken: {observing}" if observing else rule


def _next_enforcement(rule: Rule, step: int, allowed: int | None = None) -> str:
    """What the rule does further up its ladder: `the rule kills above 110% for 10s, which is 11.2Gi here`.

    `allowed` are the bytes of which its threshold is a share.
    """
    later = later_enforcement(rule, step)
    if later is None:
        return "the rule takes no further action"
    in_bytes = allowed and not later.under_pressure and later.above.amount is None
    threshold = (
        f" (threshold {format_bytes(later.above.threshold_bytes(allowed, later.do))})" if in_bytes and allowed else ""
    )
    return f"the rule {later.do.verb.does} {step_threshold_text(later)}{threshold}"


def later_enforcement(rule: Rule, step: int) -> Step | None:
    """The next step of a rule that kills or evicts; one under pressure only where no other is left."""
    later = [each for each in rule.steps[step + 1 :] if each.do.enforces]
    return min(later, key=lambda each: each.under_pressure, default=None)


def misdeclared_note(assessment: Assessment, skipped: Misdeclaration, size: int = LONGEST_NOTE) -> str:
    """Say what is wrong with a declaration of a pod, and what holds instead of it, in at most `size` bytes of UTF-8."""
    pod = inert(assessment.pod.title)
    if skipped.counts:
        return clip(f"Pod {pod}: {inert(skipped.source)} is used as written: {inert(skipped.why, 400)}", size)
    if assessment.verdict is Verdict.MISDECLARED:
        instead = "No other declaration applies, so the pod is only measured and no action is taken on it."
    elif assessment.declared is None:
        instead = "It declares nothing else, so the pod is only measured and no action is taken on it."
    else:
        instead = f"{format_bytes(assessment.declared)} {source(assessment)} applies instead."
    why = inert(skipped.why, 400)
    end = "" if why.endswith(("?", ".")) else "."
    return clip(f"Pod {pod}: {inert(skipped.source)} is ignored: {why}{end} {instead}", size)


# These hold as long as things are as they are; of the others it is worth saying that the step waits for them.
_STANDING: Final = frozenset(brake.value for brake in Brake if brake.is_permanent)


def following(account: AccountStatus, status: Status) -> Iterator[str]:
    """What the rule of an account does, will do, or would do."""
    under_way = account.under_way
    if under_way is not None:
        yield under_way_sentence(under_way, status)
    entries = [entry for entry in status.plan if entry.is_of(account)]
    for entry in entries:
        if not entry.do.enforces:
            yield _warning(entry, account, status)
        elif under_way is not None and entry.withheld_by == "pending":
            yield f"{_begun(entry, account, status)}."
        elif not _is_said(entry, entries):
            yield _enforcement(entry, account, status)
    ahead = [step for step in account.ladder if _lies_ahead(step)]
    if ahead and account.protected is None:
        # A kill in progress does not hold back a stronger one on the same container, which ends its grace period.
        is_kill = under_way is not None and under_way.do is not Do.EVICT
        held = [each.withheld_by for each in entries if each.do.enforces and each.withheld_by is not None]
        is_held = any(not (is_kill and brake == "pending") for brake in held)
        breaker = status.breaker
        is_free = not is_held and not (breaker is not None and breaker.open)
        verb = "" if is_free and _acts(account, status) else " (not currently enforced)"
        further = "Higher" if entries else "The"
        yield f"{further} steps of that rule{verb}: {'; '.join(_step(step, account, status) for step in ahead)}."


def _lies_ahead(step: StepStatus) -> bool:
    return step.state != "above" and step.height is not None


def _is_said(entry: PlanStatus, entries: list[PlanStatus]) -> bool:
    """Whether a step that comes before says it all, or one that is held back: the brake would hold this one too."""
    if entry.is_now or entry.withheld_by is not None:
        return False
    others = [each for each in entries if each.do.enforces and each is not entry]
    is_held = any(each.withheld_by not in (None, "pending") for each in others)
    return is_held or any(each.is_now for each in others)


def is_enforced(account: AccountStatus, status: Status) -> bool:
    """Whether what is due for an account is done, and not only recorded."""
    return status.enforcing and not account.observes


def _acts(account: AccountStatus, status: Status) -> bool:
    is_held = status.pods_stale or status.hangs_since is not None
    return is_enforced(account, status) and not is_held


def _warning(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    threshold, due_s = threshold_in_bytes(entry, _step_of(entry, account), account, status), entry.due_in_s or 0
    counts = _step_of(entry, account)
    has_counted = counts is not None and (counts.counted_s or 0) >= (counts.for_s or 0)
    acts = _acts(account, status)
    if status.hangs_since is not None:
        return f"Its use was {threshold}; the next warning for that is postponed until a cycle completes."
    if due_s <= 0:
        return f"A warning {'is' if acts else 'would be'} given now, since its use is {threshold}."
    if has_counted:
        given = "was given; it is" if acts else "would have been given; it would be"
        return f"A warning {given} repeated in {span(due_s)} if it stays {threshold}."
    return f"A warning {'follows' if acts else 'would follow'} in {span(due_s)} if its use stays {threshold}."


def _enforcement(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    step, due_s, now = _step_of(entry, account), entry.due_in_s or 0, status.at
    begun = _begun(entry, account, status)
    whom, how = victims_planned(entry), _how(entry, step)
    if entry.withheld_by == "protected" and account.protected is not None:
        return f"{begun}; an unprotected pod would be {entry.do.verb.done}."
    if status.hangs_since is not None:
        return f"{begun}; {entry.do.verb.doing} {whom} for that is postponed until a cycle completes."
    if entry.withheld_by is not None:
        return f"{begun}; {entry.do.verb.doing} {whom} {_held(entry, now)}."
    acts, done = _acts(account, status), entry.do.verb.done
    if due_s <= 0 and acts:
        is_one = entry.do is Do.EVICT or entry.scope == "process"
        return f"{begun}, so {whom} {'is' if is_one else 'are'} being {done} now{how}."
    if due_s <= 0:
        return f"{begun}, and {whom} would be {done} for it; no action is taken."
    # While the pod list is stale no time counts.
    at = f", at {clock_time(now + due_s, now)}" if now is not None and not status.pods_stale else ""
    return f"{begun}; if it stays there, {whom} {'will' if acts else 'would'} be {done} in {span(due_s)}{at}{how}."


def _begun(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    """That an account is above the threshold of a step, and since when."""
    step, now = _step_of(entry, account), status.at
    since = step.since if step is not None else None
    lasting = f" since {clock_time(since, now)}" if since is not None and now is not None else ""
    return f"Its use {'has been' if lasting else 'is'} {threshold_in_bytes(entry, step, account, status)}{lasting}"


def _held(entry: PlanStatus, now: float | None) -> str:
    brake, due_s = entry.withheld_by, entry.due_in_s
    is_longest = brake == "pending" and entry.trying is None
    because = inert(entry.held_because or f"the brake {brake} holds", 1000)
    held = held_back(due_s, letting_go(entry.lets_go_in_s, due_s, now, is_longest=is_longest), because)
    if brake in _STANDING:
        return held
    return f"{held}; it {'then ' if due_s > 0 else ''}stays due as long as the use is above that threshold"


def _how(entry: PlanStatus, step: StepStatus | None) -> str:
    grace_s = step.grace_s if step is not None else None
    if grace_s is None:
        return ""
    if entry.do is Do.EVICT:
        return f", with a grace period of {format_duration(grace_s)}"
    return f" ({signals(grace_s)})"


def _step_of(entry: PlanStatus, account: AccountStatus) -> StepStatus | None:
    return next((each for each in account.ladder if each.step == entry.step), None)


def _step(step: StepStatus, account: AccountStatus, status: Status) -> str:
    """A step of the ladder as a clause: `kill container main above 11.2Gi (110% of what it may use) for 10s`."""
    for_s = step.for_s or 0
    lasting = f" for {format_duration(for_s)}" if for_s else ", immediately"
    return f"{step.do.verb.base}{aim(step, account)} {threshold_in_bytes(step, step, account, status)}{lasting}"
