"""What an account declares and may use, and how its use compares with that."""

from collections.abc import Iterator

from watchdog.core.units import format_bytes
from watchdog.export.phrases import clock_time, count, inert
from watchdog.export.status_read import Part
from watchdog.export.why_use import gaps


def may_use(account: Part, _status: Part) -> Iterator[str]:
    """What it may use, and by what declaration."""
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


def standing(account: Part, status: Part) -> Iterator[str]:
    """Whether that is too much, as far as it is known."""
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
        yield from gaps(account, status)


def skipped(account: Part, _status: Part) -> Iterator[str]:
    """Which declarations were skipped, and why; and which count although they can hardly be meant."""
    holds = account.whole("declared") is not None
    for each in account.parts("misdeclarations"):
        source, why = each.text("source") or "", each.text("why") or ""
        if each.flag("counts"):
            yield f"The declaration {inert(source)} counts as written: {inert(why, 600)}"
            continue
        instead = "; what is said above holds instead" if holds else ""
        reason = inert(why, 600).rstrip(".")
        end = "" if reason.endswith("?") and not instead else "."
        yield f"The declaration {inert(source)} was skipped: {reason}{instead}{end}"
