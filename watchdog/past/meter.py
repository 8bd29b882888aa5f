"""The meter: adds up how long each workload used how much, span by span."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Declaration, Policy, Rule
from watchdog.past.read import RecordedCycle, RecordedNode, RecordKind
from watchdog.past.recommendation import Usage, Workload, with_headroom
from watchdog.past.recorder import longest_step_s
from watchdog.past.replay import Judge
from watchdog.report.advice import declaration_of, needed

_BY_CONTAINER = Rule(name="each container", account="container")
_BY_POD = Rule(name="each pod")


@dataclass(slots=True)
class _Open:
    """How the accounts of a pod stand, and since when (boot time)."""

    since_s: float
    accounts: tuple[Assessment, ...]


class Meter:
    """Adds up spans of looks; what lies before `since_s` (Unix time) does not count."""

    def __init__(self, policy: Policy, since_s: float) -> None:
        self._policy = policy
        self._since_s = since_s
        self._judge = Judge(replace(policy, rules=(_BY_CONTAINER,)))
        self._whole = Judge(replace(policy, rules=(_BY_POD,)))
        self._open: dict[str, _Open] = {}
        self._last: Now | None = None
        self._declarations: dict[object, tuple[Declaration, str] | None] = {}
        self._sizes: dict[str, int | None] = {}
        self.usages: dict[Workload, Usage] = {}

    def run(self, span: Iterable[RecordedCycle]) -> None:
        """Add up one span."""
        self._last = None
        for look in span:
            if look.kind is not RecordKind.SAME:
                self._take(look)
            self._last = look.at
        self._close(list(self._open), self._last)

    def _take(self, look: RecordedCycle) -> None:
        scene, at, last = look.scene, look.at, self._last
        self._sizes.update((gpu.uuid, gpu.size) for gpu in scene.gpus)
        is_gap = last is not None and at.boottime_s - last.boottime_s > longest_step_s(scene.interval_s)
        if is_gap:
            self._close(list(self._open), last)
        for judge in (self._judge, self._whole):
            judge.forget(look.changed)
        renewed = self._judge.renew(scene, at)
        gone = self._open.keys() - scene.pods.keys()
        self._close([*(renewed & self._open.keys()), *gone], at)
        for uid in scene.pods.keys() - self._open.keys():
            self._open[uid] = _Open(self._start_s(at), self._accounts(scene, scene.pods[uid], at))

    def _accounts(self, scene: RecordedNode, pod: Pod, at: Now) -> tuple[Assessment, ...]:
        """The accounts of a pod: one for each container, unless it declares as a whole."""
        own = self._judge.of(pod.uid)
        if any(each.verdict is Verdict.MISDECLARED for each in own):
            self._whole.renew(scene, at)
            whole = self._whole.of(pod.uid)
            if not any(each.verdict is Verdict.MISDECLARED for each in whole):
                return whole
        return own

    def _start_s(self, at: Now) -> float:
        return at.boottime_s + max(self._since_s - at.wall_s, 0.0)

    def _close(self, uids: Iterable[str], at: Now | None) -> None:
        for uid in uids:
            known = self._open.pop(uid)
            if at is None or at.boottime_s <= known.since_s:
                continue
            containers = {each.account.container for each in known.accounts}
            for container in containers:
                together = [each for each in known.accounts if each.account.container == container]
                self._add(together, at.boottime_s - known.since_s)

    def _add(self, accounts: list[Assessment], seconds: float) -> None:
        """Add what a container held for a time: on all of its GPUs, each of which can be an account."""
        first = max(accounts, key=lambda each: each.declared or -1)
        pod, container = first.pod, first.account.container
        if container == "":
            return  # of a container that the list did not know yet: it counts for none
        owner = pod.workload
        key = Workload(namespace=pod.namespace, kind=owner.kind, name=owner.name, container=container)
        usage = self.usages.get(key)
        declaration = self._declaration(first)
        if usage is None:
            usage = self.usages[key] = Usage(last=first, declaration=declaration)
        usage.pods.add(pod.uid)
        if not any(each.uses for each in accounts):
            usage.idle_s += seconds
            return
        usage.last, usage.declaration = first, declaration
        least = sum(each.used_at_least for each in accounts)
        usage.peak = max(usage.peak, least)
        usage.per_gpu = any(each.account.gpu is not None for each in accounts) or _is_per_gpu(declaration)
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
        """Note what would allow an account's use with some headroom; what the allowance gives need not be declared."""
        own = usage.declaration[0].allowance if usage.declaration is not None else None
        allowance = own or self._policy.allowance
        used, contexts = account.used_at_least, len({(use.key, use.gpu) for use in account.uses})
        sizes = [self._sizes.get(gpu) or 0 for gpu in {use.gpu for use in account.uses}]
        most = sum(sizes)
        if usage.per_gpu and account.account.gpu is None:
            used, contexts, most = _most_on_a_gpu(account), 1, max(sizes, default=0)
        enough = needed(with_headroom(used, most if all(sizes) else None), contexts, allowance)
        if enough >= usage.needed:
            usage.needed, usage.contexts, usage.allowance = enough, contexts, allowance

    def _declaration(self, account: Assessment) -> tuple[Declaration, str] | None:
        """Where the account declares; where it does not, where it could."""
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


def _is_per_gpu(declaration: tuple[Declaration, str] | None) -> bool:
    return declaration is not None and declaration[0].per == "gpu"
