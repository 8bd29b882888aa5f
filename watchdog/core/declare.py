"""Declarations: how much GPU memory a pod says that it will use, from whichever key it says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.amount import Amount, Devices, check_plausible, read_size
from watchdog.core.burst import CONTAINER, Limits
from watchdog.core.cards import GPU_RESOURCE, Cards, is_cut, profile_of, shares_of
from watchdog.core.findings import Misdeclaration
from watchdog.core.model import Container, ContainerKind, Gpu, Node, Pod
from watchdog.core.policy import NO_ALLOWANCE, Declaration, Policy
from watchdog.core.units import brief, parse_number

# Where schedulers are told on how many GPUs an amount per GPU holds.
_COUNT_RESOURCES: Final = (GPU_RESOURCE, "volcano.sh/vgpu-number")
_COUNT_ANNOTATIONS: Final = ("gpu-fraction-num-devices", "tensor-fusion.ai/gpu-count")
_LONGEST_SOURCE: Final = 600  # a pattern may match any number of keys


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeclaration:
    """What a pod declares: by container, or for the pod as a whole (an annotation or label); and what was skipped.

    `misdeclared` are the containers (or "" for the pod) that tried to declare and of which nothing holds.
    """

    containers: Mapping[str, Amount]
    pod: Amount | None = None
    skipped: tuple[Misdeclaration, ...] = ()
    misdeclared: frozenset[str] = frozenset()


def active_containers(pod: Pod) -> tuple[Container, ...]:
    """The containers whose declarations count now.

    While a plain init container runs, it and the sidecars before it; otherwise the main ones and the sidecars
    (kubernetes/pkg/api/v1/resource adds them up the same way, but takes the maximum over time).
    """
    before: list[Container] = []
    for container in pod.containers:
        if container.kind is ContainerKind.SIDECAR:
            before.append(container)
        elif container.kind is ContainerKind.INIT and container.running:
            return (*before, container)
    return tuple(c for c in pod.containers if c.kind in (ContainerKind.MAIN, ContainerKind.SIDECAR))


def declare(
    pod: Pod, policy: Policy, node: Node, gpus: Iterable[Gpu], *, all_cards_seen: bool = True
) -> PodDeclaration:
    """Read a pod's declarations in the policy's order; one that can't be true is skipped and said.

    Unless all cards are seen no amount is too large: the missing card may be the one that was meant.
    """
    return _Reader(pod, policy, node, Cards(gpus=tuple(gpus), complete=all_cards_seen)).read()


class _Reader:
    def __init__(self, pod: Pod, policy: Policy, node: Node, cards: Cards) -> None:
        self.pod = pod
        self.policy = policy
        self.node = node
        self.cards = cards
        self.skipped: list[Misdeclaration] = []
        self.misdeclared: set[str] = set()

    def read(self) -> PodDeclaration:
        found: dict[str, tuple[int, Amount]] = {}
        for container in self.pod.containers:
            first = self._first_of_container(container)
            if first is not None:
                found[container.name] = first
        first_of_pod = self._first_of_pod(min((order for order, _ in found.values()), default=self._last))
        holders = {"": first_of_pod} if first_of_pod is not None else found
        active = {container.name for container in active_containers(self.pod)} | {""}
        limits = Limits(self.pod.annotations, self.node, self.cards)
        amounts = limits.apply(holders, self.policy.declarations, active)
        return PodDeclaration(
            containers={name: amount for name, amount in amounts.items() if name},
            pod=amounts.get(""),
            skipped=(*self.skipped, *limits.skipped),
            misdeclared=frozenset(self.misdeclared),
        )

    @property
    def _last(self) -> int:
        return len(self.policy.declarations)

    def _first_of_container(self, container: Container) -> tuple[int, Amount] | None:
        tried = len(self.skipped)
        for order, declaration in enumerate(self.policy.declarations):
            applies = self._applies(declaration, container)
            if applies is False or (declaration.kind != "resource" and CONTAINER not in declaration.key):
                continue
            source = container.resources if declaration.kind == "resource" else self._source(declaration)
            written = _written(source, declaration.key.replace(CONTAINER, container.name))
            if applies is None:
                # A whole card is more than any share of it.
                amount = (self._whole(container) or self._unknown(declaration, written)) if written else None
            else:
                amount = self._amount(declaration, written, f"container {container.name}")
            if amount is not None:
                return order, replace(amount, count=_count(container.resources, amount.source))
        whole = self._whole(container)
        if whole is not None:
            return self._last, whole
        if len(self.skipped) > tried:
            self.misdeclared.add(container.name)
        return None

    def _first_of_pod(self, before: int) -> tuple[int, Amount] | None:
        tried = len(self.skipped)
        for order, declaration in enumerate(self.policy.declarations[:before]):
            applies = self._applies(declaration)
            if declaration.kind == "resource" or CONTAINER in declaration.key or applies is False:
                continue
            written = _written(self._source(declaration), declaration.key)
            if applies is None:
                amount = self._unknown(declaration, written) if written else None
            else:
                amount = self._amount(declaration, written, "the pod")
            if amount is not None:
                counts = [_count(container.resources, "") or 0 for container in active_containers(self.pod)]
                noted = (_positive(self.pod.annotations.get(key)) for key in _COUNT_ANNOTATIONS)
                return order, replace(amount, count=sum(counts) or next((each for each in noted if each), None))
        if len(self.skipped) > tried:
            self.misdeclared.add("")
        return None

    def _source(self, declaration: Declaration) -> Mapping[str, str]:
        return self.pod.annotations if declaration.kind == "annotation" else self.pod.labels

    def _applies(self, declaration: Declaration, container: Container | None = None) -> bool | None:
        """Whether a declaration is for this node and holder; None: that depends on labels that are not known."""
        holders = (container,) if container is not None else self.pod.containers
        if any(_whole_by_other(holder, declaration) for holder in holders):
            return False
        return self._is_for_node(declaration)

    def _is_for_node(self, declaration: Declaration) -> bool | None:
        labels = self.node.labels
        if not self.node.known and (declaration.node_labels or isinstance(declaration.shares, str)):
            return None
        if any(k not in labels or not fnmatchcase(labels[k], v) for k, v in declaration.node_labels.items()):
            return False
        return declaration.unit != "share" or shares_of(declaration, self.node) is not None

    def _unknown(self, declaration: Declaration, written: Mapping[str, str]) -> Amount:
        """What would count if it were known: nothing after it is taken, since that may be less."""
        allowance = declaration.allowance or self.policy.allowance
        return Amount(source=", ".join(written), per=declaration.per, size=None, allowance=allowance)

    def _amount(self, declaration: Declaration, written: Mapping[str, str], where: str) -> Amount | None:
        """The sum over the keys that are written, None where there is none, or it asks for nothing or can't be true."""
        if declaration.unit == "mig":
            written = {k: text for k, text in written.items() if not is_cut(k, self.node)}
        if not written:
            return None
        try:
            size = read_size(declaration, written, shares_of(declaration, self.node))
            if size is not None:
                check_plausible(size, declaration.per, self.cards)
        except ValueError as error:
            source = brief(", ".join(written), _LONGEST_SOURCE)
            self.skipped.append(Misdeclaration(source=f"{source} of {where}", why=str(error)))
            return None
        if size is None:
            return None
        per = "any" if isinstance(size, Devices) and declaration.per == "total" else declaration.per
        allowance = declaration.allowance or self.policy.allowance
        return Amount(source=", ".join(written), per=per, size=size, allowance=allowance)

    def _whole(self, container: Container) -> Amount | None:
        """The cards and MIG instances that a container has for itself, of which no declaration tells."""
        devices: dict[str, tuple[str | None, int]] = {}
        for key, text in sorted(container.resources.items()):
            count, profile = _positive(text), profile_of(key)
            if count and (key == GPU_RESOURCE or profile is not None) and not is_cut(key, self.node):
                devices[key] = profile, count
        if not devices:
            for declaration in self.policy.declarations:
                count = _whole_by_other(container, declaration)
                if count and declaration.unless is not None and self._is_for_node(declaration) is not False:
                    devices = {declaration.unless.resource: (None, count)}
        if not devices:
            return None
        size = Devices(counts=tuple(devices.values()))
        return Amount(source=", ".join(devices), per="any", size=size, allowance=NO_ALLOWANCE)


def _whole_by_other(container: Container, declaration: Declaration) -> int:
    """How many whole cards a container has by the resource that makes a declaration not apply; 0 if it applies."""
    unless = declaration.unless
    if unless is None or unless.resource not in container.resources:
        return 0
    try:
        return max(0, int(parse_number(container.resources[unless.resource]) // unless.at_least))
    except ValueError:
        return 0


def _written(source: Mapping[str, str], key: str) -> dict[str, str]:
    keys = sorted(k for k in source if fnmatchcase(k, key)) if "*" in key or "?" in key else [key]
    return {k: source[k] for k in keys if k in source}


def _count(resources: Mapping[str, str], source: str) -> int | None:
    counts = (_positive(resources.get(key)) for key in _COUNT_RESOURCES if key != source)
    return next((count for count in counts if count), None)


def _positive(text: str | None) -> int | None:
    try:
        number = parse_number(text) if text is not None else None
    except ValueError:
        return None
    return int(number) if number is not None and number >= 1 and number.denominator == 1 else None
