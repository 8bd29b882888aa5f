"""What the daemon determines once at startup: supported system calls, its PID namespace, its own pod."""

import os
from dataclasses import replace

from watchdog.core.model import Place, PlaceKind
from watchdog.daemon.enforcement import Environment
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process import pidfd_supported, raise_descriptor_limit
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options

_CAP_KILL = 5  # linux/capability.h


def open_processes(options: Options) -> tuple[Environment, Scanner]:
    """Determine the environment, and open a scanner for it."""
    raise_descriptor_limit()
    procfs = Procfs(options.procfs)
    missing = pidfd_supported()
    environment = Environment(
        in_host_pid_namespace=procfs.in_host_pid_namespace(),
        pidfd_missing=missing,
        own=_own_place(procfs, options.pod_uid.strip().lower()),
        procfs_is_own=procfs.own_pid() == os.getpid(),
        may_signal_others=procfs.has_capability(_CAP_KILL),
    )
    return environment, Scanner(ProcessTable(procfs, pidfds=missing is None))


def _own_place(procfs: Procfs, pod_uid: str) -> Place | None:
    """Where the daemon itself runs, by its cgroup and by the pod UID from its manifest.

    In a private cgroup namespace, which runtimes use with cgroup v2, the cgroup is `/` (cgroup_namespaces(7)).
    """
    try:
        place = parse_cgroup(procfs.cgroup_text(os.getpid()))
    except OSError:
        place = None
    if place is None or place.kind is not PlaceKind.POD:
        return Place(kind=PlaceKind.POD, pod=pod_uid) if pod_uid else None
    return replace(place, pod=place.pod or pod_uid or None)
