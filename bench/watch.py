"""The daemon in this process: its own passes, one whenever it is asked for."""

import contextlib
import os
import select
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.node import NAME, POLICY, BenchNode
from watchdog import clock
from watchdog.config.load import load_policy
from watchdog.daemon import Daemon
from watchdog.node.nvml import NvmlDriver
from watchdog.options import Options
from watchdog.start import open_processes

_PATIENCE_MS: Final = 60_000


def options_of(node: BenchNode, listen: str = "127.0.0.1:0") -> Options:
    """The options by which a daemon finds this node."""
    return Options(
        node=NAME,
        policy=POLICY,
        procfs=node.procfs,
        listen=listen,
        journal=node.root / "state" / "journal.db",
        pods=node.pods_file,
    )


def unpaced(options: Options) -> Daemon:
    """A daemon that begins each pass as soon as the last one has ended."""
    policy = replace(load_policy(options.policy), interval_s=0.0)
    footing, scanner = open_processes(options)
    return Daemon(options, policy, NvmlDriver(), footing, scanner)


class Watch:
    """A daemon with everything that it has at run time, except that its HTTP server does not answer."""

    def __init__(self, node: BenchNode) -> None:
        options = options_of(node)
        options.journal.parent.mkdir(exist_ok=True)
        # The log goes to what is stderr when the daemon is made.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            self._daemon = unpaced(options)
        self._thread = self._daemon._thread
        self._poll = select.poll()
        self._poll.register(self._thread.fileno(), select.POLLIN)

    def run_pass(self) -> None:
        """From asking the driver to the report, with the loop's own code."""
        self._daemon._turn(clock.now())
        self._poll.poll(_PATIENCE_MS)
        self._daemon._turn(clock.now())

    def __enter__(self) -> Self:
        self.run_pass()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._daemon._end(clock.now())
