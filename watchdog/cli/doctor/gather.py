"""Gathers the facts that `doctor` judges, each on its own, so that one that fails leaves the others."""

import errno
import http.client
import json
import os
import socket
import sqlite3
import sys
import time
import zoneinfo
from http import HTTPStatus
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.cli.doctor.facts import (
    DEFAULTS,
    ApiFacts,
    ClusterFacts,
    DriverFacts,
    Facts,
    ListenFacts,
    PolicyFacts,
    ProcessFacts,
    SystemFacts,
    look_at_container,
    mount_lines,
)
from watchdog.cli.doctor.gather_api import ApiLook, Feeds
from watchdog.cli.doctor.journal import look_at_journal
from watchdog.config.load import load_policy
from watchdog.config.mistakes import PolicyError
from watchdog.core.attribute import attribute
from watchdog.core.model import Now
from watchdog.core.rules import maintenance_of
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import namespace_source, node_source, pod_source
from watchdog.daemon.start import open_processes
from watchdog.node.driver import DriverReading, let_go
from watchdog.node.nvml import NvmlDriver
from watchdog.node.nvml_calls import Library, find_vgpus, has_capability_devices, look_at_library, windows_sign
from watchdog.node.pidfd import raise_descriptor_limit
from watchdog.node.procfs import Procfs
from watchdog.options import Options, explain, parse_listen

_PATIENCE_S: Final = 3.0
_LARGEST: Final = 2**26  # of a status: some hundred bytes a process
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def look_at_listen(listen: str) -> ListenFacts:
    """Bind it for a moment, without listening; where somebody has it, ask who that is."""
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        problem = str(explain(error, listen))
        if error.errno == errno.EADDRINUSE:
            return _ask(listen, _ANYWHERE.get(host, host), port, problem)
        return ListenFacts(listen=listen, state="unusable", problem=problem)
    return ListenFacts(listen=listen, state="free")


def _ask(listen: str, host: str, port: int, problem: str) -> ListenFacts:
    try:
        answer, body = _get(host, port, "/healthz", 1000)
    except (OSError, http.client.HTTPException):
        return ListenFacts(listen=listen, state="taken", problem=problem)
    if answer.headers.get("Server") != "gpu-watchdog":
        return ListenFacts(listen=listen, state="taken", problem=problem)
    sha256 = _policy_sha256(host, port)
    if answer.status == HTTPStatus.OK:
        return ListenFacts(listen=listen, state="ours", policy_sha256=sha256)
    text = body.decode("utf-8", errors="replace").strip()
    return ListenFacts(listen=listen, state="ours_sick", problem=text, policy_sha256=sha256)


def _policy_sha256(host: str, port: int) -> str:
    """Of the policy by which the daemon goes, from its status; empty where it does not say."""
    try:
        answer, body = _get(host, port, "/api/status", _LARGEST)
        said = json.loads(body) if answer.status == HTTPStatus.OK else {}
        return str(said["policy"]["sha256"])
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        return ""


def _get(host: str, port: int, path: str, most: int) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer, answer.read(most)
    finally:
        connection.close()


_API_PATIENCE_S: Final = 20.0


def gather(options: Options, patience_s: float) -> Facts:
    """Read everything once; a driver that has not answered after `patience_s` seconds is left hanging.

    The API server is asked first, and given less time: it may say that the GPUs are under maintenance, and then the
    driver is not to be opened.
    """
    policy = _policy(options.policy)
    look = ApiLook(options, policy.policy or DEFAULTS)
    look.start()
    api = look.facts(min(patience_s, _API_PATIENCE_S))
    now = clock.now()
    cluster = _cluster(options, look.feeds, api, now)
    driver = _driver(patience_s, maintenance_of(cluster.node))
    return Facts(
        driver=driver,
        system=_system(now),
        processes=_processes(options, driver.reading, cluster, now),
        policy=policy,
        container=look_at_container(options.policy, mount_lines()),
        cluster=cluster,
        api=api,
        journal=look_at_journal(options.journal),
        listen=look_at_listen(options.listen),
    )


class _Witness:
    """The driver, read together with the library behind it, on whatever thread reads it."""

    def __init__(self) -> None:
        self._driver = NvmlDriver()
        self.library: Library | None = None
        self.vgpus: tuple[str, ...] = ()

    @property
    def needs_new_process(self) -> str | None:
        """Never asked: it is read once."""
        return None

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Look at the library, then read the GPUs."""
        library = look_at_library()
        reading = self._driver.read(only)
        self.vgpus = find_vgpus() if library.path is not None and library.failure is None else ()
        self.library = library
        return reading

    def close(self) -> None:
        """Let the driver go."""
        self._driver.close()


def _driver(patience_s: float, maintenance: str | None) -> DriverFacts:
    witness = _Witness()
    reading = read_once(witness, patience_s) if maintenance is None else let_go(maintenance)
    return DriverFacts(
        library=witness.library,
        reading=reading,
        searched=os.environ.get("LD_LIBRARY_PATH", ""),
        maintenance=maintenance,
        windows=windows_sign(),
        vgpus=witness.vgpus,
        has_capability_devices=has_capability_devices(),
    )


def _system(now: Now) -> SystemFacts:
    return SystemFacts(
        python=(sys.version_info.major, sys.version_info.minor),
        sqlite=sqlite3.sqlite_version,
        wall_s=now.wall_s,
        has_boot_clock=_has_boot_clock(),
        boot_id=clock.boot_id(),
        descriptors=raise_descriptor_limit(),
        has_time_zones=_has_time_zones(),
    )


def _has_time_zones() -> bool:
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        return False
    return True


def _has_boot_clock() -> bool:
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME) > 0
    except (AttributeError, OSError):
        return False


def _processes(options: Options, reading: DriverReading, cluster: ClusterFacts, now: Now) -> ProcessFacts:
    procfs = Procfs(options.procfs)
    footing, scanner = open_processes(options)
    snapshot = scanner.snapshot(reading, now)
    scanner.close()
    return ProcessFacts(
        procfs=options.procfs,
        procfs_problem=_procfs_problem(procfs),
        init_problem=_init_problem(procfs),
        footing=footing,
        in_first_user_namespace=_in_first_user_namespace(),
        listed=snapshot.processes,
        gaps=snapshot.gaps[len(reading.gaps) :],
        attribution=attribute(snapshot, cluster.pods.pods),
    )


def _procfs_problem(procfs: Procfs) -> str:
    try:
        return "" if procfs.pids() else "it shows no process"
    except OSError as error:
        return error.strerror or str(error)


def _init_problem(procfs: Procfs) -> str:
    """Why PID 1, which is another user's for all but root, can't be read."""
    try:
        procfs.stat(1)
        procfs.cgroup_text(1)
    except ProcessLookupError:
        return "PID 1 can't be seen"
    except OSError as error:
        return f"PID 1: {error.strerror or error}"
    return ""


def _in_first_user_namespace() -> bool:
    """Whether users have the numbers that the host gives them; where that can't be read, they most likely have."""
    try:
        text = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError:
        return True
    return text.split() == ["0", "0", str(2**32 - 1)]


def _policy(path: Path) -> PolicyFacts:
    try:
        policy = load_policy(path)
    except PolicyError as error:
        return PolicyFacts(path=path, is_there=_is_there(path), policy=None, problems=error.problems)
    return PolicyFacts(path=path, is_there=True, policy=policy)


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True  # something is in the way of looking, and that is what has to be said
    return True


def _cluster(options: Options, feeds: Feeds | None, api: ApiFacts | None, now: Now) -> ClusterFacts:
    pods = pod_source(options) if feeds is None else feeds.pods
    nodes = node_source(options) if feeds is None or options.node_object is not None else feeds.node
    spaces = namespace_source(options) if feeds is None or options.namespaces is not None else feeds.namespaces
    node, node_gaps = nodes.read(now)
    namespaces, namespace_gaps = spaces.read(now)
    return ClusterFacts(
        node_name=options.node,
        pods_path=options.pods,
        pods=pods.read(now),
        age_s=_age_s(options.pods, now),
        node_path=options.node_object,
        node=node,
        node_gaps=node_gaps,
        namespaces_path=options.namespaces,
        namespaces=namespaces,
        namespace_gaps=namespace_gaps,
        by_api=feeds is not None,
        unlisted=frozenset() if api is None else api.unlisted,
    )


def _age_s(path: Path | None, now: Now) -> float | None:
    if path is None:
        return None
    try:
        return now.wall_s - path.stat().st_mtime
    except OSError:
        return None
