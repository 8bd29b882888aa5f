"""What the Kubernetes API adds to the daemon's memory: the same pods from a real API server, and from a file.

`python -m bench.sizes_api` runs this alone, in some minutes; it builds Kubernetes the first time. docs/sizing.md has
what it printed.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.life import cpu_s, memory_mib
from bench.node import POLICY
from bench.table import show
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from tests.cluster.programs import programs
from tests.rig.command import daemon
from tests.stub import GIB, Stub, StubGpu, preload

_CARDS: Final = 8
_NODES: Final = (40, 250)
_REST_S: Final = 20.0
_NAMESPACE: Final = "default"
_COLUMNS: Final = ("pods", "from", "PSS, MiB", "RSS, MiB", "CPU of one core")
# A pod is about 10 kB long, as real ones are.
_ENV: Final = [{"name": f"VARIABLE_{number}", "value": "a value as they are"} for number in range(80)]


def sizes_with_api() -> None:
    """Measure each node both ways, and print a table."""
    preload()
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", programs=programs(), controllers=False, scheduler=False) as plane,
    ):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        plane.api.ask("POST", f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts", account)
        show("With the API", _COLUMNS, (row for count in _NODES for row in _rows(plane, Path(folder), count)))


def _rows(plane: ControlPlane, folder: Path, count: int) -> Iterator[Sequence[object]]:
    pods, root = Pods(plane.api, _NAMESPACE), folder / str(count)
    node = pods.node()
    for number in range(count):
        wanted = {"limits": {"veriff.com/gpu-memory": "4Gi"}, "requests": {"veriff.com/gpu-memory": "4Gi"}}
        name = f"pod-{count}-{number}"
        pods.create(name, node=node, containers=("main", "logs"), container={"env": _ENV, "resources": wanted})
    root.mkdir()
    file, stub = root / "pods.json", root / "nvml.txt"
    listed = plane.kubectl("get", "pods", "-n", _NAMESPACE, "--field-selector", f"spec.nodeName={node}", "-o", "json")
    file.write_text(listed.stdout, encoding="utf-8")
    cards = (StubGpu(uuid=f"GPU-{number:08}-0000-0000-0000-000000000000", total=80 * GIB) for number in range(_CARDS))
    Stub(gpus=tuple(cards)).write(stub)
    for name, source in {"a file": ("--pods", file), "the API": ("--kubeconfig", plane.admin_kubeconfig)}.items():
        state = root / name.replace(" ", "-")
        state.mkdir()
        options = ("--policy", POLICY, "--node", node, "--journal", state / "journal.db")
        with daemon(state, stub, *options, *source) as running:
            running.wait_passes(5)
            began_s, spent_s = time.monotonic(), cpu_s(running.pid)
            time.sleep(_REST_S)
            rest = (cpu_s(running.pid) - spent_s) / (time.monotonic() - began_s)
            memory = memory_mib(running.pid)
            yield count, name, *(f"{memory[kind]:.0f}" for kind in ("Pss", "Rss")), f"{rest:.2%}"


if __name__ == "__main__":
    sizes_with_api()
