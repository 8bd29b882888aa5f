"""Files as the kubelet mounts them from a ConfigMap: complete as soon as the `..data` symlink is swapped."""

import itertools
from pathlib import Path

_NUMBERS = itertools.count(1)


def mount(path: Path, text: str) -> Path:
    """Let a file hold this text from now on; what else is mounted in its folder stays as it is."""
    data = path.parent / "..data"
    version = path.parent / f"..{next(_NUMBERS)}"
    version.mkdir()
    for other in data.iterdir() if data.is_dir() else ():
        (version / other.name).write_bytes(other.read_bytes())
    (version / path.name).write_text(text, encoding="utf-8")
    swapped = path.parent / "..data_tmp"
    swapped.symlink_to(version.name)
    swapped.rename(data)
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        path.symlink_to(f"..data/{path.name}")
    return path


def mounted(policy: Path) -> Path:
    """Mount a policy that a test has written, so that a daemon need not wait for it to settle."""
    if policy.is_file() and not policy.is_symlink():
        mount(policy, policy.read_text(encoding="utf-8"))
    return policy
