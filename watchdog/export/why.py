"""Why a pod was or was not acted on: sentences about one account of a status, for people who know nothing of this.

They are made from the JSON of `/api/status`, so that any daemon that can be reached can be asked.
"""

from collections.abc import Iterator

from watchdog.core.rules import TERMINATING
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part
from watchdog.export.why_declared import may_use, skipped, standing
from watchdog.export.why_next import following
from watchdog.export.why_use import use

Paragraph = tuple[str, ...]


def account_paragraphs(account: Part, status: Part) -> tuple[Paragraph, ...]:
    """How an account stands; by which rule something follows, and what; what can be changed."""
    groups = ((use, may_use, standing, skipped), (_rule, following), (_change,))
    written = (tuple(text for part in group for text in part(account, status)) for group in groups)
    return tuple(paragraph for paragraph in written if paragraph)


def _rule(account: Part, status: Part) -> Iterator[str]:
    rule, unknown = account.text("rule"), account.text("rule_unknown")
    if unknown is not None:
        yield f"Which rule is for it can't be said: {inert(unknown, 600).rstrip('.')}."
        return
    if rule is None:
        yield "No rule of the policy is for this pod, so it is measured and left alone."
        return
    ladder = account.parts("ladder")
    more = ""
    if account.text("verdict") == "undeclared":
        more = ", which has no default for a pod that declares nothing"
    elif ladder and all(step.text("do") == "warn" for step in ladder):
        more = ", which only warns: it kills and evicts nobody"
    yield f"The rule for it is {inert(rule)}{more}."
    protected = account.text("protected")
    if protected == TERMINATING and account.part("under_way") is not None:
        return  # by the very deed of which is told next
    if protected == TERMINATING:
        yield f"This pod is not killed or evicted at the moment: {TERMINATING}."
    elif protected is not None:
        yield f"This pod is never killed or evicted, whatever it uses: {inert(protected, 600)}."
    elif account.flag("observes"):
        yield _observing(account, status)


def _observing(account: Part, status: Part) -> str:
    active = account.part("active")
    nothing = "everything is worked out and recorded, and nothing is done"
    if active is None or active.flag("now"):
        return f"That rule only observes: {nothing}."
    changes, at, now = active.text("changes"), active.moment("changes_at"), status.moment("at")
    until = ""
    if changes is not None and at is not None and now is not None:
        until = f" They begin {inert(changes)} ({clock_time(at, now)})."
    return f"That rule only observes outside its hours, {inert(active.text('hours') or '')}: now {nothing}.{until}"


def _change(account: Part, _status: Part) -> Iterator[str]:
    advice = account.text("advice")
    if advice is not None:
        yield f"To stay within what it may use, {inert(advice, 1000)}."
