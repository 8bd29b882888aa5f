"""Kustomize's folder comes to the same objects as the chart: overlays, platforms, options, and any mix of them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import DAEMONSET, built, kustomized, whole
from tools import chart, kustomize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]


def test_what_is_generated_is_up_to_date() -> None:
    """The files in Kustomize's folder and in the chart's are those that the tools write."""
    for folder, expected in ((kustomize.KUSTOMIZE, kustomize.files()), (chart.CHART / "files", chart.files())):
        found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
        assert {str(name): path.read_text(encoding="utf-8") for name, path in found.items()} == expected


@pytest.mark.parametrize("overlay", kustomize.policies())
def test_an_overlay(overlay: str) -> None:
    """Each overlay has the very objects that the chart renders with its policy."""
    assert built(kustomize.KUSTOMIZE / "overlays" / overlay) == whole(kustomize.policies()[overlay])


@pytest.mark.parametrize("overlay", kustomize.policies())
@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_an_overlay_for_a_platform(platform: str, overlay: str, tmp_path: Path) -> None:
    """An overlay of one's own, as the pages print it: the objects of the chart with that policy and those values."""
    images = [{"name": "gpu-memory-watchdog", "newName": "registry.example/gpu-memory-watchdog", "newTag": "1.2"}]
    found = kustomized(tmp_path, f"platforms/{platform}", overlay=overlay, images=images)
    image = ("--set=image.repository=registry.example/gpu-memory-watchdog", "--set-string=image.tag=1.2")
    values = f"--values={kustomize.PLATFORMS[platform]}"
    assert found == whole(kustomize.policies()[overlay], values, *image)


@pytest.mark.parametrize("option", kustomize.OPTIONS)
def test_an_option(option: str, tmp_path: Path) -> None:
    """PodMonitor, rules, dashboard, SCC: what the chart adds or leaves out by a value Kustomize has as a component."""
    policy = kustomize.policies()["enforce"]
    found, without = kustomized(tmp_path, f"options/{option}"), whole(policy)
    assert found == whole(policy, f"--set={kustomize.OPTIONS[option]}") != without
    # Some only change the DaemonSet.
    added = {"gpu-operator-client": 0, "mps": 0, "openshift": 3, "authentication": 3, "open-port": -1}
    assert len(found) == len(without) + added.get(option, 1)


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_mounts_of_a_platform_and_of_mps_add_up(platform: str, tmp_path: Path) -> None:
    """A platform's component and the one for MPS can be used together, in any order."""
    flags = (f"--values={kustomize.PLATFORMS[platform]}", "--set=mps.mounts=true")
    expected = whole(kustomize.policies()["enforce"], *flags)[DAEMONSET]
    for components in ((f"platforms/{platform}", "options/mps"), ("options/mps", f"platforms/{platform}")):
        found = kustomized(tmp_path, *components)[DAEMONSET]
        assert _sorted(found["spec"]["template"]) == _sorted(expected["spec"]["template"])


def test_annotations_of_a_platform_and_of_the_proxy_add_up(tmp_path: Path) -> None:
    """The annotation by which the NRI plugin gives the pods their devices stays, with the proxy's beside it."""
    platform = "gpu-operator-nri"
    flags = (f"--values={kustomize.PLATFORMS[platform]}", "--set=authentication.enabled=true")
    expected = whole(kustomize.policies()["enforce"], *flags)[DAEMONSET]["spec"]["template"]["metadata"]
    found = kustomized(tmp_path, f"platforms/{platform}", "options/authentication")[DAEMONSET]
    assert found["spec"]["template"]["metadata"] == expected
    assert len(expected["annotations"]) > 1


def test_no_old_name_is_left(tmp_path: Path) -> None:
    """Namespace, prefix and suffix reach every object and all that refers to one: the old names are in no text."""
    components = [f"options/{option}" for option in kustomize.OPTIONS]
    names = {"namespace": "elsewhere", "namePrefix": "acme-", "nameSuffix": "-blue"}
    found = kustomized(tmp_path, *components, "platforms/gke", overlay="capacity", **names)
    texts = list(_texts("", list(found.values())))
    assert len(texts) > 300
    for path, text in texts:
        assert not re.fullmatch("gpu-watchdog(-[a-z]+)*", text), path
        assert not re.search("(serviceaccount:|-n |namespace[= ])(gpu-memory-watchdog|gpu-watchdog)", text), path
        if path.endswith(".namespace"):
            assert text == "elsewhere", path


def _texts(path: str, content: object) -> Iterator[tuple[str, str]]:
    """Every string in some objects, with where it is."""
    if isinstance(content, str):
        yield path, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _texts(f"{path}.{key}", value)
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _texts(f"{path}[{number}]", value)


def _sorted(pods: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same pod template with what it mounts in one order."""
    for items in (pods["spec"]["volumes"], pods["spec"]["containers"][0]["volumeMounts"]):
        items.sort(key=lambda item: str(item["name"]))
    return pods


def test_every_switch_of_the_chart_is_in_kustomize_too() -> None:
    """Each switch for a further object, a mount, or other nodes is an option or a platform's."""
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    names = {"create", "scc", "client", "mounts", "enabled"}
    switches = {path for path, value in _leaves("", values) if value is False and path.rpartition(".")[2] in names}
    options = {path: value for path, _, value in (each.partition("=") for each in kustomize.OPTIONS.values())}
    assert switches == {*options, "resourceQuota.create"} - {"networkPolicy.create"}  # the quota is in platforms/gke
    assert (options["networkPolicy.create"], values["networkPolicy"]["create"]) == ("false", True)


def _leaves(path: str, content: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(f"{path}{key}.", value)
        else:
            yield f"{path}{key}", value
