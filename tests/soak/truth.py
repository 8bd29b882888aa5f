"""The truth behind a reading: who uses what, and what that pod may use, in arithmetic of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.soak.cluster import Tenant
from tests.soak.driver import Listed, Told
from tests.soak.kernel import Task, true_claim
from tests.soak.policies import PolicyPlan, RulePlan
from watchdog.core.model import PlaceKind, Process

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

    `used` counts what the driver told of; `is_known` says that nothing of the node was hidden.
    """

    key: Key
    tenant: Tenant
    rule: RulePlan
    declared: int | None
    allowed: int | None
    used: int
    is_known: bool
    uses: tuple[TrueUse, ...]


def tenants_uses(
    lines: Iterable[Listed], answers: Mapping[int, Process], tenants: Mapping[str, Tenant]
) -> dict[str, list[TrueUse]]:
    """The lines of a reading by the pod that they truly belong to, as far as /proc was honest about the process."""
    found: dict[str, list[TrueUse]] = {}
    for line in lines:
        task, said = line.task, answers.get(line.pid)
        if task is None or task.pod is None or said is None or said.key != task.key or task.mps:
            continue
        place = said.place
        if place.kind is not PlaceKind.POD or place.pod != task.pod or place.container != task.container:
            continue
        tenant = tenants.get(task.pod)
        if tenant is None:
            continue
        name = next((box.name for box in tenant.boxes if box.known and box.cid == task.container), "")
        found.setdefault(task.pod, []).append(TrueUse(task=task, container=name, gpu=line.gpu, used=line.used))
    return found


def is_bright(told: Told, answers: Mapping[int, Process]) -> bool:
    """Whether nothing at all was hidden in a reading, so that every account is known for sure."""
    if not told.is_bright:
        return False
    for line in told.lines:
        said = answers.get(line.pid)
        if said is None or said.place.kind is PlaceKind.UNREADABLE or (line.task and said.key != line.task.key):
            return False
    return True


def rule_for(tenant: Tenant, plan: PolicyPlan) -> RulePlan | None:
    """The first rule that is for a pod."""
    for rule in plan.rules:
        if rule.namespace in (None, tenant.namespace) and rule.tier in (None, tenant.tier):
            return rule
    return None


def facts_of(
    uses: Mapping[str, list[TrueUse]], tenants: Mapping[str, Tenant], plan: PolicyPlan, *, bright: bool
) -> dict[Key, Fact]:
    """Every account of every pod that has a rule."""
    found: dict[Key, Fact] = {}
    for uid, tenant in tenants.items():
        rule = rule_for(tenant, plan)
        if rule is None:
            continue
        own = uses.get(uid, [])
        if not own and not _written(tenant, None):
            continue  # it neither uses GPU memory nor declares it
        for key in _keys(tenant, rule, own):
            found[key] = _fact(key, tenant, rule, own, plan, bright=bright)
    return found


def _keys(tenant: Tenant, rule: RulePlan, uses: list[TrueUse]) -> list[Key]:
    names: list[str | None] = [None]
    if rule.account == "container":
        writes = tenant.kind != "note"
        declaring = {box.name for box in tenant.boxes if writes and box.declares is not None}
        names = [*sorted({use.container for use in uses} | declaring)] or [None]
    per_gpu = tenant.kind == "gpu_mib" and any(box.declares is not None and box.declares >= 0 for box in tenant.boxes)
    keys: list[Key] = []
    for name in names:
        gpus: set[str | None] = {None}
        if per_gpu:
            gpus = {use.gpu for use in uses if name in (None, use.container)} or {None}
        keys += [(tenant.uid, name, gpu) for gpu in gpus]
    return keys


def _fact(key: Key, tenant: Tenant, rule: RulePlan, uses: list[TrueUse], plan: PolicyPlan, *, bright: bool) -> Fact:
    _, name, gpu = key
    own = tuple(use for use in uses if name in (None, use.container) and gpu in (None, use.gpu))
    declared = _declared(tenant, rule, name)
    allowed = None
    if declared is not None:
        is_forbidden = declared == 0 and not _has_written(tenant, name)
        contexts = min(len({(use.task.key, use.gpu) for use in own}), plan.max_contexts)
        more = 0 if is_forbidden else declared * plan.percent // 100 + plan.per_context * contexts
        allowed = declared + more
    return Fact(
        key=key,
        tenant=tenant,
        rule=rule,
        declared=declared,
        allowed=allowed,
        used=sum(use.used or 0 for use in own),
        is_known=bright,
        uses=own,
    )


def _written(tenant: Tenant, name: str | None) -> list[int]:
    if tenant.kind == "note":
        return [] if tenant.notes is None else [tenant.notes]
    return [box.declares for box in tenant.boxes if box.declares is not None and name in (None, box.name)]


def _has_written(tenant: Tenant, name: str | None) -> bool:
    return any(amount >= 0 for amount in _written(tenant, name))


def _declared(tenant: Tenant, rule: RulePlan, name: str | None) -> int | None:
    """What an account declares, in bytes; None: nothing that holds."""
    if name == "":
        return None
    written = _written(tenant, name)
    good = [amount for amount in written if amount >= 0]
    if len(good) < len(written) and (good or rule.default is None):
        return None
    if not good:
        return rule.default
    if tenant.kind == "note" and name is not None and [box.name for box in tenant.boxes] != [name]:
        return None  # one amount for the pod can't be split among its containers
    return sum(good)


def protected(tenant: Tenant, plan: PolicyPlan, wall_s: float) -> bool:
    """Whether a pod must never be acted on at this moment."""
    priority = tenant.priority or 0
    return (
        tenant.namespace == "kube-system"
        or tenant.uid == WATCHDOG
        or tenant.static
        or priority >= min(2_000_000_000, plan.priority_at_least)
        or (tenant.deadline_s is not None and wall_s <= tenant.deadline_s)
        or tenant.namespace == plan.spared_namespace
        or (plan.annotation != "" and tenant.spared)
    )


WATCHDOG = "pod-watchdog"  # the UID of the daemon's own pod


def victim_container(fact: Fact) -> str:
    """The container that a kill is to hit: the one farthest above its own declaration; "": none."""
    if fact.key[1] is not None:
        return fact.key[1]
    best: tuple[int, int, str] | None = None
    for name in {use.container for use in fact.uses if use.container}:
        used = sum(use.used or 0 for use in fact.uses if use.container == name)
        own = 0
        if fact.tenant.kind != "note":
            own = sum(max(b.declares or 0, 0) for b in fact.tenant.boxes if b.name == name)
        rank = (own - used, -used, name)
        best = rank if best is None or rank < best else best
    return "" if best is None else best[2]


def true_to_claim(task: Task) -> bool:
    """Whether the cgroup text of a process is honest."""
    return task.claim == true_claim(task.pod, task.container)
