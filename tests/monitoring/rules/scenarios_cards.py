"""Alerts about a card: gone, full, or used by who is in no pod."""

from tests.monitoring.rules.scenario import A_LITTLE, EXEC, cards, restart, scenario, told, wait
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu

CARD = {"node": "n1", "gpu": "GPU-1"}
GOOD = (gpu(0, used=Gi), gpu(1, used=Gi))
DOWN = (gpu(0, used=Gi), gpu(1, up=False, listed=False, used=None))
LOST_LABELS = {**CARD, "severity": "critical"}
LOST = told(
    "GPUMemoryCardLost",
    "A GPU of node n1 has stopped responding",
    "GPU GPU-1 (Stub, index 1) of node n1 has not responded for 5 minutes, or has disappeared. Pods on it "
    "fail or hang. How much of it they use is unknown, so that counts for no kill or eviction. Check for Xid "
    "errors on the node: dmesg | grep -i -e nvrm -e xid; keep new pods away: kubectl cordon n1",
)


def _show(world: World, daemon: Daemon, minutes: float, gpus: tuple[Gpu, ...], *gaps: GapReason) -> None:
    found = tuple(Gap(reason=each, what="GPU-1", problem=Problem("x")) for each in gaps)
    for second in world.until(minutes):
        daemon.see(cards(second, *gpus, gaps=found))


@scenario("GPUMemoryCardLost")
def card_is_down(world: World) -> None:
    """A card that does not answer for five minutes; one that answers without saying what is in use is not lost."""
    daemon = world.daemon()
    _show(world, daemon, 6, (gpu(0, used=Gi), gpu(1, used=None)), GapReason.MEMORY)
    world.expect("GPUMemoryCardLost", "below")
    _show(world, daemon, 11, DOWN, GapReason.GPU_LOST)
    world.expect("GPUMemoryCardLost", "waits")
    _show(world, daemon, 11.5, DOWN, GapReason.GPU_LOST)
    world.expect("GPUMemoryCardLost", "fires", (LOST_LABELS, LOST))
    restart(world, daemon, 12.5)
    _show(world, daemon, 13, DOWN, GapReason.GPU_LOST)
    world.expect("GPUMemoryCardLost", "restart", (LOST_LABELS, LOST))
    _show(world, daemon, 13.5, GOOD)
    world.expect("GPUMemoryCardLost", "resolves")


@scenario("GPUMemoryCardLost")
def card_is_not_listed(world: World) -> None:
    """A daemon that is started again never heard of the card that has fallen off the bus: the series of before tell."""
    daemon = world.daemon()
    _show(world, daemon, 1, GOOD)
    restart(world, daemon, 2)
    _show(world, daemon, 30, GOOD[:1])
    world.expect("GPUMemoryCardLost", "restart", (LOST_LABELS, LOST))
    _show(world, daemon, 30.5, GOOD)
    world.expect("GPUMemoryCardLost", "resolves")


@scenario("GPUMemoryCardLost")
def card_is_under_maintenance(world: World) -> None:
    """While the driver is let go no card is lost, nor right after it; nor when the node and its daemon are gone."""
    daemon = world.daemon()
    _show(world, daemon, 1, GOOD)
    _show(world, daemon, 20, tuple(gpu(number, up=False, used=None) for number in (0, 1)), GapReason.MAINTENANCE)
    world.expect("GPUMemoryCardLost", "below")
    _show(world, daemon, 21, GOOD)
    world.remove(daemon)
    for _ in world.until(40):
        pass
    world.expect("GPUMemoryCardLost", "below")


@scenario("GPUMemoryCardLost")
def driver_is_silent(world: World) -> None:
    """A driver that is silent as a whole is told once, by GPUWatchdogStale, and not for each card."""
    daemon = world.daemon()
    _show(world, daemon, 6, GOOD)
    _show(world, daemon, 30, tuple(gpu(number, up=False, used=None) for number in (0, 1)), GapReason.NVML_UNAVAILABLE)
    world.expect("GPUMemoryCardLost", "below")


@scenario("GPUMemoryCardLost")
def driver_hangs(world: World) -> None:
    """No cycle ends, and no card is up then: that too is told once, by GPUWatchdogStale; so also after a restart."""
    daemon = world.daemon()
    _show(world, daemon, 6, GOOD)
    wait(world, 20)
    world.gives("count by (cluster, node) (gpu_watchdog_gpu_up == 0)", ({"node": "n1"}, len(GOOD)))
    world.expect("GPUMemoryCardLost", "below")
    restart(world, daemon, 21)
    wait(world, 40)
    world.expect("GPUMemoryCardLost", "below")


UNATTRIBUTED_LABELS = {"node": "n1", "gpu": "GPU-0", "severity": "warning"}
UNATTRIBUTED = told(
    "GPUMemoryUnattributed",
    "15% of a GPU of node n1 is used by processes outside any known pod",
    "On GPU GPU-0 of node n1 processes that belong to no known pod have used more than 10% of the memory for 15 "
    "minutes: 12GiB of 80GiB. No action is taken on them, and the pods on this GPU have that much less memory. Which "
    f"processes these are, and why they are unattributed: {EXEC}gpu-watchdog scan",
)


def _host(world: World, daemon: Daemon, minutes: float, used: int) -> None:
    for second in world.until(minutes):
        daemon.see(snapshot([use(9, used)], [process(9, None)], (gpu(used=used + Gi),), second))


@scenario("GPUMemoryUnattributed")
def unattributed(world: World) -> None:
    """A tenth of the card may be anybody's; more than that not for a quarter of an hour."""
    daemon = world.daemon()
    _host(world, daemon, 20, 8 * Gi)
    world.expect("GPUMemoryUnattributed", "below")
    _host(world, daemon, 24, 8 * Gi + A_LITTLE)
    restart(world, daemon, 25)
    _host(world, daemon, 35, 12 * Gi)
    world.expect("GPUMemoryUnattributed", "waits")
    _host(world, daemon, 35.5, 12 * Gi)
    world.expect("GPUMemoryUnattributed", "fires", (UNATTRIBUTED_LABELS, UNATTRIBUTED))
    restart(world, daemon, 36.5)
    world.expect("GPUMemoryUnattributed", "restart", (UNATTRIBUTED_LABELS, UNATTRIBUTED))
    _host(world, daemon, 37, Gi)
    world.expect("GPUMemoryUnattributed", "resolves")


FULL_LABELS = {"node": "n1", "gpu": "GPU-0", "severity": "info"}
FULL = told(
    "GPUMemoryCardNearlyFull",
    "A GPU of node n1 has less than 5% of its memory free",
    "GPU GPU-0 of node n1 has had less than 5% of its memory free for 10 minutes: 77GiB of 80GiB are in use. If one "
    "pod has the whole GPU, this is normal. If pods share it, the next allocation of any of them may fail, even of one "
    "within its limit.",
)


@scenario("GPUMemoryCardNearlyFull")
def card_nearly_full(world: World) -> None:
    """A twentieth of the card is free: enough. A little less for ten minutes, and it is told until that is over."""
    daemon = world.daemon()
    _show(world, daemon, 12, (gpu(used=76 * Gi),))
    world.expect("GPUMemoryCardNearlyFull", "below")
    _show(world, daemon, 15, (gpu(used=76 * Gi + A_LITTLE),))
    restart(world, daemon, 16)
    _show(world, daemon, 22, (gpu(used=77 * Gi),))
    world.expect("GPUMemoryCardNearlyFull", "waits")
    _show(world, daemon, 22.5, (gpu(used=77 * Gi),))
    world.expect("GPUMemoryCardNearlyFull", "fires", (FULL_LABELS, FULL))
    restart(world, daemon, 23.5)
    world.expect("GPUMemoryCardNearlyFull", "restart", (FULL_LABELS, FULL))
    _show(world, daemon, 24, (gpu(used=77 * Gi),))
    # It swings about the mark: the alert stays for ten minutes.
    _show(world, daemon, 33.5, (gpu(used=70 * Gi),))
    world.expect("GPUMemoryCardNearlyFull", "fires", (FULL_LABELS, FULL))
    _show(world, daemon, 34.5, (gpu(used=70 * Gi),))
    world.expect("GPUMemoryCardNearlyFull", "resolves")
