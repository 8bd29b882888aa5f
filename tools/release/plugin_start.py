"""The beginning of the program for people's own machines: unpacks what this Python needs once, and starts it.

Compiled modules can't be imported from a zip archive, and source in one would be compiled at each start. This is
`__main__.py` in the archive that tools/release/plugin.py makes. It imports nothing of the program before that is
unpacked, and is written so that an older Python gets as far as saying so.
"""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

# Set in the archive: a hash of all that is unpacked, and the folders with compiled modules.
DIGEST = ""
NATIVE: "frozenset[str]" = frozenset()
OLDEST = (3, 11)


def main() -> None:
    """Run the program; exits with a sentence if it can't be unpacked."""
    python = f"{sys.executable or 'this Python'} is Python {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.version_info < OLDEST:
        sys.exit(f"gpu-watchdog needs Python 3.11 or newer; {python}")
    machine, version = f"{sys.platform}-{os.uname().machine}", f"cp{sys.version_info[0]}{sys.version_info[1]}"
    native = [f"native/{machine}/{abi}/" for abi in (version, "abi3")]
    if native[0] not in NATIVE:
        known = ", ".join(sorted("/".join(each.split("/")[1:3]) for each in NATIVE if "/cp" in each))
        sys.exit(f"gpu-watchdog has no parts for {machine}/{version}; {python}; it has those for {known}")
    sys.path[0] = str(_unpacked(["program/", *native], f"{DIGEST}-{machine}-{version}"))
    from watchdog.cli.main import main as run

    run()


def _unpacked(prefixes: "list[str]", name: str) -> Path:
    """The folder with what is below these folders of the archive; nobody else may have written it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "gpu-memory-watchdog" / "plugin" / name
    try:
        if not folder.is_dir():
            _unpack(prefixes, folder)
        status = folder.stat()
    except OSError as error:
        sys.exit(f"gpu-watchdog can't be unpacked to {folder}: {error}; set XDG_CACHE_HOME to a folder of your own")
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        sys.exit(f"others may write to {folder}: delete it, or set XDG_CACHE_HOME to a folder of your own")
    return folder


def _unpack(prefixes: "list[str]", folder: Path) -> None:
    """Unpack beside it and rename, so that it is there as a whole or not at all, even if others do the same."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=str(folder.parent)))
    try:
        with zipfile.ZipFile(str(Path(__file__).absolute().parent)) as archive:
            for each in archive.infolist():
                prefix = next((prefix for prefix in prefixes if each.filename.startswith(prefix)), None)
                if prefix is not None:
                    each.filename = each.filename[len(prefix) :]
                    archive.extract(each, str(scratch))
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(str(scratch), ignore_errors=True)  # gone by this name after the rename


if __name__ == "__main__":
    main()
