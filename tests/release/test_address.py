"""What a release puts in place of placeholders: the project's address in every link, the base's digest in its name."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
import yaml

from tools import ROOT
from tools.release.address import PLACEHOLDER, address, put_in
from tools.release.checkout import Checkout, NotReleasableError
from tools.release.image import DEBOOTSTRAP, unpinned

_URL: Final = "https://git.test/team/watchdog"
_DIGEST: Final = f"@sha256:{'0' * 64}"


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("tagged", [True, False])
def test_every_link_of_a_release_has_its_address(tmp_path: Path, *, tagged: bool) -> None:
    """No placeholder is left in what is released, and each path in a link is a file of this version."""
    found = 0
    for name in _tracked():
        content = (ROOT / name).read_bytes()
        if PLACEHOLDER.encode() in content and not name.endswith((".py", ".md")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    checkout = Checkout(folder=ROOT, base_version="1.2.3", revision="f" * 40, epoch=0, tagged=tagged)
    put_in(tmp_path, _URL, checkout)
    ref = "v1.2.3" if tagged else "f" * 40
    for path in (each for each in tmp_path.rglob("*") if each.is_file()):
        text = path.read_text(encoding="utf-8")
        assert PLACEHOLDER not in text
        for rest in re.findall(rf"{re.escape(_URL)}([^#\s\"'\]]*)", text):
            found += 1
            assert rest == "" or (ROOT / rest.removeprefix(f"/blob/{ref}/")).exists(), f"{path}: {rest}"
    assert found > 20


def test_chart_wheel_and_image_name_one_address() -> None:
    """Each of them leads to the project, its documentation and its changes."""
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["home"] == project["urls"]["Homepage"] == PLACEHOLDER
    assert chart["sources"] == [PLACEHOLDER]
    assert project["urls"].keys() >= {"Documentation", "Changelog"}
    assert [each["name"] for each in chart["maintainers"]] == [each["name"] for each in project["authors"]]
    assert f'image.source="{PLACEHOLDER}"' in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_icon_needs_no_server() -> None:
    """It is an SVG in the chart itself, so that it is there without a network."""
    icon = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text(encoding="utf-8"))["icon"]
    kind, _, content = icon.partition(",")
    assert kind == "data:image/svg+xml"
    assert ET.fromstring(unquote(content)).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("given", ["", _URL, f"{_URL}/", "http://localhost:3000/a/b"])
def test_an_address_is_taken(given: str) -> None:
    """With or without a slash at its end, and none at all."""
    assert address(given) == given.rstrip("/")


@pytest.mark.parametrize(
    "given", ["git.test/a", "git@git.test:a/b", "https://a b", 'https://a"', "https://a/?b", "https://"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    """It would end up in every link, and in YAML and TOML as it is."""
    with pytest.raises(NotReleasableError, match=r"PROJECT_URL=.* must be the repository's address"):
        address(given)


@pytest.mark.parametrize(
    ("base", "run_base", "named"),
    [
        (f"python{_DIGEST}", "", None),
        (f"registry.test:5000/python{_DIGEST}", f"registry.test/run{_DIGEST}", None),
        (DEBOOTSTRAP, "", None),
        ("", "", r"python:3\S+ is a tag.* BASE=python@sha256:.*docker://python:3"),  # the Dockerfile's
        ("python", "", "BASE=python@sha256:"),
        ("registry.test:5000/python", "", "BASE=registry.test:5000/python@sha256:"),
        ("python@sha256:0", "", "BASE=python@sha256"),
        (f"python{_DIGEST}", "run:1", "RUN_BASE=run@sha256:"),
    ],
)
def test_a_release_stands_on_a_digest(base: str, run_base: str, named: str | None) -> None:
    """A tag may become another image: the same commit would give another release. The remedy is in the message."""
    reason = unpinned(ROOT, base, run_base)
    assert (reason is None) == (named is None)
    assert named is None or (reason is not None and re.search(named, reason))
