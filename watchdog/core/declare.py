"""Declarations: how much GPU memory a pod says that it will use, from whichever key it says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from watchdog.core.findings import Misdeclaration
from watchdog.core.model import Container, ContainerKind, Gpu, Node, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy
from watchdog.core.units import format_bytes, parse_number

GPU_RESOURCE = "nvidia.com/gpu"
_MIG_PREFIX = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What one declaration says.

    `total`: `bytes_` over all GPUs. `gpu`: `bytes_` on each, or on the `count` most used where a count is known.
    `whole`: `count` cards or MIG instances of its own (`profile`), whatever their size.
    """

    kind: Literal["total", "gpu", "whole"]
    source: str
    allowance: Allowance
    bytes_: int = 0
    count: int | None = None
    profile: str | None = None


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


def shares_cards(node: Node) -> bool:
    """Whether the node's labels say that `nvidia.com/gpu` stands for a share of a card (GPU feature discovery)."""
    replicas = node.labels.get("nvidia.com/gpu.replicas", "")
    strategy = node.labels.get("nvidia.com/gpu.sharing-strategy", "none")
    return (replicas.isdecimal() and int(replicas) > 1) or strategy not in ("", "none")


def declare(
    pod: Pod, policy: Policy, node: Node, gpus: Iterable[Gpu], *, all_cards_seen: bool = True
) -> PodDeclaration:
    """Read a pod's declarations in the policy's order; one that can't be true is skipped and said.

    Unless all cards are seen no amount is too large: the missing card may be the one that was meant.
    """
    sizes = tuple(gpu.size for gpu in gpus) if all_cards_seen else (None,)
    return _Reader(pod, policy, node, sizes).read()


class _Reader:
    def __init__(self, pod: Pod, policy: Policy, node: Node, sizes: tuple[int | None, ...]) -> None:
        self.pod = pod
        self.policy = policy
        self.node = node
        known = [size for size in sizes if size is not None]
        # Where one card does not tell its size, nothing can be called implausible.
        self.largest = max(known) if known and len(known) == len(sizes) else None
        self.sum = sum(known)
        self.skipped: list[Misdeclaration] = []
        self.misdeclared: set[str] = set()

    def read(self) -> PodDeclaration:
        found: dict[str, tuple[int, Amount]] = {}
        for container in self.pod.containers:
            first = self._first_of_container(container)
            if first is not None:
                found[container.name] = first
        pod = self._first_of_pod(min((order for order, _ in found.values()), default=len(self.policy.declarations)))
        return PodDeclaration(
            containers={} if pod is not None else {name: amount for name, (_, amount) in found.items()},
            pod=pod,
            skipped=tuple(self.skipped),
            misdeclared=frozenset(self.misdeclared),
        )

    def _first_of_container(self, container: Container) -> tuple[int, Amount] | None:
        tried = len(self.skipped)
        for order, declaration in enumerate(self.policy.declarations):
            per_pod = declaration.kind != "resource" and "{container}" not in declaration.key
            if per_pod or not self._applies(declaration, container):
                continue
            source = container.resources if declaration.kind == "resource" else self._source(declaration)
            key = declaration.key.replace("{container}", container.name)
            amount = self._amount(declaration, source, key, f"container {container.name}")
            if amount is not None:
                return order, self._counted(amount, container)
        if len(self.skipped) > tried:
            self.misdeclared.add(container.name)
            return None
        whole = self._whole(container)
        return None if whole is None else (len(self.policy.declarations), whole)

    def _first_of_pod(self, before: int) -> Amount | None:
        tried = len(self.skipped)
        for declaration in self.policy.declarations[:before]:
            if declaration.kind == "resource" or "{container}" in declaration.key or not self._applies(declaration):
                continue
            amount = self._amount(declaration, self._source(declaration), declaration.key, "the pod")
            if amount is not None:
                counts = [self._count(container) for container in active_containers(self.pod)]
                count = sum(each for each in counts if each is not None)
                return amount if not count or amount.kind != "gpu" else _with_count(amount, count)
        if len(self.skipped) > tried:
            self.misdeclared.add("")
        return None

    def _source(self, declaration: Declaration) -> Mapping[str, str]:
        return self.pod.annotations if declaration.kind == "annotation" else self.pod.labels

    def _applies(self, declaration: Declaration, container: Container | None = None) -> bool:
        labels = self.node.labels
        if any(k not in labels or not fnmatchcase(labels[k], v) for k, v in declaration.node_labels.items()):
            return False
        if declaration.unless is None:
            return True
        holders = (container,) if container is not None else self.pod.containers
        return not any(self._reaches(holder, declaration) for holder in holders)

    def _reaches(self, container: Container, declaration: Declaration) -> bool:
        unless = declaration.unless
        if unless is None or unless.resource not in container.resources:
            return False
        try:
            return parse_number(container.resources[unless.resource]) >= unless.at_least
        except ValueError:
            return False

    def _amount(self, declaration: Declaration, source: Mapping[str, str], key: str, where: str) -> Amount | None:
        """The sum over the keys that match, None where none does or the sum can't be true."""
        keys = sorted(k for k in source if fnmatchcase(k, key)) if "*" in key or "?" in key else [key]
        written = {k: source[k] for k in keys if k in source}
        # The loader names units that depend on the cards as not followed, and `run` then only observes.
        if not written or not isinstance(declaration.unit, int):
            return None
        try:
            exact = sum(parse_number(text) for text in written.values()) * declaration.unit
        except ValueError as error:
            self._skip(where, next(iter(written)), str(error))
            return None
        amount = -(-exact.numerator // exact.denominator)
        limit = self.largest if declaration.per == "gpu" else self.sum
        if amount < 0:
            self._skip(where, ", ".join(written), "it is negative")
            return None
        if self.largest is not None and limit is not None and amount > limit:
            have = "the largest card" if declaration.per == "gpu" else "all cards together"
            why = f"{format_bytes(amount)} is more than {have} ({format_bytes(limit)}); is the unit right?"
            self._skip(where, ", ".join(written), why)
            return None
        allowance = declaration.allowance or self.policy.allowance
        return Amount(kind=declaration.per, source=", ".join(written), allowance=allowance, bytes_=amount)

    def _skip(self, where: str, key: str, why: str) -> None:
        self.skipped.append(Misdeclaration(source=f"{key} of {where}", why=why))

    def _counted(self, amount: Amount, container: Container) -> Amount:
        count = self._count(container)
        return amount if count is None or amount.kind != "gpu" else _with_count(amount, count)

    def _count(self, container: Container) -> int | None:
        return _positive(container.resources.get(GPU_RESOURCE))

    def _whole(self, container: Container) -> Amount | None:
        for key in sorted(container.resources):
            count = _positive(container.resources[key])
            if count and key.startswith(_MIG_PREFIX):
                profile = key.removeprefix(_MIG_PREFIX)
                return Amount(kind="whole", source=key, allowance=NO_ALLOWANCE, count=count, profile=profile)
        count = self._count(container)
        if not count or shares_cards(self.node):
            return None
        return Amount(kind="whole", source=GPU_RESOURCE, allowance=NO_ALLOWANCE, count=count)


def _positive(text: str | None) -> int | None:
    try:
        number = parse_number(text) if text is not None else None
    except ValueError:
        return None
    return int(number) if number is not None and number >= 1 else None


def _with_count(amount: Amount, count: int) -> Amount:
    return Amount(kind=amount.kind, source=amount.source, allowance=amount.allowance, bytes_=amount.bytes_, count=count)
