"""What a release has besides the image: wheel, chart, manifests, and the files for Prometheus and Grafana."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from tools.programs import helm, programs
from tools.release.checkout import Checkout
from tools.release.packing import pack_again

OVERLAYS: Final = ("observe", "enforce", "capacity")
# As they are, under the name that they have in the release.
COPIED: Final = {
    "alerts.yaml": "deploy/prometheus/alerts.yaml",
    "recording.yaml": "deploy/prometheus/recording.yaml",
    "podmonitor.yaml": "deploy/prometheus/podmonitor.yaml",
    "prometheusrule.yaml": "deploy/prometheus/prometheusrule.yaml",
    "dashboard.json": "deploy/grafana/gpu-memory-watchdog.json",
    "requirements.txt": "requirements/run.txt",
}
# The name that chart and overlays have, and that the release's takes the place of.
IMAGE: Final = "gpu-memory-watchdog"
_LIMIT_S: Final = 300.0


def build_python(tree: Path, to: Path, checkout: Checkout) -> Path:
    """Build the wheel, which it gives, and the source distribution, by the hatchling of requirements/build.txt."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(to)]
    _run(command, tree, {"SOURCE_DATE_EPOCH": str(checkout.epoch)})
    (wheel,) = to.glob("*.whl")
    return wheel


def pack_chart(tree: Path, to: Path, checkout: Checkout, image: str) -> None:
    """Write the chart as helm packs it, with the release's version and the image's name as its defaults."""
    chart = tree / "deploy" / "chart"
    values = chart / "values.yaml"
    text = values.read_text(encoding="utf-8")
    line = f"repository: {IMAGE}\n"
    assert text.count(line) == 1, f"deploy/chart/values.yaml has no single {line!r}"
    values.write_text(text.replace(line, f"repository: {image}\n"), encoding="utf-8")
    version = [f"--version={checkout.version}", f"--app-version={checkout.version}"]
    with tempfile.TemporaryDirectory() as home:
        _run([str(helm()), "package", str(chart), *version, f"--destination={to}"], tree, {"HOME": home})
    pack_again(to / f"{IMAGE}-{checkout.version}.tgz", checkout.epoch)


def render_manifests(tree: Path, to: Path, checkout: Checkout, image: str) -> None:
    """Write what `kubectl kustomize` makes of each overlay, with the release's image: a file to apply as it is."""
    folder = tree / "deploy" / "kustomize" / "release"
    folder.mkdir()
    for name in OVERLAYS:
        content = {
            "resources": [f"../overlays/{name}"],
            "images": [{"name": IMAGE, "newName": image, "newTag": checkout.version}],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        built = _run([str(programs() / "kubectl"), "kustomize", str(folder)], tree, {})
        (to / f"{name}.yaml").write_text(built, encoding="utf-8")


def copy_files(tree: Path, to: Path) -> None:
    """Write what is released as it is."""
    for name, source in COPIED.items():
        shutil.copyfile(tree / source, to / name)


def _run(command: list[str], folder: Path, more: Mapping[str, str]) -> str:
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout
