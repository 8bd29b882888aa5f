"""What the chart makes when it is asked to, and that Kustomize has a component for each of it."""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.support import cannot_run
from tools import ROOT, chart, kustomize
from tools.programs import programs
from tools.release.address import PLACEHOLDER
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]


def test_monitoring_is_what_the_files_of_deploy_say() -> None:
    """The PodMonitor, the rules and the dashboard are those that are tested; labels of the operator come on top."""
    podmonitor, rules, dashboard = "prometheus.podMonitor", "prometheus.rules", "grafana.dashboard"
    flags = [f"--set={each}.create=true" for each in (podmonitor, rules, dashboard)]
    labels = [f"--set={each}.labels.release=kps" for each in (podmonitor, rules)]
    found = kustomize.whole("", *flags, *labels, f"--set={podmonitor}.interval=30s")
    deploy = ROOT / "deploy"
    for name, key in (("podmonitor", "podmonitor-gpu-watchdog"), ("prometheusrule", "prometheusrule-gpu-watchdog")):
        expected = yaml.safe_load((deploy / "prometheus" / f"{name}.yaml").read_text(encoding="utf-8"))
        expected["metadata"]["labels"]["release"] = "kps"
        if name == "podmonitor":
            expected["spec"]["podMetricsEndpoints"][0]["interval"] = "30s"
        assert found[key].content == expected
    board = found["configmap-gpu-watchdog-dashboard"].content
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    name = "gpu-memory-watchdog.json"
    assert board["data"] == {name: (deploy / "grafana" / name).read_text(encoding="utf-8")}


@pytest.mark.parametrize(
    ("flags", "page"),
    [
        ((), f"{PLACEHOLDER}/docs/runbooks.md"),
        (("--set=prometheus.rules.runbooks=https://wiki.test/r.html",), "https://wiki.test/r.html"),
        (("--set=prometheus.rules.runbooks=https://wiki.test:8443/r/",), "https://wiki.test:8443/r/"),
    ],
)
def test_runbooks_are_where_the_operator_publishes_them(flags: tuple[str, ...], page: str) -> None:
    """Each runbook_url is absolute: the value, with or without a slash at its end, and the alert's anchor."""
    said = kustomize.rendered("", "--set=prometheus.rules.create=true", *flags)
    groups = said["prometheusrule-gpu-watchdog"].content["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 10
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"{page}#{rule['alert'].lower()}" for rule in alerts
    }


def _leaves(path: tuple[str, ...], content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves((*path, key), value)
        else:
            yield (*path, key), value


@pytest.mark.parametrize("option", kustomize.OPTIONS)
def test_what_the_chart_makes_when_asked_is_a_component(option: str, tmp_path: Path) -> None:
    """PodMonitor, rules, dashboard, NetworkPolicy, SCC: what the chart adds by a value Kustomize has as a component."""
    above = os.path.relpath(kustomize.KUSTOMIZE, tmp_path)
    mine = {"resources": [f"{above}/overlays/enforce"], "components": [f"{above}/options/{option}"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    command = [str(programs() / "kubectl"), "kustomize", str(tmp_path)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(built)}
    policy = kustomize.policies()["enforce"]
    expected = kustomize.whole(policy, f"--set={kustomize.OPTIONS[option]}=true")
    assert found == {key: each.content for key, each in expected.items()}
    # The one of the GPU Operator changes the DaemonSet and adds nothing.
    assert len(found) == len(kustomize.whole(policy)) + (option != "gpu-operator-client")
    assert found != {key: each.content for key, each in kustomize.whole(policy).items()}


def test_every_object_of_the_chart_is_in_kustomize_too() -> None:
    """Each switch for a further object, or for other nodes, is an option or a platform's: none is the chart's alone."""
    text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
    switches = {
        ".".join(path)
        for path, value in _leaves((), yaml.safe_load(text))
        if value is False and path[-1] in {"create", "scc", "client"}
    }
    assert switches == {*kustomize.OPTIONS.values(), "resourceQuota.create"}  # the last is in platforms/gke


@pytest.mark.parametrize(("listen", "reached"), [("0.0.0.0", ["127.0.0.1"]), ("::", ["127.0.0.1", "::1"])])
def test_the_port_is_on_the_addresses_that_were_asked_for(listen: str, reached: list[str]) -> None:
    """Probes come to the pod's first address, IPv6 on some clusters: `::` answers those of both kinds."""
    spec = kustomize.rendered("", f"--set-string=listen={listen}")["daemonset-gpu-watchdog"].content["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (asked,) = (each["value"] for each in container["env"] if each["name"] == "GPU_WATCHDOG_LISTEN")
    assert asked.endswith(":9837")
    if ":" in listen and not Path("/proc/net/if_inet6").exists():
        cannot_run("needs IPv6 on loopback")
    server = HttpServer(asked.replace(":9837", ":0"), Endpoints(Metrics(), 1.0))
    try:
        server.start()
        for address in reached:
            socket.create_connection((address, server.port), timeout=10).close()
    finally:
        server.close()
