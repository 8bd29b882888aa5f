"""`gpu-watchdog withdraw`: removes what `[capacity]` advertised, from one node or from all."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from watchdog.config.load import PolicyError, load_policy
from watchdog.core.errors import WatchdogError
from watchdog.core.model import Node
from watchdog.kube.capacity import CapacityChange, is_outdated, list_nodes, read_node, send
from watchdog.kube.client import Api
from watchdog.kube.failure import ApiError

# The kubelet writes the node object too: after a conflict the change is made again on the current object.
_ATTEMPTS: Final = 5
# A daemon that is terminating, or whose rights were just removed, may write it once more.
_ROUNDS: Final = 5
_PAUSE_S: Final = 3.0
# The admission policy checks the node of the pod that the token is bound to (watchdog.kube.rights).
_ELSEWHERE: Final = "run this in the daemon's pod, or as an administrator"


class WithdrawError(WatchdogError):
    """The resource could not be removed; the text includes the remedy."""


class NoNodeError(WithdrawError):
    """There is no such node."""


def run_withdraw(
    policy: Path, node: str | None, kubeconfig: Path | None, resource: str | None, selectors: Sequence[str]
) -> int:
    """Remove a resource (None: the policy's) from what a node (None: every node) advertises; the exit code.

    Every node means each that any of the label `selectors` matches, or all of the cluster without selectors.
    """
    try:
        name, is_kept = _resource(policy, resource)
        with Api(kubeconfig) as api:
            if node is None:
                _withdraw_everywhere(api, name, selectors)
            else:
                click.echo(_withdraw(api, _read(api, node), name))
    except (WithdrawError, ApiError) as error:
        click.echo(str(error), err=True)
        return 1
    if is_kept:
        click.echo(
            f"{policy} still has [capacity]: a daemon that runs with it will advertise {name} again; remove the table",
            err=True,
        )
    return 0


def _resource(path: Path, named: str | None) -> tuple[str, bool]:
    """The resource to remove, and whether the policy still advertises it, if that can be determined."""
    try:
        capacity = load_policy(path).capacity
    except PolicyError as error:
        if named is None:
            raise WithdrawError(f"{error}\nwithout a valid policy, give the resource with --resource") from error
        capacity = None
    if named is None and capacity is None:
        raise WithdrawError(f"{path} has no [capacity] table: give the resource with --resource")
    kept = capacity.resource if capacity is not None else None
    return named or kept or "", kept is not None and named in (None, kept)


def _withdraw_everywhere(api: Api, resource: str, selectors: Sequence[str]) -> None:
    """Remove it from node after node until none has it; a failure on one node does not affect the others."""
    for number in range(_ROUNDS):
        if number:
            time.sleep(_PAUSE_S)
        advertising = _advertising(api, resource, selectors)
        if not advertising:
            of_these = f" matching {' or '.join(selectors)}" if selectors else ""
            done = " any more" if number else ": nothing to remove"
            click.echo(f"no node{of_these} advertises {resource}{done}")
            if selectors:
                _report_others(api, resource)
            return
        failed = [node.name for node in advertising if not _is_withdrawn(api, node, resource)]
        if failed:
            again = "".join(f" --selector {shlex.quote(selector)}" for selector in selectors)
            raise WithdrawError(
                f"{resource} could not be removed from {len(failed)} of {len(advertising)} nodes: fix what is reported "
                f"above, then, as an administrator: `gpu-watchdog withdraw --all-nodes --resource {resource}{again}`"
            )
    names = ", ".join(node.name for node in advertising[:3])
    raise WithdrawError(
        f"{len(advertising)} nodes keep advertising {resource}, such as {names}: a daemon there has [capacity] in its "
        "policy; remove the table or the daemon, then try again"
    )


def _advertising(api: Api, resource: str, selectors: Sequence[str]) -> list[Node]:
    """The nodes that any of the selectors matches and that advertise it, each once."""
    found = {node.name: node for selector in selectors or ("",) for node in list_nodes(api, selector=selector)}
    return [node for node in found.values() if resource in node.capacity]


def _report_others(api: Api, resource: str) -> None:
    """Report nodes that have it and were not selected: those of another release, or some that lost their label."""
    others = [node.name for node in _advertising(api, resource, ())]
    if others:
        click.echo(
            f"{len(others)} other nodes advertise {resource} and were not selected, such as {', '.join(others[:3])}: "
            "if no daemon there advertises it, remove it with --node NODE",
            err=True,
        )


def _is_withdrawn(api: Api, node: Node, resource: str) -> bool:
    """Remove it from one of many nodes, and report that or why not."""
    try:
        click.echo(_withdraw(api, node, resource))
    except NoNodeError:
        click.echo(f"node {node.name} no longer exists")
    except (WithdrawError, ApiError) as error:
        click.echo(f"node {node.name}: {error}" if isinstance(error, ApiError) else str(error), err=True)
        return False
    return True


def _withdraw(api: Api, node: Node, resource: str) -> str:
    """Remove it from a node as it was read, and describe the result."""
    for _ in range(_ATTEMPTS):
        change = CapacityChange.of(node, resource, None)
        if change.written is None:
            return f"node {node.name} does not advertise {resource}: nothing to remove"
        answer = send(api, change)
        if answer.is_good:
            return (
                f"node {node.name} no longer advertises {resource} (it was {change.before}); allocatable, used for "
                "scheduling, follows with the kubelet's next status (10 s). Pods that have it keep running"
            )
        if not is_outdated(answer):
            what = f"removing {resource} from node {node.name}"
            raise WithdrawError(str(answer.problem(what, against_policy=_ELSEWHERE)))
        node = _read(api, node.name)
    raise WithdrawError(f"node {node.name} was changed by another client each time; try again")


def _read(api: Api, name: str) -> Node:
    answer, node = read_node(api, name)
    if not answer.is_good:
        raise WithdrawError(str(answer.problem(f"reading node {name}")))
    if node is None:
        raise NoNodeError(f"the cluster has no node {name!r}: name it with --node")
    return node
