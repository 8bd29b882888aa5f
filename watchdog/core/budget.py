"""Budgets: what an account may use, from what its pod declares."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from watchdog.core.amount import Amount, Devices
from watchdog.core.cards import Cards
from watchdog.core.declare import PodDeclaration, active_containers
from watchdog.core.findings import AttributedUse
from watchdog.core.model import Gpu, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Policy, Rule
from watchdog.core.sizing import Holder, bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an account declares and may use, in bytes; `of` is the part of each container that declares.

    `requested` and `allowed_by_request` are set where a tenant has named a limit, which is then what is declared.
    `misdeclared` says that the pod tried to declare and nothing of it holds.
    """

    declared: int | None = None
    declared_by: str | None = None
    allowed: int | None = None
    misdeclared: bool = False
    of: Mapping[str, int] = field(default_factory=dict)
    requested: int | None = None
    allowed_by_request: int | None = None


def is_per_gpu(declaration: PodDeclaration) -> bool:
    """Whether a pod's declarations hold for each GPU on its own."""
    return any(amount.per == "gpu" for amount in _amounts(declaration))


def contradicts_itself(declaration: PodDeclaration) -> bool:
    """Whether a pod declares a total and an amount per GPU, which cannot be added."""
    return {"total", "gpu"} <= {amount.per for amount in _amounts(declaration)}


def budget(pod: Pod, declaration: PodDeclaration, scale: "Scale", policy: Policy) -> Budget:
    """Work out the budget of one account of a pod, of the containers and GPUs that `scale` names."""
    if scale.container == "":
        return Budget()  # processes of containers that the list does not know yet: measured, never acted on
    active = [container.name for container in active_containers(pod)]
    split = declaration.pod is not None and scale.container is not None and active != [scale.container]
    if split or contradicts_itself(declaration):
        return Budget(misdeclared=True)
    amounts = _amounts_of(active, declaration, scale)
    asked = {*(active if scale.container is None else [scale.container]), *([] if amounts else [""])}
    if declaration.pod is None and declaration.misdeclared & asked and (amounts or scale.rule.default is None):
        return Budget(misdeclared=True)
    if not amounts:
        # In the init phase the containers that declare may not run yet.
        is_silent = scale.container is None and declaration.containers
        return Budget() if is_silent else _default(scale, policy)
    return _granted(amounts, scale, policy)


def _granted(amounts: Mapping[str, Amount], scale: "Scale", policy: Policy) -> Budget:
    declared = _sizes(amounts, scale)
    if declared is None:
        return Budget(declared_by=_sources(amounts.values()))
    granted = Budget(
        declared=sum(declared.values()),
        declared_by=_sources(amounts.values()),
        allowed=_allowed(amounts, declared, scale.uses, policy),
        of=declared,
    )
    requested = _sizes(amounts, scale, by_request=True) if any(a.limit is not None for a in amounts.values()) else None
    if requested is None:
        return granted
    allowed = _allowed(amounts, requested, scale.uses, policy)
    return replace(granted, requested=sum(requested.values()), allowed_by_request=allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Which account is meant (None: all of the pod's), under which rule, and the node's GPUs.

    `uses` are those of the account. `pod_uses` are all of the pod: on which GPUs a container uses most is not to be
    seen from one GPU alone.
    """

    rule: Rule
    container: str | None
    gpu: str | None
    gpus: tuple[Gpu, ...]
    uses: tuple[AttributedUse, ...]
    pod_uses: tuple[AttributedUse, ...]


def _sizes(amounts: Mapping[str, Amount], scale: Scale, *, by_request: bool = False) -> dict[str, int] | None:
    """What each container's amount comes to, in bytes; None where one needs the size of a card that is not known."""
    cards = Cards(gpus=scale.gpus)
    sizes: dict[str, int] = {}
    for name, amount in amounts.items():
        uses = _uses_of(scale.pod_uses, name)
        holder = Holder(_most_used(uses), scale.gpu, cards)
        if _is_undecided(amount, holder, uses):
            return None
        size = bytes_of(amount, holder, by_request=by_request)
        if size is None:
            return None
        sizes[name] = size
    return sizes


def _is_undecided(amount: Amount, holder: Holder, uses: tuple[AttributedUse, ...]) -> bool:
    """Whether it is open on which GPUs an amount holds: more are used than it is for, and not all use is known."""
    if all(use.used is not None for use in uses):
        return False
    if isinstance(amount.size, Devices):
        return len(holder.most_used) > sum(count for _, count in amount.size.counts)
    return amount.count is not None and len(holder.most_used) > amount.count


def _most_used(uses: tuple[AttributedUse, ...]) -> list[str]:
    by_gpu: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        by_gpu[use.gpu] += use.used or 0
    return sorted(by_gpu, key=lambda gpu: (-by_gpu[gpu], gpu))


def _amounts(declaration: PodDeclaration) -> tuple[Amount, ...]:
    return (declaration.pod,) if declaration.pod is not None else tuple(declaration.containers.values())


def _amounts_of(active: list[str], declaration: PodDeclaration, scale: Scale) -> dict[str, Amount]:
    """The amounts that count for an account, by container; "" is the pod's own."""
    if declaration.pod is not None:
        return {"": declaration.pod}
    names = active if scale.container is None else [scale.container]
    return {name: declaration.containers[name] for name in names if name in declaration.containers}


def _default(scale: Scale, policy: Policy) -> Budget:
    default = scale.rule.default
    if default is None:
        return Budget()
    allowance = policy.allowance if default else NO_ALLOWANCE
    allowed = allowance.allowed(default, _contexts(scale.uses))
    return Budget(declared=default, declared_by="default", allowed=allowed)


def _allowed(
    amounts: Mapping[str, Amount], known: Mapping[str, int], uses: tuple[AttributedUse, ...], policy: Policy
) -> int:
    """Add up what each allowance gives; processes of containers that declare nothing fall under the policy's own."""
    first, *others = (amount.allowance for amount in amounts.values())
    if all(other is first for other in others):
        return first.allowed(sum(known.values()), _contexts(uses))
    declared: defaultdict[Allowance, int] = defaultdict(int)
    of: dict[str, Allowance] = {}
    for name, amount in amounts.items():
        declared[amount.allowance] += known[name]
        of[name] = amount.allowance
    fallback = of.get("") or (next(iter(declared)) if len(declared) == 1 else policy.allowance)
    contexts: defaultdict[Allowance, list[AttributedUse]] = defaultdict(list)
    for use in uses:
        contexts[of.get(use.container, fallback)].append(use)
    every = declared.keys() | contexts.keys()
    return sum(each.allowed(declared[each], _contexts(contexts[each])) for each in every)


def _contexts(uses: Iterable[AttributedUse]) -> int:
    return len({(use.key, use.gpu) for use in uses})


def _uses_of(uses: tuple[AttributedUse, ...], container: str) -> tuple[AttributedUse, ...]:
    return uses if container == "" else tuple(use for use in uses if use.container == container)


def _sources(amounts: Iterable[Amount]) -> str:
    return ", ".join(sorted({amount.source for amount in amounts}))
