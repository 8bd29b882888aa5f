"""The truth behind a reading: who uses what, and what that pod may use, in arithmetic of its own."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.soak.claims import Given
from tests.soak.cluster import REPLICAS, Box, Tenant
from tests.soak.driver import Listed, TrueReading
from tests.soak.kernel import Task, true_claim
from watchdog.core.model import ContainerKind, Now, PlaceKind, Process
from watchdog.core.policy import Match, Policy, Rule, Step

Key = tuple[str, str | None, str | None]  # pod UID, container, GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueUse:
    """What a process truly of a pod uses; `container` is "" where the list does not know it yet."""

    task: Task
    container: str
    gpu: str
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPart:
    """The part of a claim that an account holds together with others: which it is, its bytes, and what it uses of it.

    `beside` are the others that hold it.
    """

    key: tuple[str, str, str, int]
    size: int
    used: int
    beside: "tuple[Fact, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """How one account truly stands. `allowed` is None where no declaration holds: such an account is left alone.

    `used` counts what the driver reported in containers that count, and what others use of a claim that it shares with
    them; `own` is without these. `is_known` says that nothing was hidden. `shares` is what each container declares for
    itself, `joint` are those that hold a part of a claim together with others.
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
    own: int
    joint: frozenset[str] = frozenset()
    part: SharedPart | None = None


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
    answered = [answers.get(line.pid) for line in lines]
    return any(one is None or one.place.kind is PlaceKind.UNREADABLE for one in answered)


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
    be out of sight. `given` is what is known of claims, by pod and name. `heirs` are the processes that have got the
    PID of a listed one, by pod, container ID, GPU and PID: what they use is not known, and they count as contexts.
    """

    sizes: Mapping[str, int]
    answer: bool
    hidden: bool
    labelled: bool
    given: Mapping[tuple[str, str], Given] = field(default_factory=dict)
    lit: bool = True
    overdue: frozenset[tuple[str, str]] = frozenset()
    heirs: frozenset[tuple[str, str, str, int]] = frozenset()

    @property
    def tells(self) -> bool:
        """Whether the size of a card is known whichever it is."""
        return not self.hidden and (self.answer or len(set(self.sizes.values())) == 1)

    def claimed(self, tenant: Tenant) -> Given:
        """What the claim of a pod gave it; UnknownError if that is not known, or if a card of it can't be seen."""
        found = self.given.get((tenant.uid, tenant.claim))
        if found is None or not found.cards <= self.sizes.keys():
            raise UnknownError
        return found


class UnknownError(Exception):
    """What an account declares can't be determined."""


def facts_of(
    uses: Mapping[str, list[TrueUse]], tenants: Mapping[str, Tenant], policy: Policy, sight: Sight, *, bright: bool
) -> dict[Key, Fact]:
    found: dict[Key, Fact] = {}
    others: dict[Key, Fact] = {}  # without a rule
    for uid, tenant in tenants.items():
        rule = rule_for(tenant, policy)
        own = uses.get(uid, [])
        if (rule is None and not tenant.claim) or (not own and not _has_any(tenant, sight)):
            continue  # it neither uses GPU memory nor declares it
        for key in _keys(tenant, rule or _NO_RULE, own, sight):
            fact = _fact(key, tenant, rule or _NO_RULE, own, policy, sight, bright=bright)
            (found if rule is not None else others)[key] = replace(fact, part=_part(fact, tenants, sight))
    return _with_others(found, others)


_NO_RULE = Rule(name="", match=Match())


def _has_any(tenant: Tenant, sight: Sight) -> bool:
    if tenant.claim:
        found = sight.given.get((tenant.uid, tenant.claim))
        # A card that can't be seen may be none; one that can shows that the claim is about GPUs.
        return found is not None and bool(found.cards) and any(box.declares is not None for box in tenant.boxes)
    return tenant.notes is not None or (tenant.kind != "note" and any(box.declares is not None for box in tenant.boxes))


def _keys(tenant: Tenant, rule: Rule, uses: list[TrueUse], sight: Sight) -> list[Key]:
    declaring = {box.name for box in tenant.boxes if tenant.kind != "note" and box.declares is not None}
    by_gpu = {box.name for box in tenant.boxes if tenant.kind == "gpu_mib" and (box.declares or 0) >= 0}
    by_gpu &= declaring
    claimed: frozenset[str] = frozenset()
    if tenant.claim:
        claimed, by_gpu = _cards(tenant, sight), declaring if _cards(tenant, sight) else set()
    names: list[str | None] = [None]
    if rule.account == "container":
        # A container that only holds a claim forms no account of its own before it uses anything.
        names = [*sorted({use.container for use in uses} | (set() if tenant.claim else declaring))] or [None]
    keys: list[Key] = []
    for name in names:
        gpus: set[str | None] = {None}
        if name in by_gpu or (name is None and by_gpu):
            gpus = {*(use.gpu for use in uses if name in (None, use.container)), *claimed} or {None}
        keys += [(tenant.uid, name, gpu) for gpu in gpus]
    return keys


def _cards(tenant: Tenant, sight: Sight) -> frozenset[str]:
    """The cards on which the claim of a pod gave it an amount; none if that is not known."""
    try:
        found = sight.claimed(tenant)
    except UnknownError:
        return frozenset()
    return found.cards if found.gives_amounts else frozenset()


def _part(fact: Fact, tenants: Mapping[str, Tenant], sight: Sight) -> SharedPart | None:
    """What an account holds of a claim together with others; a claim has one part on each card here."""
    tenant, (_, name, gpu) = fact.tenant, fact.key
    if gpu is None or fact.allowed is None or gpu not in _cards(tenant, sight):
        return None
    others = [one for one in tenants.values() if one.claim == tenant.claim and one.namespace == tenant.namespace]
    holders = [box.name for box in tenant.boxes if box.declares is not None]
    if name not in (None, *holders) or not (len(others) > 1 or (name is not None and len(holders) > 1)):
        return None
    given = sight.claimed(tenant)
    size = given.size_on(gpu, sight.sizes) or 0
    used = max(0, size - (fact.allowed - fact.own))
    return SharedPart(key=(tenant.namespace, tenant.claim, gpu, given.number), size=size, used=used)


def _with_others(found: Mapping[Key, Fact], without_rule: Mapping[Key, Fact]) -> dict[Key, Fact]:
    """The accounts with what others use of the parts of claims that they share."""
    members: defaultdict[object, list[Fact]] = defaultdict(list)
    for fact in (*found.values(), *without_rule.values()):
        if fact.part is not None:
            members[fact.part.key].append(fact)

    def joined(fact: Fact) -> Fact:
        if fact.part is None:
            return fact
        beside = tuple(each for each in members[fact.part.key] if each.key != fact.key)
        more = sum(each.part.used for each in beside if each.part is not None) if fact.part.used else 0
        is_known = fact.is_known and (not fact.part.used or all(each.is_known for each in beside))
        return replace(fact, used=fact.own + more, is_known=is_known, part=replace(fact.part, beside=beside))

    return {key: joined(fact) for key, fact in found.items()}


def comes_first(fact: Fact, policy: Policy, now: Now, spared: Callable[[Fact], bool] | None = None) -> bool:
    """Whether it is the one of those on its part of a claim that is acted on.

    Those count that use more and that a step is for, unless they are protected or `spared`; without that, all that use
    no less.
    """
    part = fact.part
    if part is None or not part.used:
        return False
    users = 1 + sum(each.part.used > 0 for each in part.beside if each.part is not None)
    if part.used * users <= part.size:
        return False
    above = [each for each in part.beside if each.part is not None and each.part.used >= part.used]
    if spared is None:
        return not above
    ready = (each for each in above if each.part is not None and each.part.used > part.used)
    return not any(
        any(
            step.do != "warn" and each.own + fact.used - part.used > threshold_bytes(step, each.allowed or 0)
            for step in each.rule.steps
        )
        and not spared(each)
        and each.rule.mode != "observe"
        and not any(protected(each.tenant, policy, now, ago_s) for ago_s in (0.0, 5.0))
        for each in ready
    )


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
            claimed = _claimed(tenant, name, gpu, phase, sight)
            if claimed is not None:
                shares, whole = claimed
                # Nobody else is on a whole device.
                is_shared = shares or not whole
                more = shares * allowance.percent // 1 + allowance.per_context * contexts if is_shared else 0
                found.append((shares + whole + more, shares + whole))
                continue
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
    used = sum(use.used or 0 for use in own if use not in late)
    return Fact(
        key=key,
        tenant=tenant,
        rule=rule,
        declared=declared,
        allowed=allowed,
        used=used,
        is_known=bright and not late,
        uses=own,
        shares=_shares(tenant, uses, sight, gpu),
        own=used,
        joint=_joint(tenant, gpu, sight),
    )


def _claimed(
    tenant: Tenant, name: str | None, gpu: str | None, phase: list[Box], sight: Sight
) -> tuple[int, int] | None:
    """The bytes of shares and of whole devices that an account holds by its claim; None: its claim gives no amount."""
    boxes = phase if name is None else [box for box in tenant.boxes if box.name == name]
    if name == "" or not tenant.claim or all(box.declares is None for box in boxes):
        return None
    given = sight.claimed(tenant)
    if not given.gives_amounts:
        return None
    own = [(card, size) for card, size in given.parts if gpu in (None, card)]
    return sum(size or 0 for _, size in own), sum(sight.sizes[card] for card, size in own if size is None)


def _joint(tenant: Tenant, gpu: str | None, sight: Sight) -> frozenset[str]:
    """The containers that hold a part of a claim on a card, of which there are several, or which may be shared."""
    if not tenant.claim or gpu not in _cards(tenant, sight):
        return frozenset()
    return frozenset(box.name for box in tenant.boxes if box.declares is not None)


def _heirs(key: Key, tenant: Tenant, sight: Sight) -> set[tuple[int, str]]:
    uid, name, gpu = key
    names = {box.cid: box.name for box in tenant.boxes if box.known}
    return {
        (pid, at)
        for pod, container, at, pid in sight.heirs
        if pod == uid and name in (None, names.get(container, "")) and gpu in (None, at)
    }


def _shares(tenant: Tenant, uses: list[TrueUse], sight: Sight, gpu: str | None) -> dict[str, int]:
    """What each container declares for itself; more than any pod has, where that can't be determined."""
    found: dict[str, int] = {}
    if tenant.claim:
        given = sight.given.get((tenant.uid, tenant.claim))
        size = given.size_on(gpu, sight.sizes) if given is not None and _cards(tenant, sight) else None
        return {box.name: size for box in tenant.boxes if box.declares is not None and size is not None}
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
    if tenant.kind in ("note", "claim"):  # without an amount by a claim, nothing else is declared
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
    is_one_size = len(set(sight.sizes.values())) == 1
    if not is_one_size and not _may_be_on(box, tenant, uses, sight) <= _surely_on(box, uses):
        raise UnknownError
    sizes = [sight.sizes[gpu] for gpu in {use.gpu for use in uses if use.container == box.name}]
    if not sizes:
        return -(-number * min(sight.sizes.values()) // REPLICAS)
    more = number - REPLICAS * len(sizes)  # than the cards that it uses are divided into: of the smallest
    if more > 0:
        return sum(sizes) + -(-more * min(sight.sizes.values()) // REPLICAS)
    return -(-number * sum(sizes) // (REPLICAS * len(sizes)))


def _surely_on(box: Box, uses: list[TrueUse]) -> set[str]:
    """The cards on which it is known of some process of a container how much it uses."""
    return {use.gpu for use in uses if use.container == box.name and use.used is not None}


def _may_be_on(box: Box, tenant: Tenant, uses: list[TrueUse], sight: Sight) -> set[str]:
    """The cards on which it is not known of some process of a container how much it uses, which may be nothing."""
    hidden = {use.gpu for use in uses if use.container == box.name and use.used is None}
    return hidden | {gpu for _, gpu in _heirs((tenant.uid, box.name, None), tenant, sight)}


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
    """The containers that a kill may hit, the one farthest above its own declaration first.

    Of those that hold a claim together none need be above it.
    """
    if fact.key[1] is not None:
        return [fact.key[1]]
    found: list[tuple[int, int, str]] = []
    joint: list[tuple[int, int, str]] = []
    for name in {use.container for use in fact.uses if use.container}:
        used = sum(use.used or 0 for use in fact.uses if use.container == name)
        own = fact.shares.get(name, 0)
        if used > own:
            found.append((own - used, -used, name))
        elif used and name in fact.joint and _holds_jointly(fact):
            joint.append((0, -used, name))
    return [name for _, _, name in sorted(found or joint)]


def _holds_jointly(fact: Fact) -> bool:
    return len(fact.joint) > 1 or fact.part is not None


def true_to_claim(task: Task) -> bool:
    return task.claim == true_claim(task.pod, task.container)


def is_honest(task: Task, answer: Process | None) -> bool:
    """Whether /proc told the truth about a process when it was read, which may not happen again."""
    return answer is not None and answer.key == task.key and answer.place == true_claim(task.pod, task.container)


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
    shared = {gpu for gpu, task in servers if not _serves_its_pod(task, answers, tenants)}
    open_gpus = shared | {gpu for gpu, _ in clients - own}
    mine = {gpu for gpu, pod in clients if pod == uid}
    # Of a process that has the PID of a listed one nothing is known: it may be a client where there is a server.
    mine |= {gpu for pod, _, gpu, _ in heirs(truth, answers, tenants) if pod == uid and gpu in shared}
    return not (policy.safety.signal_mps_clients or mine.isdisjoint(open_gpus))


def pods_of(tenants: Mapping[str, Tenant]) -> dict[str, str]:
    """The pod of each container that the list has, by its ID: a process that names another one is not believed."""
    return {box.cid: uid for uid, tenant in tenants.items() for box in tenant.boxes if box.known}


def heirs(
    truth: TrueReading, answers: Mapping[int, Process], tenants: Mapping[str, Tenant]
) -> frozenset[tuple[str, str, str, int]]:
    """The processes that have the PID of a listed one, by pod, container ID, GPU and PID."""
    answered = ((line, answers.get(line.pid)) for line in truth.lines)
    others = [(line, one.place) for line, one in answered if one and (line.task is None or one.key != line.task.key)]
    pods = pods_of(tenants) if others else {}
    return frozenset(
        (place.pod, place.container or "", line.gpu, line.pid)
        for line, place in others
        if place.pod and pods.get(place.container or "", place.pod) == place.pod
    )


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
