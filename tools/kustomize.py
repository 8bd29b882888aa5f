"""Writes deploy/kustomize/ from the chart: a base that observes, and overlays for what a policy may want besides.

`python -m tools.kustomize` writes it again, with helm. An overlay has the policy, what its rights add, and what
they change; a component has what a platform's values change. That they come to the same objects as the chart with that
policy and those values is for the tests to compare. The Namespace is of this folder alone: helm keeps a release in its
namespace, which is there before the release is.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tools import ROOT
from tools.chart import CHART
from tools.programs import helm
from tools.rights import POLICY

KUSTOMIZE: Final = ROOT / "deploy" / "kustomize"
PLATFORMS: Final = {path.stem: path for path in sorted((CHART / "platforms").glob("*.yaml"))}
# What the chart makes, or leaves out, when it is asked to, each a component: its name and the value that asks.
OPTIONS: Final[Mapping[str, str]] = {
    "authentication": "authentication.enabled=true",
    "dashboard": "grafana.dashboard.create=true",
    "gpu-operator-client": "gpuOperator.client=true",
    "mps": "mps.mounts=true",
    "open-port": "networkPolicy.create=false",
    "openshift": "openshift.scc=true",
    "pod-monitor": "prometheus.podMonitor.create=true",
    "prometheus-rules": "prometheus.rules.create=true",
}
NAMESPACE: Final = "gpu-memory-watchdog"
_NAMESPACE: Final = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
    # The Pod Security levels "baseline" and "restricted" reject hostPID and hostPath volumes.
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/audit: privileged
    pod-security.kubernetes.io/warn: privileged
"""
_BASE: Final = "base"
# Where objects name others in ways that Kustomize does not know, so that a prefix reaches both. It knows the binding's
# since 5.4.3 (kubectl 1.32); a binding that names no policy restricts nobody, without an error.
_NAMES: Final = """\
nameReference:
  - kind: ValidatingAdmissionPolicy
    group: admissionregistration.k8s.io
    fieldSpecs:
      - kind: ValidatingAdmissionPolicyBinding
        group: admissionregistration.k8s.io
        path: spec/policyName
  - kind: SecurityContextConstraints
    group: security.openshift.io
    fieldSpecs:
      - kind: ClusterRole
        group: rbac.authorization.k8s.io
        path: rules/resourceNames
"""
_CAPACITY: Final = """
# ---- What nodes advertise, so that the scheduler counts it: docs/capacity.md -----------------------------------------

[capacity]
resource = "veriff.com/gpu-memory"
reserve = "1Gi"           # of each card, for what is not in pods
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """One object as it is rendered: its text, comments and all, and what it says."""

    text: str
    content: Mapping[str, Any]

    @property
    def key(self) -> str:
        """What tells it from the others, fit for a file's name."""
        return f"{self.content['kind']}-{self.content['metadata']['name']}".lower()


def policies() -> Mapping[str, str]:
    """The policy of each overlay: the one that ships, with what the overlay's name says."""
    shipped = POLICY.read_text(encoding="utf-8")
    enforcing, found = re.subn(r'^mode = "observe"$', 'mode = "enforce"', shipped, count=1, flags=re.MULTILINE)
    assert found, f'{POLICY.name} has no line `mode = "observe"`'
    return {"observe": shipped, "enforce": enforcing, "capacity": shipped.rstrip() + "\n" + _CAPACITY}


def rendered(policy: str, *flags: str) -> dict[str, Object]:
    """What the chart comes to with a policy, by key. Raises CalledProcessError."""
    command = [
        str(helm()),
        "template",
        "gpu-watchdog",
        str(CHART),
        f"--namespace={NAMESPACE}",
        # Kustomize knows none: docs/capacity.md says what to do there in place of the one that uninstalling has.
        "--no-hooks",
        "--set-file=policy=/dev/stdin",
    ]
    done = subprocess.run([*command, *flags], input=policy, check=True, capture_output=True, text=True)
    return {each.key: each for each in _objects(done.stdout)}


# The labels that only a release of helm has.
OF_HELM: Final = re.compile(
    r"^ +(app\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/chart): .*\n", re.MULTILINE
)


def whole(policy: str, *flags: str) -> dict[str, Object]:
    """All objects of Kustomize: the chart's without the labels of a release, and the Namespace.

    Raises CalledProcessError.
    """
    text = "---\n".join([_NAMESPACE, *(OF_HELM.sub("", each.text) for each in rendered(policy, *flags).values())])
    return {each.key: each for each in _objects(text)}


def files() -> dict[str, str]:
    """The text of each file below deploy/kustomize, by its path there."""
    found = policies()
    base = whole(found["observe"])
    texts = {f"{_BASE}/{key}.yaml": each.text for key, each in base.items() if key != _POLICY_KEY}
    texts[f"{_BASE}/policy.toml"] = found["observe"]
    names = sorted(name.partition("/")[2] for name in texts if name.endswith(".yaml"))
    texts[f"{_BASE}/names.yaml"] = _NAMES
    texts[f"{_BASE}/kustomization.yaml"] = _kustomization(resources=names, behaviour="create")
    for overlay, policy in found.items():
        texts |= {f"overlays/{overlay}/{name}": text for name, text in _overlay(overlay, policy, base).items()}
    for platform, values in PLATFORMS.items():
        now = whole(found["observe"], f"--values={values}")
        head = f"# Generated from deploy/chart/platforms/{platform}.yaml, which has the reasons.\n"
        texts |= {f"platforms/{platform}/{name}": text for name, text in _component(head, now, base).items()}
    for option, value in OPTIONS.items():
        now = whole(found["observe"], f"--set={value}")
        head = f"# Generated from deploy/chart with {value}.\n"
        texts |= {f"options/{option}/{name}": text for name, text in _component(head, now, base).items()}
    return texts


_POLICY_KEY: Final = "configmap-gpu-watchdog-policy"


def _overlay(name: str, policy: str, base: Mapping[str, Object]) -> dict[str, str]:
    if name == "observe":
        return {"kustomization.yaml": _kustomization(resources=["../../base"])}
    now = whole(policy)
    assert base.keys() <= now.keys()
    more = {f"{key}.yaml": each.text for key, each in now.items() if key not in base}
    other = {
        f"{key}.yaml": each.text
        for key, each in now.items()
        if key in base and key != _POLICY_KEY and each.content != base[key].content
    }
    kustomization = _kustomization(resources=["../../base", *sorted(more)], patches=sorted(other), behaviour="replace")
    return {"kustomization.yaml": kustomization, "policy.toml": policy, **more, **other}


def _component(head: str, now: Mapping[str, Object], base: Mapping[str, Object]) -> dict[str, str]:
    """What some values add and leave out, and how they change the DaemonSet's pods: nothing else may differ."""
    more = {f"{key}.yaml": each.text for key, each in now.items() if key not in base}
    key = "daemonset-gpu-watchdog"
    assert all(each.content == now[other].content for other, each in base.items() if other != key and other in now)
    (before, after) = (each[key].content["spec"]["template"] for each in (base, now))
    changes = [*_changes("/spec/template/spec", before["spec"], after["spec"], but="containers")]
    (inside_before,), (inside_after, *others) = (each["spec"]["containers"] for each in (before, after))
    changes += _changes("/spec/template/spec/containers/0", inside_before, inside_after)
    changes += [{"op": "add", "path": "/spec/template/spec/containers/-", "value": each} for each in others]
    content: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    if more:
        content["resources"] = sorted(more)
    patches: dict[str, tuple[Mapping[str, Any], Any]] = {
        f"{other}.yaml": (each.content, _identity(each.content) | {"$patch": "delete"})
        for other, each in base.items()
        if other not in now
    }
    if changes:
        patches["daemonset.yaml"] = (base[key].content, changes)
    # Merged, since several components may each add to them.
    if metadata := _additions(before["metadata"], after["metadata"]):
        merged = {"spec": {"template": {"metadata": metadata}}}
        patches["metadata.yaml"] = (base[key].content, _identity(base[key].content) | merged)
    if patches:
        content["patches"] = [{"path": name, "target": _target(of)} for name, (of, _) in patches.items()]
    texts = {name: yaml.safe_dump(patch, sort_keys=False) for name, (_, patch) in patches.items()}
    return {"kustomization.yaml": head + yaml.safe_dump(content, sort_keys=False), **texts, **more}


def _target(content: Mapping[str, Any]) -> dict[str, str]:
    return {"kind": content["kind"], "name": content["metadata"]["name"]}


def _identity(content: Mapping[str, Any]) -> dict[str, Any]:
    """How a patch that is merged begins."""
    return {
        "apiVersion": content["apiVersion"],
        "kind": content["kind"],
        "metadata": {"name": content["metadata"]["name"]},
    }


def _additions(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The labels and annotations that one object has beside another's."""
    parts = {key: dict(value.items() - before.get(key, {}).items()) for key, value in after.items()}
    return {key: part for key, part in parts.items() if part}


def _changes(place: str, before: Mapping[str, Any], after: Mapping[str, Any], but: str = "") -> Iterator[Any]:
    """What makes one object of the other (RFC 6902), by its own keys."""
    yield from ({"op": "remove", "path": f"{place}/{key}"} for key in sorted(before.keys() - after.keys()))
    for key, value in after.items():
        if key == but or before.get(key) == value:
            continue
        if _begin_alike(before.get(key), value):
            yield from _list_changes(f"{place}/{key}", before[key], value)
        else:
            yield {"op": "add", "path": f"{place}/{key}", "value": value}


def _begin_alike(before: Any, after: Any) -> bool:
    """Whether a list of named things only has changed items, and more at its end."""
    if not isinstance(before, list) or not isinstance(after, list) or len(before) > len(after):
        return False
    return all(
        isinstance(old, dict) and "name" in old and old["name"] == new.get("name")
        for old, new in zip(before, after, strict=False)
    )


def _list_changes(place: str, before: list[Any], after: list[Any]) -> Iterator[Any]:
    """What changes such a list, item by item: several components may each add to it."""
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            yield {"op": "replace", "path": f"{place}/{number}", "value": new}
    yield from ({"op": "add", "path": f"{place}/-", "value": new} for new in after[len(before) :])


def _kustomization(resources: list[str], patches: list[str] | None = None, behaviour: str | None = None) -> str:
    content: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if behaviour == "create":
        content["namespace"] = NAMESPACE
        content["configurations"] = ["names.yaml"]
    content["resources"] = resources
    if patches:
        content["patches"] = [{"path": name} for name in patches]
    if behaviour is not None:
        content["configMapGenerator"] = [
            {
                "name": "gpu-watchdog-policy",
                "namespace": NAMESPACE,
                "behavior": behaviour,
                "files": ["policy.toml"],
                # The same name for every policy: a changed one is read where it is, and no pod starts again.
                "options": {"disableNameSuffixHash": True, "labels": {"app.kubernetes.io/name": NAMESPACE}},
            }
        ]
    return yaml.safe_dump(content, sort_keys=False)


def _objects(text: str) -> Iterator[Object]:
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        kept = re.sub(r"^# Source: .*\n", "", document, flags=re.MULTILINE).strip() + "\n"
        content = yaml.safe_load(kept)
        if content is not None:
            yield Object(text=kept, content=content)


def main() -> None:
    """Write all of it, and take away what is no longer a part of it."""
    texts = files()
    for path in [each for each in KUSTOMIZE.rglob("*") if each.is_file()]:
        if str(path.relative_to(KUSTOMIZE)) not in texts:
            path.unlink()
    for name, text in texts.items():
        path = KUSTOMIZE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
