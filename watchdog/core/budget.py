"""Budgets: what an account may use, from what its pod declares."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from watchdog.core.amount import Amount, Cards, CardShare, Devices, Placement, bytes_of
from watchdog.core.assessment import MOST_MISDECLARED, AttributedUse, Misdeclaration
from watchdog.core.claims import Claimed, Part, are_placed, by_gpu, parts_of
from watchdog.core.declare import NOT_LISTED, Phase, PodDeclaration
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Policy, Rule
from watchdog.core.units import LARGEST, brief

_LONGEST_SOURCE: Final = 600  # each container may declare by a key of its own
_UNLISTED: Final = (
    f"{NOT_LISTED}, so no scheduler has checked it, and it counts for no more than what applies without it"
)
_UNLISTED_ALONE: Final = f"{NOT_LISTED}, so no scheduler has checked it; it counts because nothing else applies"
_LISTED_LATE: Final = "the pod list does not have all of the pod's containers yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an account declares and may use, in bytes, each at most the largest Kubernetes quantity."""

    # If the tenant has set a limit above the request, that limit. None if no declaration counts, or its amount can't be
    # determined.
    declared: int | None = None
    # As in `Assessment`.
    declared_by: str | None = None
    # With the allowance; None: as for `declared`.
    allowed: int | None = None
    # Whether the pod declares, but no declaration is valid.
    misdeclared: bool = False
    # Why it can't be determined now, as a clause; empty if it can.
    unknown: str = ""
    # What each container declares that counts now or uses memory.
    by_container: Mapping[str, int] = field(default_factory=dict)
    # What each of them requests.
    requests_by_container: Mapping[str, int] = field(default_factory=dict)
    # What is requested if the tenant has set a limit above that; None: as declared.
    requested: int | None = None
    # `requested` with the allowance; None: as allowed.
    allowed_by_request: int | None = None
    # What claims gave by card, by its UUID; empty if they gave nothing, or are not tied to cards.
    declared_by_gpu: Mapping[str, int] = field(default_factory=dict)
    # What claims gave on its cards.
    parts: tuple[Part, ...] = ()
    # As in `Assessment`.
    open_share: str = ""
    # Whether resources that nobody has checked count, because nothing else applies; False: something else counts
    # instead; None: neither is the case.
    unlisted_counts: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account with what its budget depends on: its rule, and the node's cards."""

    rule: Rule
    # None: all of them.
    container: str | None
    # None: all of them.
    gpu: str | None
    cards: Cards
    # Those of the account.
    uses: tuple[AttributedUse, ...]
    # Those of the whole pod, which show on which GPUs a container uses the most.
    pod_uses: tuple[AttributedUse, ...]
    # Whether the account may have more contexts.
    hidden: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether the pod list lacks a container in which the pod runs."""
        return any(not use.container for use in self.pod_uses)

    def contexts(self, uses: Iterable[AttributedUse]) -> int:
        """The number of contexts for the allowance: one per process and GPU, or the maximum if some may be hidden.

        A card that drops out hides its contexts, which must not put any account over its limit.
        """
        return LARGEST if self.hidden else len({(use.key, use.gpu) for use in uses})


def is_per_gpu(declaration: PodDeclaration, container: str | None) -> bool:
    """Whether a container (None: the pod) declares an amount per GPU, or holds one by claims; a default is a total."""
    if not declaration.claimed and "gpu" not in declaration.kinds:
        return False
    claimed = declaration.claimed if container is None else _claimed_of([container], declaration)
    if are_placed(claimed.values()):
        return True
    if container is None:
        return "gpu" in declaration.kinds
    own = (declaration.amounts.get(name) for name in ("", container))
    return any(amount is not None and amount.per == "gpu" for amount in own)


def leaves_open(declaration: PodDeclaration, names: Iterable[str]) -> bool:
    """Whether claims leave it to a default what some container may use, if these are the containers that count."""
    has_amount = any(each.gives_amounts for each in _claimed_of(names, declaration).values())
    return not has_amount or any(part.size is None for each in declaration.claimed.values() for part in each.parts)


def claimed_gpus(declaration: PodDeclaration, container: str | None) -> frozenset[str]:
    """The GPUs on which a container (None: the pod) is known to hold anything by claims."""
    claimed = declaration.claimed if container is None else _claimed_of([container], declaration)
    return frozenset(part.gpu for each in claimed.values() for part in each.parts if part.gpu is not None)


def largest_budget(phases: Sequence[tuple[Phase, PodDeclaration]], account: Account, policy: Policy) -> Budget:
    """The largest budget of an account in any phase, used when the current phase is unknown.

    Unknown if the budget of any phase is, or if a phase has none: the pod would be left alone in that phase.
    """
    budgets = [budget(phase, declaration, account, policy) for phase, declaration in phases]
    bounded = [one for one in budgets if one.allowed is not None]
    if not bounded:
        return budgets[-1]
    if len(bounded) < len(budgets):
        why = next((one.unknown for one in budgets if one.unknown), _LISTED_LATE)
        return Budget(declared_by=next((one.declared_by for one in budgets if one.declared_by), None), unknown=why)
    by_request = max(bounded, key=_by_request)
    requested = by_request.declared if by_request.requested is None else by_request.requested
    largest = max(bounded, key=lambda one: one.allowed or 0)
    return replace(largest, requested=requested, allowed_by_request=_by_request(by_request))


def undetermined(declaration: PodDeclaration, account: Account, *, why: str) -> Budget:
    """The budget of an account of a pod of which not all was read, or with too many phases to find the largest one."""
    if account.container == "":
        return Budget()
    names = declaration.amounts if account.container is None else ("", account.container)
    by = _sources(_amounts_of(names, declaration).values()) or "default"
    return Budget(declared_by=by, unknown=why)


def _by_request(granted: Budget) -> int:
    return (granted.allowed if granted.allowed_by_request is None else granted.allowed_by_request) or 0


def budget(phase: Phase, declaration: PodDeclaration, account: Account, policy: Policy) -> Budget:
    """The budget of one account of a pod in a phase, at most what applies without resources that nobody has checked."""
    granted = _budget(phase, declaration, account, policy)
    if declaration.bound is None:
        return granted
    bound = _budget(phase, declaration.bound, account, policy)
    if bound.allowed is None:
        return granted if granted.allowed is None else replace(granted, unlisted_counts=True)
    if granted.allowed is None:
        return replace(bound, unlisted_counts=False)
    is_more = granted.allowed > bound.allowed
    least = replace(bound, unlisted_counts=False) if is_more else _within(granted, bound)
    by_request = min(granted, bound, key=_by_request)
    if _by_request(by_request) == _by_request(least):
        return least
    requested = by_request.declared if by_request.requested is None else by_request.requested
    return replace(least, requested=requested, allowed_by_request=_by_request(by_request))


def _within(granted: Budget, bound: Budget) -> Budget:
    """A budget in which no container declares more than in another: otherwise it would be no victim."""

    def least(own: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
        return {name: min(size, others.get(name, 0)) for name, size in own.items()}

    return replace(
        granted,
        by_container=least(granted.by_container, bound.by_container),
        requests_by_container=least(granted.requests_by_container, bound.requests_by_container),
    )


def comparable(declaration: PodDeclaration, cards: Cards, *, has_default: bool) -> PodDeclaration:
    """A declaration; if a total bounds an amount per GPU, or the reverse, what bounds it, since they can't be compared.

    On a node with one card they can. A bound that can't be determined binds nothing.
    """
    bound, own = declaration.bound, declaration.amounts
    if bound is None:
        return declaration
    takes_default = has_default and "" not in bound.amounts and not own.keys() <= bound.amounts.keys()
    other = [amount for name, amount in bound.amounts.items() if own.get(name) != amount]
    is_known = takes_default or any(amount.size is not None for amount in other)
    by_gpu, bound_by_gpu = "gpu" in declaration.kinds, "gpu" in bound.kinds
    is_total = ("total" in bound.kinds or takes_default) and not (cards.complete and cards.number == 1)
    if not (is_known and ((by_gpu and is_total) or (bound_by_gpu and not by_gpu))):
        return declaration
    remarks = [Misdeclaration(source=at.place, why=_UNLISTED, key=at.key) for at in declaration.unlisted]
    every = dict.fromkeys((*remarks, *declaration.remarks, *bound.remarks))
    return replace(bound, remarks=tuple(every)[:MOST_MISDECLARED])


def remarks(declaration: PodDeclaration, granted: Budget) -> tuple[Misdeclaration, ...]:
    """What is remarked of what a pod declares, where its account is granted this."""
    if granted.unlisted_counts is None or declaration.bound is None:
        return declaration.remarks
    counts = granted.unlisted_counts
    why = _UNLISTED_ALONE if counts else _UNLISTED
    own = [Misdeclaration(source=at.place, why=why, key=at.key, counts=counts) for at in declaration.unlisted]
    every = dict.fromkeys((*own, *declaration.remarks, *declaration.bound.remarks))
    return tuple(every)[:MOST_MISDECLARED]


def _budget(phase: Phase, declaration: PodDeclaration, account: Account, policy: Policy) -> Budget:
    if account.container == "":
        return Budget()  # processes of containers that are not listed yet: measured, never acted on
    one = account.container
    names = [container.name for container in phase] if one is None else [one]
    # A total and an amount per GPU cannot be added.
    if {"total", "gpu"} <= declaration.kinds:
        return Budget(misdeclared=True)
    is_alone = one is None or [container.name for container in phase[:2]] == names
    is_split = "" in declaration.amounts and not is_alone
    amounts = {} if is_split else _amounts_of(names, declaration)
    claimed = _claimed_of(names, declaration)
    asked = {*names, *([] if amounts else [""])}
    has_tried = not amounts and account.rule.default is None
    # What is invalid for the pod as a whole is so for each of its containers.
    if declaration.invalid & {*asked, ""} or (has_tried and (is_split or declaration.misdeclared & asked)):
        return Budget(misdeclared=True)
    if any(each.gives_amounts for each in claimed.values()):
        return _granted_by_claims(claimed, _Beside.of(amounts, declaration, account, policy), account, policy)
    if not amounts:
        granted = _without(declaration.amounts if one is None else {}, account, policy)
        return replace(granted, open_share=_open_share(parts_of(claimed.values(), account.gpu)))
    return _granted(amounts, _idle(amounts, declaration, account), account, policy)


def _idle(amounts: Mapping[str, Amount], declaration: PodDeclaration, account: Account) -> dict[str, Amount]:
    """What other containers of the pod declare that use memory; none for the account of one container."""
    if account.container is not None:
        return {}
    using = {use.container for use in account.uses}  # a tenant can write thousands of containers
    return {name: declaration.amounts[name] for name in using if name in declaration.amounts and name not in amounts}


def _granted(amounts: Mapping[str, Amount], others: Mapping[str, Amount], account: Account, policy: Policy) -> Budget:
    """The budget from the amounts that count now; `others` are those of containers that do not."""
    try:
        declared = _sizes(amounts, account)
        has_limit = any(amount.limit is not None for amount in amounts.values())
        requested = _sizes(amounts, account, by_request=True) if has_limit else None
    except _UndeterminedError as error:
        return Budget(declared_by=_sources(amounts.values()), unknown=str(error))
    idle = {name: _size_or_largest(name, each, account) for name, each in others.items()}
    return Budget(
        declared=min(sum(declared.values()), LARGEST),
        declared_by=_sources(amounts.values()),
        allowed=_allowed(amounts, declared, account, policy),
        by_container={**idle, **declared},
        requested=None if requested is None else min(sum(requested.values()), LARGEST),
        allowed_by_request=None if requested is None else _allowed(amounts, requested, account, policy),
        requests_by_container={**idle, **(declared if requested is None else requested)},
    )


def _claimed_of(names: Iterable[str], declaration: PodDeclaration) -> dict[str, Claimed]:
    """What claims gave these containers."""
    return {name: declaration.claimed[name] for name in names if name in declaration.claimed}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What is declared beside claims."""

    amounts: Mapping[str, Amount]
    # None: nothing is.
    budget: Budget | None
    # What claims gave to containers that do not count now, and use memory.
    idle: Mapping[str, Claimed]

    @classmethod
    def of(
        cls, amounts: Mapping[str, Amount], declaration: PodDeclaration, account: Account, policy: Policy
    ) -> "_Beside":
        """What an account declares beside its claims.

        A number of cards says nothing of which they are, and the others are the claims': the amount counts on each.
        """
        amounts = {name: replace(each, count=None) if each.count else each for name, each in amounts.items()}
        budget = _granted(amounts, _idle(amounts, declaration, account), account, policy) if amounts else None
        using = {use.container for use in account.uses} if account.container is None else set()
        return cls(amounts=amounts, budget=budget, idle=_claimed_of(using, declaration))


def _granted_by_claims(claimed: Mapping[str, Claimed], beside: _Beside, account: Account, policy: Policy) -> Budget:
    """The budget from what claims gave, and from the amounts beside it: each counts for what it covers."""
    unknown = next((each for each in claimed.values() if each.unknown), None)
    if unknown is not None:
        return Budget(declared_by=unknown.source, unknown=unknown.unknown)
    other = beside.budget or Budget(declared=0, allowed=0)
    if other.allowed is None:
        return other
    whose = next((each for each in beside.amounts.values() if isinstance(each.size, Devices)), None)
    if whose is not None:
        why = f"it is not known which of the pod's cards it has by {whose.source} and which by its claims"
        return Budget(declared_by=_all_sources(claimed, other), unknown=why)
    parts = parts_of(claimed.values(), account.gpu)
    open_share = _open_share(parts) if beside.budget is None else ""
    if open_share:
        other = _default(account, policy)  # for a card that it shares without an amount, beside what it holds there
    if other.allowed is None:
        return replace(other, open_share=open_share)
    sizes = [(part.size or 0, part.is_whole) for part in parts]
    shares, whole = (sum(size for size, is_all in sizes if is_all is which) for which in (False, True))
    contexts = account.contexts(account.uses)
    # Nobody else is on a whole device.
    allowed = whole + (policy.allowance.allowed(shares, contexts) if shares or not whole else 0)
    declared, every = shares + whole, {**beside.idle, **claimed}
    each_has = {name: sum(part.size or 0 for part in parts_of([one], account.gpu)) for name, one in every.items()}
    return Budget(
        declared=min(declared + (other.declared or 0), LARGEST),
        declared_by=_all_sources(claimed, other, parts),
        allowed=min(allowed + other.allowed, LARGEST),
        by_container=_added(each_has, other.by_container),
        requests_by_container=_added(each_has, other.requests_by_container),
        requested=None if other.requested is None else min(declared + other.requested, LARGEST),
        allowed_by_request=None if other.requested is None else min(allowed + _by_request(other), LARGEST),
        declared_by_gpu=by_gpu(parts, account.gpu),
        parts=parts,
        open_share=open_share,
    )


def _open_share(parts: Iterable[Part]) -> str:
    """What gave the first of the shares without an amount; empty if all have one."""
    return next((part.source for part in parts if part.size is None), "")


def _all_sources(claimed: Mapping[str, Claimed], other: Budget, parts: Iterable[Part] = ()) -> str:
    """What declares: the requests that gave these parts, or else whatever claims gave, and what is beside them."""
    of_parts = [part.source for part in parts if part.size is not None]
    of_claims = of_parts or [each.source for each in claimed.values()]
    sources = dict.fromkeys([*of_claims, *filter(None, [other.declared_by])])
    return brief(", ".join(sources), _LONGEST_SOURCE)


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class _UndeterminedError(Exception):
    """An amount that can't be determined in bytes now; the text is why, as a clause."""


def _size_or_largest(name: str, amount: Amount, account: Account) -> int:
    """A container's amount; the largest if it can't be determined, so that the container does not seem above it."""
    try:
        return _size(name, amount, account)
    except _UndeterminedError:
        return LARGEST


def _sizes(amounts: Mapping[str, Amount], account: Account, *, by_request: bool = False) -> dict[str, int]:
    """Each container's amount in bytes; _UndeterminedError if one depends on what is not known."""
    using = {use.container for use in account.pod_uses}
    sizes: dict[str, int] = {}
    # The same for each container without uses: a tenant can write thousands.
    of_idle: dict[tuple[object, ...], int] = {}
    for name, amount in amounts.items():
        size = amount.size
        if isinstance(size, int) and amount.limit is None and amount.count is None:
            sizes[name] = size if size < LARGEST else LARGEST  # wherever it is used
            continue
        key = (amount.size, amount.per, amount.limit, amount.count)
        if name not in using and name and key in of_idle:
            sizes[name] = of_idle[key]
            continue
        sizes[name] = _size(name, amount, account, by_request=by_request)
        if name not in using and name:
            of_idle[key] = sizes[name]
    return sizes


def _size(name: str, amount: Amount, account: Account, *, by_request: bool = False) -> int:
    if amount.size is None:
        raise _UndeterminedError(amount.unknown)
    cards = account.cards
    uses = tuple(use for use in account.pod_uses if name in ("", use.container))
    most_used = _most_used(uses)
    if account.is_behind and name:
        # An unlisted container may be this one, so it is not known which cards it uses.
        most_used = [] if account.gpu is None else [account.gpu]
    is_anywhere = account.is_behind and name != "" and account.gpu is None and not isinstance(amount.size, int)
    if is_anywhere and not cards.all_have_one_size:
        raise _UndeterminedError(_LISTED_LATE)
    placement = Placement(most_used, account.gpu, cards)
    _require_decided(amount, placement, uses)
    size = bytes_of(amount, placement, by_request=by_request)
    if size is None:
        raise _UndeterminedError(
            f"{amount.source} depends on the size of a card that is not known{_because(cards.why)}"
        )
    return min(size, LARGEST)


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _require_decided(amount: Amount, placement: Placement, uses: tuple[AttributedUse, ...]) -> None:
    """Raise _UndeterminedError if it can't be determined which GPUs an amount is for.

    More are used, and not all use is known; or whole devices are declared while one is hidden: the pod may use that
    one, and it may be larger.
    """
    if isinstance(amount.size, Devices) and placement.cards.hidden:
        why = placement.cards.why
        raise _UndeterminedError(f"{amount.source} may be a card that can't be seen{_because(why)}")
    if _is_undecided(amount, placement, uses):
        raise _UndeterminedError(
            f"the driver does not report how much each process uses, so which GPUs {amount.source} is for is not known"
        )


def _is_undecided(amount: Amount, placement: Placement, uses: tuple[AttributedUse, ...]) -> bool:
    if all(use.used is not None for use in uses):
        return False
    if isinstance(amount.size, CardShare) and amount.per == "total" and not placement.cards.all_have_one_size:
        # On a card without known bytes the container may use nothing at all.
        return not {use.gpu for use in uses if use.used is not None}.issuperset(placement.most_used)
    if isinstance(amount.size, Devices):
        return len(placement.most_used) > sum(count for _, count in amount.size.counts)
    return amount.count is not None and len(placement.most_used) > amount.count


def _most_used(uses: tuple[AttributedUse, ...]) -> list[str]:
    by_gpu: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        by_gpu[use.gpu] += use.used_at_least
    return sorted(by_gpu, key=lambda gpu: (-by_gpu[gpu], gpu))


def _amounts_of(names: Iterable[str], declaration: PodDeclaration) -> dict[str, Amount]:
    """The amounts of these containers; "" is that of the whole pod."""
    return {name: declaration.amounts[name] for name in ("", *names) if name in declaration.amounts}


def _without(idle: Mapping[str, Amount], account: Account, policy: Policy) -> Budget:
    """The budget while no active container declares anything: the default, or the `idle` amounts if they are more.

    Those that declare may not run yet, while the scheduler has reserved their amounts already. They must not shield
    the others either, by a trifle that an init container declared.
    """
    default = _default(account, policy)
    if default.allowed is None or not idle:
        return default
    granted = _granted(idle, {}, account, policy)
    if granted.allowed is None or granted.allowed > default.allowed:
        return granted
    # An init container that lingers is no victim for what it declares itself.
    return replace(default, by_container=granted.by_container, requests_by_container=granted.requests_by_container)


def _default(account: Account, policy: Policy) -> Budget:
    default = account.rule.default
    if default is None:
        return Budget()
    allowance = policy.allowance if default else NO_ALLOWANCE
    allowed = min(allowance.allowed(default, account.contexts(account.uses)), LARGEST)
    return Budget(declared=default, declared_by="default", allowed=allowed)


def _allowed(amounts: Mapping[str, Amount], known: Mapping[str, int], account: Account, policy: Policy) -> int:
    """The sum that all allowances give; processes of containers that declare nothing count under the policy's own."""
    first, *others = (amount.allowance for amount in amounts.values())
    if all(other is first for other in others):
        return min(first.allowed(sum(known.values()), account.contexts(account.uses)), LARGEST)
    declared: defaultdict[Allowance, int] = defaultdict(int)
    of: dict[str, Allowance] = {}
    for name, amount in amounts.items():
        declared[amount.allowance] += known[name]
        of[name] = amount.allowance
    fallback = of.get("") or (next(iter(declared)) if len(declared) == 1 else policy.allowance)
    by_allowance: defaultdict[Allowance, list[AttributedUse]] = defaultdict(list)
    for use in account.uses:
        by_allowance[of.get(use.container, fallback)].append(use)
    every = declared.keys() | by_allowance.keys() | ({fallback} if account.hidden else set())
    return min(sum(one.allowed(declared[one], account.contexts(by_allowance[one])) for one in every), LARGEST)


def _sources(amounts: Iterable[Amount]) -> str:
    return brief(", ".join(sorted({amount.source for amount in amounts})), _LONGEST_SOURCE)
