"""Commands for another node: the daemon's pod is found through the API server, and the command runs in it."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click

from watchdog.cli.cluster_daemons import Cluster
from watchdog.cli.cluster_rows import NodeAnswer
from watchdog.cli.explain import by_daemon, print_lines
from watchdog.cli.listing import terminal_width
from watchdog.cli.program import NARROWEST, program_name
from watchdog.core.errors import Problem
from watchdog.kube.client import PERSONAL_AGENT, Api
from watchdog.kube.daemons import DaemonPod, node_of_pod
from watchdog.kube.failure import DaemonError
from watchdog.kube.kubeconfig import ContextChoice
from watchdog.kube.streams import NoRightError, Output, run_in_pod
from watchdog.report.status import Status, decode
from watchdog.report.text import inert

_PROGRAM: Final = "gpu-watchdog"
_LONGEST_LINE: Final = 10**7
_LARGEST: Final = 64 * 2**20
_CHANGING: Final = ("stop", "resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The cluster, and the node or the pod whose node is meant."""

    chosen: ContextChoice
    # Of the watchdog's pods; empty: all.
    namespace: str = ""
    # Empty: that of the pod.
    node: str = ""
    # As `namespace/name`.
    pod: str = ""
    # Whether the command goes on until it is left.
    follows: bool = False

    @property
    def options(self) -> str:
        """The options by which another command finds the same cluster, as they are typed."""
        chosen = ["--kubeconfig", str(self.chosen.file)] if self.chosen.file is not None else []
        chosen += ["--context", self.chosen.context] if self.chosen.context else []
        return shlex.join([*chosen, *(["--namespace", self.namespace] if self.namespace else [])])


def run_on_node(where: Where, command: Sequence[str]) -> int:
    """Run a command of gpu-watchdog in the daemon's pod of a node, print what it prints; its exit code."""
    with Api(where.chosen, PERSONAL_AGENT) as api:
        try:
            daemon = _daemon(api, where)
            if command[0] in _CHANGING:
                click.echo(f"In pod {inert(daemon.title)} on node {inert(daemon.node)}:", err=True)
            code = _run(api, daemon, command, follows=where.follows)
        except DaemonError as error:
            unconfirmed = "NOT CONFIRMED: " if command[0] in _CHANGING else ""
            raise click.ClickException(inert(f"{unconfirmed}{error}", 2000)) from error
        except KeyboardInterrupt:
            if where.follows:
                return 0
            raise
    if command[0] == "stop" and code == 0:
        # The line before is for who is on the node.
        words = (program_name(), "resume", inert(daemon.node), where.options)
        click.echo(f"From here: {' '.join(filter(None, words))}")
    return code


def explain_from_outside(where: Where, command: Sequence[str], *, as_json: bool) -> int:
    """`explain` in the daemon's pod; without the right to run it there, from the daemon's status, without the past."""
    with Api(where.chosen, PERSONAL_AGENT) as api:
        try:
            daemon = _daemon(api, where)
            try:
                return _run(api, daemon, command, follows=False)
            except NoRightError as error:
                status = Cluster(api, where.namespace).read_status(daemon)
                explanation = by_daemon(where.pod, status, ())
                if explanation is None:
                    raise
                no_past = f"it is in the journal on node {daemon.node}: {error.problem.cause}"
                print_lines(replace(explanation, no_past=inert(no_past, 600)), as_json=as_json)
                return 0
        except DaemonError as error:
            raise click.ClickException(inert(str(error), 2000)) from error


def _daemon(api: Api, where: Where) -> DaemonPod:
    """The daemon of a node, or of a pod's node; DaemonError."""
    cluster = Cluster(api, where.namespace)
    if where.node:
        return cluster.daemon_of(where.node)
    namespace, _, name = where.pod.partition("/")
    try:
        node = node_of_pod(api, namespace, name)
        why = Problem(f"pod {where.pod} is not bound to a node yet", "ask again once it is scheduled")
    except DaemonError as error:
        node, why = "", error.problem
    if node:
        return cluster.daemon_of(node)
    return _last_daemon(cluster, where.pod, why)


def _last_daemon(cluster: Cluster, pod: str, why: Problem) -> DaemonPod:
    """The daemon that knows a pod (`namespace/name`) of itself: it has an account, or the latest recent action."""
    found: list[tuple[bool, float, DaemonPod]] = []

    def keep(answer: NodeAnswer[Status]) -> None:
        if answer.answer is None or answer.daemon is None:
            return
        status = answer.answer
        has_account = any(account.title == pod for account in status.accounts)
        acted_s = [recent.at or status.at for recent in status.recent if f"{recent.namespace}/{recent.pod}" == pod]
        if has_account or acted_s:
            found.append((has_account, max(acted_s, default=0.0), answer.daemon))

    cluster.ask("/api/status", decode, keep)
    if not found:
        remedy = f"to read the journal of the node that it was on: `{program_name()} explain {pod} NODE`"
        raise DaemonError(Problem(f"{why.cause}; and no daemon has it among its pods or recent actions", remedy))
    return max(found, key=lambda each: each[:2])[2]


def _run(api: Api, daemon: DaemonPod, command: Sequence[str], *, follows: bool) -> int:
    out, err = _Lines(_echo), _Lines(_echo_error)
    # A command that goes on by itself would stay in the pod when this one is left.
    options = ["--until-eof"] if follows else []
    # Whatever the version of the daemon, it must not refuse to stop for an option that it does not know.
    width = None if command[0] in _CHANGING else terminal_width()
    options += [] if width is None else ["--width", str(max(width, NARROWEST))]
    there = [_PROGRAM, command[0], *options, *command[1:]]
    code = run_in_pod(api, daemon, there, Output(out=out.write, err=err.write), follows=follows)
    out.close()
    err.close()
    return code


class _Lines:
    """Passes on what a pod prints, line by line, without anything that a terminal could take for a command."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._pending = b""
        self._size = 0

    def write(self, data: bytes) -> None:
        """More of it; DaemonError if it is too much."""
        self._size += len(data)
        if self._size > _LARGEST:
            raise DaemonError(Problem(f"the command in its pod printed more than {_LARGEST // 2**20} MiB"))
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LONGEST_LINE:
            raise DaemonError(Problem("the command in its pod prints a line without an end"))
        self._pass_on(lines)

    def close(self) -> None:
        """Its end."""
        self._pass_on([self._pending] if self._pending else [])

    def _pass_on(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._write(inert(line.decode("utf-8", errors="replace"), _LONGEST_LINE))


def _echo(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _echo_error(line: str) -> None:
    click.echo(line, err=True)
