"""The queries of docs/metrics.md, and of costs in docs/prometheus.md, and a world in which each has an answer.

To the two nodes of `shared_node` come: n3, on which everything has gone wrong that a daemon can live with; n4, whose
driver has hung from the first call on; n5, whose daemon does not answer; n6, which has GPUs and no daemon; and n7,
whose GPUs are under maintenance.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pynvml
import yaml
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from tests.monitoring.prometheus import Prometheus
from tests.monitoring.scraping import JOB, Config, plain_job, without_api
from tests.monitoring.shared_node import SharedNode, shared_node
from tests.node.support import ENDS_WITH_US, REPOSITORY, wait_until
from tests.ports import free_port
from tests.rig import Daemon, Node, node
from tests.rig.command import COMMAND, daemon
from tests.rig.node import Tenant
from tests.rig.volume import mount
from tests.stub import GIB, LISTS, MIB, Stub, StubDelay, StubGpu, StubProcess, StubReturn, environment
from tests.world.policies import KILL_AT_ONCE, write_policy

PAGE: Final = REPOSITORY / "docs" / "metrics.md"
_COST_PAGE: Final = REPOSITORY / "docs" / "prometheus.md"
COST: Final = "What idle cards cost"
_FENCE: Final = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SILENT: Final = "GPU-00000000-0000-0000-0000-000000000031"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query of a page, and its heading."""

    heading: str
    query: str


def questions() -> list[Question]:
    """Every query of the pages, in their order."""
    sections = PAGE.read_text(encoding="utf-8").partition("\n## Questions\n")[2].split("\n### ")[1:]
    cost = _COST_PAGE.read_text(encoding="utf-8").partition(f"\n## {COST}\n")[2].partition("\n## ")[0]
    sections.append(f"{COST}\n{cost}")
    return [
        Question(heading=section.partition("\n")[0], query=query.strip())
        for section in sections
        for query in _FENCE.findall(section)
    ]


@contextlib.contextmanager
def trouble_everywhere(root: Path) -> Iterator[tuple[SharedNode, Daemon]]:
    """The shared nodes, the daemon of n3, and all of it scraped."""
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(shared_node(root, pause_s=1.5))
        troubled = stack.enter_context(_troubled(root / "n3"))
        hung, dead = stack.enter_context(_hung(root / "n4")), free_port()
        maintained = stack.enter_context(_maintained(root / "n7"))
        ports = ((3, troubled.port), (4, hung), (5, dead), (7, maintained.port))
        others = [(f"127.0.0.1:{port}", f"n{number}") for number, port in ports]
        _scrape_too(shared.prometheus, others, stack.enter_context(_kube_state_metrics()))
        yield shared, troubled


def _scrape_too(prometheus: Prometheus, others: list[tuple[str, str]], kube_state_metrics: int) -> None:
    """Have these daemons scraped as deploy/ says, and what kube-state-metrics would say of the nodes."""
    config: Config = yaml.safe_load(prometheus.file.read_text(encoding="utf-8"))
    job = without_api(plain_job(), *others)
    named = {"target_label": "job", "replacement": JOB}  # a configuration has each name of a job once
    # A scrape that takes longer than its timeout makes the series stale. What never changes needs no short one.
    slowly = {"scrape_interval": "10s", "scrape_timeout": "10s"}
    state = {"job_name": "kube-state-metrics", "honor_labels": True, **slowly}
    config["scrape_configs"] += [
        {**job, "job_name": "others", "relabel_configs": [*job["relabel_configs"], named]},
        {**state, "static_configs": [{"targets": [f"127.0.0.1:{kube_state_metrics}"]}]},
    ]
    prometheus.reload(config)


@contextlib.contextmanager
def _troubled(root: Path) -> Iterator[Daemon]:
    """A daemon that enforces until a stop file is there; its policy, its pods and a card go bad one after the other."""
    (root / "state").mkdir(parents=True)
    with node(root) as world:
        pod = world.pod("secret", ("main", "4Gi"), namespace="lab")
        tenant = world.start(pod, used=GIB, behaviour="plain")
        (card,) = world.stub.gpus
        silent = StubGpu(uuid=_SILENT, processes=(StubProcess(pid=tenant.pid, used=None),))
        world.stub = replace(world.stub, gpus=(card, silent))
        world.write()
        policy = write_policy(root, KILL_AT_ONCE, more='[pulse]\nlooks = "1 per 1h"\n')
        options = ("--policy", policy, "--pods", world.pods_file, "--journal", world.journal)
        with daemon(root, world.stub_file, *options) as running:
            running.wait_passes(1)
            _spend_looks(world, running, tenant)
            _spoil(world, running, policy)
            yield running


@contextlib.contextmanager
def _maintained(root: Path) -> Iterator[Daemon]:
    """A daemon on a node whose MIG manager has left its label behind."""
    (root / "state").mkdir(parents=True)
    with node(root) as world:
        world.mark(labels={"nvidia.com/mig.config.state": "pending"})
        world.write()
        options = ("--pods", world.pods_file, "--node-object", world.node_file, "--journal", world.journal)
        with daemon(root, world.stub_file, "--policy", write_policy(root, KILL_AT_ONCE), *options) as running:
            running.wait_passes(1)
            yield running


def _spend_looks(world: Node, running: Daemon, tenant: Tenant) -> None:
    """Let what a process uses rise until a rise has found no look left."""

    def has_spent(running: Daemon) -> bool:
        world.use(tenant, tenant.used + 17 * MIB)
        return bool(running.metric("pulse_looks_spent_total"))

    running.wait(has_spent)


def _spoil(world: Node, running: Daemon, policy: Path) -> None:
    world.pods_file.unlink()
    (world.journal.parent / "stop").touch()
    mount(policy, "nonsense")
    lost = StubReturn(call="*", code=pynvml.NVML_ERROR_GPU_IS_LOST, gpu=world.stub.gpus[0].uuid)
    world.stub = replace(world.stub, returns=(lost,))
    world.write(pods=False)
    running.wait(lambda d: d.metric("policy_last_reload_successful") == 0)
    running.wait(lambda d: d.metric("gpu_up", gpu=lost.gpu) == 0)


@contextlib.contextmanager
def _hung(root: Path) -> Iterator[int]:
    """A daemon whose first call into the driver never ends; gives its port."""
    root.mkdir()
    stub = Stub(gpus=(StubGpu(uuid="GPU-4"),), delays=(StubDelay(call=LISTS[0], ms=3_600_000),)).write(
        root / "nvml.txt"
    )
    pods = root / "pods.json"
    pods.write_text('{"apiVersion": "v1", "kind": "List", "items": []}', encoding="utf-8")
    options = ("--policy", write_policy(root, KILL_AT_ONCE), "--pods", pods, "--journal", root / "journal.db")
    command: list[str | Path] = [*ENDS_WITH_US, COMMAND, "run", "--listen", "127.0.0.1:0", "--node", "n4", *options]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(stub), stdout=log, stderr=log, cwd=root)
    try:
        running = Daemon(process, root / "log")
        wait_until(lambda: _answers(running))
        yield running.port
    finally:
        process.kill()
        process.wait()


def _answers(running: Daemon) -> bool:
    with contextlib.suppress(OSError):
        return running.get("/metrics")[0] == 200
    return False


@contextlib.contextmanager
def _kube_state_metrics() -> Iterator[int]:
    """What kube-state-metrics says of six nodes with GPUs; gives the port."""
    registry = CollectorRegistry()
    offers = Gauge("kube_node_status_allocatable", "its GPUs", ("node", "resource", "unit"), registry=registry)
    for number in range(1, 7):
        offers.labels(f"n{number}", "nvidia_com_gpu", "integer").set(2)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
