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
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.monitoring.alertmanager import Alertmanager
from tests.monitoring.asking import wait_for
from tests.monitoring.notifying import RECORDING, example, hurried
from tests.monitoring.prometheus import Prometheus, configuration
from tests.monitoring.scraping import plain_job, without_api
from tests.monitoring.webhook import Notified, Webhook
from tests.rig import Daemon, Node, Pod, Tenant, node
from tests.stub import GIB
from tests.world.policies import WARN_AT_ONCE, write_policy
from tests.world.test_kill import run

NAMESPACE: Final = "team-a-dev"
OVER: Final = GIB * 3 // 2  # is only warned of: the pod declares 1Gi, and may use 1.27Gi
_KILL: Final = 'above = "150%"\nfor = "1s"\ndo = "kill"\nscope = "container"\ngrace = "5s"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often Prometheus scrapes and evaluates; how long Alertmanager (None: as in the example) and rules wait."""

    scrape: str = "200ms"
    evaluate: str = "200ms"
    wait: str | None = "1s"
    waits: Mapping[str, str] = field(default_factory=dict)
    times: int = 1  # by how much all times in the rules are divided
    resend: str = "1s"  # how often Prometheus sends the same alert again


_LIFE_S: Final = 300.0  # of a process of tests/rig
# What ships, and what kube-prometheus evaluates by; only the five minutes of GPUMemoryOverLimit are tried in the tests
# with less.
AS_SHIPPED: Final = Pace(scrape="15s", evaluate="30s", wait=None, resend="1m")
QUICK: Final = Pace(waits={"GPUMemoryOverLimit": "1s"})
# GPUMemoryOverLimit waits 10 s, so that a slow kill comes first; the alert of a kill ends after 20 s.
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

    def tenant(self, name: str) -> tuple[Pod, Tenant]:
        """A pod of team A that declares 1Gi, and its process, which uses less than that."""
        pod = self.world.pod(name, ("main", "1Gi"), namespace=NAMESPACE)
        return pod, self.start(pod, GIB // 2)

    def start(self, pod: Pod, used: int) -> Tenant:
        """Another process of a pod, and what it uses."""
        tenant = self.world.start(pod, used=used)
        self.world.write()
        self.prometheus.wait_for(f'gpu_watchdog_account_memory_used_bytes{{pod="{pod.name}"}} == {used}')
        return tenant

    def allocate(self, tenant: Tenant, used: int) -> float:
        """Let a process use this much from now on: when that was (Unix seconds)."""
        self.world.use(tenant, used)
        return time.time()

    def wait_notified(self, name: str, pod: Pod, *, status: str = "firing", limit_s: float = 60.0) -> Notified:
        """Wait until the webhook gets an alert about a pod."""
        return self.webhook.wait_until(lambda: self.notified(name, pod, status=status), limit_s)[0]

    def notified(self, name: str, pod: Pod, *, status: str = "firing") -> list[Notified]:
        """What the webhook got about a pod under one name."""
        return [each for each in self.webhook.got(name, status=status) if each.labels["pod"] == pod.name]

    def wait_silenced(self, name: str, pod: Pod) -> None:
        """Wait until Alertmanager inhibits an alert about a pod."""
        labels = {"alertname": name, "pod": pod.name}
        wait_for(lambda: self.alertmanager.is_silenced(labels), lambda: str(self.alertmanager.alerts()), 60)

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
        dog = stack.enter_context(run(world, write_policy(world.root, WARN_AT_ONCE, _KILL)))
        notified = example(webhook.url, wait=pace.wait)
        alertmanager = stack.enter_context(Alertmanager(folder / "alertmanager", notified))
        config = _configuration(folder, pace, dog, alertmanager)
        prometheus = stack.enter_context(Prometheus(folder / "prometheus", config, resend=pace.resend))
        prometheus.wait_for("gpu_watchdog_enforcing == 1", 120)
        yield Chain(world=world, daemon=dog, prometheus=prometheus, alertmanager=alertmanager, webhook=webhook)


def _configuration(folder: Path, pace: Pace, dog: Daemon, alertmanager: Alertmanager) -> dict[str, object]:
    alerts = folder / "alerts.yaml"
    alerts.write_text(hurried(pace.waits, pace.times), encoding="utf-8")
    job = without_api(plain_job(), (f"127.0.0.1:{dog.port}", "n1"))
    job = {**job, "scrape_interval": pace.scrape, "scrape_timeout": pace.scrape}
    return configuration(
        job,
        rules=[RECORDING, alerts],
        alertmanagers=[alertmanager.address],
        external_labels={"cluster": "c1"},
        interval=pace.evaluate,
    )


def go_over(running: Chain, name: str, *, limit_s: float = 60.0) -> tuple[Pod, Tenant, Notified, list[Link]]:
    """Let a pod go over its limit until the webhook gets the alert: the alert, and how long each link took.

    Where that may take longer than a process of the tests lives, another takes its place meanwhile.
    """
    pod, tenant = running.tenant(name)
    began = running.allocate(tenant, OVER)
    if limit_s > _LIFE_S:
        time.sleep(_LIFE_S / 2)
        tenant.used = 0
        running.start(pod, OVER)
    over = running.wait_notified("GPUMemoryOverLimit", pod, limit_s=limit_s)
    scraped = running.first(f'gpu_watchdog_account_over_limit{{pod="{name}"}}', 1.0)
    pending = running.first(f'ALERTS{{alertname="GPUMemoryOverLimit", pod="{name}"}}')
    names = ("allocation to scrape", "scrape to rule", "for", "rule to notification")
    return pod, tenant, over, _links(names, began, scraped, pending, _seconds(over.starts_at), over.at)


def go_killed(running: Chain, name: str, *, limit_s: float = 60.0) -> tuple[Pod, Notified, list[Link]]:
    """Let a pod be killed until the webhook gets the alert."""
    pod, tenant = running.tenant(name)
    began = running.allocate(tenant, 3 * GIB)
    killed = running.wait_notified("GPUMemoryPodKilled", pod, limit_s=limit_s)
    signalled = tenant.terms[0] + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    action = f'gpu_watchdog_pod_last_action_timestamp_seconds{{pod="{name}", action="kill", result="done"}}'
    names = ("allocation to signal", "signal to scrape", "scrape to rule", "rule to notification")
    links = _links(names, began, signalled, running.first(action), _seconds(killed.starts_at), killed.at)
    return pod, killed, links


def table(title: str, links: list[Link]) -> str:
    """The links as text, with their sum."""
    lines = [f"  {each.name:<24}{each.took_s:8.2f} s" for each in links]
    return "\n".join([title, *lines, f"  {'all':<24}{sum(each.took_s for each in links):8.2f} s"])


def _links(names: tuple[str, ...], *moments: float) -> list[Link]:
    return [
        Link(name=name, took_s=after - before) for name, (before, after) in zip(names, pairwise(moments), strict=True)
    ]


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def main() -> int:
    """Both ways at the pace that ships."""
    with tempfile.TemporaryDirectory(prefix="chain-") as folder, chain(Path(folder), AS_SHIPPED) as running:
        print(table("killed, at the pace that ships", go_killed(running, "trainer", limit_s=300)[2]), flush=True)
        print(table("over its limit, at the pace that ships", go_over(running, "notebook", limit_s=600)[3]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
