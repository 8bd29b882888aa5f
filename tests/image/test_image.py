"""What is in the image, and that it does its work on a base without a shell."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.image.builder import LEFT_OUT, Builder
from tests.node.support import REPOSITORY
from watchdog import __version__

pytestmark = [pytest.mark.slow, pytest.mark.node]

_HOME: Final = Path("opt/gpu-watchdog")
_LOCK: Final = (REPOSITORY / "requirements" / "run.txt").read_text(encoding="utf-8")
_MIB: Final = 2**20


def site(root: Path) -> Path:
    (found,) = (root / _HOME).glob("lib/python3*/site-packages")
    return found


def inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the image's files as its root, and nothing of this machine."""
    environment = {"PATH": f"/{_HOME}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["/usr/sbin/chroot", str(root), *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_runs_without_a_shell(root: Path) -> None:
    """No shell is needed at run time: the base has none, and the command answers all the same."""
    assert not any((root / name).exists() for name in ("bin/sh", "bin/bash", "usr/bin/sh", "usr/bin/dash"))
    reported = inside(root, "gpu-watchdog", "--version")
    assert (reported.returncode, reported.stdout) == (0, f"gpu-watchdog, version {__version__}\n"), reported.stderr


def test_the_policy_that_ships_is_at_its_place(root: Path) -> None:
    """Without a ConfigMap the daemon finds a policy, the one of this checkout, and it observes."""
    reported = inside(root, "gpu-watchdog", "check", "/etc/gpu-watchdog/policy.toml")
    assert reported.returncode == 0, reported.stderr
    assert (root / "etc/gpu-watchdog/policy.toml").read_bytes() == (REPOSITORY / "config/policy.toml").read_bytes()


def test_every_module_is_there_and_loads(root: Path) -> None:
    """What was left out of the client is not missed: each module of ours loads, and so does the way to the API."""
    ours = {
        str(path.relative_to(REPOSITORY)): path.read_bytes()
        for path in (REPOSITORY / "watchdog").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    theirs = {name: (site(root) / name).read_bytes() for name in ours if (site(root) / name).is_file()}
    assert theirs == ours
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in ours
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    load = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    reported = inside(root, f"/{_HOME}/bin/python", "-W", "error", "-c", load)
    assert reported.returncode == 0, reported.stderr


def test_nothing_is_in_it_but_what_is_locked(root: Path) -> None:
    """The distributions are those of the lock file in those versions, less the unused part; no installer among them."""
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", _LOCK, re.MULTILINE))
    assert set(locked) > LEFT_OUT
    expected = {name: version for name, version in locked.items() if name not in LEFT_OUT}
    names = [path.name.removesuffix(".dist-info") for path in site(root).glob("*.dist-info")]
    found = {name.lower().replace("_", "-"): version for name, _, version in (each.rpartition("-") for each in names)}
    assert found == {**expected, "gpu-memory-watchdog": __version__}


def test_nothing_is_put_on_the_base_but_the_environment_and_the_policy(builder: Builder, root: Path) -> None:
    """Of the whole root: no pip, no compiler and no tool is added anywhere; what the base has is the base's."""
    with builder.root("localhost/base:without-shell") as base:
        before = _contents(base)
    added = {name for name, known in _contents(root).items() if before.get(name) != known}
    environment = {name for name in added if name.is_relative_to(_HOME)}
    assert environment
    assert added - environment == {Path("etc/gpu-watchdog/policy.toml")}
    programs = {name.name for name in environment if name.parent == _HOME / "bin"}
    assert "gpu-watchdog" in programs
    assert not [each for each in programs if re.match(r"pip|gcc|cc$|g\+\+|c\+\+|ld$|as$|make$|(ba|da)?sh$", each)]
    assert not [name for name in environment if name.name in {"pip", "ensurepip", "setuptools", "wheel"}]


def _contents(root: Path) -> dict[Path, tuple[str, int, int]]:
    """Every file and link below a root: what distinguishes it, without the time it was written at."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            kept = path.lstat()
            target = str(path.readlink()) if path.is_symlink() else ""
            found[path.relative_to(root)] = (target, kept.st_mode, kept.st_size)
    return found


def test_it_is_small(root: Path) -> None:
    """docs/release.md states what the environment takes; it must not grow unseen (the whole client is 126 MiB)."""
    taken = sum(path.lstat().st_size for path in (root / _HOME).rglob("*") if not path.is_dir())
    print(f"environment: {taken / _MIB:.1f} MiB")
    assert taken < 60 * _MIB


def test_all_of_it_is_compiled(root: Path) -> None:
    """Nothing can be written where it runs, so each source has its code beside it, valid by content and not by time."""
    tag = f"cpython-{next((root / _HOME / 'lib').glob('python3*')).name.removeprefix('python').replace('.', '')}"
    sources = [path for path in site(root).rglob("*.py") if "lib2to3" not in path.parts]
    assert len(sources) > 500
    for source in sources:
        compiled = source.with_name("__pycache__") / f"{source.stem}.{tag}.pyc"
        assert compiled.read_bytes()[4:8] == b"\1\0\0\0", compiled  # PEP 552: a hash that is not checked


def test_what_it_says_of_itself(builder: Builder, image: str) -> None:
    """Entry point without a shell, root (docs/security.md says why), labels, a health check, one layer on the base."""
    reported = builder.inspect(image)
    assert len(reported["OCIv1"]["rootfs"]["diff_ids"]) == 2
    config = json.loads(reported["Config"])["config"]
    assert (config["Entrypoint"], config["Cmd"], config["User"]) == (["gpu-watchdog"], ["run"], "0:0")
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert {"title", "description", "licenses", "version", "revision"} <= {
        name.rpartition(".")[2] for name in config["Labels"]
    }
    assert config["Healthcheck"]["Test"][0] == "CMD"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_dependency_is_there_for_both_architectures(machine: str, tmp_path: Path) -> None:
    """linux/arm64 (Grace) stays possible: the lock's hashes have a wheel of each distribution for both."""
    platforms = [f"--platform=manylinux{each}_{machine}" for each in ("_2_28", "_2_17", "2014")]
    flags = ["--only-binary=:all:", "--no-deps", "--require-hashes", "--python-version=3.11", "--implementation=cp"]
    target = ["--dry-run", "--ignore-installed", f"--target={tmp_path / 'target'}"]
    reported = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *flags, *platforms, *target, "-r", "requirements/run.txt"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PIP_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert reported.returncode == 0, reported.stderr
