"""A real MPS server with two clients: one is drained and killed, and the other's kernels keep running."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.gpu.test_gpu import POLICY, Card, card, enforcing, grow, scan
from tests.node.support import need_root, wait_until
from tests.stub import GIB, MIB
from watchdog.core.policy import Draining
from watchdog.node.drivers.nvml import NvmlDriver
from watchdog.node.mps_control import ControlDaemon, find_program
from watchdog.node.mps_pipes import MpsError, check_listener, check_pipe
from watchdog.node.procfs import Procfs

pytestmark = pytest.mark.gpu
__all__ = ["card"]
MPS_CLIENT_TERMINATED: Final = 810  # CUDA_ERROR_MPS_CLIENT_TERMINATED
MOST_PAUSE_S: Final = 2.0  # a batch takes 20 ms on an H100; a client that waits for a drain waits until it has ended


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
    """The batches of kernels that a client has finished, and the error that ended its work, as it reports them.

    `pause_s` is the longest time between two batches.
    """

    def __init__(self, client: subprocess.Popen[str]) -> None:
        self.done = 0
        self.error = ""
        self.pause_s = 0.0
        self._last_s = time.monotonic()
        threading.Thread(target=self._read, args=(client,), daemon=True).start()

    def _read(self, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        for line in client.stdout:
            what, _, value = line.strip().partition(" ")
            if what == "done":
                now_s = time.monotonic()
                self.done, self.pause_s, self._last_s = int(value), max(self.pause_s, now_s - self._last_s), now_s
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


@dataclass
class Clients:
    """Two pods with a working client each, of one server, and what they report."""

    card: Card
    control: ControlDaemon
    variables: dict[str, str]
    calm: subprocess.Popen[str]
    offender: subprocess.Popen[str]
    progress: tuple[Progress, Progress]  # of the two


def clients(card: Card, pipe: Path, *more: str) -> Clients:
    """Start them; `more` are arguments of the offender."""
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    card.policy = f'{POLICY}\n[mps]\npipe = ["{pipe}"]\n'
    calm = card.allocate("calm", "2Gi", 512 * MIB, "--work", **variables)
    offender = card.allocate("offender", "1Gi", 256 * MIB, "--work", *more, **variables)
    driver = NvmlDriver()
    listed = {use.pid for use in driver.read().uses if use.client}
    driver.close()
    if not {calm.pid, offender.pid} <= listed:
        pytest.skip("this driver does not list the clients of an MPS server, so they are never acted on")
    progress = Progress(calm), Progress(offender)
    for each in progress:
        wait_for(each, 3)
    control = ControlDaemon(find_program(Draining().control), str(pipe), 5.0)
    assert {calm.pid, offender.pid} <= control.clients().keys()
    return Clients(card, control, variables, calm, offender, progress)


def test_a_client_is_drained_and_killed_and_its_neighbour_works_on(card: Card, pipe: Path) -> None:
    """The neighbour's kernels run before, during and after the kill, and the server takes a new client afterwards."""
    made = clients(card, pipe)
    calm, offender, progress = made.calm, made.offender, made.progress
    with enforcing(card) as running:
        running.wait_passes(2)
        grow(offender, 4 * GIB)
        running.wait(lambda _: offender.poll() is not None)
        wait_for(progress[0], 10)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
        running.wait(lambda d: d.metric("release_seconds_count") == 1)
    # It has learned from CUDA that its contexts were destroyed, and then got SIGTERM.
    assert (progress[1].error, offender.returncode) == (str(MPS_CLIENT_TERMINATED), -signal.SIGTERM)
    assert (calm.poll(), progress[0].error) == (None, "")
    assert offender.pid not in made.control.clients()
    later = card.allocate("later", "1Gi", 256 * MIB, "--work", **made.variables)
    wait_for(Progress(later), 3)
    wait_for(progress[0], 10)
    assert progress[0].pause_s < MOST_PAUSE_S


def test_a_drained_client_that_ignores_sigterm_is_not_drained_again(card: Card, pipe: Path) -> None:
    """A second request would stop the kernels of all clients of the server until the first one has ended."""
    made = clients(card, pipe, "--deaf")
    card.policy = card.policy.replace('grace = "1s"', 'grace = "6s"')
    card.write()
    with enforcing(card) as running:
        running.wait_passes(2)
        grow(made.offender, 4 * GIB)
        running.wait(lambda _: made.progress[1].error)
        assert made.offender.pid in made.control.clients()  # as long as it lives
        running.wait(lambda _: made.offender.poll() is not None)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
    assert (made.progress[1].error, made.offender.returncode) == (str(MPS_CLIENT_TERMINATED), -signal.SIGKILL)
    wait_for(made.progress[0], 10)
    assert (made.calm.poll(), made.progress[0].error) == (None, "")
    assert made.progress[0].pause_s < MOST_PAUSE_S


def test_a_daemon_that_starts_after_a_drain_does_not_repeat_it(card: Card, pipe: Path) -> None:
    """Points 31 and 36: it learns from the journal who was asked for, and withholds what it can't drain."""
    made = clients(card, pipe, "--deaf")
    card.policy = card.policy.replace('grace = "1s"', 'grace = "60s"')
    card.write()
    with enforcing(card) as running:
        grow(made.offender, 4 * GIB)
        running.wait(lambda _: made.progress[1].error)
        running.process.kill()
    with enforcing(card) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(5)
    wait_for(made.progress[0], 10)
    assert (made.offender.poll(), made.calm.poll(), made.progress[0].error) == (None, None, "")
    assert made.progress[0].pause_s < MOST_PAUSE_S


def test_a_stopped_client_is_left_alone_until_it_continues(card: Card, pipe: Path) -> None:
    """A request to drain it would stop the kernels of all clients of the server until it continues."""
    made = clients(card, pipe)
    grow(made.offender, 4 * GIB)
    wait_for(made.progress[1], 3)
    made.offender.send_signal(signal.SIGSTOP)
    with enforcing(card) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(5)
        wait_for(made.progress[0], 10)
        assert made.progress[0].pause_s < MOST_PAUSE_S
        made.offender.send_signal(signal.SIGCONT)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
    assert made.progress[1].error == str(MPS_CLIENT_TERMINATED)
    assert (made.calm.poll(), made.progress[0].error) == (None, "")


def test_a_drained_client_that_begins_again(card: Card, pipe: Path) -> None:
    """Point 36: it stays listed; once it has reset the GPU it is a client again, known by its contexts' numbers."""
    made = clients(card, pipe, "--again")
    ((server, others),) = {made.control.clients()[made.offender.pid]: made.control.clients().keys()}.items()
    assert {made.calm.pid, made.offender.pid} == set(others)
    first = made.control.contexts(server)
    assert made.control.terminate(server, made.offender.pid) == "0"
    wait_until(lambda: made.progress[1].error == str(MPS_CLIENT_TERMINATED), 60)
    assert (made.control.contexts(server), made.offender.pid in made.control.clients()) == (first, True)
    done = made.progress[1].done
    grow(made.offender, 0)  # any line: it begins again
    wait_until(lambda: made.progress[1].done not in (0, done), 60)
    again = made.control.contexts(server)
    sys.stdout.write(f"contexts: {first}, then {again}\n")
    assert len(again[made.offender.pid]) == 1
    assert not again[made.offender.pid] & first[made.offender.pid]
    assert again[made.calm.pid] == first[made.calm.pid]
    assert made.control.terminate(server, made.offender.pid) == "0"


def test_the_limit_of_a_client(card: Card, pipe: Path) -> None:
    """What the server lets its clients pin is read as CUDA applies it, the context included."""
    control = ControlDaemon(find_program(Draining().control), str(pipe), 5.0)
    assert control.ask("set_default_device_pinned_mem_limit 0 4G") == ""
    made = clients(card, pipe)
    server = made.control.clients()[made.calm.pid]
    (gpu,) = (each["uuid"] for each in scan(card)["gpus"])
    assert [made.control.limit(server, device) for device in (gpu, "0")] == [4 * GIB] * 2
    grow(made.calm, 2 * GIB)
    wait_for(made.progress[0], 3)
    grow(made.calm, 2 * GIB)
    wait_until(lambda: made.progress[0].error == "2", 60)  # CUDA_ERROR_OUT_OF_MEMORY
