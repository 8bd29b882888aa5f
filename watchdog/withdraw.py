"""`gpu-watchdog withdraw`: what `[capacity]` advertised on the node is taken back."""

from pathlib import Path
from typing import Final

import click

from watchdog.config.load import load_policy
from watchdog.config.problems import PolicyError
from watchdog.core.errors import WatchdogError
from watchdog.core.model import Node
from watchdog.kube.acts.capacity_patch import Change, is_outrun, read_node, send
from watchdog.kube.api.answers import ApiError
from watchdog.kube.api.client import Api

# The node's object is written by its kubelet too: a change that came too late is made on what is there by now.
_ATTEMPTS: Final = 5
# The policy goes by the node of the pod that the token is bound to (watchdog.kube.access.admission).
_ELSEWHERE: Final = "run it in the daemon's pod, or as an administrator"


class WithdrawError(WatchdogError):
    """It could not be taken back; the text is a sentence with the remedy."""


def run_withdraw(policy: Path, node: str, kubeconfig: Path | None, resource: str | None) -> int:
    """Take back what a node advertises of a resource (None: the one of the policy), and say so; the exit code."""
    try:
        name, is_kept = _resource(policy, resource)
        with Api(kubeconfig) as api:
            click.echo(_withdraw(api, node, name))
    except (WithdrawError, ApiError) as error:
        click.echo(str(error), err=True)
        return 1
    if is_kept:
        click.echo(
            f"{policy} still has [capacity]: a daemon that runs with it advertises {name} again; remove the table",
            err=True,
        )
    return 0


def _resource(path: Path, named: str | None) -> tuple[str, bool]:
    """The resource to take back, and whether the policy still advertises it, as far as that can be known."""
    try:
        capacity = load_policy(path).capacity
    except PolicyError as error:
        if named is None:
            raise WithdrawError(f"{error}\nwithout a valid policy, say what to take back with --resource") from error
        capacity = None
    if named is None and capacity is None:
        raise WithdrawError(f"{path} has no [capacity] table: say what to take back with --resource")
    kept = capacity.resource if capacity is not None else None
    return named or kept or "", kept is not None and named in (None, kept)


def _withdraw(api: Api, name: str, resource: str) -> str:
    """Take it back; a sentence of what was done."""
    for _ in range(_ATTEMPTS):
        node = _read(api, name)
        change = Change.of(node, resource, None)
        if change.written is None:
            return f"node {name} advertises no {resource}: there is nothing to take back"
        answer = send(api, change)
        if answer.is_good:
            return (
                f"node {name} advertises {resource} no more, before it was {change.before}; allocatable, by which pods "
                "are scheduled, follows with the kubelet's next status (10 s). Pods that have it go on"
            )
        if not is_outrun(answer):
            what = f"taking {resource} back from node {name}"
            raise WithdrawError(answer.sentence(what, against_policy=_ELSEWHERE))
    raise WithdrawError(f"node {name} was changed by somebody else each time; try again")


def _read(api: Api, name: str) -> Node:
    answer, node = read_node(api, name)
    if not answer.is_good:
        raise WithdrawError(answer.sentence(f"reading node {name}"))
    if node is None:
        raise WithdrawError(f"the cluster has no node {name!r}: name it with --node")
    return node
