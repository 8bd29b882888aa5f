"""The policy file while the daemon runs: noticed when it changes, also through a swapped symlink."""

from pathlib import Path

from watchdog.config.load import load_policy
from watchdog.core.policy import Policy

_Mark = tuple[int, int, int, int, int]


class PolicyFile:
    """Tells when a policy file has changed.

    A ConfigMap swaps the `..data` symlink above it, so what counts is the file that the path leads to now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark = self._look()

    def load(self) -> Policy:
        """Load what the file holds now; PolicyError if it holds mistakes."""
        self._mark = self._look()
        return load_policy(self.path)

    def has_changed(self) -> bool:
        """Whether the file is another one, or another version, than at the last `load`."""
        return self._look() != self._mark

    def _look(self) -> _Mark | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
