"""How long the switches of docs/rollout.md take over many nodes: `python -m bench.reach --nodes 500`.

Node objects on a real API server, the commands by the real kubectl, and some of the nodes followed by the daemon's own
code. Everything is on one machine, so the way over the network is not in it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.pods import Pods
from tools import programs
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Node
from watchdog.kube.client import Api
from watchdog.kube.informers import NodeInformer

_ANNOTATION: Final = "gpu-memory-watchdog/mode"
_STAGE: Final = "example.com/gpu-memory-stage"
_FOLLOWED: Final = 20
_LIMIT_S: Final = 60.0


def run(plane: ControlPlane, count: int) -> None:
    """Annotate and label all nodes, and print when the command ended and when the last of those followed knew."""
    pods = Pods(plane.api, "default")
    names = [pods.node(f"node-{number:04}", labels={"nvidia.com/gpu.present": "true"}) for number in range(count)]
    api, bell = Api(plane.admin_kubeconfig), Bell()
    feeds = [NodeInformer(api, name, bell) for name in names[:: max(1, count // _FOLLOWED)]]
    for feed in feeds:
        feed.start()
    try:
        _wait(feeds, lambda node: node.known)
        chosen = ("nodes", "-l", "nvidia.com/gpu.present=true", "--overwrite")
        _time(
            plane, feeds, ("annotate", *chosen, f"{_ANNOTATION}=observe"), lambda node: _ANNOTATION in node.annotations
        )
        _time(plane, feeds, ("annotate", *chosen, f"{_ANNOTATION}-"), lambda node: _ANNOTATION not in node.annotations)
        _time(plane, feeds, ("label", *chosen, f"{_STAGE}=enforce"), lambda node: _STAGE in node.labels)
        _time(plane, feeds, ("label", *chosen, f"{_STAGE}-"), lambda node: _STAGE not in node.labels)
    finally:
        for feed in feeds:
            feed.stop()


def _time(
    plane: ControlPlane, feeds: Sequence[NodeInformer], command: Sequence[str], done: Callable[[Node], bool]
) -> None:
    began_s = time.monotonic()
    plane.kubectl(*command)
    ended_s = time.monotonic()
    _wait(feeds, done)
    known_s = time.monotonic()
    print(
        f"kubectl {' '.join(command)}: {ended_s - began_s:.1f} s; known to all followed after {known_s - began_s:.1f} s"
    )


def _wait(feeds: Sequence[NodeInformer], done: Callable[[Node], bool]) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not all(done(feed.read(clock.now())[0]) for feed in feeds):
        if time.monotonic() > deadline_s:
            raise TimeoutError("a node that is followed is not as it should be")
        time.sleep(0.02)


def main() -> None:
    """A control plane of its own, without controllers and kubelets."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=500)
    count = arguments.parse_args().nodes
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", programs=programs.programs(), controllers=False, scheduler=False) as plane,
    ):
        run(plane, count)


if __name__ == "__main__":
    main()
