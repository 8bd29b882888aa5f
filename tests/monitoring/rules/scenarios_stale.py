"""Alerts about a watchdog that runs and whose knowledge is old: its passes, its list of pods, its driver."""

from tests.export.build import trainer_node
from tests.monitoring.rules.scenario import EXEC, cards, look, restart, scenario, told, wait
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import at
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList

CRITICAL = {"node": "n1", "severity": "critical"}
HANGS = (
    "Most likely a call into the GPU driver hangs. GPU memory on that node is neither measured nor limited, and its "
    "metrics are out of date. On the node, run: dmesg | grep -i -e nvrm -e xid; if that finds anything, drain and "
    "reboot the node; if not, delete the watchdog's pod: restarting it is safe."
)


def _stale(summary: str, description: str) -> dict[str, str]:
    return told("GPUWatchdogStale", summary, description)


@scenario("GPUWatchdogStale")
def no_pass_ends(world: World) -> None:
    """It answers, and its last cycle is two minutes old, for two minutes; so also where it was started again since."""
    labels = {**CRITICAL, "stale": "cycles"}
    daemon = world.daemon()
    look(world, daemon, 5)
    wait(world, 7)
    world.expect("GPUWatchdogStale", "below")
    wait(world, 9)
    world.expect("GPUWatchdogStale", "waits")
    wait(world, 9.5)
    since = "The watchdog on node n1 responds, but has not completed a cycle for"
    summary = "The watchdog on node n1 is hung"
    world.expect("GPUWatchdogStale", "fires", (labels, _stale(summary, f"{since} 4m 30s. {HANGS}")))
    restart(world, daemon, 11.5)
    world.expect("GPUWatchdogStale", "restart", (labels, _stale(summary, f"{since} 6m 30s. {HANGS}")))
    wait(world, 30)
    never = f"The watchdog on node n1 responds, but has not completed a single cycle since it started. {HANGS}"
    world.expect("GPUWatchdogStale", "restart", (labels, _stale(summary, never)))
    look(world, daemon, 30.5)
    world.expect("GPUWatchdogStale", "resolves")


@scenario("GPUWatchdogStale")
def hanging_is_told_once(world: World) -> None:
    """While no cycle ends the list of pods grows old as well, which says nothing of the way to the API server."""
    daemon = world.daemon()
    look(world, daemon, 5)
    wait(world, 19)
    said = f"The watchdog on node n1 responds, but has not completed a cycle for 14m 0s. {HANGS}"
    labels = {**CRITICAL, "stale": "cycles"}
    world.expect("GPUWatchdogStale", "fires", (labels, _stale("The watchdog on node n1 is hung", said)))


@scenario("GPUWatchdogStale")
def a_node_goes(world: World) -> None:
    """A daemon that is gone does not hang."""
    daemon = world.daemon()
    look(world, daemon, 5)
    world.remove(daemon)
    wait(world, 11)
    world.expect("GPUWatchdogStale", "below")
    wait(world, 30)
    world.expect("GPUWatchdogStale", "below")


def _with_list_of(world: World, daemon: Daemon, minutes: float, second: float | None) -> None:
    """Cycles whose pod list is of this moment; None: there has been none."""
    synced = None if second is None else at(second)
    for now in world.until(minutes):
        daemon.see(trainer_node(4.0, now), pods=PodList(pods=daemon.story.pods, synced=synced))


@scenario("GPUWatchdogStale")
def pods_are_old(world: World) -> None:
    """The pod list may be three minutes old; older ones are told after ten more."""
    labels = {**CRITICAL, "stale": "pods"}
    daemon = world.daemon()
    look(world, daemon, 1)
    _with_list_of(world, daemon, 4, 60)
    world.expect("GPUWatchdogStale", "below")
    restart(world, daemon, 5)
    _with_list_of(world, daemon, 14, 60)
    world.expect("GPUWatchdogStale", "waits")
    _with_list_of(world, daemon, 14.5, 60)
    world.expect("GPUWatchdogStale", "fires", (labels, _no_pods("has received no update of its pod list for 13m 30s.")))
    restart(world, daemon, 15.5)
    _with_list_of(world, daemon, 40, None)
    said = _no_pods("has received no pod list since it started.")
    world.expect("GPUWatchdogStale", "restart", (labels, said))
    look(world, daemon, 40.5)
    world.expect("GPUWatchdogStale", "resolves")


def _no_pods(since: str) -> dict[str, str]:
    return _stale(
        "The watchdog on node n1 has an out-of-date pod list",
        f"The watchdog on node n1 {since} It keeps measuring, but starts no kill or eviction until the list is up to "
        "date again: pods above their GPU memory limit are left alone. Either it can't reach the source of the list, "
        "normally the API server, or it lacks permission to list pods. "
        f"To find out which: {EXEC}gpu-watchdog doctor",
    )


def _blind(world: World, daemon: Daemon, minutes: float, *, every: int = 1) -> None:
    """Cycles of which each, or each second one and so on, finds the driver silent."""
    silent = (Gap(reason=GapReason.NVML_UNAVAILABLE, what="NVML", problem=Problem("x")),)
    for number, second in enumerate(world.until(minutes)):
        daemon.see(cards(second, gaps=() if number % every else silent))


@scenario("GPUWatchdogStale")
def driver_does_not_answer(world: World) -> None:
    """Silence in half of the cycles is trouble that passes; in more than half, for ten minutes, it does not."""
    labels = {**CRITICAL, "stale": "driver"}
    said = _stale(
        "The GPU driver on node n1 does not answer the watchdog",
        "On node n1 the GPU driver (NVML) has not answered in most cycles of the last 10 minutes. GPU memory is "
        "neither measured nor limited there. Check whether nvidia-smi works on the node. The watchdog's "
        f"diagnosis: {EXEC}gpu-watchdog doctor",
    )
    daemon = world.daemon()
    _blind(world, daemon, 20, every=2)
    world.expect("GPUWatchdogStale", "below")
    look(world, daemon, 26)
    _blind(world, daemon, 38.5)  # more than half of the cycles of five minutes since 29:00
    world.expect("GPUWatchdogStale", "waits")
    _blind(world, daemon, 39)
    world.expect("GPUWatchdogStale", "fires", (labels, said))
    restart(world, daemon, 40)
    _blind(world, daemon, 42)
    world.expect("GPUWatchdogStale", "restart", (labels, said))
    look(world, daemon, 46)
    world.expect("GPUWatchdogStale", "resolves")
