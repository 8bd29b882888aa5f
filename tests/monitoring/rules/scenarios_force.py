"""Alerts about force: held back, switched off, or late."""

from dataclasses import replace

from tests.core.town import resident
from tests.export.build import Story, entry, killed, outcome, policy, trainer_node
from tests.monitoring.rules.scenario import EXEC, restart, scenario, told
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import Gi, at, process, rule, snapshot, step, use
from watchdog.core.brakes import Brake
from watchdog.core.plan import Outcome
from watchdog.core.policy import Brakes, Breaker

NODE = {"node": "n1"}
BRAKED = policy(rule(step("100%", 0, "kill"), name="all"), brakes=Brakes(breaker=Breaker(of_at_least=4)))
PODS = tuple(resident(f"u{number}", f"w{number}") for number in range(4))
OPEN = told(
    "GPUMemoryBreakerOpen",
    "Node n1: most workloads are over their GPU memory limits at once; kills and evictions are paused",
    "On node n1 so many workloads were due for a kill or eviction at once that the breaker opened: a wrong policy or "
    "reading is more likely than that many real offenders. No kill or eviction starts during the breaker's hold. "
    "After that, at most one workload is killed or evicted per hold until fewer are over their limits. If it looks "
    "like a mistake, or you can't tell before the hold ends, turn enforcement off on this node; the rest can wait "
    "until morning: kubectl annotate node n1 gpu-memory-watchdog/mode=observe --overwrite; who is over, by how much "
    "and by which declaration: "
    f"{EXEC}gpu-watchdog scan; when the hold ends: {EXEC}gpu-watchdog top --once",
)
OBSERVED = told(
    "GPUMemoryBreakerOpen",
    "Node n1: with enforcement on, most workloads would be killed or evicted at once",
    "The watchdog on node n1 only observes. With enforcement on, so many workloads would have been due for a kill or "
    "eviction at once that the breaker would have opened: a wrong policy or reading is more likely than that many "
    "real offenders. Fix this before enforcing. Who is over, by how much and by which declaration: "
    f"{EXEC}gpu-watchdog scan",
)


def _crowd(world: World, daemon: Daemon, minutes: float, over: int, *, enforcing: bool = True) -> None:
    """So many of four owners are over."""
    for second in world.until(minutes):
        uses = [use(number, 4 * Gi if number < over else Gi) for number in range(4)]
        processes = [process(number, f"u{number}/main") for number in range(4)]
        daemon.see(snapshot(uses, processes, second=second), enforcing=enforcing)


@scenario("GPUMemoryBreakerOpen")
def breaker_open(world: World) -> None:
    """Half of four owners at once open it, one of four does not."""
    labels = {**NODE, "severity": "critical"}
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _crowd(world, daemon, 2, 1)
    world.expect("GPUMemoryBreakerOpen", "below")
    _crowd(world, daemon, 3, 2)
    world.expect("GPUMemoryBreakerOpen", "waits")
    _crowd(world, daemon, 3.5, 2)
    world.expect("GPUMemoryBreakerOpen", "fires", (labels, OPEN))
    restart(world, daemon, 5)
    world.expect("GPUMemoryBreakerOpen", "restart", (labels, OPEN))
    _crowd(world, daemon, 16, 0)
    world.expect("GPUMemoryBreakerOpen", "resolves")


@scenario("GPUMemoryBreakerOpen")
def breaker_open_while_observing(world: World) -> None:
    """Where nobody would be hit it is a warning."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _crowd(world, daemon, 1, 1, enforcing=False)
    _crowd(world, daemon, 2, 4, enforcing=False)
    world.expect("GPUMemoryBreakerOpen", "waits")
    _crowd(world, daemon, 2.5, 4, enforcing=False)
    world.expect("GPUMemoryBreakerOpen", "fires", ({**NODE, "severity": "warning"}, OBSERVED))


@scenario("GPUMemoryBreakerOpen")
def breaker_open_on_trial(world: World) -> None:
    """A rollout in stages: the daemon enforces, and the rule of these pods observes. Nobody is hit, nobody is told."""
    trial = policy(
        rule(step("100%", 0, "kill"), name="rest", mode="observe"), brakes=Brakes(breaker=Breaker(of_at_least=4))
    )
    daemon = world.daemon(under=trial, pods=PODS)
    _crowd(world, daemon, 8, 4)
    is_told = 'sum by (cluster, node) (gpu_watchdog_withheld_total{brake="breaker"}) == 4'
    world.gives(f"{is_told} and on (cluster, node) gpu_watchdog_enforcing == 1", (NODE, 4))
    world.expect("GPUMemoryBreakerOpen", "below")


MPS = told(
    "GPUMemoryMPSWithheld",
    "Pod ns/pod-u0 is due for a kill or eviction, withheld because of MPS",
    'Pod ns/pod-u0 on node n1 is due for a kill or an eviction by rule "all", or was in the last 15 minutes. It is '
    "withheld, because it would end an MPS server or client that other pods depend on. Which process: "
    f"{EXEC}gpu-watchdog explain ns/pod-u0",
)
MPS_LABELS = {**NODE, "namespace": "ns", "pod": "pod-u0", "rule": "all", "severity": "warning"}


def _clients(world: World, daemon: Daemon, minutes: float, *, over: bool) -> None:
    """One of two MPS clients is over, or none."""
    for second in world.until(minutes):
        uses = [use(number, 4 * Gi if over and number == 0 else Gi, mps=True) for number in range(2)]
        daemon.see(snapshot(uses, [process(number, f"u{number}/main") for number in range(2)], second=second))


@scenario("GPUMemoryMPSWithheld")
def withheld_for_mps(world: World) -> None:
    """Clients within their limits are no news; one that is left alone is, for as long as it is over, and names it."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(world, daemon, 2, over=False)
    world.expect("GPUMemoryMPSWithheld", "below")
    _clients(world, daemon, 3, over=True)
    world.expect("GPUMemoryMPSWithheld", "waits")
    _clients(world, daemon, 3.5, over=True)
    world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))
    restart(world, daemon, 5)
    world.expect("GPUMemoryMPSWithheld", "restart", (MPS_LABELS, MPS))
    _clients(world, daemon, 60, over=True)
    world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))
    _clients(world, daemon, 75.5, over=False)
    world.expect("GPUMemoryMPSWithheld", "resolves")


@scenario("GPUMemoryMPSWithheld")
def withheld_again_and_again(world: World) -> None:
    """A pod that is over for a minute and a half of every eight is told of all along."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(world, daemon, 1, over=False)
    for number in range(4):
        _clients(world, daemon, 8 * number + 2.5, over=True)
        world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))
        _clients(world, daemon, 8 * number + 9, over=False)
        world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))


@scenario("GPUMemoryMPSWithheld")
def withheld_while_another_is_over(world: World) -> None:
    """It is about the pod that is withheld: that another one on the node is over does not keep it up."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(world, daemon, 1, over=False)
    _clients(world, daemon, 8, over=True)
    for second in world.until(24):
        uses = [use(0, Gi, mps=True), use(1, 4 * Gi)]
        daemon.see(snapshot(uses, [process(number, f"u{number}/main") for number in range(2)], second=second))
    world.gives("max by (cluster, node) (gpu_watchdog_account_over_limit) == 1", (NODE, 1))
    world.expect("GPUMemoryMPSWithheld", "resolves")


@scenario("GPUMemoryMPSWithheld")
def withheld_since_the_first_scrape(world: World) -> None:
    """A counter that is born at 1 shows no increase: this needs none."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(world, daemon, 6, over=True)
    world.gives('sum by (cluster, node) (gpu_watchdog_withheld_total{brake="mps"}) > 0', (NODE, 1))
    world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))


def withheld_for_days(world: World) -> None:
    """A week is no reason to fall silent."""
    daemon = world.daemon(under=BRAKED, pods=PODS)
    _clients(world, daemon, 2, over=False)
    _clients(world, daemon, 8, over=True)
    world.stay(days=8)
    world.expect("GPUMemoryMPSWithheld", "fires", (MPS_LABELS, MPS))


def _suspended(world: World, daemon: Daemon, minutes: float, *reasons: str, enforcing: bool = False) -> None:
    for second in world.until(minutes):
        daemon.see(trainer_node(4.0, second), enforcing=enforcing, suspended=reasons)


UNABLE = told(
    "GPUWatchdogNotEnforcing",
    "The watchdog on node n1 is set to enforce but can't: lock",
    "The policy says enforce, but for 10 minutes the watchdog on node n1 has only observed: pods above their GPU "
    "memory limit are left alone there. The reason is lock. What is missing, and how to fix it: "
    f"{EXEC}gpu-watchdog doctor",
)


@scenario("GPUWatchdogNotEnforcing")
def not_enforcing(world: World) -> None:
    """Told to observe, it observes: nothing is wrong. Told to enforce, and for ten minutes it can't."""
    labels = {**NODE, "reason": "lock", "severity": "critical"}
    daemon = world.daemon()
    _suspended(world, daemon, 12)
    world.expect("GPUWatchdogNotEnforcing", "below")
    _suspended(world, daemon, 15, "lock")
    restart(world, daemon, 16)
    _suspended(world, daemon, 22, "lock")
    world.expect("GPUWatchdogNotEnforcing", "waits")
    _suspended(world, daemon, 22.5, "lock")
    world.expect("GPUWatchdogNotEnforcing", "fires", (labels, UNABLE))
    restart(world, daemon, 23.5)
    world.expect("GPUWatchdogNotEnforcing", "restart", (labels, UNABLE))
    _suspended(world, daemon, 27, enforcing=True)
    world.expect("GPUWatchdogNotEnforcing", "resolves")


UNSETTLED = told(
    "GPUWatchdogNotEnforcing",
    "The watchdog on node n1 is set to enforce but can't: policy_file",
    "The policy says enforce, but for 10 minutes the watchdog on node n1 has only observed: pods above their GPU "
    "memory limit are left alone there. The reason is policy_file. The policy file is still being written: stop what "
    "keeps writing it "
    "or has it open for writing (fuser -v FILE on the node), or send SIGHUP to the daemon to load it as it "
    "is.",
)


@scenario("GPUWatchdogNotEnforcing")
def not_enforcing_yet(world: World) -> None:
    """A policy file that does not settle is nothing that `doctor` looks for: the remedy is in the alert."""
    daemon = world.daemon()
    _suspended(world, daemon, 12, "policy_file")
    labels = {**NODE, "reason": "policy_file", "severity": "critical"}
    world.expect("GPUWatchdogNotEnforcing", "fires", (labels, UNSETTLED))


def _switched_off(how: str, on_again: str) -> dict[str, str]:
    return told(
        "GPUWatchdogNotEnforcing",
        "Enforcement on node n1 has been off for more than an hour",
        f"The policy says enforce, but someone has turned enforcement off on node n1: {how}. Pods above their GPU "
        "memory limit are left alone there. Find out who turned it off and why. If it is no longer needed, turn it "
        f"back on: {on_again}",
    )


@scenario("GPUWatchdogNotEnforcing")
def switched_off(world: World) -> None:
    """Who switched it off knows; after an hour they are reminded, and nobody is woken."""
    labels = {**NODE, "reason": "stop_file", "severity": "warning"}
    daemon = world.daemon()
    _suspended(world, daemon, 1, enforcing=True)
    _suspended(world, daemon, 61, "stop_file")
    world.expect("GPUWatchdogNotEnforcing", "waits")
    _suspended(world, daemon, 61.5, "stop_file")
    said = _switched_off("the stop file exists", f"{EXEC}gpu-watchdog resume")
    world.expect("GPUWatchdogNotEnforcing", "fires", (labels, said))
    _suspended(world, daemon, 65, enforcing=True)
    world.expect("GPUWatchdogNotEnforcing", "resolves")


@scenario("GPUWatchdogNotEnforcing")
def switched_off_by_annotation(world: World) -> None:
    """The other way to switch it off, in the alert's words."""
    daemon = world.daemon()
    _suspended(world, daemon, 61, "node_annotation")
    labels = {**NODE, "reason": "node_annotation", "severity": "warning"}
    how = "the node has the annotation gpu-memory-watchdog/mode: observe"
    said = _switched_off(how, "kubectl annotate node n1 gpu-memory-watchdog/mode-")
    world.expect("GPUWatchdogNotEnforcing", "fires", (labels, said))


SLOW_LABELS = {**NODE, "action": "kill", "severity": "warning"}
SLOW = told(
    "GPUWatchdogReactionSlow",
    "The watchdog on node n1 is slow to act",
    'On node n1 the slowest "kill" actions of the last hour started about 9.9s after they were due (target: 5s). '
    "Meanwhile a runaway pod can fill the GPU. Either cycles are slow on that node, or the daemon is short of CPU.",
)


def _acting(
    world: World, daemon: Daemon, minutes: float, *began: Outcome, held: Brake | None = None, news: bool = True
) -> None:
    """Cycles until then; these actions begin in the first of them, and this brake holds a step back in all of them."""
    now = began
    for second in world.until(minutes):
        report = daemon.story.see(trainer_node(4.0, second), began=now)
        if held is not None:
            due = replace(entry(), withheld_by=held, taken=False, is_new=news)
            report = replace(report, plan=replace(report.plan, entries=(due,)))
        daemon.metrics.update(report)
        now, news = (), False


@scenario("GPUWatchdogReactionSlow")
def reaction_slow(world: World) -> None:
    """Five seconds are fast enough; more are not, for the hour in which that is seen, over restarts of the daemon."""
    daemon = world.daemon()
    _acting(world, daemon, 1)
    _acting(world, daemon, 8, killed(reaction_s=5.0))
    world.expect("GPUWatchdogReactionSlow", "below")
    restart(world, daemon, 9)
    _acting(world, daemon, 10)
    _acting(world, daemon, 15, killed(reaction_s=5.1))
    world.expect("GPUWatchdogReactionSlow", "waits")
    _acting(world, daemon, 15.5)
    world.expect("GPUWatchdogReactionSlow", "fires", (SLOW_LABELS, SLOW))
    restart(world, daemon, 17)
    _acting(world, daemon, 18)
    world.expect("GPUWatchdogReactionSlow", "restart", (SLOW_LABELS, SLOW))
    _acting(world, daemon, 71)
    world.expect("GPUWatchdogReactionSlow", "resolves")


@scenario("GPUWatchdogReactionSlow")
def reaction_withheld(world: World) -> None:
    """A kill that a brake held back for an hour is not slow; nor is an eviction that waited for its budget."""
    daemon = world.daemon()
    _acting(world, daemon, 1)
    _acting(world, daemon, 60, held=Brake.OWNER_BACKOFF)
    _acting(world, daemon, 75, killed(reaction_s=3540.0))
    world.expect("GPUWatchdogReactionSlow", "below")


@scenario("GPUWatchdogReactionSlow")
def reaction_withheld_for_hours(world: World) -> None:
    """However long ago that began, and were it before the first scrape: its counter moves once."""
    daemon = world.daemon()
    _acting(world, daemon, 60, held=Brake.OWNER_BACKOFF, news=False)
    _acting(world, daemon, 75, killed(reaction_s=36000.0))
    world.expect("GPUWatchdogReactionSlow", "below")


@scenario("GPUWatchdogReactionSlow")
def reaction_after_another_action(world: World) -> None:
    """That a kill is not begun again while it is in progress is no excuse for one that is late."""
    daemon = world.daemon()
    _acting(world, daemon, 2, held=Brake.PENDING, news=False)
    _acting(world, daemon, 8, killed(reaction_s=5.1))
    said = {**SLOW, "description": SLOW["description"].replace("9.9s", "9.95s")}
    world.expect("GPUWatchdogReactionSlow", "fires", (SLOW_LABELS, said))


@scenario("GPUWatchdogReactionSlow")
def eviction_takes_its_time(world: World) -> None:
    """An eviction waits for the API server and for budgets: how long says nothing of the daemon."""
    under = policy(rule(step("100%", 0, "evict"), name="evicting"))
    evicted = outcome(entry(Story(under=under).see(trainer_node(12.4)), "evict"), at=at(90), reaction_s=59.0)
    daemon = world.daemon(under=under)
    _acting(world, daemon, 1)
    _acting(world, daemon, 15, evicted)
    world.expect("GPUWatchdogReactionSlow", "below")
