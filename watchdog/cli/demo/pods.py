"""The pods of the demo, and what their processes use over time."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watchdog.core.model import Gpu

_GI: Final = 2**30
# The CUDA driver allocates memory in pages of this size (cuMemGetAllocationGranularity).
_PAGE: Final = 2 * 2**20
_RESOURCE: Final = "veriff.com/gpu-memory"

NODE: Final = "demo-node"
POLICY: Final = Path(__file__).with_name("policy.toml")
CARD: Final = Gpu(
    uuid="GPU-5eed5eed-0000-4000-8000-000000000000",
    index=0,
    name="Simulated 24Gi",
    total=24 * _GI,
    used=0,
    reserved=_GI // 2,
)


@dataclass(frozen=True, slots=True)
class UsageCurve:
    """Straight lines between points; level before the first and after the last."""

    # (second, GiB), with rising seconds.
    points: tuple[tuple[float, float], ...]

    def at(self, second: float) -> int:
        """The bytes held at this second, in whole pages."""
        after = bisect_right(self.points, second, key=lambda point: point[0])
        (begin, first), (end, last) = self.points[max(after - 1, 0)], self.points[min(after, len(self.points) - 1)]
        gib = first if end == begin else first + (last - first) * (second - begin) / (end - begin)
        return int(gib * _GI) // _PAGE * _PAGE


NOTHING: Final = UsageCurve(((0.0, 0.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProcess:
    """A process of a pod."""

    # At most 15 bytes.
    name: str
    # Its use of memory.
    curve: UsageCurve = NOTHING
    ignores_sigterm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPod:
    """A pod with one container."""

    namespace: str
    name: str
    uid: str
    container: str
    container_id: str
    # A quantity.
    declared: str
    # The first one forks the others.
    processes: tuple[SimProcess, ...]

    @property
    def title(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.name}"

    @property
    def cgroup(self) -> str:
        """The text of /proc/PID/cgroup in its container: cgroup v2, systemd driver, containerd."""
        pod = f"kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        return f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{self.container_id}.scope\n"


def pod_list(pods: Iterable[SimPod]) -> dict[str, Any]:
    """What `kubectl get pods -A -o json` would print for these pods."""
    return {"apiVersion": "v1", "kind": "List", "items": [_pod(pod) for pod in pods]}


def _pod(pod: SimPod) -> dict[str, Any]:
    amounts = {_RESOURCE: pod.declared}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": pod.container, "resources": {"limits": amounts, "requests": amounts}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": pod.container,
                    "containerID": f"containerd://{pod.container_id}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


_WITHIN: Final = SimPod(
    namespace="vision",
    name="detector",
    uid="d0000001-0000-4000-8000-000000000001",
    container="serve",
    container_id="a1" * 32,
    declared="8Gi",
    processes=(
        SimProcess(name="detector", curve=UsageCurve(((0, 0), (1.5, 7.0), (5, 7.0), (7, 7.3), (9, 7.3), (11, 7.1)))),
    ),
)
_BURSTS: Final = SimPod(
    namespace="notebooks",
    name="jupyter-7",
    uid="d0000001-0000-4000-8000-000000000002",
    container="notebook",
    container_id="b2" * 32,
    declared="4Gi",
    processes=(
        SimProcess(
            name="notebook",
            curve=UsageCurve(((0, 0), (0.2, 0), (0.8, 3.2), (1.1, 3.2), (1.6, 6.0), (4.7, 6.0), (5.2, 3.3))),
        ),
    ),
)
# The trainer, which uses nearly all of it, is a fork that ignores SIGTERM; the loader uses no GPU memory and is killed
# with its container anyway.
_LEAKS: Final = SimPod(
    namespace="training",
    name="finetune",
    uid="d0000001-0000-4000-8000-000000000003",
    container="train",
    container_id="c3" * 32,
    declared="6Gi",
    processes=(
        SimProcess(name="launcher", curve=UsageCurve(((0.5, 0), (1, 0.6)))),
        SimProcess(
            name="trainer",
            curve=UsageCurve(((0, 0), (0.5, 0), (2, 4.4), (4.6, 4.4), (9.1, 10.6))),
            ignores_sigterm=True,
        ),
        SimProcess(name="loader"),
    ),
)
PODS: Final = (_WITHIN, _BURSTS, _LEAKS)
