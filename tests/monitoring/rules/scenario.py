"""The table of scenarios: each is a function that lets time pass in a world, and says which alerts there are when."""

from collections.abc import Callable
from typing import Any, Final

from tests.export.build import trainer_node
from tests.monitoring.rules.world import Daemon, World
from tests.worlds import Gi, Mi, gpu, process, snapshot, use
from tools.release.address import PLACEHOLDER
from watchdog.core.model import Gpu, Pod, Snapshot

Scenario = Callable[[World], None]
SCENARIOS: Final[list[tuple[str, Scenario]]] = []
# Of a/trainer with three processes in four contexts: 8Gi and 2 % of it, and four times 512Mi.
ALLOWED: Final = 8 * Gi * 102 // 100 + 4 * 512 * Mi
# The smallest step that the numbers of these worlds have.
A_LITTLE: Final = Mi
BASE: Final = f"{PLACEHOLDER}/docs/runbooks.md"
# How the alerts have a command run in the daemon of node n1.
EXEC: Final = "kubectl -n gpu-memory-watchdog exec gpu-watchdog-n1 -- "


def scenario(alert: str) -> Callable[[Scenario], Scenario]:
    """Enter a scenario that is about this alert."""

    def enter(made: Scenario) -> Scenario:
        SCENARIOS.append((alert, made))
        return made

    return enter


def told(alert: str, summary: str, description: str) -> dict[str, str]:
    """The annotations of an alert."""
    return {"summary": summary, "description": description, "runbook_url": f"{BASE}#{alert.lower()}"}


def cards(second: float, *gpus: Gpu, **more: Any) -> Snapshot:
    """Cards on which nobody runs."""
    return snapshot(gpus=gpus or (gpu(used=Gi),), second=second, **more)


def runs(second: float, pod: Pod, used: int, *gpus: Gpu) -> Snapshot:
    """One process of a pod that uses so much of the first card."""
    uses, processes = [use(101, used)], [process(101, f"{pod.uid}/main")]
    return snapshot(uses, processes, gpus or (gpu(used=used),), second)


def wait(world: World, minutes: float) -> None:
    """Nobody looks until then, and scrapes go on."""
    for _ in world.until(minutes):
        pass


def look(world: World, daemon: Daemon, minutes: float) -> None:
    """The daemon looks until then at a node where all is well."""
    for second in world.until(minutes):
        daemon.see(trainer_node(4.0, second))


def restart(world: World, daemon: Daemon, minutes: float) -> None:
    """The daemon is away until then, and another one takes its place, which has counted nothing."""
    daemon.is_up = False
    wait(world, minutes)
    daemon.is_up = True
    daemon.begin_anew()
