"""Gathers the facts for `doctor`, each on its own, so that one failure does not affect the others."""

import errno
import http.client
import json
import os
import socket
import sqlite3
import sys
import threading
import time
import zoneinfo
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from watchdog import clock
from watchdog.cli.doctor.facts import (
    DEFAULTS,
    ApiFacts,
    ClusterFacts,
    DriverFacts,
    Ended,
    Facts,
    ListenFacts,
    PolicyFacts,
    ProcessFacts,
    SystemFacts,
    mount_lines,
    read_container,
)
from watchdog.cli.doctor.journal import look_at_journal
from watchdog.clock import Bell
from watchdog.config.load import PolicyError, load_policy
from watchdog.core.attribute import attribute
from watchdog.core.errors import Problem
from watchdog.core.model import Now
from watchdog.core.policy import Policy
from watchdog.core.rules import maintenance_of
from watchdog.daemon.enforcement import open_processes
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import namespace_source, node_source, pod_source, uses_api
from watchdog.kube.client import Api
from watchdog.kube.credentials import offset_s, probe_peer
from watchdog.kube.failure import ApiConfigError, ApiError, is_certificate
from watchdog.kube.informers import NamespaceInformer, NodeInformer, PodInformer
from watchdog.kube.reviews import ask_version, has_node, has_pods, may_i, similar_names, who_am_i
from watchdog.kube.rights import rights_of
from watchdog.node.devices import Library, has_capability_devices, inspect_library, windows_sign
from watchdog.node.driver import DriverReading, released_reading
from watchdog.node.nvml import NvmlDriver
from watchdog.node.nvml_calls import find_vgpus
from watchdog.node.process import raise_descriptor_limit
from watchdog.node.procfs import Procfs
from watchdog.options import Options, explain, parse_listen

_PATIENCE_S: Final = 3.0
_LARGEST: Final = 2**26  # of a status: a few hundred bytes per process
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def look_at_listen(listen: str) -> ListenFacts:
    """Bind the address for a moment, without listening; if it is taken, ask who answers there."""
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
    """The SHA-256 of the daemon's policy, from its status; empty if it does not say."""
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


class Informers:
    """What the daemon would watch in the cluster; here each is listed at most once."""

    def __init__(self, options: Options) -> None:
        self.api = Api(options.kubeconfig)
        bell = Bell()
        self.pods = PodInformer(self.api, options.node, bell)
        self.node = NodeInformer(self.api, options.node, bell)
        self.namespaces = NamespaceInformer(self.api, bell)


class ApiQuery:
    """Queries the API server on its own thread, since a name server alone can take half a minute.

    What was learned so far is available at any time; a thread that has not finished is abandoned.
    """

    def __init__(self, options: Options, policy: Policy) -> None:
        """`policy` determines what is needed."""
        self._options = options
        self._policy = policy
        self.informers = Informers(options) if uses_api(options) else None
        self._facts = ApiFacts(ended="late", kubeconfig=options.kubeconfig)
        self._thread = threading.Thread(target=self._run, name="doctor-api", daemon=True)
        self._began_s = clock.now().boottime_s

    def start(self) -> None:
        """Start, if the API is used at all."""
        if self.informers is not None:
            self._thread.start()

    def facts(self, patience_s: float) -> ApiFacts | None:
        """What was learned within `patience_s` seconds of the start; None if the API is not used."""
        if self.informers is None:
            return None
        self._thread.join(max(0.0, self._began_s + patience_s - clock.now().boottime_s))
        waited_s = clock.now().boottime_s - self._began_s
        return replace(self._facts, waited_s=waited_s)

    def _run(self) -> None:
        assert self.informers is not None
        api = self.informers.api
        try:
            if self._ask_who(api):
                self._ask_rights(api)
                self._fetch(self.informers)
                self._ask_node(api)
                self._end("asked")
        except ApiConfigError as error:
            self._end("unconfigured", error.problem)
        except ApiError as error:
            if is_certificate(error):
                self._know(asking="its certificate", peer=probe_peer(api.host), now_s=clock.now().wall_s)
                self._end("certificate", error.problem)
            else:
                self._end("unreachable", error.problem)

    def _know(self, **found: Any) -> None:
        self._facts = replace(self._facts, **found)

    def _end(self, how: Ended, problem: Problem | None = None) -> None:
        self._know(ended=how, problem=problem)

    def _ask_who(self, api: Api) -> bool:
        """Ask for the server's version and our account; whether to continue."""
        credentials = api.credentials()
        self._know(asking="its version", host=api.host, credentials=credentials)
        sent_s = clock.now().wall_s
        answer, version = ask_version(api)
        now_s = clock.now().wall_s
        self._know(version=version, now_s=now_s, offset_s=offset_s(answer.headers, sent_s, now_s))
        if answer.status not in (200, 401, 403) or (answer.is_good and not version):
            self._end("odd", answer.problem(f"{api.host}/version"))
            return False
        if answer.status != 401:
            self._know(asking="this account's name")
            answer, account = who_am_i(api)
            self._know(account=account)
        if answer.status == 401 or answer.is_anonymous:
            self._end("credentials" if answer.status == 401 else "anonymous", answer.problem(api.host))
            return False
        return True

    def _ask_rights(self, api: Api) -> None:
        """Ask for each right, also for those that the same policy would need to enforce."""
        needed = rights_of(self._policy)
        for right in dict.fromkeys((*needed, *rights_of(replace(self._policy, mode="enforce")))):
            lacking = []
            for verb in right.verbs:
                self._know(asking=f"the right to {verb} {right.target}")
                answer, allowed = may_i(api, right, verb)
                if not answer.is_good:
                    self._know(rights_problem=answer.problem("this account's rights can't be queried"))
                    return
                lacking += [] if allowed else [verb]
            if right in needed:
                self._know(rights={**self._facts.rights, right: tuple(lacking)})
            else:
                self._know(later={**self._facts.later, right: tuple(lacking)})

    def _fetch(self, informers: Informers) -> None:
        """List what the policy needs; what this account may not list is reported as a missing right."""
        unlisted = self._facts.unlisted
        if "pods" not in unlisted:
            self._know(asking="the pods of this node")
            informers.pods.fetch()
        if self._options.node_object is None and "nodes" not in unlisted:
            self._know(asking="this node's object")
            informers.node.fetch()
        if self._policy.reads_namespaces and self._options.namespaces is None and "namespaces" not in unlisted:
            self._know(asking="the namespaces")
            informers.namespaces.fetch()

    def _ask_node(self, api: Api) -> None:
        self._know(asking="the node of this name")
        name = self._options.node
        exists = has_node(api, name)
        self._know(exists=exists)
        if exists or (exists is None and has_pods(api, name) is not False):
            return
        is_there = has_pods if exists is None else has_node
        similar = next((each for each in similar_names(name) if is_there(api, each)), "")
        self._know(similar=similar)


_API_PATIENCE_S: Final = 20.0


def gather(options: Options, patience_s: float) -> Facts:
    """Read everything once; a driver that has not responded after `patience_s` seconds is left hanging.

    The API server is asked first, and given less time: it may report that the GPUs are under maintenance, when the
    driver must not be opened.
    """
    policy = _policy(options.policy)
    query = ApiQuery(options, policy.policy or DEFAULTS)
    query.start()
    api = query.facts(min(patience_s, _API_PATIENCE_S))
    now = clock.now()
    cluster = _cluster(options, query.informers, api, now)
    driver = _driver(patience_s, maintenance_of(cluster.node))
    return Facts(
        driver=driver,
        system=_system(now),
        processes=_processes(options, driver.reading, cluster, now),
        policy=policy,
        container=read_container(options.policy, mount_lines()),
        cluster=cluster,
        api=api,
        journal=look_at_journal(options.journal),
        listen=look_at_listen(options.listen),
    )


class _DriverAndLibrary:
    """A driver that also reads its library, on the thread that reads the driver."""

    def __init__(self) -> None:
        self._driver = NvmlDriver()
        self.library: Library | None = None
        self.vgpus: tuple[str, ...] = ()

    @property
    def needs_new_process(self) -> str | None:
        """Not used: it is read once."""
        return None

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read the library, then the GPUs."""
        library = inspect_library()
        reading = self._driver.read(only)
        self.vgpus = find_vgpus() if library.path is not None and library.failure is None else ()
        self.library = library
        return reading

    def used(self) -> Mapping[str, int]:
        """Not used: there is no pulse."""
        return {}

    def close(self) -> None:
        """Release the driver."""
        self._driver.close()


def _driver(patience_s: float, maintenance: str | None) -> DriverFacts:
    driver = _DriverAndLibrary()
    reading = read_once(driver, patience_s) if maintenance is None else released_reading(maintenance)
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
    environment, scanner = open_processes(options)
    snapshot = scanner.snapshot(reading, now)
    scanner.close()
    return ProcessFacts(
        procfs=options.procfs,
        procfs_problem=_procfs_problem(procfs),
        init_problem=_init_problem(procfs),
        environment=environment,
        in_first_user_namespace=_in_first_user_namespace(),
        listed=snapshot.processes,
        gaps=snapshot.gaps[len(reading.gaps) :],
        attribution=attribute(snapshot, cluster.pods.pods),
    )


def _procfs_problem(procfs: Procfs) -> str:
    try:
        return "" if procfs.pids() else "it shows no processes"
    except OSError as error:
        return error.strerror or str(error)


def _init_problem(procfs: Procfs) -> str:
    """Why PID 1, which belongs to another user for all but root, can't be read."""
    try:
        procfs.stat(1)
        procfs.cgroup_text(1)
    except ProcessLookupError:
        return "PID 1 is invisible"
    except OSError as error:
        return f"PID 1: {error.strerror or error}"
    return ""


def _in_first_user_namespace() -> bool:
    """Whether user IDs are those of the host; if that can't be read, they most likely are."""
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
        return True  # something else is wrong, and that is what must be reported
    return True


def _cluster(options: Options, informers: Informers | None, api: ApiFacts | None, now: Now) -> ClusterFacts:
    pods = pod_source(options) if informers is None else informers.pods
    nodes = node_source(options) if informers is None or options.node_object is not None else informers.node
    spaces = namespace_source(options) if informers is None or options.namespaces is not None else informers.namespaces
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
        by_api=informers is not None,
        unlisted=frozenset() if api is None else api.unlisted,
    )


def _age_s(path: Path | None, now: Now) -> float | None:
    if path is None:
        return None
    try:
        return now.wall_s - path.stat().st_mtime
    except OSError:
        return None
