"""Tries against the real API server, and what the tests ask of them."""

import time
from collections.abc import Callable

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from watchdog.bell import Bell
from watchdog.core.eviction import Answer, Attempt, Reply, against_evicting
from watchdog.kube.acts.evict import evict
from watchdog.kube.acts.evictor import ApiEvictor
from watchdog.kube.api.client import Api

AGENT = "gpu-memory-watchdog"


def attempt(pod: Object, **more: object) -> Attempt:
    """A try to evict a pod as the test made it, with the objections that no policy can lift."""
    given: dict[str, object] = {
        "ticket": 1,
        "number": 1,
        "namespace": pod["metadata"]["namespace"],
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "grace_s": 30,
        "is_unsure": False,
        "objection": against_evicting,
        "is_wanted": lambda: True,
    }
    return Attempt(**{**given, **more})  # type: ignore[arg-type]


class Bench:
    """One account's tries, with the requests that the server counted since it began."""

    def __init__(self, plane: ControlPlane, pods: Pods, api: Api) -> None:
        self.plane = plane
        self.pods = pods
        self.api = api
        self.began_s = time.time()

    def evict(self, pod: Object, **more: object) -> Reply:
        """One try."""
        return evict(self.api, attempt(pod, **more))

    def requests(self) -> list[tuple[str, str, int]]:
        """What the daemon's account asked for here: verb, subresource and answer, in order, at rest."""
        deadline = time.monotonic() + 5
        while True:
            seen = self.plane.requests(user_agent=AGENT, since=self.began_s)
            mine = [each for each in seen if each.namespace == self.pods.namespace]
            if all(each.ended_s is not None for each in mine) or time.monotonic() > deadline:
                return [(each.verb, each.subresource, each.code) for each in mine]
            time.sleep(0.05)

    def spared(self, *pods: Object) -> bool:
        """Whether these very pods are there, and nobody has begun to delete them."""
        return all(self.pods.exists(pod) and "deletionTimestamp" not in self.pods.read(pod)["metadata"] for pod in pods)


def evicting(api: Api) -> tuple[ApiEvictor, Callable[[int, float], list[Reply]]]:
    """An evictor with its threads, and a way to wait for so many replies by its bell; take all that are to come."""
    bell = Bell()
    evictor = ApiEvictor(api, bell)

    def wait(count: int, limit_s: float) -> list[Reply]:
        found: list[Reply] = []
        deadline = time.monotonic() + limit_s
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} replies"
            if bell.silence():
                found += evictor.take()
            else:
                time.sleep(0.005)
        return found

    return evictor, wait


__all__ = ["AGENT", "Answer", "Bench", "attempt", "evicting"]
