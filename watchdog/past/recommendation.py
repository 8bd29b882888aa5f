"""Recommended declarations: how much each workload used for how long, and what it should declare."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import Now, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy, Rule, longest_step_s
from watchdog.core.units import format_bytes, format_quantity
from watchdog.journal.playback import RecordedCycle, RecordedNode, RecordKind
from watchdog.past.replay import NodeAssessor
from watchdog.report.advice import CLAIM_KEY, claimed_request, declaration_of, needed, number_of, plain_number, round_up
from watchdog.report.text import inert, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: an owner and one of its containers."""

    namespace: str
    kind: str
    name: str
    # None: the pods declare as a whole.
    container: str | None


@dataclass(slots=True, kw_only=True)
class Usage:
    """The use of one workload. Times are seconds, amounts bytes."""

    # The latest assessment.
    last: Assessment
    # What of the policy declares, and its key; None: nothing does.
    declaration: tuple[Declaration, str] | None
    # The claim and its request that gave it a share of a card, if that is what declares.
    claim: tuple[str, str] | None = None
    pods: set[str] = field(default_factory=set)
    # How long each amount was held by one pod.
    held_s: dict[int, float] = field(default_factory=dict)
    # How long an amount was unknown.
    unknown_s: float = 0.0
    # The time without any GPU process.
    idle_s: float = 0.0
    # The time over the limit.
    over_s: float = 0.0
    peak: int = 0
    peak_per_gpu: int = 0
    # The smallest declaration that allows the peak use plus some headroom, on the fullest GPU if `per_gpu`.
    needed: int = 0
    # The number of contexts when that much was needed; the allowance is of the same moment.
    contexts: int = 0
    allowance: Allowance = NO_ALLOWANCE
    per_gpu: bool = False

    @property
    def seen_s(self) -> float:
        """The time in which it held GPU memory, whether the amount was known or not."""
        return self.known_s + self.unknown_s

    @property
    def known_s(self) -> float:
        """The time in which it held a known amount."""
        return sum(self.held_s.values())

    def percentile(self, percent: float) -> int | None:
        """The smallest amount not exceeded for this percentage of the known time; None if nothing is known."""
        left_s = self.known_s * percent / 100
        for amount in sorted(self.held_s):
            left_s -= self.held_s[amount]
            if left_s <= 1e-6:
                return amount
        return None


def _with_headroom(used: int, most: int | None) -> int:
    """The use plus a tenth, but no more than its GPUs have (`most`; None: unknown)."""
    wanted = -(-used * 11 // 10)
    return wanted if most is None else max(min(wanted, most), used)


_GENEROUS = 2  # a declaration of this many times what is needed is too much
_LITTLE_S = 3600.0  # a workload seen for less may not have reached its peak yet


class Fit(StrEnum):
    """How a declaration compares with what was used, in the order shown: what calls for action comes first."""

    TOO_LITTLE = "too_little"
    MISDECLARED = "misdeclared"
    NOTHING = "nothing"
    TOO_MUCH = "too_much"
    UNKNOWN = "unknown"
    FITS = "fits"
    WHOLE = "whole"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to declare."""

    key: str
    # As written.
    value: str
    # The value in bytes. In a unit that depends on the card it is a minimum, and so is `allows`.
    amount: int
    # The bytes that it allows.
    allows: int
    has_allowance: bool
    per_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How a workload's declaration compares with its use."""

    fit: Fit
    reason: str
    # What to declare instead; None: no change.
    suggestion: Suggestion | None = None


def advise(usage: Usage) -> Advice:
    """Compare the use of a workload with its declaration.

    The suggestion allows the peak use plus a tenth, less what the allowance gives. It is rounded up to 16Mi (256Mi from
    1Gi on, 1Gi from 8Gi on), and then to a whole number of the declaration's unit. Declaring less is suggested only to
    workloads seen for at least an hour.
    """
    fit = _fit(usage)
    suggestion = _suggestion(usage) if fit not in (Fit.UNUSED, Fit.UNKNOWN, Fit.WHOLE, Fit.FITS) else None
    declares_less = suggestion is not None and fit is not Fit.MISDECLARED and suggestion.amount < _declared(usage)
    if usage.seen_s < _LITTLE_S and declares_less:
        suggestion = None
    return Advice(fit=fit, reason=_reason(usage, fit), suggestion=suggestion)


def _declared(usage: Usage) -> int:
    return usage.last.declared or 0


def _enough(usage: Usage) -> int:
    """The sufficient amount, rounded up as people write it."""
    return max(round_up(usage.needed), round_up(1))


def _fit(usage: Usage) -> Fit:
    last, declared = usage.last, usage.last.declared
    if usage.seen_s <= 0:
        return Fit.UNUSED
    if usage.known_s <= 0 and not usage.over_s:
        return Fit.UNKNOWN
    if last.declared_by is None:
        return Fit.MISDECLARED if last.verdict is Verdict.MISDECLARED else Fit.NOTHING
    if usage.over_s > 0:
        return Fit.TOO_LITTLE
    counts_devices = usage.declaration is None or usage.declaration[0].counts_devices
    if (counts_devices and usage.claim is None) or declared is None:
        return Fit.WHOLE
    return Fit.TOO_MUCH if declared >= _GENEROUS * _enough(usage) else Fit.FITS


def _suggestion(usage: Usage) -> Suggestion | None:
    if usage.claim is not None:
        amount = _enough(usage)
        return _suggested(usage, CLAIM_KEY, format_quantity(amount), amount, per_gpu=True)
    if usage.declaration is None or usage.declaration[0].counts_devices:
        return None
    declaration, key = usage.declaration
    enough = _enough(usage)
    number = number_of(usage.last, declaration, key, enough, _declared(usage))
    if number is None:
        return None
    amount = int(number * declaration.unit) if isinstance(declaration.unit, int) else enough
    value = format_quantity(int(number)) if declaration.unit == 1 else plain_number(number)
    return _suggested(usage, key, value, amount, per_gpu=declaration.per == "gpu")


def _suggested(usage: Usage, key: str, value: str, amount: int, *, per_gpu: bool) -> Suggestion:
    allows = usage.allowance.allowed(amount, usage.contexts)
    return Suggestion(
        key=key, value=value, amount=amount, allows=allows, has_allowance=allows > amount, per_gpu=per_gpu
    )


def _reason(usage: Usage, fit: Fit) -> str:
    last, seen_s = usage.last, usage.seen_s
    by, over = inert(last.declared_by or ""), _share(usage.over_s, seen_s)
    reasons = {
        Fit.TOO_LITTLE: f"declares too little: was over its limit for {over} of the time",
        Fit.TOO_MUCH: f"declares {format_bytes(_declared(usage))}, {_declared(usage) / _enough(usage):.1f} times "
        "what is needed",
        Fit.FITS: "its declaration fits its peak use",
        Fit.NOTHING: "declares nothing",
        Fit.MISDECLARED: f"its declaration is invalid: {_misdeclared(usage)}",
        Fit.WHOLE: f"requests whole devices by {by}: there is no number to change",
        Fit.UNUSED: "held no GPU memory in this time",
        Fit.UNKNOWN: "its use is unknown: the driver did not report it",
    }
    reason = reasons[fit]
    if last.open_share:
        reason += f": {inert(last.open_share)} gives it a share of a card, but no amount"
    elif usage.claim is not None:
        reason += f", by claim {inert('/'.join(usage.claim))}"
        sharing = dict.fromkeys(title for claim in last.pod.claims.values() for title in claim.shared_with)
        reason += f", which {inert(', '.join(sharing))} has too: what they use together counts" if sharing else ""
    if seen_s < _LITTLE_S and fit not in (Fit.UNUSED, Fit.UNKNOWN, Fit.WHOLE):
        less = ", too short to recommend declaring less" if fit is Fit.TOO_MUCH else ""
        reason += f"; seen for only {span(seen_s)}{less}"
    if usage.unknown_s > 0 and fit is not Fit.UNKNOWN:
        reason += f"; for {_share(usage.unknown_s, seen_s)} of the time its use is unknown, and may have been higher"
    return reason


def _misdeclared(usage: Usage) -> str:
    reasons = [f"{skipped.source}: {skipped.why}" for skipped in usage.last.misdeclarations]
    return inert("; ".join(reasons) or "a total and an amount per GPU, or one amount for several containers", 400)


def _share(part_s: float, whole_s: float) -> str:
    percent = 100 * part_s / whole_s if whole_s else 0.0
    return "less than 1%" if percent < 1 else f"{percent:.0f}%"


Known = tuple[Workload, Usage, Advice]


def advised(usages: Mapping[Workload, Usage]) -> list[Known]:
    """Each workload with its advice, in the order in which they are shown."""
    known = [(workload, usages[workload], advise(usages[workload])) for workload in sorted(usages, key=_sort_key)]
    return sorted(known, key=lambda entry: [*Fit].index(entry[2].fit))


def _sort_key(workload: Workload) -> tuple[str, ...]:
    return workload.namespace, workload.kind, workload.name, workload.container or ""


_BY_CONTAINER = Rule(name="each container", account="container")
_BY_POD = Rule(name="each pod")


class Meter:
    """Adds up the use over spans of cycles; what lies before `since_s` (Unix time) does not count."""

    def __init__(self, policy: Policy, since_s: float) -> None:
        self._policy = policy
        self._since_s = since_s
        self._assessor = NodeAssessor(replace(policy, rules=(_BY_CONTAINER,)))
        self._pod_assessor = NodeAssessor(replace(policy, rules=(_BY_POD,)))
        # By pod: a time on CLOCK_BOOTTIME, and its accounts, unchanged since then.
        self._open: dict[str, tuple[float, tuple[Assessment, ...]]] = {}
        self._last: Now | None = None
        self._declarations: dict[object, tuple[Declaration, str] | None] = {}
        self._sizes: dict[str, int | None] = {}
        self.usages: dict[Workload, Usage] = {}

    def run(self, cycles: Iterable[RecordedCycle]) -> None:
        """Add up the use in these cycles."""
        for cycle in cycles:
            if cycle.kind is RecordKind.FIRST:
                self._close(list(self._open), self._last)
                self._last = None
            if cycle.kind is not RecordKind.SAME:
                self._add_cycle(cycle)
            self._last = cycle.at
        self._close(list(self._open), self._last)

    def _add_cycle(self, cycle: RecordedCycle) -> None:
        node, at, last = cycle.node, cycle.at, self._last
        self._sizes.update((gpu.uuid, gpu.size) for gpu in node.gpus)
        is_gap = last is not None and at.boottime_s - last.boottime_s > longest_step_s(node.interval_s)
        if is_gap:
            self._close(list(self._open), last)
        for assessor in (self._assessor, self._pod_assessor):
            assessor.forget(cycle.changed)
        renewed = self._assessor.renew(node, at)
        gone = self._open.keys() - node.pods.keys()
        self._close([*(renewed & self._open.keys()), *gone], at)
        for uid in node.pods.keys() - self._open.keys():
            start_s = at.boottime_s + max(self._since_s - at.wall_s, 0.0)
            self._open[uid] = start_s, self._accounts(node, node.pods[uid], at)

    def _accounts(self, node: RecordedNode, pod: Pod, at: Now) -> tuple[Assessment, ...]:
        """The accounts of a pod: one for each container, unless it declares as a whole."""
        own = self._assessor.of(pod.uid)
        if any(each.verdict is Verdict.MISDECLARED for each in own):
            self._pod_assessor.renew(node, at)
            whole = self._pod_assessor.of(pod.uid)
            if not any(each.verdict is Verdict.MISDECLARED for each in whole):
                return whole
        return own

    def _close(self, uids: Iterable[str], at: Now | None) -> None:
        for uid in uids:
            since_s, accounts = self._open.pop(uid)
            if at is None or at.boottime_s <= since_s:
                continue
            for container in {account.account.container for account in accounts}:
                together = [account for account in accounts if account.account.container == container]
                self._add(together, at.boottime_s - since_s)

    def _add(self, accounts: list[Assessment], seconds: float) -> None:
        """Add what a container held for a time, over all its GPUs, each of which can be an account."""
        first = max(accounts, key=lambda each: each.declared or -1)
        pod, container = first.pod, first.account.container
        if container == "":
            return  # a container that was not listed yet belongs to no workload
        owner = pod.workload
        key = Workload(namespace=pod.namespace, kind=owner.kind, name=owner.name, container=container)
        usage = self.usages.get(key)
        declaration = self._declaration(first)
        if usage is None:
            usage = self.usages[key] = Usage(last=first, declaration=declaration, claim=claimed_request(first))
        usage.pods.add(pod.uid)
        if not any(each.uses for each in accounts):
            usage.idle_s += seconds
            return
        usage.last, usage.declaration, usage.claim = first, declaration, claimed_request(first)
        least = sum(each.used_at_least for each in accounts)
        usage.peak = max(usage.peak, least)
        usage.per_gpu = any(each.account.gpu is not None for each in accounts) or (
            declaration is not None and declaration[0].per == "gpu"
        )
        usage.peak_per_gpu = max(usage.peak_per_gpu, *(_most_on_a_gpu(each) for each in accounts))
        for each in accounts:
            self._take_need(each, usage)
        if any(each.verdict is Verdict.OVER for each in accounts):
            usage.over_s += seconds
        if any(each.used is None for each in accounts):
            usage.unknown_s += seconds
        else:
            usage.held_s[least] = usage.held_s.get(least, 0.0) + seconds

    def _take_need(self, account: Assessment, usage: Usage) -> None:
        """Update `needed` by an account's use plus headroom, less what the allowance gives.

        What others use of a claim that it shares with them counts, since the claim is for all of them.
        """
        own = usage.declaration[0].allowance if usage.declaration is not None else None
        allowance = own or self._policy.allowance
        used, contexts = account.compared, len({(use.key, use.gpu) for use in account.uses})
        sizes = [self._sizes.get(gpu) or 0 for gpu in {use.gpu for use in account.uses}]
        most = sum(sizes)
        if usage.per_gpu and account.account.gpu is None:
            used, contexts, most = _most_on_a_gpu(account), 1, max(sizes, default=0)
        enough = needed(_with_headroom(used, most if all(sizes) else None), contexts, allowance)
        if enough >= usage.needed:
            usage.needed, usage.contexts, usage.allowance = enough, contexts, allowance

    def _declaration(self, account: Assessment) -> tuple[Declaration, str] | None:
        """The declaration that the account uses, or could use if it declares nothing."""
        key = (account.pod.uid, account.account.container, account.declared_by)
        if key not in self._declarations:
            asked = account if account.declared_by is not None else replace(account, declared_by="default")
            self._declarations[key] = declaration_of(asked, self._policy)
        return self._declarations[key]


def _most_on_a_gpu(account: Assessment) -> int:
    by_gpu: dict[str, int] = {}
    for use in account.uses:
        by_gpu[use.gpu] = by_gpu.get(use.gpu, 0) + (use.used or 0)
    return max(by_gpu.values(), default=0)
