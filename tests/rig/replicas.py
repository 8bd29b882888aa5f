"""Pods of one Deployment that crash-loop: each that is killed comes back as a pod with a new UID, and is over again."""

from typing import Any, Final

from tests.rig.node import Node, Pod, Tenant
from tests.stub import GIB

_HASH: Final = "7d9c6b5f4"


def deployed_by(name: str) -> dict[str, Any]:
    """The metadata that ties a pod to a Deployment, as its ReplicaSet writes them."""
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-{_HASH}", "controller": True}
    return {"labels": {"pod-template-hash": _HASH}, "ownerReferences": [reference]}


class Replicas:
    """The pods of a Deployment, each with one light process that uses more than it declared."""

    def __init__(self, world: Node, name: str, count: int, *, used: int = GIB, behaviour: str = "plain") -> None:
        """Start them; `Node.write` shows them to the driver and the pod list."""
        self._world = world
        self._name = name
        self._used = used
        self._behaviour = behaviour
        self._living: dict[str, tuple[Pod, Tenant]] = {}
        self.dead: list[str] = []
        for _ in range(count):
            self._add()

    @property
    def uids(self) -> set[str]:
        """The UIDs of those that live."""
        return set(self._living)

    def tend(self) -> int:
        """Put a new pod in the place of each that has died since; how many have died in all."""
        gone = [uid for uid, (_, tenant) in self._living.items() if not tenant.is_alive]
        for uid in gone:
            pod, tenant = self._living.pop(uid)
            tenant.used = 0
            self._world.pods.remove(pod)
            self.dead.append(uid)
            self._add()
        if gone:
            self._world.write()
        return len(self.dead)

    def _add(self) -> None:
        number = len(self._living) + len(self.dead)
        pod = self._world.pod(f"{self._name}-{_HASH}-{number:05}", ("main", "256Mi"), metadata=deployed_by(self._name))
        self._living[pod.uid] = (pod, self._world.start(pod, used=self._used, behaviour=self._behaviour))
