"""Alerts about enforcement: withheld, turned off, or late."""

from dataclasses import replace
from functools import partial

from tests.core.many_pods import over_pod
from tests.monitoring.rules.promtool import ranges_are_left_open
from tests.monitoring.rules.scenario import EXEC, firing, scenario, under_maintenance
from tests.monitoring.rules.world import Daemon, Firing, World
from tests.report.build import Story, entry, killed, outcome, policy, trainer_node
from tests.worlds import Gi, at, process, rule, snapshot, step, use
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import Outcome
from watchdog.core.policy import Brakes, Breaker, Maintenance

NODE = {"node": "n1"}
LATE_GAP = (Gap(reason=GapReason.CYCLE_LATE, what="cycle", problem=Problem("it took longer")),)
BRAKED = policy(rule(step("100%", 0, "kill"), name="all"), brakes=Brakes(breaker=Breaker(of_at_least=4)))
TRIAL = replace(BRAKED, rules=(rule(step("100%", 0, "kill"), name="rest", mode="observe"),))
EVICTING = policy(rule(step("100%", 0, "evict"), name="evicting"))
PODS = tuple(over_pod(f"u{number}", f"w{number}") for number in range(4))
OPEN = firing(
    {**NODE, "severity": "critical"},
    "Node n1: most workloads are over their GPU memory limits at once; kills and evictions are paused",
    "On node n1 so many workloads were due for a kill or eviction at once that the breaker opened: a wrong policy or "
    "reading is more likely than that many real offenders. No kill or eviction starts during the breaker's hold. "
    "After that, at most one workload is killed or evicted per hold until fewer are over their limits. If it looks "
    "like a mistake, or you can't tell before the hold ends, turn enforcement off on this node; the rest can wait "
    "until morning: kubectl annotate node n1 gpu-memory-watchdog/mode=observe --overwrite; who is over, by how much "
    "and by which declaration: "
    f"{EXEC}gpu-watchdog scan; when the hold ends: {EXEC}gpu-watchdog top --once",
)
OBSERVED = firing(
    {**NODE, "severity": "warning"},
    "Node n1: with enforcement on, most workloads would be killed or evicted at once",
    "The watchdog on node n1 only observes. With enforcement on, so many workloads would have been due for a kill or "
    "eviction at once that the breaker would have opened: a wrong policy or reading is more likely than that many "
    "real offenders. Fix this before enforcing. Who is over, by how much and by which declaration: "
    f"{EXEC}gpu-watchdog scan",
)


def _over(daemon: Daemon, minutes: float, over: int, *, enforcing: bool = True) -> World:
    """A node with four owners, `over` of which are over."""
    uses = [use(number, 4 * Gi if number < over else Gi) for number in range(4)]
    processes = [process(number, f"u{number}/main") for number in range(4)]
    return daemon.sees(minutes, lambda second: snapshot(uses, processes, second=second), enforcing=enforcing)


@scenario("GPUMemoryBreakerOpen", under=BRAKED, pods=PODS)
def breaker_open(world: World, daemon: Daemon) -> None:
    """Half of four owners at once open it, one of four does not."""
    _over(daemon, 2, 1).expect("below")
    _over(daemon, 3, 2).expect("waits")
    _over(daemon, 3.5, 2).expect("fires", OPEN)
    daemon.restart(5).expect("restart", OPEN)
    _over(daemon, 16, 0).expect("resolves")


@scenario("GPUMemoryBreakerOpen", under=BRAKED, pods=PODS)
def breaker_open_while_observing(world: World, daemon: Daemon) -> None:
    """In observe mode it is a warning."""
    _over(daemon, 1, 1, enforcing=False)
    _over(daemon, 2, 4, enforcing=False).expect("waits")
    _over(daemon, 2.5, 4, enforcing=False).expect("fires", OBSERVED)


@scenario("GPUMemoryBreakerOpen", under=TRIAL, pods=PODS)
def breaker_open_on_trial(world: World, daemon: Daemon) -> None:
    """A rollout in stages: the daemon enforces, and the rule of these pods observes. No action, no alert."""
    _over(daemon, 8, 4)
    is_reported = 'sum by (cluster, node) (gpu_watchdog_withheld_total{brake="breaker"}) == 4'
    world.gives(f"{is_reported} and on (cluster, node) gpu_watchdog_enforcing == 1", (NODE, 4))
    world.expect("below")


MPS = firing(
    {**NODE, "namespace": "ns", "pod": "pod-u0", "rule": "all", "severity": "warning"},
    "Pod ns/pod-u0 is due for a kill or eviction, withheld because of MPS",
    'Pod ns/pod-u0 on node n1 is due for a kill or an eviction by rule "all", or was in the last 15 minutes. It is '
    "withheld, because it would end an MPS server or client that other pods depend on. Which process: "
    f"{EXEC}gpu-watchdog explain ns/pod-u0",
)


def _clients(daemon: Daemon, minutes: float, *, over: bool) -> World:
    """One of two MPS clients is over, or none."""
    uses = [use(number, 4 * Gi if over and number == 0 else Gi, mps=True) for number in range(2)]
    processes = [process(number, f"u{number}/main") for number in range(2)]
    return daemon.sees(minutes, lambda second: snapshot(uses, processes, second=second))


@scenario("GPUMemoryMPSWithheld", under=BRAKED, pods=PODS)
def withheld_for_mps(world: World, daemon: Daemon) -> None:
    """Clients within their limits do not fire; one that is left alone does, for as long as it is over, by its name."""
    _clients(daemon, 2, over=False).expect("below")
    _clients(daemon, 3, over=True).expect("waits")
    _clients(daemon, 3.5, over=True).expect("fires", MPS)
    daemon.restart(5).expect("restart", MPS)
    _clients(daemon, 60, over=True).expect("fires", MPS)
    _clients(daemon, 75.5, over=False).expect("resolves")


@scenario("GPUMemoryMPSWithheld", under=BRAKED, pods=PODS)
def withheld_again_and_again(world: World, daemon: Daemon) -> None:
    """A pod that is over for a minute and a half of every eight fires all along."""
    _clients(daemon, 1, over=False)
    for number in range(4):
        _clients(daemon, 8 * number + 2.5, over=True).expect("fires", MPS)
        _clients(daemon, 8 * number + 9, over=False).expect("fires", MPS)


@scenario("GPUMemoryMPSWithheld", under=BRAKED, pods=PODS)
def withheld_while_another_is_over(world: World, daemon: Daemon) -> None:
    """It is about the pod that is withheld: that another one on the node is over does not keep it up."""
    _clients(daemon, 1, over=False)
    _clients(daemon, 8, over=True)
    uses = [use(0, Gi, mps=True), use(1, 4 * Gi)]
    processes = [process(number, f"u{number}/main") for number in range(2)]
    daemon.sees(24, lambda second: snapshot(uses, processes, second=second))
    world.gives("max by (cluster, node) (gpu_watchdog_account_over_limit) == 1", (NODE, 1))
    world.expect("resolves")


@scenario("GPUMemoryMPSWithheld", under=BRAKED, pods=PODS)
def withheld_since_the_first_scrape(world: World, daemon: Daemon) -> None:
    """A counter first seen at 1 shows no increase: this needs none."""
    _clients(daemon, 6, over=True)
    world.gives('sum by (cluster, node) (gpu_watchdog_withheld_total{brake="mps"}) > 0', (NODE, 1))
    world.expect("fires", MPS)


def withheld_for_days(world: World) -> None:
    """It still fires after a week."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(daemon, 2, over=False)
    _clients(daemon, 8, over=True)
    world.stay(days=8)
    world.expect("fires", MPS)


def _suspended(daemon: Daemon, minutes: float, *reasons: str, enforcing: bool = False) -> World:
    return daemon.sees(minutes, partial(trainer_node, 4.0), enforcing=enforcing, suspended=reasons)


UNABLE = firing(
    {**NODE, "reason": "lock", "severity": "critical"},
    "The watchdog on node n1 is set to enforce but can't: lock",
    "The policy says enforce, but for 10 minutes the watchdog on node n1 has only observed: pods above their GPU "
    "memory limit are left alone there. The reason is lock. What is missing, and how to fix it: "
    f"{EXEC}gpu-watchdog doctor",
)


@scenario("GPUWatchdogNotEnforcing")
def not_enforcing(world: World, daemon: Daemon) -> None:
    """A daemon that is set to observe is fine; one that is set to enforce, and can't for ten minutes, is not."""
    _suspended(daemon, 12).expect("below")
    _suspended(daemon, 15, "lock")
    daemon.restart(16)
    _suspended(daemon, 22, "lock").expect("waits")
    _suspended(daemon, 22.5, "lock").expect("fires", UNABLE)
    daemon.restart(23.5).expect("restart", UNABLE)
    _suspended(daemon, 27, enforcing=True).expect("resolves")


UNSETTLED = firing(
    {**NODE, "reason": "policy_file", "severity": "critical"},
    "The watchdog on node n1 is set to enforce but can't: policy_file",
    "The policy says enforce, but for 10 minutes the watchdog on node n1 has only observed: pods above their GPU "
    "memory limit are left alone there. The reason is policy_file. The policy file is still being written: stop what "
    "keeps writing it "
    "or has it open for writing (fuser -v FILE on the node), or send SIGHUP to the daemon to load it as it "
    "is.",
)


@scenario("GPUWatchdogNotEnforcing")
def not_enforcing_yet(world: World, daemon: Daemon) -> None:
    """A policy file that does not settle is not checked by `doctor`: the remedy is in the alert."""
    _suspended(daemon, 12, "policy_file").expect("fires", UNSETTLED)


def _switched_off(reason: str, how: str, on_again: str) -> Firing:
    return firing(
        {**NODE, "reason": reason, "severity": "warning"},
        "Enforcement on node n1 has been off for more than an hour",
        f"The policy says enforce, but someone has turned enforcement off on node n1: {how}. Pods above their GPU "
        "memory limit are left alone there. The watchdog's status page shows who turned it off and why, if a reason "
        f"was given. If it is no longer needed, turn it back on: {on_again}",
    )


@scenario("GPUWatchdogNotEnforcing")
def switched_off(world: World, daemon: Daemon) -> None:
    """The person who turned it off knows; after an hour they are reminded, by a warning."""
    _suspended(daemon, 1, enforcing=True)
    _suspended(daemon, 61, "stop_file").expect("waits")
    _suspended(daemon, 61.5, "stop_file")
    reported = _switched_off("stop_file", "the stop file exists", f"{EXEC}gpu-watchdog resume")
    world.expect("fires", reported)
    _suspended(daemon, 65, enforcing=True).expect("resolves")


@scenario("GPUWatchdogNotEnforcing")
def switched_off_by_annotation(world: World, daemon: Daemon) -> None:
    """The other way to switch it off, in the alert's words."""
    _suspended(daemon, 61, "node_annotation")
    how = "the node has the annotation gpu-memory-watchdog/mode: observe"
    reported = _switched_off("node_annotation", how, "kubectl annotate node n1 gpu-memory-watchdog/mode-")
    world.expect("fires", reported)


SLOW = firing(
    {**NODE, "action": "kill", "severity": "warning"},
    "The watchdog on node n1 is slow to act",
    'On node n1 the slowest "kill" actions of the last hour started about 9.9s after they were due (target: 5s). '
    "Meanwhile a runaway pod can fill the GPU. Either cycles are slow on that node, or the daemon is short of CPU.",
)


def _acting(daemon: Daemon, minutes: float, *began: Outcome, held: Brake | None = None, news: bool = True) -> World:
    """Cycles until then; these actions begin in the first of them, and this brake holds a step back in all of them."""
    now = began
    for second in daemon.world.until(minutes):
        report = daemon.story.see(trainer_node(4.0, second), began=now)
        if held is not None:
            due = replace(entry(), withheld_by=held, taken=False, is_new=news)
            report = replace(report, plan=replace(report.plan, entries=(due,)))
        daemon.metrics.update(report)
        now, news = (), False
    return daemon.world


@scenario("GPUWatchdogReactionSlow")
def reaction_slow(world: World, daemon: Daemon) -> None:
    """Five seconds are fast enough; more are not, for the hour in which that is seen, over restarts of the daemon."""
    _acting(daemon, 1)
    _acting(daemon, 8, killed(reaction_s=5.0)).expect("below")
    daemon.restart(9)
    _acting(daemon, 10)
    _acting(daemon, 15, killed(reaction_s=5.1)).expect("waits")
    _acting(daemon, 15.5).expect("fires", SLOW)
    daemon.restart(17)
    _acting(daemon, 18).expect("restart", SLOW)
    _acting(daemon, 71).expect("resolves")


@scenario("GPUWatchdogReactionSlow")
def reaction_withheld(world: World, daemon: Daemon) -> None:
    """A kill that a brake held back for an hour is not slow; nor is an eviction that waited for its budget."""
    _acting(daemon, 1)
    _acting(daemon, 60, held=Brake.OWNER_BACKOFF)
    _acting(daemon, 75, killed(reaction_s=3540.0)).expect("below")


@scenario("GPUWatchdogReactionSlow")
def reaction_withheld_for_hours(world: World, daemon: Daemon) -> None:
    """However long ago that began, and were it before the first scrape: its counter moves once."""
    _acting(daemon, 60, held=Brake.OWNER_BACKOFF, news=False)
    _acting(daemon, 75, killed(reaction_s=36000.0)).expect("below")


@scenario("GPUWatchdogReactionSlow")
def reaction_after_another_action(world: World, daemon: Daemon) -> None:
    """That a kill is not begun again while it is in progress is no excuse for one that is late."""
    _acting(daemon, 2, held=Brake.PENDING, news=False)
    _acting(daemon, 8, killed(reaction_s=5.1)).expect("fires", SLOW.but("9.9s", "9.95s"))


@scenario("GPUWatchdogReactionSlow", under=EVICTING)
def eviction_takes_its_time(world: World, daemon: Daemon) -> None:
    """An eviction waits for the API server and for budgets: how long says nothing of the daemon."""
    due = entry(Story(under=EVICTING).see(trainer_node(12.4)), "evict")
    _acting(daemon, 1)
    _acting(daemon, 15, outcome(due, at=at(90), reaction_s=59.0)).expect("below")


LATE = firing(
    {**NODE, "severity": "warning"},
    "Cycles of the watchdog on node n1 are late",
    "On node n1 about 12 cycles of the last 10 minutes took longer than the policy's interval, so limits are "
    "checked less often than it says, and kills come later. Most likely the driver is slow, or the daemon is short of "
    f"CPU. What it is: {EXEC}gpu-watchdog top --once",
)


def _late(daemon: Daemon, minutes: float, number: int) -> World:
    """Cycles until then, the first of which are late."""
    for second in daemon.world.until(minutes):
        report, gap = daemon.story.see(trainer_node(4.0, second)), LATE_GAP if number > 0 else ()
        daemon.metrics.update(replace(report, snapshot=replace(report.snapshot, gaps=gap)))
        number -= 1
    return daemon.world


@scenario("GPUWatchdogCycleLate")
def cycle_late(world: World, daemon: Daemon) -> None:
    """A few late cycles are none, as at a busy moment of the node; more of them fire until there are no more."""
    daemon.all_is_well(1)
    _late(daemon, 5, 4).expect("below")
    _late(daemon, 9, 6).expect("waits")
    # From fewer samples the same growth is taken for a little more.
    _late(daemon, 14, 6).expect("fires", LATE.but("12 cycles", "13 cycles") if ranges_are_left_open() else LATE)
    daemon.restart(15).expect("restart", LATE)
    daemon.all_is_well(27).expect("resolves")


OVERDUE = firing(
    {**NODE, "severity": "warning"},
    "The GPUs of node n1 have been under maintenance for 1h 3m 30s",
    "A label or annotation of node n1 says that its GPUs are under maintenance, for longer than the policy's "
    "alert_after. Until that ends, the watchdog keeps the driver closed: GPU memory on that node is neither measured "
    "nor limited. A MIG change or a driver upgrade may be stuck, or has left its label behind. Which label or "
    f"annotation it is: {EXEC}gpu-watchdog top --once; what set it: kubectl get node n1 -o yaml --show-managed-fields",
)
SHORT = policy(BRAKED.rules[0], maintenance=Maintenance(alert_after_s=600.0))


def _maintained(daemon: Daemon, minutes: float, since_s: float, **more: object) -> World:
    return daemon.sees(minutes, partial(trainer_node, 4.0), **{**under_maintenance(since_s), **more})


@scenario("GPUWatchdogMaintenanceOverdue")
def maintenance_overdue(world: World, daemon: Daemon) -> None:
    """An hour of maintenance is none; more of it fires, over a restart too, which does not change since when it is."""
    daemon.all_is_well(1).expect("below")
    _maintained(daemon, 61, 60).expect("below")
    _maintained(daemon, 64, 60).expect("waits")
    _maintained(daemon, 64.5, 60).expect("fires", OVERDUE)
    daemon.restart(66)
    _maintained(daemon, 67, 60).expect("restart", OVERDUE.but("1h 3m 30s", "1h 6m 0s"))
    daemon.all_is_well(70.5).expect("resolves")


@scenario("GPUWatchdogMaintenanceOverdue", under=replace(SHORT, mode="observe"))
def maintenance_overdue_while_observing(world: World, daemon: Daemon) -> None:
    """In observe mode just the same, after what the policy says."""
    _maintained(daemon, 13, 0, suspended=()).expect("waits")
    _maintained(daemon, 13.5, 0, suspended=()).expect("fires", OVERDUE.but("1h 3m 30s", "13m 30s"))


@scenario("GPUWatchdogMaintenanceOverdue", under=SHORT)
def maintenance_over_just_in_time(world: World, daemon: Daemon) -> None:
    """What is over before its time never fires, although its last value lingers."""
    _maintained(daemon, 9.5, 0)
    for minute in range(10, 20):
        daemon.all_is_well(minute).expect("below")


@scenario("GPUWatchdogNotEnforcing")
def not_enforcing_under_maintenance(world: World, daemon: Daemon) -> None:
    """Maintenance has an alert of its own."""
    _maintained(daemon, 75, 0).expect("below")
