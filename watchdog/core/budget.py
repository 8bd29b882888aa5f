"""Budgets: what an account may use, from what its pod declares."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watchdog.core.amount import Amount, Cards, CardShare, Devices, Holder, bytes_of
from watchdog.core.assessment import AttributedUse
from watchdog.core.declare import PodDeclaration
from watchdog.core.model import Container
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Policy, Rule
from watchdog.core.units import LARGEST

Phase = tuple[Container, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an account declares and may use, in bytes, none of which is more than a quantity of Kubernetes can be.

    `of` is what each container declares for itself, also one that does not count now, and `requests` what it requests
    of that. `requested` and `allowed_by_request` are set where a tenant has named a limit, which then is declared.
    `misdeclared` says that the pod tried to declare and nothing of it holds.
    """

    declared: int | None = None
    declared_by: str | None = None
    allowed: int | None = None
    misdeclared: bool = False
    of: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    requested: int | None = None
    allowed_by_request: int | None = None


def is_per_gpu(declaration: PodDeclaration, container: str | None) -> bool:
    """Whether what a container (None: the pod) declares is for each GPU by itself; a default is a total."""
    amounts = _amounts(declaration)
    if declaration.pod is None and container is not None:
        amounts = tuple(amount for name, amount in declaration.containers.items() if name == container)
    return any(amount.per == "gpu" for amount in amounts)


def contradicts_itself(declaration: PodDeclaration) -> bool:
    """Whether a pod declares a total and an amount per GPU, which cannot be added."""
    return {"total", "gpu"} <= {amount.per for amount in _amounts(declaration)}


def largest_budget(phases: Sequence[tuple[Phase, PodDeclaration]], scale: "Scale", policy: Policy) -> Budget:
    """Work out the budget of an account in the phase in which it may use most: which one it is in is not known.

    Where the budget of one of them can't be determined, the largest can't; nor where one has none, since the pod would
    be left alone in that phase.
    """
    found = [budget(phase, declaration, scale, policy) for phase, declaration in phases]
    bounded = [each for each in found if each.allowed is not None]
    if not bounded:
        return found[-1]
    if len(bounded) < len(found):
        return Budget(declared_by=next((each.declared_by for each in found if each.declared_by), None))
    by_request = max(bounded, key=_by_request)
    requested = by_request.declared if by_request.requested is None else by_request.requested
    largest = max(bounded, key=lambda each: each.allowed or 0)
    return replace(largest, requested=requested, allowed_by_request=_by_request(by_request))


def _by_request(granted: Budget) -> int:
    return (granted.allowed if granted.allowed_by_request is None else granted.allowed_by_request) or 0


def budget(phase: Phase, declaration: PodDeclaration, scale: "Scale", policy: Policy) -> Budget:
    """Work out the budget of one account of a pod in a phase, of the containers and GPUs that `scale` names."""
    if scale.container == "":
        return Budget()  # processes of containers that the list does not know yet: measured, never acted on
    active = [container.name for container in phase]
    split = declaration.pod is not None and scale.container is not None and active != [scale.container]
    if split or contradicts_itself(declaration):
        return Budget(misdeclared=True)
    amounts = _amounts_of(active, declaration, scale)
    asked = {*(active if scale.container is None else [scale.container]), *([] if amounts else [""])}
    has_tried = declaration.pod is None and not amounts and scale.rule.default is None
    if declaration.invalid & asked or (has_tried and declaration.misdeclared & asked):
        return Budget(misdeclared=True)
    if not amounts:
        # In the init phase the containers that declare may not run yet.
        is_silent = scale.container is None and declaration.containers
        return Budget() if is_silent else _default(scale, policy)
    others = {name: each for name, each in declaration.containers.items() if name not in amounts}
    return _granted(amounts, {} if scale.container is not None else others, scale, policy)


def _granted(amounts: Mapping[str, Amount], others: Mapping[str, Amount], scale: "Scale", policy: Policy) -> Budget:
    """The budget of what counts now; `others` are amounts of containers that do not."""
    declared = _sizes(amounts, scale)
    if declared is None:
        return Budget(declared_by=_sources(amounts.values()))
    # Of a container whose own amount can't be determined nobody can say that it is above it.
    idle = {name: (_sizes({name: each}, scale) or {name: LARGEST})[name] for name, each in others.items()}
    granted = Budget(
        declared=min(sum(declared.values()), LARGEST),
        declared_by=_sources(amounts.values()),
        allowed=_allowed(amounts, declared, scale, policy),
        of={**idle, **declared},
        requests={**idle, **declared},
    )
    requested = _sizes(amounts, scale, by_request=True) if any(a.limit is not None for a in amounts.values()) else None
    if requested is None:
        return granted
    allowed = _allowed(amounts, requested, scale, policy)
    return replace(
        granted,
        requested=min(sum(requested.values()), LARGEST),
        allowed_by_request=allowed,
        requests={**idle, **requested},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Which account is meant (None: all of the pod's), under which rule, and the node's cards.

    `uses` are those of the account; `hidden` says that it may have more contexts. `pod_uses` are all of the pod: on
    which GPUs a container uses most is not to be seen from one GPU alone.
    """

    rule: Rule
    container: str | None
    gpu: str | None
    cards: Cards
    uses: tuple[AttributedUse, ...]
    pod_uses: tuple[AttributedUse, ...]
    hidden: bool = False

    def contexts(self, uses: Iterable[AttributedUse]) -> int:
        """How many contexts an allowance counts: one for each process on each GPU, the most where some may be hidden.

        A card that drops out takes its contexts out of sight, but nobody is to be over its amount because of that.
        """
        return LARGEST if self.hidden else len({(use.key, use.gpu) for use in uses})


def _sizes(amounts: Mapping[str, Amount], scale: Scale, *, by_request: bool = False) -> dict[str, int] | None:
    """What each container's amount comes to, in bytes; None where one needs the size of a card that is not known."""
    sizes: dict[str, int] = {}
    is_behind = any(not use.container for use in scale.pod_uses)
    for name, amount in amounts.items():
        uses = _uses_of(scale.pod_uses, name)
        holder = Holder(_most_used(uses), scale.gpu, scale.cards)
        if is_behind and name:
            # It may be one that the list does not have yet: on which cards it is, is not known then.
            holder = Holder([] if scale.gpu is None else [scale.gpu], scale.gpu, scale.cards)
        is_anywhere = is_behind and name != "" and scale.gpu is None and not isinstance(amount.size, int)
        if (is_anywhere and not scale.cards.have_one_size) or _is_undecided(amount, holder, uses):
            return None
        size = bytes_of(amount, holder, by_request=by_request)
        if size is None:
            return None
        sizes[name] = min(size, LARGEST)
    return sizes


def _is_undecided(amount: Amount, holder: Holder, uses: tuple[AttributedUse, ...]) -> bool:
    """Whether it is open on which GPUs an amount holds: more are used than it is for, and not all use is known.

    Of whole devices it is open as well while one is out of sight: that may be the larger one, and the pod's.
    """
    if isinstance(amount.size, Devices) and holder.cards.hidden:
        return True
    if all(use.used is not None for use in uses):
        return False
    if isinstance(amount.size, CardShare) and amount.per == "total" and not holder.cards.have_one_size:
        # On a card of which no bytes are known the container may have nothing at all.
        return not {use.gpu for use in uses if use.used is not None}.issuperset(holder.most_used)
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
    allowed = min(allowance.allowed(default, scale.contexts(scale.uses)), LARGEST)
    return Budget(declared=default, declared_by="default", allowed=allowed)


def _allowed(amounts: Mapping[str, Amount], known: Mapping[str, int], scale: Scale, policy: Policy) -> int:
    """Add up what each allowance gives; processes of containers that declare nothing fall under the policy's own."""
    first, *others = (amount.allowance for amount in amounts.values())
    if all(other is first for other in others):
        return min(first.allowed(sum(known.values()), scale.contexts(scale.uses)), LARGEST)
    declared: defaultdict[Allowance, int] = defaultdict(int)
    of: dict[str, Allowance] = {}
    for name, amount in amounts.items():
        declared[amount.allowance] += known[name]
        of[name] = amount.allowance
    fallback = of.get("") or (next(iter(declared)) if len(declared) == 1 else policy.allowance)
    by_allowance: defaultdict[Allowance, list[AttributedUse]] = defaultdict(list)
    for use in scale.uses:
        by_allowance[of.get(use.container, fallback)].append(use)
    every = declared.keys() | by_allowance.keys() | ({fallback} if scale.hidden else set())
    return min(sum(each.allowed(declared[each], scale.contexts(by_allowance[each])) for each in every), LARGEST)


def _uses_of(uses: tuple[AttributedUse, ...], container: str) -> tuple[AttributedUse, ...]:
    return uses if container == "" else tuple(use for use in uses if use.container == container)


def _sources(amounts: Iterable[Amount]) -> str:
    return ", ".join(sorted({amount.source for amount in amounts}))
