"""Compiles requirements/*.txt from pyproject.toml: every dependency pinned with its hashes, no index address in it."""

import subprocess
import sys

from tools import ROOT

LOCKS = {
    "build.txt": ["requirements/build.in"],
    "run.txt": ["pyproject.toml"],
    "dev.txt": ["--extra", "dev", "--constraint", "requirements/run.txt", "pyproject.toml"],
    "docs.txt": ["--fork-strategy", "fewest", "--constraint", "requirements/dev.txt", "requirements/docs.in"],
}
_FLAGS = [
    *("--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
]


def compile_lock(name: str, *more: str) -> str:
    """The text of a lock file."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *_FLAGS, *more, *LOCKS[name]]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write every lock file again."""
    for name in LOCKS:
        (ROOT / "requirements" / name).write_text(compile_lock(name, "--upgrade"), encoding="utf-8")


if __name__ == "__main__":
    main()
