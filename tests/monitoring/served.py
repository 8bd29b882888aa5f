"""What the real programs of the rig have in common: one YAML file, one port on loopback, ended with the tests."""

from pathlib import Path
from typing import Any, Self

import yaml

from tests.monitoring.asking import ask, is_ready
from tests.monitoring.programs import find
from tests.ports import free_port
from tests.rig.cluster.processes import Server

Config = dict[str, Any]


class Served:
    """A context manager: the program is ready inside, and gone after it."""

    def __init__(self, name: str, folder: Path, config: Config, *flags: str, program: Path | None = None) -> None:
        """`folder` gets configuration, log and data."""
        self.port = free_port()
        self.folder = folder
        self.file = folder / f"{name}.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(config)
        command = [
            str(program or find(name)),
            f"--config.file={self.file}",
            f"--web.listen-address={self.address}",
            *flags,
        ]
        self.server = Server(name, command, log=folder / f"{name}.log", environment={"HOME": str(folder)})

    def __enter__(self) -> Self:
        try:
            self.server.start()
            self.server.wait_for(lambda: is_ready(self.port))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # SIGKILL: its data goes with the test.
        self.server.stop(hard=True)

    @property
    def address(self) -> str:
        """Where it listens, `HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same, as a URL."""
        return f"http://{self.address}"

    def reload(self, config: Config) -> None:
        """Read another configuration. Raises RefusedError where it has a mistake."""
        self._write(config)
        ask(self.port, "POST", "/-/reload")

    def _write(self, config: Config) -> None:
        self.file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
