"""Two nodes on which everything happens that the metrics report, scraped by a real Prometheus as deploy/ says.

n1 enforces. It has two cards and one with a MIG instance. `vision/trainer` is on both cards and within; `jupyter/nb-7`
is killed; `batch/sweep-3` is to be evicted, for which there is no API here; `lab/creeper` is over and only warned;
`infra/exporter` is protected; `lab/stranger` declares nothing; `vision/small` has the MIG instance; a process of the
host is unattributed; and for some seconds a card does not list its processes. `vision/trainer` and `lab/creeper`
compute on the first card, the others there do not; the second card is idle.

n2 is set to enforce and does not, since there is a stop file; `speech/greedy` is over. The scrape labels
it with a cluster, as those of several clusters do, while n1 has no such label.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pynvml

from tests.monitoring.prometheus import Prometheus, configuration
from tests.monitoring.scraping import plain_job, without_api
from tests.rig import Daemon, Node, Tenant, node
from tests.rig.node import GPU
from tests.stub import GIB, LISTS, MIB, StubGpu, StubMig, StubProcess, StubReturn
from tests.world.policies import HEAD
from tests.world.test_kill import run

INTERVAL_S: Final = 1.0
SECOND: Final = "GPU-00000000-0000-0000-0000-000000000001"
ELSEWHERE: Final = "GPU-00000000-0000-0000-0000-000000000009"
INSTANCE: Final = "MIG-00000000-0000-0000-0000-000000000002"
_MIG_CARD: Final = "GPU-00000000-0000-0000-0000-000000000002"
_PROTECTED: Final = '[protect]\nnamespaces = ["infra"]\n'
_IDLE: Final = '[idle]\nafter = "10s"\nabove = "512Mi"\n'
_COMPUTING: Final = {"trainer": 35, "creeper": 20}  # per cent of the card's time
_STEPS: Final = {
    "notebooks": ("jupyter", 'above = "100%"\nfor = "1s"\ndo = "kill"\nscope = "container"\ngrace = "2s"'),
    "batch": ("batch", 'above = "100%"\nfor = "0s"\ndo = "evict"\ngrace = "2s"'),
    "lab": ("lab", 'above = "100%"\nfor = "0s"\ndo = "warn"'),
    "rest": ("*", 'above = "100%"\nfor = "1s"\ndo = "kill"\nscope = "container"\ngrace = "2s"'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNode:
    """What happened: the daemons, the Prometheus, and from when to when (Unix seconds)."""

    first: Daemon
    second: Daemon
    prometheus: Prometheus
    start: float
    end: float


@contextlib.contextmanager
def shared_node(root: Path, *, pause_s: float = 3.0, cluster: str = "east") -> Iterator[SharedNode]:
    """Let it all happen, with so much time between one thing and the next; `cluster` is n2's label, if it has one."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(node(_folder(root, name))) for name in ("n1", "n2")]
        enforcing, observing = _First(nodes[0]), _Second(nodes[1])
        first, second = (stack.enter_context(_daemon(each)) for each in nodes)
        config = configuration(_job(first, second, cluster), interval="1s")
        running = stack.enter_context(Prometheus(root / "prometheus", config))
        start = time.time()
        running.wait_for("count(gpu_watchdog_build_info) == 2")
        enforcing.grow(pause_s)
        observing.grow(pause_s)
        running.wait_for('gpu_watchdog_actions_total{action="kill", result="done"} >= 1')
        running.wait_for('gpu_watchdog_actions_total{action="evict", result="failed"} >= 1')
        running.wait_for('gpu_watchdog_withheld_total{brake="protected"} >= 1')
        running.wait_for("gpu_watchdog_release_seconds_count >= 1")
        running.wait_for('gpu_watchdog_would_act_total{action="kill"} >= 1')
        enforcing.lose(pause_s)
        end = time.time()
        yield SharedNode(first=first, second=second, prometheus=running, start=start, end=end)


def _folder(root: Path, name: str) -> Path:
    folder = root / name
    (folder / "state").mkdir(parents=True)
    return folder


def _job(first: Daemon, second: Daemon, cluster: str) -> dict[str, Any]:
    job = without_api(plain_job(), (f"127.0.0.1:{first.port}", "n1"), (f"127.0.0.1:{second.port}", "n2"))
    elsewhere = {"source_labels": ["node"], "regex": "n2", "target_label": "cluster", "replacement": cluster}
    often = {"scrape_interval": f"{INTERVAL_S:g}s", "scrape_timeout": f"{INTERVAL_S:g}s"}
    return {**job, **often, "relabel_configs": [*job["relabel_configs"], elsewhere]}


@contextlib.contextmanager
def _daemon(on: Node) -> Iterator[Daemon]:
    policy = on.root / "policy.toml"
    rules = [
        f'[[rule]]\nname = "{name}"\nmatch = {{ namespaces = ["{where}"] }}\n[[rule.step]]\n{step}\n'
        for name, (where, step) in _STEPS.items()
    ]
    policy.write_text("\n".join([HEAD.format(mode="enforce"), *rules, _PROTECTED, _IDLE]), encoding="utf-8")
    with run(on, policy) as running:
        yield running


class _First:
    """n1: the pods on its cards."""

    def __init__(self, world: Node) -> None:
        self._world = world
        self._tenants: dict[str, Tenant] = {}
        for namespace, name, declared, used in (
            ("vision", "trainer", "16Gi", 6 * GIB),
            ("jupyter", "nb-7", "4Gi", 2 * GIB),
            ("batch", "sweep-3", "3Gi", 2 * GIB),
            ("lab", "creeper", "2Gi", GIB),
            ("infra", "exporter", "512Mi", 256 * MIB),
            ("lab", "stranger", None, GIB),
            ("vision", "small", "4Gi", 0),
        ):
            pod = world.pod(name, ("main", declared), namespace=namespace)
            self._tenants[name] = world.start(pod, used=used, behaviour="plain")
            self._tenants[name].utilization = _COMPUTING.get(name, 0)
        world.start(None, used=700 * MIB, behaviour="plain")
        (card,) = world.stub.gpus
        mig = StubMig(uuid=INSTANCE, gi=1, ci=0, profile="3g.20gb", total=20 * GIB)
        world.stub = replace(
            world.stub,
            gpus=(
                replace(card, base=300 * MIB, utilization=60),
                StubGpu(uuid=SECOND, utilization=0, processes=(self._listed("trainer", 4 * GIB),)),
                StubGpu(uuid=_MIG_CARD, migs=(mig,), processes=(replace(self._listed("small", 3 * GIB), gi=1, ci=0),)),
            ),
        )
        world.write()

    def _listed(self, name: str, used: int) -> StubProcess:
        return StubProcess(pid=self._tenants[name].pid, used=used)

    def grow(self, pause_s: float) -> None:
        """First a card lists no processes; then one pod after the other goes over."""
        broken = StubReturn(call=LISTS[0], code=pynvml.NVML_ERROR_UNKNOWN, gpu=SECOND)
        self._world.stub = replace(self._world.stub, returns=(broken,))
        self._world.write(pods=False)
        time.sleep(pause_s)
        self._world.stub = replace(self._world.stub, returns=())
        self._world.write(pods=False)
        for name, used in (("creeper", 4 * GIB), ("exporter", 2 * GIB), ("sweep-3", 5 * GIB), ("nb-7", 9 * GIB)):
            time.sleep(pause_s)
            self._world.use(self._tenants[name], used)

    def lose(self, pause_s: float) -> None:
        """The pod of the killed container goes from the list."""
        self._world.pods = [pod for pod in self._world.pods if pod.name != "nb-7"]
        self._world.write()
        time.sleep(pause_s)


class _Second:
    """n2: one pod, which will be over, and a stop file."""

    def __init__(self, world: Node) -> None:
        self._world = world
        (world.journal.parent / "stop").touch()
        world.stub = replace(world.stub, gpus=(replace(world.stub.gpus[0], uuid=ELSEWHERE),))
        self._greedy = world.start(
            world.pod("greedy", ("main", "4Gi"), namespace="speech"), used=GIB, behaviour="plain"
        )
        world.write()

    def grow(self, pause_s: float) -> None:
        """It uses what it does not declare."""
        time.sleep(pause_s)
        self._world.use(self._greedy, 8 * GIB)


__all__ = ["GPU", "INSTANCE", "INTERVAL_S", "SECOND", "SharedNode", "shared_node"]
