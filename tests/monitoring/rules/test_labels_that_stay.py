"""Labels and annotations of a node that never go away: what each does to enforcement, and which alert it has."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.rules.promtool import ALERTS, hold
from tests.monitoring.rules.scenarios_enforcement import OVERDUE, SHORT
from tests.monitoring.rules.world import World
from tests.report.build import trainer_node
from tests.worlds import at
from watchdog.core.model import MaintenanceStart, Node
from watchdog.core.rules import MIG_STATE, MODE, RELEASE, UPGRADE_STATE, switches
from watchdog.daemon.enforcement import Enforcement

pytestmark = pytest.mark.slow
ON_HOST: Final = {"nvidia.com/gpu.deploy.driver": "pre-installed"}
STATES: Final = (
    *("cordon-required", "wait-for-jobs-required", "pod-deletion-required", "drain-required", "pod-restart-required"),
    *("node-maintenance-required", "post-maintenance-required"),
)
OTHER_STATES: Final = (
    *("", "upgrade-required", "validation-required", "uncordon-required", "upgrade-done", "upgrade-failed"),
    "some-later-state",
)
# Labels, annotations, and whether the GPUs are under maintenance: then nothing is enforced, and it has its alert.
ROWS: Final[tuple[tuple[Mapping[str, str], Mapping[str, str], bool], ...]] = (
    *(({MIG_STATE: state}, {}, True) for state in ("pending", "rebooting")),
    *(({MIG_STATE: state}, {}, False) for state in ("success", "failed", "")),
    *(({UPGRADE_STATE: state, **driver}, {}, True) for state in STATES for driver in ({}, ON_HOST)),
    *(({UPGRADE_STATE: state, **driver}, {}, False) for state in OTHER_STATES for driver in ({}, ON_HOST)),
    ({MIG_STATE: "success", UPGRADE_STATE: "pod-restart-required"}, {}, True),
    ({MIG_STATE: "pending", UPGRADE_STATE: "upgrade-done"}, {}, True),
    *(({}, {RELEASE: value}, True) for value in ("", "true", "by hand")),
    ({}, {RELEASE: "false"}, False),
    ({"nvidia.com/gpu.deploy.driver": "paused-for-driver-upgrade"}, {}, False),
    ({MODE: "observe", RELEASE: ""}, {MIG_STATE: "pending"}, False),  # each is in the other's place
)


def _world(labels: Mapping[str, str], annotations: Mapping[str, str], *, lasts: bool, enforces: bool) -> World:
    """A node whose object stays like this for longer than alert_after, of a daemon that would enforce or not."""
    world = World(alert="GPUWatchdogMaintenanceOverdue")
    why = switches(Node(name="n1", labels=labels, annotations=annotations), ()).maintenance
    enforcement = Enforcement(enforcing=enforces, suspended=())
    enforcement = enforcement if why is None else enforcement.suspended_by("maintenance")
    start = MaintenanceStart(at=at(0), seen=False)
    world.daemon(under=SHORT).sees(
        13.5,
        partial(trainer_node, 4.0),
        maintenance=why,
        maintenance_start=None if why is None else start,
        enforcing=enforcement.enforcing,
        suspended=enforcement.suspended,
    )
    named = {"node": "n1", "watchdog_pod": "gpu-watchdog-n1", "watchdog_namespace": "gpu-memory-watchdog"}
    target = {**named, "job": "gpu-memory-watchdog", "instance": "gpu-watchdog-n1:9837"}
    reason = [({**target, "reason": "maintenance"}, 1.0)] if lasts and enforces else []
    world.gives("gpu_watchdog_enforcement_suspended", *reason)
    world.gives("gpu_watchdog_enforcing", (target, float(enforces and not lasts)))
    world.gives("gpu_watchdog_maintenance_since_timestamp_seconds", *([(target, 0.0)] if lasts else []))
    world.expect("fires" if lasts else "below", *([OVERDUE.but("1h 3m 30s", "13m 30s")] if lasts else []))
    return world


@pytest.mark.parametrize("enforces", [True, False], ids=["enforce", "observe"])
def test_labels_that_never_end(enforces: bool, tmp_path: Path) -> None:
    """Point 41: what stays on a node is maintenance, with its suspension and, in both modes, its alert; or nothing."""
    hold((_world(labels, more, lasts=lasts, enforces=enforces) for labels, more, lasts in ROWS), tmp_path, ALERTS)
