"""`gpu-watchdog check`: a policy as it is understood, or every mistake in it."""

import json
from pathlib import Path

import click

from watchdog.config.document import policy_document
from watchdog.config.load import load_policy
from watchdog.config.problems import PolicyError, Problem
from watchdog.config.render import render_policy
from watchdog.core.policy import Policy


def print_check(file: Path, *, as_json: bool) -> int:
    """Print what a policy file holds; the exit code, 1 where it can't be used."""
    policy: Policy | None = None
    problems: tuple[Problem, ...] = ()
    try:
        policy = load_policy(file)
    except PolicyError as error:
        problems = error.problems
    if as_json:
        click.echo(json.dumps(_document(policy, problems), indent=1))
        if problems:
            click.echo(f"{file}: it can't be used; see `mistakes`", err=True)
    elif policy is None:
        for problem in problems:
            click.echo(str(problem), err=True)
    else:
        click.echo(render_policy(policy))
        for warning in policy.warnings:
            click.echo(f"{file}: warning: {warning}", err=True)
    return 0 if policy is not None else 1


def _document(policy: Policy | None, problems: tuple[Problem, ...]) -> dict[str, object]:
    mistakes = [
        {"source": each.source, "path": each.path or None, "line": each.line, "what": each.what} for each in problems
    ]
    return {
        "valid": policy is not None,
        "mistakes": mistakes,
        "warnings": [] if policy is None else list(policy.warnings),
        "policy": None if policy is None else policy_document(policy),
    }
