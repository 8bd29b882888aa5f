"""A time in which the real daemon and the real controllers work against each other, and what it came to."""

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.api import Object
from tests.cluster.card import Card
from tests.cluster.node import Cluster
from tests.cluster.node_daemon import NodeDaemon, node_daemon
from tests.cluster.real_pods import MEMORY, wait_until
from tests.cluster.recorder import Recorder
from tests.cluster.told import Told, told

# No allowance, so that what is declared is the mark.
_HEAD: Final = """
mode = "enforce"
interval = "1s"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
"""
_RULE: Final = """
[[rule]]
name = "{name}"
match = {{ namespaces = ["{namespace}"] }}
account = "pod"
[[rule.step]]
above = "100%"
for = "0s"
grace = "1s"
{action}
"""
_BEGUN: Final = ("kill_begun", "evict_begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the policy does in a namespace of the cluster."""

    namespace: str
    action: str


@dataclass(frozen=True, kw_only=True)
class Life:
    """The daemon at work in some rooms, each with its name; what has happened there can be asked at any time."""

    cluster: Cluster
    rooms: Mapping[str, Room]
    daemon: NodeDaemon
    recorder: Recorder

    def told(self, room: str, app: str) -> Told:
        """What has been seen of a workload's pods."""
        return told(self.recorder, self.rooms[room].namespace, app)

    def actions(self, room: str, app: str) -> list[Object]:
        """The kills and evictions of a workload's pods that have begun, as the daemon logged them."""
        return self._logged(room, app, *_BEGUN)

    def releases_s(self, room: str, app: str) -> list[float]:
        """How long it took each time until the memory was seen free: from the first signal, or the eviction."""
        return [line["release_s"] for line in self._logged(room, app, "released")]

    def job(self, room: str, name: str) -> Object:
        """The status of a Job."""
        namespace = self.rooms[room].namespace
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        found: Object = self.cluster.control_plane.api.ask("GET", path)["status"]
        return found

    def verdicts(self, room: str, name: str) -> dict[str, str]:
        """The conditions of a Job that are true, each with its reason."""
        conditions = self.job(room, name).get("conditions", ())
        return {each["type"]: each["reason"] for each in conditions if each["status"] == "True"}

    def _logged(self, room: str, app: str, *events: str) -> list[Object]:
        namespace = self.rooms[room].namespace
        names = {change.pod["metadata"]["name"] for change in self.recorder.of(namespace, app)}
        lines = (line for line in self.daemon.log() if line["event"] in events)
        return [line for line in lines if line["namespace"] == namespace and line["pod"] in names]

    def apply(self, room: str, *objects: Object) -> None:
        """Create objects in a room."""
        self.cluster.control_plane.apply(objects, namespace=self.rooms[room].namespace)

    def wait(self, true: Callable[[], bool], what: str | Callable[[], str], limit_s: float = 120) -> None:
        """Wait until something is true, while the daemon runs."""

        def look() -> bool:
            assert self.daemon.process.poll() is None, "the daemon has ended"
            return true()

        wait_until(look, what, limit_s, pause_s=0.5)


@contextlib.contextmanager
def life(cluster: Cluster, folder: Path, actions: Mapping[str, str], *, more: str = "") -> Iterator[Life]:
    """Run the daemon with a rule for each action, which is the end of a `[[rule.step]]`, in a namespace of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rooms = {name: Room(namespace=cluster.new_namespace(name), action=action) for name, action in actions.items()}
    rules = (_RULE.format(name=name, namespace=room.namespace, action=room.action) for name, room in rooms.items())
    policy = folder / "policy.toml"
    policy.write_text(_HEAD + "".join(rules) + more, encoding="utf-8")
    plane = cluster.control_plane
    cluster.set_capacity(MEMORY, "1Ti")
    try:
        with (
            Card(folder, cluster.cgroups) as card,
            Recorder(plane.api, plane.token("admin")) as recorder,
            node_daemon(cluster, card, policy) as daemon,
        ):
            yield Life(cluster=cluster, rooms=rooms, daemon=daemon, recorder=recorder)
    finally:
        for room in rooms.values():
            cluster.drop_namespace(room.namespace)
        cluster.set_capacity(MEMORY, None)


def table(of: Life, apps: Mapping[str, tuple[str, ...]], seconds: float) -> str:
    """What each workload came to, a line each, for the record."""
    lines = [f"after {seconds:.0f} s:"]
    for room, names in apps.items():
        for app in names:
            one, releases_s = of.told(room, app), of.releases_s(room, app)
            free_s = f"{statistics.median(releases_s):.1f}" if releases_s else "-"
            actions = f"actions={len(of.actions(room, app))} free_s={free_s}"
            lines.append(f"{room:9} {app:12} {actions} {json.dumps(_plain(one))}")
    return "\n".join(lines)


def _plain(one: Told) -> dict[str, object]:
    return {name: sorted(value) if isinstance(value := getattr(one, name), set) else value for name in one.__slots__}


def elapsed(began: float) -> float:
    """How long ago a moment of time.monotonic() was."""
    return time.monotonic() - began
