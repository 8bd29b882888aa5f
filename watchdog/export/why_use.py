"""What an account uses, and what of that could not be learned: the first sentences of why it was acted on or not."""

from collections.abc import Iterator
from typing import Final

from watchdog.core.units import format_bytes
from watchdog.export.phrases import count, inert
from watchdog.export.status_read import Part

_MOST_GAPS: Final = 3


def _account_name(account: Part) -> str:
    """Whom an account belongs to: `pod a/trainer`, `container main of pod a/trainer`."""
    pod = f"pod {inert(account.text('namespace') or '')}/{inert(account.text('pod') or '')}"
    container = account.text("container")
    if container is None:
        return pod
    return f"container {inert(container)} of {pod}" if container else f"an unknown container of {pod}"


def use(account: Part, status: Part) -> Iterator[str]:
    """What it uses, or that this is not known."""
    used, at_least, gpu = account.whole("used"), account.whole("used_at_least") or 0, account.text("gpu")
    where = f" on {inert(gpu)}" if gpu is not None else ""
    name = _account_name(account)
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
    if account.flag("behind") and account.text("container") is None:
        yield from _unlisted(account)
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


def _unlisted(account: Part) -> Iterator[str]:
    """What a pod uses in containers that the pod list does not have."""
    there = [each.whole("used") or 0 for each in account.parts("processes") if not each.text("container")]
    if there:
        yield (
            f"{format_bytes(sum(there))} is in a container that the pod list does not have yet. It counts once the "
            "list has it, or a minute after it was first seen; that container is never killed before the list has it."
        )


def _strangers(status: Part) -> Iterator[str]:
    """What processes use whose pod can't be told: a pod that seems to use nothing may be theirs."""
    uses = [each for each in status.parts("unattributed") if each.text("reason") in ("unknown_pod", "spoofed")]
    if uses:
        amount = format_bytes(sum(each.whole("used") or 0 for each in uses))
        yield f"Processes whose pod can't be told use {amount} on this node; that is charged to nobody."


def gaps(account: Part, status: Part) -> Iterator[str]:
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
    if what.startswith("container "):
        return what.endswith(f" of pod {namespace}/{pod}")
    is_pod = what.startswith("pod ") and not what.startswith("pod file")
    return not is_pod or what == f"pod {namespace}/{pod}"
