"""Alerts about actions on a pod: killed, evicted, or failed."""

from dataclasses import replace

from tests.monitoring.rules.scenario import EXEC, firing, scenario
from tests.monitoring.rules.world import Daemon, World
from tests.report.build import Story, entry, killed, outcome, policy, trainer_node
from tests.worlds import at, rule, snapshot, step
from watchdog.core.plan import Outcome, PlanEntry, Result

TRAINER = {"namespace": "a", "pod": "trainer", "node": "n1"}
EVICTING = policy(rule(step("100%", 0, "evict"), name="evicting"))

KILLED = firing(
    {**TRAINER, "container": "main", "rule": "notebooks", "severity": "warning"},
    "Processes of pod a/trainer were killed for its use of GPU memory",
    'The watchdog killed processes of container main of pod a/trainer on node n1, by rule "notebooks": the pod was '
    "above its GPU memory limit. Time: 1970-01-01 00:05:10 +0000 UTC. Its highest measured use was 12.4GiB. "
    "It declares 8GiB. The node needs no action. Why it was killed, and what its owner can change, is in its "
    "Events: kubectl -n a get events --field-selector involvedObject.name=trainer",
)


def _look(daemon: Daemon, minutes: float, used: float, *first: Outcome) -> World:
    """Cycles until then; each of these outcomes is in the first of them that is not before it."""
    left: tuple[Outcome, ...] = first
    for second in daemon.world.until(minutes):
        seen = trainer_node(used, second) if daemon.story.pods else snapshot(second=second)
        now = tuple(each for each in left if each.at.wall_s <= seen.at.wall_s)
        left = tuple(each for each in left if each not in now)
        daemon.see(seen, outcomes=now)
    assert not left, "too late to be reported"
    return daemon.world


def _eviction() -> PlanEntry:
    """The eviction of a/trainer as a plan has it."""
    return entry(Story(under=EVICTING).see(trainer_node(12.4)), "evict")


@scenario("GPUMemoryPodKilled")
def pod_killed(world: World, daemon: Daemon) -> None:
    """A kill fires for 10 minutes, also where pod and daemon go meanwhile; one that failed does not."""
    _look(daemon, 4.5, 12.4)
    vain = (outcome(result=each, at=at(280)) for each in (Result.FAILED, Result.GONE, Result.INTERRUPTED))
    _look(daemon, 5, 12.4, *vain, outcome(_warned(), at=at(280))).expect("below")
    _look(daemon, 5.5, 4.0, killed(at=at(310.5))).expect("fires", KILLED)
    daemon.story.pods = ()
    _look(daemon, 8, 0.0)
    daemon.restart(9)
    _look(daemon, 15, 0.0).expect("restart", KILLED)
    _look(daemon, 15.5, 0.0).expect("resolves")


@scenario("GPUMemoryPodKilled")
def pod_killed_twice(world: World, daemon: Daemon) -> None:
    """The counter of kills starts at 1, and once more after a restart: the alert has the last moment."""
    _look(daemon, 1, 4.0)
    daemon.restart(2)
    _look(daemon, 4, 4.0, killed(at=at(100)))
    _look(daemon, 5.5, 4.0, killed(at=at(310.5), number=2)).expect("restart", KILLED.but("12.4GiB", "4GiB"))
    _look(daemon, 15.5, 4.0).expect("resolves")


EVICTED = firing(
    {**TRAINER, "rule": "evicting", "severity": "warning"},
    "Pod a/trainer was evicted for its use of GPU memory",
    'The watchdog had pod a/trainer evicted from node n1, by rule "evicting": it was above its GPU memory limit. '
    "Time: 1970-01-01 00:05:10 +0000 UTC. Its highest measured use was 12.4GiB. It declares 8GiB. "
    "If a controller replaces it, the new pod will be evicted too unless it declares more or uses less. Why it was "
    "evicted, and what its owner can change, is in the Events of the old pod: kubectl -n a get events "
    "--field-selector involvedObject.name=trainer",
)


@scenario("GPUMemoryPodEvicted", under=EVICTING)
def pod_evicted(world: World, daemon: Daemon) -> None:
    """An eviction that succeeded fires for 10 minutes; a kill, or a blocked one, does not."""
    due = _eviction()
    _look(daemon, 5, 12.4, outcome(due, Result.BLOCKED, at=at(10)), killed(at=at(20))).expect("below")
    _look(daemon, 5.5, 12.4, outcome(due, at=at(310))).expect("fires", EVICTED)
    daemon.story.pods = ()
    daemon.restart(7)
    _look(daemon, 15, 0.0).expect("restart", EVICTED)
    _look(daemon, 15.5, 0.0).expect("resolves")


BLOCKED = firing(
    {**TRAINER, "rule": "evicting", "severity": "warning"},
    "The eviction of pod a/trainer is blocked",
    'Pod a/trainer on node n1 is above its GPU memory limit, and rule "evicting" evicts it. The API server has '
    "refused the eviction since 1970-01-01 00:05:10 +0000 UTC, usually because a PodDisruptionBudget allows no "
    "disruption right now. It is retried for up to 10 minutes; meanwhile the pod keeps the memory. The budgets: "
    f"kubectl -n a get pdb; the API server's answer and the number of attempts: {EXEC}gpu-watchdog explain a/trainer",
)


@scenario("GPUMemoryEvictionBlocked", under=EVICTING)
def eviction_blocked(world: World, daemon: Daemon) -> None:
    """Blocked for two minutes, without another result: then it fires, until there is one."""
    due = _eviction()
    _look(daemon, 5, 12.4, outcome(due, Result.FAILED, at=at(20))).expect("below")
    _look(daemon, 7, 12.4, outcome(due, Result.BLOCKED, at=at(310))).expect("waits")
    _look(daemon, 7.5, 12.4).expect("fires", BLOCKED)
    daemon.restart(9)
    _look(daemon, 9.5, 12.4).expect("restart", BLOCKED)
    _look(daemon, 10, 12.4, outcome(due, Result.DONE, at=at(590))).expect("resolves")


@scenario("GPUMemoryEvictionBlocked", under=EVICTING)
def eviction_blocked_without_a_result(world: World, daemon: Daemon) -> None:
    """A daemon that is started again reports no result of it: 15 minutes are enough then."""
    due = _eviction()
    _look(daemon, 1, 12.4, outcome(due, Result.BLOCKED, at=at(10)))
    daemon.restart(2)
    _look(daemon, 15, 4.0).expect("restart", BLOCKED.but("00:05:10", "00:00:10"))
    _look(daemon, 15.5, 4.0).expect("resolves")


FAILING = firing(
    {**TRAINER, "container": "main", "action": "kill", "rule": "notebooks", "severity": "critical"},
    "The watchdog can't kill pod a/trainer",
    'Pod a/trainer on node n1 is above its GPU memory limit. Rule "notebooks" tried to kill it. That failed at '
    "1970-01-01 00:05:10 +0000 UTC, and no later attempt has succeeded. The pod keeps the memory, and other pods on "
    "the GPU may run out of memory. The reason: "
    f"{EXEC}gpu-watchdog history --pod a/trainer --since 1h",
)


@scenario("GPUMemoryActionFailing")
def kill_fails(world: World, daemon: Daemon) -> None:
    """A kill that failed, and none since that did not; one that failed first and then succeeded does not fire."""
    _look(daemon, 5, 12.4, outcome(result=Result.FAILED, at=at(20)), killed(at=at(30))).expect("below")
    _look(daemon, 6, 12.4, outcome(result=Result.FAILED, at=at(310))).expect("waits")
    _look(daemon, 6.5, 12.4).expect("fires", FAILING)
    daemon.restart(8)
    _look(daemon, 8.5, 12.4).expect("restart", FAILING)
    _look(daemon, 9, 12.4, killed(at=at(525))).expect("resolves")


@scenario("GPUMemoryActionFailing", under=EVICTING)
def eviction_fails(world: World, daemon: Daemon) -> None:
    """An eviction that fails again and again stays; 15 minutes after the last time it goes."""
    due = _eviction()
    for minute in range(0, 20, 5):
        failed = outcome(due, Result.FAILED, at=at(minute * 60 + 10))
        _look(daemon, minute + 5, 12.4, failed)
    reported = FAILING.but("kill", "evict").but("notebooks", "evicting").but("00:05:10", "00:15:10")
    labels = {**TRAINER, "action": "evict", "rule": "evicting", "severity": "critical"}
    world.expect("fires", replace(reported, labels=labels))
    _look(daemon, 30.5, 4.0).expect("resolves")


def _warned() -> PlanEntry:
    story = Story(under=policy(rule(step("100%", 0, "warn"), name="notebooks")))
    return entry(story.see(trainer_node(12.4)), "warn")
