"""The requests to one MPS control daemon to drain clients, and which clients must not be asked for (again).

Measured on an H100 with driver 580.159 (`tests/gpu`): a drained client stays in the daemon's lists until its process
ends, and if it resets the GPU, it makes new contexts, with new numbers, and works on. A second request for a client
without new contexts is answered only when its process ends, and one for a stopped client when it continues. Until then
the kernels of all clients of the server stall, new clients wait, and the daemon answers nothing else.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult
from watchdog.node.mps_control import ControlDaemon, NotSentError, shortened
from watchdog.node.mps_pipes import MpsError
from watchdog.node.procfs import Procfs, Stat

_STOPPED: Final = "Tt"  # by a signal or by a debugger (proc_pid_stat(5))
_MOST_THREADS: Final = 1000  # that are looked at; a client has some ten
_IS_STOPPED: Final = "it is stopped, and the other clients of its server would stall until it continues"
_WAS_ASKED: Final = "it was asked for before, and the other clients of its server would stall until it ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedClient:
    """A client that a request was sent for."""

    # That of its server.
    server_pid: int = 0
    # The contexts of its server then, by number; None if they are not known.
    contexts: frozenset[str] | None = None
    # Whether it is known to be drained.
    is_drained: bool = False

    def has_others(self, server_pid: int, contexts: frozenset[str] | None) -> bool:
        """Whether it is known to have made contexts since then, so that it is a client again."""
        if self.contexts is None or contexts is None:
            return False
        return server_pid != self.server_pid or not contexts <= self.contexts


class AskedClients:
    """The clients that a request was sent for, by any daemon of this boot.

    It outlives the control daemons' answers: policies change, lists are incomplete for a moment, but a process stays
    drained.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._lock = threading.Lock()
        self._clients: dict[ProcessKey, AskedClient] = {}

    def assume_asked(self, keys: Iterable[ProcessKey]) -> None:
        """Note that an earlier daemon may have sent a request for these."""
        with self._lock:
            self._clients = {**dict.fromkeys(keys, AskedClient()), **self._clients}

    def add(self, key: ProcessKey, client: AskedClient) -> None:
        """Add a client, and forget those that have ended."""
        with self._lock:
            self._clients = {old: known for old, known in self._clients.items() if self._may_live(old)} | {key: client}

    def remove(self, key: ProcessKey) -> None:
        """Forget a client that was not drained."""
        with self._lock:
            self._clients.pop(key, None)

    def among(self, keys: Iterable[ProcessKey]) -> dict[ProcessKey, AskedClient]:
        """Those of these processes that were asked for."""
        with self._lock:
            return {key: self._clients[key] for key in keys if key in self._clients}

    def _may_live(self, key: ProcessKey) -> bool:
        try:
            return _stat(self._procfs, key) is not None
        except OSError:
            return True


class DrainRequests:
    """The requests to one control daemon. They block; the caller makes one at a time."""

    def __init__(self, daemon: ControlDaemon, procfs: Procfs, asked: AskedClients) -> None:
        self._daemon = daemon
        self._procfs = procfs
        self._asked = asked

    def problems_of(self, servers: Mapping[ProcessKey, int]) -> dict[ProcessKey, Problem | None]:
        """What is wrong with each of these clients, listed with their servers, except for drained ones; MpsError.

        With None a request may be sent for it.
        """
        asked = self._asked.among(servers)
        contexts = {server: self._daemon.contexts(server) for server in sorted({servers[key] for key in asked})}
        found: dict[ProcessKey, Problem | None] = {}
        for key, server in sorted(servers.items()):
            if (client := asked.get(key)) is not None:
                current = contexts[server].get(key.pid)
                if client.contexts is None and current is not None:  # what it makes from now on is new
                    client = replace(client, server_pid=server, contexts=current)
                    self._asked.add(key, client)
                if not client.has_others(server, current):
                    if not client.is_drained:
                        found[key] = _problem(
                            key, _WAS_ASKED, f"end it by hand (kill {key.pid}), or wait until it ends"
                        )
                    continue
            is_stopped = self._may_be_stopped(key)
            remedy = f"continue it (kill -CONT {key.pid}); ending it can break the work of the other clients"
            found[key] = _problem(key, _IS_STOPPED, remedy) if is_stopped else None
        return found

    def drain(
        self, request_id: int, client: DrainableClient, servers: Collection[ProcessKey], may_send: Callable[[], bool]
    ) -> DrainResult:
        """Drain a client; `servers` are the daemon's. `may_send` is called right before the request is sent."""
        key = client.key
        result = DrainResult(request_id=request_id, key=key, drained=Drained.DONE, reason="it had ended by then")
        is_sent = False

        def send() -> bool:
            nonlocal is_sent
            is_sent = self._is_alive(key) and not self._may_be_stopped(key) and may_send()
            if is_sent:  # whatever comes of it
                self._asked.add(key, AskedClient(server_pid=client.server_pid))
            return is_sent

        try:
            if self._is_alive(key):
                drained, reason = self._try(client, servers, send)
                result = replace(result, drained=drained, reason=reason)
        except NotSentError as error:
            if self._is_alive(key):
                reason = _IS_STOPPED if self._may_be_stopped(key) else error.problem.cause
                result = replace(result, drained=Drained.REFUSED, reason=reason)
        except (MpsError, OSError) as error:
            cause = error.problem.cause if isinstance(error, MpsError) else f"a call failed: {error.strerror or error}"
            result = replace(result, drained=Drained.UNKNOWN if is_sent else Drained.REFUSED, reason=cause)
        return result

    def _try(
        self, client: DrainableClient, servers: Iterable[ProcessKey], may_send: Callable[[], bool]
    ) -> tuple[Drained, str]:
        """Drain a living client, unless that would do harm."""
        key, server_pid = client.key, client.server_pid
        if self._may_be_stopped(key):
            return Drained.REFUSED, _IS_STOPPED
        if self.problems_of({key: server_pid}).get(key, _DRAINED) is not None:
            return Drained.REFUSED, _WAS_ASKED
        before = self._daemon.contexts(server_pid).get(key.pid)
        answer = self._daemon.terminate(server_pid, key.pid, may_send)
        if answer != "0":
            return self._without_agreement(client, servers, answer)
        drained = AskedClient(server_pid=server_pid, contexts=before, is_drained=True)
        if drained.has_others(server_pid, self._contexts(client)):
            return Drained.UNKNOWN, "it has made another context at the same moment"
        self._asked.add(key, drained)
        return Drained.DONE, ""

    def _contexts(self, client: DrainableClient) -> frozenset[str] | None:
        try:
            return self._daemon.contexts(client.server_pid).get(client.key.pid)
        except (MpsError, OSError):
            return None

    def _without_agreement(
        self, client: DrainableClient, servers: Iterable[ProcessKey], answer: str
    ) -> tuple[Drained, str]:
        """What another answer means: the client may be gone."""
        clients = self._daemon.clients()
        server = clients.get(client.key.pid)
        reason = f"the control daemon of {client.pipe} answered {shortened(answer)}"
        has_ended = any(key.pid == client.server_pid and not self._is_alive(key) for key in servers)
        if server is None and (client.server_pid in clients.values() or has_ended):
            gone = AskedClient(server_pid=client.server_pid, contexts=frozenset(), is_drained=True)
            self._asked.add(client.key, gone)
            return Drained.DONE, "its MPS server had ended by then" if has_ended else "it is no longer an MPS client"
        if server is None:  # an empty list proves nothing: a daemon that is in trouble may answer nothing
            return Drained.UNKNOWN, f"{reason}, and lists no client of server {client.server_pid}"
        if not answer:
            return Drained.UNKNOWN, reason
        self._asked.remove(client.key)
        if server != client.server_pid:
            return Drained.REFUSED, f"it has become a client of another server, {server}"
        return Drained.REFUSED, reason

    def _is_alive(self, key: ProcessKey) -> bool:
        """Whether a thread of it runs: the first one may have ended before the others."""
        stat = _stat(self._procfs, key)
        return stat is not None and (not stat.exiting or any(not each.exiting for each in self._threads(key)))

    def _may_be_stopped(self, key: ProcessKey) -> bool:
        try:
            return _stat(self._procfs, key) is not None and any(each.state in _STOPPED for each in self._threads(key))
        except OSError:
            return True

    def _threads(self, key: ProcessKey) -> Iterator[Stat]:
        with suppress(ProcessLookupError):
            for tid in self._procfs.threads(key.pid)[:_MOST_THREADS]:
                with suppress(ProcessLookupError):
                    yield self._procfs.stat(key.pid, tid)


_DRAINED: Final = Problem("it is drained")


def _problem(key: ProcessKey, why: str, remedy: str) -> Problem:
    return Problem(f"MPS client {key.pid} can't be drained: {why}", remedy)


def _stat(procfs: Procfs, key: ProcessKey) -> Stat | None:
    """What is known of a process; None if it has ended, OSError."""
    try:
        stat = procfs.stat(key.pid)
    except ProcessLookupError:
        return None
    return stat if stat.start_ticks == key.start_ticks else None
