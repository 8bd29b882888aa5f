"""`gpu-watchdog rights`: the roles and admission policies that an account needs for a policy, to be applied."""

from dataclasses import replace
from pathlib import Path

import click

from watchdog.cli.check import load_candidate, refusal, source_name
from watchdog.config.load import PolicyError
from watchdog.core.policy import Policy
from watchdog.kube.rights import ServiceAccount, render, rights_of


def print_rights(path: Path, account: ServiceAccount, *, enforcing: bool) -> int:
    """Print the manifests of a policy as YAML; the exit code. `enforcing`: as if its mode were enforce."""
    try:
        policy = load_candidate(path)
    except PolicyError as error:
        click.echo(refusal(error, path), err=True)
        return 1
    enforced = replace(policy, mode="enforce")
    click.echo(_head(path, account) + render(enforced if enforcing else policy, account), nl=False)
    if not enforcing and (missing := _missing(policy, enforced)):
        observing = f'{source_name(path)} observes; with mode = "enforce" it also needs {missing}'
        click.echo(f"{observing}: --enforce prints that", err=True)
    return 0


def _head(path: Path, account: ServiceAccount) -> str:
    whose = f"{account.namespace}/{account.name}"
    return f"# Exactly what {whose} needs for {source_name(path)}: docs/rights.md\n"


def _missing(policy: Policy, enforced: Policy) -> str:
    """The rights that only enforcing needs, in words."""
    more = [right for right in rights_of(enforced) if right not in rights_of(policy)]
    return ", ".join(f"{' and '.join(right.verbs)} {right.target}" for right in more)
