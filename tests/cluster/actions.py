"""What the daemon does with its rights, each part done once by its own code."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from tests.cluster.accounts import Account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.counting import CountingApi
from tests.cluster.event_rig import events_of, warning
from tests.cluster.pods import Pods
from tests.cluster.real_pods import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.eviction import EvictionAnswer, EvictionRequest
from watchdog.core.model import Gpu, Snapshot
from watchdog.core.policy import Capacity, Policy
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.events import EventWriter
from watchdog.kube.evict import evict
from watchdog.kube.informers import NamespaceInformer, NodeInformer, PodInformer
from watchdog.kube.messages import LogMessage
from watchdog.kube.watch import Informer

RESOURCE: Final = "example.com/gpu-memory"
CARD: Final = Gpu(uuid="GPU-0", index=0, name="A100", total=80 * 2**30, reserved=0)


class DaemonWork:
    """Each method does one part of the daemon's work as an account on a node; "" if it worked, else the problem."""

    def __init__(self, plane: ControlPlane, pods: Pods, account: Account, node: str) -> None:
        self._plane = plane
        self._pods = pods
        self._node = node
        self._api = CountingApi(account.kubeconfig)
        self._bell = Bell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    @property
    def parts(self) -> Mapping[str, Callable[[], str]]:
        """Every part by its name."""
        return {
            "follow pods": self.follow_pods,
            "follow the node": self.follow_node,
            "follow namespaces": self.follow_namespaces,
            "write Events": self.write_events,
            "evict": self.evict,
            "advertise": self.advertise,
        }

    def follow_pods(self) -> str:
        """Learn of a pod that comes after the list."""
        return self._follow(PodInformer(self._api, self._node, self._bell), lambda: self._pods.create(node=self._node))

    def follow_node(self) -> str:
        """Learn of a label that comes after the list."""
        label = {"metadata": {"labels": {"tests.invalid/changed": secrets.token_hex(3)}}}
        path = f"/api/v1/nodes/{self._node}"
        return self._follow(
            NodeInformer(self._api, self._node, self._bell), lambda: self._plane.api.ask("PATCH", path, label)
        )

    def follow_namespaces(self) -> str:
        """Learn of a label that comes after the list."""
        label = {"metadata": {"labels": {"tests.invalid/changed": secrets.token_hex(3)}}}
        path = f"/api/v1/namespaces/{self._pods.namespace}"
        return self._follow(NamespaceInformer(self._api, self._bell), lambda: self._plane.api.ask("PATCH", path, label))

    def write_events(self) -> str:
        """Write an Event, and count it on when it occurs again."""
        pod = self._pods.create(node=self._node)
        writer = EventWriter(self._api, self._node)
        said: list[str] = []

        def is_done(count: int) -> bool:
            said.extend(writer.messages.take())
            mine = [e for e in events_of(self._plane, self._pods.namespace) if e["regarding"]["uid"] == uid]
            return bool(said) or any((e.get("series") or {"count": 1})["count"] >= count for e in mine)

        uid = pod["metadata"]["uid"]
        try:
            for count in (1, 2):
                writer.offer([warning(pod, float(count))])
                wait_until(lambda count=count: is_done(count), f"an Event was written {count} times")  # type: ignore[misc]
        finally:
            writer.stop(0.1)
        return "; ".join(said)

    def evict(self) -> str:
        """Evict a pod."""
        pod = self._pods.create(node=self._node)["metadata"]
        attempt = EvictionRequest(
            ticket=1,
            number=1,
            namespace=pod["namespace"],
            name=pod["name"],
            uid=pod["uid"],
            grace_s=1,
            is_unsure=False,
            objection=lambda _: None,
            is_wanted=lambda: True,
        )
        reply = evict(self._api, attempt)
        return "" if reply.answer is EvictionAnswer.ACCEPTED else reply.reason

    def advertise(self) -> str:
        """Advertise what a card has."""
        informer = NodeInformer(self._api, self._node, self._bell)
        informer.fetch()
        now = clock.now()
        keeper = CapacityKeeper(self._api)
        policy = Policy(sha256="", source="", capacity=Capacity(resource=RESOURCE, amount=secrets.randbelow(2**30)))
        keeper.keep(informer.read(now)[0], Snapshot(at=now, driver=None, gpus=(CARD,)), policy)
        notes: list[LogMessage] = []

        def has_said() -> bool:
            notes.extend(keeper.take_messages())
            return bool(notes)

        wait_until(has_said, "the capacity was advertised, or not")
        keeper.stop()
        return "; ".join(note.text for note in notes if note.is_problem)

    def _follow(self, informer: Informer[Any, Any], change: Callable[[], object]) -> str:
        self._api.requests.clear()
        informer.start()
        try:
            wait_until(lambda: bool(informer.view.problem or self._api.requests["watch"]), "the list came, or did not")
            informer.take_view()
            change()

            def is_over() -> bool:
                # A second list would show the change, too, and is not what the watch is for.
                return bool(informer.view.problem) or (informer.has_changed() and self._api.requests["list"] == 1)

            wait_until(is_over, "the change came, or did not")
        finally:
            informer.stop()
        return str(informer.view.problem or "")
