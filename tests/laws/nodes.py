"""Generated nodes: up to 8 GPUs, 40 pods and 200 processes, with every behaviour seen on real ones."""

import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.worlds import (
    MEMORY,
    NODE,
    T0,
    VERIFF,
    Gi,
    Mi,
    container,
    container_id,
    gpu,
    policy,
    process,
    rule,
    step,
    use,
)
from tests.worlds import pod as make_pod
from tests.worlds import snapshot as make_snapshot
from watchdog.core.hours import Hours
from watchdog.core.model import (
    CONTRADICTORY,
    GONE,
    HOST,
    UNREADABLE,
    ZOMBIE,
    Container,
    ContainerKind,
    Gpu,
    Node,
    Owner,
    Place,
    PlaceKind,
    Pod,
    Process,
    Snapshot,
    Use,
)
from watchdog.core.policy import (
    Allowance,
    Declaration,
    LimitAnnotation,
    Match,
    Policy,
    Protect,
    Rule,
    Safety,
    Step,
    Unless,
)

PER_GPU = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
NOTE = Declaration(annotation="vram", unit=1)
REPLICAS = "nvidia.com/gpu.replicas"
UNLISTED = "not-in-the-list-yet"
DECLARATIONS = (
    VERIFF,
    replace(VERIFF, limits=(LimitAnnotation(key="limit"),), unless=Unless(resource="t/core", at_least=100)),
    PER_GPU,
    replace(PER_GPU, limits=(LimitAnnotation(key="{container}.limit"),)),
    NOTE,
    Declaration(annotation="{container}.vram", unit=Gi),
    Declaration(resource="t/percent", unit="percent", per="gpu"),
    Declaration(resource="t/ratio", unit="percent", limits=(LimitAnnotation(key="limit"),)),
    Declaration(annotation="gpu-fraction", unit="fraction", per="gpu"),
    Declaration(resource="nvidia.com/gpu", unit="share", shares=f"label:{REPLICAS}"),
    Declaration(resource="t/share", unit="share", shares=8),
    Declaration(resource="nvidia.com/mig-*", unit="mig"),
    Declaration(resource="t/cards", unit="cards", of=100),
    Declaration(resource="t/unset", unit=Gi, zero="unset"),
    Declaration(resource="t/wrong", unit=1, wrong_unit="it is smaller"),
    Declaration(annotation="gpu-fraction", unit="fraction", per="gpu", container_annotation="for-container"),
)
# The clocks of its zone go from 08:00:02 to 09:00:03, so that it ends three seconds after the worlds begin.
MORNING = Hours(
    text="Mon-Sun 00:00-08:30 Generated",
    days=frozenset(range(7)),
    begin=0,
    end=8 * 60 + 30,
    offset_s=lambda wall_s: 0 if wall_s < T0 + 3 else 3600,
)


@dataclass(frozen=True)
class GeneratedNode:
    """A node at one moment, its pods, its policy and its labels."""

    seen: Snapshot
    pods: tuple[Pod, ...]
    under: Policy
    node: Node = NODE
    overdue: tuple[str, ...] = ()

    def later(self, seed: int, second: float) -> "GeneratedNode":
        """The same node later: other use, other unknowns, processes come and gone, pods relabelled."""
        dice = random.Random(seed)
        uses = tuple(replace(each, used=_bytes(dice)) for each in self.seen.uses if dice.random() > 0.1)
        seen = make_snapshot(uses, self.seen.processes.values(), self.seen.gpus, second)
        pods = tuple(_rewritten(dice, each) if dice.random() < 0.2 else each for each in self.pods)
        return replace(self, seen=_darken(dice, seen), pods=pods)


@st.composite
def nodes(draw: st.DrawFn) -> GeneratedNode:
    """Nodes of every size up to the largest; the rest comes from a seed, which keeps large ones cheap."""
    sizes = [draw(st.integers(low, high)) for low, high in ((1, 8), (0, 40), (0, 200))]
    return build(random.Random(draw(st.integers(0, 2**32))), *sizes)


def build(dice: random.Random, gpus: int, pods: int, processes: int) -> GeneratedNode:
    cards = [_card(dice, number) for number in range(gpus)]
    tenants = tuple(_pod(dice, number) for number in range(pods))
    listed = [_process(dice, 1000 + number, tenants) for number in range(processes)]
    uses = [each for process_ in listed for each in _uses(dice, process_, cards)]
    seen = make_snapshot(uses, listed, cards)
    labels = {REPLICAS: dice.choice(["0", "1", "4", "many"])} if dice.random() < 0.5 else {}
    node = Node(name="n1", labels=labels, capacity=dice.choice(_CAPACITIES))
    node = node if dice.random() < 0.8 else Node(name="n1", known=False, awaited=dice.random() < 0.5)
    overdue = tuple(f"{tenant.uid}/{UNLISTED}" for tenant in tenants if dice.random() < 0.5)
    return GeneratedNode(seen=_darken(dice, seen), pods=tenants, under=_policy(dice), node=node, overdue=overdue)


def _card(dice: random.Random, number: int) -> Gpu:
    if dice.random() < 0.2:
        profile = dice.choice(["1g.10gb", "1g.10gb+me", "3g.40gb", None])
        return gpu(number, 10 * Gi, parent="GPU-p", gi=number, ci=0, profile=profile)
    return gpu(number, dice.choice([16, 40, 80]) * Gi)


def _bytes(dice: random.Random) -> int | None:
    return dice.choice([None, 0, 1, dice.randrange(Gi), dice.randrange(20 * Gi), dice.randrange(4) * Gi, 2 * Gi])


def _pod(dice: random.Random, number: int) -> Pod:
    uid = f"uid-{number:02}"
    names = ["main", "side", "extra"][: dice.randint(1, 3)]
    namespace = "kube-system" if dice.random() < 0.1 else f"ns-{number % 3}"
    more: dict[str, object] = {
        "priority": dice.choice([None, 0, 10, 2_000_000_000]) if dice.random() < 0.3 else 0,
        "static": dice.random() < 0.05,
        "owner": dice.choice([None, Owner(kind="Job", name="j"), Owner(kind="Deployment", name=f"d-{number % 4}")])
        if dice.random() < 0.9
        else Owner(kind="DaemonSet", name="mps"),
        "annotations": dice.choice(_ANNOTATIONS) if dice.random() < 0.4 else {},
        "labels": {"tier": dice.choice("abc")},
    }
    return make_pod(uid, *(_container(dice, uid, name) for name in names), namespace=namespace, **more)


def _rewritten(dice: random.Random, pod: Pod) -> Pod:
    """What a tenant may change about a running pod."""
    return replace(pod, labels={"tier": dice.choice("abc")}, annotations=dice.choice(_ANNOTATIONS))


_ANNOTATIONS = (
    {"vram": "2Gi"},
    {"limit": "3Gi"},
    {"limit": "300", "main.limit": "4096"},
    {"main.vram": "2", "main.limit": "1", "limit": "none"},
    {"gpu-fraction": "0.1", "gpu-fraction-num-devices": "1"},
    {"gpu-fraction": "0.5", "for-container": "side"},
)
_CAPACITIES: tuple[dict[str, str], ...] = ({}, {}, {"nvidia.com/gpu": "4"}, {MEMORY: "800Gi", "t/share": "8"})
_PARTS: tuple[dict[str, str], ...] = (
    {"t/percent": "10"},
    {"t/ratio": "150"},
    {"t/share": "1"},
    {"t/core": "100", MEMORY: "1Gi"},
    {"t/cards": "200"},
    {"t/unset": "0", MEMORY: "1Gi"},
    {"t/wrong": "4096"},
    {"nvidia.com/mig-1g.10gb": "1"},
    {"nvidia.com/mig-1g.10gb.me": "1", "nvidia.com/mig-3g.40gb": "1"},
)


def _container(dice: random.Random, uid: str, name: str) -> Container:
    written = dice.choice(["1Gi", "2Gi", "512Mi", "900Gi", "-1", "many"])
    plain: list[dict[str, str]] = [{}, {MEMORY: written}, {MEMORY: written}, {"nvidia.com/gpumem": "2048"}]
    resources = dice.choice(_PARTS) if dice.random() < 0.3 else dice.choice(plain)
    count = {"nvidia.com/gpu": "1"} if dice.random() < 0.2 else {}
    kind = dice.choice([ContainerKind.MAIN] * 6 + [ContainerKind.SIDECAR, ContainerKind.INIT])
    running = dice.random() < 0.8
    asks = {**resources, **count}
    made = container(name, of=uid, kind=kind, running=running, resources=asks, privileged=dice.random() < 0.5)
    return replace(made, claims=("gpu",)) if dice.random() < 0.05 else made


def _process(dice: random.Random, pid: int, pods: tuple[Pod, ...]) -> Process:
    kind = dice.random()
    if kind < 0.1 or not pods:
        place = dice.choice([HOST, GONE, ZOMBIE, CONTRADICTORY, HOST] + ([UNREADABLE] if dice.random() < 0.1 else []))
        return process(pid, place=place, key=None if place is GONE else process(pid).key)
    owner = dice.choice(pods)
    holder = owner if kind > 0.15 else dice.choice(pods)
    name = dice.choice(holder.containers).name if kind > 0.2 else UNLISTED
    claim = owner.uid if kind > 0.12 else "nobody"
    place = Place(kind=PlaceKind.POD, pod=claim, container=container_id(f"{holder.uid}/{name}"))
    return process(pid, place=place, mps_server=dice.random() < 0.05, privileged=dice.random() < 0.5)


def _uses(dice: random.Random, process_: Process, cards: list[Gpu]) -> list[Use]:
    chosen = dice.sample(cards, min(len(cards), dice.choice([1, 1, 1, 2, 8])))
    mps = dice.choice([True, None]) if dice.random() < 0.1 else False
    return [use(process_.pid, _bytes(dice), card.index, mps=mps) for card in chosen]


def _darken(dice: random.Random, seen: Snapshot) -> Snapshot:
    """Remove what a driver sometimes does not report."""
    if dice.random() < 0.6:
        return seen
    if dice.random() < 0.1:
        return replace(seen, blind=True)
    if len(seen.gpus) > 1 and dice.random() < 0.2:
        return without_card(seen, dice.choice(seen.gpus))
    lost = dice.choice(seen.gpus)
    gpus = tuple(replace(g, listed=False, up=dice.random() < 0.5) if g is lost else g for g in seen.gpus)
    uses = tuple(replace(each, used=None) if each.gpu == lost.uuid else each for each in seen.uses)
    never = frozenset({lost.uuid}) if dice.random() < 0.5 else frozenset[str]()
    return replace(seen, gpus=gpus, uses=uses, unseen=never)


def without_card(seen: Snapshot, lost: Gpu) -> Snapshot:
    """What a daemon sees that started after a card had dropped out: the driver only counts it."""
    return replace(
        seen,
        gpus=tuple(each for each in seen.gpus if each is not lost),
        uses=tuple(each for each in seen.uses if each.gpu != lost.uuid),
        missing=frozenset({f"GPU at index {lost.index}"}),
    )


def _step(dice: random.Random) -> Step:
    above = dice.choice(["50%", "100%", "110%", f"+{Gi}", str(3 * Gi)])
    for_s, do = dice.choice([0.0, 0.0, 1.0, 3.0]), dice.choice(["warn", "kill", "kill", "evict"])
    return step(above, for_s, do, dice.choice(["process", "container", "pod"]))


def _rule(dice: random.Random, number: int) -> Rule:
    return rule(
        *(_step(dice) for _ in range(dice.randint(1, 3))),
        name=f"rule-{number}",
        match=_match(dice),
        account=dice.choice(["pod", "container"]),
        default=dice.choice([None, 0, Gi, 4 * Gi]),
        mode=dice.choice([None, None, None, "enforce", "observe"]),
        active=dice.choice([None, None, None, MORNING]),
    )


def _match(dice: random.Random) -> Match:
    """Mostly every pod; some by their label or controller, or by labels that may be unknown."""
    if dice.random() < 0.3:
        return Match(labels={"tier": dice.choice("abc")})
    kinds = {"owner_kinds": dice.choice([("Pod",), ("Job", "Deployment")])} if dice.random() < 0.2 else {}
    teams = {"namespace_labels": {"team": "a"}} if dice.random() < 0.1 else {}
    return Match(**kinds, **teams)  # type: ignore[arg-type]


def _policy(dice: random.Random) -> Policy:
    return policy(
        *(_rule(dice, number) for number in range(dice.randint(1, 3))),
        declarations=tuple(dice.sample(DECLARATIONS, dice.randint(1, 6))),
        allowance=dice.choice([Allowance(), policy().allowance]),
        safety=Safety(signal_mps_clients=dice.random() < 0.2),
        protect=Protect(
            namespaces=("ns-2",) if dice.random() < 0.3 else (),
            priority_namespaces=dice.choice([("*",), ("kube-system", "ns-1"), ()]),
        ),
    )
