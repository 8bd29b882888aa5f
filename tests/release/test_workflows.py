"""The workflows for GitHub: valid, and no more than calls of the Makefile around what only a registry can do."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.node.support import cannot_run
from tools.programs import NoProgramsError, actionlint

ROOT: Final = Path(__file__).resolve().parents[2]
WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.slow
def test_the_workflows_are_valid() -> None:
    """Actionlint finds nothing in syntax, expressions, permissions and inputs of actions."""
    try:
        program = actionlint()
    except NoProgramsError as error:
        cannot_run(str(error))
    done = subprocess.run([program, "-no-color", *WORKFLOWS], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def _commands(workflow: Path) -> list[str]:
    content: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    return [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]


def test_they_call_targets_that_exist() -> None:
    """Continuous integration runs what `.ci/run` runs, and a release what `make release` builds."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = {path.stem: re.findall(r"\bmake ([a-z-]+)", "\n".join(_commands(path))) for path in WORKFLOWS}
    in_order = ["packages", "test", "packages", "unit", "packages", "deep"]
    assert called == {"ci": in_order, "release": ["packages", "release"]}
    assert {target for each in called.values() for target in each} <= targets


def test_every_supported_python_is_tested() -> None:
    """The package names the versions that the workflow runs: everything on the oldest, `unit` on the others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [match[1] for each in project["classifiers"] if (match := re.search(r":: Python :: (3\.\d+)$", each))]
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    (oldest,) = {
        step["with"]["python-version"]
        for name in ("test", "deep")
        for step in jobs[name]["steps"]
        if "setup-python" in step.get("uses", "")
    }
    assert named == [oldest, *jobs["newer"]["strategy"]["matrix"]["python"]]
    assert project["requires-python"] == f">={oldest}"


def test_actions_are_pinned() -> None:
    """An action is named by its commit, which nobody can move as they can a tag; a comment has the release."""
    used = [line for path in WORKFLOWS for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert [each for each in used if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", each)] == []


def test_a_release_pushes_what_was_built() -> None:
    """Everything pushed is a file of build/release, whose checksums are checked first; nothing is built again."""
    (push,) = (each for each in _commands(ROOT / ".github/workflows/release.yml") if "skopeo copy" in each)
    assert (
        push.index("sha256sum --check SHA256SUMS")
        < push.index("skopeo copy --preserve-digests")
        < push.index("helm push")
    )


def test_a_release_gets_its_address_and_its_base() -> None:
    """The tag's release links to the repository that it is of, and its base is named by its digest."""
    (build,) = (each for each in _commands(ROOT / ".github/workflows/release.yml") if "make release" in each)
    assert {'BASE="$BASE"', 'PROJECT_URL="$PROJECT_URL"'} <= set(build.split())
