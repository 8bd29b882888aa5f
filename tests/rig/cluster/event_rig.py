"""Events of the tests: on which pod they are, and what the API server has of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.kube.pod_events import pod_event
from tests.rig.cluster.api import Object
from tests.rig.cluster.audit import Request
from tests.rig.cluster.control_plane import ControlPlane
from watchdog.core.policy import Events, Policy
from watchdog.kube.client import Api
from watchdog.kube.event_objects import PodEvent
from watchdog.kube.events import EventWriter

NODE: Final = "gpu-node-1"
# Writes Events, and otherwise only follows its node and the pods there.
OBSERVES: Final = Policy(events=Events(observe=True))


@contextmanager
def writing(kubeconfig: Path, *, longest_pause_s: float = 30.0) -> Iterator[EventWriter]:
    """A writer that ends with the test."""
    writer = EventWriter(Api(kubeconfig), NODE, longest_pause_s=longest_pause_s)
    try:
        yield writer
    finally:
        writer.stop(0.3)


def on(pod: Object, of: PodEvent) -> PodEvent:
    """The same, about this pod."""
    meta = pod["metadata"]
    key = (meta["uid"], *of.key[1:])
    return replace(of, namespace=meta["namespace"], pod=meta["name"], uid=meta["uid"], key=key)


def warning(pod: Object, second: float = 0.0, **more: object) -> PodEvent:
    """A warning on this pod, this many seconds after now."""
    return replace(on(pod, pod_event()), at_s=time.time() + second, **more)  # type: ignore[arg-type]


def events_of(plane: ControlPlane, namespace: str) -> list[Object]:
    """The Events that gpu-memory-watchdog has written in a namespace."""
    items = plane.api.ask("GET", f"{path_of(namespace)}?limit=500")["items"]
    return [event for event in items if event["reportingController"] == "gpu-memory-watchdog"]


def path_of(namespace: str, name: str = "") -> str:
    """Where the API has these Events, or this one."""
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events{f'/{name}' if name else ''}"


def asked(plane: ControlPlane, namespace: str) -> list[Request]:
    """The requests about Events of a namespace, by the daemon's own client."""
    found = plane.requests(user_agent="gpu-memory-watchdog/")
    return [each for each in found if each.resource == "events" and each.namespace == namespace]
