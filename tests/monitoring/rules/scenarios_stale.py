"""Alerts about a watchdog that runs and whose knowledge is old: its cycles, its list of pods, its driver."""

from functools import partial

from tests.monitoring.rules.scenario import EXEC, cards, firing, scenario
from tests.monitoring.rules.world import Daemon, Firing, World
from tests.report.build import trainer_node
from tests.worlds import at
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList

HANGS = (
    "Most likely a call into the GPU driver hangs. GPU memory on that node is neither measured nor limited, and its "
    "metrics are out of date. On the node, run: dmesg | grep -i -e nvrm -e xid; if that finds anything, drain and "
    "reboot the node; if not, delete the watchdog's pod: restarting it is safe."
)


def _stale(what: str, summary: str, description: str) -> Firing:
    return firing({"node": "n1", "severity": "critical", "stale": what}, summary, description)


def _hung(since: str) -> Firing:
    described = f"The watchdog on node n1 responds, but has not completed {since}. {HANGS}"
    return _stale("cycles", "The watchdog on node n1 is hung", described)


@scenario("GPUWatchdogStale")
def no_cycle_ends(world: World, daemon: Daemon) -> None:
    """It answers, and its last cycle is two minutes old, for two minutes; so also where it was started again since."""
    daemon.all_is_well(5)
    world.wait(7).expect("below")
    world.wait(9).expect("waits")
    world.wait(9.5).expect("fires", _hung("a cycle for 4m 30s"))
    daemon.restart(11.5).expect("restart", _hung("a cycle for 6m 30s"))
    world.wait(30).expect("restart", _hung("a single cycle since it started"))
    daemon.all_is_well(30.5).expect("resolves")


@scenario("GPUWatchdogStale")
def hanging_fires_once(world: World, daemon: Daemon) -> None:
    """While no cycle ends the list of pods grows old as well, which says nothing of the way to the API server."""
    daemon.all_is_well(5)
    world.wait(19).expect("fires", _hung("a cycle for 14m 0s"))


@scenario("GPUWatchdogStale")
def a_node_goes(world: World, daemon: Daemon) -> None:
    """A daemon that is gone does not hang."""
    daemon.all_is_well(5)
    world.remove(daemon)
    world.wait(11).expect("below")
    world.wait(30).expect("below")


def _with_list_of(daemon: Daemon, minutes: float, second: float | None) -> World:
    """Cycles whose pod list is of this moment; None: there has been none."""
    synced = None if second is None else at(second)
    return daemon.sees(minutes, partial(trainer_node, 4.0), pods=PodList(pods=daemon.story.pods, synced=synced))


def _no_pods(since: str) -> Firing:
    return _stale(
        "pods",
        "The watchdog on node n1 has an out-of-date pod list",
        f"The watchdog on node n1 {since} It keeps measuring, but starts no kill or eviction until the list is up to "
        "date again: pods above their GPU memory limit are left alone. Either it can't reach the source of the list, "
        "normally the API server, or it lacks permission to list pods. "
        f"To find out which: {EXEC}gpu-watchdog doctor",
    )


@scenario("GPUWatchdogStale")
def pods_are_old(world: World, daemon: Daemon) -> None:
    """The pod list may be three minutes old; older ones fire after ten more."""
    daemon.all_is_well(1)
    _with_list_of(daemon, 4, 60).expect("below")
    daemon.restart(5)
    _with_list_of(daemon, 14, 60).expect("waits")
    _with_list_of(daemon, 14.5, 60).expect("fires", _no_pods("has received no update of its pod list for 13m 30s."))
    daemon.restart(15.5)
    _with_list_of(daemon, 40, None).expect("restart", _no_pods("has received no pod list since it started."))
    daemon.all_is_well(40.5).expect("resolves")


def _blind(daemon: Daemon, minutes: float, *, every: int = 1) -> World:
    """Cycles of which each, or each second one and so on, finds the driver silent."""
    silent = (Gap(reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=Problem("x")),)
    for number, second in enumerate(daemon.world.until(minutes)):
        daemon.see(cards(second, gaps=() if number % every else silent))
    return daemon.world


@scenario("GPUWatchdogStale")
def driver_does_not_answer(world: World, daemon: Daemon) -> None:
    """Silence in half of the cycles is trouble that passes; in more than half, for ten minutes, it does not."""
    silent = _stale(
        "driver",
        "The GPU driver on node n1 is not responding",
        "On node n1 the GPU driver (NVML) has not responded in most cycles of the last 10 minutes. GPU memory is "
        "neither measured nor limited there. Check whether nvidia-smi works on the node. The watchdog's "
        f"diagnosis: {EXEC}gpu-watchdog doctor",
    )
    _blind(daemon, 20, every=2).expect("below")
    daemon.all_is_well(26)
    _blind(daemon, 38)  # more than half of the cycles of five minutes since 29:00
    world.expect("waits")
    _blind(daemon, 39).expect("fires", silent)
    daemon.restart(40)
    _blind(daemon, 42).expect("restart", silent)
    daemon.all_is_well(46).expect("resolves")
