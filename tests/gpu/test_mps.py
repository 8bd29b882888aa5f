"""A real MPS server with two clients: one is drained and killed, and the other's kernels keep running."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.gpu.test_gpu import POLICY, Card, card, enforcing, grow
from tests.node.support import need_root
from tests.stub import GIB, MIB
from watchdog.core.policy import Draining
from watchdog.node.mps_control import ControlDaemon, find_program
from watchdog.node.mps_pipes import MpsError, check_listener, check_pipe
from watchdog.node.nvml import NvmlDriver
from watchdog.node.procfs import Procfs

pytestmark = pytest.mark.gpu
__all__ = ["card"]
MPS_CLIENT_TERMINATED: Final = 810  # CUDA_ERROR_MPS_CLIENT_TERMINATED


@contextmanager
def listening(how: str) -> Iterator[Path]:
    """The pipe directory of a control daemon that is started by this option, and has ended afterwards.

    Its path is short: the name of a socket has at most 107 bytes.
    """
    need_root()
    try:
        program = find_program(Draining().control)
    except MpsError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        pipe, log = Path(folder, "pipe"), Path(folder, "log")
        pipe.mkdir()
        log.mkdir()
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        with (log / "started").open("wb") as out:
            started = subprocess.Popen(
                [*program, how], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
            )
        try:
            deadline = time.monotonic() + 30
            while not (pipe / "control").exists():
                if time.monotonic() > deadline or started.poll():
                    pytest.skip(f"no control daemon starts here: {(log / 'started').read_text()}")
                time.sleep(0.05)
            yield pipe
        finally:
            with suppress(subprocess.TimeoutExpired):  # the servers have 5 s for the rest of their clients
                subprocess.run(program, input="quit -t 5\n", text=True, env=environment, check=False, timeout=60)
            for process in psutil.process_iter(["environ"]):
                if (process.info["environ"] or {}).get("CUDA_MPS_LOG_DIRECTORY") == str(log):
                    process.kill()
            started.wait(30)


@pytest.fixture
def pipe() -> Iterator[Path]:
    """The pipe directory of a control daemon that runs for the test, started as NVIDIA's device plugin does."""
    with listening("-d") as made:
        yield made


class Progress:
    """The batches of kernels that a client has finished, and the error that ended its work, as it reports them."""

    def __init__(self, client: subprocess.Popen[str]) -> None:
        self.done = 0
        self.error = ""
        threading.Thread(target=self._read, args=(client,), daemon=True).start()

    def _read(self, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        for line in client.stdout:
            what, _, value = line.strip().partition(" ")
            if what == "done":
                self.done = int(value)
            elif what == "error":
                self.error = value


def wait_for(progress: Progress, more: int) -> None:
    """Wait until a client has finished this many more batches."""
    until, deadline = progress.done + more, time.monotonic() + 60
    while progress.done < until:
        assert time.monotonic() < deadline, "the client's kernels do not run any more"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["-d", "-f"])
def test_a_real_control_daemon_is_trusted(how: str) -> None:
    """Point 36: the process that listens is the daemon, however it was started, and it lists no client yet."""
    with listening(how) as pipe:
        check_listener(str(pipe), check_pipe(str(pipe)), Procfs())
        assert ControlDaemon(find_program(Draining().control), str(pipe), 5.0).clients() == {}


def test_a_client_is_drained_and_killed_and_its_neighbour_works_on(card: Card, pipe: Path) -> None:
    """The neighbour's kernels run before, during and after the kill, and the server takes a new client afterwards."""
    client = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    card.policy = f'{POLICY}\n[mps]\npipe = ["{pipe}"]\n'
    calm = card.hog("calm", "2Gi", 512 * MIB, "--work", **client)
    hog = card.hog("hog", "1Gi", 256 * MIB, "--work", **client)
    driver = NvmlDriver()
    listed = {use.pid for use in driver.read().uses if use.mps}
    driver.close()
    if not {calm.pid, hog.pid} <= listed:
        pytest.skip("this driver does not list the clients of an MPS server, so they are never acted on")
    progress = Progress(calm), Progress(hog)
    for each in progress:
        wait_for(each, 3)
    asked = ControlDaemon(find_program(Draining().control), str(pipe), 5.0)
    assert {calm.pid, hog.pid} <= asked.clients().keys()
    with enforcing(card) as running:
        running.wait_passes(2)
        grow(hog, 4 * GIB)
        running.wait(lambda _: hog.poll() is not None)
        wait_for(progress[0], 10)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
        running.wait(lambda d: d.metric("release_seconds_count") == 1)
    # It has learned from CUDA that its contexts were destroyed, and then got SIGTERM.
    assert (progress[1].error, hog.returncode) == (str(MPS_CLIENT_TERMINATED), -signal.SIGTERM)
    assert (calm.poll(), progress[0].error) == (None, "")
    assert hog.pid not in asked.clients()
    later = card.hog("later", "1Gi", 256 * MIB, "--work", **client)
    wait_for(Progress(later), 3)
    wait_for(progress[0], 10)
