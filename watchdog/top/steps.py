"""What comes next for an account: read from the plan, and told in a few words while its time runs down."""

from typing import Final

from watchdog.export.phrases import inert, span
from watchdog.export.status_read import Part, hangs_since, is_of
from watchdog.top.values import Account, Next

# Spans are told in whole seconds: tenths would only flicker.
_DONE: Final = {"kill": "kill", "evict": "eviction", "warn": "warning"}


def coming(account: Part, status: Part) -> tuple[Next | None, Next | None]:
    """What comes first for an account, and the first force behind it where that only warns."""
    idle = account.flag("observes") or not status.flag("enforcing")
    hangs = hangs_since(status) is not None
    entries = [_planned(entry, would=idle, hangs=hangs) for entry in status.parts("plan") if is_of(entry, account)]
    under_way = account.part("under_way")
    if under_way is not None:
        return _begun(under_way, status), None
    if not entries:
        return None, None
    force = next((each for each in entries[1:] if each.do != "warn"), None)
    return entries[0], force if entries[0].do == "warn" else None


def _begun(under_way: Part, status: Part) -> Next:
    killed, at = under_way.moment("sigkill_at"), status.moment("at")
    left_s = killed - at if killed is not None and at is not None and killed > at else None
    if hangs_since(status) is not None:
        left_s = None  # nobody is there to send it
    return Next(do=inert(under_way.text("do") or "", 20), begun=True, left_s=left_s)


def _planned(entry: Part, *, would: bool, hangs: bool) -> Next:
    trying = entry.part("trying")
    return Next(
        do=inert(entry.text("do") or "", 20),
        scope=inert(entry.text("scope") or "", 20),
        above=inert(entry.text("above") or "", 40),
        due_s=max(entry.number("due_in_s") or 0.0, 0.0),
        would=would,
        put_off=hangs,
        held=inert(entry.text("withheld_by") or "", 40),
        because=inert(entry.text("held_because") or "", 600),
        lets_go_s=entry.number("lets_go_in_s"),
        begun=trying is not None and not hangs,
        left_s=trying.number("next_in_s") if trying is not None else None,
        tries=(trying.whole("tries") or 0) if trying is not None else 0,
        blocked=trying is not None and trying.flag("blocked"),
    )


def left_s(account: Account, elapsed_s: float) -> float | None:
    """Seconds until something happens to an account: 0 where it does now; None: nothing is to come."""
    step = account.next
    if step is None:
        return None
    if step.begun:
        return 0.0
    if step.put_off:
        return float("inf")
    held_s = 0.0 if not step.held else step.lets_go_s if step.lets_go_s is not None else float("inf")
    return max(max(step.due_s, held_s) - elapsed_s, 0.0)


def short(step: Next | None, elapsed_s: float) -> str:
    """A step in few words, so many seconds after the pass: `kill in 4s`, `kill held: owner, 3m`; `-` for none."""
    if step is None:
        return "-"
    if step.begun:
        return _progress(step, elapsed_s)
    if step.put_off:
        return f"{step.do} put off"
    would = "would " if step.would else ""
    due_s = step.due_s - elapsed_s
    if step.held and due_s <= 0:
        return f"{step.do} held: {step.held}{_letting_go(step, elapsed_s, ', ').replace('m ', 'm')}"
    return f"{would}{step.do} {_in(due_s)}".replace("m ", "m").replace("h ", "h")


def long(account: Account, elapsed_s: float) -> str:
    """The same with the mark, with what holds it back and why, and with what follows a warning."""
    step, then = account.next, account.then
    if step is None:
        return f"never acted on: {account.protected}" if account.protected else "-"
    if step.begun:
        return _progress(step, elapsed_s)
    told = _step(step, elapsed_s)
    return f"{told}; then {_step(then, elapsed_s)}" if then is not None else told


def _step(step: Next, elapsed_s: float) -> str:
    would = "would " if step.would else ""
    what = " ".join(filter(None, (step.do, step.scope, f"above {step.above}" if step.above else "")))
    if step.put_off:
        return f"{what}, put off until a pass ends again"
    told = f"{would}{what} {_in(step.due_s - elapsed_s)}"
    if not step.held:
        return told
    then = " then" if step.due_s - elapsed_s > 0 else ""
    why = f": {step.because}" if step.because else ""
    return f"{told}, held back{then} ({step.held}{_letting_go(step, elapsed_s, ', ')}){why}"


def _progress(step: Next, elapsed_s: float) -> str:
    what = _DONE.get(step.do, step.do) or "deed"
    left = step.left_s - elapsed_s if step.left_s is not None else 0.0
    if step.tries:
        state = "blocked" if step.blocked else "refused"
        again = f", again in {_span(left)}" if left > 0 else ""
        return f"{what} {state}, try {step.tries}{again}"
    return f"{what} begun, SIGKILL in {_span(left)}" if left > 0 else f"{what} under way"


def _letting_go(step: Next, elapsed_s: float, before: str) -> str:
    if step.lets_go_s is None:
        return ""
    return f"{before}{_span(step.lets_go_s - elapsed_s)}" if step.lets_go_s > elapsed_s else ""


def _in(seconds: float) -> str:
    return f"in {_span(seconds)}" if seconds > 0 else "now"


def _span(seconds: float) -> str:
    """A span that runs down, in whole seconds, rounded up: at 0 it is over."""
    return span(float(-(-seconds // 1)))
