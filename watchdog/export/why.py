"""Why a pod was or was not acted on: sentences about one account of a status, for people who know nothing of this.

They are made from the JSON of `/api/status`, so that any daemon that can be reached can be asked.
"""

from collections.abc import Iterator
from typing import Final

from watchdog.core.protect import TERMINATING
from watchdog.core.units import format_bytes
from watchdog.export.phrases import clock_time, count, inert
from watchdog.export.status_read import Part
from watchdog.export.why_next import following

_MOST_GAPS: Final = 3

Paragraph = tuple[str, ...]


def account_paragraphs(account: Part, status: Part) -> tuple[Paragraph, ...]:
    """How an account stands; by which rule something follows, and what; what can be changed."""
    groups = ((_use, _allowed, _standing, _declarations), (_rule, following), (_change,))
    written = (tuple(text for part in group for text in part(account, status)) for group in groups)
    return tuple(paragraph for paragraph in written if paragraph)


def account_name(account: Part) -> str:
    """Whom an account belongs to: `pod a/trainer`, `container main of pod a/trainer`."""
    pod = f"pod {inert(account.text('namespace') or '')}/{inert(account.text('pod') or '')}"
    container = account.text("container")
    if container is None:
        return pod
    return f"container {inert(container)} of {pod}" if container else f"an unknown container of {pod}"


def _use(account: Part, status: Part) -> Iterator[str]:
    used, at_least, gpu = account.whole("used"), account.whole("used_at_least") or 0, account.text("gpu")
    where = f" on {inert(gpu)}" if gpu is not None else ""
    name = account_name(account)
    subject = name[:1].upper() + name[1:]
    if used is None and not at_least and status.text("maintenance") is not None:
        yield f"What {name} uses is not known while the GPUs' driver is let go."
    elif used is None:
        yield from _unknown_use(account, name, where)
    elif used:
        yield f"{subject} uses {format_bytes(used)} of GPU memory{where}."
    else:
        yield f"{subject} uses no GPU memory{where}."
        yield from _strangers(status)
    if account.text("container") == "":
        yield (
            "That memory belongs to processes of a container that the pod list does not name, or not yet: it is "
            "counted, and nobody is ever killed or evicted for it."
        )


def _unknown_use(account: Part, name: str, where: str) -> Iterator[str]:
    at_least, most = account.whole("used_at_least") or 0, account.whole("used_at_most")
    subject = name[:1].upper() + name[1:]
    if at_least:
        yield f"{subject} uses at least {format_bytes(at_least)} of GPU memory{where}; how much more is not known now."
    else:
        yield f"How much GPU memory {name} uses{where} is not known now."
    if most is not None:
        yield f"By the counter of its GPU it is at most {format_bytes(most)}{' in all' if at_least else ''}."


def _strangers(status: Part) -> Iterator[str]:
    """What processes use whose pod can't be told: a pod that seems to use nothing may be theirs."""
    uses = [each for each in status.parts("unattributed") if each.text("reason") in ("unknown_pod", "spoofed")]
    if uses:
        amount = format_bytes(sum(each.whole("used") or 0 for each in uses))
        yield f"Processes whose pod can't be told use {amount} on this node; that is charged to nobody."


def _allowed(account: Part, _status: Part) -> Iterator[str]:
    allowed, declared, by = account.whole("allowed"), account.whole("declared"), account.text("declared_by")
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
    requested, by_request = account.whole("requested"), account.whole("allowed_by_request")
    if requested is not None and by_request is not None and by_request < allowed:
        yield (
            f"It has named a limit above the {format_bytes(requested)} that it requested: while its GPU is short of "
            f"memory only the request counts, and it may use {format_bytes(by_request)}."
        )


def _allowance(account: Part) -> str:
    """How the allowance adds up, where it can be told."""
    allowance = account.part("allowance")
    if allowance is None:
        return ""
    percent, each, contexts = allowance.text("percent"), allowance.whole("per_context"), allowance.whole("contexts")
    parts = [f"{inert(percent)} of what is declared"] if percent is not None and percent != "0%" else []
    if each and contexts:
        parts.append(f"{format_bytes(each)} for each process on each GPU, {count(contexts, 'time')} here")
    return f" ({', and '.join(parts)})" if parts else ""


def _standing(account: Part, status: Part) -> Iterator[str]:
    verdict, allowed, at_least = account.text("verdict"), account.whole("allowed"), account.whole("used_at_least") or 0
    if verdict == "over" and allowed is not None:
        since, now = account.moment("over_since"), status.moment("at")
        lasting = f", and has been since {clock_time(since, now)}" if since is not None and now is not None else ""
        yield f"That is {format_bytes(at_least - allowed)} too much{lasting}."
    elif verdict == "within":
        yield "That is within what it may use."
    elif verdict == "undeclared" and account.text("container") != "":
        yield "It declares no GPU memory in any way that the policy knows, so it is measured and left alone."
        key = account.text("declare_by")
        if key is not None:
            yield f"It can declare some by {inert(key)}; then it is held to that."
    elif verdict == "misdeclared":
        yield "What it declares can't be true, and nothing else holds in its place, so it is measured and left alone."
    elif verdict == "unknown":
        unknown = "What it may use is not known now" if allowed is None else "Whether that is too much is not known now"
        yield f"{unknown}, and nobody is killed or evicted on a guess."
        most = account.whole("used_at_most")
        if allowed is not None and most is not None and most <= allowed:
            yield f"Even {format_bytes(most)} would be within what it may use."
    if account.whole("used") is None or verdict == "unknown":
        silent = sum(1 for process in account.parts("processes") if process.whole("used") is None)
        # Under maintenance nobody asks the driver; that it is let go is said of the node.
        if silent and status.text("maintenance") is None:
            yield f"The driver does not tell how much {count(silent, 'process', 'processes')} of it uses."
        yield from _gaps(account, status)


def _gaps(account: Part, status: Part) -> Iterator[str]:
    """What could not be learned: of this account's GPUs where any gap is, or else of the node and of this pod."""
    named = [(gap.text("what") or "", gap.text("why") or "") for gap in status.parts("gaps")]
    gaps = [gap for gap in named if _concerns(*gap, account, status)]
    own = {process.text("gpu") or "" for process in account.parts("processes")} | {account.text("gpu") or ""}
    mine = [gap for gap in gaps if any(gpu and gpu in gap[0] for gpu in own)] or gaps
    for what, why in mine[:_MOST_GAPS]:
        yield f"What could not be learned: {inert(what)}: {inert(why, 600).rstrip('.')}."
    if len(mine) > _MOST_GAPS:
        yield f"There is more that could not be learned: {count(len(mine) - _MOST_GAPS, 'thing')}."


def _concerns(what: str, why: str, account: Part, status: Part) -> bool:
    """Whether a gap says something of this account that is not said elsewhere: tenants are not shown each other."""
    namespace, pod, unknown = account.text("namespace") or "", account.text("pod") or "", account.text("rule_unknown")
    if why == unknown or (what == "NVML" and status.text("maintenance") is not None):
        return False
    for noun in ("labels of namespace ", "namespace "):
        if what.startswith(noun):
            return what == f"{noun}{namespace}"
    if what.startswith("namespaces"):
        return unknown is not None
    is_pod = what.startswith("pod ") and not what.startswith("pod file")
    return not is_pod or what == f"pod {namespace}/{pod}"


def _declarations(account: Part, _status: Part) -> Iterator[str]:
    holds = account.whole("declared") is not None
    for skipped in account.parts("misdeclarations"):
        source, why = skipped.text("source") or "", skipped.text("why") or ""
        instead = "; what is said above holds instead" if holds else ""
        reason = inert(why, 600).rstrip(".")
        end = "" if reason.endswith("?") and not instead else "."
        yield f"The declaration {inert(source)} was skipped: {reason}{instead}{end}"


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
    if protected is not None:
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
