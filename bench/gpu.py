"""Figures that need a real GPU: `make gpu` runs `python -m bench.gpu`, which writes them into docs/benchmarks.md."""

import contextlib
import ctypes
import datetime as dt
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pynvml

from bench.running import POLICY, ROOT, compile_program
from bench.table import HEAD, Row
from tests.gpu.test_gpu import POLICY as CARD_POLICY
from tests.gpu.test_gpu import Card, enforcing, grow
from tests.node.support import ENDS_WITH_US
from tests.rig.command import COMMAND, Daemon
from tests.stub import GIB, MIB
from watchdog.node.drivers.nvml_cards import NvmlCard
from watchdog.node.drivers.nvml_utilization import UtilizationReader

PAGE: Final = ROOT / "docs" / "benchmarks.md"
_SECTION: Final = re.compile(r"(?<=<!-- written by `make gpu` -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
_NOT_YET: Final = (
    "Not measured yet: `make gpu`, on a machine with a GPU, writes here what a list and a MemoryInfo call take there,\n"
    "and how many kernels a busy process launches in a second, with the daemon and without it."
)
_REPEATS: Final = 5
_CALLS: Final = 50
_ENTRIES: Final = 4096


def gpu(root: Path, window_s: float = 8.0) -> Iterator[Row]:
    """How long driver calls take next to a busy process, and how much the daemon slows that process down."""
    pynvml.nvmlInit()
    cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    where = (f"{len(cards)} x {_text(pynvml.nvmlDeviceGetName(cards[0]))}", _text(pynvml.nvmlSystemGetDriverVersion()))
    with _launcher() as launched:
        info = _call_ms(partial(pynvml.nvmlDeviceGetMemoryInfo, cards[0], version=pynvml.nvmlMemory_v2))
        for kind in ("Compute", "Graphics", "MPSCompute"):
            listed = _call_ms(_list(kind, cards[0]))
            yield Row(
                what=f"driver: {kind} list", where=where, ours=listed, beside="MemoryInfo", theirs=info, unit="ms"
            )
        reader, card = UtilizationReader(), NvmlCard(uuid=pynvml.nvmlDeviceGetUUID(cards[0]), index=0)
        busy = _call_ms(lambda: [*reader.read([card])])
        yield Row(what="driver: utilisation", where=where, ours=busy, beside="MemoryInfo", theirs=info, unit="ms")
        with_it: list[float] = []
        without: list[float] = []
        for number in range(_REPEATS):
            for daemon_runs in (True, False) if number % 2 else (False, True):
                with _daemon(root / str(number)) if daemon_runs else contextlib.nullcontext():
                    before, began_s = launched(), time.monotonic()
                    time.sleep(window_s)
                    rate = (launched() - before) / (time.monotonic() - began_s)
                (with_it if daemon_runs else without).append(rate)
        yield Row(
            what="kernel launches per second of a busy process, with the watchdog",
            where=where,
            ours=with_it,
            beside="without it",
            theirs=without,
            unit="",
        )
    pynvml.nvmlShutdown()
    yield Row(
        what="allocation to death, with `[pulse]`",
        where=where,
        ours=list(_deaths(root / "pulse", "[pulse]")),
        beside="without it",
        theirs=list(_deaths(root / "usual", "")),
        unit="ms",
    )


def _deaths(root: Path, more: str) -> Iterator[float]:
    """The time from when a process is to allocate 8 GiB beyond its limit until it has been killed, in each repeat."""
    for number in range(_REPEATS):
        folder = root / str(number)
        folder.mkdir(parents=True)
        with contextlib.closing(Card(folder)) as card:
            card.policy = CARD_POLICY.replace('grace = "1s"', 'grace = "0s"') + more
            hog = card.allocate("hog", "1Gi", 512 * MIB)
            with enforcing(card) as running:
                running.wait_passes(2)
                time.sleep(number / _REPEATS)  # so that the repeats are spread over the interval
                began_s = time.monotonic()
                grow(hog, 8 * GIB)
                hog.wait()
                yield (time.monotonic() - began_s) * 1000


def _list(kind: str, card: object) -> Callable[[], object]:
    """List in one call, as the daemon does; pynvml's wrapper queries the size first."""
    function = pynvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses_v3")
    entries, count = (pynvml.c_nvmlProcessInfo_v2_t * _ENTRIES)(), ctypes.c_uint()

    def call() -> None:
        count.value = _ENTRIES
        function(card, ctypes.byref(count), entries)

    return call


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def _call_ms(call: Callable[[], object]) -> list[float]:
    """The median of several calls, for each repeat."""
    found = []
    for _ in range(_REPEATS):
        took_ms = []
        for _ in range(_CALLS):
            began_s = time.perf_counter()
            call()
            took_ms.append((time.perf_counter() - began_s) * 1000)
        found.append(statistics.median(took_ms))
    return found


@contextlib.contextmanager
def _launcher() -> Iterator[Callable[[], int]]:
    """A process that launches kernels; yields a function that returns their number."""
    command = [*ENDS_WITH_US, sys.executable, "-m", "bench.launcher"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def launched() -> int:
            stdin.write("\n")
            stdin.flush()
            return int(stdout.readline())

        launched()  # the first has compiled the kernel
        yield launched
        process.kill()


@contextlib.contextmanager
def _daemon(root: Path) -> Iterator[None]:
    """The daemon with the shipped policy, on the real driver, without pods."""
    root.mkdir()
    pods, log = root / "pods.json", root / "log"
    pods.write_text('{"apiVersion": "v1", "kind": "List", "items": []}', encoding="utf-8")
    options = (
        "--node",
        "n1",
        "--policy",
        POLICY,
        "--pods",
        pods,
        "--journal",
        root / "j.db",
        "--listen",
        "127.0.0.1:0",
    )
    with log.open("wb") as out:
        process = subprocess.Popen([*ENDS_WITH_US, COMMAND, "run", *options], stdout=out, stderr=out)
    try:
        Daemon(process, log).wait(Daemon.is_up)
        yield
    finally:
        process.terminate()
        process.wait()


def gpu_section() -> str:
    """The section of the page about a real GPU."""
    found = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    return found[0] if found else _NOT_YET


def main() -> None:
    """Measure, print and write the section, if there is a GPU."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"not measured: {error}")
        return
    compile_program()
    with tempfile.TemporaryDirectory() as root:
        rows = "\n".join(map(str, gpu(Path(root))))
    text = f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d} by `make gpu`.\n\n{HEAD}\n{rows}"
    print(text)
    PAGE.write_text(_SECTION.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
