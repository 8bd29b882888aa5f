"""MPS clients and the control daemons that can drain them: queried and drained on threads of their own."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now, PinnedLimit, ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult
from watchdog.core.policy import Draining
from watchdog.node.mps_control import ControlDaemon, find_program
from watchdog.node.mps_drain import AskedClients, DrainRequests
from watchdog.node.mps_limits import limits_of, own_limits
from watchdog.node.mps_pipes import MpsError, NoPipeError, check_pipe, find_pipes, no_daemon
from watchdog.node.procfs import Procfs

# The lists are queried again when the clients change, but not more often than this, and now and then in any case.
_SOONEST_S: Final = 2.0
_LATEST_S: Final = 30.0
# A daemon that does not answer is asked again after this long, then twice as long each time.
_FIRST_WAIT_S: Final = 4.0
_LONGEST_WAIT_S: Final = 300.0
_LIMITS_EVERY_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What one control daemon has last answered."""

    servers: frozenset[ProcessKey] = frozenset()
    # All clients, with the PIDs of their servers.
    listed: Mapping[ProcessKey, int] = field(default_factory=dict)
    # The clients that can be drained.
    clients: tuple[DrainableClient, ...] = ()
    # By the server's PID and GPU, in bytes.
    limits: Mapping[tuple[int, str], int | None] = field(default_factory=dict)
    # Why other clients must not be drained.
    gaps: tuple[Gap, ...] = ()
    # Why it did not answer; None: it did.
    problem: Problem | None = None


class _Pipe:
    """The control daemon of one pipe, with its queue; one call at a time, on a thread of its own."""

    def __init__(self, daemon: ControlDaemon, requests: DrainRequests, lock: threading.Lock) -> None:
        """The `lock` guards all of its state."""
        self.daemon = daemon
        self.requests = requests
        self.answers = _Answers()
        self._lock = lock
        self._jobs: deque[Callable[[], None]] = deque()
        self.is_busy = False
        self.is_querying = False
        self.is_awaited = False  # an action waits for the end of the query
        self.owes_turn = False  # the action that has waited comes before another query
        self.wait_s = 0.0
        self.not_before_s = 0.0
        self._limits_due_s = 0.0

    def queue(self, job: Callable[[], None], *, first: bool = False) -> bool:
        """Have a job done after the one in progress, before queries if it is `first`; False: it is not done."""
        with self._lock:
            self.is_busy = self.is_busy or _start(self._work)
            if self.is_busy:
                (self._jobs.appendleft if first else self._jobs.append)(job)
            return self.is_busy

    def drop_jobs(self) -> None:
        """Forget the jobs that have not begun; the caller holds the lock."""
        self._jobs.clear()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException:
                with self._lock:
                    self.is_busy = False  # the exception ends this thread
                raise

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self.is_busy = False
            return None

    def limits(self, wanted: set[tuple[int, str]], now: Now, gpus: int) -> Mapping[tuple[int, str], int | None]:
        """The limits of these servers' clients on GPUs, asked for again now and then; for a job of its own."""
        known = self.answers.limits if now.boottime_s < self._limits_due_s else {}
        limits = {at: known[at] for at in wanted if at in known}
        for server, gpu in sorted(wanted - limits.keys()):
            if self._jobs:
                break  # a drain waits; what is missing is asked next time
            limit = self.daemon.limit(server, gpu)
            if limit is None and gpus == 1:  # an older driver only knows devices by number, and there is only one
                limit = self.daemon.limit(server, "0")
            limits[server, gpu] = limit
        if not known:
            self._limits_due_s = now.boottime_s + _LIMITS_EVERY_S
        return limits


def _start(work: Callable[[], None]) -> bool:
    """Do work on another thread; False: no more threads can be started at the moment."""
    try:
        # As daemon threads: the process does not wait for a control daemon that hangs when it ends.
        threading.Thread(target=work, name="mps", daemon=True).start()
    except RuntimeError:
        return False
    return True


def _trusted(settings: Draining, trusted_uid: int) -> tuple[list[str], list[Gap]]:
    """The trusted pipes, each daemon once, and why others are not; a folder without a daemon is no problem."""
    found: dict[object, str] = {}
    gaps: list[Gap] = []
    for path in find_pipes(settings.pipe):
        try:
            found.setdefault(check_pipe(path, trusted_uid), path)
        except NoPipeError:
            continue
        except MpsError as error:
            gaps.append(_gap(path, error.problem))
    if not found and not gaps:
        gaps.append(_gap("MPS", no_daemon(settings.pipe)))
    return list(found.values()), gaps


class MpsControl:
    """Knows which MPS clients can be drained, and drains them. No method waits for a control daemon.

    `refresh` is called each cycle with the processes that the driver lists as MPS clients, and the UUIDs of the GPUs
    that each of them uses. The bell is rung with each result of `drain`, and when what can be drained has changed.
    Without settings nothing is queried. `trusted_uid` owns trusted pipes, besides root.
    """

    def __init__(
        self, bell: Bell, procfs: Procfs, settings: Draining | None, *, root: Path = Path("/"), trusted_uid: int = 0
    ) -> None:
        self._bell = bell
        self._procfs = procfs
        self._settings = settings
        self._root = root
        self._trusted_uid = trusted_uid
        self._lock = threading.Lock()
        self._clients: Mapping[ProcessKey, frozenset[str]] = {}
        self._asked: frozenset[ProcessKey] = frozenset()
        self._asked_s: float | None = None
        self._is_searching = False
        self._pipes: dict[str, _Pipe] = {}
        self._gaps: tuple[Gap, ...] = ()
        self._own_limits: dict[ProcessKey, Mapping[str, int] | None] = {}
        self.asked = AskedClients(procfs)
        self._results: deque[DrainResult] = deque()
        self._is_closed = False

    def configure(self, settings: Draining | None) -> None:
        """Follow another policy."""
        with self._lock:
            if settings != self._settings:
                self._settings = settings
                self._forget()

    def refresh(
        self, clients: frozenset[ProcessKey] | Mapping[ProcessKey, frozenset[str]], now: Now, *, gpus: int = 0
    ) -> None:
        """Note the clients that the driver lists, and query the daemons if it is time; `gpus` is how many there are."""
        by_key = clients if isinstance(clients, Mapping) else dict.fromkeys(clients, frozenset[str]())
        with self._lock:
            self._clients = by_key
            if self._settings is None or not by_key or self._is_closed:
                self._forget()
                return
            since_s = None if self._asked_s is None else now.boottime_s - self._asked_s
            # A drained client may become a client again at any time.
            are_same = self._asked == by_key.keys() and not any(
                client.is_drained for client in self.asked.among(by_key).values()
            )
            is_due = since_s is None or since_s >= (_LATEST_S if are_same else _SOONEST_S)
            settings = self._settings
            if self._is_searching or not is_due or not _start(lambda: self._search(settings, now, gpus)):
                return
            self._asked, self._asked_s, self._is_searching = frozenset(by_key), now.boottime_s, True

    @property
    def drainable(self) -> tuple[DrainableClient, ...]:
        """The listed clients that one trusted daemon named when it was last queried; of two, one may be wrong."""
        with self._lock:
            clients = [client for pipe in self._pipes.values() for client in pipe.answers.clients]
            times = Counter(key for pipe in self._pipes.values() for key in pipe.answers.listed)
            return tuple(client for client in clients if client.key in self._clients and times[client.key] == 1)

    @property
    def servers(self) -> frozenset[ProcessKey]:
        """The servers that trusted daemons have named, also if they are silent now."""
        with self._lock:
            return frozenset(key for pipe in self._pipes.values() for key in pipe.answers.servers)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Why a daemon can't be used, and which clients it must not be asked to drain."""
        with self._lock:
            problems = ((path, pipe.answers.problem) for path, pipe in self._pipes.items())
            clients = (gap for pipe in self._pipes.values() for gap in pipe.answers.gaps)
            return (*self._gaps, *(_gap(path, problem) for path, problem in problems if problem is not None), *clients)

    @property
    def limits(self) -> tuple[PinnedLimit, ...]:
        """The limit of pinned memory of each listed client, for each GPU that it uses."""
        with self._lock:
            servers = {
                key: (server, pipe.answers.limits)
                for pipe in self._pipes.values()
                for key, server in pipe.answers.listed.items()
            }
            return tuple(
                limit
                for key, gpus in sorted(self._clients.items())
                if key in servers or self._own_limits.get(key)
                for limit in limits_of(key, gpus, self._own_limits.get(key), *servers.get(key, (0, {})))
            )

    def is_querying(self, pipe: str) -> bool:
        """Whether the daemon of a pipe is being queried, so that a drain would wait; the bell is rung at the end."""
        with self._lock:
            known = self._pipes.get(pipe)
            if known is None or not known.is_querying:
                return False
            known.is_awaited = True
            return True

    def drain(
        self, request_id: int, clients: tuple[DrainableClient, ...], may_send: Callable[[], bool] = lambda: True
    ) -> None:
        """Drain clients one after the other, up to the first that can't be drained; returns at once.

        `may_send` is called on another thread right before each request is sent: with False, it is not.
        """
        for path in dict.fromkeys(client.pipe for client in clients):
            here = tuple(client for client in clients if client.pipe == path)
            with self._lock:
                pipe = self._pipes.get(path)
            if pipe is None:
                why = f"the control daemon of {path} is no longer known"
            elif not pipe.queue(
                lambda pipe=pipe, here=here: self._drain(pipe, request_id, here, may_send),  # type: ignore[misc]
                first=True,
            ):
                why = f"no thread could be started to call the control daemon of {path}"
            else:
                continue
            self._add_results(
                DrainResult(request_id=request_id, key=c.key, drained=Drained.REFUSED, reason=why) for c in here
            )

    def pop_results(self) -> tuple[DrainResult, ...]:
        """The results since the last call."""
        with self._lock:
            results = tuple(self._results)
            self._results.clear()
        return results

    def close(self) -> None:
        """Query nothing any more; calls in progress run to their end."""
        with self._lock:
            self._is_closed = True
            for pipe in self._pipes.values():
                pipe.drop_jobs()

    def _forget(self) -> None:
        self._asked, self._asked_s, self._gaps, self._own_limits = frozenset(), None, (), {}
        for path in [path for path, pipe in self._pipes.items() if not pipe.is_busy]:
            del self._pipes[path]
        for pipe in self._pipes.values():
            pipe.answers = _Answers()

    def _search(self, settings: Draining, now: Now, gpus: int) -> None:
        """Find the program and the pipes, and have each trusted daemon queried."""
        gaps: list[Gap] = []
        pipes: list[str] = []
        program: tuple[str, ...] = ()
        try:
            program = find_program(settings.control, self._root)
            pipes, gaps = _trusted(settings, self._trusted_uid)
            self._read_limits()
        except MpsError as error:
            gaps.append(_gap("MPS", error.problem))
        except OSError as error:
            gaps.append(_gap("MPS", Problem(f"the MPS pipes can't be looked up: {error}", "it is tried again")))
        finally:
            with self._lock:
                self._is_searching = False
                has_changed = self._gaps != tuple(gaps)
                self._gaps = tuple(gaps) if self._settings == settings else ()
                for path in [path for path, pipe in self._pipes.items() if path not in pipes and not pipe.is_busy]:
                    del self._pipes[path]
                for path in pipes if self._settings == settings and not self._is_closed else ():
                    if path not in self._pipes:
                        daemon = ControlDaemon(
                            program, path, settings.timeout_s, self._trusted_uid, procfs=self._procfs
                        )
                        self._pipes[path] = _Pipe(daemon, DrainRequests(daemon, self._procfs, self.asked), self._lock)
                due = [pipe for path, pipe in self._pipes.items() if path in pipes and self._begin_query(pipe, now)]
            if has_changed:
                self._bell.ring()
        for pipe in due:
            if not pipe.queue(lambda pipe=pipe: self._query(pipe, now, gpus)):  # type: ignore[misc]
                with self._lock:
                    pipe.is_querying, self._asked = False, frozenset()  # it is asked soon

    def _begin_query(self, pipe: _Pipe, now: Now) -> bool:
        if pipe.is_querying or now.boottime_s < pipe.not_before_s:
            return False
        if pipe.owes_turn:
            pipe.owes_turn, self._asked = False, frozenset()  # it is asked soon
            return False
        pipe.is_querying = True
        return True

    def _read_limits(self) -> None:
        """Read what new clients' environments ask for, and forget clients that are gone."""
        with self._lock:
            known, keys = self._own_limits, tuple(self._clients)
        limits = {key: known[key] if key in known else own_limits(self._procfs, key) for key in keys}
        with self._lock:
            self._own_limits = limits

    def _query(self, pipe: _Pipe, now: Now, gpus: int) -> None:
        """Ask a daemon for its clients, and now and then for its servers' limits."""
        before = pipe.answers
        failed = Problem("the query failed unexpectedly", "please report this with the log")
        answers = _Answers(servers=before.servers, problem=failed)
        try:
            with self._lock:
                used = self._clients
            listed = {key.pid: key for key in used}
            named = pipe.daemon.servers()
            servers = {listed[pid]: server for pid, server in pipe.daemon.clients(named).items() if pid in listed}
            problems = pipe.requests.problems_of(servers)
            clients = tuple(
                DrainableClient(key=key, server_pid=servers[key], pipe=pipe.daemon.pipe)
                for key, problem in problems.items()
                if problem is None
            )
            gaps = tuple(
                _gap(f"MPS client {key.pid}", problem) for key, problem in problems.items() if problem is not None
            )
            wanted = {(server, gpu) for key, server in servers.items() for gpu in used[key]}
            keys = frozenset(filter(None, map(self._key_of, named)))
            limits = pipe.limits(wanted, now, gpus)
            answers = _Answers(servers=keys, listed=servers, clients=clients, limits=limits, gaps=gaps)
        except MpsError as error:
            answers = _Answers(servers=before.servers, problem=error.problem)
        finally:
            with self._lock:
                pipe.answers, pipe.is_querying = answers, False
                was_awaited, pipe.is_awaited = pipe.is_awaited, False
                pipe.owes_turn = was_awaited
                if answers.problem is None:
                    pipe.wait_s = pipe.not_before_s = 0.0
                else:
                    pipe.wait_s = min(max(2 * pipe.wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
                    pipe.not_before_s = now.boottime_s + pipe.wait_s
            if answers != before or was_awaited:
                self._bell.ring()

    def _drain(
        self, pipe: _Pipe, request_id: int, clients: tuple[DrainableClient, ...], may_send: Callable[[], bool]
    ) -> None:
        rest = deque(clients)
        failed: DrainResult | None = None
        try:
            while rest and failed is None:
                result = pipe.requests.drain(request_id, rest[0], pipe.answers.servers, may_send)
                failed = None if result.drained is Drained.DONE else result
                rest.popleft()
                self._on_result(pipe, result)
                self._add_results([result])
        finally:  # there must always be a result, or the action would be awaited forever
            why, first = "the attempt failed unexpectedly; please report this with the log", Drained.UNKNOWN
            if failed is not None:
                why, first = f"not tried, because process {failed.key.pid} could not be drained", Drained.REFUSED
            results = [DrainResult(request_id=request_id, key=c.key, drained=Drained.REFUSED, reason=why) for c in rest]
            self._add_results(replace(r, drained=first) if not n else r for n, r in enumerate(results))

    def _on_result(self, pipe: _Pipe, result: DrainResult) -> None:
        """Drop a client that has been drained, and query the daemon soon: what can be drained has changed."""
        with self._lock:
            if result.drained is Drained.DONE:
                clients = tuple(client for client in pipe.answers.clients if client.key != result.key)
                pipe.answers = replace(pipe.answers, clients=clients)
            self._asked = frozenset()

    def _key_of(self, pid: int) -> ProcessKey | None:
        try:
            return ProcessKey(pid=pid, start_ticks=self._procfs.stat(pid).start_ticks)
        except OSError:
            return None

    def _add_results(self, results: Iterable[DrainResult]) -> None:
        with self._lock:
            self._results.extend(results)
        self._bell.ring()


def _gap(what: str, problem: Problem) -> Gap:
    return Gap(reason=GapReason.MPS, what=what, problem=problem)
