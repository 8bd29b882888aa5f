"""How this program was started, so that a command line that it prints can be typed as it stands."""

import shlex
import shutil
import sys
from pathlib import Path


def called() -> str:
    """`gpu-watchdog` where the shell finds it by that name, or else the path by which it was started."""
    started = sys.argv[0] if sys.argv else ""
    name = Path(started).name
    if name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m watchdog"
    if not name.startswith("gpu-watchdog"):
        return "gpu-watchdog"  # within another program, like a test's
    found = shutil.which(name)
    return name if found is not None and _is_same(found, started) else shlex.quote(started)


def _is_same(found: str, started: str) -> bool:
    try:
        return Path(found).samefile(started)
    except OSError:
        return False
