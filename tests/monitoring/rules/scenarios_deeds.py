"""Alerts about what was done to a pod: killed, evicted, or tried in vain."""

from tests.export.build import Story, entry, killed, outcome, policy, trainer_node
from tests.monitoring.rules.scenario import EXEC, restart, scenario, told
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import at, rule, snapshot, step
from watchdog.core.plan import Outcome, PlanEntry, Result

TRAINER = {"namespace": "a", "pod": "trainer", "node": "n1"}
EVICTING = policy(rule(step("100%", 0, "evict"), name="evicting"))

KILLED_LABELS = {**TRAINER, "container": "main", "rule": "notebooks", "severity": "warning"}
KILLED = told(
    "GPUMemoryPodKilled",
    "Processes of pod a/trainer were killed for its use of GPU memory",
    'The watchdog killed processes of container main of pod a/trainer on node n1, by rule "notebooks": the pod was '
    "above its GPU memory limit. Time: 1970-01-01 00:05:10 +0000 UTC. Its highest measured use was 12.4GiB. "
    "It declares 8GiB. The node needs no action. Why it was killed, and what its owner can change, is in its "
    "Events: kubectl -n a get events --field-selector involvedObject.name=trainer",
)


def _look(world: World, daemon: Daemon, minutes: float, used: float, *first: Outcome) -> None:
    """Cycles until then; each of these outcomes is in the first of them that is not before it."""
    left: tuple[Outcome, ...] = first
    for second in world.until(minutes):
        seen = trainer_node(used, second) if daemon.story.pods else snapshot(second=second)
        told_now = tuple(each for each in left if each.at.wall_s <= seen.at.wall_s)
        left = tuple(each for each in left if each not in told_now)
        daemon.see(seen, outcomes=told_now)
    assert not left, "too late to be told"


def _evicting(world: World) -> tuple[Daemon, PlanEntry]:
    """A daemon that evicts, and the eviction of a/trainer as its plan has it."""
    return world.daemon(under=EVICTING), entry(Story(under=EVICTING).see(trainer_node(12.4)), "evict")


@scenario("GPUMemoryPodKilled")
def pod_killed(world: World) -> None:
    """A kill is told for 10 minutes, also where pod and daemon go meanwhile; what came to nothing is not."""
    daemon = world.daemon()
    _look(world, daemon, 4.5, 12.4)
    vain = (outcome(result=each, at=at(280)) for each in (Result.FAILED, Result.GONE, Result.INTERRUPTED))
    _look(world, daemon, 5, 12.4, *vain, outcome(_warned(), at=at(280)))
    world.expect("GPUMemoryPodKilled", "below")
    _look(world, daemon, 5.5, 4.0, killed(at=at(310.5)))
    world.expect("GPUMemoryPodKilled", "fires", (KILLED_LABELS, KILLED))
    daemon.story.pods = ()
    _look(world, daemon, 8, 0.0)
    restart(world, daemon, 9)
    _look(world, daemon, 15, 0.0)
    world.expect("GPUMemoryPodKilled", "restart", (KILLED_LABELS, KILLED))
    _look(world, daemon, 15.5, 0.0)
    world.expect("GPUMemoryPodKilled", "resolves")


@scenario("GPUMemoryPodKilled")
def pod_killed_twice(world: World) -> None:
    """The counter of kills is born at 1, and once more after a restart: the alert has the last moment."""
    daemon = world.daemon()
    _look(world, daemon, 1, 4.0)
    restart(world, daemon, 2)
    _look(world, daemon, 4, 4.0, killed(at=at(100)))
    _look(world, daemon, 5.5, 4.0, killed(at=at(310.5), number=2))
    labels = dict(KILLED_LABELS)
    said = {**KILLED, "description": KILLED["description"].replace("12.4GiB", "4GiB")}
    world.expect("GPUMemoryPodKilled", "restart", (labels, said))
    _look(world, daemon, 15.5, 4.0)
    world.expect("GPUMemoryPodKilled", "resolves")


EVICTED_LABELS = {**TRAINER, "rule": "evicting", "severity": "warning"}
EVICTED = told(
    "GPUMemoryPodEvicted",
    "Pod a/trainer was evicted for its use of GPU memory",
    'The watchdog had pod a/trainer evicted from node n1, by rule "evicting": it was above its GPU memory limit. '
    "Time: 1970-01-01 00:05:10 +0000 UTC. Its highest measured use was 12.4GiB. It declares 8GiB. "
    "If a controller replaces it, the new pod will be evicted too unless it declares more or uses less. Why it was "
    "evicted, and what its owner can change, is in the Events of the old pod: kubectl -n a get events "
    "--field-selector involvedObject.name=trainer",
)


@scenario("GPUMemoryPodEvicted")
def pod_evicted(world: World) -> None:
    """An eviction that came about is told for 10 minutes; a kill, or one that is blocked, is not an eviction."""
    daemon, due = _evicting(world)
    _look(world, daemon, 5, 12.4, outcome(due, Result.BLOCKED, at=at(10)), killed(at=at(20)))
    world.expect("GPUMemoryPodEvicted", "below")
    _look(world, daemon, 5.5, 12.4, outcome(due, at=at(310)))
    world.expect("GPUMemoryPodEvicted", "fires", (EVICTED_LABELS, EVICTED))
    daemon.story.pods = ()
    restart(world, daemon, 7)
    _look(world, daemon, 15, 0.0)
    world.expect("GPUMemoryPodEvicted", "restart", (EVICTED_LABELS, EVICTED))
    _look(world, daemon, 15.5, 0.0)
    world.expect("GPUMemoryPodEvicted", "resolves")


BLOCKED = told(
    "GPUMemoryEvictionBlocked",
    "The eviction of pod a/trainer is blocked",
    'Pod a/trainer on node n1 is above its GPU memory limit, and rule "evicting" evicts it. The API server has '
    "refused the eviction since 1970-01-01 00:05:10 +0000 UTC, usually because a PodDisruptionBudget allows no "
    "disruption right now. It is retried for up to 10 minutes; meanwhile the pod keeps the memory. The budgets: "
    f"kubectl -n a get pdb; the API server's answer and the number of attempts: {EXEC}gpu-watchdog explain a/trainer",
)


@scenario("GPUMemoryEvictionBlocked")
def eviction_blocked(world: World) -> None:
    """Blocked for two minutes, and nothing else has come of it: then it is told, until something has."""
    daemon, due = _evicting(world)
    _look(world, daemon, 5, 12.4, outcome(due, Result.FAILED, at=at(20)))
    world.expect("GPUMemoryEvictionBlocked", "below")
    _look(world, daemon, 7, 12.4, outcome(due, Result.BLOCKED, at=at(310)))
    world.expect("GPUMemoryEvictionBlocked", "waits")
    _look(world, daemon, 7.5, 12.4)
    world.expect("GPUMemoryEvictionBlocked", "fires", (EVICTED_LABELS, BLOCKED))
    restart(world, daemon, 9)
    _look(world, daemon, 9.5, 12.4)
    world.expect("GPUMemoryEvictionBlocked", "restart", (EVICTED_LABELS, BLOCKED))
    _look(world, daemon, 10, 12.4, outcome(due, Result.DONE, at=at(590)))
    world.expect("GPUMemoryEvictionBlocked", "resolves")


@scenario("GPUMemoryEvictionBlocked")
def eviction_blocked_and_forgotten(world: World) -> None:
    """A daemon that is started again says nothing of what became of it: 15 minutes are enough then."""
    daemon, due = _evicting(world)
    _look(world, daemon, 1, 12.4, outcome(due, Result.BLOCKED, at=at(10)))
    restart(world, daemon, 2)
    _look(world, daemon, 15, 4.0)
    world.expect("GPUMemoryEvictionBlocked", "restart", (EVICTED_LABELS, _at(BLOCKED, "00:00:10")))
    _look(world, daemon, 15.5, 4.0)
    world.expect("GPUMemoryEvictionBlocked", "resolves")


FAILING_LABELS = {**TRAINER, "container": "main", "action": "kill", "rule": "notebooks", "severity": "critical"}
FAILING = told(
    "GPUMemoryActionFailing",
    "The watchdog can't kill pod a/trainer",
    'Pod a/trainer on node n1 is above its GPU memory limit. Rule "notebooks" tried to kill it. That failed at '
    "1970-01-01 00:05:10 +0000 UTC, and no later attempt has succeeded. The pod keeps the memory, and other pods on "
    "the GPU may run out of memory. The reason: "
    f"{EXEC}gpu-watchdog history --pod a/trainer --since 1h",
)


@scenario("GPUMemoryActionFailing")
def kill_fails(world: World) -> None:
    """A kill that failed, and none since that did not; one that failed first and went well then is no trouble."""
    daemon = world.daemon()
    _look(world, daemon, 5, 12.4, outcome(result=Result.FAILED, at=at(20)), killed(at=at(30)))
    world.expect("GPUMemoryActionFailing", "below")
    _look(world, daemon, 6, 12.4, outcome(result=Result.FAILED, at=at(310)))
    world.expect("GPUMemoryActionFailing", "waits")
    _look(world, daemon, 6.5, 12.4)
    world.expect("GPUMemoryActionFailing", "fires", (FAILING_LABELS, FAILING))
    restart(world, daemon, 8)
    _look(world, daemon, 8.5, 12.4)
    world.expect("GPUMemoryActionFailing", "restart", (FAILING_LABELS, FAILING))
    _look(world, daemon, 9, 12.4, killed(at=at(525)))
    world.expect("GPUMemoryActionFailing", "resolves")


@scenario("GPUMemoryActionFailing")
def eviction_fails(world: World) -> None:
    """An eviction that fails again and again stays; 15 minutes after the last time it goes."""
    daemon, due = _evicting(world)
    for minute in range(0, 20, 5):
        failed = outcome(due, Result.FAILED, at=at(minute * 60 + 10))
        _look(world, daemon, minute + 5, 12.4, failed)
    labels = {**TRAINER, "action": "evict", "rule": "evicting", "severity": "critical"}
    said = {key: _swap(text) for key, text in FAILING.items()}
    world.expect("GPUMemoryActionFailing", "fires", (labels, said))
    _look(world, daemon, 30.5, 4.0)
    world.expect("GPUMemoryActionFailing", "resolves")


def _warned() -> PlanEntry:
    story = Story(under=policy(rule(step("100%", 0, "warn"), name="notebooks")))
    return entry(story.see(trainer_node(12.4)), "warn")


def _at(said: dict[str, str], time: str) -> dict[str, str]:
    return {**said, "description": said["description"].replace("00:05:10", time)}


def _swap(text: str) -> str:
    return text.replace("kill", "evict").replace("notebooks", "evicting").replace("00:05:10", "00:15:10")
