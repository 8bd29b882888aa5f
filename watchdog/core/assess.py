"""Assessment: how each account compares with what it is allowed, and which cards are short of memory."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from watchdog.core.amount import Cards
from watchdog.core.assessment import (
    AccountKey,
    Assessment,
    AttributedUse,
    Attribution,
    ContainerShare,
    Inputs,
    Verdict,
)
from watchdog.core.budget import (
    Account,
    Budget,
    budget,
    claimed_gpus,
    comparable,
    is_per_gpu,
    largest_budget,
    leaves_open,
    remarks,
    undetermined,
)
from watchdog.core.claims import holders_of, shared_parts, with_sums
from watchdog.core.declare import PodDeclaration, active_containers, phases
from watchdog.core.errors import Problem
from watchdog.core.hazards import Hazard
from watchdog.core.model import Container, ContainerKind, Gap, GapReason, Gpu, Node, PlaceKind, Pod, Snapshot
from watchdog.core.mps import Mps
from watchdog.core.policy import Policy, Rule
from watchdog.core.remembered import DeclarationMemory
from watchdog.core.rules import observes, protection, rule_of

# Accounts that only declare, on which no action can be due: of one pod, and of all pods together if they are many.
_MOST_IDLE: Final = 100
_MOST_IDLE_OF_ALL: Final = 2000
# Containers of one pod, over all of its phases and accounts: some 10 ms, in every cycle in which the list lacks one.
_MOST_READ: Final = 1024
_MANY_PHASES: Final = (
    "the pod list does not have all of the pod's containers yet, and the pod has too many init containers to find the "
    "largest limit that may apply"
)
Rank = tuple[bool, int, int, str, str, str]


def short_cards(gpus: Iterable[Gpu], free_below: Fraction) -> frozenset[str]:
    """The GPUs with less than this share of memory free; a GPU with unknown figures is never short."""
    part, whole = free_below.as_integer_ratio()
    known = ((gpu.uuid, gpu.total, gpu.used) for gpu in gpus)  # `used` includes what the driver reserves
    return frozenset(
        uuid
        for uuid, total, used in known
        if not (total is None or used is None) and (total - used) * whole < total * part
    )


def short_for(policy: Policy, gpus: Iterable[Gpu]) -> frozenset[str]:
    """The GPUs that are short of memory; none if no rule of the policy has a step under pressure."""
    matters = any(step.under_pressure for rule in policy.rules for step in rule.steps)
    return short_cards(gpus, policy.pressure.free_below) if matters else frozenset()


def rank(assessment: Assessment, card: str) -> Rank:
    """The order in which accounts give way: those over their request, lower priority, larger excess on that card.

    (The kubelet's order under node pressure, kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction.)
    """
    requested = assessment.declared if assessment.requested is None else assessment.requested
    over = assessment.used_at_least - (requested or 0)
    excess = min(over, assessment.used_on(card))
    return (over <= 0, assessment.pod.priority or 0, -excess, *assessment.account.sort_key)


_NO_RULE = Rule(name="")

Uses = tuple[AttributedUse, ...]
_UNREAD: Final = PodDeclaration(amounts={})
_NOT_READ: Final = "what it declares has not been read yet"


def _unread_gap(pod: Pod) -> Gap:
    problem = Problem(
        "it is so large, or so many pods have changed at once, that what it declares has not been read yet",
        "wait: each cycle reads some of them; until then its limit is unknown and it is left alone",
    )
    return Gap(reason=GapReason.PODS, what=f"pod {pod.title}", problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a reading does not show."""

    cards: Cards
    # Whether any account may use more.
    everywhere: bool
    # Whether some GPU was not listed.
    unlisted: bool
    unseen: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot, node: Node) -> "Coverage":
        """The coverage of a snapshot, compared with the counts of the driver and of the node's object."""
        return cls(
            cards=Cards.of(snapshot, node),
            everywhere=_is_incomplete(snapshot),
            unlisted=any(not gpu.listed for gpu in snapshot.gpus),
            unseen=snapshot.unseen,
        )

    def hides(self, gpu: str | None, pod_uses: Uses) -> bool:
        """Whether an account may use more than was seen; a pod without any use may be on a GPU that was not listed."""
        unseen = bool(self.unseen) if gpu is None else gpu in self.unseen
        return self.everywhere or unseen or (self.unlisted and not pod_uses)

    def hides_contexts(self, gpu: str | None, pod_uses: Uses) -> bool:
        """Whether an account may have contexts that were not seen, even without memory, such as on a lost card."""
        return self.hides(gpu, pod_uses) or (gpu is None and (self.unlisted or self.cards.hidden))


def _is_incomplete(snapshot: Snapshot) -> bool:
    """Whether unseen memory may belong to any pod: the driver is silent, or a process's cgroup can't be read."""
    unreadable = {pid for pid, p in snapshot.processes.items() if p.place.kind is PlaceKind.UNREADABLE}
    return snapshot.blind or any(use.pid in unreadable and use.used != 0 for use in snapshot.uses)


def hidden_pods(snapshot: Snapshot, pods: Iterable[Pod]) -> frozenset[str] | None:
    """The UIDs of all pods if any of them may use more than the reading shows; None if it shows everything."""
    is_complete = not snapshot.unseen and all(gpu.listed for gpu in snapshot.gpus) and not _is_incomplete(snapshot)
    return None if is_complete else frozenset(pod.uid for pod in pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerms:
    """What applies to a pod regardless of its use."""

    # None: none applies, or `gap` hides it.
    rule: Rule | None
    gap: Gap | None
    # The containers whose declarations count now, and what they declare.
    active: tuple[Container, ...]
    declaration: PodDeclaration
    # Gives what it declares in other phases.
    memory: DeclarationMemory
    # Those of the node, as are the `short` cards; None: it has none.
    hazards: Mps | None
    short: frozenset[str]
    # How many of the pod's accounts that only declare are assessed: the first ones.
    most_idle: int = _MOST_IDLE

    @classmethod
    def of(
        cls, pod: Pod, inputs: Inputs, memory: DeclarationMemory, hazards: Mps | None, short: frozenset[str]
    ) -> "PodTerms":
        """The terms of a pod; the memory has begun the cycle."""
        rule = rule_of(pod, inputs.policy, inputs.node, inputs.namespaces)
        is_split = isinstance(rule, Rule) and _splits(rule)
        active = active_containers(pod)
        declared = memory.declare(pod, (active,), per_container=is_split)
        gap = rule if isinstance(rule, Gap) else None
        return cls(
            rule=None if isinstance(rule, Gap) else rule,
            gap=_unread_gap(pod) if gap is None and declared is None else gap,
            active=active,
            declaration=_UNREAD
            if declared is None
            else comparable(declared[0], memory.cards, has_default=_has_default(rule)),
            memory=memory,
            hazards=hazards,
            short=short,
        )

    def hazards_of(
        self, pod: Pod, uses: Uses, *, accepts_clients: bool
    ) -> tuple[tuple[Hazard, ...], tuple[Hazard, ...]]:
        """The parts of a pod whose end would break the work of other pods, and the clients to drain before."""
        if self.hazards is None:
            return (), ()
        return self.hazards.hazards(pod, uses, accepts_clients=accepts_clients), self.hazards.to_drain(pod, uses)


def assess_pod(
    pod: Pod, uses: Uses, terms: PodTerms, snapshot: Snapshot, coverage: Coverage, inputs: Inputs
) -> tuple[Assessment, ...]:
    """Assess the accounts of one pod; none if it neither uses GPU memory nor declares any, and no action is about it.

    What a finished pod declares is free again. No action can be due on it, so it would only count for the breaker as an
    owner within its limit. From the snapshot it uses only the time, for terminating pods and rules with hours.
    """
    rule, declaration = terms.rule, terms.declaration
    acting = [key for key in inputs.acting if key.uid == pod.uid]
    if not (uses or acting) and (pod.is_finished or not declaration.is_about_gpus):
        return ()
    protected = protection(pod, inputs.policy.protect, inputs.own, snapshot.at)
    hazards, to_drain = terms.hazards_of(pod, uses, accepts_clients=inputs.policy.safety.signal_mps_clients)
    keys = tuple(_accounts(pod, uses, terms, acting))
    budget_of = _budgets(pod, uses, terms, inputs, len(keys))
    holders = holders_of(declaration.claimed)
    assessments: list[Assessment] = []
    for key in keys:
        account = _account(key, rule or _NO_RULE, coverage, uses)
        own, granted = account.uses, budget_of(account)
        used_at_least, known = _used(key, account, coverage, inputs)
        # Within only if that also holds when only the contexts that were seen count.
        seen = budget_of(replace(account, hidden=False)) if account.hidden else granted
        is_clear = known and used_at_least <= (seen.allowed or 0)
        # Where each card is compared, an account of all cards has nothing of its own.
        parts = () if key.gpu is None and is_per_gpu(declaration, key.container) else granted.parts
        spare = (granted.allowed or 0) - used_at_least
        shared, joint = shared_parts(pod, parts, holders, spare, is_part=key.container is not None)
        assessments.append(
            Assessment(
                account=key,
                pod=pod,
                rule=rule,
                used=used_at_least if known else None,
                used_at_least=used_at_least,
                declared=granted.declared,
                declared_by=granted.declared_by,
                allowed=granted.allowed,
                requested=granted.requested,
                allowed_by_request=granted.allowed_by_request,
                declared_by_gpu=granted.declared_by_gpu,
                open_share=granted.open_share,
                shared=shared,
                joint=joint,
                limit_unknown=granted.unknown,
                verdict=Verdict.UNKNOWN if terms.gap else _verdict(granted, used_at_least, is_known=is_clear),
                protected=protected,
                observes=rule is not None and observes(rule, snapshot.at),
                rule_gap=terms.gap,
                short=terms.short & {use.gpu for use in own},
                uses=own,
                shares=_shares(own, granted),
                misdeclarations=remarks(declaration, granted),
                behind=account.is_behind,
                hazards=hazards,
                to_drain=to_drain,
            )
        )
    return tuple(assessments)


def _used(key: AccountKey, account: Account, coverage: Coverage, inputs: Inputs) -> tuple[int, bool]:
    """The bytes that an account is known to use, and whether these are all."""
    own = account.uses
    # A container that is not in the list may be a new one: it counts for its pod only once it should be listed.
    lags = key.container is None and any(_lags(use, inputs) for use in own)
    used_at_least = sum(use.used_at_least for use in own if key.container == "" or not _lags(use, inputs))
    known = all(use.used is not None for use in own) and not coverage.hides(key.gpu, account.pod_uses) and not lags
    return used_at_least, known


def _lags(use: AttributedUse, inputs: Inputs) -> bool:
    """Whether a use is in a container that is missing from the pod list and not overdue there."""
    return not use.container and (use.uid, use.unlisted) not in inputs.overdue


def _budgets(pod: Pod, uses: Uses, terms: PodTerms, inputs: Inputs, accounts: int) -> Callable[[Account], Budget]:
    """The budget of each account in the current phase, or the largest of all if the list is behind.

    `accounts` is how many the pod has.
    """
    policy, declaration = inputs.policy, terms.declaration
    if declaration is _UNREAD:
        return partial(undetermined, declaration, why=_NOT_READ)
    if all(use.container for use in uses):
        return partial(budget, terms.active, declaration, policy=policy)
    # A tenant can write thousands of init containers, each of which is a phase in which all declarations are read.
    number = 1 + sum(container.kind is ContainerKind.INIT for container in pod.containers)
    if number * len(pod.containers) * accounts > _MOST_READ:
        return partial(undetermined, declaration, why=_MANY_PHASES)
    is_split = terms.rule is not None and _splits(terms.rule)
    every = tuple(phases(pod))
    read = terms.memory.declare(pod, every, per_container=is_split) or ()
    declared = tuple(comparable(each, terms.memory.cards, has_default=_has_default(terms.rule)) for each in read)
    return partial(largest_budget, tuple(zip(every, declared, strict=True)), policy=policy)


def _has_default(rule: Rule | Gap | None) -> bool:
    return isinstance(rule, Rule) and rule.default is not None


def _splits(rule: Rule) -> bool:
    return rule.account == "container"


def _takes_default(rule: Rule, terms: PodTerms) -> bool:
    """Whether the rule's default applies to what claims leave room for."""
    return rule.default is not None and leaves_open(terms.declaration, [each.name for each in terms.active])


def _accounts(pod: Pod, uses: Uses, terms: PodTerms, acting: Iterable[AccountKey]) -> Iterable[AccountKey]:
    """The keys of a pod's accounts; one that is acted on, and uses nothing any more, uses 0 bytes for certain."""
    declaration, rule = terms.declaration, terms.rule or _NO_RULE
    names: set[str | None] = {None}
    if rule.account == "container":
        used = {use.container for use in uses}
        declaring = (declaration.amounts.keys() | declaration.misdeclared) - {""}
        names = {*used, *sorted(declaring - used)[: terms.most_idle]} or {None}
    # What is a total beside claims bounds all cards together, and so does the default where claims leave room for it.
    has_total = bool(declaration.claimed) and ("total" in declaration.kinds or _takes_default(rule, terms))
    keys: list[AccountKey] = []
    for container in names:
        gpus: set[str | None] = {None}
        if is_per_gpu(declaration, container):
            used_on = {use.gpu for use in uses if container in (None, use.container)}
            gpus = {*used_on, *claimed_gpus(declaration, container), *([None] if has_total else [])} or {None}
        keys += [AccountKey(uid=pod.uid, container=container, gpu=gpu) for gpu in gpus]
    for key in acting:
        is_of_rule = (key.container is not None) == _splits(rule)
        if is_of_rule and (key.gpu is not None) == is_per_gpu(declaration, key.container):
            # What is declared for each GPU has an account without one only if none is used, or if it has a total too.
            if not has_total:
                keys = [each for each in keys if (each.container, each.gpu) != (key.container, None)]
            keys.append(key)
    return dict.fromkeys(keys)


def _account(key: AccountKey, rule: Rule, coverage: Coverage, uses: Uses) -> Account:
    return Account(
        rule=rule,
        container=key.container,
        gpu=key.gpu,
        cards=coverage.cards,
        uses=tuple(use for use in uses if key.covers(use)),
        pod_uses=uses,
        hidden=coverage.hides_contexts(key.gpu, uses),
    )


def _shares(uses: Uses, granted: Budget) -> tuple[ContainerShare, ...]:
    used: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        used[use.container] += use.used_at_least
    return tuple(
        ContainerShare(
            container=name,
            used_at_least=used[name],
            declared=granted.by_container.get(name, 0),
            requested=granted.requests_by_container.get(name, 0),
        )
        for name in sorted(used)
    )


def _verdict(granted: Budget, used_at_least: int, *, is_known: bool) -> Verdict:
    if granted.misdeclared:
        return Verdict.MISDECLARED
    if granted.allowed is None:
        # A declaration of unknown size: the driver does not report the card's size, or labels are missing.
        return Verdict.UNKNOWN if granted.declared_by else Verdict.UNDECLARED
    if used_at_least > granted.allowed:
        return Verdict.OVER
    return Verdict.WITHIN if is_known else Verdict.UNKNOWN


def assess(
    attribution: Attribution, snapshot: Snapshot, inputs: Inputs, memory: DeclarationMemory | None = None
) -> tuple[Assessment, ...]:
    """Assess every account of the pods that use GPU memory or declare it, in the order of their keys.

    With a `memory` of earlier cycles, a pod that still says the same is not read again; nothing else depends on it.
    """
    memory = DeclarationMemory() if memory is None else memory
    coverage, has_mps = Coverage.of(snapshot, inputs.node), snapshot.has_servers or bool(inputs.drains.servers)
    mps = Mps.of(snapshot, attribution, inputs.drains) if has_mps else None
    short = short_for(inputs.policy, snapshot.gpus)
    acting = {key.uid for key in inputs.acting}
    by_pod: defaultdict[str, list[AttributedUse]] = defaultdict(list)
    for use in attribution.attributed:
        by_pod[use.uid].append(use)
    in_use = by_pod.keys() | acting
    living = (pod for pod in inputs.pods.pods if not pod.is_finished or pod.uid in in_use)  # thousands can be finished
    # A UID identifies one pod; a list that repeats it must not make two accounts of one.
    pods = {pod.uid: pod for pod in sorted(living, key=lambda p: (p.namespace, p.name), reverse=True)}
    memory.begin(inputs.policy, inputs.node, coverage.cards, inputs.listed)
    memory.choose(pods.values(), in_use)
    most_idle = max(2, min(_MOST_IDLE, _MOST_IDLE_OF_ALL // max(1, len(pods))))  # one shows that its owner declares
    assessments: list[Assessment] = []
    for uid, pod in pods.items():
        terms = replace(PodTerms.of(pod, inputs, memory, mps, short), most_idle=most_idle)
        assessments += assess_pod(pod, tuple(by_pod.get(uid, ())), terms, snapshot, coverage, inputs)
    summed = with_sums(assessments, inputs.ending)
    return tuple(sorted(summed, key=lambda assessment: (assessment.account.sort_key, assessment.pod.title)))
