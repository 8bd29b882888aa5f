"""The values of each platform, rendered by the real helm and by the real kubectl: what its page says, and no more."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.programs import NoProgramsError, helm, programs
from tests.deploy import kustomize
from tests.deploy.rights import ROOT
from tests.node.support import cannot_run

pytestmark = pytest.mark.slow

_INSTALL: Final = ROOT / "docs" / "install"
_COMMAND: Final = re.compile(r"^ {4}(helm install (?:.*\\\n)*.*)$", re.MULTILINE)
_YAML: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRESENT: Final = {"nvidia.com/gpu.present": "true"}
_GPU: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}
# Platform: runtime class, node selector, keys of the labels in the affinity, folder with the driver, privileged.
_EXPECTED: Final[dict[str, tuple[str | None, object, list[str], str | None, bool]]] = {
    "eks": (
        None,
        None,
        [
            "nvidia.com/gpu.present",
            "eks.amazonaws.com/instance-gpu-manufacturer",
            "karpenter.k8s.aws/instance-gpu-manufacturer",
        ],
        None,
        False,
    ),
    "gke": (None, None, ["cloud.google.com/gke-accelerator"], "/home/kubernetes/bin/nvidia", True),
    "gpu-operator": ("nvidia", _PRESENT, [], None, False),
    "k3s": ("nvidia", _PRESENT, [], None, False),
    "kind": ("nvidia", _PRESENT, [], None, False),
    "kubeadm": ("nvidia", _PRESENT, [], None, False),
}


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        programs()
        helm()
    except NoProgramsError as error:
        cannot_run(str(error))


def _spec(platform: str) -> dict[str, Any]:
    found = kustomize.rendered("", f"--values={kustomize.PLATFORMS[platform]}")["daemonset-gpu-watchdog"]
    spec: dict[str, Any] = found.content["spec"]["template"]["spec"]
    return spec


def _affinity(spec: dict[str, Any]) -> list[str]:
    if "affinity" not in spec:
        return []
    chosen = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [each["key"] for term in chosen["nodeSelectorTerms"] for each in term["matchExpressions"]]


def test_each_platform_has_values_and_a_page() -> None:
    """Nobody finds a page without its values file, or one without the other."""
    assert kustomize.PLATFORMS.keys() == _EXPECTED.keys()
    assert {path.stem for path in _INSTALL.glob("*.md")} - {"README"} == _EXPECTED.keys()


@pytest.mark.parametrize("platform", _EXPECTED)
def test_what_a_platform_s_values_come_to(platform: str) -> None:
    """Driver, runtime class, nodes, taints and security are those that the table in docs/install tells."""
    spec = _spec(platform)
    runtime, selector, labels, folder, privileged = _EXPECTED[platform]
    assert spec.get("runtimeClassName") == runtime
    assert (spec.get("nodeSelector"), _affinity(spec)) == (selector, labels)
    assert spec["tolerations"] == [_GPU]
    folders = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    expected = {"state": "/var/lib/gpu-watchdog"} | ({"driver": folder} if folder is not None else {})
    assert folders == expected
    context = spec["containers"][0]["securityContext"]
    assert context.get("privileged", False) is privileged
    assert privileged is ("capabilities" not in context)


def test_the_table_of_the_platforms_tells_it() -> None:
    """docs/install has a row for each platform, with its runtime class, security and driver as they are rendered."""
    text = (_INSTALL / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| ["]
    told = {row[0].partition("(")[2].removesuffix(".md)"): row for row in rows}
    assert told.keys() == _EXPECTED.keys()
    for platform, (runtime, _, _, folder, privileged) in _EXPECTED.items():
        assert (f"`{runtime}`" if runtime else "none") in told[platform][1]
        assert (f"`{folder}`" in told[platform][2]) is (folder is not None)
        assert told[platform][4].startswith("privileged" if privileged else "minimal"), platform


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
    expected = kustomize.rendered(kustomize.policies()[overlay], values, *image)
    assert found == {key: each.content for key, each in expected.items()}


@pytest.mark.parametrize("platform", _EXPECTED)
def test_the_command_of_each_page_installs_what_its_values_say(platform: str) -> None:
    """Whoever copies the one command of a page gets the objects of that platform, with the image of his registry."""
    (printed,) = _COMMAND.findall((_INSTALL / f"{platform}.md").read_text(encoding="utf-8"))
    program, verb, *arguments = shlex.split(printed.replace("\\\n", " "))
    assert (program, verb) == ("helm", "install")
    flags = [each for each in arguments if each != "--create-namespace"]
    command = [str(helm()), "template", *flags, "--set=namespace.create=true"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(done.stdout)}
    image = "" if platform == "kind" else "REGISTRY/"
    values = f"--values={kustomize.PLATFORMS[platform]}"
    expected = kustomize.rendered("", values, f"--set=image.repository={image}gpu-memory-watchdog")
    assert found == {key: each.content for key, each in expected.items()}


def test_the_printed_kustomization_builds(tmp_path: Path) -> None:
    """The file that docs/install prints, beside a checkout of the repository's name."""
    (printed,) = _YAML.findall((_INSTALL / "README.md").read_text(encoding="utf-8"))
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
