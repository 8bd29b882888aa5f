"""Odd values: the chart refuses each by its name, or renders objects that Kubernetes accepts and that mean the same."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.test_refused import refused
from tools import kustomize
from tools.programs import kubectl_validate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_CLIENT: Final = {"nvidia.com/gpu.deploy.client": "true"}
_PEER: Final[dict[str, Any]] = {"namespaceSelector": {}}
REFUSED: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    # An ingress rule without peers lets everyone in.
    ({"networkPolicy": {"create": True, "from": []}}, "at '/networkPolicy/from"),
    ({"networkPolicy": {"create": True, "from": [{}]}}, "at '/networkPolicy/from/0"),
    ({"networkPolicy": {"create": True, "from": [{"namespace": "monitoring"}]}}, "at '/networkPolicy/from/0"),
    # What the chart sets itself.
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "invalid propertyName 'app.kubernetes.io/name'"),
    ({"env": [{"name": "GPU_WATCHDOG_LISTEN", "value": "0.0.0.0:1"}]}, "at '/env/0/name"),
    ({"env": [{"name": "NODE_NAME", "value": "other"}]}, "at '/env/0/name"),
    ({"env": [{"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"}]}, "at '/env/0/name"),
    # What Kubernetes would refuse, or take for something else.
    ({"env": [{"name": "A", "value": 1}]}, "at '/env/0/value"),
    ({"env": [{"name": "A", "value": True}]}, "at '/env/0/value"),
    ({"env": [{"name": "A", "valu": "b"}]}, "at '/env/0"),
    ({"env": [{"name": "A B", "value": "c"}]}, "at '/env/0/name"),
    ({"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}, "at '/env/0"),
    ({"env": [{"name": "A", "valueFrom": {"file": {}}}]}, "at '/env/0/valueFrom"),
    ({"image": {"repository": "Registry.test/Watchdog"}}, "at '/image/repository"),
    ({"image": {"repository": "a b"}}, "at '/image/repository"),
    ({"image": {"repository": "https://registry.test/watchdog"}}, "at '/image/repository"),
    ({"image": {"repository": "registry.test/watchdog:1.0"}}, "at '/image/repository"),
    ({"image": {"tag": "a tag"}}, "at '/image/tag"),
    ({"image": {"tag": 1.1}}, "at '/image/tag"),
    ({"imagePullSecrets": [{"name": "Bad_Name"}]}, "at '/imagePullSecrets/0/name"),
    ({"nameOverride": "Watchdog"}, "at '/nameOverride"),
    ({"nameOverride": "a.b"}, "at '/nameOverride"),
    ({"nameOverride": "1e3"}, "at '/nameOverride"),
    ({"fullnameOverride": "-a"}, "at '/fullnameOverride"),
    ({"fullnameOverride": "a b"}, "at '/fullnameOverride"),
    ({"fullnameOverride": "true"}, "at '/fullnameOverride"),
    ({"fullnameOverride": 1}, "at '/fullnameOverride"),
    ({"existingConfigMap": "policy"}, "at '/existingConfigMap"),
    ({"existingConfigMap": {"name": "Policy"}}, "at '/existingConfigMap/name"),
    ({"existingConfigMap": {"name": "p", "key": "a/b"}}, "at '/existingConfigMap/key"),
    ({"existingConfigMap": {"name": "p", "key": ""}}, "at '/existingConfigMap/key"),
    ({"existingConfigMap": {"name": "p", "key": ".."}}, "at '/existingConfigMap/key"),
    ({"existingConfigMap": {"name": "p", "namespace": "other"}}, "at '/existingConfigMap"),
    ({"gpuOperator": {"client": "true"}}, "at '/gpuOperator/client"),
    ({"gpuOperator": {"clientLabel": True}}, "at '/gpuOperator"),
    # An address that would be no link, or would end the annotation.
    ({"prometheus": {"rules": {"runbooks": ""}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "docs/runbooks/"}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "//wiki.test/r"}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "javascript:alert(1)//"}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "https://wiki.test/a b"}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "https://wiki.test/?page="}}}, "at '/prometheus/rules/runbooks"),
    ({"prometheus": {"rules": {"runbooks": "https://wiki.test/r#a"}}}, "at '/prometheus/rules/runbooks"),
    ({"serviceAccount": {"name": "null"}}, "at '/serviceAccount/name"),
    ({"serviceAccount": {"name": "yes"}}, "at '/serviceAccount/name"),
    ({"serviceAccount": {"name": "123"}}, "at '/serviceAccount/name"),
    ({"serviceAccount": {"name": "1e3"}}, "at '/serviceAccount/name"),
    ({"serviceAccount": {"name": "Watchdog"}}, "at '/serviceAccount/name"),
    ({"serviceAccount": {"name": "a/b"}}, "at '/serviceAccount/name"),
    ({"driver": {"hostPath": "/a/../etc"}}, "at '/driver/hostPath"),
    ({"driver": {"hostPath": "/a #b"}}, "at '/driver/hostPath"),
    ({"driver": {"hostPath": "/"}}, "at '/driver/hostPath"),
    ({"driver": {"hostPath": "relative"}}, "at '/driver/hostPath"),
    ({"driver": {"library": "/usr/lib/../x.so"}}, "at '/driver/library"),
    ({"driver": {"runtimeClassName": "Not A Class"}}, "at '/driver/runtimeClassName"),
    ({"priorityClassName": "no class"}, "at '/priorityClassName"),
    ({"resources": {"limits": {"memory": "lots"}}}, "at '/resources/limits/memory"),
    ({"resources": {"limits": {"memory": "256MB"}}}, "at '/resources/limits/memory"),
    ({"resources": {"requests": {"cpu": -1}}}, "at '/resources/requests/cpu"),
    ({"nodeSelector": {"a b": "c"}}, "invalid propertyName 'a b'"),
    ({"nodeSelector": {"gpu": "not a label!"}}, "at '/nodeSelector/gpu"),
    ({"podAnnotations": {"a key": "b"}}, "invalid propertyName 'a key'"),
    ({"podLabels": {"team": "a b"}}, "at '/podLabels/team"),
    ({"prometheus": {"rules": {"labels": {"release": "a b"}}}}, "at '/prometheus/rules/labels/release"),
)


@pytest.mark.parametrize(("values", "named"), REFUSED, ids=[json.dumps(values) for values, _ in REFUSED])
def test_an_odd_value_is_refused_by_name(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    """A value that would render a broken object, or one that opens more than was asked for, is refused by its place."""
    assert named in refused(_file(values, tmp_path))


TAKEN: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"driver": {"runtimeClassName": "yes"}},
    {"driver": {"runtimeClassName": "null"}},
    {"driver": {"runtimeClassName": "1e3"}},
    {"driver": {"hostPath": "/home/.nvidia/driver-1.0+x"}},
    {"driver": {"library": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}},
    {"priorityClassName": "123"},
    {"image": {"repository": "localhost:5000/a/b", "tag": "1.0"}, "imagePullSecrets": [{"name": "on"}, {"name": "1"}]},
    {"image": {"digest": f"sha256:{'0' * 64}"}},
    {"image": {"tag": "0x10"}},
    {"podLabels": {"team": "null", "x": "1", "app.kubernetes.io/part-of": "gpus"}},
    {"podAnnotations": {"note": "a: b # c\n", "prometheus.io/port": "1"}, "prometheus": {"annotations": True}},
    {"nodeSelector": {"gpu": "yes", "count": "1"}, "excludeNodeLabels": {"mig": "true"}},
    {"env": [{"name": "GPU_WATCHDOG_PROCFS", "value": "yes"}, {"name": "A", "value": "1"}, {"name": "B"}]},
    {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    {"networkPolicy": {"create": True, "from": [_PEER, {"ipBlock": {"cidr": "192.0.2.0/24"}}]}},
    {"resources": {"limits": {"memory": "1Gi", "cpu": 1.5}}},
    {"serviceAccount": {"create": False, "name": "a.b-c"}, "openshift": {"scc": False}},
    {"nameOverride": "a" * 70, "podLabels": {"app.kubernetes.io/part-of": "gpus"}},
    {"fullnameOverride": "no-", "nameOverride": "0x1f-"},
    {"fullnameOverride": f"{'a' * 62}-b", "prometheus": {"podMonitor": {"create": False}}},
    {"existingConfigMap": {"name": "on", "key": "1"}},
    {"existingConfigMap": {"name": "a.b-c", "key": "_My-policy.v2.toml"}, "policyCheck": False},
    {"gpuOperator": {"client": True}, "nodeSelector": {"nvidia.com/gpu.deploy.client": "false"}},
    {"serviceAccount": {"name": ""}, "fullnameOverride": "guard"},
    {"seLinuxOptions": {"type": "spc_t", "level": "s0:c1,c2"}},
    {"resourceQuota": {"create": True}, "priorityClassName": "true"},
    {"maxUnavailable": "100%", "listen": "::", "journal": {"path": "/mnt/gpu-watchdog"}},
)


@pytest.mark.parametrize("values", TAKEN, ids=json.dumps)
def test_what_is_taken_is_valid(values: dict[str, Any], tmp_path: Path) -> None:
    """Every accepted value arrives as it was given, in objects that pass the validation of Kubernetes itself."""
    objects = kustomize.rendered("", _file(values, tmp_path))
    (daemonset,) = (each.content for each in objects.values() if each.content["kind"] == "DaemonSet")
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text("---\n".join(each.text for each in objects.values()), encoding="utf-8")
    done = subprocess.run([kubectl_validate(), manifests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    template = daemonset["spec"]["template"]
    spec = template["spec"]
    for name, value in (("runtimeClassName", values.get("driver", {}).get("runtimeClassName")),):
        assert value is None or spec[name] == value
    assert spec["priorityClassName"] == values.get("priorityClassName", "system-node-critical")
    assert values.get("podLabels", {}).items() <= template["metadata"]["labels"].items()
    assert values.get("podAnnotations", {}).items() <= template["metadata"].get("annotations", {}).items()
    wanted = (
        {**values.get("nodeSelector", {}), **_CLIENT} if "gpuOperator" in values else values.get("nodeSelector", {})
    )
    assert wanted.items() <= spec["nodeSelector"].items()
    given = values.get("env", [])
    assert [each for each in spec["containers"][0]["env"] if each in given] == given


def test_no_object_says_a_key_twice(tmp_path: Path) -> None:
    """No key appears twice: podAnnotations take precedence over the annotations of the chart."""
    values = {"prometheus": {"annotations": True}, "podAnnotations": {"prometheus.io/scrape": "false"}}
    text = kustomize.rendered("", _file(values, tmp_path))["daemonset-gpu-watchdog"].text
    assert text.count("prometheus.io/scrape") == 1
    annotations = yaml.safe_load(text)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "false"


def _file(values: dict[str, Any], folder: Path) -> str:
    path = folder / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return f"--values={path}"
