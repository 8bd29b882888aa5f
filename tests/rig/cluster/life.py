"""The real daemon and the real controllers working against each other, and what happened."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.rig.cluster.api import Object
from tests.rig.cluster.card import Card
from tests.rig.cluster.installed_policy import policy_text
from tests.rig.cluster.node import Cluster
from tests.rig.cluster.node_daemon import NodeDaemon, node_daemon
from tests.rig.cluster.pod_history import PodHistory, pod_history
from tests.rig.cluster.real_pods import MEMORY, wait_until
from tests.rig.cluster.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class Life:
    """The daemon at work in some namespaces (`rooms`, by name); what has happened there can be read at any time."""

    cluster: Cluster
    rooms: Mapping[str, str]
    daemon: NodeDaemon
    recorder: Recorder

    def history(self, room: str, app: str) -> PodHistory:
        """What has been seen of a workload's pods."""
        return pod_history(self.recorder, self.rooms[room], app)

    def actions(self, room: str, app: str) -> list[Object]:
        """The kills and evictions of a workload's pods that have begun, as the daemon logged them."""
        return self.logged(room, app, "kill_begun", "evict_begun")

    def job(self, room: str, name: str) -> Object:
        """The status of a Job."""
        namespace = self.rooms[room]
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        found: Object = self.cluster.control_plane.api.ask("GET", path)["status"]
        return found

    def verdicts(self, room: str, name: str) -> dict[str, str]:
        """The conditions of a Job that are true, each with its reason."""
        conditions = self.job(room, name).get("conditions", ())
        return {each["type"]: each["reason"] for each in conditions if each["status"] == "True"}

    def logged(self, room: str, app: str, *events: str) -> list[Object]:
        """The lines of the daemon's log about a workload's pods."""
        namespace = self.rooms[room]
        names = {change.pod["metadata"]["name"] for change in self.recorder.of(namespace, app)}
        lines = (line for line in self.daemon.log() if line["event"] in events)
        return [line for line in lines if line["namespace"] == namespace and line["pod"] in names]

    def apply(self, room: str, *objects: Object) -> None:
        """Create objects in a room."""
        self.cluster.control_plane.apply(objects, namespace=self.rooms[room])

    def wait(self, true: Callable[[], bool], what: str | Callable[[], str], limit_s: float = 120) -> None:
        """Wait until something is true, while the daemon runs."""

        def is_so() -> bool:
            assert self.daemon.process.poll() is None, "the daemon has ended"
            return true()

        wait_until(is_so, what, limit_s, pause_s=0.5)


@contextlib.contextmanager
def life(cluster: Cluster, folder: Path, actions: Mapping[str, str], *, more: str = "") -> Iterator[Life]:
    """Run the daemon with a rule for each action, which is the end of a `[[rule.step]]`, in a namespace of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rooms = {name: cluster.new_namespace(name) for name in actions}
    policy = folder / "policy.toml"
    text = policy_text("enforce", actions, more=more, account="pod", after="0s")
    policy.write_text(text, encoding="utf-8")
    plane = cluster.control_plane
    cluster.set_capacity(MEMORY, "1Ti")
    try:
        with (
            Card(folder, cluster.cgroups) as card,
            Recorder(plane.api, plane.token("admin")) as recorder,
            node_daemon(cluster, card.file, policy) as daemon,
        ):
            yield Life(cluster=cluster, rooms=rooms, daemon=daemon, recorder=recorder)
    finally:
        for room in rooms.values():
            cluster.drop_namespace(room)
        cluster.set_capacity(MEMORY, None)
