"""The truth behind a reading: who uses what, and what that pod may use, in arithmetic of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.soak.cluster import REPLICAS, Box, Tenant
from tests.soak.driver import Listed, TrueReading
from tests.soak.kernel import Task, true_claim
from watchdog.core.model import ContainerKind, Now, PlaceKind, Process
from watchdog.core.policy import Policy, Rule, Step

Key = tuple[str, str | None, str | None]  # pod UID, container, GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueUse:
    """What a process truly of a pod uses; `container` is "" where the list does not know it yet."""

    task: Task
    container: str
    gpu: str
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """How one account truly stands. `allowed` is None where no declaration holds: such an account is left alone.

    `used` counts what the driver reported in containers that count; `is_known` says that nothing was hidden. `shares`
    is what each container declares for itself.
    """

    key: Key
    tenant: Tenant
    rule: Rule
    declared: int | None
    allowed: int | None
    used: int
    is_known: bool
    uses: tuple[TrueUse, ...]
    shares: Mapping[str, int]


def tenants_uses(
    lines: Iterable[Listed], answers: Mapping[int, Process], tenants: Mapping[str, Tenant]
) -> dict[str, list[TrueUse]]:
    """The lines of a reading by the pod that they truly belong to, as far as /proc was honest about the process."""
    found: dict[str, list[TrueUse]] = {}
    for line in lines:
        task = line.task
        if task is None or task.pod is None or not is_honest(task, answers.get(line.pid)):
            continue
        tenant = tenants.get(task.pod)
        if tenant is None or is_trusted_server(task, tenant):
            continue
        name = next((box.name for box in tenant.boxes if box.known and box.cid == task.container), "")
        found.setdefault(task.pod, []).append(TrueUse(task=task, container=name, gpu=line.gpu, used=line.used))
    return found


def is_bright(truth: TrueReading, answers: Mapping[int, Process]) -> bool:
    """Whether nothing at all was hidden in a reading, so that every account is known for sure."""
    if not truth.is_bright or is_masked(truth.lines, answers):
        return False
    return not any(line.task and answers[line.pid].key != line.task.key for line in truth.lines)


def is_masked(lines: Iterable[Listed], answers: Mapping[int, Process]) -> bool:
    """Whether some line is of a process that may be of any pod."""
    said = [answers.get(line.pid) for line in lines]
    return any(one is None or one.place.kind is PlaceKind.UNREADABLE for one in said)


def threshold_bytes(step: Step, allowed: int) -> int:
    above = step.above
    if above.share is not None:
        bound = allowed * above.share // 1
    else:
        bound = allowed + above.plus if above.plus is not None else above.amount or 0
    return bound if step.do == "warn" else max(bound, allowed)


def rule_for(tenant: Tenant, policy: Policy) -> Rule | None:
    for rule in policy.rules:
        namespaces, labels = rule.match.namespaces or (tenant.namespace,), rule.match.labels
        if tenant.namespace in namespaces and labels.get("tier", tenant.tier) == tenant.tier:
            return rule
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the daemon can know of the node: the sizes of the cards that it sees, and whether these are all.

    `answer` says that every one of them answers, `hidden` that the driver counts another one, `lit` that no context can
    be out of sight. `heirs` are the processes that have got the PID of a listed one, by pod, container ID, GPU and PID:
    what they use is not known, and they count as contexts.
    """

    sizes: Mapping[str, int]
    answer: bool
    hidden: bool
    labelled: bool
    lit: bool = True
    overdue: frozenset[tuple[str, str]] = frozenset()
    heirs: frozenset[tuple[str, str, str, int]] = frozenset()

    @property
    def tells(self) -> bool:
        """Whether the size of a card is known whichever it is."""
        return not self.hidden and (self.answer or len(set(self.sizes.values())) == 1)


class UnknownError(Exception):
    """What an account declares can't be determined."""


def facts_of(
    uses: Mapping[str, list[TrueUse]], tenants: Mapping[str, Tenant], policy: Policy, sight: Sight, *, bright: bool
) -> dict[Key, Fact]:
    found: dict[Key, Fact] = {}
    for uid, tenant in tenants.items():
        rule = rule_for(tenant, policy)
        if rule is None:
            continue
        own = uses.get(uid, [])
        if not own and not _has_any(tenant):
            continue  # it neither uses GPU memory nor declares it
        for key in _keys(tenant, rule, own):
            found[key] = _fact(key, tenant, rule, own, policy, sight, bright=bright)
    return found


def _has_any(tenant: Tenant) -> bool:
    return tenant.notes is not None or (tenant.kind != "note" and any(box.declares is not None for box in tenant.boxes))


def _keys(tenant: Tenant, rule: Rule, uses: list[TrueUse]) -> list[Key]:
    declaring = {box.name for box in tenant.boxes if tenant.kind != "note" and box.declares is not None}
    by_gpu = {box.name for box in tenant.boxes if tenant.kind == "gpu_mib" and (box.declares or 0) >= 0}
    by_gpu &= declaring
    names: list[str | None] = [None]
    if rule.account == "container":
        names = [*sorted({use.container for use in uses} | declaring)] or [None]
    keys: list[Key] = []
    for name in names:
        gpus: set[str | None] = {None}
        if name in by_gpu or (name is None and by_gpu):
            gpus = {use.gpu for use in uses if name in (None, use.container)} or {None}
        keys += [(tenant.uid, name, gpu) for gpu in gpus]
    return keys


def _fact(
    key: Key, tenant: Tenant, rule: Rule, uses: list[TrueUse], policy: Policy, sight: Sight, *, bright: bool
) -> Fact:
    uid, name, gpu = key
    allowance = policy.allowance
    own = tuple(use for use in uses if name in (None, use.container) and gpu in (None, use.gpu))
    late = [use for use in own if lags(use, uid, sight)] if name is None else []
    listed = {(use.task.key.pid, use.gpu) for use in own} | _heirs(key, tenant, sight)
    contexts = min(len(listed), allowance.max_contexts)
    if gpu is None and not sight.lit:
        contexts = allowance.max_contexts  # a card that drops out takes them out of sight, not out of the world
    found: list[tuple[int, int]] = []
    is_open = False
    for phase in phases(tenant) if any(not use.container for use in uses) else [current(tenant)]:
        try:
            declared, is_default = _declared(tenant, rule, name, phase, uses, sight)
        except UnknownError:
            is_open = True
            continue
        is_open = is_open or declared is None
        if declared is not None:
            is_forbidden = declared == 0 and is_default
            more = 0 if is_forbidden else declared * allowance.percent // 1 + allowance.per_context * contexts
            found.append((declared + more, declared))
    allowed, declared = max(found, default=(None, None)) if not is_open else (None, None)
    return Fact(
        key=key,
        tenant=tenant,
        rule=rule,
        declared=declared,
        allowed=allowed,
        used=sum(use.used or 0 for use in own if use not in late),
        is_known=bright and not late,
        uses=own,
        shares=_shares(tenant, uses, sight),
    )


def _heirs(key: Key, tenant: Tenant, sight: Sight) -> set[tuple[int, str]]:
    uid, name, gpu = key
    names = {box.cid: box.name for box in tenant.boxes if box.known}
    return {
        (pid, at)
        for pod, container, at, pid in sight.heirs
        if pod == uid and name in (None, names.get(container, "")) and gpu in (None, at)
    }


def _shares(tenant: Tenant, uses: list[TrueUse], sight: Sight) -> dict[str, int]:
    """What each container declares for itself; more than any pod has, where that can't be determined."""
    found: dict[str, int] = {}
    for box in tenant.boxes:
        if tenant.kind != "note" and box.declares is not None and box.declares >= 0:
            try:
                found[box.name] = _amount(box, tenant, uses, sight)
            except UnknownError:
                found[box.name] = 2**63
    return found


def lags(use: TrueUse, uid: str, sight: Sight) -> bool:
    """Whether it is in a container that the list does not have yet, and need not have."""
    return not use.container and (uid, use.task.container or "") not in sight.overdue


def phases(tenant: Tenant) -> list[list[Box]]:
    """The containers that count together: each plain init container alone, or all the main ones."""
    init = [[box] for box in tenant.boxes if box.kind is ContainerKind.INIT]
    return [*init, [box for box in tenant.boxes if box.kind is ContainerKind.MAIN]]


def current(tenant: Tenant) -> list[Box]:
    *init, main = phases(tenant)
    return next((phase for phase in init if phase[0].runs), main)


def _declared(
    tenant: Tenant, rule: Rule, name: str | None, phase: list[Box], uses: list[TrueUse], sight: Sight
) -> tuple[int | None, bool]:
    """What an account declares in a phase, in bytes, and whether that is a default; None: nothing that holds."""
    if name == "":
        return None, False
    if tenant.kind == "note":
        # One amount for the pod can't be split among its containers.
        is_split = name is not None and [box.name for box in phase] != [name]
        noted = None if is_split else _noted(tenant, sight)
        return (rule.default, True) if noted is None else (noted, False)
    boxes = phase if name is None else [box for box in tenant.boxes if box.name == name]
    written = [box for box in boxes if box.declares is not None]
    if any((box.declares or 0) < 0 for box in written):
        return None, False
    if not written:
        others = [box for box in tenant.boxes if box.declares is not None and box.declares >= 0 and name is None]
        if rule.default is None:
            return None, not others
        reserved = sum(_amount(box, tenant, uses, sight) for box in others)
        return (reserved, False) if reserved > rule.default else (rule.default, True)
    return sum(_amount(box, tenant, uses, sight) for box in written), False


def _noted(tenant: Tenant, sight: Sight) -> int | None:
    """What an annotation comes to; None: there is none that can be true."""
    if tenant.notes is None or tenant.notes < 0:
        return None
    if tenant.notes <= sum(sight.sizes.values()):
        return tenant.notes
    if sight.hidden or not sight.answer:
        raise UnknownError
    return None


def _amount(box: Box, tenant: Tenant, uses: list[TrueUse], sight: Sight) -> int:
    number = box.declares or 0
    if tenant.kind != "share":
        return number
    if not sight.labelled or not sight.tells:
        raise UnknownError
    if any(not use.container for use in uses):  # it may be one that the list does not have: on any card
        if sight.hidden or len(set(sight.sizes.values())) > 1:
            raise UnknownError
        return -(-number * min(sight.sizes.values()) // REPLICAS)
    sizes = [sight.sizes[gpu] for gpu in {use.gpu for use in uses if use.container == box.name}]
    if not sizes:
        return -(-number * min(sight.sizes.values()) // REPLICAS)
    more = number - REPLICAS * len(sizes)  # than the cards that it uses are divided into: of the smallest
    if more > 0:
        return sum(sizes) + -(-more * min(sight.sizes.values()) // REPLICAS)
    return -(-number * sum(sizes) // (REPLICAS * len(sizes)))


def protected(tenant: Tenant, policy: Policy, now: Now, ago_s: float = 0.0) -> bool:
    """Whether a pod must never be acted on at this moment, or at one this many seconds before it."""
    return (
        tenant.namespace == "kube-system"
        or tenant.uid == WATCHDOG
        or tenant.static
        or _has_protected_priority(tenant, policy)
        or _may_take_its_time(tenant, now.wall_s - ago_s, now.boottime_s - ago_s)
        or tenant.namespace in policy.protect.namespaces
        or (policy.protect.annotation != "" and tenant.spared)
    )


def _has_protected_priority(tenant: Tenant, policy: Policy) -> bool:
    where = policy.protect.priority_namespaces
    least = min(2_000_000_000, policy.protect.priority_at_least)
    return tenant.priority is not None and tenant.priority >= least and ("*" in where or tenant.namespace in where)


def _may_take_its_time(tenant: Tenant, wall_s: float, boottime_s: float) -> bool:
    """Point 28: until its deletion deadline, and for ten minutes after it was first seen terminating at most."""
    if tenant.deadline_s is None or wall_s > tenant.deadline_s:
        return False
    return tenant.dying_s is None or boottime_s - tenant.dying_s <= 600.0


def is_trusted_server(task: Task, tenant: Tenant) -> bool:
    """Whether what calls itself an MPS server there is one that no tenant can have made up."""
    return task.named and (is_system(tenant) or (task.serves_others and is_daemon_sets(tenant)))


def is_daemon_sets(tenant: Tenant) -> bool:
    return tenant.owner is not None and tenant.owner[0] == "DaemonSet"


def is_system(tenant: Tenant) -> bool:
    return tenant.namespace == "kube-system" or tenant.static


WATCHDOG = "pod-watchdog"  # the UID of the daemon's own pod


def victims(fact: Fact) -> list[str]:
    """The containers that a kill may hit, the one farthest above its own declaration first."""
    if fact.key[1] is not None:
        return [fact.key[1]]
    found: list[tuple[int, int, str]] = []
    for name in {use.container for use in fact.uses if use.container}:
        used = sum(use.used or 0 for use in fact.uses if use.container == name)
        own = fact.shares.get(name, 0)
        if used > own:
            found.append((own - used, -used, name))
    return [name for _, _, name in sorted(found)]


def true_to_claim(task: Task) -> bool:
    return task.claim == true_claim(task.pod, task.container)


def is_honest(task: Task, said: Process | None) -> bool:
    """Whether /proc told the truth about a process when it was read, which may not happen again."""
    return said is not None and said.key == task.key and said.place == true_claim(task.pod, task.container)


def is_needed(
    truth: TrueReading, answers: Mapping[int, Process], uid: str, tenants: Mapping[str, Tenant], policy: Policy
) -> bool:
    """Whether a process of the pod is a server that others have, or may be a client of one that is not its own.

    A server that honestly runs in a pod that serves no other pod is its clients' own, where no other one is listed.
    """
    servers = [(line.gpu, line.task) for line in truth.lines if line.task is not None and line.task.named]
    clients = {(line.gpu, line.task.pod) for line in truth.lines if line.task is not None and line.mps is not False}
    if any(task.pod == uid and is_trusted_server(task, tenants[uid]) for _, task in servers):
        return True
    own = {(gpu, task.pod) for gpu, task in servers if _serves_its_pod(task, answers, tenants)}
    open_gpus = {gpu for gpu, task in servers if not _serves_its_pod(task, answers, tenants)}
    open_gpus |= {gpu for gpu, _ in clients - own}
    mine = {gpu for gpu, pod in clients if pod == uid}
    return not (policy.safety.signal_mps_clients or mine.isdisjoint(open_gpus))


def pods_of(tenants: Mapping[str, Tenant]) -> dict[str, str]:
    """The pod of each container that the list has, by its ID: a process that names another one is not believed."""
    return {box.cid: uid for uid, tenant in tenants.items() for box in tenant.boxes if box.known}


def hides_clients(truth: TrueReading, answers: Mapping[int, Process], tenants: Mapping[str, Tenant]) -> bool:
    """Whether some client's cgroup was a lie, so that it may be in any pod; only a privileged process can write one.

    What counts is what was read of it. Where nothing shows MPS at all, no process is taken for a client.
    """
    has_mps = any(line.mps or (line.task is not None and line.task.named) for line in truth.lines)
    pods = pods_of(tenants)
    places = [answers[line.pid].place for line in truth.lines if line.mps is not False and line.pid in answers]
    odd = (PlaceKind.CONTRADICTORY, PlaceKind.UNREADABLE)
    return has_mps and any(each.kind in odd or pods.get(each.container or "", each.pod) != each.pod for each in places)


def _serves_its_pod(task: Task, answers: Mapping[int, Process], tenants: Mapping[str, Tenant]) -> bool:
    tenant = tenants.get(task.pod or "")
    is_own = tenant is not None and not is_trusted_server(task, tenant)
    return is_own and task.lives and is_honest(task, answers.get(task.key.pid))
