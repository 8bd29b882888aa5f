"""The policy that a command is told to read: a file, or `-` for what comes on standard input."""

import sys
from pathlib import Path
from typing import Final

import click

from watchdog.config.load import load_policy, read_policy
from watchdog.config.mistakes import PolicyError, Problem
from watchdog.core.policy import Policy
from watchdog.options import DEFAULT_POLICY

STDIN: Final = Path("-")
_SOURCE: Final = "standard input"


def load_candidate(path: Path) -> Policy:
    """Read the policy of a command; PolicyError with all of its mistakes, or why it can't be read."""
    if path != STDIN:
        return load_policy(path)
    if sys.stdin is None:  # as Python has it where it was closed: `<&-`
        raise PolicyError([Problem(source=_SOURCE, what="it is closed; name a file, or give the policy with `< FILE`")])
    if sys.stdin.isatty():
        click.echo("Reading the policy from this terminal; Ctrl-D ends it.", err=True)
    return read_policy(sys.stdin.buffer, _SOURCE)


def source_name(path: Path) -> str:
    """What a policy is called in sentences."""
    return _SOURCE if path == STDIN else str(path)


def refusal(error: PolicyError, path: Path) -> str:
    """What is wrong with a policy, for a command with `--policy`; where none was named, that one can be."""
    named = "" if path != DEFAULT_POLICY or path.exists() else "\n--policy FILE names another place"
    return f"{error}{named}"
