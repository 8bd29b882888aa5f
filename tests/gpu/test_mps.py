"""A real MPS server with two clients: one is drained and killed, and the other's kernels keep running."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.test_gpu import POLICY, Card, card, enforcing, grow
from tests.node.support import need_root
from tests.stub import GIB, MIB
from watchdog.core.policy import Draining
from watchdog.node.mps_control import ControlDaemon, find_program
from watchdog.node.mps_pipes import MpsError, check_pipe
from watchdog.node.nvml import NvmlDriver

pytestmark = pytest.mark.gpu
__all__ = ["card"]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """The pipe directory of a control daemon that runs for the test."""
    need_root()
    try:
        program = find_program(Draining().control)
    except MpsError as error:
        pytest.skip(str(error))
    folder = tmp_path / "mps"
    (folder / "pipe").mkdir(parents=True)
    (folder / "log").mkdir()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    daemon = subprocess.Popen([*program, "-f"], env={**os.environ, **environment}, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not (folder / "pipe" / "control").exists():
            if daemon.poll() is not None or time.monotonic() > deadline:
                pytest.skip("the MPS control daemon does not start here")
            time.sleep(0.05)
        yield folder / "pipe"
    finally:
        subprocess.run(program, input="quit -t 5\n", text=True, env={**os.environ, **environment}, check=False)
        daemon.terminate()
        daemon.wait()


class Progress:
    """The batches of kernels that a client has finished, as it reports them."""

    def __init__(self, client: subprocess.Popen[str]) -> None:
        self.done = 0
        threading.Thread(target=self._read, args=(client,), daemon=True).start()

    def _read(self, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        for line in client.stdout:
            if line.startswith("done "):
                self.done = int(line.split()[1])


def wait_for(progress: Progress, more: int) -> None:
    """Wait until a client has finished this many more batches."""
    until, deadline = progress.done + more, time.monotonic() + 60
    while progress.done < until:
        assert time.monotonic() < deadline, "the client's kernels do not run any more"
        time.sleep(0.01)


def test_a_client_is_drained_and_killed_and_its_neighbour_works_on(card: Card, pipe: Path) -> None:
    """The neighbour's kernels run before, during and after the kill, and the server takes a new client afterwards."""
    check_pipe(str(pipe))
    client = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    card.policy = f'{POLICY}\n[mps]\npipe = ["{pipe}"]\n'
    calm = card.hog("calm", "2Gi", 512 * MIB, "--work", environment=client)
    hog = card.hog("hog", "1Gi", 256 * MIB, "--work", environment=client)
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
    assert calm.poll() is None
    assert hog.pid not in asked.clients()
    later = card.hog("later", "1Gi", 256 * MIB, "--work", environment=client)
    wait_for(Progress(later), 3)
    wait_for(progress[0], 10)
