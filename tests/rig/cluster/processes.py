"""A server process of the tests: started with a log file, watched, and ended by its PID."""

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.node.support import pauses

# PR_SET_PDEATHSIG fires when the *thread* ends that started the child: all are started by one that stays. So no
# server outlives the tests, however they end.
_STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="starter")
_SETPRIV: Final = shutil.which("setpriv")
_TAIL_BYTES: Final = 3000


class ServerError(RuntimeError):
    """A server did not come up or did not end; the message has the end of its log."""


class Server:
    """One program with its log. It may be started again after it was stopped."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`log` is appended to; `environment` replaces ours."""
        self.name = name
        self.log = log
        self._command = [*((_SETPRIV, "--pdeathsig", "KILL", "--") if _SETPRIV else ()), *command]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The PID while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, *more: str) -> None:
        """Start it, with these arguments in addition; nothing is waited for."""
        with self._lock:
            assert self.pid is None, f"{self.name} runs already"
            self._process = _STARTER.submit(self._popen, more).result()

    def stop(self, *, hard: bool = False, limit_s: float = 30.0) -> None:
        """End it and reap it: by SIGTERM, after `limit_s` by SIGKILL; `hard` is SIGKILL at once."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(limit_s)

    def wait_for(self, ready: Callable[[], bool], limit_s: float = 180.0) -> None:
        """Wait until it is ready. Raises ServerError when it ends before, or takes longer."""
        deadline, pause_s = time.monotonic() + limit_s, pauses()
        while not ready():
            if self.pid is None:
                raise ServerError(f"{self.name} has ended; the end of {self.log}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name} was not ready in {limit_s:.0f} s; the end of {self.log}:\n{self.tail()}"
                )
            time.sleep(next(pause_s))

    def tail(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")

    def _popen(self, more: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._command, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C ends the tests first, and they end their servers
            )
