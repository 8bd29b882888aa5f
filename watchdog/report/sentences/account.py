"""The paragraphs of `explain` about an account: use, limit, verdict, activity, rule, what follows, what to change."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from watchdog.core.rules import TERMINATING
from watchdog.core.units import format_bytes
from watchdog.report.sentences.brakes import rule_observes
from watchdog.report.sentences.draining import claim_limit, pinned_limits
from watchdog.report.sentences.following import following
from watchdog.report.sentences.node import gpu_label
from watchdog.report.sentences.usage import (
    account_name,
    amount_used,
    idle_card_hours,
    limit_sum,
    origin,
    utilization_unknown,
)
from watchdog.report.status import AccountStatus, GapStatus, PinnedTotalStatus, Status
from watchdog.report.text import capital, clock_time, inert, percent, span

_MOST_GAPS: Final = 3


class AccountSentences(NamedTuple):
    """What is said about an account, by subject."""

    use: tuple[str, ...]
    limit: tuple[str, ...]
    verdict: tuple[str, ...]
    # How busy it is, or why that is unknown, and for how long it has computed nothing.
    activity: tuple[str, ...]
    # What is wrong with its declarations, and what its clients may pin.
    remarks: tuple[str, ...]
    rule: tuple[str, ...]
    # What its rule does, will do, or would do.
    following: tuple[str, ...]
    # What its owner can change.
    remedy: tuple[str, ...]


def account_sentences(account: AccountStatus, status: Status) -> AccountSentences:
    """Every sentence about an account."""
    return AccountSentences(
        use=tuple(_use(account, status)),
        limit=tuple(_limit(account)),
        verdict=tuple(_verdict(account, status)),
        activity=tuple(_activity(account, status)),
        remarks=(*_misdeclarations(account), *_pinned(account)),
        rule=tuple(_rule(account, status)),
        following=tuple(following(account, status)),
        remedy=(f"To stay within its limit, {inert(account.advice, 1000)}.",) if account.advice is not None else (),
    )


def account_paragraphs(account: AccountStatus, status: Status) -> tuple[tuple[str, ...], ...]:
    """Use and limit of an account; how busy it is; its rule and what follows; what its owner can change."""
    said = account_sentences(account, status)
    use = (*said.use, *said.limit, *said.verdict, *said.remarks)
    return tuple(filter(None, (use, said.activity, (*said.rule, *said.following), said.remedy)))


def _use(account: AccountStatus, status: Status) -> Iterator[str]:
    used, at_least, gpu = account.used, account.least, account.gpu
    where = f" on {inert(gpu)}" if gpu is not None else ""
    name = account_name(account.namespace, account.pod, account.container)
    subject = capital(name)
    if used is None and not at_least and status.maintenance is not None:
        yield f"What {name} uses is unknown while the driver is released for maintenance."
    elif used is None:
        yield from _unknown_use(account, name, where)
    elif used:
        yield f"{subject} uses {format_bytes(used)} of GPU memory{where}."
        yield from _together(account)
    else:
        yield f"{subject} uses no GPU memory{where}."
        yield from _unknown_pods(status)
    if account.behind and account.container is None:
        yield from _unlisted(account)
    if account.container == "":
        yield (
            "That memory belongs to processes of a container that is not in the pod list (yet): it is counted, but "
            "never leads to a kill or an eviction."
        )


def _together(account: AccountStatus) -> Iterator[str]:
    """What the pods on its claims use together."""
    if not isinstance(account.shared_with, tuple) or account.compared == account.least:
        return
    others = ", ".join(map(inert, account.shared_with))
    whole = format_bytes(account.compared)
    yield f"Together with {others}, on the same claim, it is {whole} (not counting their allowances)."
    if isinstance(account.behind_pod, str):
        yield (
            f"Of these, {inert(account.behind_pod)} uses more and is the one acted on, unless this pod is above its "
            "limit by itself."
        )


def _unknown_use(account: AccountStatus, name: str, where: str) -> Iterator[str]:
    at_least, most = account.least, account.used_at_most
    subject = capital(name)
    if at_least:
        yield f"{subject} uses at least {format_bytes(at_least)} of GPU memory{where}; the rest is currently unknown."
    else:
        yield f"How much GPU memory {name} uses{where} is currently unknown."
    if most is not None:
        total = " in total" if at_least else ""
        yield f"According to its GPU's memory counter it is at most {format_bytes(most)}{total}."


def _unlisted(account: AccountStatus) -> Iterator[str]:
    there = [process.used or 0 for process in account.processes if not process.container]
    if there:
        yield (
            f"{format_bytes(sum(there))} is used by a container that is not in the pod list yet. It counts once the "
            "container is listed, or a minute after it was first seen. The container is not killed until it is listed."
        )


def _unknown_pods(status: Status) -> Iterator[str]:
    """The use of processes whose pod is unknown: they may belong to a pod that seems to use nothing."""
    uses = [use for use in status.unattributed if use.reason in ("unknown_pod", "spoofed")]
    if uses:
        amount = format_bytes(sum(use.used or 0 for use in uses))
        yield f"Processes whose pod is unknown use {amount} on this node; no pod is charged for it."


def _gaps(account: AccountStatus, status: Status) -> Iterator[str]:
    """The gaps of this account's GPUs; if there are none, those of the node and of this pod."""
    gaps = [gap for gap in status.gaps if _concerns(gap, account, status)]
    own = {process.gpu for process in account.processes} | {account.gpu or ""}
    shown = [gap for gap in gaps if any(gpu and gpu in gap.what for gpu in own)] or gaps
    for gap in shown[:_MOST_GAPS]:
        yield f"Data gap: {inert(gap.what)}: {inert(gap.text, 600).rstrip('.')}."
    if len(shown) > _MOST_GAPS:
        yield f"Data gaps not shown: {len(shown) - _MOST_GAPS}."


def _concerns(gap: GapStatus, account: AccountStatus, status: Status) -> bool:
    """Whether a gap is about this account and reported nowhere else; tenants must not read about each other."""
    namespace, pod, what = account.namespace, account.pod, gap.what
    if gap.text == account.rule_unknown or (what == status.interface and status.maintenance is not None):
        return False
    for noun in ("labels of namespace ", "namespace "):
        if what.startswith(noun):
            return what == f"{noun}{namespace}"
    if what.startswith("namespaces"):
        return account.rule_unknown is not None
    if what.startswith("container "):
        return what.endswith(f" of pod {namespace}/{pod}")
    is_pod = what.startswith("pod ") and not what.startswith("pod file")
    return not is_pod or what == f"pod {namespace}/{pod}"


def _limit(account: AccountStatus) -> Iterator[str]:
    allowed, declared, by = account.allowed, account.declared, account.declared_by
    if isinstance(account.open_share, str):
        yield f"{capital(inert(account.open_share, 1000))}."
    if allowed is None or declared is None:
        return
    start = "It declares no GPU memory, so the default of its rule applies: its" if by == "default" else "Its"
    yield f"{start} limit is {limit_sum(allowed, declared, origin(by, 'that default'), _allowance(account))}."
    requested, by_request = account.requested, account.allowed_by_request
    if requested is not None and by_request is not None and by_request < allowed:
        yield (
            f"It has set a limit above the {format_bytes(requested)} that it requested: while its GPU is short of "
            f"memory only the request counts, and its limit is {format_bytes(by_request)}."
        )


def _allowance(account: AccountStatus) -> str:
    """How the allowance adds up, if that is known."""
    allowance = account.allowance
    if allowance is None:
        return ""
    percent, per_context, contexts = allowance.percent, allowance.per_context, allowance.contexts
    whole = format_bytes(account.declared or 0)
    parts = [f"{inert(percent)} of {whole}"] if percent is not None and percent != "0%" else []
    if per_context and contexts:
        of = "1 CUDA context" if contexts == 1 else f"each of {contexts} CUDA contexts"
        parts.append(f"{format_bytes(per_context)} for {of}")
    return f" ({', plus '.join(parts)})" if parts else ""


def _verdict(account: AccountStatus, status: Status) -> Iterator[str]:
    verdict, allowed, since = account.verdict, account.allowed, account.over_since
    if verdict == "over" and allowed is not None:
        lasting = f", exceeded since {clock_time(since, status.at)}" if since is not None else ""
        yield f"That is {format_bytes(account.compared - allowed)} over its limit{lasting}."
    elif verdict == "within":
        yield "That is within its limit."
    elif verdict == "undeclared" and account.container != "":
        yield "It has no declaration that the policy recognizes, so it is only measured and no action is taken on it."
        key = account.declare_by
        if key is not None and not isinstance(account.open_share, str):
            yield f"It can declare GPU memory with {inert(key)}, which then sets its limit."
    elif verdict == "misdeclared":
        yield "Its declaration is invalid and no other applies, so it is only measured and no action is taken on it."
    elif verdict == "unknown":
        unknown = "Its limit" if allowed is None else "Whether it is over its limit"
        why = f": {inert(account.limit_unknown, 1000)}" if account.limit_unknown else ""
        yield f"{unknown} is currently unknown, so no action is taken{why}."
        most = account.used_at_most
        if allowed is not None and most is not None and most <= allowed:
            yield f"Even at the maximum of {format_bytes(most)} it would be within its limit."
    if account.used is None or verdict == "unknown":
        silent = sum(1 for process in account.processes if process.used is None)
        # During maintenance the driver is not queried, which is reported about the node.
        if silent and status.maintenance is None:
            yield f"The driver reports no usage for {silent} of its processes."
        yield from _gaps(account, status)


def _activity(account: AccountStatus, status: Status) -> Iterator[str]:
    ratio, idle_s = account.utilization, account.idle_s
    if why := utilization_unknown(account, status):
        yield f"How busy it is isn't known: {why}."
    elif ratio is not None and (ratio or not idle_s):
        own = {each.gpu for each in account.containers}
        gpus = [gpu for gpu in status.gpus if gpu.uuid in own]
        where = gpu_label(gpus[0]) if len(gpus) == 1 else f"its {len(gpus)} GPUs on average"
        yield f"Its processes use {percent(ratio) if ratio else 'none'} of the time of {where}."
    if idle_s and not account.idle:
        yield f"It has computed nothing for {span(idle_s)}."
    elif idle_s:
        held = amount_used(account.used, account.least)
        yield (
            f"It has computed nothing for {span(idle_s)} while it holds {held}; it is reported as idle, and nothing is "
            "done about it."
        )
        began = clock_time(status.at - idle_s, status.at)
        yield f"That began at {began} or earlier: time for which its utilisation is unknown doesn't count."
        if hours := idle_card_hours(account, status):
            yield f"At what it holds now, that is {hours} card-hours."


def _misdeclarations(account: AccountStatus) -> Iterator[str]:
    instead = "; the limit above applies instead" if account.declared is not None else ""
    for skipped in account.misdeclarations:
        source, why = inert(skipped.source), inert(skipped.why, 600)
        if skipped.counts:
            yield f"The declaration {source} is used as written: {why}"
            continue
        reason = why.rstrip(".")
        end = "" if reason.endswith("?") and not instead else "."
        yield f"The declaration {source} is ignored: {reason}{instead}{end}"


def _pinned(account: AccountStatus) -> Iterator[str]:
    if isinstance(account.pinned, PinnedTotalStatus):
        yield f"{capital(pinned_limits(account.pinned, account.declared))}."
    elif isinstance(account.pinned_by_claim, int):
        yield claim_limit(account.pinned_by_claim)


def _rule(account: AccountStatus, status: Status) -> Iterator[str]:
    rule, unknown = account.rule, account.rule_unknown
    if unknown is not None:
        yield f"Which rule applies to it is unknown: {inert(unknown, 600).rstrip('.')}."
        return
    if rule is None:
        yield "No rule of the policy matches this pod, so it is only measured and no action is taken on it."
        return
    ladder = account.ladder
    more = ""
    if account.verdict == "undeclared":
        more = ", which has no default for a pod that declares nothing"
    elif ladder and not any(step.do.enforces for step in ladder):
        more = ", which only warns"
    yield f'Its rule is "{inert(rule)}"{more}.'
    protected = account.protected
    if protected == TERMINATING and account.under_way is not None:
        return  # by the action that is reported next
    if protected == TERMINATING:
        yield f"This pod is exempt from kills and evictions for now: {TERMINATING}."
    elif protected is not None:
        yield f"This pod is never killed or evicted, whatever it uses: {inert(protected, 600)}."
    elif account.observes:
        yield _observing(account, status)


def _observing(account: AccountStatus, status: Status) -> str:
    active = account.active
    nothing = "it records what it would do and takes no action"
    if active is None or active.now:
        return f"{capital(rule_observes(None))}: {nothing}."
    until = ""
    if active.changes is not None and active.changes_at is not None:
        until = f" Its hours start {inert(active.changes)} ({clock_time(active.changes_at, status.at)})."
    return f"{capital(rule_observes(active.hours))}: now {nothing}.{until}"
