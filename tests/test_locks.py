"""The lock files: whole, hashed, without an address, and free of the distribution that owns our import name."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = {
    name: (ROOT / "requirements" / name).read_text(encoding="utf-8")
    for name in ("build.txt", "run.txt", "dev.txt", "docs.txt")
}
_PIN: Final = re.compile(r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[0-9][0-9a-z.!+]*)(?: ; (?P<marker>[^#]+))?")
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def _requirements(text: str) -> list[str]:
    """The logical lines of a lock file."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def _pins(text: str) -> dict[str, str]:
    pins = {}
    for line in _requirements(text):
        match = _PIN.fullmatch(line.partition("--hash")[0].strip())
        assert match is not None, line
        assert match["name"] not in pins, f"{match['name']} is there twice"
        pins[match["name"]] = match["version"]
    return pins


def _normal(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_with_hashes(name: str) -> None:
    """A lock file has only `name==version`, each with SHA-256 hashes and nothing else."""
    lines = _requirements(LOCKS[name])
    assert lines
    for line in lines:
        requirement, *hashes = line.split(" --hash=")
        assert _PIN.fullmatch(requirement.strip()), line
        assert hashes, f"{requirement} has no hash"
        assert all(_HASH.fullmatch(f"--hash={each.strip()}") for each in hashes), requirement


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").iterdir()), ids=lambda path: path.name)
def test_no_lock_holds_an_address(path: Path) -> None:
    """Where a package comes from is for the machine's pip to know: no address, no path, no option of an index."""
    text = path.read_text(encoding="utf-8")
    for word in ("://", "@", "--index", "--extra-index", "--find-links", "--trusted-host", "file:", "git+"):
        assert word not in text, f"{path.name} holds {word!r}"


def test_locks_agree_with_each_other() -> None:
    """What is tested is what is run: a distribution in two lock files has one version."""
    run, dev, build, docs = (_pins(LOCKS[name]) for name in ("run.txt", "dev.txt", "build.txt", "docs.txt"))
    assert run.keys() <= dev.keys()
    for pins in (run, build, docs):
        assert {name: dev[name] for name in pins.keys() & dev.keys()} == {
            name: version for name, version in pins.items() if name in dev
        }


def test_every_dependency_of_the_project_is_locked() -> None:
    """pyproject.toml names nothing that the lock files do not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {
        "run.txt": project["project"]["dependencies"],
        "dev.txt": project["project"]["optional-dependencies"]["dev"],
        "build.txt": [*project["build-system"]["requires"], *(ROOT / "requirements/build.in").read_text().split()],
        "docs.txt": (ROOT / "requirements/docs.in").read_text().split(),
    }
    for name, requirements in wanted.items():
        missing = {_normal(each) for each in requirements} - _pins(LOCKS[name]).keys()
        assert not missing, f"{name} lacks {missing}: make lock"


def test_nothing_is_or_needs_the_other_watchdog() -> None:
    """The distribution `watchdog` owns our import name: it is in no lock, and nothing that is locked asks for it."""
    locked = {name for text in LOCKS.values() for name in _pins(text)}
    assert "watchdog" not in locked
    for found in metadata.distributions():
        if _normal(found.name) in locked:
            assert "watchdog" not in {_normal(each) for each in found.requires or () if "extra ==" not in each}, (
                found.name
            )
