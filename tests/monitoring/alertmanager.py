"""A real Alertmanager on loopback, without gossip; it is ended with the tests, however they end."""

import datetime as dt
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.monitoring.asking import ask
from tests.monitoring.programs import find
from tests.monitoring.served import Config, Served

_FLAGS: Final = (
    # No peers: it would look for a private address of this machine and fail where there is none.
    "--cluster.listen-address=",
    "--log.level=debug",
)


class Alertmanager(Served):
    """A context manager: it is ready inside, and gone after it."""

    def __init__(self, folder: Path, config: Config) -> None:
        """`folder` gets configuration, log and data."""
        super().__init__("alertmanager", folder, config, f"--storage.path={folder / 'data'}", *_FLAGS)

    def send(self, *alerts: Mapping[str, str], resolved: bool = False, **annotations: str) -> None:
        """Send alerts as Prometheus does, each by its labels; `resolved`: they have ended now."""
        now = dt.datetime.now(dt.UTC)
        # They begin now: an alert older than the group's wait is sent on at once, before others can silence it.
        began, ended = (now - dt.timedelta(milliseconds=1), now) if resolved else (now, now + dt.timedelta(minutes=5))
        times = {"startsAt": began.isoformat(), "endsAt": ended.isoformat(), "annotations": annotations}
        body = [{"labels": dict(each), **times} for each in alerts]
        ask(self.port, "POST", "/api/v2/alerts", body)

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it has, with `labels` and `status`: `state`, `inhibitedBy`, `silencedBy`."""
        found: list[dict[str, Any]] = ask(self.port, "GET", "/api/v2/alerts").object
        return found

    def is_silenced(self, labels: Mapping[str, str]) -> bool | None:
        """Whether it inhibits an alert that has these labels, maybe among others; None: it has none."""
        found = [each["status"] for each in self.alerts() if labels.items() <= each["labels"].items()]
        return any(each["inhibitedBy"] for each in found) if found else None


def amtool(*arguments: str | Path) -> str:
    """What amtool prints; a failure is an assertion with its output."""
    command = [str(find("amtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
