"""What the chart and the overlays come to, against the schemas and the admission of the real API server."""

import subprocess
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
import yaml

from tests.deploy.chart import template
from tests.deploy.test_chart import POLICIES
from tests.rig.cluster.api import Object
from tests.rig.cluster.control_plane import ControlPlane
from tools import kustomize
from tools.programs import helm

pytestmark = pytest.mark.slow

_OPTIONS: Final = (
    *(
        "authentication.enabled",
        "openshift.scc",
        "resourceQuota.create",
        "driver.mig",
        "mps.mounts",
        "mps.clientLimits",
    ),
    *("prometheus.podMonitor.create", "prometheus.rules.create", "grafana.dashboard.create"),
)
_OTHERS: Final = (
    *("security=privileged", "driver.runtimeClassName=nvidia"),
    "mps.mounts=true,mps.driverRoot=/run/nvidia/driver",
    *("driver.hostPath=/opt/driver", "driver.library=/opt/driver/libnvidia-ml.so.1"),
    *(f"fullnameOverride={'a' * 62}-b", f"nameOverride={'a' * 70}", "existingConfigMap.name=mine"),
    *("networkPolicy.create=false", "networkPolicy.monitoringNamespace=", "authentication.enabled=true,listen=::"),
    "authentication.enabled=true,authentication.tlsSecret=cert,prometheus.podMonitor.create=true",
    *("gpuOperator.client=true", "imagePullSecrets[0].name=registry", f"serviceAccount.name={'a' * 70}"),
    "prometheus.rules.create=true,prometheus.rules.runbooks=https://wiki.test/runbooks/",
)
_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# What others define, as far as the name goes: their own schemas are not to be had here. The fields of a PodMonitor are
# tested on a real Prometheus, the rules by promtool.
_FOREIGN: Final = (
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", "Namespaced"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", "Namespaced"),
    ("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints", "Cluster"),
)


def definition(group: str, version: str, kind: str, plural: str, scope: str) -> Object:
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The API server, with the namespace of the manifests and the kinds of others."""
    helm()
    definitions = [definition(*each) for each in _FOREIGN]
    control_plane.apply(definitions)
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=170s", *names)
    control_plane.make_namespace(kustomize.NAMESPACE)
    # What docs/install.md has its reader do for the platform gpu-operator-dra.
    control_plane.kubectl("label", "namespace", kustomize.NAMESPACE, "resource.kubernetes.io/admin-access=true")
    yield control_plane
    control_plane.kubectl("delete", "namespace", kustomize.NAMESPACE, "--wait=false")
    control_plane.kubectl("delete", *names)


def accepted(server: ControlPlane, objects: str) -> list[str]:
    """What the server would make of objects, strictly: an unknown field, a wrong type and a duplicate are errors."""
    flags = ("--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    # The namespace itself can't be in a dry run and hold the others at once.
    return server.kubectl("apply", *flags, input=objects).stdout.split()


# The policy and flags of helm.
RENDERED: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"policy {name}": (text,) for name, text in POLICIES.items()},
    # Affinity, quota, class and volumes as the platform's page has them.
    **{f"platform {name}": (POLICIES["enforce"], f"--values={path}") for name, path in kustomize.PLATFORMS.items()},
}


@pytest.mark.parametrize("name", RENDERED)
def test_the_api_server_takes_every_object(server: ControlPlane, name: str) -> None:
    """RBAC, admission policies with their CEL, DaemonSet and the rest: no field that does not exist.

    Kustomize's overlays build the same objects (tests/deploy/test_kustomize.py).
    """
    objects = "---\n".join(each.text for each in kustomize.whole(*RENDERED[name]).values())
    assert len(accepted(server, objects)) == len(list(yaml.safe_load_all(objects)))


def test_the_api_server_takes_every_option(server: ControlPlane) -> None:
    """All that can be switched on, at once, and each of what excludes the others."""
    rendered = kustomize.rendered(POLICIES["all"], *(f"--set={each}=true" for each in _OPTIONS))
    everything = "---\n".join(each.text for each in rendered.values())
    objects = list(yaml.safe_load_all(everything))
    kinds = {each["kind"] for each in objects}
    assert {"NetworkPolicy", "SecurityContextConstraints", "ResourceQuota", "PodMonitor", "PrometheusRule"} <= kinds
    assert {"Secret", "ConfigMap"} <= kinds
    assert len(accepted(server, everything)) == len(objects)
    for other in _OTHERS:
        with_hooks = _template(server, f"--set={other}", policy=POLICIES["all"])
        assert len(accepted(server, with_hooks)) == len(list(yaml.safe_load_all(with_hooks)))


def _template(server: ControlPlane, *flags: str, policy: str = "") -> str:
    """What helm renders with that server at hand, the hooks among it. Raises CalledProcessError."""
    where = (f"--namespace={kustomize.NAMESPACE}", f"--kubeconfig={server.admin_kubeconfig}")
    return template(*where, *flags, policy=policy)


def test_the_rights_follow_from_an_existing_config_map(server: ControlPlane) -> None:
    """Helm reads it from the cluster: the roles are its policy's; without it, or without the key, it refuses."""
    data = {"gpu.toml": POLICIES["all"]}
    metadata = {"name": "mine", "namespace": kustomize.NAMESPACE}
    server.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    asked = ("--dry-run=server", "--set=existingConfigMap.key=gpu.toml")
    reported = _template(server, *asked, "--set=existingConfigMap.name=mine")
    found = [each for each in yaml.safe_load_all(reported) if each is not None]
    roles = {each["metadata"]["name"] for each in found if each["kind"] == "ClusterRole"}
    assert {"gpu-watchdog-namespaces", "gpu-watchdog-evict", "gpu-watchdog-capacity"} <= roles
    for values, refusal in (
        ("existingConfigMap.name=other", f"namespace {kustomize.NAMESPACE} has no ConfigMap other; create it first"),
        ("existingConfigMap.name=mine,existingConfigMap.key=x", "mine has no key x; its keys: gpu.toml"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            _template(server, *asked, f"--set={values}")
        assert refusal in caught.value.stderr
