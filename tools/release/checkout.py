"""Of which commit a release is made, and what it is called."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_VERSION: Final = re.compile(r'^__version__ = "(\d+\.\d+\.\d+)"$', re.MULTILINE)
_VERSION_FILE: Final = "watchdog/__init__.py"
_LIMIT_S: Final = 60.0
_SHOWN: Final = 10


class NotReleasableError(RuntimeError):
    """No release can be made here; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A commit of which a release is made. `epoch` is its time in seconds since 1970 (SOURCE_DATE_EPOCH)."""

    folder: Path
    base_version: str
    revision: str
    epoch: int
    tagged: bool

    @property
    def python_version(self) -> str:
        """The version of wheel and command (PEP 440). Without the tag it sorts before the release, by its commit."""
        return self.base_version if self.tagged else f"{self.base_version}.dev0+g{self.revision[:12]}"

    @property
    def version(self) -> str:
        """The version of chart and image (Semantic Versioning, and fit for an image's tag)."""
        return self.base_version if self.tagged else f"{self.base_version}-dev.g{self.revision[:12]}"

    def export(self, to: Path) -> None:
        """Write the commit's files, which say the version that they are released as. Raises CalledProcessError."""
        to.mkdir(parents=True)
        # Without the mask the modes would depend on the user's git configuration.
        command = ["git", "-c", "tar.umask=0022", "archive", "--format=tar", self.revision]
        packed = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=_LIMIT_S)
        unpack = ["tar", "--no-same-owner", "-xpf", "-", "-C", str(to)]
        subprocess.run(unpack, input=packed.stdout, check=True, timeout=_LIMIT_S)
        file = to / _VERSION_FILE
        text = file.read_text(encoding="utf-8")
        file.write_text(_VERSION.sub(f'__version__ = "{self.python_version}"', text), encoding="utf-8")


def read_checkout(folder: Path) -> Checkout:
    """The commit that is checked out in a folder. Raises NotReleasableError where the tree differs from it."""
    try:
        revision = _git(folder, "rev-parse", "HEAD")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise NotReleasableError(f"{folder} is no git checkout ({error}): a release is made of a commit") from None
    if changed := _git(folder, "status", "--porcelain").splitlines():
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        names = ", ".join(line[2:].strip() for line in changed[:_SHOWN])
        raise NotReleasableError(f"not committed: {names}{more}. A release is made of a commit: commit or stash them")
    match = _VERSION.search((folder / _VERSION_FILE).read_text(encoding="utf-8"))
    if match is None:
        raise NotReleasableError(f'{_VERSION_FILE} has no line __version__ = "MAJOR.MINOR.PATCH"')
    return Checkout(
        folder=folder,
        base_version=match[1],
        revision=revision,
        epoch=int(_git(folder, "show", "--no-patch", "--format=%ct", "HEAD")),
        tagged=_right_tag(folder, match[1]),
    )


def _right_tag(folder: Path, version: str) -> bool:
    tags = [tag for tag in _git(folder, "tag", "--points-at", "HEAD").splitlines() if re.fullmatch(r"v\d.*", tag)]
    if wrong := [tag for tag in tags if tag != f"v{version}"]:
        raise NotReleasableError(
            f"the commit is tagged {', '.join(wrong)}, and {_VERSION_FILE} says {version}: set one after the other"
        )
    return bool(tags)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    ended = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_LIMIT_S)
    return ended.stdout.rstrip("\n")
