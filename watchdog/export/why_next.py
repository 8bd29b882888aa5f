"""What follows for one account of a status: what is under way, what comes when, what holds it back, what lies ahead."""

from collections.abc import Iterator
from typing import Final

from watchdog.core.units import format_bytes, format_duration
from watchdog.export.brake_words import for_another, until
from watchdog.export.phrases import clock_time, inert, span
from watchdog.export.status_read import Part, hangs_since, is_of

_DONE: Final = {"warn": "warned", "kill": "killed", "evict": "evicted"}
_DOING: Final = {"kill": "killing", "evict": "evicting"}
# These hold as long as things are as they are; of the others it is worth saying that the step waits for them.
_STANDING: Final = ("protected", "unknown_container", "mps")


def following(account: Part, status: Part) -> Iterator[str]:
    """Sentences about what the account's rule is up to."""
    under_way = account.part("under_way")
    if under_way is not None:
        yield _under_way(under_way, status)
    entries = [entry for entry in status.parts("plan") if is_of(entry, account)]
    for entry in entries:
        if not _is_force(entry):
            yield _warning(entry, account, status)
        elif under_way is not None and entry.text("withheld_by") == "pending":
            yield f"{_begun(entry, account, status)}."
        elif not _is_said(entry, entries):
            yield _force(entry, account, status)
    ahead = [step for step in account.parts("ladder") if _lies_ahead(step)]
    if ahead and account.text("protected") is None:
        is_held = any(_is_force(entry) and entry.text("withheld_by") is not None for entry in entries)
        breaker = status.part("breaker")
        is_free = not is_held and not (breaker is not None and breaker.flag("open"))
        verb = "does" if is_free and _acts(account, status) else "would do"
        further = " further up" if entries else ""
        yield f"What that rule {verb}{further}: {'; '.join(_step(step, account, status) for step in ahead)}."


def _lies_ahead(step: Part) -> bool:
    return step.text("state") != "above" and step.whole("height") is not None


def _is_force(entry: Part) -> bool:
    return entry.text("do") != "warn"


def _is_said(entry: Part, entries: list[Part]) -> bool:
    """Whether a step that comes before says it all, or one that is held back: the brake would hold this one too."""
    if _is_now(entry) or entry.text("withheld_by") is not None:
        return False
    others = [each for each in entries if _is_force(each) and each is not entry]
    is_held = any(each.text("withheld_by") not in (None, "pending") for each in others)
    return is_held or any(_is_now(each) for each in others)


def _is_now(entry: Part) -> bool:
    return (entry.number("due_in_s") or 0) <= 0 and entry.text("withheld_by") is None


def _acts(account: Part, status: Part) -> bool:
    is_held = status.flag("pods_stale") or hangs_since(status) is not None
    return status.flag("enforcing") and not account.flag("observes") and not is_held


def _under_way(under_way: Part, status: Part) -> str:
    container, grace_s = under_way.text("container"), under_way.number("grace_s") or 0
    if under_way.text("do") == "evict":
        return _eviction(grace_s, status)
    whose = f"container {inert(container)}" if container is not None else "this pod"
    got = _got(under_way, grace_s, status)
    timeout_s = status.number("release_timeout_s")
    waits = f", at most {format_duration(timeout_s)}" if timeout_s else ""
    return f"A kill of {whose} is under way: its processes {got}, and then their memory is waited for{waits}."


def _eviction(grace_s: float, status: Part) -> str:
    timeout_s = status.number("release_timeout_s")
    waits = f", at most {format_duration(timeout_s)} longer than that" if timeout_s else ""
    return (
        f"An eviction of this pod is under way: the API server has accepted it, its containers have "
        f"{format_duration(grace_s)} to end, and then its memory is waited for{waits}."
    )


def _got(under_way: Part, grace_s: float, status: Part) -> str:
    """Which signal came, and which one comes when, as what its processes did."""
    killed, now = under_way.moment("sigkill_at"), status.moment("at")
    begun, sent, has_ended = under_way.moment("begun_at"), under_way.texts("signals"), under_way.flag("ended")
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
    left = "got" if "SIGKILL" in sent else "was to get" if is_past or hangs_since(status) is not None else "gets"
    return f"{got}, what {'was' if left == 'got' else 'is'} left of them {left} SIGKILL {at}"


def _warning(entry: Part, account: Part, status: Part) -> str:
    mark, due_s = _mark(entry, _step_of(entry, account), account, status), entry.number("due_in_s") or 0
    counts = _step_of(entry, account)
    has_counted = counts is not None and (counts.number("counted_s") or 0) >= (counts.number("for_s") or 0)
    acts = _acts(account, status)
    if hangs_since(status) is not None:
        return f"Its use was {mark}; the next warning for that is put off until a pass ends again."
    if due_s <= 0:
        return f"A warning {'is' if acts else 'would be'} given now, since its use is {mark}."
    if has_counted:
        given = "was given; it is" if acts else "would have been given; it would be"
        return f"A warning {given} repeated in {span(due_s)} if it stays {mark}."
    return f"A warning {'follows' if acts else 'would follow'} in {span(due_s)} if its use stays {mark}."


def _force(entry: Part, account: Part, status: Part) -> str:
    step, due_s, now = _step_of(entry, account), entry.number("due_in_s") or 0, status.moment("at")
    begun = _begun(entry, account, status)
    do, whom, how = entry.text("do") or "kill", _whom(entry), _how(entry, step)
    if entry.text("withheld_by") == "protected" and account.text("protected") is not None:
        return f"{begun}; a pod that is not protected would be {_DONE.get(do, do)} for it."
    if hangs_since(status) is not None:
        return f"{begun}; {_DOING.get(do, 'acting on')} {whom} for that is put off until a pass ends again."
    if entry.text("withheld_by") is not None:
        return f"{begun}; {_held(entry, whom, due_s, now)}."
    acts, done = _acts(account, status), _DONE.get(do, do)
    if due_s <= 0 and acts:
        is_one = do == "evict" or entry.text("scope") == "process"
        return f"{begun}, so {whom} {'is' if is_one else 'are'} being {done} now{how}."
    if due_s <= 0:
        return f"{begun}, and {whom} would be {done} for it; nothing is done."
    # While the pod list is stale no time counts.
    at = f", at {clock_time(now + due_s, now)}" if now is not None and not status.flag("pods_stale") else ""
    return f"{begun}; if it stays there, {whom} {'will' if acts else 'would'} be {done} in {span(due_s)}{at}{how}."


def _begun(entry: Part, account: Part, status: Part) -> str:
    """That an account is above the mark of a step, and since when."""
    step, now = _step_of(entry, account), status.moment("at")
    since = step.moment("since") if step is not None else None
    lasting = f" since {clock_time(since, now)}" if since is not None and now is not None else ""
    return f"Its use {'has been' if lasting else 'is'} {_mark(entry, step, account, status)}{lasting}"


def _held(entry: Part, whom: str, due_s: float, now: float | None) -> str:
    brake, lets_go_s = entry.text("withheld_by"), entry.number("lets_go_in_s")
    when = f"would be due in {span(due_s)}" if due_s > 0 else "is due"
    held = "held back then" if due_s > 0 else "held back"
    if lets_go_s is not None and now is not None:
        is_longest = brake == "pending" and entry.part("trying") is None
        held += until(lets_go_s, now) if due_s > 0 else for_another(lets_go_s, now, most=is_longest)
    because = inert(entry.text("held_because") or f"the brake {brake} holds", 1000)
    stays = (
        ""
        if brake in _STANDING
        else f"; it {'then ' if due_s > 0 else ''}stays due as long as the use is above that mark"
    )
    return f"{_DOING.get(entry.text('do') or '', 'this')} {whom} {when}, but {held}, because {because}{stays}"


def _whom(entry: Part) -> str:
    container, scope = entry.text("container"), entry.text("scope")
    if entry.text("do") == "evict":
        return "the pod"
    whose = f"container {inert(container)}" if container else "the pod"
    if scope == "pod":
        return "all processes in the containers of the pod"
    return f"the largest GPU process of {whose}" if scope == "process" else f"all processes of {whose}"


def _how(entry: Part, step: Part | None) -> str:
    grace_s = step.number("grace_s") if step is not None else None
    if grace_s is None:
        return ""
    if entry.text("do") == "evict":
        return f", with a grace period of {format_duration(grace_s)}"
    return f" (SIGTERM, then SIGKILL after {format_duration(grace_s)})" if grace_s else " (SIGKILL at once)"


def _step_of(entry: Part, account: Part) -> Part | None:
    return next((each for each in account.parts("ladder") if each.whole("step") == entry.whole("step")), None)


def _step(step: Part, account: Part, status: Part) -> str:
    """A step of the ladder as a clause: `kill container main above 11.2Gi (110% of what it may use) for 10s`."""
    do, for_s = step.text("do") or "", step.number("for_s") or 0
    lasting = f" for {format_duration(for_s)}" if for_s else ", at once"
    return f"{inert(do)}{_aim(step, account)} {_mark(step, step, account, status)}{lasting}"


def _aim(step: Part, account: Part) -> str:
    """Whom a step that is not above its mark would hit."""
    if step.text("do") != "kill":
        return " the pod" if step.text("do") == "evict" else ""
    if step.text("scope") == "pod":
        return " all containers"
    only = {process.text("container") or "" for process in account.parts("processes")} | {account.text("container")}
    named = sorted(name for name in only if name)
    whose = f"container {inert(named[0])}" if len(named) == 1 else "the container that is most over"
    return f" the largest GPU process of {whose}" if step.text("scope") == "process" else f" {whose}"


def _mark(entry: Part, step: Part | None, account: Part, status: Part) -> str:
    """A mark in bytes and in the policy's words: `above 11.2Gi (110% of what it may use)`."""
    height, above = entry.whole("height"), inert(entry.text("above") or "")
    is_pressure = step is not None and step.flag("under_pressure")
    by_request = is_pressure and account.whole("allowed_by_request") is not None
    base = "what it may use by its request" if by_request else "what it may use"
    words = f" ({above} of {base})" if above.endswith("%") and height else ""
    words = f" ({above.removeprefix('+')} more than {base})" if above.startswith("+") else words
    if is_pressure:
        card, free = entry.text("card"), status.text("free_below")
        words += f" while {inert(card) if card is not None else 'its GPU'} is short of memory"
        words += f" (less than {inert(free)} of it free)" if free is not None else ""
    return f"above {format_bytes(height) if height else above if height is None else 'zero'}{words}"
