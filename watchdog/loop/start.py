"""What a pass stands on, found out once at start: the kernel's calls, the namespace, the daemon's own place."""

import os

from watchdog.core.model import PlaceKind
from watchdog.loop.enforcement import Footing
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.pidfd import pidfd_supported, raise_descriptor_limit
from watchdog.node.processes import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options

_CAP_KILL = 5  # linux/capability.h


def open_processes(options: Options) -> tuple[Footing, Scanner]:
    """Find out what it stands on, and open the table of processes accordingly."""
    raise_descriptor_limit()
    procfs = Procfs(options.procfs)
    missing = pidfd_supported()
    try:
        own = parse_cgroup(procfs.cgroup_text(os.getpid()))
    except OSError:
        own = None
    footing = Footing(
        in_host_pid_namespace=procfs.in_host_pid_namespace(),
        pidfd_missing=missing,
        own=own if own is not None and own.kind is PlaceKind.POD else None,
        procfs_is_own=procfs.own_pid() == os.getpid(),
        may_signal_others=procfs.has_capability(_CAP_KILL),
    )
    return footing, Scanner(ProcessTable(procfs, pidfds=missing is None))
