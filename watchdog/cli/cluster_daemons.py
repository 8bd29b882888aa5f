"""All nodes of a cluster as their daemons answer, each asked through the API server."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from watchdog import clock
from watchdog.cli.cluster_rows import NodeAnswer, misnamed
from watchdog.core.errors import Problem
from watchdog.kube.client import MOST_CONNECTIONS, Api
from watchdog.kube.daemons import DaemonPod, Daemons, down_problem, find_daemons
from watchdog.kube.failure import DaemonError
from watchdog.kube.routes import Routes
from watchdog.report import card_hours
from watchdog.report.card_hours import NodeHours
from watchdog.report.status import Status, StatusError, decode
from watchdog.report.summary import MOST_BYTES, Summary, decode_summary
from watchdog.report.text import inert, rfc3339

# How long the lists of pods and nodes are used; a daemon that is replaced is missing until then.
_LISTS_S: Final = 30.0
# Bytes that are read of an answer, by path; a status has some 500 bytes an account.
_LARGEST: Final[Mapping[str, int]] = {
    "/api/summary": 4 * MOST_BYTES,
    "/api/status": 2**24,
    "/api/report": 2 * card_hours.MOST_BYTES,
}
_NO_DAEMONS: Final = Problem(
    "there is no pod of the watchdog here",
    "install it (docs/install.md), or name another namespace with --namespace, or another cluster with --context or "
    "--kubeconfig",
)
_NO_POD: Final = Problem(
    "a DaemonSet of the watchdog selects this node, and there is no pod of it here",
    "see the node's taints (`kubectl describe node`), and what the controller says (`kubectl describe daemonset`)",
)
Answer = TypeVar("Answer")


class Cluster:
    """The nodes of a cluster, and what each answered last. `refresh` is for one thread, the rest for any."""

    def __init__(self, api: Api, namespace: str = "") -> None:
        self._api = api
        self._namespace = namespace
        self._routes = Routes(api)
        self._lock = threading.Lock()
        self._daemons = Daemons(pods=(), unready={})
        self._listed_s = -_LISTS_S
        self._answers: dict[tuple[str, str, str, str], NodeAnswer[Summary]] = {}
        # The same by node; None: to be sorted.
        self._ordered: tuple[NodeAnswer[Summary], ...] | None = ()

    @property
    def answers(self) -> tuple[NodeAnswer[Summary], ...]:
        """What each node answered last, by node; the same tuple until there is another answer."""
        with self._lock:
            if self._ordered is None:
                self._ordered = tuple(self._answers[key] for key in sorted(self._answers))
            return self._ordered

    @property
    def problem(self) -> Problem | None:
        """Why nodes without a daemon are not known; None: they are."""
        return self._daemons.problem

    def document(self) -> dict[str, Any]:
        """The JSON of `top --cluster --json`; DaemonError."""
        answers: list[NodeAnswer[tuple[float, Any]]] = []
        self.ask("/api/status", _checked, answers.append)
        return _document([*answers, *self.bare])

    @property
    def bare(self) -> list[NodeAnswer[Any]]:
        """The nodes that should have a daemon and have none."""
        return [NodeAnswer(node=node, problem=_NO_POD) for node in self._daemons.bare]

    def list_daemons(self) -> tuple[DaemonPod, ...]:
        """The daemons, from a list that is at most half a minute old; DaemonError, also if there is none."""
        if time.monotonic() - self._listed_s >= _LISTS_S:
            self._daemons = find_daemons(self._api, self._namespace)
            self._listed_s = time.monotonic()
        if not self._daemons.pods:
            self._listed_s = -_LISTS_S
            raise DaemonError(_NO_DAEMONS)
        return self._daemons.pods

    def daemon_of(self, node: str) -> DaemonPod:
        """The daemon of a node, if it can answer and no other pod could be meant; DaemonError says what is the matter.

        Anybody who may create pods can give one the watchdog's label: which of several is the daemon nobody can tell.
        """
        daemons = self.list_daemons()
        here = [each for each in daemons if each.node == node]
        if not here:
            known = ", ".join(sorted({each.node for each in daemons})[:_MOST_NAMES])
            raise DaemonError(Problem(f"there is no pod of the watchdog on node {node}", f"there is one on {known}"))
        running = [each for each in here if not each.down] or here
        if len(running) > 1:
            names = ", ".join(each.title for each in running[:_MOST_NAMES])
            remedy = "name the namespace of the one that is meant with --namespace"
            raise DaemonError(Problem(f"several pods are the watchdog's on node {node}: {names}", remedy))
        if running[0].down:
            raise DaemonError(down_problem(running[0]))
        return running[0]

    def refresh(self) -> None:
        """Ask every daemon for its summary; each answer is there as soon as it has arrived. DaemonError."""
        daemons = self.list_daemons()
        fresh: list[NodeAnswer[Summary]] = [NodeAnswer(node=each.node, daemon=each) for each in daemons]
        fresh += self.bare
        with self._lock:
            # A pod that was replaced has its node's last answer.
            of_node = {each.key[:3]: each for each in self._answers.values() if each.answer is not None}
            before = {each.key: self._answers.get(each.key) or of_node.get(each.key[:3]) for each in fresh}
            self._answers = {
                each.key: each if (last := before[each.key]) is None else replace(last, daemon=each.daemon)
                for each in fresh
            }
            self._ordered = None

        def keep(answer: NodeAnswer[Summary]) -> None:
            with self._lock:
                before = self._answers.get(answer.key)
                if before is not None and answer.answer is None:
                    answer = replace(before, problem=answer.problem)
                self._answers[answer.key] = answer
                self._ordered = None

        self.ask("/api/summary", decode_summary, keep)

    def ask(self, path: str, read: Callable[[bytes], Answer], keep: Callable[[NodeAnswer[Answer]], object]) -> None:
        """Ask each daemon, at most 16 at a time, and pass on what comes; what can't be read is that node's problem."""
        daemons = self.list_daemons()
        waiting: SimpleQueue[DaemonPod | None] = SimpleQueue()
        for each in (*daemons, *(None for _ in range(MOST_CONNECTIONS))):
            waiting.put(each)

        def work() -> None:
            for daemon in iter(waiting.get, None):
                keep(self._ask(daemon, path, read))

        # Daemon threads, which no pool has: exiting must not wait for answers that never come.
        number = min(MOST_CONNECTIONS, len(daemons))
        threads = [threading.Thread(target=work, name="cluster", daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def ask_card_hours(self, since_s: float, keep: Callable[[NodeAnswer[NodeHours]], object]) -> None:
        """Ask each daemon for its card-hours since a Unix time."""
        self.ask(f"/api/report?since={rfc3339(since_s)}", card_hours.decode_hours, keep)

    def status_of(self, answer: NodeAnswer[Summary]) -> Status:
        """The whole status of a node, under the name that the API server has for it; DaemonError."""
        if answer.daemon is None:
            raise DaemonError(answer.problem or _NO_POD)
        return self.read_status(answer.daemon).at_node(answer.node)

    def read_status(self, daemon: DaemonPod) -> Status:
        """The whole status from a daemon; DaemonError."""
        answer = self._ask(daemon, "/api/status", decode)
        if answer.answer is None:
            raise DaemonError(answer.problem or Problem("no answer"))
        return answer.answer

    def _ask(self, daemon: DaemonPod, path: str, read: Callable[[bytes], Answer]) -> NodeAnswer[Answer]:
        try:
            came = self._routes.ask(daemon, path, _LARGEST[path.partition("?")[0]])
            answer = read(came.body)
        except DaemonError as error:
            state = self._daemons.unready.get(daemon.node)
            problem = error.problem.of(f"the node is {state}") if state else error.problem
        except StatusError as error:
            problem = Problem(str(error), "see whether all nodes run the same version")
        except Exception as error:
            # Whatever one node's answer does, the others are shown.
            problem = Problem(f"its answer can't be read: {type(error).__name__}: {inert(str(error), 200)}", _REPORT)
        else:
            at_s = clock.now().boottime_s
            return NodeAnswer(node=daemon.node, daemon=daemon, answer=answer, at_s=at_s, via=came.via, why=came.why)
        return NodeAnswer(node=daemon.node, daemon=daemon, problem=problem)


_MOST_NAMES: Final = 20
_REPORT: Final = "see whether it is a daemon; if it is, please report this"


def _checked(body: bytes) -> tuple[float, Any]:
    """When a status was read, and the status as the daemon wrote it; StatusError if it is none."""
    at_s = decode(body).at
    try:
        # What JSON has no word for would make the whole document unreadable.
        return at_s, json.loads(body, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise StatusError(f"its answer is not a status as gpu-watchdog writes it: {inert(str(error), 300)}") from error


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _document(answers: Iterable[NodeAnswer[tuple[float, Any]]]) -> dict[str, Any]:
    now_s = clock.now().wall_s
    nodes, ways = [], set()
    for each in sorted(answers, key=lambda answer: answer.key):
        at_s, status = each.answer or (None, None)
        age_s = None if at_s is None else round(max(now_s - at_s, 0.0), 1)
        found = each.problem if status is None else misnamed(each.node, status["node"])
        problem = None if found is None else inert(str(found), 1000)
        ways.add(each.via)
        nodes.append({"node": inert(each.node), "age_s": age_s, "status": status, "problem": problem})
    return {"via": "port-forward" if ways - {None} == {"port-forward"} else "proxy", "nodes": nodes}
