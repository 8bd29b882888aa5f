"""Worlds made by hand: pods, GPUs and processes in a line each, for tests of the core."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from io import BytesIO

from watchdog.config.load import read_policy
from watchdog.core.assess import assess, hidden_pods
from watchdog.core.assessment import Assessment, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.eviction import why_spared_by_state
from watchdog.core.ledger import Ledger
from watchdog.core.model import (
    Claim,
    ClaimedDevice,
    Container,
    ContainerKind,
    Gpu,
    MpsSigns,
    Node,
    Now,
    Owner,
    Place,
    PlaceKind,
    Pod,
    PodList,
    Process,
    ProcessKey,
    Snapshot,
    Use,
)
from watchdog.core.plan import OpenCycle, Plan
from watchdog.core.policy import Allowance, Declaration, Do, Policy, Protect, Rule, Scope, Step, Threshold
from watchdog.core.rules import protection

Gi = 2**30
Mi = 2**20
BOOT = "11111111-2222-3333-4444-555555555555"
MEMORY = "veriff.com/gpu-memory"
VERIFF = Declaration(resource=MEMORY, unit=1)
NODE = Node(name="n1")
T0 = 1_800_000_000.0


def parse_policy(text: str, source: str = "policy.toml") -> Policy:
    """A policy from a text; `source` is the file's name in its problems."""
    return read_policy(BytesIO(text.encode("utf-8", "surrogatepass")), source)


def at(second: float) -> Now:
    """The moment this many seconds after the test began; the wall clock goes along."""
    return Now(boottime_s=1000.0 + second, wall_s=T0 + second, boot_id=BOOT)


def inherent_objection(pod: Pod) -> str | None:
    """Why a pod is not evicted, whatever the policy."""
    return protection(pod, Protect(), None, at(0)) or why_spared_by_state(pod)


def container_id(text: str) -> str:
    """A container ID of 64 hexadecimal digits for a text."""
    return text.encode().hex().ljust(64, "0")[:64]


def container(
    name: str = "main",
    declared: str | None = None,
    *,
    of: str = "a",
    kind: ContainerKind = ContainerKind.MAIN,
    resources: Mapping[str, str] | None = None,
    running: bool = True,
    privileged: bool = False,
) -> Container:
    """A container of the pod with UID `of`, declaring the Veriff resource where `declared` is given."""
    own = {MEMORY: declared} if declared is not None else {}
    ids = frozenset({container_id(f"{of}/{name}")})
    asks = {**own, **(resources or {})}
    return Container(name=name, kind=kind, ids=ids, running=running, resources=asks, privileged=privileged)


def pod(uid: str = "a", *containers: Container, namespace: str = "ns", **more: object) -> Pod:
    """A pod whose name is `pod-UID`; without containers it has one, `main`, that declares nothing."""
    entries = {used.partition("/")[0] for each in containers for used in each.claims}
    claims = {entry: Claim(name=entry) for entry in entries}
    named = containers or (container(of=uid),)
    made = Pod(namespace=namespace, name=f"pod-{uid}", uid=uid, containers=named, claims=claims)
    return replace(made, **more)  # type: ignore[arg-type]


def claimant(uid: str, *others: str, size: int | None = 4 * Gi) -> Pod:
    """A pod that has a share of this size (None: all of it) of card 0 by the claim `team`, as have these others."""
    share = "share-1" if size is not None else ""
    given = ClaimedDevice(request="gpu", name="gpu-0", uuid="GPU-0", memory=size, is_shared=bool(share), share=share)
    claim = Claim(name="team", devices=(given,), unknown="", shared_with=others)
    return pod(uid, replace(container("main", of=uid), claims=("gpu",)), claims={"gpu": claim})


def gpu(number: int = 0, total: int = 80 * Gi, **more: object) -> Gpu:
    """A card named `GPU-number`."""
    made = Gpu(uuid=f"GPU-{number}", index=number, name="Stub", total=total, used=0, reserved=0)
    return replace(made, **more)  # type: ignore[arg-type]


def process(
    pid: int, where: str | None = "a/main", *, mps_server: bool = False, privileged: bool = False, **more: object
) -> Process:
    """A process in a container (`uid/name`), or on the host (None); its start time is ten times its PID."""
    place = Place(kind=PlaceKind.HOST)
    if where is not None:
        place = Place(kind=PlaceKind.POD, pod=where.split("/")[0], container=container_id(where))
    signs = MpsSigns(server=True, privileged=privileged) if mps_server else None
    made = Process(pid=pid, key=ProcessKey(pid=pid, start_ticks=pid * 10), place=place, name="python3", mps=signs)
    return replace(made, **more)  # type: ignore[arg-type]


def use(pid: int, used: int | None, number: int = 0, *, mps: bool | None = False) -> Use:
    """What a process uses on card `number`."""
    return Use(gpu=f"GPU-{number}", pid=pid, used=used, client=mps)


def snapshot(
    uses: Iterable[Use] = (),
    processes: Iterable[Process] = (),
    gpus: Iterable[Gpu] = (gpu(),),
    second: float = 0.0,
    **more: object,
) -> Snapshot:
    """A snapshot; processes that are not given stand in container `a/main`."""
    uses = tuple(uses)
    known = {each.pid: each for each in processes}
    every = {each.pid: known.get(each.pid, process(each.pid)) for each in uses}
    made = Snapshot(at=at(second), driver="550.54", interface="NVML", gpus=tuple(gpus), uses=uses, processes=every)
    return replace(made, **more)  # type: ignore[arg-type]


def step(above: str = "100%", for_s: float = 0.0, do: str = "kill", scope: Scope = "container", **more: object) -> Step:
    """A step; `above` is a percentage, `+bytes` or bytes."""
    if above.endswith("%"):
        threshold = Threshold(share=Fraction(above[:-1]) / 100)
    elif above.startswith("+"):
        threshold = Threshold(plus=int(above))
    else:
        threshold = Threshold(amount=int(above))
    return replace(Step(above=threshold, for_s=for_s, do=Do(do), scope=scope), **more)  # type: ignore[arg-type]


def rule(*steps: Step, **more: object) -> Rule:
    """A rule `all` for every pod."""
    return replace(Rule(name="all", steps=steps), **more)  # type: ignore[arg-type]


def policy(*rules: Rule, **more: object) -> Policy:
    """A policy without allowance that reads the Veriff resource, with the given rules or one that kills at once."""
    made = Policy(
        sha256="0" * 64,
        source="policy.toml",
        mode="enforce",
        declarations=(VERIFF,),
        allowance=Allowance(per_context=0, max_contexts=0, percent=Fraction(0)),
        rules=rules or (rule(step()),),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def inputs(under: Policy | None = None, pods: Iterable[Pod] = (), **more: object) -> Inputs:
    """What a cycle takes as given: a policy, the node and its pods; more by name."""
    made = Inputs(policy=under or policy(), node=NODE, pods=PodList(pods=tuple(pods)))
    return replace(made, **more)  # type: ignore[arg-type]


def assessed(
    seen: Snapshot,
    pods: Iterable[Pod],
    under: Policy,
    node: Node = NODE,
    own: Place | None = None,
    overdue: Iterable[str] = (),
    *,
    listed: Mapping[str, frozenset[str]] | None = None,
) -> tuple[Assessment, ...]:
    """Attribute and assess in one go; `overdue` are containers (`uid/name`) that the list should have by now.

    `listed` are the resources that the node listed in pods' lives.
    """
    pods = tuple(pods)
    late = frozenset((each.split("/")[0], container_id(each)) for each in overdue)
    given = inputs(under, pods, node=node, own=own, overdue=late, listed=listed or {})
    return assess(attribute(seen, pods), seen, given)


def planned(
    seen: Snapshot,
    pods: Iterable[Pod],
    under: Policy,
    ledger: Ledger | None = None,
    given: Inputs | None = None,
    overdue: Iterable[str] = (),
) -> Plan:
    """From a snapshot to its plan; of `given` only counts what is not named here."""
    known, pods = ledger if ledger is not None else Ledger(), tuple(pods)
    given = replace(given or inputs(), policy=under, pods=PodList(pods=pods), hidden=hidden_pods(seen, pods))
    return decide(assessed(seen, pods, under, overdue=overdue), known, seen.at, given)


def opened(seen: Snapshot, given: Inputs, ledger: Ledger) -> OpenCycle:
    """A cycle up to its plan."""
    given = replace(given, hidden=hidden_pods(seen, given.pods.pods))
    attribution = attribute(seen, given.pods.pods)
    assessments = assess(attribution, seen, given)
    plan = decide(assessments, ledger, seen.at, given)
    return OpenCycle(
        inputs=given, snapshot=seen, attribution=attribution, assessments=assessments, plan=plan, scan_s=0.0
    )


def owner(kind: str = "ReplicaSet", name: str = "web") -> Owner:
    """A controller."""
    return Owner(kind=kind, name=name)
