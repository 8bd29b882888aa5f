"""Why something follows for an account or does not, in sentences, from the status of a daemon."""

from collections.abc import Iterator
from typing import Final, assert_never

from watchdog.core.policy import Do
from watchdog.core.rules import TERMINATING
from watchdog.core.units import format_bytes, format_duration
from watchdog.report.brakes import for_another, until
from watchdog.report.status import AccountStatus, PlanStatus, Status, StepStatus, UnderWayStatus
from watchdog.report.text import clock_time, count, inert, span

_MOST_GAPS: Final = 3


def _account_name(account: AccountStatus) -> str:
    """Whom an account belongs to: `pod a/trainer`, `container main of pod a/trainer`."""
    pod = f"pod {inert(account.namespace or '')}/{inert(account.pod or '')}"
    container = account.container
    if container is None:
        return pod
    return f"container {inert(container)} of {pod}" if container else f"an unknown container of {pod}"


def use(account: AccountStatus, status: Status) -> Iterator[str]:
    """What it uses, or that this is not known."""
    used, at_least, gpu = account.used, account.used_at_least or 0, account.gpu
    where = f" on {inert(gpu)}" if gpu is not None else ""
    name = _account_name(account)
    subject = name[:1].upper() + name[1:]
    if used is None and not at_least and status.maintenance is not None:
        yield f"What {name} uses is not known while the GPUs' driver is let go."
    elif used is None:
        yield from _unknown_use(account, name, where)
    elif used:
        yield f"{subject} uses {format_bytes(used)} of GPU memory{where}."
    else:
        yield f"{subject} uses no GPU memory{where}."
        yield from _strangers(status)
    if account.behind and account.container is None:
        yield from _unlisted(account)
    if account.container == "":
        yield (
            "That memory belongs to processes of a container that the pod list does not name, or not yet: it is "
            "counted, and nobody is ever killed or evicted for it."
        )


def _unknown_use(account: AccountStatus, name: str, where: str) -> Iterator[str]:
    at_least, most = account.used_at_least or 0, account.used_at_most
    subject = name[:1].upper() + name[1:]
    if at_least:
        yield f"{subject} uses at least {format_bytes(at_least)} of GPU memory{where}; how much more is not known now."
    else:
        yield f"How much GPU memory {name} uses{where} is not known now."
    if most is not None:
        yield f"By the counter of its GPU it is at most {format_bytes(most)}{' in all' if at_least else ''}."


def _unlisted(account: AccountStatus) -> Iterator[str]:
    """What a pod uses in containers that the pod list does not have."""
    there = [each.used or 0 for each in account.processes if not each.container]
    if there:
        yield (
            f"{format_bytes(sum(there))} is in a container that the pod list does not have yet. It counts once the "
            "list has it, or a minute after it was first seen; that container is never killed before the list has it."
        )


def _strangers(status: Status) -> Iterator[str]:
    """What processes use whose pod can't be told: a pod that seems to use nothing may be theirs."""
    uses = [each for each in status.unattributed if each.reason in ("unknown_pod", "spoofed")]
    if uses:
        amount = format_bytes(sum(each.used or 0 for each in uses))
        yield f"Processes whose pod can't be told use {amount} on this node; that is charged to nobody."


def gaps(account: AccountStatus, status: Status) -> Iterator[str]:
    """What could not be learned: of this account's GPUs where any gap is, or else of the node and of this pod."""
    named = [(gap.what, gap.text) for gap in status.gaps]
    gaps = [gap for gap in named if _concerns(*gap, account, status)]
    own = {process.gpu or "" for process in account.processes} | {account.gpu or ""}
    mine = [gap for gap in gaps if any(gpu and gpu in gap[0] for gpu in own)] or gaps
    for what, why in mine[:_MOST_GAPS]:
        yield f"What could not be learned: {inert(what)}: {inert(why, 600).rstrip('.')}."
    if len(mine) > _MOST_GAPS:
        yield f"There is more that could not be learned: {count(len(mine) - _MOST_GAPS, 'thing')}."


def _concerns(what: str, why: str, account: AccountStatus, status: Status) -> bool:
    """Whether a gap says something of this account that is not said elsewhere: tenants are not shown each other."""
    namespace, pod, unknown = account.namespace or "", account.pod or "", account.rule_unknown
    if why == unknown or (what == "NVML" and status.maintenance is not None):
        return False
    for noun in ("labels of namespace ", "namespace "):
        if what.startswith(noun):
            return what == f"{noun}{namespace}"
    if what.startswith("namespaces"):
        return unknown is not None
    if what.startswith("container "):
        return what.endswith(f" of pod {namespace}/{pod}")
    is_pod = what.startswith("pod ") and not what.startswith("pod file")
    return not is_pod or what == f"pod {namespace}/{pod}"


def may_use(account: AccountStatus, _status: Status) -> Iterator[str]:
    """What it may use, and by what declaration."""
    allowed, declared, by = account.allowed, account.declared, account.declared_by
    if allowed is None or declared is None:
        return
    top = f"{format_bytes(allowed - declared)} on top for what the GPU's driver takes{_allowance(account)}"
    if by == "default":
        start, origin = "It declares no GPU memory, so the default of its rule holds: it", "by that default"
    else:
        start, origin = "It", f"declared by {inert(by or 'nothing')}"
    if allowed == 0:
        yield f"{start} may use none (0 {origin})."
    elif allowed == declared:
        yield f"{start} may use {format_bytes(allowed)}, {origin}."
    else:
        yield f"{start} may use {format_bytes(allowed)}: {format_bytes(declared)} {origin}, and {top}."
    requested, by_request = account.requested, account.allowed_by_request
    if requested is not None and by_request is not None and by_request < allowed:
        yield (
            f"It has named a limit above the {format_bytes(requested)} that it requested: while its GPU is short of "
            f"memory only the request counts, and it may use {format_bytes(by_request)}."
        )


def _allowance(account: AccountStatus) -> str:
    """How the allowance adds up, where it can be told."""
    allowance = account.allowance
    if allowance is None:
        return ""
    percent, each, contexts = allowance.percent, allowance.per_context, allowance.contexts
    parts = [f"{inert(percent)} of what is declared"] if percent is not None and percent != "0%" else []
    if each and contexts:
        parts.append(f"{format_bytes(each)} for each process on each GPU, {count(contexts, 'time')} here")
    return f" ({', and '.join(parts)})" if parts else ""


def standing(account: AccountStatus, status: Status) -> Iterator[str]:
    """Whether that is too much, as far as it is known."""
    verdict, allowed, at_least = account.verdict, account.allowed, account.used_at_least or 0
    if verdict == "over" and allowed is not None:
        since, now = account.over_since, status.at
        lasting = f", and has been since {clock_time(since, now)}" if since is not None and now is not None else ""
        yield f"That is {format_bytes(at_least - allowed)} too much{lasting}."
    elif verdict == "within":
        yield "That is within what it may use."
    elif verdict == "undeclared" and account.container != "":
        yield "It declares no GPU memory in any way that the policy knows, so it is measured and left alone."
        key = account.declare_by
        if key is not None:
            yield f"It can declare some by {inert(key)}; then it is held to that."
    elif verdict == "misdeclared":
        yield "What it declares can't be true, and nothing else holds in its place, so it is measured and left alone."
    elif verdict == "unknown":
        unknown = "What it may use is not known now" if allowed is None else "Whether that is too much is not known now"
        yield f"{unknown}, and nobody is killed or evicted on a guess."
        most = account.used_at_most
        if allowed is not None and most is not None and most <= allowed:
            yield f"Even {format_bytes(most)} would be within what it may use."
    if account.used is None or verdict == "unknown":
        silent = sum(1 for process in account.processes if process.used is None)
        # Under maintenance nobody asks the driver; that it is let go is said of the node.
        if silent and status.maintenance is None:
            yield f"The driver does not tell how much {count(silent, 'process', 'processes')} of it uses."
        yield from gaps(account, status)


def skipped(account: AccountStatus, _status: Status) -> Iterator[str]:
    """Which declarations were skipped, and why; and which count although they can hardly be meant."""
    holds = account.declared is not None
    for each in account.misdeclarations:
        source, why = each.source or "", each.why or ""
        if each.counts:
            yield f"The declaration {inert(source)} counts as written: {inert(why, 600)}"
            continue
        instead = "; what is said above holds instead" if holds else ""
        reason = inert(why, 600).rstrip(".")
        end = "" if reason.endswith("?") and not instead else "."
        yield f"The declaration {inert(source)} was skipped: {reason}{instead}{end}"


# These hold as long as things are as they are; of the others it is worth saying that the step waits for them.
_STANDING: Final = ("protected", "unknown_container", "mps")


def following(account: AccountStatus, status: Status) -> Iterator[str]:
    """Sentences about what the account's rule is up to."""
    under_way = account.under_way
    if under_way is not None:
        yield under_way_sentence(under_way, status)
    entries = [entry for entry in status.plan if entry.is_of(account)]
    for entry in entries:
        if not entry.do.is_force:
            yield _warning(entry, account, status)
        elif under_way is not None and entry.withheld_by == "pending":
            yield f"{_begun(entry, account, status)}."
        elif not _is_said(entry, entries):
            yield _force(entry, account, status)
    ahead = [step for step in account.ladder if _lies_ahead(step)]
    if ahead and account.protected is None:
        is_held = any(entry.do.is_force and entry.withheld_by is not None for entry in entries)
        breaker = status.breaker
        is_free = not is_held and not (breaker is not None and breaker.open)
        verb = "does" if is_free and _acts(account, status) else "would do"
        further = " further up" if entries else ""
        yield f"What that rule {verb}{further}: {'; '.join(_step(step, account, status) for step in ahead)}."


def _lies_ahead(step: StepStatus) -> bool:
    return step.state != "above" and step.height is not None


def _is_said(entry: PlanStatus, entries: list[PlanStatus]) -> bool:
    """Whether a step that comes before says it all, or one that is held back: the brake would hold this one too."""
    if _is_now(entry) or entry.withheld_by is not None:
        return False
    others = [each for each in entries if each.do.is_force and each is not entry]
    is_held = any(each.withheld_by not in (None, "pending") for each in others)
    return is_held or any(_is_now(each) for each in others)


def _is_now(entry: PlanStatus) -> bool:
    return (entry.due_in_s or 0) <= 0 and entry.withheld_by is None


def _acts(account: AccountStatus, status: Status) -> bool:
    is_held = status.pods_stale or status.hangs_since is not None
    return status.enforcing and not account.observes and not is_held


def under_way_sentence(under_way: UnderWayStatus, status: Status) -> str:
    """What an action that has begun has come to: the signals, and that its memory is waited for."""
    match under_way.do:
        case Do.WARN:
            return "A warning is being given."
        case Do.EVICT:
            return _eviction(under_way.grace_s or 0, status)
        case Do.KILL | None:  # None: by a step that the rule does not have any more
            return _kill(under_way, status)
        case _:
            assert_never(under_way.do)


def _kill(under_way: UnderWayStatus, status: Status) -> str:
    whose = f"container {inert(under_way.container)}" if under_way.container is not None else "this pod"
    got = _got(under_way, under_way.grace_s or 0, status)
    timeout_s = status.release_timeout_s
    waits = f", at most {format_duration(timeout_s)}" if timeout_s else ""
    return f"A kill of {whose} is under way: its processes {got}, and then their memory is waited for{waits}."


def _eviction(grace_s: float, status: Status) -> str:
    timeout_s = status.release_timeout_s
    waits = f", at most {format_duration(timeout_s)} longer than that" if timeout_s else ""
    return (
        f"An eviction of this pod is under way: the API server has accepted it, its containers have "
        f"{format_duration(grace_s)} to end, and then its memory is waited for{waits}."
    )


def _got(under_way: UnderWayStatus, grace_s: float, status: Status) -> str:
    """Which signal came, and which one comes when, as what its processes did."""
    killed, now = under_way.sigkill_at, status.at
    begun, sent, has_ended = under_way.begun_at, under_way.signals, under_way.ended
    if has_ended and not sent:
        return "had ended before a signal was sent"
    if not grace_s:
        # A grace that a stronger step has ended: when is not told.
        at = f" at {clock_time(killed, now)}" if killed is not None and now is not None and killed <= now else ""
        return f"got {' and '.join(sent) or 'SIGKILL'}{at}{' and have ended' * has_ended}"
    got = f"got SIGTERM at {clock_time(begun, now)}" if begun is not None and now is not None else "got SIGTERM"
    if has_ended and "SIGKILL" not in sent:
        return f"{got} and have ended"
    at = f"after {format_duration(grace_s)}"
    is_past = killed is not None and now is not None and killed <= now
    if killed is not None and now is not None:
        at = f"at {clock_time(killed, now)}"
    left = "got" if "SIGKILL" in sent else "was to get" if is_past or status.hangs_since is not None else "gets"
    return f"{got}, what {'was' if left == 'got' else 'is'} left of them {left} SIGKILL {at}"


def _warning(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    mark, due_s = _mark(entry, _step_of(entry, account), account, status), entry.due_in_s or 0
    counts = _step_of(entry, account)
    has_counted = counts is not None and (counts.counted_s or 0) >= (counts.for_s or 0)
    acts = _acts(account, status)
    if status.hangs_since is not None:
        return f"Its use was {mark}; the next warning for that is put off until a pass ends again."
    if due_s <= 0:
        return f"A warning {'is' if acts else 'would be'} given now, since its use is {mark}."
    if has_counted:
        given = "was given; it is" if acts else "would have been given; it would be"
        return f"A warning {given} repeated in {span(due_s)} if it stays {mark}."
    return f"A warning {'follows' if acts else 'would follow'} in {span(due_s)} if its use stays {mark}."


def _force(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    step, due_s, now = _step_of(entry, account), entry.due_in_s or 0, status.at
    begun = _begun(entry, account, status)
    whom, how = _whom(entry), _how(entry, step)
    if entry.withheld_by == "protected" and account.protected is not None:
        return f"{begun}; a pod that is not protected would be {entry.do.verb.done} for it."
    if status.hangs_since is not None:
        return f"{begun}; {entry.do.verb.doing} {whom} for that is put off until a pass ends again."
    if entry.withheld_by is not None:
        return f"{begun}; {_held(entry, whom, due_s, now)}."
    acts, done = _acts(account, status), entry.do.verb.done
    if due_s <= 0 and acts:
        is_one = entry.do is Do.EVICT or entry.scope == "process"
        return f"{begun}, so {whom} {'is' if is_one else 'are'} being {done} now{how}."
    if due_s <= 0:
        return f"{begun}, and {whom} would be {done} for it; nothing is done."
    # While the pod list is stale no time counts.
    at = f", at {clock_time(now + due_s, now)}" if now is not None and not status.pods_stale else ""
    return f"{begun}; if it stays there, {whom} {'will' if acts else 'would'} be {done} in {span(due_s)}{at}{how}."


def _begun(entry: PlanStatus, account: AccountStatus, status: Status) -> str:
    """That an account is above the mark of a step, and since when."""
    step, now = _step_of(entry, account), status.at
    since = step.since if step is not None else None
    lasting = f" since {clock_time(since, now)}" if since is not None and now is not None else ""
    return f"Its use {'has been' if lasting else 'is'} {_mark(entry, step, account, status)}{lasting}"


def _held(entry: PlanStatus, whom: str, due_s: float, now: float | None) -> str:
    brake, lets_go_s = entry.withheld_by, entry.lets_go_in_s
    when = f"would be due in {span(due_s)}" if due_s > 0 else "is due"
    held = "held back then" if due_s > 0 else "held back"
    if lets_go_s is not None and now is not None:
        is_longest = brake == "pending" and entry.trying is None
        held += until(lets_go_s, now) if due_s > 0 else for_another(lets_go_s, now, most=is_longest)
    because = inert(entry.held_because or f"the brake {brake} holds", 1000)
    stays = (
        ""
        if brake in _STANDING
        else f"; it {'then ' if due_s > 0 else ''}stays due as long as the use is above that mark"
    )
    return f"{entry.do.verb.doing} {whom} {when}, but {held}, because {because}{stays}"


def _whom(entry: PlanStatus) -> str:
    whose = f"container {inert(entry.container)}" if entry.container else "the pod"
    match entry.do:
        case Do.WARN:
            return "its owner"
        case Do.EVICT:
            return "the pod"
        case Do.KILL if entry.scope == "pod":
            return "all processes in the containers of the pod"
        case Do.KILL:
            return f"the largest GPU process of {whose}" if entry.scope == "process" else f"all processes of {whose}"
        case _:
            assert_never(entry.do)


def _how(entry: PlanStatus, step: StepStatus | None) -> str:
    grace_s = step.grace_s if step is not None else None
    if grace_s is None:
        return ""
    if entry.do is Do.EVICT:
        return f", with a grace period of {format_duration(grace_s)}"
    return f" (SIGTERM, then SIGKILL after {format_duration(grace_s)})" if grace_s else " (SIGKILL at once)"


def _step_of(entry: PlanStatus, account: AccountStatus) -> StepStatus | None:
    return next((each for each in account.ladder if each.step == entry.step), None)


def _step(step: StepStatus, account: AccountStatus, status: Status) -> str:
    """A step of the ladder as a clause: `kill container main above 11.2Gi (110% of what it may use) for 10s`."""
    for_s = step.for_s or 0
    lasting = f" for {format_duration(for_s)}" if for_s else ", at once"
    return f"{step.do.verb.base}{_aim(step, account)} {_mark(step, step, account, status)}{lasting}"


def _aim(step: StepStatus, account: AccountStatus) -> str:
    """Whom a step that is not above its mark would hit."""
    match step.do:
        case Do.WARN:
            return ""
        case Do.EVICT:
            return " the pod"
        case Do.KILL if step.scope == "pod":
            return " all containers"
        case Do.KILL:
            return _killed(step, account)
        case _:
            assert_never(step.do)


def _killed(step: StepStatus, account: AccountStatus) -> str:
    only = {process.container or "" for process in account.processes} | {account.container}
    named = sorted(name for name in only if name)
    whose = f"container {inert(named[0])}" if len(named) == 1 else "the container that is most over"
    return f" the largest GPU process of {whose}" if step.scope == "process" else f" {whose}"


def _mark(entry: PlanStatus | StepStatus, step: StepStatus | None, account: AccountStatus, status: Status) -> str:
    """A mark in bytes and in the policy's words: `above 11.2Gi (110% of what it may use)`."""
    threshold_bytes, above = entry.height, inert(entry.above or "")
    is_pressure = step is not None and step.under_pressure
    by_request = is_pressure and account.allowed_by_request is not None
    base = "what it may use by its request" if by_request else "what it may use"
    words = f" ({above} of {base})" if above.endswith("%") and threshold_bytes else ""
    words = f" ({above.removeprefix('+')} more than {base})" if above.startswith("+") else words
    if is_pressure:
        card = entry.card if isinstance(entry, PlanStatus) else None
        free = status.free_below
        words += f" while {inert(card) if card is not None else 'its GPU'} is short of memory"
        words += f" (less than {inert(free)} of it free)" if free is not None else ""
    amount = format_bytes(threshold_bytes) if threshold_bytes else above if threshold_bytes is None else "zero"
    return f"above {amount}{words}"


Paragraph = tuple[str, ...]


def account_paragraphs(account: AccountStatus, status: Status) -> tuple[Paragraph, ...]:
    """How an account stands; by which rule something follows, and what; what can be changed."""
    groups = ((use, may_use, standing, skipped), (_rule, following), (_change,))
    written = (tuple(text for part in group for text in part(account, status)) for group in groups)
    return tuple(paragraph for paragraph in written if paragraph)


def _rule(account: AccountStatus, status: Status) -> Iterator[str]:
    rule, unknown = account.rule, account.rule_unknown
    if unknown is not None:
        yield f"Which rule is for it can't be said: {inert(unknown, 600).rstrip('.')}."
        return
    if rule is None:
        yield "No rule of the policy is for this pod, so it is measured and left alone."
        return
    ladder = account.ladder
    more = ""
    if account.verdict == "undeclared":
        more = ", which has no default for a pod that declares nothing"
    elif ladder and not any(step.do.is_force for step in ladder):
        more = ", which only warns: it kills and evicts nobody"
    yield f"The rule for it is {inert(rule)}{more}."
    protected = account.protected
    if protected == TERMINATING and account.under_way is not None:
        return  # by the very action of which is told next
    if protected == TERMINATING:
        yield f"This pod is not killed or evicted at the moment: {TERMINATING}."
    elif protected is not None:
        yield f"This pod is never killed or evicted, whatever it uses: {inert(protected, 600)}."
    elif account.observes:
        yield _observing(account, status)


def _observing(account: AccountStatus, status: Status) -> str:
    active = account.active
    nothing = "everything is worked out and recorded, and nothing is done"
    if active is None or active.now:
        return f"That rule only observes: {nothing}."
    changes, at, now = active.changes, active.changes_at, status.at
    until = ""
    if changes is not None and at is not None and now is not None:
        until = f" They begin {inert(changes)} ({clock_time(at, now)})."
    return f"That rule only observes outside its hours, {inert(active.hours or '')}: now {nothing}.{until}"


def _change(account: AccountStatus, _status: Status) -> Iterator[str]:
    advice = account.advice
    if advice is not None:
        yield f"To stay within what it may use, {inert(advice, 1000)}."
