"""The requests to one MPS control daemon to drain clients, and which clients must not be asked for (again).

Measured on an H100 with driver 580.159 (`tests/gpu`): a drained client stays in the daemon's lists until its process
ends, and if it resets the GPU, it makes new contexts, with new numbers, and works on. A second request for a client
without new contexts is answered only when its process ends, and one for a stopped client when it continues. Until then
the kernels of all clients of the server stall, new clients wait, and the daemon answers nothing else.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult
from watchdog.node.mps_control import ControlDaemon, InvalidAnswerError, NotSentError, shortened
from watchdog.node.mps_pipes import MpsError, SilentError
from watchdog.node.procfs import Procfs, Stat

_STOPPED: Final = "Tt"  # by a signal or by a debugger (proc_pid_stat(5))
_IS_STOPPED: Final = "it is stopped, and the other clients of its server would stall until it continues"
_WAS_ASKED: Final = "it was asked for before, and the other clients of its server would stall until it ends"


class AskedClients:
    """The clients that a request was sent for, and the contexts that it ended, by number; None if that is not known.

    It outlives the daemons' answers: policies change, lists are incomplete for a moment, but a process stays drained.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._lock = threading.Lock()
        self._contexts: dict[ProcessKey, frozenset[str] | None] = {}

    def presume(self, keys: Iterable[ProcessKey]) -> None:
        """Note that an earlier daemon may have sent a request for these."""
        self.note(dict.fromkeys(keys))

    def note(self, contexts: Mapping[ProcessKey, frozenset[str] | None]) -> None:
        """Note these clients, and forget those that have ended."""
        with self._lock:
            noted = {**self._contexts, **contexts}
            self._contexts = {key: ended for key, ended in noted.items() if _may_live(self._procfs, key)}

    def among(self, keys: Iterable[ProcessKey]) -> dict[ProcessKey, frozenset[str] | None]:
        """Those of these processes that were asked for, with their contexts."""
        with self._lock:
            return {key: self._contexts[key] for key in keys if key in self._contexts}


class DrainRequests:
    """The requests to one control daemon. They block; the caller makes one at a time."""

    def __init__(self, daemon: ControlDaemon, procfs: Procfs, asked: AskedClients) -> None:
        self._daemon = daemon
        self._procfs = procfs
        self._asked = asked

    def judge(self, servers: Mapping[ProcessKey, int]) -> dict[ProcessKey, Problem | None]:
        """What is wrong with each of these clients, listed with their servers, except for drained ones; MpsError.

        With None a request may be sent for it.
        """
        had, asked = self._without_new_contexts(servers), self._asked.among(servers)
        found: dict[ProcessKey, Problem | None] = {}
        for key in sorted(servers):
            if self._may_be_stopped(key):
                remedy = f"continue it (kill -CONT {key.pid}) or end it"
                found[key] = Problem(f"MPS client {key.pid} can't be drained: {_IS_STOPPED}", remedy)
            elif key not in had:
                found[key] = None
            elif asked[key] is None:
                remedy = f"end it by hand (kill {key.pid}), or wait until it ends"
                found[key] = Problem(f"MPS client {key.pid} can't be drained: {_WAS_ASKED}", remedy)
        return found

    def _without_new_contexts(self, servers: Mapping[ProcessKey, int]) -> set[ProcessKey]:
        """Those of these clients that were asked for and are not known to have made a context since then."""
        asked = self._asked.among(servers)
        again = {servers[key] for key, ended in asked.items() if ended is not None}
        contexts = {server: self._contexts(server) for server in sorted(again)}
        return {
            key
            for key, ended in asked.items()
            if ended is None or contexts[servers[key]].get(key.pid, frozenset()) <= ended
        }

    def _may_be_stopped(self, key: ProcessKey) -> bool:
        try:
            return self._is_stopped(key)
        except OSError:
            return True

    def _contexts(self, server_pid: int) -> Mapping[int, frozenset[str]]:
        """The contexts of each client; none from a daemon that does not know the question."""
        try:
            return self._daemon.contexts(server_pid)
        except InvalidAnswerError:
            return {}

    def drain(
        self,
        ticket: int,
        client: DrainableClient,
        servers: Collection[ProcessKey],
        may_send: Callable[[], bool],
    ) -> DrainResult:
        """Drain a client; `servers` are the daemon's. `may_send` is called right before the request is sent."""
        key = client.key
        result = DrainResult(ticket=ticket, key=key, drained=Drained.DONE, reason="it had ended by then")
        is_sent = False

        def send() -> bool:
            nonlocal is_sent
            is_sent = self._is_alive(key) and not self._is_stopped(key) and may_send()
            return is_sent

        try:
            if self._is_alive(key):
                drained, reason = self._try(client, servers, send)
                result = replace(result, drained=drained, reason=reason)
        except NotSentError as error:
            if self._is_alive(key):
                result = replace(result, drained=Drained.REFUSED, reason=error.problem.cause)
        except OSError as error:
            why = f"its identity could not be checked: {error.strerror or error}"
            result = replace(result, drained=Drained.REFUSED, reason=why)
        except (SilentError, InvalidAnswerError) as error:
            drained = Drained.UNKNOWN if is_sent else Drained.REFUSED
            result = replace(result, drained=drained, reason=error.problem.cause)
        except MpsError as error:
            result = replace(result, drained=Drained.REFUSED, reason=error.problem.cause)
        if is_sent and result.drained is not Drained.REFUSED:
            is_known = result.drained is Drained.DONE
            self._asked.note({key: self._ended_contexts(client) if is_known else None})
        return result

    def _ended_contexts(self, client: DrainableClient) -> frozenset[str] | None:
        """The contexts of a client that has just been drained: it needs longer than this call to make another."""
        try:
            return self._daemon.contexts(client.server_pid).get(client.key.pid, frozenset())
        except MpsError:
            return None

    def _try(
        self, client: DrainableClient, servers: Iterable[ProcessKey], may_send: Callable[[], bool]
    ) -> tuple[Drained, str]:
        """Drain a living client, unless that would do harm."""
        if self._is_stopped(client.key):
            return Drained.REFUSED, _IS_STOPPED
        if self._without_new_contexts({client.key: client.server_pid}):
            return Drained.REFUSED, _WAS_ASKED
        answer = self._daemon.terminate(client.server_pid, client.key.pid, may_send)
        return (Drained.DONE, "") if answer == "0" else self._without_agreement(client, servers, answer)

    def _without_agreement(
        self, client: DrainableClient, servers: Iterable[ProcessKey], answer: str
    ) -> tuple[Drained, str]:
        """What another answer means: the client may be gone."""
        clients = self._daemon.clients()
        server = clients.get(client.key.pid)
        reason = f"the control daemon of {client.pipe} answered {shortened(answer)}"
        if server is None:
            if client.server_pid in clients.values():
                return Drained.DONE, "it is no longer an MPS client"
            if any(key.pid == client.server_pid and not self._is_alive(key) for key in servers):
                return Drained.DONE, "its MPS server had ended by then"
            # An empty list proves nothing: a daemon that is in trouble may answer nothing.
            return Drained.UNKNOWN, f"{reason}, and lists no client of server {client.server_pid}"
        if server != client.server_pid:
            return Drained.REFUSED, f"it has become a client of another server, {server}"
        return Drained.REFUSED if answer else Drained.UNKNOWN, reason

    def _is_alive(self, key: ProcessKey) -> bool:
        stat = _stat(self._procfs, key)
        return stat is not None and not stat.exiting

    def _is_stopped(self, key: ProcessKey) -> bool:
        stat = _stat(self._procfs, key)
        return stat is not None and stat.state in _STOPPED


def _stat(procfs: Procfs, key: ProcessKey) -> Stat | None:
    """What is known of a process; None if it has ended, OSError."""
    try:
        stat = procfs.stat(key.pid)
    except ProcessLookupError:
        return None
    return stat if stat.start_ticks == key.start_ticks else None


def _may_live(procfs: Procfs, key: ProcessKey) -> bool:
    try:
        return _stat(procfs, key) is not None
    except OSError:
        return True
