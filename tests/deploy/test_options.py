"""What the chart makes when it is asked to."""

import json
import socket
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import objects, pod
from tests.node.support import cannot_run
from tools import ROOT, kustomize
from tools.release.address import PLACEHOLDER
from watchdog.core.policy import Draining
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
    reported = kustomize.rendered("", "--set=prometheus.rules.create=true", *flags)
    groups = reported["prometheusrule-gpu-watchdog"].content["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 10
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"{page}#{rule['alert'].lower()}" for rule in alerts
    }


def test_what_draining_needs_is_mounted() -> None:
    """With mps.mounts the pod has the pipes and the driver root where the policy and the daemon look for them."""
    flags = ["--set=mps.mounts=true", "--set=mps.pipes=/tmp/nvidia-mps", "--set=mps.driverRoot=/run/nvidia/driver"]
    spec = pod(*flags)
    (container,) = spec["containers"]
    folders = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    mounts = {each["mountPath"]: (folders.get(each["name"]), each) for each in container["volumeMounts"]}
    (pattern,) = Draining().pipe
    pipes, root = (mounts[str(path)] for path in (Path(pattern).parents[1], Path("/run/nvidia/driver")))
    assert (pipes[0], pipes[1].get("readOnly", False)) == ("/tmp/nvidia-mps", False)
    assert (root[0], root[1]["readOnly"], root[1]["mountPropagation"]) == (
        "/run/nvidia/driver",
        True,
        "HostToContainer",
    )
    assert {each["name"]: each.get("value") for each in container["env"]}["NVIDIA_DRIVER_CAPABILITIES"] == (
        "compute,utility"
    )


@pytest.mark.parametrize(("listen", "reached"), [("0.0.0.0", ["127.0.0.1"]), ("::", ["127.0.0.1", "::1"])])
def test_the_port_is_on_the_addresses_that_were_asked_for(listen: str, reached: list[str]) -> None:
    """Probes come to the pod's first address, IPv6 on some clusters: `::` answers those of both kinds."""
    (container,) = pod(f"--set-string=listen={listen}")["containers"]
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


@pytest.mark.parametrize("given", ["1Gi", None])
def test_every_container_has_the_resources_of_the_values(given: str | None) -> None:
    """The Jobs too limit their local storage, and request none on nodes that do not count it."""
    resources = {"requests": {"ephemeral-storage": given}, "limits": {"ephemeral-storage": given}}
    found = objects(f"--set-json=resources={json.dumps(resources)}", policy='[capacity]\nresource = "example.com/a"\n')
    pods = [each["spec"]["template"]["spec"] for each in found if "template" in each.get("spec", {})]
    assert len(pods) == 3
    for each in pods:
        (container,) = each["containers"]
        for part, values in container["resources"].items():
            assert values["memory"] is not None
            assert values.get("ephemeral-storage") == given, part
