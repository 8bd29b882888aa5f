"""Every kind of Event and of note, each made by what causes it: for reading them as a tenant does."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from tests.report.build import Story, entry, killed, outcome, policy, quiet, trainer, trainer_node, withheld
from tests.worlds import MEMORY, VERIFF, Gi, Mi, container, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import Brake
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.model import DRAIN, ContainerKind, Pod, ProcessKey, Snapshot
from watchdog.core.plan import CycleReport, PlanEntry, Result, Sent
from watchdog.core.policy import NO_ALLOWANCE, Declaration, LimitAnnotation, Policy, Scope
from watchdog.core.transfers import FoundTransfer, Transfer
from watchdog.core.utilization import Utilization
from watchdog.kube.event_objects import PodEvent
from watchdog.report.changes import Changes
from watchdog.report.events import pod_events

EVICT = rule(step("110%", 10, "evict", grace_s=30.0), name="batch")
# The API server's own words for it, in its own grammar, and the remedy.
BUDGET = (
    "the disruption budget trainer-pdb needs 1 healthy pods and has 1 currently; it succeeds once more pods are "
    "healthy or the budget is relaxed"
)
OBSERVING = policy(mode="observe", events_in_observe=True)


def reported(*reports: CycleReport) -> tuple[PodEvent, ...]:
    """The Events of these cycles, one after the other."""
    changes = Changes()
    return tuple(pod_event for report in reports for pod_event in pod_events(changes.since(report), report))


@cache
def warned() -> PlanEntry:
    """The trainer's warning when it is due, after 5 s of 12.4Gi."""
    return entry(Story().run(12.4, 31, 26), "warn")


@cache
def evicting() -> PlanEntry:
    """The trainer's eviction when it is due, after 10 s of 12.4Gi."""
    return entry(Story(under=policy(EVICT)).run(12.4, 31, 21), "evict")


@cache
def killing() -> PlanEntry:
    """The trainer's kill when it is due, after 10 s of 12.4Gi."""
    return entry(Story().run(12.4, 31, 21))


def holding(*entries: PlanEntry, under: Policy | None = None, **more: object) -> CycleReport:
    """A report whose plan has just these entries."""
    base = quiet(31, policy=under or policy(), **more)
    return replace(base, plan=replace(base.plan, entries=entries))


def misdeclaring(text: str = "900Gi", **more: Any) -> CycleReport:
    """A report in which the trainer declares what no card has."""
    pod = trainer(containers=(container("main", None, of="u1", resources={MEMORY: text}),))
    return Story(under=policy(**more), pods=(pod,)).see(trainer_node(4.0, 31))


def transferring(**more: object) -> CycleReport:
    """A report in which the trainer may have been charged what a pod used that has left the list."""
    moved = Transfer(
        gpu="GPU-0",
        key=process(101).key or ProcessKey(pid=101, start_ticks=0),
        unknown=36 * Gi,
        used=41 * Gi,
        target="a/trainer",
        source="b/server",
    )
    server = trainer(namespace="b", name="server", uid="u2", owner=None)
    return quiet(31, transfers=(FoundTransfer(transfer=moved, target=trainer(), sources=(server,)),), **more)


def idling(**more: object) -> CycleReport:
    """A report in which the trainer has computed nothing for two hours."""
    account = AccountKey(uid="u1")
    return quiet(31, utilization=Utilization(idle_s={account: 7205.0}, found_idle=frozenset({account})), **more)


@cache
def occurrences() -> dict[str, PodEvent]:
    """The occurrence of each reason that docs/events.md shows."""
    blocked = outcome(evicting(), Result.BLOCKED, reason=BUDGET)
    held = replace(killing(), withheld_by=Brake.OWNER_BACKOFF, taken=False, is_new=True, releases_in_s=250.0)
    would = outcome(killing(), Result.OBSERVED)
    observed = quiet(31, policy=OBSERVING, enforcing=False, outcomes=(would,))
    found = reported(
        quiet(31, outcomes=(outcome(warned()),)),
        quiet(32, began=(killed(entry=killing()),)),
        quiet(33, outcomes=(killed(entry=killing(), release_s=12.4),)),
        quiet(34, began=(outcome(evicting(), number=2),)),
        quiet(35, outcomes=(blocked,)),
        holding(held),
        misdeclaring(),
    )
    found += (*reported(transferring())[:1], *reported(idling()))
    return {each.reason: each for each in found} | {"observed": reported(observed)[0]}


GPUMEM = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
PERCENT = Declaration(resource="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
FRACTION = Declaration(annotation="gpu-fraction", unit="fraction", per="gpu")
SHARE = Declaration(resource="nvidia.com/gpu.shared", unit="share", shares=4)
OF_CONTAINER = Declaration(annotation="nvidia.com/container.{container}.gpu-memory.limit", unit=1)
OF_LABEL = Declaration(label="sharedgpu/gpu_mem", unit=1)
BURST = Declaration(resource="a.b/memory", unit=1, limits=(LimitAnnotation(key="a.b/limit"),))
MIG = Declaration(resource="nvidia.com/mig-*", unit="mig")
PATTERN = Declaration(resource="example.com/*-memory", unit=1)

EVICT_AT_ONCE = rule(step("110%", 0, "evict", grace_s=30.0), name="batch")
KINDS = {
    "amount": (VERIFF, "8Gi"),
    "number of a unit, on each GPU": (GPUMEM, "8192"),
    "percentage": (PERCENT, "20"),
    "fraction": (FRACTION, "0.2"),
    "share": (SHARE, "1"),
    "annotation": (OF_CONTAINER, "8Gi"),
    "label": (OF_LABEL, "8Gi"),
    "limit above the request": (BURST, "8Gi"),
}


def declaring(declaration: Declaration, number: str) -> Pod:
    """Pod a/trainer, of whose containers `main` declares this number."""
    key = declaration.key.replace("{container}", "main").replace("*", "1g.10gb")
    made = trainer(containers=(container("main", of="u1"), container("side", of="u1")))
    if declaration.kind != "resource":
        where = "annotations" if declaration.kind == "annotation" else "labels"
        return replace(made, **{where: {key: number}})  # type: ignore[arg-type]
    first = container("main", of="u1", resources={key: number})
    return replace(made, containers=(first, container("side", of="u1")))


def on_cards(used: float, *more: tuple[int, str, float], cards: int = 2) -> Snapshot:
    """What container main uses on the first of the node's cards of 80Gi, and others (PID, container, GiB)."""
    uses = [use(101, int(used * Gi)), *(use(pid, int(amount * Gi)) for pid, _, amount in more)]
    ours = [process(101, "u1/main"), *(process(pid, f"u1/{name}") for pid, name, _ in more)]
    return snapshot([each for each in uses if each.used], ours, [gpu(n) for n in range(cards)], 31)


def due(under: Policy, holder: Pod, seen: Snapshot) -> tuple[PlanEntry, CycleReport]:
    """The first step that is due of this pod on this node, and the report of that cycle."""
    report = Story(under=under, pods=(holder,)).see(seen)
    return report.plan.entries[0], report


def kill_of(under: Policy, holder: Pod, seen: Snapshot) -> PodEvent:
    """The Event at the first signal."""
    entry, report = due(under, holder, seen)
    return reported(replace(report, began=(killed(entry=entry),)))[0]


def draining(under: Policy, holder: Pod) -> PodEvent:
    """The Event when the first MPS client is drained, before any signal."""
    entry, report = due(under, holder, on_cards(12.4))
    (key,) = entry.targets
    client = Hazard(role=HazardRole.CLIENT, container=entry.victim, key=key)
    entry = replace(entry, assessment=replace(entry.assessment, to_drain=(client,)))
    sent = (Sent(signal=DRAIN, keys=frozenset({key}), after_s=0.0),)
    return reported(replace(report, began=(killed(entry=entry, sent=sent, signalled=()),)))[0]


def by(declaration: Declaration, number: str, used: float = 30.0, **more: Any) -> PodEvent:
    """A kill in a pod that declares in this way; there is no allowance, so that the numbers can be followed."""
    under = policy(rule(step("110%"), name="r"), declarations=(declaration,), allowance=NO_ALLOWANCE, **more)
    return kill_of(under, declaring(declaration, number), on_cards(used))


def table() -> Iterator[tuple[str, PodEvent]]:
    """A name for each kind of note, and the note."""
    for name, (declaration, number) in KINDS.items():
        yield f"kill, declared: {name}", by(declaration, number)
    instance = gpu(0, 10 * Gi, uuid="GPU-0", parent="GPU-9", gi=1, ci=0, profile="1g.10gb")
    under = policy(rule(step("110%"), name="r"), declarations=(MIG,), allowance=NO_ALLOWANCE)
    yield "kill, declared: MIG instance", kill_of(under, declaring(MIG, "1"), replace(on_cards(12.0), gpus=(instance,)))
    yield from _defaults()
    yield from _containers()
    yield from _kills()
    yield from _actions()
    for brake in Brake:
        held = withheld(brake, releases_in_s=250.0)
        held = replace(held, assessment=replace(held.assessment, behind_pod="a/other"))
        yield f"held back: {brake.value}", reported(holding(held))[0]
    yield from _wrong()
    yield "memory changed hands", reported(transferring())[0]


def _defaults() -> Iterator[tuple[str, PodEvent]]:
    one = trainer(containers=(container("main", of="u1"),))
    two = trainer(containers=(container("main", of="u1"), container("side", of="u1")))
    for name, default, declarations, holder in (
        ("default", 4 * Gi, (VERIFF,), one),
        ("default, several containers", 4 * Gi, (VERIFF,), two),
        ("default, number of a unit", 4 * Gi, (GPUMEM,), one),
        ("default, percentage", 4 * Gi, (PERCENT,), one),
        ("default, annotation", 4 * Gi, (OF_CONTAINER,), one),
        ("default, only a pattern", 4 * Gi, (PATTERN,), one),
        ("default, nothing to declare by", 4 * Gi, (), one),
        ("forbidden", 0, (VERIFF,), one),
        ("forbidden, nothing to declare by", 0, (), one),
    ):
        under = policy(rule(step("110%"), name="r", default=default), declarations=declarations)
        yield f"kill, {name}", kill_of(under, holder, on_cards(12.4))


def _containers() -> Iterator[tuple[str, PodEvent]]:
    both = trainer(containers=(container("main", "8Gi", of="u1"), container("side", "2Gi", of="u1")))
    half = trainer(containers=(container("main", "8Gi", of="u1"), container("side", of="u1")))
    under = policy(rule(step("110%"), name="r"), allowance=NO_ALLOWANCE)
    each = policy(rule(step("110%"), name="r", account="container"), allowance=NO_ALLOWANCE)
    yield "kill, two that declare", kill_of(under, both, on_cards(6.0, (102, "side", 9.0)))
    yield "kill, one declares and the other uses", kill_of(under, half, on_cards(3.0, (102, "side", 9.0)))
    yield "kill, each container by itself", kill_of(each, both, on_cards(6.0, (102, "side", 9.0)))
    kind = ContainerKind.EPHEMERAL
    debugged = trainer(containers=(container("main", "8Gi", of="u1"), container("debug", of="u1", kind=kind)))
    yield "kill, an ephemeral container", kill_of(under, debugged, on_cards(3.0, (102, "debug", 9.0)))


def _kills() -> Iterator[tuple[str, PodEvent]]:
    holder = trainer()
    scopes: tuple[Scope, ...] = ("process", "container", "pod")
    for scope in scopes:
        for grace in (10.0, 0.0):
            under = policy(rule(step("110%", scope=scope, grace_s=grace), name="r"))
            yield f"kill, scope {scope}, grace {grace:g}s", kill_of(under, holder, on_cards(12.4))
    yield "kill, an MPS client", draining(policy(rule(step("110%"), name="r")), holder)
    yield "kill, nobody to ask", kill_of(policy(rule(step("110%"), name="r"), contact=""), holder, on_cards(12.4))
    pressing = policy(rule(step("100%", under_pressure=True), name="r"), declarations=(BURST,))
    bursting = replace(declaring(BURST, "8Gi"), annotations={"a.b/limit": "60Gi"})
    yield "kill under pressure", kill_of(pressing, bursting, replace(on_cards(12.4), gpus=(gpu(0, used=79 * Gi),)))
    for name, ended in (
        ("released", killed(release_s=12.4)),
        ("not released in time", killed(reason="the driver still lists its memory after release_timeout")),
        ("interrupted", killed(result=Result.INTERRUPTED, reason="the watchdog was stopped in the grace period")),
        ("failed", killed(result=Result.FAILED, reason="3 processes did not end after SIGKILL")),
    ):
        yield f"the end of a kill: {name}", reported(quiet(31, began=(killed(),)), quiet(44, outcomes=(ended,)))[1]
    would = quiet(31, policy=OBSERVING, enforcing=False, outcomes=(outcome(result=Result.OBSERVED),))
    yield "observed", reported(would)[0]


def _actions() -> Iterator[tuple[str, PodEvent]]:
    for name, used, steps in (
        ("warning, then a kill", 12.4, (step("90%", 0, "warn"), step("150%", 60))),
        ("warning, nothing more", 12.4, (step("100%", 0, "warn"),)),
        ("warning below what is allowed", 6.0, (step("50%", 0, "warn"), step("200%", 60))),
    ):
        entry, report = due(policy(rule(*steps, name="r")), trainer(), on_cards(used))
        yield name, reported(replace(report, outcomes=(outcome(entry),)))[0]
    for name, holder in (("eviction", trainer()), ("eviction of a pod that nothing owns", trainer(owner=None))):
        entry, report = due(policy(EVICT_AT_ONCE), holder, on_cards(12.4))
        yield name, reported(replace(report, began=(outcome(entry, number=1),)))[0]
    entry, report = due(policy(EVICT_AT_ONCE), trainer(), on_cards(12.4))
    for result, reason in (
        (Result.BLOCKED, BUDGET),
        (Result.FAILED, 'the API server refuses it: pods "trainer" is forbidden'),
    ):
        yield (
            f"eviction {result.value}",
            reported(replace(report, outcomes=(outcome(entry, result, reason=reason),)))[0],
        )


def _wrong() -> Iterator[tuple[str, PodEvent]]:
    yield "misdeclared", reported(misdeclaring())[0]
    yield "misdeclared, no number", reported(misdeclaring("8 GB"))[0]
    for name, (declaration, number) in {
        "number of a unit": (GPUMEM, "8589934592"),
        "percentage": (PERCENT, "8192"),
        "fraction": (FRACTION, "8"),
        "share": (SHARE, "90"),
    }.items():
        under = policy(rule(step("110%"), name="r"), declarations=(declaration,))
        report = Story(under=under, pods=(declaring(declaration, number),)).see(on_cards(4.0))
        yield f"misdeclared: {name}", reported(report)[0]
    wrong = replace(GPUMEM, unit=1, wrong_unit="it is smaller")
    report = Story(under=policy(declarations=(wrong,)), pods=(declaring(wrong, "6144"),)).see(on_cards(4.0))
    yield "misdeclared: by the policy", reported(report)[0]
    under = policy(rule(step("110%"), name="r", default=4 * Gi))
    report = Story(under=under, pods=(declaring(VERIFF, "900Gi"),)).see(on_cards(3.0))
    yield "misdeclared, the default holds", reported(report)[0]
