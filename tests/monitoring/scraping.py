"""The scrape configurations of deploy/prometheus/, as Prometheus gets them, and the places where it finds targets."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.node.support import REPOSITORY

DEPLOY: Final = REPOSITORY / "deploy" / "prometheus"
JOB: Final = "gpu-memory-watchdog"
NAMESPACE: Final = "gpu-memory-watchdog"
# The intervals in deploy/ are for a cluster; a test has no time for them.
_QUICK: Final = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
Config = dict[str, Any]


def plain_job() -> Config:
    """The scrape_config of deploy/prometheus/scrape.yaml, word for word."""
    (job,) = yaml.safe_load((DEPLOY / "scrape.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    found: Config = job
    return found


def pod_monitor() -> Config:
    """The object of deploy/prometheus/podmonitor.yaml."""
    found: Config = yaml.safe_load((DEPLOY / "podmonitor.yaml").read_text(encoding="utf-8"))
    return found


def operator_job(monitor: Config) -> Config:
    """The scrape_config that the Prometheus operator makes of a PodMonitor with one endpoint and matchLabels.

    As generatePodMonitorConfig does in pkg/prometheus/promcfg.go of prometheus-operator/prometheus-operator: what
    selects, then namespace, container, pod, job and endpoint of its own, then the monitor's relabelings.
    Held against what v0.83.0 itself made of podmonitor.yaml: the same, but for the sharding that comes last there and
    gives no label.
    """
    meta, spec = monitor["metadata"], monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    own: list[Config] = [
        {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
        *(_selects(label, value) for label, value in sorted(spec["selector"]["matchLabels"].items())),
        {"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": endpoint["port"]},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"target_label": "job", "replacement": f"{meta['namespace']}/{meta['name']}"},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
    ]
    given = [{_snake(key): value for key, value in each.items()} for each in endpoint.get("relabelings", ())]
    return {
        "job_name": f"podMonitor/{meta['namespace']}/{meta['name']}/0",
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [meta["namespace"]]}}],
        "scrape_interval": endpoint["interval"],
        "metrics_path": endpoint["path"],
        "relabel_configs": [*own, *given],
    }


def through_api(job: Config, *, server: str, ca: Path, token: Path) -> Config:
    """The same job outside of the cluster: with the address of the API server, and the token of an account in a file.

    It scrapes often, too.
    """
    access = {
        "api_server": server,
        "tls_config": {"ca_file": str(ca)},
        "authorization": {"credentials_file": str(token)},
    }
    discovery = [{**each, **access} for each in job["kubernetes_sd_configs"]]
    return {**job, **_QUICK, "kubernetes_sd_configs": discovery}


def through_file(job: Config, found: Path) -> Config:
    """The same job for a Prometheus that can't ask Kubernetes itself: what was discovered is in a file."""
    kept = {key: value for key, value in job.items() if key != "kubernetes_sd_configs"}
    return {**kept, "file_sd_configs": [{"files": [str(found)]}]}


def without_api(job: Config, *addresses: tuple[str, str]) -> Config:
    """The same job without a cluster: the watchdog's pods are at these addresses, each with the name of its node.

    Prometheus knows of them what it would have found out by itself (test_scrape_cluster.py holds that against the real
    discovery). It scrapes often, too.
    """
    kept = {key: value for key, value in job.items() if key != "kubernetes_sd_configs"}
    static = [{"targets": [address], "labels": dict(discovered(node))} for address, node in addresses]
    return {**kept, **_QUICK, "static_configs": static}


def discovered(node: str) -> Mapping[str, str]:
    """What Prometheus finds out about the watchdog's pod on a node, as far as deploy/prometheus/ makes use of it."""
    return {
        "__meta_kubernetes_namespace": NAMESPACE,
        "__meta_kubernetes_pod_name": f"gpu-watchdog-{node}",
        "__meta_kubernetes_pod_node_name": node,
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_container_name": "watchdog",
        "__meta_kubernetes_pod_container_port_name": "metrics",
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": "gpu-memory-watchdog",
        "__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name": "true",
    }


def _selects(label: str, value: str) -> Config:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    sources = [f"__meta_kubernetes_pod_label_{name}", f"__meta_kubernetes_pod_labelpresent_{name}"]
    return {"action": "keep", "source_labels": sources, "regex": f"({value});true"}


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key)
