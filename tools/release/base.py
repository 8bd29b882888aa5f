"""The base of the image: a minimal Debian with Python, made once and kept in the user's cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

RELEASE: Final = "bookworm"
_PACKAGES: Final = "python3,python3-venv,ca-certificates"
_LIMIT_S: Final = 900.0
# What a base without a shell lacks; the image must run on it anyway.
_SHELLS: Final = ("bin/sh", "bin/bash", "bin/dash", "bin/rbash")


def base_archive() -> Path:
    """The archive of the base's root folder; 40 s when it is made. Raises CalledProcessError."""
    name = hashlib.sha256(f"{RELEASE} {_PACKAGES}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-memory-watchdog" / "base"
    archive = cache / f"{name}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others wait for it; the kernel frees it when its holder ends
        if not archive.is_file():
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{archive.stem}-", dir=archive.parent))
    try:
        root = scratch / "root"
        make = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", RELEASE, str(root)]
        subprocess.run(make, check=True, timeout=_LIMIT_S, stdout=subprocess.DEVNULL)
        clean = ["var/cache/apt/archives", "var/lib/apt/lists", "proc", "sys"]
        for each in clean:
            shutil.rmtree(root / each, ignore_errors=True)
            (root / each).mkdir(parents=True, exist_ok=True)
        packed = scratch / "base.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(packed), "."], check=True, timeout=_LIMIT_S)
        packed.rename(archive)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def without_shell(archive: Path, to: Path) -> None:
    """Write a base that is like another one and has no shell."""
    shutil.copyfile(archive, to)
    names = [f"./{prefix}{name}" for prefix in ("", "usr/") for name in _SHELLS]
    there = subprocess.run(["tar", "-tf", str(to)], check=True, capture_output=True, text=True).stdout.splitlines()
    subprocess.run(["tar", "--delete", "-f", str(to), *sorted(set(names) & set(there))], check=True, timeout=_LIMIT_S)
