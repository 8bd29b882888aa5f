"""Alerts about a pod that uses, or declares, what it should not."""

from dataclasses import replace
from functools import partial

from tests.monitoring.rules.scenario import A_LITTLE, ALLOWED, EXEC, firing, runs, scenario, under_maintenance
from tests.monitoring.rules.world import Daemon, World
from tests.report.build import NOTEBOOKS, policy, trainer, trainer_node
from tests.worlds import VERIFF, Gi, claimant, container, gpu, process, snapshot, use
from watchdog.core.assessment import AccountKey
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Pod
from watchdog.core.policy import Declaration, Idle
from watchdog.core.utilization import Utilization

SILENT = trainer(containers=(container("main", of="u1"),))
OWN = policy(replace(NOTEBOOKS, name='each "own" \\', account="container"))
SHARES = Declaration(resource="nvidia.com/gpu.shared", unit="share", shares="label:nvidia.com/gpu.replicas")
TRAINER = {"namespace": "a", "pod": "trainer", "node": "n1"}
OVER = firing(
    {**TRAINER, "rule": "notebooks", "severity": "warning"},
    "Pod a/trainer uses more GPU memory than it is allowed",
    "Pod a/trainer on node n1 has been above its GPU memory limit for more than 5 minutes. It uses "
    '12.4GiB. Its limit is 10.16GiB: 8GiB declared, plus the allowance. Its rule is "notebooks". '
    "Other pods on the GPU may run out of memory because of it. What happens next, and what withholds it: "
    f"{EXEC}gpu-watchdog explain a/trainer",
)


def _use(daemon: Daemon, minutes: float, used: float) -> World:
    return daemon.sees(minutes, partial(trainer_node, used))


@scenario("GPUMemoryOverLimit")
def over_limit(world: World, daemon: Daemon) -> None:
    """What is allowed may be used up; a byte more for five minutes may not."""
    _use(daemon, 10, ALLOWED / Gi).expect("below")
    _use(daemon, 15, (ALLOWED + 1) / Gi).expect("waits")
    _use(daemon, 15.5, 12.4).expect("fires", OVER)
    daemon.restart(17).expect("restart", OVER)
    _use(daemon, 17.5, 12.4).expect("restart", OVER)
    _use(daemon, 18, ALLOWED / Gi).expect("resolves")


@scenario("GPUMemoryOverLimit")
def over_limit_in_a_restart(world: World, daemon: Daemon) -> None:
    """A daemon that is started again while the five minutes run does not begin them again; nor does a new pod of it."""
    _use(daemon, 1, 4.0)
    _use(daemon, 3, 12.4)
    daemon.restart(4)
    daemon.begin_again(watchdog_pod="gpu-watchdog-2")
    _use(daemon, 6, 12.4).expect("waits")
    _use(daemon, 6.5, 12.4).expect("restart", OVER.but("gpu-watchdog-n1", "gpu-watchdog-2"))


@scenario("GPUMemoryOverLimit")
def over_limit_and_gone(world: World, daemon: Daemon) -> None:
    """A pod that goes takes its alert along, a bridge's length later."""
    _use(daemon, 6, 12.4).expect("fires", OVER)
    daemon.story.pods = ()
    _use(daemon, 10, 0.0).expect("resolves")


@scenario("GPUMemoryOverLimit", under=OWN, pods=(trainer(containers=(container("main", "1Gi", of="u1"),)),))
def over_limit_of_a_container(world: World, daemon: Daemon) -> None:
    """The alert names the container, also of a rule whose name would end a string; without a cluster no watchdog."""
    del daemon.target["watchdog_pod"], daemon.target["watchdog_namespace"]
    daemon.sees(6, lambda second: runs(second, daemon.story.pods[0], 2 * Gi))
    reported = firing(
        {**TRAINER, "container": "main", "rule": 'each "own" \\', "severity": "warning"},
        OVER.summary,
        "Container main of pod a/trainer on node n1 has been above its GPU memory limit for more than 5 minutes. It "
        'uses 2GiB. Its limit is 1.52GiB: 1GiB declared, plus the allowance. Its rule is "each "own" \\". '
        "Other pods on the GPU may run out of memory because of it. What happens next, and what withholds it: "
        "gpu-watchdog explain a/trainer",
    )
    world.expect("fires", reported)


@scenario("GPUMemoryOverLimit")
def over_limit_by_more_than_is_known(world: World, daemon: Daemon) -> None:
    """A process whose use is not known adds to what is known to be too much: no sum is given."""
    uses, processes = [use(101, 20 * Gi), use(102, None)], [process(pid, "u1/main") for pid in (101, 102)]
    daemon.sees(6, lambda second: snapshot(uses, processes, second=second))
    world.expect("fires", OVER.but("It uses 12.4GiB. Its limit is 10.16GiB", "Its limit is 9.16GiB"))


CLAIMANTS = (claimant("a", "ns/pod-b"), claimant("b", "ns/pod-a"))


@scenario("GPUMemoryOverLimit", under=policy(NOTEBOOKS, schemes=("dra",)), pods=CLAIMANTS)
def over_limit_together(world: World, daemon: Daemon) -> None:
    """Of pods that are above their claim only together, each alert says what the others use."""
    uses, processes = [use(101, 3 * Gi), use(102, 4 * Gi)], [process(101, "a/main"), process(102, "b/main")]
    daemon.sees(6, lambda second: snapshot(uses, processes, second=second))
    reported = [
        firing(
            {"namespace": "ns", "pod": pod, "node": "n1", "gpu": "GPU-0", "rule": "notebooks", "severity": "warning"},
            f"Pod ns/{pod} uses more GPU memory than it is allowed",
            f"Pod ns/{pod} on node n1, on GPU GPU-0, has been above its GPU memory limit for more than 5 minutes. It "
            f"uses {own}GiB. Others use {beside}GiB of its ResourceClaim besides, which counts with that. Its limit is "
            '4.58GiB: 4GiB declared, plus the allowance. Its rule is "notebooks". Other pods on the GPU may run out of '
            f"memory because of it. What happens next, and what withholds it: {EXEC}gpu-watchdog explain ns/{pod}",
        )
        for pod, own, beside in (("pod-a", "3", "3.42"), ("pod-b", "4", "2.42"))
    ]
    world.expect("fires", *reported)


UNDECLARED = firing(
    {**TRAINER, "severity": "info"},
    "Pod a/trainer uses GPU memory but declares none",
    "Pod a/trainer on node n1 uses 3GiB of GPU memory without a valid declaration, and has done so for half an "
    "hour. Nothing limits it, and the other pods on the GPU are not protected from it. Its owner should declare what "
    f"it needs, or its rule should have a default. How to declare it: {EXEC}gpu-watchdog explain a/trainer",
)


HELD = policy(NOTEBOOKS, idle=Idle(after_s=600.0))
IDLE = firing(
    {**TRAINER, "rule": "notebooks", "severity": "info"},
    "Pod a/trainer holds GPU memory and computes nothing",
    "Pod a/trainer on node n1 holds 4GiB of GPU memory and has computed nothing for 10m 0s. No action is taken on it. "
    "If it is not needed any more, its owner should end it, so that others can use the memory. What it is and who owns "
    f"it: {EXEC}gpu-watchdog explain a/trainer",
)


def _hold(daemon: Daemon, minutes: float, idle_s: float | None) -> World:
    """It holds 4GiB, and has computed nothing for so long; None: that is unknown."""
    idle = {} if idle_s is None else {AccountKey(uid="u1"): idle_s}
    return daemon.sees(minutes, partial(trainer_node, 4.0), utilization=Utilization(idle_s=idle))


@scenario("GPUMemoryIdle", under=HELD)
def idle(world: World, daemon: Daemon) -> None:
    """As soon as it is so for as long as the policy says, until it computes; a restart does not end it."""
    _hold(daemon, 2, 599.0).expect("below")
    _hold(daemon, 2.5, 600.0).expect("fires", IDLE)
    daemon.restart(4).expect("restart", IDLE)
    _hold(daemon, 4.5, 600.0).expect("restart", IDLE)
    _hold(daemon, 5, 0.0).expect("resolves")


@scenario("GPUMemoryIdle", under=HELD)
def idle_unknown(world: World, daemon: Daemon) -> None:
    """Where it is not known any more whether it computes, the alert ends a bridge's length later."""
    _hold(daemon, 2, 700.0).expect("fires", IDLE.but("10m 0s", "11m 40s"))
    _hold(daemon, 6, None).expect("resolves")


@scenario("GPUMemoryIdle", under=policy(NOTEBOOKS, idle=Idle(after_s=0.0)))
def idle_for_as_long_as_it_likes(world: World, daemon: Daemon) -> None:
    """A policy with `after = "0s"` reports nobody."""
    _hold(daemon, 2, 86400.0).expect("below")


def _run(daemon: Daemon, minutes: float, pod: Pod, used: int) -> World:
    daemon.story.pods = (pod,)
    return daemon.sees(minutes, lambda second: runs(second, pod, used))


@scenario("GPUMemoryUndeclared")
def undeclared(world: World, daemon: Daemon) -> None:
    """Half an hour of use without a declaration; declaring ends it, and so does ending."""
    _run(daemon, 2, trainer(), 3 * Gi).expect("below")
    _run(daemon, 20, SILENT, 3 * Gi)
    daemon.restart(21)
    _run(daemon, 32, SILENT, 3 * Gi).expect("waits")
    _run(daemon, 32.5, SILENT, 3 * Gi).expect("fires", UNDECLARED)
    daemon.restart(34).expect("restart", UNDECLARED)
    # The last verdict is bridged for 3 minutes.
    _run(daemon, 37.5, trainer(), 3 * Gi).expect("resolves")


@scenario("GPUMemoryUndeclared", pods=(SILENT,))
def undeclared_and_not_measured(world: World, daemon: Daemon) -> None:
    """Where the driver does not report what it uses, no amount is given."""
    daemon.sees(31, lambda second: snapshot([use(101, None)], [process(101, "u1/main")], second=second))
    world.expect("fires", UNDECLARED.but("uses 3GiB of GPU memory", "uses GPU memory"))


@scenario("GPUMemoryUndeclared", under=policy(replace(NOTEBOOKS, account="container")))
def undeclared_beside_it(world: World, daemon: Daemon) -> None:
    """Of two containers the one that declares nothing counts; a pod with one that the list lacks is not blamed."""
    good = trainer(name="good", uid="u2", containers=(container("main", "8Gi", of="u2"),))
    half = trainer(containers=(container("main", "8Gi", of="u1"), container("side", of="u1")))
    daemon.story.pods = (half, good)
    owners = {101: "u1/main", 102: "u1/side", 103: "u2/main", 104: "u2/young"}
    uses, processes = [use(pid, 3 * Gi) for pid in owners], [process(pid, where) for pid, where in owners.items()]
    daemon.sees(31, lambda second: snapshot(uses, processes, second=second)).expect("fires", UNDECLARED)


@scenario("GPUMemoryUndeclared", pods=(SILENT,))
def undeclared_without_use(world: World, daemon: Daemon) -> None:
    """A pod that is in the list, declares nothing and uses nothing does not fire."""
    daemon.sees(40, lambda second: runs(second, daemon.story.pods[0], 0, gpu())).expect("below")


MISDECLARED = firing(
    {**TRAINER, "severity": "warning"},
    "Pod a/trainer has an invalid GPU memory declaration",
    "Pod a/trainer on node n1 declares an impossible amount of GPU memory: more than the GPUs have, negative, or not a "
    "number. The declaration is ignored and no action is taken on the pod, so nothing limits it. What is wrong: "
    f"{EXEC}gpu-watchdog explain a/trainer",
)


@scenario("GPUMemoryMisdeclared", under=policy(declarations=(VERIFF, Declaration(annotation="vram", unit=1))))
def misdeclared(world: World, daemon: Daemon) -> None:
    """As much as the card has can be true, a MiB more in an annotation can't."""
    card = 80 * Gi
    _run(daemon, 11, replace(SILENT, annotations={"vram": str(card)}), 3 * Gi).expect("below")
    wrong = replace(SILENT, annotations={"vram": str(card + A_LITTLE)})
    _run(daemon, 14, wrong, 3 * Gi)
    daemon.restart(15)
    _run(daemon, 21, wrong, 3 * Gi).expect("waits")
    _run(daemon, 21.5, wrong, 3 * Gi).expect("fires", MISDECLARED)
    daemon.restart(22.5).expect("restart", MISDECLARED)
    _run(daemon, 26, trainer(), 3 * Gi).expect("resolves")


UNKNOWN = firing(
    {**TRAINER, "severity": "warning"},
    "Whether pod a/trainer is within its GPU memory limit has been unknown for 15 minutes",
    "For 15 minutes the watchdog has been unable to tell whether pod a/trainer on node n1 is within its GPU memory "
    "limit. Its use or its limit is unknown: a GPU does not respond, a node label is missing, the pod list is behind, "
    "or maintenance of the GPUs does not end. Until it is known, no action is taken on the pod, so nothing limits it. "
    "What is missing: "
    f"{EXEC}gpu-watchdog explain a/trainer",
)


@scenario("GPUMemoryUnknown", under=policy(declarations=(SHARES,)))
def unknown(world: World, daemon: Daemon) -> None:
    """A share of unknown size for a quarter of an hour; the labels end it, and the pod's end does."""
    sharing = trainer(containers=(container("main", of="u1", resources={SHARES.key: "1"}),))
    known = Node(name="n1", labels={"nvidia.com/gpu.replicas": "4"})
    daemon.story.node = known
    _run(daemon, 16, sharing, 3 * Gi).expect("below")
    daemon.story.node = Node(name="n1")
    _run(daemon, 20, sharing, 3 * Gi)
    daemon.restart(21)
    _run(daemon, 31, sharing, 3 * Gi).expect("waits")
    _run(daemon, 31.5, sharing, 3 * Gi).expect("fires", UNKNOWN)
    daemon.restart(33).expect("restart", UNKNOWN)
    daemon.story.node = known
    _run(daemon, 36.5, sharing, 3 * Gi).expect("resolves")


@scenario("GPUMemoryUnknown")
def unknown_under_maintenance(world: World, daemon: Daemon) -> None:
    """While the driver is released for maintenance nothing is known of any pod, and no pod fires."""
    gap = Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem("under maintenance"))
    uses, processes = [use(101, None)], [process(101, "u1/main")]
    daemon.sees(20, lambda second: snapshot(uses, processes, second=second, blind=True, gaps=(gap,))).expect("below")


@scenario("GPUMemoryUnknown")
def unknown_under_maintenance_that_does_not_end(world: World, daemon: Daemon) -> None:
    """Maintenance silences it for an hour only."""
    gap = Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem("under maintenance"))
    uses, processes = [use(101, None)], [process(101, "u1/main")]

    def under(minutes: float) -> World:
        blind = partial(snapshot, uses, processes, blind=True, gaps=(gap,))
        return daemon.sees(minutes, lambda second: blind(second=second), **under_maintenance(0))

    under(75).expect("waits")
    under(75.5).expect("fires", UNKNOWN)


UNLISTED = firing(
    {**TRAINER, "severity": "warning"},
    "Pod a/trainer uses GPU memory in a container that is missing from its status",
    "Processes of pod a/trainer on node n1 have used 3GiB of GPU memory for minutes, in a container that is not in the "
    "pod list. That memory counts toward the pod's use, but the container itself is never killed: the watchdog kills "
    "nothing that Kubernetes does not know about. Either the pod runs in a gVisor sandbox, or the kubelet does not "
    "report the pod's status, or someone starts containers by hand (see crictl ps on the node). Which container: "
    f"{EXEC}gpu-watchdog explain a/trainer",
)


def _new(daemon: Daemon, minutes: float, *gaps: Gap) -> World:
    uses = [use(101, Gi), use(102, 3 * Gi)]
    processes = [process(101, "u1/main"), process(102, "u1/new")]
    return daemon.sees(minutes, lambda second: snapshot(uses, processes, second=second, gaps=gaps))


@scenario("GPUMemoryContainerUnlisted")
def container_unlisted(world: World, daemon: Daemon) -> None:
    """A container that is only new does not fire; one that the list should have by now does, until it has it."""
    gap = Gap(reason=GapReason.CONTAINER, what="container 1 of pod a/trainer", problem=Problem("it is not in the list"))
    _new(daemon, 10).expect("below")
    _new(daemon, 15, gap).expect("waits")
    _new(daemon, 15.5, gap).expect("fires", UNLISTED)
    daemon.restart(17).expect("restart", UNLISTED)
    _new(daemon, 18, gap)
    _run(daemon, 22, trainer(), 3 * Gi).expect("resolves")


HAS_LEFT = firing(
    {"node": "n1", "severity": "warning"},
    "A pod that is gone from the API server still uses GPU memory of node n1",
    "For 15 minutes, processes on node n1 have used GPU memory of a pod that is gone from the API server. It was "
    "deleted by force, or its kubelet does not end its containers. Kubernetes gives that memory to other pods. The "
    "watchdog still limits the pod by what it declared: a kill works, an eviction does nothing. Which pod: "
    f"{EXEC}gpu-watchdog top --once",
)


@scenario("GPUMemoryPodLeft")
def pod_left(world: World, daemon: Daemon) -> None:
    """One that ends in its time does not fire; one that stays does, until its processes have ended."""
    gap = Gap(reason=GapReason.LEFT, what="pod a/trainer", problem=Problem("it is gone"))
    _new(daemon, 10, gap)
    _new(daemon, 20).expect("below")
    _new(daemon, 34.5, gap).expect("waits")
    _new(daemon, 36, gap).expect("fires", HAS_LEFT)
    daemon.restart(38).expect("restart", HAS_LEFT)
    _new(daemon, 40, gap)
    _new(daemon, 44).expect("resolves")
