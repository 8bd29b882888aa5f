"""The real command, run as an operator would."""

import abc
import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.node.support import ENDS_WITH_US, pauses
from tests.rig.volume import mounted
from tests.stub import Variant, environment, read_calls

COMMAND = Path(sys.executable).with_name("gpu-watchdog")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def gpu_watchdog(
    *arguments: str | Path,
    stub: Path,
    variant: Variant = "current",
    prefix: Iterable[str] = (),
    around: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; `around` is added to its environment."""
    command, environ = [*prefix, COMMAND, *arguments], {**environment(stub, variant=variant), **around}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


class Endpoints(abc.ABC):
    """What a daemon answers on its port."""

    @abc.abstractmethod
    def get(self, path: str) -> tuple[int, str]:
        """Ask one of its endpoints; status and body."""

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/api/status")[1])
        return found

    def metrics(self) -> Samples:
        """Every sample of /metrics, by name and labels, without the prefix."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {
            (sample.name.removeprefix("gpu_watchdog_"), frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float | None:
        """The one sample of this name that has these labels; None where there is none."""
        found = [v for (n, held), v in self.metrics().items() if n == name and labels.items() <= dict(held).items()]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None


class Daemon(Endpoints):
    """A running `gpu-watchdog run`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, *, calls: Path | None = None) -> None:
        """`calls`: the stub's counters."""
        self.process = process
        self._log = log
        self._calls = calls

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        """The port that it listens on, by its own log: no other daemon can be taken for it. Raises ConnectionError."""
        lines = self._log.read_bytes().split(b"\n")[:-1]
        begun = next((line for line in reversed(lines) if b'"event": "started"' in line), None)
        if begun is None:
            raise ConnectionError("it does not listen yet")
        return int(json.loads(begun)["listen"].rpartition(":")[2])

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        # It may be in the middle of writing the last line.
        lines = self._log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it has logged under one event name."""
        return [line for line in self.log() if line["event"] == name]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait(self, true: Callable[["Daemon"], object], seconds: float = 180.0) -> None:
        """Wait until something is true of it; the limit only counts where it fails."""
        deadline, pause_s = time.monotonic() + seconds, pauses()
        while not true(self):
            assert self.process.poll() is None, self._log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, self._log.read_text(encoding="utf-8")
            time.sleep(next(pause_s))

    def has_begun(self) -> bool:
        """Whether it listens; its first cycle may still be to come."""
        with contextlib.suppress(ConnectionError):
            return self.port > 0
        return False

    def is_up(self) -> bool:
        """Whether a cycle has finished, and the journal, which a busy disk delays, has been opened or cannot be."""
        with contextlib.suppress(OSError):
            code, body = self.get("/api/status")
            return code == 200 and "still waiting for the disk" not in json.loads(body)["health"]["journal"]
        return False

    def wait_call(self, name: str, cards: int = 1) -> None:
        """Wait until the daemon begins this call into the driver once more, for the last of this many cards."""
        calls = self._calls
        assert calls is not None
        target = (read_calls(calls).get(name, 0) // cards + 1) * cards
        self.wait(lambda _: read_calls(calls).get(name, 0) >= target)

    def wait_passes(self, count: int = 1) -> None:
        """Wait until this many more cycles have finished."""
        target = (self.metric("cycle_duration_seconds_count") or 0) + count
        self.wait(lambda d: (d.metric("cycle_duration_seconds_count") or 0) >= target)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal and wait for the end: the exit code and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        return code, time.monotonic() - began


@contextlib.contextmanager
def daemon(
    root: Path, stub: Path, *arguments: str | Path, prefix: tuple[str, ...] = (), port: int = 0, settled: bool = True
) -> Iterator[Daemon]:
    """Run the daemon on a port of loopback, by default one that the kernel gives it; it is ended at the end.

    The policies of this folder are mounted as from a ConfigMap, unless they are not to be `settled`.
    """
    for each in arguments if settled else ():
        if isinstance(each, Path) and each.suffix == ".toml" and each.parent == root:
            mounted(each)
    log = root / f"log-{time.monotonic_ns()}.jsonl"
    calls = log.with_suffix(".calls")
    options = ("--listen", f"127.0.0.1:{port}", "--node", "n1", *arguments)
    command = [*ENDS_WITH_US, *prefix, str(COMMAND), "run", *map(str, options)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(stub, calls=calls), stdout=out, stderr=out, cwd=root)
    try:
        running = Daemon(process, log, calls=calls)
        running.wait(Daemon.is_up)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
