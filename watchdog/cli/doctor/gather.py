"""Gathers the facts for doctor, each on its own, so that one failure does not affect the others."""

import contextlib
import errno
import http.client
import os
import re
import socket
import sqlite3
import sys
import tempfile
import time
import zoneinfo
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from watchdog import clock
from watchdog.cli.client import QueryError, listen_url, query_status
from watchdog.cli.doctor.api_query import query_api
from watchdog.cli.doctor.facts import (
    DEFAULTS,
    ApiFacts,
    ClusterFacts,
    Confinement,
    ContainerFacts,
    DriverFacts,
    Facts,
    ListenFacts,
    PolicyFacts,
    ProcessFacts,
    SystemFacts,
)
from watchdog.cli.doctor.journal_files import mount_lines, mount_of, os_text, read_journal
from watchdog.clock import Bell
from watchdog.config.load import PolicyError, load_policy
from watchdog.core.amount import CardCount
from watchdog.core.assess import assess
from watchdog.core.assessment import Inputs
from watchdog.core.attribute import attribute
from watchdog.core.keys import keys_of
from watchdog.core.model import GapReason, Now, PodKeys
from watchdog.core.rules import maintenance_of
from watchdog.core.utilization import CardUtilization
from watchdog.daemon.enforcement import open_processes
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import Sources, card_gaps, open_cluster
from watchdog.node.drivers.devices import Library, has_capability_devices, inspect_library, windows_sign
from watchdog.node.drivers.nvml_cards import find_vgpus
from watchdog.node.drivers.opening import open_driver
from watchdog.node.drivers.protocol import Driver, DriverReading, released_reading
from watchdog.node.mps_control import inspect_mps
from watchdog.node.process import raise_descriptor_limit
from watchdog.node.procfs import Procfs
from watchdog.options import Options, listen_error, parse_listen

_API_PATIENCE_S: Final = 20.0


def gather(options: Options, patience_s: float) -> Facts:
    """Read everything once; a driver that has not responded after `patience_s` seconds is left hanging.

    The API server is asked first, and given less time: it may report that the GPUs are under maintenance, when the
    driver must not be opened.
    """
    policy = _policy(options.policy)
    keys = keys_of(policy.policy or DEFAULTS)
    connection = open_cluster(options, Bell())
    api = ApiFacts()
    if connection is not None:
        connection.pods.want(keys)
        api = query_api(options, policy.policy or DEFAULTS, connection, min(patience_s, _API_PATIENCE_S))
    now = clock.now()
    sources = Sources(options, None, connection)
    cluster = _cluster(options, sources, keys, now)
    inputs = sources.inputs(policy.policy or DEFAULTS, now)
    cluster = _with_claims(cluster, sources, inputs, now)
    inputs = replace(inputs, pods=cluster.pods)
    driver = _driver(options, patience_s, maintenance_of(cluster.node))
    return Facts(
        options=options,
        driver=driver,
        system=_system(now),
        processes=_processes(options, driver.reading, cluster, inputs, now),
        policy=policy,
        container=read_container(options.policy, mount_lines()),
        cluster=cluster,
        api=api,
        journal=read_journal(options.journal),
        listen=probe_listen(options.listen),
        mps=None if policy.policy is None or policy.policy.mps is None else inspect_mps(policy.policy.mps),
    )


def _policy(path: Path) -> PolicyFacts:
    try:
        return PolicyFacts(is_there=True, policy=load_policy(path))
    except PolicyError as error:
        return PolicyFacts(is_there=_is_there(path), policy=None, problems=error.problems)


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True  # something else is wrong, and that is what must be reported
    return True


def _cluster(options: Options, sources: Sources, keys: PodKeys, now: Now) -> ClusterFacts:
    sources.pods.want(keys)
    node, node_gaps = sources.node.read(now)
    namespaces, namespace_gaps = sources.namespaces.read(now)
    return ClusterFacts(
        pods=sources.pods.read(now),
        age_s=_age_s(options.pods, now),
        node=node,
        node_gaps=node_gaps,
        namespaces=namespaces,
        namespace_gaps=namespace_gaps,
    )


def _with_claims(cluster: ClusterFacts, sources: Sources, inputs: Inputs, now: Now) -> ClusterFacts:
    """What was read of claims, if the policy reads them."""
    if not inputs.policy.reads_claims:
        return cluster
    devices = sources.slices.read(now)[0].values()
    return replace(
        cluster,
        claiming=sum(bool(pod.claims) and pod.has_started and not pod.is_finished for pod in inputs.pods.pods),
        claim_gaps=tuple(gap for gap in inputs.pods.gaps if gap.reason is GapReason.CLAIMS),
        lacks_uuids=bool(devices) and not any(each.uuid or each.parent for each in devices),
    )


def _age_s(path: Path | None, now: Now) -> float | None:
    try:
        return None if path is None else now.wall_s - path.stat().st_mtime
    except OSError:
        return None


class _InspectingDriver:
    """A driver whose library is inspected too, on the thread that reads the driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.library: Library | None = None
        self.vgpus: tuple[str, ...] = ()

    @property
    def interface(self) -> str:
        """What the wrapped driver is read through."""
        return self._driver.interface

    @property
    def needs_new_process(self) -> str | None:
        """The answer of the wrapped driver."""
        return self._driver.needs_new_process

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """Inspect the library, then read the GPUs."""
        library = inspect_library()
        reading = self._driver.read(only, like)
        self.vgpus = find_vgpus() if library.path is not None and library.failure is None else ()
        self.library = library
        return reading

    def used(self) -> Mapping[str, int]:
        """The memory counters of the wrapped driver."""
        return self._driver.used()

    def utilization(self) -> tuple[CardUtilization, ...]:
        """The utilisation that the wrapped driver reports."""
        return self._driver.utilization()

    def close(self) -> None:
        """Release the driver."""
        self._driver.close()


def _driver(options: Options, patience_s: float, maintenance: str | None) -> DriverFacts:
    driver = _InspectingDriver(open_driver(options))
    reading = read_once(driver, patience_s) if maintenance is None else released_reading(maintenance, driver.interface)
    return DriverFacts(
        library=driver.library,
        reading=reading,
        searched=os.environ.get("LD_LIBRARY_PATH", ""),
        maintenance=maintenance,
        windows=windows_sign(),
        vgpus=driver.vgpus,
        has_capability_devices=has_capability_devices(),
    )


def _system(now: Now) -> SystemFacts:
    return SystemFacts(
        python=sys.version_info[:2],
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


def _processes(
    options: Options, reading: DriverReading, cluster: ClusterFacts, inputs: Inputs, now: Now
) -> ProcessFacts:
    procfs = Procfs(options.procfs)
    environment, scanner = open_processes(options)
    with closing(scanner):
        snapshot = scanner.snapshot(reading, now)
    attribution = attribute(snapshot, cluster.pods.pods)
    return ProcessFacts(
        procfs_problem=_procfs_problem(procfs),
        init_problem=_init_problem(procfs),
        environment=environment,
        in_first_user_namespace=_in_first_user_namespace(),
        listed=snapshot.processes,
        gaps=snapshot.gaps[len(reading.gaps) :],
        attribution=attribution,
        card_gaps=card_gaps(snapshot, cluster.node),
        cards_offered=CardCount.of(snapshot, cluster.node).offered,
        assessments=assess(attribution, snapshot, inputs),
    )


def _procfs_problem(procfs: Procfs) -> str:
    try:
        return "" if procfs.pids() else "it shows no processes"
    except OSError as error:
        return os_text(error)


def _init_problem(procfs: Procfs) -> str:
    """Why PID 1, which belongs to another user for all but root, can't be read."""
    try:
        procfs.stat(1)
        procfs.cgroup_text(1)
    except ProcessLookupError:
        return "PID 1 is invisible"
    except OSError as error:
        return f"PID 1: {os_text(error)}"
    return ""


def _in_first_user_namespace() -> bool:
    """Whether user IDs are those of the host; if that can't be read, they most likely are."""
    try:
        text = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError:
        return True
    return text.split() == ["0", "0", str(2**32 - 1)]


def read_container(policy: Path, mounts: list[str]) -> ContainerFacts:
    """Read what confines this process; the only thing written is a temporary file, to find the folder for them."""
    try:
        temporary_folder, temporary_problem = tempfile.gettempdir(), ""
    except OSError as error:
        temporary_folder, temporary_problem = "", os_text(error)
    mount = mount_of(policy, mounts)
    return ContainerFacts(
        confinement=read_confinement(),
        # The kubelet sets it in every container (rest.InClusterConfig of client-go uses it too).
        in_pod=bool(os.environ.get("KUBERNETES_SERVICE_HOST")),
        # An unknown mount is not reported as missing.
        has_policy_mount=mount is None or mount.point != "/",
        temporary_folder=temporary_folder,
        temporary_problem=temporary_problem,
    )


_ATTRIBUTES: Final = Path("/proc/self/attr")
_APPARMOR_ENABLED: Final = Path("/sys/module/apparmor/parameters/enabled")
_APPARMOR: Final = re.compile(r"(?P<name>.+?)(?: \((?P<mode>[a-z]+)\))?")
_SELINUX: Final = re.compile(r"[^:\s]+:[^:\s]+:(?P<type>[^:\s]+)(?::.+)?")
# Profiles that only allow signals to processes under the same profile: those of container runtimes
# (containerd contrib/apparmor/template.go, moby profiles/apparmor/template.go, containers/common pkg/apparmor).
_OF_RUNTIMES: Final = re.compile(r"cri-containerd\.apparmor\.d|docker-default|crio-default|containers-default-.+")


def read_confinement(attributes: Path = _ATTRIBUTES, enabled: Path = _APPARMOR_ENABLED) -> Confinement:
    """Read the confinement of this process; none if neither module is active, or it can't be read."""
    # AppArmor has its own file since Linux 5.8; the other belongs to the main module (proc_pid_attr(5)).
    if own := _kernel_text(attributes / "apparmor" / "current"):
        return confinement_of(own)
    return confinement_of(_kernel_text(attributes / "current"), has_apparmor=_kernel_text(enabled) == "Y")


def confinement_of(text: str, *, has_apparmor: bool = True) -> Confinement:
    """Parse the text of such a file.

    AppArmor writes `NAME (MODE)`, or `unconfined`; stacked profiles are joined by `//&`, and each of them must allow a
    signal. In modes other than `enforce` and `kill` a profile denies nothing. Without AppArmor a bare name is another
    module's: SELinux with no policy loaded writes `kernel`
    (security_sid_to_context_core in security/selinux/ss/services.c), Smack a label such as `_`.
    """
    label = text.strip("\0\n ")
    selinux = _SELINUX.fullmatch(label)
    if selinux and " (" not in label and "//" not in label:
        return Confinement(selinux_type=selinux["type"])
    apparmor = _APPARMOR.fullmatch(label)
    if apparmor is None or apparmor["mode"] in ("complain", "unconfined") or not (apparmor["mode"] or has_apparmor):
        return Confinement()
    names = [name for name in apparmor["name"].split("//&") if name.rpartition(":")[2] != "unconfined"]
    return Confinement(profile="//&".join(names), is_of_runtime=any(map(_OF_RUNTIMES.fullmatch, names)))


def _kernel_text(path: Path) -> str:
    """The text of a kernel file; empty if it can't be read: EINVAL if the module that owns it is off."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


_LISTEN_PATIENCE_S: Final = 3.0


def probe_listen(listen: str) -> ListenFacts:
    """Bind the address for a moment, without listening; if it is taken, ask who answers there."""
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        problem = str(listen_error(error, listen))
        if error.errno == errno.EADDRINUSE:
            return _ask_daemon(listen, problem)
        return ListenFacts(state="unusable", problem=problem)
    return ListenFacts(state="free")


def _ask_daemon(listen: str, problem: str) -> ListenFacts:
    url = listen_url(listen)
    try:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=_LISTEN_PATIENCE_S)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            text = answer.read(1000).decode("utf-8", errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ListenFacts(state="taken", problem=problem)
    if answer.headers.get("Server") != "gpu-watchdog":
        return ListenFacts(state="taken", problem=problem)
    status = None
    with contextlib.suppress(QueryError):
        status = query_status(url, _LISTEN_PATIENCE_S)
    if answer.status == HTTPStatus.OK:
        return ListenFacts(state="ours", status=status)
    return ListenFacts(state="ours_sick", problem=text, status=status)
