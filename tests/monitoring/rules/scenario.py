"""The table of scenarios: each is a function that lets time pass in a world, and says which alerts there are when."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.monitoring.rules.world import Daemon, Firing, Labels, World
from tests.worlds import Gi, Mi, at, gpu, process, snapshot, use
from watchdog.core.model import Gpu, MaintenanceStart, Pod, Snapshot

Scenario = Callable[[World, Daemon], None]
SCENARIOS: Final[list[tuple[str, Scenario, Mapping[str, Any]]]] = []
# Of a/trainer with three processes in four contexts: 8Gi and 2 % of it, and four times 512Mi.
ALLOWED: Final = 8 * Gi * 102 // 100 + 4 * 512 * Mi
# The smallest step that the numbers of these worlds have.
A_LITTLE: Final = Mi
# How the alerts have a command run in the daemon of node n1.
EXEC: Final = "kubectl -n gpu-memory-watchdog exec gpu-watchdog-n1 -- "


def scenario(alert: str, **story: Any) -> Callable[[Scenario], Scenario]:
    """Enter a scenario that is about this alert; it begins with a daemon on n1, whose `Story` is made of `story`."""

    def enter(made: Scenario) -> Scenario:
        SCENARIOS.append((alert, made, story))
        return made

    return enter


def under_maintenance(since_s: float) -> Mapping[str, Any]:
    """The fields of a report while a label of the node says so, since this second of the scenario."""
    start = MaintenanceStart(at=at(since_s), seen=True)
    return {
        "maintenance": "the node's label nvidia.com/mig.config.state is pending",
        "maintenance_start": start,
        "enforcing": False,
        "suspended": ("maintenance",),
    }


def firing(labels: Labels, summary: str, description: str) -> Firing:
    """An alert that fires, by its labels and texts."""
    return Firing(labels=labels, summary=summary, description=description)


def cards(second: float, *gpus: Gpu, **more: Any) -> Snapshot:
    """Cards on which no process runs."""
    return snapshot(gpus=gpus or (gpu(used=Gi),), second=second, **more)


def runs(second: float, pod: Pod, used: int, *gpus: Gpu) -> Snapshot:
    """One process of a pod, and what it uses of the first card."""
    uses, processes = [use(101, used)], [process(101, f"{pod.uid}/main")]
    return snapshot(uses, processes, gpus or (gpu(used=used),), second)
