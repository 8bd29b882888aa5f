"""What the chart makes when it is asked to."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import objects, of_kind, pod
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


_MONITORING: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
_NODES: Final = {"ipBlock": {"cidr": "192.0.2.0/24"}}


@pytest.mark.parametrize(
    ("values", "peers"),
    [
        ({}, [_MONITORING]),
        ({"from": [_NODES]}, [_MONITORING, _NODES]),
        ({"from": [_NODES], "monitoringNamespace": ""}, [_NODES]),
        # Without any peer a rule would let everybody in.
        ({"monitoringNamespace": ""}, None),
    ],
)
def test_the_port_is_closed_but_for_those_that_are_named(values: Mapping[str, Any], peers: list[Any] | None) -> None:
    """The namespace of Prometheus and further peers, at this port alone; nobody is named: nobody but the node."""
    (found,) = of_kind(objects(f"--set-json=networkPolicy={json.dumps(values)}"), "NetworkPolicy")
    expected = [] if peers is None else [{"from": peers, "ports": [{"port": "metrics"}]}]
    assert (found["spec"]["policyTypes"], found["spec"]["ingress"]) == (["Ingress"], expected)


@pytest.mark.parametrize(("listen", "everywhere"), [("0.0.0.0", "0.0.0.0"), ("::", "[::]")])
def test_a_proxy_is_in_front_of_everything_but_probes(listen: str, everywhere: str) -> None:
    """The daemon listens for its pod alone; the proxy has the port that others scrape, and the probes need none."""
    watchdog, proxy = pod("--set=authentication.enabled=true", f"--set-string=listen={listen}")["containers"]
    variables = {each["name"]: each.get("value") for each in watchdog["env"]}
    (upstream,) = (each.removeprefix("--upstream=http://") for each in proxy["args"] if "upstream" in each)
    assert variables["GPU_WATCHDOG_LISTEN"] == upstream.rstrip("/") == "127.0.0.1:9838"
    (probes,) = watchdog["ports"]
    assert variables["GPU_WATCHDOG_PROBES"] == f"{everywhere}:{probes['containerPort']}"
    asked = {watchdog[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")}
    assert asked == {probes["name"]}
    assert proxy["ports"] == [{"name": "metrics", "containerPort": 9837}]
    assert f"--secure-listen-address={everywhere}:9837" in proxy["args"]
    assert "livenessProbe" not in proxy
    # The least that a container can have.
    context = proxy["securityContext"]
    assert (context["runAsNonRoot"], context["readOnlyRootFilesystem"], context["capabilities"]) == (
        *(True, True),
        {"drop": ["ALL"]},
    )


def test_who_may_read_is_what_the_proxy_asks_for() -> None:
    """The role allows the very resource that kube-rbac-proxy has reviewed, and the proxy's account may ask for it."""
    reader = {"namespace": "monitoring", "name": "prometheus"}
    values = {"enabled": True, "readers": [reader]}
    found = objects(f"--set-json=authentication={json.dumps(values)}", "--set=prometheus.podMonitor.create=true")
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    settings = yaml.safe_load(named["ConfigMap", "gpu-watchdog-authentication"]["data"]["config.yaml"])
    asked = settings["authorization"]["resourceAttributes"]
    (rule,) = named["ClusterRole", "gpu-watchdog-read"]["rules"]
    assert rule == {"apiGroups": [asked["apiGroup"]], "resources": [asked["resource"]], "verbs": ["get"]}
    readers = named["ClusterRoleBinding", "gpu-watchdog-read"]["subjects"]
    assert [(each["namespace"], each["name"]) for each in readers] == [
        ("monitoring", "prometheus"),
        ("gpus", "gpu-watchdog-scrape"),
    ]
    (asks,) = named["ClusterRoleBinding", "gpu-watchdog-authentication"]["subjects"]
    (daemon,) = of_kind(found, "DaemonSet")
    assert asks["name"] == daemon["spec"]["template"]["spec"]["serviceAccountName"]


@pytest.mark.parametrize("secret", ["", "cert"])
def test_the_pod_monitor_speaks_to_the_proxy(secret: str) -> None:
    """By TLS, with the token of an account that may read; the certificate is verified if there is one to verify."""
    flags = ("--set=authentication.enabled=true,prometheus.podMonitor.create=true,prometheus.annotations=true",)
    found = objects(*flags, f"--set=authentication.tlsSecret={secret}")
    (monitor,) = of_kind(found, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    token = endpoint["authorization"]["credentials"]
    (kept,) = of_kind(found, "Secret")
    assert (kept["metadata"]["name"], kept["type"]) == (token["name"], "kubernetes.io/service-account-token")
    account = kept["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert account in {each["metadata"]["name"] for each in of_kind(found, "ServiceAccount")}
    authority = {"ca": {"secret": {"name": "cert", "key": "ca.crt"}}, "serverName": "gpu-watchdog"}
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == (
        "https",
        authority if secret else {"insecureSkipVerify": True},
    )
    (daemon,) = of_kind(found, "DaemonSet")
    template = daemon["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    (_, proxy) = template["spec"]["containers"]
    assert any("--tls-cert-file" in each for each in proxy["args"]) is bool(secret)
    volumes = {each["name"] for each in template["spec"]["volumes"]}
    assert {each["name"] for each in proxy["volumeMounts"]} <= volumes


def test_another_proxy_takes_the_place() -> None:
    """What `container` names replaces that part of kube-rbac-proxy; the rest stays, above all what it may not do."""
    other = {"name": "nginx", "image": "registry.test/nginx:1", "args": ["-c", "/settings/nginx.conf"]}
    mount = {"name": "settings", "mountPath": "/settings"}
    values: dict[str, Any] = {
        "enabled": True,
        "container": {**other, "volumeMounts": [mount], "securityContext": {"runAsUser": 101}},
        "volumes": [{"name": "settings", "configMap": {"name": "nginx"}}],
    }
    spec = pod(f"--set-json=authentication={json.dumps(values)}")
    (_, proxy) = spec["containers"]
    assert {key: proxy[key] for key in other} == other
    assert proxy["volumeMounts"] == [mount]
    assert (proxy["securityContext"]["runAsUser"], proxy["securityContext"]["readOnlyRootFilesystem"]) == (101, True)
    assert values["volumes"][0] in spec["volumes"]


def test_the_proxy_is_the_one_that_is_tested() -> None:
    """The image that the chart names by default has the version that tests build and run."""
    (_, proxy) = pod("--set=authentication.enabled=true")["containers"]
    module = (ROOT / "tools" / "programs" / "kube-rbac-proxy" / "go.mod").read_text(encoding="utf-8")
    assert f"github.com/brancz/kube-rbac-proxy {proxy['image'].rpartition(':')[2]} " in module


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
