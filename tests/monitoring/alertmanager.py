"""A real Alertmanager on loopback, without gossip; it is ended with the tests, however they end."""

import datetime as dt
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.cluster.network import free_port
from tests.cluster.processes import Server
from tests.monitoring.asking import ask, ask_json, is_ready
from tests.monitoring.programs import find

Config = dict[str, Any]
_FLAGS: Final = (
    # No peers: it would look for a private address of this machine and fail where there is none.
    "--cluster.listen-address=",
    "--log.level=debug",
)


class Alertmanager:
    """A context manager: it is ready inside, and gone after it."""

    def __init__(self, folder: Path, config: Config | str) -> None:
        """`folder` gets configuration, log and data; `config` is a configuration or its text."""
        self.port = free_port()
        self.file = folder / "alertmanager.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(config)
        command = [
            str(find("alertmanager")),
            f"--config.file={self.file}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
            *_FLAGS,
        ]
        log = folder / "alertmanager.log"
        self.server = Server("alertmanager", command, log=log, environment={"HOME": str(folder)})

    def __enter__(self) -> Self:
        try:
            self.server.start()
            self.server.wait_for(lambda: is_ready(self.port))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(hard=True)

    @property
    def address(self) -> str:
        """Where it listens, `HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same, as a URL."""
        return f"http://{self.address}"

    def send(self, *alerts: Mapping[str, str], resolved: bool = False) -> None:
        """Send alerts as Prometheus does, each by its labels; `resolved`: they have ended now."""
        now = dt.datetime.now(dt.UTC)
        # They begin now: an alert that is older than the group's wait is told at once, before others can silence it.
        began, ended = (now - dt.timedelta(milliseconds=1), now) if resolved else (now, now + dt.timedelta(minutes=5))
        body = [{"labels": dict(each), "startsAt": began.isoformat(), "endsAt": ended.isoformat()} for each in alerts]
        ask(self.port, "POST", "/api/v2/alerts", body)

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it has, with `labels` and `status`: `state`, `inhibitedBy`, `silencedBy`."""
        found: list[dict[str, Any]] = ask_json(self.port, "GET", "/api/v2/alerts")
        return found

    def reload(self, config: Config | str | None = None) -> None:
        """Read the configuration again, or another one. Raises RefusedError where it has a mistake."""
        if config is not None:
            self._write(config)
        ask(self.port, "POST", "/-/reload")

    def amtool(self, *arguments: str) -> Any:
        """What `amtool --output=json` says of this Alertmanager."""
        return json.loads(amtool(f"--alertmanager.url={self.url}", "--output=json", *arguments).stdout)

    def _write(self, config: Config | str) -> None:
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
        self.file.write_text(text, encoding="utf-8")


def amtool(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run amtool to its end. With `check` a failure is an assertion with what it said."""
    command: Sequence[str] = [str(find("amtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


__all__ = ["Alertmanager", "Config", "amtool"]
