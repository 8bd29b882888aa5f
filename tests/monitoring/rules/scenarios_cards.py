"""Alerts about a card: gone, full, or used outside any pod."""

from tests.monitoring.rules.scenario import A_LITTLE, EXEC, cards, firing, scenario, under_maintenance
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu

GOOD = (gpu(0, used=Gi), gpu(1, used=Gi))
SILENT = tuple(gpu(number, up=False, used=None) for number in (0, 1))
DOWN = (gpu(0, used=Gi), gpu(1, up=False, listed=False, used=None))
LOST = firing(
    {"node": "n1", "gpu": "GPU-1", "severity": "critical"},
    "A GPU of node n1 has stopped responding",
    "GPU GPU-1 (Stub, index 1) of node n1 has not responded for 5 minutes, or has disappeared. Pods on it "
    "fail or hang. How much of it they use is unknown, so that counts for no kill or eviction. If "
    "GPUWatchdogMaintenanceOverdue fires too, start there. Check for Xid "
    "errors on the node: dmesg | grep -i -e nvrm -e xid; keep new pods away: kubectl cordon n1",
)


def _show(daemon: Daemon, minutes: float, gpus: tuple[Gpu, ...], *gaps: GapReason) -> World:
    found = tuple(Gap(reason=each, what="GPU-1", problem=Problem("x")) for each in gaps)
    return daemon.sees(minutes, lambda second: cards(second, *gpus, gaps=found))


@scenario("GPUMemoryCardLost")
def card_is_down(world: World, daemon: Daemon) -> None:
    """A card that does not answer for five minutes; one that answers without saying what is in use is not lost."""
    _show(daemon, 6, (gpu(0, used=Gi), gpu(1, used=None)), GapReason.MEMORY).expect("below")
    _show(daemon, 11, DOWN, GapReason.GPU_LOST).expect("waits")
    _show(daemon, 11.5, DOWN, GapReason.GPU_LOST).expect("fires", LOST)
    daemon.restart(12.5)
    _show(daemon, 13, DOWN, GapReason.GPU_LOST).expect("restart", LOST)
    _show(daemon, 13.5, GOOD).expect("resolves")


@scenario("GPUMemoryCardLost")
def card_is_not_listed(world: World, daemon: Daemon) -> None:
    """A daemon that is started again never saw the card that has fallen off the bus: the older series show it."""
    _show(daemon, 1, GOOD)
    daemon.restart(2)
    _show(daemon, 30, GOOD[:1]).expect("restart", LOST)
    _show(daemon, 30.5, GOOD).expect("resolves")


@scenario("GPUMemoryCardLost")
def card_is_under_maintenance(world: World, daemon: Daemon) -> None:
    """While the driver is released no card is lost, nor right after it; nor when the node and its daemon are gone."""
    _show(daemon, 1, GOOD)
    _show(daemon, 20, SILENT, GapReason.MAINTENANCE).expect("below")
    _show(daemon, 21, GOOD)
    world.remove(daemon)
    world.wait(40).expect("below")


@scenario("GPUMemoryCardLost")
def card_is_under_maintenance_that_does_not_end(world: World, daemon: Daemon) -> None:
    """Maintenance silences a lost card for an hour only; after that each card fires until it is over."""
    _show(daemon, 1, GOOD)
    gaps = (Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem("x")),)

    def under(minutes: float) -> World:
        return daemon.sees(minutes, lambda second: cards(second, *SILENT, gaps=gaps), **under_maintenance(60))

    under(66).expect("waits")
    under(66.5).expect("fires", LOST, LOST.on({"gpu": "GPU-0"}).but("GPU-1", "GPU-0").but("index 1", "index 0"))
    _show(daemon, 67, GOOD).expect("resolves")


@scenario("GPUMemoryCardLost")
def driver_is_silent(world: World, daemon: Daemon) -> None:
    """A driver that is silent as a whole is reported once, by GPUWatchdogStale, and not for each card."""
    _show(daemon, 6, GOOD)
    _show(daemon, 30, SILENT, GapReason.DRIVER_UNAVAILABLE).expect("below")


@scenario("GPUMemoryCardLost")
def driver_hangs(world: World, daemon: Daemon) -> None:
    """No cycle ends, and no card is up then: GPUWatchdogStale alone reports that too; so also after a restart."""
    _show(daemon, 6, GOOD)
    world.wait(20)
    world.gives("count by (cluster, node) (gpu_watchdog_gpu_up == 0)", ({"node": "n1"}, len(GOOD)))
    world.expect("below")
    daemon.restart(21)
    world.wait(40).expect("below")


UNATTRIBUTED = firing(
    {"node": "n1", "gpu": "GPU-0", "severity": "warning"},
    "15% of a GPU of node n1 is used by processes outside any known pod",
    "On GPU GPU-0 of node n1 processes that belong to no known pod have used more than 10% of the memory for 15 "
    "minutes: 12GiB of 80GiB. No action is taken on them, and the pods on this GPU have that much less memory. Which "
    f"processes these are, and why they are unattributed: {EXEC}gpu-watchdog scan",
)


def _host(daemon: Daemon, minutes: float, used: int) -> World:
    return daemon.sees(
        minutes, lambda second: snapshot([use(9, used)], [process(9, None)], (gpu(used=used + Gi),), second)
    )


@scenario("GPUMemoryUnattributed")
def unattributed(world: World, daemon: Daemon) -> None:
    """A tenth of the card may be unattributed; more than that not for a quarter of an hour."""
    _host(daemon, 20, 8 * Gi).expect("below")
    _host(daemon, 24, 8 * Gi + A_LITTLE)
    daemon.restart(25)
    _host(daemon, 35, 12 * Gi).expect("waits")
    _host(daemon, 35.5, 12 * Gi).expect("fires", UNATTRIBUTED)
    daemon.restart(36.5).expect("restart", UNATTRIBUTED)
    _host(daemon, 37, Gi).expect("resolves")


RESIDUAL = firing(
    {"node": "n1", "gpu": "GPU-0", "severity": "warning"},
    "15% of a GPU of node n1 is in use by no process",
    "On GPU GPU-0 of node n1 more than 10% of the memory has been in use by no listed process for 15 minutes: 12GiB of "
    "80GiB. It counts for no pod, so nothing limits it. Usually a pod uses managed (UVM) memory, or keeps memory whose "
    "process has ended.",
)


def _nobody(daemon: Daemon, minutes: float, residual: int) -> World:
    card = gpu(used=8 * Gi + residual, reserved=Gi)
    return daemon.sees(minutes, lambda second: snapshot([use(9, 7 * Gi)], [process(9, None)], (card,), second))


@scenario("GPUMemoryResidual")
def residual(world: World, daemon: Daemon) -> None:
    """A tenth of the card may be in use by no process; more than that not for a quarter of an hour."""
    _nobody(daemon, 20, 8 * Gi).expect("below")
    _nobody(daemon, 24, 8 * Gi + A_LITTLE)
    daemon.restart(25)
    _nobody(daemon, 35, 12 * Gi).expect("waits")
    _nobody(daemon, 35.5, 12 * Gi).expect("fires", RESIDUAL)
    daemon.restart(36.5).expect("restart", RESIDUAL)
    _nobody(daemon, 37, Gi).expect("resolves")


FULL = firing(
    {"node": "n1", "gpu": "GPU-0", "severity": "info"},
    "A GPU of node n1 has less than 5% of its memory free",
    "GPU GPU-0 of node n1 has had less than 5% of its memory free for 10 minutes: 77GiB of 80GiB are in use. If one "
    "pod has the whole GPU, this is normal. If pods share it, the next allocation of any of them may fail, even of one "
    "within its limit.",
)


@scenario("GPUMemoryCardNearlyFull")
def card_nearly_full(world: World, daemon: Daemon) -> None:
    """A twentieth of the card is free: enough. A little less for ten minutes, and it fires until that is over."""
    _show(daemon, 12, (gpu(used=76 * Gi),)).expect("below")
    _show(daemon, 15, (gpu(used=76 * Gi + A_LITTLE),))
    daemon.restart(16)
    _show(daemon, 22, (gpu(used=77 * Gi),)).expect("waits")
    _show(daemon, 22.5, (gpu(used=77 * Gi),)).expect("fires", FULL)
    daemon.restart(23.5).expect("restart", FULL)
    _show(daemon, 24, (gpu(used=77 * Gi),))
    # It swings about the threshold: the alert stays for ten minutes.
    _show(daemon, 33.5, (gpu(used=70 * Gi),)).expect("fires", FULL)
    _show(daemon, 34.5, (gpu(used=70 * Gi),)).expect("resolves")
