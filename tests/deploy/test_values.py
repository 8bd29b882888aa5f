"""Values of the chart: each is refused by its place, or gives valid objects with the same meaning."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import DAEMONSET, daemonset, objects, of_kind, pod, refused
from tools import kustomize
from tools.chart import CHART
from tools.programs import kubectl_validate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_CLIENT: Final = {"nvidia.com/gpu.deploy.client": "true"}
_PEER: Final[dict[str, Any]] = {"namespaceSelector": {}}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "namespaceSelector": {}}
_POD_AFFINITY: Final = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight": 1, "podAffinityTerm": _POD_TERM}]}
_NODE_TERM: Final = {
    "matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}, {"key": "gpu", "operator": "Exists"}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-a"]}],
}
_NODE_AFFINITY: Final = {
    _REQUIRED: {"nodeSelectorTerms": [_NODE_TERM]},
    _PREFERRED: [{"weight": 100, "preference": _NODE_TERM}],
}
_OTHER_PROXY: Final = {
    "enabled": True,
    "container": {
        "name": "other",
        "image": "registry.test/other:1",
        "args": ["--to=http://127.0.0.1:9838"],
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
    },
    "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
}
_ENFORCE: Final = 'mode = "enforce"\n'
REFUSED: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    # Misspelt keys.
    ({"securty": "minimal"}, "'securty' not allowed"),
    ({"namespace": {"create": True}}, "'namespace' not allowed"),
    ({"seLinuxOptions": {"typ": "spc_t"}}, "'typ' not allowed"),
    ({"tolerations": [{"operater": "Exists"}]}, "'operater' not allowed"),
    ({"resources": {"limit": {"memory": "1Gi"}}}, "'limit' not allowed"),
    ({"affinity": {"foo": 1}}, "at '/affinity': additional properties 'foo' not allowed"),
    ({"affinity": {"nodeAffinity": {"required": {}}}}, "'required' not allowed"),
    ({"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"match": []}]}}}}, "'match' not allowed"),
    ({"affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": "a", "labels": {}}]}}}, "'labels' not allowed"),
    ({"affinity": {"podAntiAffinity": {_REQUIRED: [{"labelSelector": {}}]}}}, "missing property 'topologyKey'"),
    ({"affinity": {"podAffinity": {_PREFERRED: [{"weight": 1}]}}}, "missing property 'podAffinityTerm'"),
    ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"secret": "s", "key": "k"}}}]}, "'secret' not allowed"),
    ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"path": "x"}}}]}, "'path' not allowed"),
    # Values of the wrong kind, or outside of what there is.
    ({"security": "none"}, "at '/security': value must be one of"),
    ({"driver": {"mig": "perhaps"}}, "at '/driver/mig': got string, want boolean"),
    ({"mps": {"pipes": ""}}, "at '/mps/pipes'"),
    ({"mps": {"driverRoot": "/run/../driver"}}, "at '/mps/driverRoot'"),
    ({"image": {"digest": "abc"}}, "at '/image/digest'"),
    ({"journal": {"path": "relative"}}, "at '/journal/path'"),
    ({"journal": {"path": "/etc"}}, "at '/journal/path'"),
    ({"journal": {"path": "/var/lib"}}, "at '/journal/path'"),
    ({"journal": {"path": "/var/lib/../gpu-watchdog"}}, "at '/journal/path'"),
    ({"maxUnavailable": "some"}, "at '/maxUnavailable'"),
    ({"maxUnavailable": "0%"}, "at '/maxUnavailable'"),
    ({"maxUnavailable": "101%"}, "at '/maxUnavailable'"),
    ({"maxUnavailable": 0}, "at '/maxUnavailable'"),
    ({"listen": "127.0.0.1"}, "at '/listen': value must be one of"),
    ({"driver": {"library": "/run/x.so", "hostPath": "/d"}}, "driver.hostPath and driver.library exclude each other"),
    # A peer that names nobody lets everyone in.
    ({"networkPolicy": {"create": True, "from": [{}]}}, "at '/networkPolicy/from/0"),
    ({"networkPolicy": {"monitoringNamespace": "*"}}, "at '/networkPolicy/monitoringNamespace"),
    ({"networkPolicy": {"monitoringNamespace": ["a"]}}, "at '/networkPolicy/monitoringNamespace"),
    ({"networkPolicy": {"namespace": "a"}}, "'namespace' not allowed"),
    ({"authentication": {"create": True}}, "'create' not allowed"),
    ({"authentication": {"enabled": "yes"}}, "at '/authentication/enabled"),
    ({"authentication": {"image": ""}}, "at '/authentication/image"),
    ({"authentication": {"tlsSecret": "My_Cert"}}, "at '/authentication/tlsSecret"),
    ({"authentication": {"readers": ["prometheus"]}}, "at '/authentication/readers/0"),
    ({"authentication": {"readers": [{"name": "prometheus"}]}}, "missing property 'namespace'"),
    ({"authentication": {"readers": [{"namespace": "a", "name": "b", "kind": "Group"}]}}, "'kind' not allowed"),
    ({"authentication": {"resources": {"limits": {"memory": "lots"}}}}, "at '/authentication/resources/limits/memory"),
    ({"networkPolicy": {"create": True, "from": [{"namespace": "monitoring"}]}}, "at '/networkPolicy/from/0"),
    ({"networkPolicy": {"create": True, "from": [{"podSelector": {"app": "a"}}]}}, "'app' not allowed"),
    ({"networkPolicy": {"create": True, "from": [{"podSelector": None}]}}, "at '/networkPolicy/from/0"),
    ({"networkPolicy": {"create": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, **_PEER}]}}, "/from/0'"),
    *(
        ({"networkPolicy": {"create": True, "from": [{"ipBlock": block}]}}, "at '/networkPolicy/from/0/ipBlock")
        for block in (
            *({}, {"cidr": "foo"}, {"cidr": "10.0.0.0"}, {"cidr": "10.0.0.0/33"}, {"cidr": "10.0.0.256/8"}),
            *({"cidr": "1:2:3/64"}, {"cidr": "::1::/64"}, {"cidr": "fd00::/129"}, {"cidr": "::/0", "except": ["foo"]}),
        )
    ),
    # What the chart sets itself.
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "invalid propertyName 'app.kubernetes.io/name'"),
    ({"env": [{"name": "GPU_WATCHDOG_LISTEN", "value": "0.0.0.0:1"}]}, "at '/env/0/name"),
    ({"env": [{"name": "GPU_WATCHDOG_PROBES", "value": "0.0.0.0:1"}]}, "at '/env/0/name"),
    ({"env": [{"name": "NODE_NAME", "value": "other"}]}, "at '/env/0/name"),
    ({"env": [{"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"}]}, "at '/env/0/name"),
    # What Kubernetes would refuse, or take for something else.
    ({"env": [{"name": "A", "value": 1}]}, "at '/env/0/value"),
    ({"env": [{"name": "A", "value": True}]}, "at '/env/0/value"),
    ({"env": [{"name": "A", "valu": "b"}]}, "at '/env/0"),
    ({"env": [{"name": "A B", "value": "c"}]}, "at '/env/0/name"),
    ({"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}, "at '/env/0"),
    ({"env": [{"name": "A", "valueFrom": {"file": {}}}]}, "at '/env/0/valueFrom"),
    ({"env": [{"name": "A", "value": "b"}, {"name": "A", "value": "c"}]}, "env: A appears more than once"),
    ({"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 0, "preference": _NODE_TERM}]}}}, "/weight'"),
    (
        {"affinity": {"podAffinity": {_REQUIRED: [_POD_TERM | {"labelSelector": _NODE_TERM}]}}},
        "'matchFields' not allowed",
    ),
    # Prometheus takes 0 for its own default interval.
    ({"prometheus": {"podMonitor": {"interval": "0s"}}}, "at '/prometheus/podMonitor/interval"),
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
def test_a_wrong_value_is_refused_by_name(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    """A misspelt key, or a value that would render a broken object or open more than was asked for, is named."""
    assert named in refused(_file(values, tmp_path))


def _paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


@pytest.mark.parametrize("path", [*_paths(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")))], ids=".".join)
def test_a_default_that_is_removed_is_missed_or_not_needed(path: tuple[str, ...], tmp_path: Path) -> None:
    """A value set to null is refused by name, or leaves valid objects behind; a peer that is missing opens no port."""
    removed: Any = None
    for key in reversed(path):
        removed = {key: removed}
    if path[0] != "networkPolicy" or len(path) > 1:
        removed["networkPolicy"] = {"create": True, **removed.get("networkPolicy", {})}
    reported = ""
    try:
        rendered = kustomize.rendered("", _file(removed, tmp_path))
    except subprocess.CalledProcessError as error:
        reported, rendered = error.stderr, {}
    if reported:
        assert f"missing property '{path[-1]}'" in reported
        return
    _demand_valid(rendered.values(), tmp_path)
    (found,) = (each.content for each in rendered.values() if each.content["kind"] == "NetworkPolicy")
    assert found["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize("namespace", ["123", "1e3", "0x1f", "yes", "null", "true"])
def test_a_namespace_may_look_like_a_number(namespace: str, tmp_path: Path) -> None:
    """Every name of a namespace is a valid one: quoted, it stays text in all objects."""
    values = {"authentication": {"enabled": True}, "resourceQuota": {"create": True}}
    policy = 'mode = "enforce"\n[[rule]]\nname = "a"\n[[rule.step]]\nabove = "100%"\ndo = "evict"\n'
    rendered = kustomize.rendered(policy, f"--namespace={namespace}", _file(values, tmp_path))
    _demand_valid(rendered.values(), tmp_path)
    for each in rendered.values():
        places = [each.content["metadata"], *each.content.get("subjects", [])]
        assert {place["namespace"] for place in places if "namespace" in place} <= {namespace}


@pytest.mark.parametrize(
    "policy",
    ['  mode = "observe"\nschemes = ["*"]\n', ' # spaces\nmode = "observe"', '\tmode = "observe"\n\n# \u2028 end\n\n'],
)
def test_a_policy_arrives_as_it_was_written(policy: str) -> None:
    """A first line that begins with a space or a tab is valid TOML, and breaks no ConfigMap."""
    found = of_kind(objects(policy=policy), "ConfigMap")
    assert [each["data"]["policy.toml"] for each in found] == [policy, policy]


@pytest.mark.parametrize(
    ("policy", "reported"),
    [
        ('[rule]\nname = "a"', "policy: rule must be a list of tables, each written [[rule]]"),
        ('rule = ["a"]', "policy: rule must be a list of tables, each written [[rule]]"),
        ("[[rule]]\nstep = 1", "policy: step must be a list of tables, each written [[rule.step]]"),
        ('[[rule]]\nmatch = ["a"]', "policy: match must be a table"),
        ("mode = 1", 'policy: mode must be "observe" or "enforce"'),
        ("events = true", "policy: events must be a table, written [events]"),
        ("capacity = true", "policy: capacity must be a table, written [capacity]"),
        ('[protect]\nnamespaces = "a"', "policy: namespaces in [protect] must be a list"),
    ],
)
def test_a_policy_of_another_shape_is_refused_in_words(policy: str, reported: str) -> None:
    """The chart reads the policy for the rights that it needs: a common mistake gives a sentence, not a trace."""
    assert reported in refused(policy=policy)


def test_a_policy_that_is_no_toml_is_refused() -> None:
    """It would end the daemon at its start; helm reports it with the line."""
    assert "policy: this is not TOML: toml: line 2" in refused(policy="mode = 'observe'\nx = =\n")


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
    {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}]},
    {"networkPolicy": {"create": True, "from": [_PEER, {"ipBlock": {"cidr": "192.0.2.0/24"}}]}},
    {"networkPolicy": {"create": True, "from": [{"podSelector": {"matchLabels": {"app": "a"}}, **_PEER}]}},
    {"networkPolicy": {"create": True, "from": [{"ipBlock": {"cidr": "fd00::/8", "except": ["fd00:1::1/128"]}}]}},
    {"networkPolicy": {"create": True, "from": [{"ipBlock": {"cidr": "::/0"}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]}},
    {"networkPolicy": {"monitoringNamespace": ""}},
    {"networkPolicy": {"monitoringNamespace": "123"}},
    {"networkPolicy": {"monitoringNamespace": "", "from": [_PEER]}},
    {"authentication": {"enabled": True}},
    {"authentication": {"enabled": True, "tlsSecret": "1.0", "readers": [{"namespace": "1", "name": "1.0"}]}},
    {"authentication": _OTHER_PROXY, "listen": "::", "security": "privileged"},
    {"affinity": {"nodeAffinity": _NODE_AFFINITY, "podAffinity": _POD_AFFINITY, "podAntiAffinity": _POD_AFFINITY}},
    {"affinity": {"nodeAffinity": _NODE_AFFINITY}, "excludeNodeLabels": {"mig": "true"}},
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
    rendered = kustomize.rendered("", _file(values, tmp_path))
    _demand_valid(rendered.values(), tmp_path)
    (found,) = (each.content for each in rendered.values() if each.content["kind"] == "DaemonSet")
    template = found["spec"]["template"]
    spec = template["spec"]
    name = values.get("driver", {}).get("runtimeClassName")
    assert name is None or spec["runtimeClassName"] == name
    assert spec["priorityClassName"] == values.get("priorityClassName", "system-node-critical")
    assert values.get("podLabels", {}).items() <= template["metadata"]["labels"].items()
    assert values.get("podAnnotations", {}).items() <= template["metadata"].get("annotations", {}).items()
    wanted = {**values.get("nodeSelector", {}), **(_CLIENT if "gpuOperator" in values else {})}
    assert wanted.items() <= spec["nodeSelector"].items()
    given = values.get("env", [])
    assert [each for each in spec["containers"][0]["env"] if each in given] == given


def test_no_object_says_a_key_twice(tmp_path: Path) -> None:
    """No key appears twice: podAnnotations take precedence over the annotations of the chart."""
    values = {"prometheus": {"annotations": True}, "podAnnotations": {"prometheus.io/scrape": "false"}}
    text = kustomize.rendered("", _file(values, tmp_path))[DAEMONSET].text
    assert text.count("prometheus.io/scrape") == 1
    annotations = yaml.safe_load(text)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "false"


def _demand_valid(found: Iterable[kustomize.Object], folder: Path) -> None:
    manifests = folder / "manifests.yaml"
    manifests.write_text("---\n".join(each.text for each in found), encoding="utf-8")
    done = subprocess.run([kubectl_validate(), manifests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _file(values: dict[str, Any], folder: Path) -> str:
    path = folder / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return f"--values={path}"


def test_enforcing_needs_a_journal_that_stays() -> None:
    """An emptyDir is gone with the pod, and the brakes would forget: refused for a policy that enforces."""
    assert 'the brakes of a policy with mode = "enforce"' in refused("--set=journal.type=emptyDir", policy=_ENFORCE)
    assert {"name": "state", "emptyDir": {}} in pod("--set=journal.type=emptyDir")["volumes"]


@pytest.mark.parametrize(
    ("variable", "is_kept"),
    [
        ({"value": "/var/lib/gpu-watchdog/other.db"}, True),
        ({"value": "/tmp/journal.db"}, False),  # an emptyDir
        ({"value": "/var/lib/gpu-watchdog/../../../tmp/journal.db"}, False),
        ({"value": "/var/lib/gpu-watchdog-2/journal.db"}, False),
        ({"value": "journal.db"}, False),
        ({"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, False),
    ],
)
def test_enforcing_keeps_the_journal_on_its_volume(variable: dict[str, Any], *, is_kept: bool) -> None:
    """No variable takes the journal to a place that is gone with the pod, under a policy that enforces."""
    env = f"--set-json=env={json.dumps([{'name': 'GPU_WATCHDOG_JOURNAL', **variable}])}"
    assert pod(env)
    if is_kept:
        assert pod(env, policy=_ENFORCE)
    else:
        assert "env: GPU_WATCHDOG_JOURNAL is not below /var/lib/gpu-watchdog" in refused(env, policy=_ENFORCE)


@pytest.mark.parametrize("path", ["/var/lib/gpu-watchdog", "/gpu-watchdog", "/mnt/disk-1/gpu-watchdog-mig"])
def test_the_journal_has_a_folder_of_its_own(path: str) -> None:
    """Any disk of the node, and none of its folders that something else uses."""
    (state,) = (each for each in pod(f"--set=journal.path={path}")["volumes"] if each["name"] == "state")
    assert state["hostPath"] == {"path": path, "type": "DirectoryOrCreate"}


@pytest.mark.parametrize("count", ["1", "50", "1%", "99%", "100%"])
def test_as_many_nodes_as_kubernetes_takes(count: str) -> None:
    """Both kinds, up to all nodes; never none, with which no update would go on."""
    rolling = daemonset(f"--set=maxUnavailable={count}")["updateStrategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": int(count) if count.isdigit() else count}
