"""The whole way of an alert: stub node, daemon, Prometheus with deploy/prometheus/, Alertmanager and a webhook.

`python -m tests.monitoring.chain` goes it at the pace that ships, and prints how long each link took: seven minutes.
"""

import contextlib
import datetime as dt
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.monitoring.alertmanager import Alertmanager
from tests.monitoring.asking import wait_for
from tests.monitoring.notifying import ALERTS, RECORDING, example, hurried, with_waits
from tests.monitoring.prometheus import Prometheus, configuration
from tests.monitoring.scraping import plain_job, without_api
from tests.monitoring.webhook import Told, Webhook
from tests.rig import Daemon, Node, Pod, Tenant, node
from tests.rig.command import daemon
from tests.stub import GIB

NAMESPACE: Final = "team-a-dev"
# A warning from 100 % on, a kill from 150 % on, and nothing that the driver takes on top.
_POLICY: Final = """
mode = "enforce"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
[[rule]]
name = "shared"
match = { namespaces = ["team-*"] }
[[rule.step]]
above = "100%"
for = "1s"
do = "warn"
[[rule.step]]
above = "150%"
for = "1s"
do = "kill"
scope = "container"
grace = "5s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often is scraped and evaluated, how long Alertmanager waits (None: as in the example), and rules wait."""

    scrape: str = "200ms"
    evaluate: str = "200ms"
    wait: str | None = "1s"
    waits: Mapping[str, str] = field(default_factory=dict)
    times: int = 1  # the rules' times are so many times as short
    resend: str = "1s"  # how often Prometheus tells the same again


_LIFE_S: Final = 300.0  # of a process of tests/rig
# What ships, and what kube-prometheus evaluates by; only the five minutes of GPUMemoryOverLimit are tried in the tests
# with less.
AS_SHIPPED: Final = Pace(scrape="15s", evaluate="30s", wait=None, resend="1m")
QUICK: Final = Pace(waits={"GPUMemoryOverLimit": "1s"})
# GPUMemoryOverLimit waits 10 s, so that a kill that takes its time on a busy machine comes first, and is over again
# within the 20 s for which a kill is told.
FAST: Final = Pace(times=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of the chain and how long it took, in seconds."""

    name: str
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All of it, running."""

    world: Node
    daemon: Daemon
    prometheus: Prometheus
    alertmanager: Alertmanager
    webhook: Webhook

    def tenant(self, name: str, *, behaviour: str = "polite") -> tuple[Pod, Tenant]:
        """A pod of team A that declares 1Gi, and its process, which uses less than that."""
        pod = self.world.pod(name, ("main", "1Gi"), namespace=NAMESPACE)
        return pod, self.start(pod, GIB // 2, behaviour=behaviour)

    def start(self, pod: Pod, used: int, *, behaviour: str = "polite") -> Tenant:
        """Another process of a pod, and what it uses."""
        tenant = self.world.start(pod, used=used, behaviour=behaviour)
        self.world.write()
        self.prometheus.wait_for(f'gpu_watchdog_account_memory_used_bytes{{pod="{pod.name}"}} == {used}')
        return tenant

    def allocate(self, tenant: Tenant, used: int) -> float:
        """Let a process use so much from now on: when that was (Unix seconds)."""
        self.world.use(tenant, used)
        return time.time()

    def wait_told(self, name: str, pod: Pod, *, status: str = "firing", limit_s: float = 60.0) -> Told:
        """Wait until the webhook was told of an alert about a pod."""
        return self.webhook.wait_until(lambda: self.told(name, pod, status=status), limit_s)[0]

    def told(self, name: str, pod: Pod, *, status: str = "firing") -> list[Told]:
        """What the webhook was told about a pod under one name."""
        return [each for each in self.webhook.told(name, status=status) if each.labels["pod"] == pod.name]

    def is_silenced(self, name: str, pod: Pod) -> bool | None:
        """Whether Alertmanager has an alert about a pod and keeps it to itself; None: it has none."""
        labels = {"alertname": name, "pod": pod.name}
        found = [each for each in self.alertmanager.alerts() if labels.items() <= each["labels"].items()]
        return any(each["status"]["inhibitedBy"] for each in found) if found else None

    def first(self, selector: str, at_least: float = -1.0) -> float:
        """When the first sample of a selector was taken whose value is at least this (Unix seconds)."""
        times = [at for each in self.prometheus.samples(selector) for at, value in each.points if value >= at_least]
        return min(times)


@contextlib.contextmanager
def chain(folder: Path, pace: Pace = QUICK) -> Iterator[Chain]:
    """Everything, until Prometheus has the daemon's metrics and its rules have been evaluated."""
    root = folder / "node"
    root.mkdir()
    with node(root) as world, Webhook() as webhook, contextlib.ExitStack() as stack:
        world.write()
        policy = world.root / "policy.toml"
        policy.write_text(_POLICY, encoding="utf-8")
        arguments = ("--policy", policy, "--pods", world.pods_file, "--journal", world.journal)
        dog = stack.enter_context(daemon(world.root, world.stub_file, *arguments))
        notified = example(webhook.url, wait=pace.wait)
        alertmanager = stack.enter_context(Alertmanager(folder / "alertmanager", notified))
        config = _configuration(folder, pace, dog, alertmanager)
        prometheus = stack.enter_context(Prometheus(folder / "prometheus", config, resend=pace.resend))
        prometheus.wait_for("gpu_watchdog_enforcing == 1", 120)
        yield Chain(world=world, daemon=dog, prometheus=prometheus, alertmanager=alertmanager, webhook=webhook)


def _configuration(folder: Path, pace: Pace, dog: Daemon, alertmanager: Alertmanager) -> dict[str, object]:
    alerts = folder / "alerts.yaml"
    text = with_waits(ALERTS, pace.waits)
    alerts.write_text(hurried(text, pace.times), encoding="utf-8")
    job = without_api(plain_job(), (f"127.0.0.1:{dog.port}", "n1"))
    job = {**job, "scrape_interval": pace.scrape, "scrape_timeout": pace.scrape}
    return configuration(
        job,
        rules=[RECORDING, alerts],
        alertmanagers=[alertmanager.address],
        external_labels={"cluster": "c1"},
        interval=pace.evaluate,
    )


def go_over(run: Chain, name: str, *, limit_s: float = 60.0) -> tuple[Pod, Tenant, Told, list[Link]]:
    """Let a pod use 120 % of what it declares until the webhook is told, and give what was told and the links.

    Where that may take longer than a process of the tests lives, another takes its place meanwhile.
    """
    pod, tenant = run.tenant(name)
    began = run.allocate(tenant, GIB * 6 // 5)
    if limit_s > _LIFE_S:
        time.sleep(_LIFE_S / 2)
        tenant.used = 0
        run.start(pod, GIB * 6 // 5)
    told = run.wait_told("GPUMemoryOverLimit", pod, limit_s=limit_s)
    scraped = run.first(f'gpu_watchdog_account_over_limit{{pod="{name}"}}', 1.0)
    pending = run.first(f'ALERTS{{alertname="GPUMemoryOverLimit", pod="{name}"}}')
    fired = _seconds(told.starts_at)
    marks = [began, scraped, pending, fired, told.at]
    names = ("allocation to scrape", "scrape to rule", "for", "rule to notification")
    return pod, tenant, told, _links(marks, names)


def go_killed(run: Chain, name: str, *, limit_s: float = 60.0) -> tuple[Pod, Told, list[Link]]:
    """Let a pod use twice what it declares until the webhook is told of its end."""
    pod, tenant = run.tenant(name)
    began = run.allocate(tenant, 2 * GIB)
    told = run.wait_told("GPUMemoryPodKilled", pod, limit_s=limit_s)
    signalled = tenant.terms[0] + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    scraped = run.first(f'gpu_watchdog_pod_last_action_timestamp_seconds{{pod="{name}", action="kill", result="done"}}')
    fired = _seconds(told.starts_at)
    marks = [began, signalled, scraped, fired, told.at]
    names = ("allocation to signal", "signal to scrape", "scrape to rule", "rule to notification")
    return pod, told, _links(marks, names)


def table(title: str, links: list[Link]) -> str:
    """The links as text, with their sum."""
    lines = [f"  {each.name:<24}{each.took_s:8.2f} s" for each in links]
    return "\n".join([title, *lines, f"  {'all':<24}{sum(each.took_s for each in links):8.2f} s"])


def settled(run: Chain, name: str, pod: Pod) -> None:
    """Wait until Alertmanager keeps an alert about a pod to itself."""
    wait_for(lambda: run.is_silenced(name, pod), lambda: str(run.alertmanager.alerts()), 60)


def _links(marks: list[float], names: tuple[str, ...]) -> list[Link]:
    pairs = zip(names, marks, marks[1:], strict=False)
    return [Link(name=name, took_s=after - before) for name, before, after in pairs]


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def main() -> int:
    """Both ways at the pace that ships."""
    with tempfile.TemporaryDirectory(prefix="chain-") as folder, chain(Path(folder), AS_SHIPPED) as run:
        print(table("killed, at the pace that ships", go_killed(run, "trainer", limit_s=300)[2]), flush=True)
        print(table("over its limit, at the pace that ships", go_over(run, "notebook", limit_s=600)[3]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
