"""Declarations: how much GPU memory a pod declares, by which key, and for which of its phases."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import islice
from typing import Final, NamedTuple

from watchdog.core.amount import (
    GPU_RESOURCE,
    LABEL,
    Amount,
    Cards,
    CardShare,
    Devices,
    capped,
    describe,
    excess,
    is_checked,
    is_cut,
    knows_shares,
    least_sum,
    profile_of,
    read_size,
    require_possible,
    shares_of,
    with_listed,
)
from watchdog.core.assessment import MOST_MISDECLARED, Misdeclaration
from watchdog.core.claims import Claimed, claimed_by
from watchdog.core.keys import COUNT_ANNOTATIONS, COUNT_RESOURCES
from watchdog.core.model import Container, ContainerKind, Node, Pod
from watchdog.core.policy import NO_ALLOWANCE, Declaration, LimitAnnotation, Policy
from watchdog.core.rules import has_labels
from watchdog.core.units import LARGEST, brief, format_bytes, parse_number


def phases(pod: Pod) -> Iterator[tuple[Container, ...]]:
    """The containers whose declarations count together, by phase: one per plain init container, then the main one.

    While a plain init container runs, it and the sidecars before it count; in the main phase, the main containers and
    the sidecars (kubernetes/pkg/api/v1/resource adds them up the same way, but takes the maximum over time).
    """
    before: list[Container] = []
    for container in pod.containers:
        if container.kind is ContainerKind.SIDECAR:
            before.append(container)
        elif container.kind is ContainerKind.INIT:
            yield (*before, container)
    yield _main_phase(pod)


_OF_MAIN_PHASE: Final = (ContainerKind.MAIN, ContainerKind.SIDECAR)


def _main_phase(pod: Pod) -> tuple[Container, ...]:
    return tuple([each for each in pod.containers if each.kind in _OF_MAIN_PHASE])


def active_containers(pod: Pod) -> tuple[Container, ...]:
    """The containers whose declarations count now, according to the pod list."""
    for place, container in enumerate(pod.containers):
        if container.running and container.kind is ContainerKind.INIT:  # the cheap test first: few are running
            return (*(each for each in pod.containers[:place] if each.kind is ContainerKind.SIDECAR), container)
    return _main_phase(pod)


Phase = tuple[Container, ...]
CONTAINER: Final = "{container}"
_UNLIKE: Final = {
    "total": "it is a total, and what other containers declare is per GPU: they can't be added",
    "gpu": "it is per GPU, and what other containers declare is a total: they can't be added",
}
_WRONG_UNIT: Final = (
    "its unit in the policy is smaller than that of the system it belongs to, which would put every pod over its "
    "limit; the policy has to be corrected, not the pod"
)
NOT_LISTED: Final = "the node does not list this resource"
_NO_SUCH_DEVICE: Final = f"{NOT_LISTED}, and has no such devices or not as many"
_LONGEST_SOURCE: Final = 600  # a pattern may match any number of keys


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeclaration:
    """What a pod declares, and what is wrong with it."""

    # By container, or under "" for the whole pod alone.
    amounts: Mapping[str, Amount]
    # The values of `per` among the amounts.
    kinds: frozenset[str] = frozenset()
    # What is wrong with its declarations.
    remarks: tuple[Misdeclaration, ...] = ()
    # The containers (or "" for the pod) that declare, but without any valid declaration.
    misdeclared: frozenset[str] = frozenset()
    # Those of them for which the rule's default does not apply either.
    invalid: frozenset[str] = frozenset()
    # What the pod declares without the resources that nobody has checked, since these never count for more than what
    # applies without them; None if they make no difference.
    bound: "PodDeclaration | None" = None
    # Where those resources are written.
    unlisted: tuple["Written", ...] = ()
    # Why what only the tenant has written is impossible as a sum, as a clause; empty if it is not.
    together: str = ""
    # What claims gave each container, beside its amounts.
    claimed: Mapping[str, Claimed] = field(default_factory=dict)

    @property
    def is_about_gpus(self) -> bool:
        """Whether the pod certainly declares GPU memory, validly or not; a claim may be for a network card."""
        if self.misdeclared or any(claimed.is_about_gpus for claimed in self.claimed.values()):
            return True
        return any(not amount.is_claim for amount in self.amounts.values())


def declare(
    pod: Pod,
    policy: Policy,
    node: Node,
    cards: Cards,
    phase: tuple[Container, ...] | None = None,
    *,
    per_container: bool = False,
) -> PodDeclaration:
    """Read what a pod declares in a phase (None: the current one), in the policy's order.

    `per_container`: its containers are compared one by one, so an amount for several of them together is skipped.

    What the scheduler has checked counts, however large. What only the tenant has written is skipped if it is
    impossible; if that can't be determined now, no later declaration is used, since it may be smaller.
    """
    active = active_containers(pod) if phase is None else phase
    return ReadPod(pod, policy, node, cards).declare((active,), per_container=per_container)[0]


class ReadPod:
    """A pod whose containers have been read, once for all of its phases, of which a tenant can write thousands."""

    def __init__(self, pod: Pod, policy: Policy, node: Node, cards: Cards) -> None:
        node = node if policy.capacity is None else with_listed(node, [policy.capacity.resource])
        self._sources = _Sources.of(pod, policy, node, cards)
        reader = _ContainerReader(self._sources)
        self._by_container, self._claimed = reader.read(), reader.claimed
        requested = {key for container in pod.containers for key in container.resources}
        self._unlisted = self._sources.unlisted(requested)
        self._places = tuple(_places_of(pod, self._unlisted))
        # What bounds it: the same pod without what the scheduler has not checked.
        self._bare: ReadPod | None = None
        if self._unlisted:
            bare = replace(pod, containers=tuple(_without(each, self._unlisted) for each in pod.containers))
            self._bare = ReadPod(bare, policy, node, cards)

    def declare(self, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...]:
        """What the pod declares in each of these phases."""
        found = self._read(phases, per_container=per_container)
        if self._bare is None:
            return tuple(map(_with_sum, found))
        without = [tuple(_without(each, self._unlisted) for each in phase) for phase in phases]
        bounds = self._bare._read(without, per_container=per_container)
        return tuple(_bounded(one, bound, self._places) for one, bound in zip(found, bounds, strict=True))

    def _read(self, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...]:
        sources, claimed = self._sources, self._claimed
        readers = (_PhaseReader(sources, claimed, phase, is_split=per_container and len(phase) > 1) for phase in phases)
        return tuple(reader.read(self._by_container) for reader in readers)


def _without(container: Container, keys: Collection[str]) -> Container:
    """A container that does not request these resources."""
    if container.resources.keys().isdisjoint(keys):
        return container
    return replace(container, resources={key: text for key, text in container.resources.items() if key not in keys})


class Written(NamedTuple):
    """Where something is declared."""

    # The first of its keys.
    key: str
    # All of its keys, and in which container, in words.
    place: str


def _places_of(pod: Pod, keys: Collection[str]) -> Iterator[Written]:
    """Where a pod requests these resources, as many places as are reported."""
    places = ((sorted(container.resources.keys() & keys), container.name) for container in pod.containers)
    for own, name in islice((place for place in places if place[0]), MOST_MISDECLARED):
        yield _place(own, name)


def _place(keys: Sequence[str], container: str) -> Written:
    where = f"container {container}" if container else "the pod"
    return Written(key=keys[0], place=f"{brief(', '.join(keys), _LONGEST_SOURCE)} of {where}")


def _bounded(found: PodDeclaration, bound: PodDeclaration, places: tuple[Written, ...]) -> PodDeclaration:
    """A declaration with what bounds it; without what nobody has checked if all of that together is impossible."""
    if (found.amounts, found.misdeclared, found.invalid) == (bound.amounts, bound.misdeclared, bound.invalid):
        return _with_sum(found)
    bound = _with_sum(bound)
    if not found.together:
        return replace(found, bound=bound, unlisted=places)
    text = brief(", ".join(each.place for each in places), _LONGEST_SOURCE)
    remark = Misdeclaration(source=text, why=found.together, key=places[0].key)
    remarks = dict.fromkeys((remark, *found.remarks, *bound.remarks))
    misdeclared = bound.misdeclared | (found.amounts.keys() - bound.amounts.keys())
    return replace(bound, remarks=tuple(remarks)[:MOST_MISDECLARED], misdeclared=misdeclared)


def _with_sum(found: PodDeclaration) -> PodDeclaration:
    """A declaration with a remark if what only the tenant has written is more together than the cards can hold."""
    if not found.together:
        return found
    keys = sorted({amount.source for amount in found.amounts.values() if not amount.is_checked})
    key, place = _place(keys, "")
    remark = Misdeclaration(source=place, why=found.together, key=key, counts=True)
    return replace(found, remarks=(remark, *found.remarks)[:MOST_MISDECLARED])


@dataclass(slots=True)
class _Found:
    """What is wrong with the declarations of a pod, as far as they have been read."""

    remarks: dict[Misdeclaration, None] = field(default_factory=dict)
    # How many declarations were skipped.
    skipped: int = 0
    # As in `PodDeclaration`.
    misdeclared: set[str] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)

    def copy(self) -> "_Found":
        """The same, to be added to."""
        return _Found(dict(self.remarks), self.skipped, set(self.misdeclared), set(self.invalid))

    def remark(self, keys: Sequence[str], container: str, why: str, *, counts: bool = False) -> None:
        """Note what is wrong with these keys of a container, or of the pod (""); one that `counts` is not skipped."""
        key, place = _place(keys, container)
        self.skipped += not counts
        if len(self.remarks) < MOST_MISDECLARED:
            self.remarks[Misdeclaration(source=place, why=why, key=key, counts=counts)] = None


@dataclass(slots=True)
class _Sources:
    """What each declaration of the policy gives in a pod, by itself: for one container or the pod, on this node."""

    pod: Pod
    policy: Policy
    node: Node
    cards: Cards
    # Those that concern the pod, with their positions in the policy.
    declarations: tuple[tuple[int, Declaration], ...]
    # What is found wrong while they are read, to which the readers add.
    found: _Found = field(default_factory=_Found)
    # Whether each resource is of whole devices, and whether it is a share of one; a pod can request the same in each of
    # its containers.
    whole_keys: dict[str, bool] = field(default_factory=dict)
    cut_keys: dict[str, bool] = field(default_factory=dict)
    # The resources of all containers that match each pattern.
    matching: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: Pod, policy: Policy, node: Node, cards: Cards) -> "_Sources":
        """The declarations that concern a pod; most of the built-in ones concern none, and take half of the time."""
        requested = {key for container in pod.containers for key in container.resources}
        numbered = enumerate(policy.declarations)
        concerning = tuple((order, each) for order, each in numbered if _concerns(each, pod, requested))
        return cls(pod, policy, node, cards, concerning)

    def copy(self) -> "_Sources":
        """The same, for readers that find different things wrong."""
        return replace(self, found=self.found.copy())

    @property
    def last(self) -> int:
        """The position behind all declarations of the policy."""
        return len(self.policy.declarations)

    def unlisted(self, requested: Iterable[str]) -> frozenset[str]:
        """Those of these resources that are read and that the scheduler has not checked."""
        unchecked = {key for key in requested if not is_checked(key, self.node)}
        patterns = {each.resource for _, each in self.declarations} if unchecked else set()
        patterns |= {each.unless.resource for _, each in self.declarations if each.unless is not None}
        read = {key for pattern in filter(None, patterns) for key in unchecked if fnmatchcase(key, pattern)}
        return frozenset(read | (unchecked & set(COUNT_RESOURCES)) | set(filter(self.is_whole, unchecked)))

    def annotated(self, declaration: Declaration) -> Mapping[str, str]:
        """Where a declaration's key is written, unless it is a resource."""
        return _annotated(declaration, self.pod)

    def is_for_node(self, declaration: Declaration) -> bool | None:
        """Whether a declaration applies to this node; None if that depends on unknown labels."""
        if not self.node.known and (declaration.node_labels or isinstance(declaration.shares, str)):
            return None
        if not has_labels(declaration.node_labels, self.node.labels):
            return False
        if declaration.unit != "share" or shares_of(declaration, self.node) is not None:
            return True
        return None if declaration.kind == "resource" and not knows_shares(declaration, self.node) else False

    def why_unread(self, declaration: Declaration) -> str:
        """Why it is not known what a declaration means on this node, as a clause."""
        key = declaration.key
        if not self.node.known:
            return f"what {key} is depends on labels of the node, which are not known"
        if declaration.node_labels and not has_labels(declaration.node_labels, self.node.labels):
            wanted = ", ".join(f"{label}={value}" for label, value in sorted(declaration.node_labels.items()))
            return f"{key} is read only on nodes with {wanted}, which this node does not have"
        if isinstance(declaration.shares, str):
            label = declaration.shares.removeprefix(LABEL)
            return f"the node has no label {label}, which gives the number of shares of {key}"
        if declaration.unit == "mig":
            return 'the node shares the MIG instances, which need a [[declaration]] with unit = "share"'
        return f"no declaration of {key} applies on this node"

    def is_meant(self, declaration: Declaration, container: Container) -> bool:
        """Whether an annotation of the pod is for this container, where it is for one of them."""
        named = declaration.container_annotation
        if not named:
            return True
        wanted = self.pod.annotations.get(named)
        names = [each.name for each in self.pod.containers if each.kind is not ContainerKind.EPHEMERAL]
        main = next((each.name for each in self.pod.containers if each.kind is ContainerKind.MAIN), "")
        return container.name == (wanted if wanted in names else main)

    def count(self, container: Container, declaration: Declaration, source: str) -> int | None:
        """The number of GPUs to which an amount per GPU applies, by the container or an annotation for it."""
        cards = (each for _, each in self.declarations if each.unit == "cards" and each.of is None)
        keys = [*COUNT_RESOURCES, *(key for each in cards for key in self.requested(each, container))]
        counts = (_positive(container.resources.get(key)) for key in keys if key != source)
        annotated = self.annotated_count() if declaration.container_annotation else None
        return next(filter(None, counts), annotated)

    def annotated_count(self) -> int | None:
        """How many devices the pod's annotations ask for; None: they don't say."""
        counts = (_positive(self.pod.annotations.get(key)) for key in COUNT_ANNOTATIONS)
        return next(filter(None, counts), None)

    def resource(self, declaration: Declaration, container: Container) -> Amount | None:
        """The amount by a container's resources; if that is impossible, by those that the scheduler has checked."""
        written = self.counting(declaration, container)
        checked = {key: text for key, text in written.items() if is_checked(key, self.node)}
        amount = self._amount(declaration, written, container.name, is_checked=checked == written)
        if amount is None and checked != written:
            amount = self._amount(declaration, checked, container.name, is_checked=True)
        return amount

    def requested(self, declaration: Declaration, container: Container) -> dict[str, str]:
        """What a container requests under a declaration's key, in order, as much as can be meant."""
        key, resources = declaration.key, container.resources
        if _WILD.search(key) is None:
            return {key: resources[key]} if key in resources else {}
        if key not in self.matching:
            every = {each for container in self.pod.containers for each in container.resources}
            self.matching[key] = frozenset(_matching(every, key))
        # Of the keys of one container: with `&` a view of keys walks through those of all containers.
        matching = self.matching[key].intersection(resources)
        return {each: resources[each] for each in sorted(matching)[:_MOST_MATCHED]}

    def counting(self, declaration: Declaration, container: Container) -> dict[str, str]:
        """What a container requests under a declaration's key, without shares if that is in MIG instances."""
        requested = self.requested(declaration, container)
        if declaration.unit != "mig":
            return requested
        return {key: text for key, text in requested.items() if not self.is_cut(key)}

    def by_annotation(self, declaration: Declaration, container: str = "") -> Amount | None:
        """The amount that an annotation or label gives for a container, or for the pod ("")."""
        written = _written(self.annotated(declaration), declaration.key.replace(CONTAINER, container))
        is_for_node = self.is_for_node(declaration)
        if not written or is_for_node is False:
            return None
        if is_for_node is None:
            return self.unknown(declaration, written, self.why_unread(declaration))
        return self._amount(declaration, written, container, is_checked=False)

    def _amount(
        self, declaration: Declaration, written: Mapping[str, str], container: str, *, is_checked: bool
    ) -> Amount | None:
        """The sum over the keys that are written; None if there is none, it requests nothing, or it is impossible."""
        if not written:
            return None
        try:
            size = read_size(declaration, written, shares_of(declaration, self.node))
            if not is_checked:
                require_possible(size)
        except ValueError as error:
            self.found.remark(tuple(written), container, str(error))
            if is_checked:
                self.found.invalid.add(container)
            return None
        if size is None:
            return None
        size = min(size, LARGEST) if isinstance(size, int) else size
        why = excess(size, declaration.per, self.cards)
        if isinstance(size, Devices) and why is None and not (is_checked or self.cards.has(size)):
            why = _NO_SUCH_DEVICE
        is_beyond_any = isinstance(size, CardShare) and declaration.per == "gpu"  # even of a hidden card
        if why is not None and (self.cards.complete or is_beyond_any):
            self.found.remark(tuple(written), container, why, counts=is_checked)
            if not is_checked:
                return None
        elif why is not None and not is_checked:
            return self.unknown(
                declaration, written, f"{why.partition(';')[0]}, but not every card is known: {self.cards.why}"
            )
        per = "any" if isinstance(size, Devices) and declaration.per == "total" else declaration.per
        allowance = declaration.allowance or self.policy.allowance
        return Amount(source=", ".join(written), per=per, size=size, allowance=allowance, is_checked=is_checked)

    def unknown(self, declaration: Declaration, keys: Iterable[str], why: str, *, is_checked: bool = False) -> Amount:
        """An amount that can't be determined now; no later declaration is used, since it may be smaller."""
        return Amount(
            source=", ".join(sorted(keys)),
            per=declaration.per,
            size=None,
            allowance=declaration.allowance or self.policy.allowance,
            is_checked=is_checked,
            unknown=why,
        )

    def limits(
        self, declaration: Declaration, limit: LimitAnnotation, key: str, container: str, amounts: Mapping[str, Amount]
    ) -> Iterator[tuple[str, int | CardShare]]:
        """The limits by one annotation; one that is not a number, or is below the request, is skipped and reported.

        One in another unit than the request can be compared with it only in bytes of the card, which `bytes_of` does.
        """
        sizes = ((name, amount.size) for name, amount in amounts.items())
        requested = {name: size for name, size in sizes if isinstance(size, int | CardShare)}
        if not requested:
            return
        read_as = declaration if limit.unit is None else replace(declaration, unit=limit.unit)
        try:
            most = read_size(read_as, {key: self.pod.annotations[key]}, shares_of(declaration, self.node))
            require_possible(most)
        except ValueError as error:
            self.found.remark([key], container, str(error))
            return
        like = next(iter(requested.values()))
        is_alike = isinstance(most, int) is isinstance(like, int)
        total = sum((_number(size) for size in requested.values()), Fraction(0))
        if most is None or isinstance(most, Devices) or not _number(most) or (is_alike and _number(most) < total):
            named = "0" if most is None or isinstance(most, Devices) else describe(most)
            self.found.remark([key], container, f"{named} is below what is requested, {describe(_like(like, total))}")
            return
        # The limit may be meant for a card that is hidden.
        most = capped(most, declaration.per, self.cards) if self.cards.complete else most
        room = max(total, _number(most)) if is_alike else _number(most)
        for name, size in requested.items():
            yield name, _like(most, room * _number(size) / total if total else room / len(requested))

    def part_of_card(self, container: Container) -> Amount | None:
        """A fraction of `nvidia.com/gpu`, which Huawei CCE permits (support.huaweicloud.com, cce_10_0742)."""
        number = _quantity(container.resources.get(GPU_RESOURCE))
        if number is None or number <= 0 or number.denominator == 1 or not self.is_whole(GPU_RESOURCE):
            return None
        if not self.has(GPU_RESOURCE, math.ceil(number)):
            return None
        return Amount(
            source=GPU_RESOURCE,
            per="total",
            size=CardShare(cards=number),
            allowance=self.policy.allowance,
            is_checked=is_checked(GPU_RESOURCE, self.node),
        )

    def is_whole(self, key: str) -> bool:
        """Whether a resource is of whole devices: cards or instances that nothing cuts into shares."""
        known = self.whole_keys.get(key)
        if known is None:
            known = (key == GPU_RESOURCE or profile_of(key) is not None) and not self.is_cut(key)
            self.whole_keys[key] = known
        return known

    def is_cut(self, key: str) -> bool:
        """Whether a resource is a share of a device."""
        known = self.cut_keys.get(key)
        if known is None:
            known = self.cut_keys[key] = is_cut(key, self.node)
        return known

    def has(self, key: str, count: int) -> bool:
        """Whether a container can have this many devices: a number that was not checked may be impossible."""
        return is_checked(key, self.node) or self.cards.has(Devices(counts=((profile_of(key), count),)))

    def whole_by_other(self, container: Container, declaration: Declaration) -> int:
        """The number of whole cards by the resource of `unless`; 0 if the declaration applies."""
        unless, count = declaration.unless, _count_by_other(container, declaration)
        return count if unless is not None and self.has(unless.resource, count) else 0


class _ContainerReader:
    """Reads what each container of a pod declares, in any of its phases; what it finds wrong is noted at the sources.

    Which declaration counts depends on what was found before: whole devices, claims, those of other containers.
    """

    def __init__(self, sources: _Sources) -> None:
        self.claimed: dict[str, Claimed] = {}
        self._sources = sources
        self._found = sources.found
        # Those that may count: fewer while a container is read again, whose amount can't be added to the others'.
        self._declarations = sources.declarations

    def read(self) -> dict[str, tuple[int, Amount]]:
        """What each container declares, with its position in the policy."""
        sources, by_container = self._sources, dict[str, tuple[int, Amount]]()
        for container in sources.pod.containers:
            claimed = claimed_by(sources.pod, container, sources.cards, sources.policy)
            if claimed is not None:
                self.claimed[container.name] = claimed
            first = self._first_of_container(container)
            if first is not None:
                by_container[container.name] = first
        return self._of_one_kind(by_container)

    def _of_one_kind(self, ordered: dict[str, tuple[int, Amount]]) -> dict[str, tuple[int, Amount]]:
        """The amounts, given with their positions, without those that can't be added: a total and one per GPU.

        What only the tenant has written gives way to what the scheduler has checked, and later declarations to the
        first; otherwise a pod could escape its limit by a second declaration. Two that were checked both remain.
        """
        kinds = {amount.per for _, amount in ordered.values()} - {"any"}
        checked = {amount.per for _, amount in ordered.values() if amount.is_checked} & kinds
        if len(kinds) < 2 or len(checked) == 2:
            return ordered
        in_order = sorted((order, amount.per) for order, amount in ordered.values() if amount.per in kinds)
        kept = checked.pop() if checked else in_order[0][1]
        every, self._declarations = (
            self._declarations,
            tuple(each for each in self._declarations if each[1].per == kept or each[1].unit == "cards"),
        )
        for container in self._sources.pod.containers:
            _, amount = ordered.get(container.name, (0, None))
            if amount is None or amount.per in ("any", kept):
                continue
            self._found.remark([amount.source], container.name, _UNLIKE[amount.per])
            again = self._first_of_container(container)
            if again is not None:
                ordered[container.name] = again
            else:
                del ordered[container.name]
                self._found.misdeclared.add(container.name)
        self._declarations = every
        return ordered

    def _first_of_container(self, container: Container) -> tuple[int, Amount] | None:
        sources = self._sources
        is_named = any(_is_of_container(declaration) for _, declaration in self._declarations)
        if not (container.resources or container.claims or is_named):
            return None
        tried = self._found.skipped
        whole = self._whole(container)
        unread = self._unread(container)
        for order, declaration in self._declarations:
            if not self._may_count(declaration, container):
                continue
            if declaration.wrong_unit and self._writes(container, declaration):
                self._found.remark([declaration.key], container.name, _WRONG_UNIT)
                self._found.invalid.add(container.name)
                return None
            amount = self._by_declaration(declaration, container, whole, unread)
            if container.name in self._found.invalid:
                break
            if amount is not None:
                return order, replace(amount, count=sources.count(container, declaration, amount.source))
        if whole is not None:
            self._found.invalid.discard(container.name)
            return sources.last, whole
        if container.claims and not sources.policy.reads_claims and container.name not in self._found.invalid:
            return sources.last, self._unread_claims(container)
        if self._found.skipped > tried:
            self._found.misdeclared.add(container.name)
        return None

    def _may_count(self, declaration: Declaration, container: Container) -> bool:
        """Whether a declaration is read for a container: no annotation is if it holds an amount by claims."""
        if not _is_of_container(declaration) or self._sources.whole_by_other(container, declaration):
            return False
        claimed = self.claimed.get(container.name)
        return declaration.kind == "resource" or claimed is None or not claimed.gives_amounts

    def _by_declaration(
        self, declaration: Declaration, container: Container, whole: Amount | None, unread: Collection[str]
    ) -> Amount | None:
        """What a declaration gives for a container, which may hold `whole` devices and `unread` resources."""
        sources = self._sources
        if declaration.kind != "resource":
            is_meant = sources.is_meant(declaration, container)
            return sources.by_annotation(declaration, container.name) if is_meant else None
        is_for_node = sources.is_for_node(declaration)
        if is_for_node is None and whole is not None and sources.requested(declaration, container):
            return whole  # more than any share of a device
        unread_here = [key for key in unread if fnmatchcase(key, declaration.key)]
        if unread_here:
            return sources.unknown(declaration, unread_here, sources.why_unread(declaration), is_checked=True)
        # Whole cards are what is left if no memory is declared beside them.
        return sources.resource(declaration, container) if is_for_node and declaration.unit != "cards" else None

    def _writes(self, container: Container, declaration: Declaration) -> bool:
        """Whether a declaration that applies to no pod has something to read here."""
        sources = self._sources
        if sources.is_for_node(declaration) is False:
            return False
        if declaration.kind == "resource":
            return any(map(_quantity, sources.requested(declaration, container).values()))
        key = declaration.key.replace(CONTAINER, container.name)
        return sources.is_meant(declaration, container) and bool(_written(sources.annotated(declaration), key))

    def _unread(self, container: Container) -> set[str]:
        """The requested resources that declarations name, but none that applies to this node.

        The labels that would make one apply may be missing. Whole devices, and resources with `unless`, are not
        included.
        """
        sources = self._sources
        named: set[str] = set()
        readable: set[str] = set()
        for _, declaration in self._declarations:
            if declaration.kind == "resource":
                keys = sources.requested(declaration, container).keys()
                named |= keys
                if sources.whole_by_other(container, declaration):
                    readable |= keys
                elif sources.is_for_node(declaration):
                    readable |= sources.counting(declaration, container).keys()
        is_requested = (key for key in named - readable if _quantity(container.resources[key]))
        return {key for key in is_requested if is_checked(key, sources.node) and not sources.is_whole(key)}

    def _unread_claims(self, container: Container) -> Amount:
        """What a container holds by resource claims, which the policy does not read."""
        names = ", ".join(brief(name) for name in container.claims)
        why = f"container {container.name} may have a GPU by a ResourceClaim ({names}), and claims are not read"
        source = f"claim {names}"
        return Amount(source=source, per="any", size=None, allowance=NO_ALLOWANCE, unknown=why, is_claim=True)

    def _whole(self, container: Container) -> Amount | None:
        """The whole cards and MIG instances that a container requests, which no declaration covers."""
        sources = self._sources
        devices: dict[str, tuple[str | None, int]] = {}
        for key in sorted(filter(sources.is_whole, container.resources))[:_MOST_MATCHED]:
            count = _positive(container.resources[key])
            if count and sources.has(key, count):
                devices[key] = profile_of(key), count
            elif count:
                self._found.remark([key], container.name, _NO_SUCH_DEVICE)
        if not devices:
            for _, declaration in self._declarations:
                unless, count = declaration.unless, _count_by_other(container, declaration)
                if unless is None or not count or sources.is_for_node(declaration) is False:
                    continue
                if sources.has(unless.resource, count):
                    devices = {unless.resource: (None, count)}
                    break
                self._found.remark([unless.resource], container.name, _NO_SUCH_DEVICE)
        if not devices:
            tables = (each for _, each in self._declarations if each.unit == "cards" and sources.is_for_node(each))
            amounts = (sources.resource(each, container) for each in tables if not each.wrong_unit)
            return next((amount for amount in amounts if amount is not None), sources.part_of_card(container))
        return Amount(
            source=", ".join(devices),
            per="any",
            size=Devices(counts=tuple(devices.values())),
            allowance=NO_ALLOWANCE,
            is_checked=all(is_checked(key, sources.node) for key in devices),
        )


class _PhaseReader:
    """Reads what a pod declares in one phase, by its containers or as a whole, and the limits that annotations set."""

    def __init__(self, sources: _Sources, claimed: Mapping[str, Claimed], phase: Phase, *, is_split: bool) -> None:
        """`is_split`: it can't be an amount for several containers together."""
        self._sources = sources.copy()  # what is wrong in one phase is no fault of another
        self._found = self._sources.found
        self._claimed = claimed
        self._phase = phase
        self._is_split = is_split

    def read(self, by_container: Mapping[str, tuple[int, Amount]]) -> PodDeclaration:
        """What the pod declares, if this is what its containers declare."""
        claimed, found = self._claimed, self._found
        has_claimed = any(each.name in claimed and claimed[each.name].gives_amounts for each in self._phase)
        first = min((order for order, _ in by_container.values()), default=self._sources.last)
        of_pod = self._first_of_pod(first) if not has_claimed else None
        amounts = self._with_limits({"": of_pod} if of_pod is not None else by_container)
        return PodDeclaration(
            amounts=amounts,
            kinds=frozenset(amount.per for amount in amounts.values()),
            remarks=tuple(found.remarks),
            misdeclared=frozenset(found.misdeclared),
            invalid=frozenset(found.invalid),
            together=_excess_of_sum(amounts, self._phase, self._sources.cards),
            claimed=claimed,
        )

    def _first_of_pod(self, before: int) -> tuple[int, Amount] | None:
        sources, tried = self._sources, self._found.skipped
        for order, declaration in sources.declarations:
            is_off = any(sources.whole_by_other(container, declaration) for container in sources.pod.containers)
            if order >= before or _is_of_container(declaration) or is_off:
                continue
            if declaration.wrong_unit and _written(sources.annotated(declaration), declaration.key):
                self._found.remark([declaration.key], "", _WRONG_UNIT)
                self._found.invalid.add("")
                break
            amount = sources.by_annotation(declaration)
            if amount is not None and self._is_split:
                self._found.remark(
                    [amount.source], "", "it is for the pod as a whole, and the rule compares each container"
                )
            elif amount is not None:
                counts = [sources.count(container, declaration, "") or 0 for container in self._phase]
                return order, replace(amount, count=sum(counts) or sources.annotated_count())
        if self._found.skipped > tried:
            self._found.misdeclared.add("")
        return None

    def _with_limits(self, ordered: Mapping[str, tuple[int, Amount]]) -> Mapping[str, Amount]:
        """The amounts, given with their positions in the policy, with the limits that annotations set.

        An annotation that does not name a container is shared by all active ones, in proportion to their requests.
        """
        amounts = {name: amount for name, (_, amount) in ordered.items()}
        active = {container.name for container in self._phase} | {""}
        for order, declaration in self._sources.declarations:
            own = {name for name, (position, _) in ordered.items() if position == order}
            for limit in declaration.limits:
                if CONTAINER in limit.key:
                    groups = [(name, [name]) for name in sorted(own) if name]
                else:
                    groups = [("", [name for name in ordered if name in own and name in active])]
                for container, names in groups:
                    key = limit.key.replace(CONTAINER, container)
                    if key not in self._sources.pod.annotations or not names:
                        continue
                    own -= set(names)  # the first that is set applies, or is reported
                    within = {name: amounts[name] for name in names}
                    for name, size in self._sources.limits(declaration, limit, key, container, within):
                        amounts[name] = replace(amounts[name], limit=size)
        return amounts


def _excess_of_sum(amounts: Mapping[str, Amount], phase: Phase, cards: Cards) -> str:
    """Why what only the tenant has written is impossible as a sum in a phase, as a clause; empty if it is not."""
    names = dict.fromkeys(("", *(container.name for container in phase)))
    written = [amounts[name] for name in names if name in amounts and not amounts[name].is_checked]
    room = cards.total_size if cards.complete and len(written) > 1 else None
    total = least_sum(written, cards) if room is not None else 0
    if room is None or total <= room:
        return ""
    return f"together {format_bytes(total)} is more than all cards together ({format_bytes(room)})"


def _concerns(declaration: Declaration, pod: Pod, requested: Collection[str]) -> bool:
    """Whether a pod has a key that the declaration reads, or requests the resource of its `unless`."""
    if declaration.unless is not None and declaration.unless.resource in requested:
        return True
    if declaration.resource is not None:
        return bool(_keys(requested, declaration.resource))
    keys, key = _annotated(declaration, pod), declaration.key
    if CONTAINER in key:
        return any(_keys(keys, key.replace(CONTAINER, container.name)) for container in pod.containers)
    return bool(_keys(keys, key))


def _annotated(declaration: Declaration, pod: Pod) -> Mapping[str, str]:
    return pod.annotations if declaration.kind == "annotation" else pod.labels


_WILD: Final = re.compile(r"[*?\[]")
_MOST_MATCHED: Final = 32  # keys of one source; no node has as many MIG profiles


def _keys(source: Collection[str], key: str) -> list[str]:
    """The keys that match a pattern, in order, as many as can be meant; a tenant can write thousands."""
    wild = _WILD.search(key)
    if wild is None:
        return [key] if key in source else []
    return sorted(_matching(source, key))[:_MOST_MATCHED]


def _matching(source: Collection[str], pattern: str) -> Iterator[str]:
    """All keys that match a pattern."""
    start = pattern[: wild.start()] if (wild := _WILD.search(pattern)) is not None else pattern
    return (key for key in source if key.startswith(start) and fnmatchcase(key, pattern))


def _written(source: Mapping[str, str], key: str) -> dict[str, str]:
    return {k: source[k] for k in _keys(source, key)}


def _is_of_container(declaration: Declaration) -> bool:
    """Whether it is read for each container, or for one of them, and not for the pod as a whole."""
    return declaration.kind == "resource" or CONTAINER in declaration.key or bool(declaration.container_annotation)


def _count_by_other(container: Container, declaration: Declaration) -> int:
    """How many whole cards the resource of `unless` comes to, possible or not."""
    unless = declaration.unless
    number = _quantity(container.resources.get(unless.resource)) if unless is not None else None
    return 0 if unless is None or number is None else max(0, int(number // unless.at_least))


def _positive(text: str | None) -> int | None:
    number = _quantity(text)
    return number.numerator if number is not None and number.denominator == 1 and number.numerator >= 1 else None


def _quantity(text: str | None) -> Fraction | None:
    try:
        return parse_number(text) if text is not None else None
    except ValueError:
        return None


def _number(size: int | CardShare) -> Fraction:
    return Fraction(size) if isinstance(size, int) else size.cards


def _like(example: int | CardShare, number: Fraction) -> int | CardShare:
    """A number as a size of the same kind; bytes are rounded up."""
    return math.ceil(number) if isinstance(example, int) else replace(example, cards=number)
