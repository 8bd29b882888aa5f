"""`gpu-watchdog rights`: the roles and admission policies that an account needs for a policy, to be applied."""

from dataclasses import replace
from pathlib import Path

import click

from watchdog.cli.check import load_or_exit, source_name
from watchdog.kube.rights import ServiceAccount, render, render_personal, rights_of


def print_rights(path: Path, account: ServiceAccount, *, enforcing: bool) -> None:
    """Print the manifests of a policy as YAML. `enforcing`: as if its mode were enforce."""
    policy = load_or_exit(path)
    enforced = replace(policy, mode="enforce")
    click.echo(f"# Exactly what {account.namespace}/{account.name} needs for {source_name(path)}: docs/rights.md")
    click.echo(render(enforced if enforcing else policy, account), nl=False)
    more = [right for right in rights_of(enforced) if right not in rights_of(policy)]
    if more and not enforcing:
        missing = ", ".join(f"{' and '.join(right.verbs)} {right.target}" for right in more)
        observing = f'{source_name(path)} observes; with mode = "enforce" it also needs {missing}'
        click.echo(f"{observing}: --enforce prints that", err=True)


def print_personal_rights(account: ServiceAccount) -> None:
    """Print the roles for people as YAML."""
    click.echo("# What people need from outside the nodes, to be bound by an administrator: docs/rights.md")
    click.echo(render_personal(account), nl=False)
