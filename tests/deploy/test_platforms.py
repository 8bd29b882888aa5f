"""The values of each platform, rendered by the real helm: what its page says, and no more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.chart import daemonset
from tools import ROOT, kustomize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_INSTALL: Final = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
_PRESENT: Final = {"nvidia.com/gpu.present": "true"}
_GPU: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a platform needs; docs/install.md has the sources."""

    runtime: str | None = None
    selector: Mapping[str, str] | None = None
    labels: tuple[str, ...] = ()
    folder: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    admin_claim: bool = False


_EXPECTED: Final = {
    "eks": Expected(
        labels=(
            "nvidia.com/gpu.present",
            "eks.amazonaws.com/instance-gpu-manufacturer",
            "karpenter.k8s.aws/instance-gpu-manufacturer",
        ),
        # Images from v20260423 on have accept-nvidia-visible-devices-envvar-when-unprivileged = false.
        privileged=True,
    ),
    # As the DaemonSet of GKE's own device plugin.
    "gke": Expected(
        labels=("cloud.google.com/gke-accelerator",), folder="/home/kubernetes/bin/nvidia", privileged=True
    ),
    # "Containers that manage cards" by NVIDIA_VISIBLE_DEVICES need the class since 25.10.
    "gpu-operator": Expected(runtime="nvidia", selector=_PRESENT),
    # As the operator's dcgm-exporter there.
    "gpu-operator-dra": Expected(selector=_PRESENT, admin_claim=True),
    # No class and no handler; the annotation in their place.
    "gpu-operator-nri": Expected(
        selector=_PRESENT, annotations={"nvidia.cdi.k8s.io/container.watchdog": "management.nvidia.com/gpu=all"}
    ),
    "k3s": Expected(runtime="nvidia", selector=_PRESENT),  # the class comes with k3s
    "kind": Expected(runtime="nvidia", selector=_PRESENT),  # nvkind makes the runtime and the class
    # The class is the operator's to make where the runtime is not the default one.
    "kubeadm": Expected(runtime="nvidia", selector=_PRESENT),
}


def _section(platform: str) -> str:
    """The section of a platform, whose anchor is the platform's name; empty if there is none."""
    for section in re.split(r"^## ", _INSTALL, flags=re.MULTILINE):
        title = section.partition("\n")[0].lower()
        if re.sub(r"[^\w -]", "", title).replace(" ", "-") == platform:
            return section
    return ""


def _affinity(spec: dict[str, Any]) -> tuple[str, ...]:
    if "affinity" not in spec:
        return ()
    chosen = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return tuple(each["key"] for term in chosen["nodeSelectorTerms"] for each in term["matchExpressions"])


def test_each_platform_has_values_and_a_section() -> None:
    """No section lacks its values file, and no values file its section."""
    assert kustomize.PLATFORMS.keys() == _EXPECTED.keys()
    assert all(_section(platform) for platform in _EXPECTED)


@pytest.mark.parametrize("platform", _EXPECTED)
def test_what_a_platform_s_values_come_to(platform: str) -> None:
    """Driver, runtime class, nodes, taints and security are those in the table of docs/install.md."""
    template = daemonset(f"--values={kustomize.PLATFORMS[platform]}")["template"]
    expected = _EXPECTED[platform]
    spec = template["spec"]
    assert spec.get("runtimeClassName") == expected.runtime
    assert (spec.get("nodeSelector"), _affinity(spec)) == (expected.selector, expected.labels)
    assert template["metadata"].get("annotations", {}) == expected.annotations
    assert spec["tolerations"] == [_GPU]
    folders = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    driver = {} if expected.folder is None else {"driver": expected.folder}
    assert folders == {"state": "/var/lib/gpu-watchdog"} | driver
    context = spec["containers"][0]["securityContext"]
    assert context.get("privileged", False) is expected.privileged
    assert expected.privileged is ("capabilities" not in context)
    claims = [{"name": "cards"}] if expected.admin_claim else None
    assert spec["containers"][0]["resources"].get("claims") == claims
    assert [each["name"] for each in spec.get("resourceClaims", ())] == [each["name"] for each in claims or ()]
    # The name of the container is a part of the annotation's.
    assert all(key.endswith(f".{spec['containers'][0]['name']}") for key in expected.annotations)


def test_the_values_for_spectro_s_installer(tmp_path: Path) -> None:
    """Its nodes have a label of their own, and the driver where GKE has it: the printed values change nothing else."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", _section("spectro-cloud-palette"), re.MULTILINE | re.DOTALL)
    (tmp_path / "values.yaml").write_text(block, encoding="utf-8")
    gke = f"--values={kustomize.PLATFORMS['gke']}"
    spec = daemonset(gke, f"--values={tmp_path / 'values.yaml'}")["template"]["spec"]
    assert _affinity(spec) == ("spectrocloud.com/gpu-accelerator",)
    assert spec | {"affinity": None} == daemonset(gke)["template"]["spec"] | {"affinity": None}


@pytest.mark.parametrize("platform", _EXPECTED)
def test_each_section_has_a_dated_source(platform: str) -> None:
    """What a platform needs is known from somewhere, as of a day: its section links to it, with the day."""
    points = _section(platform).partition("\n**Sources.**\n")[2].split("\n- ")
    assert [point for point in points if "(https://" in point and re.search(r"\b20\d\d-\d\d-\d\d\b", point)]


def test_the_table_of_the_platforms_tells_it() -> None:
    """docs/install.md has a row for each platform, with its runtime class, security and driver as they are rendered."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in _INSTALL.splitlines() if line[:3] == "| ["
    ]
    found = {row[0].partition("(#")[2].removesuffix(")"): row for row in rows}
    assert found.keys() == _EXPECTED.keys()
    for platform, expected in _EXPECTED.items():
        assert (f"`{expected.runtime}`" if expected.runtime else "none") in found[platform][1]
        assert (f"`{expected.folder}`" in found[platform][2]) is (expected.folder is not None)
        assert ("annotation" in found[platform][2]) is bool(expected.annotations)
        assert ("claim" in found[platform][2]) is expected.admin_claim
        assert found[platform][4].startswith("privileged" if expected.privileged else "minimal"), platform


def test_the_last_stage_has_every_platform_s_label() -> None:
    """docs/rollout.md labels all nodes with cards by what they have: a label that none has would enforce nowhere."""
    text = (ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")
    (reported,) = (each for each in text.split("\n\n") if each.startswith("`LABEL` is"))
    for platform, expected in _EXPECTED.items():
        assert all(f"`{key}" in reported for key in (*expected.labels, *(expected.selector or ()))), platform


def test_nvkind_and_kind_mean_the_same_cluster() -> None:
    """Nvkind makes a name up where KIND_CLUSTER_NAME is not set; `kind load` then finds no nodes."""
    (block,) = re.findall(r"(?:^ {4}.*\n)*^ {4}nvkind cluster create\n(?:^ {4}.*\n)*", _section("kind"), re.MULTILINE)
    lines = [line.strip() for line in block.splitlines()]
    assert lines[0].startswith("export KIND_CLUSTER_NAME=")
    assert any(line.startswith("kind load docker-image") for line in lines)
    assert "RuntimeClass" not in block
