"""`kill -9` of the daemon between the drain of an MPS client and its pod's eviction, at a real API server."""

import os
import signal
import threading
from pathlib import Path

from tests.cluster.test_daemon import ApiNode, here
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.event_rig import events_of
from tests.stub.mps import build_control
from tests.world.test_mps import CLIENT, EVICT, server
from tests.world.test_mps_drain import Draining
from watchdog.journal.read import history

__all__ = ["here"]


def test_killed_between_the_drain_and_the_eviction(
    control_plane: ControlPlane, namespace: str, here: ApiNode, tmp_path: Path
) -> None:
    """Points 31 and 36: the pod is neither evicted nor drained again; the journal has who was asked for."""
    made, tenant = here.over()
    shared = server(here.world, "host")
    assert shared is not None
    tenant.lists = CLIENT
    here.world.write(pods=False)
    came, stop, pipe = threading.Event(), threading.Event(), tmp_path / "mps/pipe"

    def hold(_: int) -> None:
        came.set()
        stop.wait(60)

    control = Draining(servers={shared.pid: [tenant.pid]}, refuses={tenant.pid}, then=hold)
    program = build_control(tmp_path / "bin")
    more = f'\n[mps]\ncontrol = "{program}"\npipe = ["{pipe}"]\ntimeout = "30s"\n'
    kubeconfig = here.account(EVICT, more=more).kubeconfig

    def evictions() -> list[bool]:
        """The requests to evict the pod so far: whether each was a dry run."""
        asked = control_plane.requests(user_agent="gpu-memory-watchdog")
        mine = (each for each in asked if (each.namespace, each.subresource) == (namespace, "eviction"))
        return [each.uri.endswith("?dryRun=All") for each in mine]

    with control.listen(pipe):
        with here.running(kubeconfig) as first:
            first.wait(lambda _: came.is_set())
            os.kill(first.pid, signal.SIGKILL)
        stop.set()
        dry_runs = evictions()
        with here.running(kubeconfig) as second:
            second.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
            second.wait_passes(3)
    assert evictions() == dry_runs
    assert set(dry_runs) == {True}
    left = control_plane.api.ask("GET", f"/api/v1/namespaces/{namespace}/pods/hog")["metadata"]
    assert (left["uid"], left.get("deletionTimestamp")) == (made["metadata"]["uid"], None)
    assert (control.drained, tenant.terms, tenant.is_alive) == ([tenant.pid], [], True)
    ended = [(row.event, row.result) for row in history(here.world.journal, None, 0.0) if row.event == "evict_ended"]
    assert ended == [("evict_ended", "interrupted")]
    assert "GPUMemoryEvicted" not in {event["reason"] for event in events_of(control_plane, namespace)}
