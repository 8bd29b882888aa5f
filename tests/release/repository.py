"""Repositories that the tests make releases of."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.node.support import REPOSITORY

AUTHOR: Final = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
_DATE: Final = "2026-01-02T03:04:05Z"


def git(folder: Path, *arguments: str) -> str:
    """Run git there, with nothing of the user's configuration, at a time of its own."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment = {**os.environ, **alone, "GIT_COMMITTER_DATE": _DATE, "GIT_AUTHOR_DATE": _DATE}
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def committed(folder: Path, *, tag: str | None) -> None:
    """Make a repository of this working tree as it lies there, with one commit, tagged or not."""
    names = git(REPOSITORY, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, names):
        source = REPOSITORY / name
        if not source.is_file():  # taken away, and not committed yet
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, *AUTHOR, "commit", "-q", "-m", "what is tested")
    if tag is not None:
        git(folder, "tag", tag)
