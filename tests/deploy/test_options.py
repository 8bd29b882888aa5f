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


def _built(folder: Path, *components: str) -> dict[str, Any]:
    """What Kustomize makes of the overlay that enforces, with some components."""
    above = os.path.relpath(kustomize.KUSTOMIZE, folder)
    mine = {"resources": [f"{above}/overlays/enforce"], "components": [f"{above}/{each}" for each in components]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    command = [str(programs() / "kubectl"), "kustomize", str(folder)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(built)}


@pytest.mark.parametrize("option", kustomize.OPTIONS)
def test_what_the_chart_makes_when_asked_is_a_component(option: str, tmp_path: Path) -> None:
    """PodMonitor, rules, dashboard, NetworkPolicy, SCC: what the chart adds by a value Kustomize has as a component."""
    found = _built(tmp_path, f"options/{option}")
    policy = kustomize.policies()["enforce"]
    expected = kustomize.whole(policy, f"--set={kustomize.OPTIONS[option]}=true")
    assert found == {key: each.content for key, each in expected.items()}
    # Some only change the DaemonSet.
    assert len(found) == len(kustomize.whole(policy)) + (option not in {"gpu-operator-client", "mps"})
    assert found != {key: each.content for key, each in kustomize.whole(policy).items()}


def test_what_draining_needs_is_mounted() -> None:
    """With mps.mounts the pod has the pipes and the driver root where the policy and the daemon look for them."""
    flags = ["--set=mps.mounts=true", "--set=mps.pipes=/tmp/nvidia-mps", "--set=mps.driverRoot=/run/nvidia/driver"]
    spec = kustomize.rendered("", *flags)["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]
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


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_mounts_of_a_platform_and_of_mps_add_up(platform: str, tmp_path: Path) -> None:
    """A platform's component and the one for MPS can be used together, in any order."""
    flags = (f"--values={kustomize.PLATFORMS[platform]}", "--set=mps.mounts=true")
    expected = kustomize.whole(kustomize.policies()["enforce"], *flags)["daemonset-gpu-watchdog"].content
    for components in ((f"platforms/{platform}", "options/mps"), ("options/mps", f"platforms/{platform}")):
        if (kustomize.KUSTOMIZE / "platforms" / platform).exists():
            found = _built(tmp_path, *components)["daemonset-gpu-watchdog"]
            assert _sorted(found["spec"]["template"]) == _sorted(expected["spec"]["template"])


def _sorted(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same template with what it mounts in one order."""
    for items in (template["spec"]["volumes"], template["spec"]["containers"][0]["volumeMounts"]):
        items.sort(key=lambda item: str(item["name"]))
    return template


def test_every_object_of_the_chart_is_in_kustomize_too() -> None:
    """Each switch for a further object, a mount, or other nodes is an option or a platform's."""
    text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
    switches = {
        ".".join(path)
        for path, value in _leaves((), yaml.safe_load(text))
        if value is False and path[-1] in {"create", "scc", "client", "mounts"}
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
