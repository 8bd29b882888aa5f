"""The commands about the cluster: the rights that an account needs there, and what a node advertised taken back."""

import re
import sys
from pathlib import Path
from typing import Final

import click

from watchdog.cli.options import kubeconfig_option, node_option, policy_option
from watchdog.kube.rights import NAMESPACE, SERVICE_ACCOUNT, ServiceAccount

# IsDNS1123Label and IsDNS1123Subdomain in k8s.io/apimachinery/pkg/util/validation.
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if _LABEL.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no name of a namespace", param=parameter)
    return value


def _account(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if len(value) > 253 or not all(_LABEL.fullmatch(part) for part in value.split(".")):
        raise click.BadParameter(f"{value!r} is no name of a service account", param=parameter)
    return value


def _resource(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and "/" not in value:
        raise click.BadParameter(f"{value!r} has no domain, so it is none that was advertised", param=parameter)
    return value


@click.command(short_help="Print the rights that the policy needs in the cluster.")
@policy_option
@click.option("--namespace", default=NAMESPACE, show_default=True, callback=_namespace, help="Where the account is.")
@click.option(
    "--service-account", default=SERVICE_ACCOUNT, show_default=True, callback=_account, help="What the daemon runs as."
)
@click.option("--enforce", "enforcing", is_flag=True, help="What the policy needs once its mode is enforce.")
def rights(*, policy: Path, namespace: str, service_account: str, enforcing: bool) -> None:
    """Print the rights that the policy needs in the cluster, as YAML for `kubectl apply -f -`.

    Roles in pieces, each only if the policy uses it; and what RBAC can't say (of nodes the own one, of its status one
    entry, evictions with a UID alone) as admission policies, for Kubernetes 1.30 and later.
    """
    from watchdog.commands.rights import print_rights

    sys.exit(print_rights(policy, ServiceAccount(namespace=namespace, name=service_account), enforcing=enforcing))


@click.command(short_help="Take back what [capacity] advertised on the node.")
@policy_option
@node_option
@kubeconfig_option
@click.option(
    "--resource", metavar="NAME", callback=_resource, help="What to take back, where the policy no longer says so."
)
@click.option("--all-nodes", "everywhere", is_flag=True, help="From every node of the cluster, instead of --node.")
@click.option(
    "--selector",
    "selectors",
    metavar="LABELS",
    multiple=True,
    help="With --all-nodes: from those alone whose labels it matches, as for kubectl; may be repeated, any suffices.",
)
def withdraw(
    *,
    policy: Path,
    node: str,
    kubeconfig: Path | None,
    resource: str | None,
    everywhere: bool,
    selectors: tuple[str, ...],
) -> None:
    """Take back what [capacity] advertised on the node: the entry of its capacity. May be repeated.

    Remove [capacity] from the policy first: a daemon that runs with it puts the entry back.
    """
    from watchdog.commands.withdraw import run_withdraw

    if selectors and not everywhere:
        raise click.UsageError("--selector goes with --all-nodes; one node is named with --node")
    sys.exit(run_withdraw(policy, None if everywhere else node, kubeconfig, resource, selectors))
