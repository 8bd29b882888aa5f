"""The daemon in this process: its own passes, one whenever it is asked for."""

import contextlib
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.node import NAME, POLICY, BenchNode
from bench.unpaced import unpaced
from watchdog import clock
from watchdog.options import Options

_PATIENCE_MS: Final = 60_000


def options_of(node: BenchNode) -> Options:
    """The options by which a daemon finds this node."""
    journal = node.root / "state" / "journal.db"
    return Options(
        node=NAME, policy=POLICY, procfs=node.procfs, listen="127.0.0.1:0", journal=journal, pods=node.pods_file
    )


class Watch:
    """A daemon with everything that it has at run time, except that nobody asks it anything over HTTP."""

    def __init__(self, node: BenchNode) -> None:
        # The log goes to what is stderr when the daemon is made.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            self._daemon = unpaced(options_of(node))
        self._poll = select.poll()
        self._poll.register(self._daemon._sampler.fileno(), select.POLLIN)

    def run_pass(self) -> None:
        """From asking the driver to the report, with the loop's own code: one turn asks, the next one takes."""
        self._daemon._step(clock.now())
        self._poll.poll(_PATIENCE_MS)
        self._daemon._step(clock.now())

    def __enter__(self) -> Self:
        self.run_pass()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._daemon._end(clock.now())
