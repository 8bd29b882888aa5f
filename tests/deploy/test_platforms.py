"""The values of each platform, rendered by the real helm and by the real kubectl: what its page says, and no more."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools import ROOT, kustomize
from tools.programs import programs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_INSTALL: Final = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
_YAML: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRESENT: Final = {"nvidia.com/gpu.present": "true"}
_GPU: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}
_GITHUB: Final = "https://github.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a platform needs, with the source of it: an address, and the day it is of or was read on."""

    runtime: str | None = None
    selector: Mapping[str, str] | None = None
    labels: tuple[str, ...] = ()
    folder: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    sources: tuple[tuple[str, str], ...]


_EXPECTED: Final = {
    "eks": Expected(
        labels=(
            "nvidia.com/gpu.present",
            "eks.amazonaws.com/instance-gpu-manufacturer",
            "karpenter.k8s.aws/instance-gpu-manufacturer",
        ),
        privileged=True,
        # Images from v20260423 on have accept-nvidia-visible-devices-envvar-when-unprivileged = false.
        sources=((f"{_GITHUB}/awslabs/amazon-eks-ami/issues/2706", "2026-05-06"),),
    ),
    "gke": Expected(
        labels=("cloud.google.com/gke-accelerator",),
        folder="/home/kubernetes/bin/nvidia",
        privileged=True,
        # The DaemonSet of GKE's own plugin: folder, label, privileged.
        sources=(
            (
                f"{_GITHUB}/GoogleCloudPlatform/container-engine-accelerators/blob/master/cmd/nvidia_gpu/device-plugin.yaml",
                "2026-11-22",
            ),
        ),
    ),
    "gpu-operator": Expected(
        runtime="nvidia",
        selector=_PRESENT,
        # "Containers that manage cards" by NVIDIA_VISIBLE_DEVICES need the class since 25.10.
        sources=(("https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/cdi.html", "2026-11-22"),),
    ),
    "gpu-operator-nri": Expected(
        selector=_PRESENT,
        annotations={"nvidia.cdi.k8s.io/container.watchdog": "management.nvidia.com/gpu=all"},
        # No class and no handler; the annotation in their place; namespaces that may have it.
        sources=(
            (f"{_GITHUB}/NVIDIA/NVSentinel/issues/1717", "2026-09-02"),
            (f"{_GITHUB}/NVIDIA/gpu-operator/pull/1950", "2025-12-01"),
            (f"{_GITHUB}/NVIDIA/nvidia-container-toolkit/pull/1901", "2026-06-24"),
        ),
    ),
    # The class comes with k3s.
    "k3s": Expected(
        runtime="nvidia", selector=_PRESENT, sources=((f"{_GITHUB}/k3s-io/k3s/issues/8700", "2023-12-12"),)
    ),
    # nvkind makes the runtime and the class, and takes its cluster's name from the environment.
    "kind": Expected(
        runtime="nvidia",
        selector=_PRESENT,
        sources=(
            (
                f"{_GITHUB}/NVIDIA/nvkind/blob/4cd62b204d184b4defe331ad64ac3ca3dbdb19a6/cmd/nvkind/cluster_create.go",
                "2026-11-22",
            ),
        ),
    ),
    # The class is the operator's to make where the runtime is not the default one.
    "kubeadm": Expected(
        runtime="nvidia", selector=_PRESENT, sources=((f"{_GITHUB}/NVIDIA/k8s-device-plugin/pull/1304", "2025-07-04"),)
    ),
}


def _template(platform: str) -> dict[str, Any]:
    found = kustomize.rendered("", f"--values={kustomize.PLATFORMS[platform]}")["daemonset-gpu-watchdog"]
    template: dict[str, Any] = found.content["spec"]["template"]
    return template


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
    """Nobody finds a section without its values file, or one without the other."""
    assert kustomize.PLATFORMS.keys() == _EXPECTED.keys()
    assert all(_section(platform) for platform in _EXPECTED)


@pytest.mark.parametrize("platform", _EXPECTED)
def test_what_a_platform_s_values_come_to(platform: str) -> None:
    """Driver, runtime class, nodes, taints and security are those that the table in docs/install.md tells."""
    template, expected = _template(platform), _EXPECTED[platform]
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
    # The name of the container is a part of the annotation's.
    assert all(key.endswith(f".{spec['containers'][0]['name']}") for key in expected.annotations)


@pytest.mark.parametrize("platform", _EXPECTED)
def test_each_row_has_a_dated_source(platform: str) -> None:
    """What is expected of a platform is somebody's word on a day: its section says whose, and the day beside it."""
    sources = _section(platform).partition("\n**Sources.**\n")[2]
    points = re.split(r"^- ", sources, flags=re.MULTILINE)
    assert _EXPECTED[platform].sources
    for address, day in _EXPECTED[platform].sources:
        assert [point for point in points if f"({address})" in point and day in point], (address, day)


def test_what_is_said_of_mig_has_dated_sources() -> None:
    """Toolkits whose default mode leaves the instances' devices out are named, with where it is from."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (said,) = (each for each in text.split("\n\n") if each.startswith("MIG needs"))
    toolkit = f"{_GITHUB}/NVIDIA/nvidia-container-toolkit"
    assert re.search(rf"1\.18 to 1\.20\.0 .*\({toolkit}/issues/1740\), 2026-03-18", said, re.DOTALL)
    assert re.search(rf"\({toolkit}/pull/1947\), 2026-08-31", said)


def test_the_table_of_the_platforms_tells_it() -> None:
    """docs/install.md has a row for each platform, with its runtime class, security and driver as they are rendered."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in _INSTALL.splitlines() if line[:3] == "| ["
    ]
    told = {row[0].partition("(#")[2].removesuffix(")"): row for row in rows}
    assert told.keys() == _EXPECTED.keys()
    for platform, expected in _EXPECTED.items():
        assert (f"`{expected.runtime}`" if expected.runtime else "none") in told[platform][1]
        assert (f"`{expected.folder}`" in told[platform][2]) is (expected.folder is not None)
        assert ("annotation" in told[platform][2]) is bool(expected.annotations)
        assert told[platform][4].startswith("privileged" if expected.privileged else "minimal"), platform


def test_the_last_stage_has_every_platform_s_label() -> None:
    """docs/rollout.md labels all nodes with cards by what they have: a label that none has would enforce nowhere."""
    text = (ROOT / "docs" / "rollout.md").read_text(encoding="utf-8")
    (said,) = (each for each in text.split("\n\n") if each.startswith("`LABEL` is"))
    for platform, expected in _EXPECTED.items():
        assert all(f"`{key}" in said for key in (*expected.labels, *(expected.selector or ()))), platform


def test_nvkind_and_kind_mean_the_same_cluster() -> None:
    """Nvkind makes a name up where KIND_CLUSTER_NAME is not set; `kind load` then finds no nodes."""
    (block,) = re.findall(r"(?:^ {4}.*\n)*^ {4}nvkind cluster create\n(?:^ {4}.*\n)*", _section("kind"), re.MULTILINE)
    lines = [line.strip() for line in block.splitlines()]
    assert lines[0].startswith("export KIND_CLUSTER_NAME=")
    assert any(line.startswith("kind load docker-image") for line in lines)
    assert "RuntimeClass" not in block


@pytest.mark.parametrize("overlay", kustomize.policies())
@pytest.mark.parametrize("platform", _EXPECTED)
def test_kustomize_and_helm_come_to_the_same_there(platform: str, overlay: str, tmp_path: Path) -> None:
    """An overlay of one's own, as the pages print it: the objects of the chart with that policy and those values."""
    above = os.path.relpath(kustomize.KUSTOMIZE, tmp_path)
    mine = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{above}/overlays/{overlay}"],
        "components": [f"{above}/platforms/{platform}"],
        "images": [{"name": "gpu-memory-watchdog", "newName": "registry.example/gpu-memory-watchdog", "newTag": "1.2"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    command = [str(programs() / "kubectl"), "kustomize", str(tmp_path)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(built)}
    image = ["--set=image.repository=registry.example/gpu-memory-watchdog", "--set-string=image.tag=1.2"]
    values = f"--values={kustomize.PLATFORMS[platform]}"
    expected = kustomize.whole(kustomize.policies()[overlay], values, *image)
    assert found == {key: each.content for key, each in expected.items()}


def test_the_printed_kustomization_builds(tmp_path: Path) -> None:
    """The file that docs/install.md prints, beside a checkout of the repository's name."""
    (printed,) = _YAML.findall(_INSTALL)
    (tmp_path / "gpu-memory-watchdog").symlink_to(ROOT)
    folder = tmp_path / "mine"
    folder.mkdir()
    text = printed.replace("PLATFORM", "gke").replace("REGISTRY", "registry.example")
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    command = [str(programs() / "kubectl"), "kustomize", str(folder)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (daemonset,) = (each for each in yaml.safe_load_all(built) if each["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/gpu-memory-watchdog:0.1.0"
    assert container["securityContext"]["privileged"] is True
