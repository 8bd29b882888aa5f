"""The version is in one place, and everything that has it follows."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.node.support import REPOSITORY
from tools.release.image import can_build, full_name
from watchdog import __version__


def test_all_that_say_the_version_say_the_same() -> None:
    """watchdog/__init__.py has it: chart, overlays and the Dockerfile's default must not be forgotten."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "watchdog/__init__.py"}
    chart = yaml.safe_load((REPOSITORY / "deploy/chart/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG VERSION=(.*)$", dockerfile, re.MULTILINE) == [__version__]
    manifests = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "deploy/kustomize").rglob("*.yaml")]
    image = re.compile(r'image: "gpu-memory-watchdog:([^"]+)"')
    assert {tag for text in manifests for tag in image.findall(text)} == {__version__}


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("gpu-memory-watchdog:1", "docker.io/library/gpu-memory-watchdog:1"),
        ("team/gpu-memory-watchdog:1", "docker.io/team/gpu-memory-watchdog:1"),
        ("registry.example/gpu-memory-watchdog:1", "registry.example/gpu-memory-watchdog:1"),
        ("localhost/gpu-memory-watchdog:1", "localhost/gpu-memory-watchdog:1"),
        ("registry:5000/a/b:1", "registry:5000/a/b:1"),
    ],
)
def test_an_image_is_loaded_under_the_name_that_kubelet_asks_for(name: str, full: str) -> None:
    """A short name is Docker's registry's, as kubelet takes it: loaded under another one, no pod would find it."""
    assert full_name(name) == full


@pytest.mark.parametrize(
    ("platform", "handler", "reason"),
    [
        ("linux/amd64", None, None),
        ("linux/arm64", "qemu-aarch64", None),
        ("linux/arm64", None, "runs Python of linux/arm64, which this x86_64 can't run"),
        ("linux/arm64", "qemu-arm", "install qemu's user emulation"),
        ("windows/amd64", None, "no platform of the image: one of linux/amd64, linux/arm64"),
        ("", None, "no platform of the image"),
    ],
)
def test_a_platform_that_can_not_run_here_is_refused(
    platform: str, handler: str | None, reason: str | None, tmp_path: Path
) -> None:
    """The build runs programs of the image's platform: reported before it starts, with the remedy."""
    if handler is not None:
        (tmp_path / handler).touch()
    reported = can_build(platform, "x86_64", tmp_path)
    assert (reported is None) == (reason is None)
    assert reason is None or (reported is not None and reason in reported)
