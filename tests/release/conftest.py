"""The release of this working tree, built twice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import REPOSITORY, cannot_run, need_root
from tests.release.repository import committed
from tools.programs import NoProgramsError, helm, programs
from watchdog import __version__

IMAGE: Final = "registry.example/team/gpu-memory-watchdog"
URL: Final = "https://git.test/team/gpu-memory-watchdog"
_LIMIT_S: Final = 900.0
# Whatever differs between two machines and is no input of a release.
_ELSEWHERE: Final = 'hostname elsewhere && umask 077 && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A release and the repository that it was made of."""

    folder: Path
    source: Path

    def file(self, pattern: str) -> Path:
        """The one file of this kind."""
        (found,) = self.folder.glob(pattern)
        return found


def release(source: Path, out: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run the command as `make release` does."""
    options = [f"--source={source}", f"--out={out}", f"--image={IMAGE}", f"--url={URL}", "--base=debootstrap"]
    return subprocess.run(
        [*before, sys.executable, "-m", "tools.release", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TZ": "Asia/Tokyo"} if before else None,
    )


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """A release of this tree as version `__version__`."""
    need_root()
    if missing := [name for name in ("buildah", "debootstrap", "git") if shutil.which(name) is None]:
        cannot_run(f"a release needs {', '.join(missing)} (Debian: apt-get install buildah debootstrap git)")
    try:
        helm()
        programs()
    except NoProgramsError as error:
        cannot_run(str(error))
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    source.mkdir()
    committed(source, tag=f"v{__version__}")
    made = release(source, folder / "out")
    assert made.returncode == 0, made.stderr
    yield Released(folder=folder / "out", source=source)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def again(released: Released, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """The same commit's release, from another folder, under another host's name, mask and time zone."""
    folder = tmp_path_factory.mktemp("again")
    subprocess.run(["git", "clone", "-q", str(released.source), str(folder / "clone")], check=True)
    made = release(folder / "clone", folder / "out", "unshare", "--uts", "sh", "-c", _ELSEWHERE, "sh")
    assert made.returncode == 0, made.stderr
    yield Released(folder=folder / "out", source=folder / "clone")
    shutil.rmtree(folder)
