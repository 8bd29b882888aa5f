"""The chart rendered by the real helm, and Kustomize's folder built by the real kubectl."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools import kustomize
from tools.chart import CHART
from tools.programs import helm, programs

DAEMONSET: Final = "daemonset-gpu-watchdog"
Objects = dict[str, Mapping[str, Any]]


def template(*flags: str, policy: str = "", release: str = "r", chart: Path = CHART) -> str:
    """What `helm template` prints, the hooks among it."""
    command = [str(helm()), "template", release, str(chart), "--namespace=gpus", "--set-file=policy=/dev/stdin"]
    done = subprocess.run([*command, *flags], input=policy, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def objects(*flags: str, policy: str = "", release: str = "r") -> list[dict[str, Any]]:
    """All objects of a release, the hooks among them."""
    return [each for each in yaml.safe_load_all(template(*flags, policy=policy, release=release)) if each is not None]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The objects of one kind."""
    return [each for each in found if each["kind"] == kind]


def whole(policy: str, *flags: str) -> Objects:
    """The contents of all objects that Kustomize should have, by key."""
    return {key: each.content for key, each in kustomize.whole(policy, *flags).items()}


def daemonset(*flags: str, policy: str = "") -> dict[str, Any]:
    """The spec of the DaemonSet."""
    spec: dict[str, Any] = kustomize.rendered(policy, *flags)[DAEMONSET].content["spec"]
    return spec


def pod(*flags: str, policy: str = "") -> dict[str, Any]:
    """The spec of the DaemonSet's pods."""
    spec: dict[str, Any] = daemonset(*flags, policy=policy)["template"]["spec"]
    return spec


def refused(*flags: str, policy: str = "") -> str:
    """What helm prints about values that it refuses."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        template(*flags, policy=policy)
    reported: str = caught.value.stderr
    return reported


def built(folder: Path) -> Objects:
    """What the real kubectl builds of a folder, by key."""
    command = [str(programs() / "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(done.stdout)}


def kustomized(
    folder: Path, *components: str, overlay: str = "enforce", beside: Sequence[str] = (), **more: Any
) -> Objects:
    """What kubectl builds of an overlay of one's own, with some components; `more` are its other keys.

    `beside` are files in that folder, as further resources.
    """
    above = os.path.relpath(kustomize.KUSTOMIZE, folder)
    resources = [f"{above}/overlays/{overlay}", *beside]
    mine = {"resources": resources, "components": [f"{above}/{each}" for each in components]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(mine | more), encoding="utf-8")
    return built(folder)
