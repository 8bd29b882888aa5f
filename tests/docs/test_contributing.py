"""What contributors start from is in line with the Makefile and the files: hooks, dev container, templates, updates."""

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.test_docs import ROOT
from tools.layers import PICTURE, picture
from watchdog.cli.main import main
from watchdog.export.catalogue import FAMILIES

_MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
_TARGETS: Final = set(re.findall(r"^([a-z-]+):", _MAKEFILE, re.MULTILINE))
_CONTAINER: Final = ROOT / ".devcontainer"
_TEMPLATES: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
_TEXTS: Final = frozenset({".c", ".go", ".md", ".mod", ".py", ".toml", ".txt", ".yaml", ".yml"})
# What Dependabot reads of each kind, by the name of the file.
_MANIFESTS: Final = {"docker": "Dockerfile", "gomod": "go.mod", "npm": "package.json"}


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _files() -> Iterator[Path]:
    """The text files of the repository, without what is built in it."""
    for path in ROOT.iterdir():
        if path.is_file() and (path.suffix in _TEXTS or path.name == "Makefile"):
            yield path
    for name in (
        ".devcontainer",
        ".github",
        "bench",
        "config",
        "deploy",
        "docs",
        "examples",
        "tests",
        "tools",
        "watchdog",
    ):
        yield from (path for path in (ROOT / name).rglob("*") if path.suffix in _TEXTS or path.name == "Dockerfile")


def test_the_hooks_are_those_of_make_check() -> None:
    """A commit that pre-commit lets through passes `make check`: the same commands, from .venv, without a network."""
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", _MAKEFILE, re.MULTILINE)
    assert recipe is not None
    lines = [re.split(r" (?:\|\||>) ", line.strip().lstrip("@"))[0] for line in recipe[1].splitlines()]
    wanted = [shlex.split(line.replace("$(BIN)", ".venv/bin")) for line in lines]
    (local,) = _yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    assert [shlex.split(hook["entry"]) for hook in local["hooks"]] == wanted
    assert {(hook["language"], hook["pass_filenames"]) for hook in local["hooks"]} == {("system", False)}


def test_the_dev_container_has_what_the_fast_tests_need() -> None:
    """It is built from a file that is there, as a user that exists, and sets up what `make quick` uses."""
    container = json.loads((_CONTAINER / "devcontainer.json").read_text(encoding="utf-8"))
    dockerfile = (_CONTAINER / container["build"]["dockerfile"]).read_text(encoding="utf-8")
    make, target = container["postCreateCommand"].split()
    assert (make, {target, "quick"} <= _TARGETS) == ("make", True)
    assert re.search(rf"useradd .* {container['remoteUser']}$", dockerfile, re.MULTILINE)
    named = {name for names in re.findall(r"apt-get install ([a-z0-9 -]+)\"", _MAKEFILE) for name in names.split()}
    named &= {"gcc", "libc6-dev", "python3-venv"}
    assert named
    assert named | {"git", "make"} <= set(dockerfile.split())


def test_the_files_are_as_editorconfig_has_them() -> None:
    """What .editorconfig promises holds: line ends, no blanks at the end of a line, tabs only where they belong."""
    editors = configparser.ConfigParser()
    editors.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    assert editors["*.{c,py}"]["max_line_length"] == str(ruff["line-length"])
    assert editors["*"]["indent_style"] == "space"
    (tabbed,) = (name for name in editors.sections() if editors[name].get("indent_style") == "tab")
    patterns = tabbed.strip("{}").split(",")
    files = list(_files())
    assert len(files) > 500
    wrong = []
    for path in files:
        text = path.read_bytes().decode("utf-8")
        uses_tabs = any(fnmatch(path.name, pattern) for pattern in patterns)
        blank = re.search(r"[ \t]+$", text, re.MULTILINE)
        if "\r" in text or blank or not (text + "\n" * (not text)).endswith("\n") or ("\n\t" in text and not uses_tabs):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []


@pytest.mark.parametrize("path", _TEMPLATES, ids=lambda path: path.stem)
def test_the_issue_forms_ask_for_what_there_is(path: Path) -> None:
    """A form is one that the host shows, and names only commands and pages that exist."""
    form = _yaml(path)
    if path.stem == "config":
        assert form.keys() <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"checkboxes", "dropdown", "input", "textarea"}
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0
    _names_what_is_there(path.read_text(encoding="utf-8"))


def test_the_pull_request_template_names_what_there_is() -> None:
    """Its check list has targets, commands and pages that exist."""
    _names_what_is_there((ROOT / ".github" / "pull_request_template.md").read_text(encoding="utf-8"))


def _names_what_is_there(text: str) -> None:
    commands = set(re.findall(r"gpu-watchdog ([a-z]+)", text))
    targets = set(re.findall(r"`make ([a-z-]+)`", text))
    pages = set(re.findall(r"\b((?:docs/)?[\w-]+\.md)\b", text))
    assert commands | targets | pages
    assert commands <= set(main.commands)
    assert targets <= _TARGETS
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_every_dependency_is_kept_up_to_date() -> None:
    """Dependabot has each folder that has an image, a Go module or an npm package, and none that has not."""
    reported: dict[str, set[str]] = {}
    for update in _yaml(ROOT / ".github" / "dependabot.yml")["updates"]:
        folders = update.get("directories", [update.get("directory")])
        reported[update["package-ecosystem"]] = {folder.strip("/") or "." for folder in folders}
    assert reported.pop("github-actions") == {"."}
    found = {kind: {path.relative_to(ROOT) for path in ROOT.rglob(name)} for kind, name in _MANIFESTS.items()}
    built = {".venv", "build"}
    assert reported == {
        kind: {str(path.parent) for path in paths if not built & set(path.parts)} for kind, paths in found.items()
    }


def test_the_first_change_can_be_made() -> None:
    """Each file of the walk-through is there, and the metric of its example still is not."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = text.partition("\n## Your first change\n")[2].partition("\n## ")[0]
    files = set(re.findall(r"`((?:[\w.-]+/)+[\w-]+(?:\.\w+)?)", steps))
    assert len(files) >= 6
    assert [name for name in files if not name.startswith(".venv/") and not (ROOT / name).exists()] == []
    assert "policy_warnings" in steps
    assert not [family for family in FAMILIES if family.name == "policy_warnings"]


def test_the_layers_are_drawn_as_they_are() -> None:
    """The picture in architecture.md has the layers of the import contracts, each package with its purpose."""
    assert PICTURE.read_text(encoding="utf-8") == picture(), "python -m tools.layers"
    assert f"](pictures/{PICTURE.name})" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_folders_of_the_tests_are_those_of_the_code() -> None:
    """The tests of a package are in the folder of the same name; every other kind of folder has a row in the README."""
    table = (ROOT / "tests" / "README.md").read_text(encoding="utf-8").partition("## Folders")[2]
    kinds = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)/`", row)}
    folders, packages = (
        {str(each.parent.relative_to(ROOT / top)) for each in (ROOT / top).rglob("__init__.py")} - {"."}
        for top in ("tests", "watchdog")
    )
    assert folders == packages | kinds
    assert not packages & kinds
