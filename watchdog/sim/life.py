"""Whether a process of the simulated node really lives."""

from typing import Final

from watchdog.core.model import ProcessKey
from watchdog.node.procfs import Procfs

_REAL: Final = Procfs()


def key_of(pid: int) -> ProcessKey:
    """Take the identity of a process from the real /proc; ProcessLookupError or another OSError if it can't be seen."""
    return ProcessKey(pid=pid, start_ticks=_REAL.stat(pid).start_ticks)


def lives(key: ProcessKey) -> bool:
    """Whether this very process runs; a zombie, which holds no memory any more, does not."""
    try:
        stat = _REAL.stat(key.pid)
    except OSError:
        return False
    return stat.start_ticks == key.start_ticks and stat.state not in "ZXx"
