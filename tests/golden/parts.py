"""What worlds are made of: cards, pods, processes and what is done to them, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.stub import GIB, MIB, ListName, StubGpu, StubMig, StubReturn, Variant

Use = float | None | Mapping[int, float | None]
Behaviour = Literal["plain", "deaf", "server"]
CLIENT: Final[tuple[ListName, ...]] = ("compute", "mps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A container of a pod: what it declares as veriff.com/gpu-memory, and its other resources."""

    name: str = "main"
    declared: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    init: Literal["", "plain", "sidecar"] = ""
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """A pod; one that is not `listed` is known to nobody but the kernel."""

    name: str
    boxes: tuple[Box, ...]
    namespace: str = "ns"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A process: where it runs and what it uses of which card.

    `where` is POD/CONTAINER, a container's name that the pod's spec lacks among them; empty: the host. `spoofs` is
    the POD/CONTAINER whose path it makes below its own cgroup.
    """

    where: str
    use: Mapping[int, float | None]
    behaviour: Behaviour = "plain"
    lists: tuple[ListName, ...] = ("compute",)
    gi: int | None = None
    spoofs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """The node's own object."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


def box(name: str = "main", declared: str | None = None, **more: Any) -> Box:
    """A container."""
    return Box(name=name, declared=declared, **more)


def pod(name: str, declared: str | tuple[Box, ...] | None = None, **more: Any) -> PodRow:
    """A pod with these containers, or with one that declares so much."""
    return PodRow(name=name, boxes=declared if isinstance(declared, tuple) else (box(declared=declared),), **more)


def wants(name: str, resources: Mapping[str, str], **more: Any) -> PodRow:
    """A pod with one container that asks for these resources."""
    return PodRow(name=name, boxes=(box(resources=resources),), **more)


def job(where: str, use: Use = 1.0, **more: Any) -> Job:
    """A process that uses so many GiB of the first card, or of several."""
    return Job(where=where, use=use if isinstance(use, Mapping) else {0: use}, **more)


def of(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """The metadata of a pod that has this owner."""
    return {
        "ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}],
        **more,
    }


def noted(**annotations: str) -> dict[str, Any]:
    """The metadata of a pod with these annotations."""
    return {"annotations": annotations}


def card(number: int = 0, gib: int = 40, **more: Any) -> StubGpu:
    """A card, the number being its index."""
    made = {"total": gib * GIB, "reserved": 512 * MIB, **more}
    return StubGpu(uuid=f"GPU-{number}", **made)


def mig_card(number: int, count: int) -> StubGpu:
    """A card in MIG mode with so many instances, whose GPU instances are numbered from 1."""
    migs = tuple(StubMig(uuid=f"MIG-{number}-{n}", slot=n - 1, gi=n) for n in range(1, count + 1))
    return card(number, migs=migs, reserved=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A node and a policy, and what is done: nothing where the world is only scanned."""

    name: str
    keeps: str  # what it protects
    policy: str | None = None
    pods: tuple[PodRow, ...] | None = ()
    jobs: tuple[Job, ...] = ()
    cards: tuple[StubGpu, ...] = (card(),)
    returns: tuple[StubReturn, ...] = ()
    free_delay_ms: float = 0.0
    node: NodeRow | None = None
    variant: Variant = "current"
    version: Literal["cgroup", "cgroup2"] = "cgroup"
    actions: tuple["Kill", ...] = ()
    explain: str = ""  # NAMESPACE/POD
    keys: bool = False  # whether the names of all keys are kept too


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A command that needs no node; in its arguments POLICY stands for the file of the policy, ROOT for its folder."""

    name: str
    keeps: str
    arguments: tuple[str, ...]
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Uses:
    """From now on a process uses so much."""

    where: str
    use: Use


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until the sample of a metric has this value."""

    metric: str
    value: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signalled:
    """Wait until a process has got a signal: the journal has it."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class Passes:
    """Wait for so many passes."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """Wait until /readyz answers so."""

    code: int


@dataclass(frozen=True, slots=True)
class Pods:
    """From now on the pod list has these; None: it can't be read."""

    pods: tuple[PodRow, ...] | None


@dataclass(frozen=True, slots=True)
class Marks:
    """From now on the node's own object is this."""

    node: NodeRow


@dataclass(frozen=True, slots=True)
class Writes:
    """From now on the policy is this."""

    policy: str


@dataclass(frozen=True, slots=True)
class Driver:
    """From now on calls of the driver return these codes."""

    returns: tuple[StubReturn, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """From now on so many GiB of the first card are used by nobody."""

    base: float


@dataclass(frozen=True, slots=True)
class StopFile:
    """The stop file is there from now on."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A command beside the daemon, of its journal and its port."""

    command: str


@dataclass(frozen=True, slots=True)
class Dies:
    """The daemon is killed and begins again."""


Kill = Uses | Until | Signalled | Passes | Ready | Pods | Marks | Writes | Driver | Card | StopFile | Runs | Dies


def until(metric: str, value: float = 1.0, **labels: str) -> Until:
    """Wait until the sample of a metric with these labels has this value."""
    return Until(metric, value, labels)


def ended(result: str = "done", count: float = 1.0, action: str = "kill") -> Until:
    """Wait until so many actions have ended so."""
    return until("actions_total", count, action=action, result=result)


def held(brake: str, count: float = 1.0) -> Until:
    """Wait until a brake has held so many steps back."""
    return until("withheld_total", count, brake=brake)
