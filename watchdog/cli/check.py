"""`check`: validates and prints a policy; and loads the policy of other commands."""

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final, TextIO

import click

from watchdog.cli.policy_text import render_policy, render_schemes
from watchdog.config.document import declaration_documents, policy_document
from watchdog.config.load import PolicyError, PolicyProblem, load_policy, read_policy, refusal, unit_mistakes
from watchdog.config.scheme import Scheme, all_schemes
from watchdog.core.policy import Policy

STDIN: Final = Path("-")
_SOURCE: Final = "standard input"


def load_candidate(path: Path) -> Policy:
    """Read the policy of a command, `-` from standard input; PolicyError with all of its mistakes."""
    if path != STDIN:
        return load_policy(path)
    if sys.stdin is None:  # closed: `<&-`
        raise PolicyError(
            [PolicyProblem(source=_SOURCE, what="it is closed; name a file, or give the policy with `< FILE`")]
        )
    if sys.stdin.isatty():
        click.echo("Reading the policy from this terminal; Ctrl-D ends it.", err=True)
    return read_policy(sys.stdin.buffer, _SOURCE)


def load_or_exit(path: Path) -> Policy:
    """Read the policy of a command; on mistakes, print them and exit with 1."""
    try:
        return load_candidate(path)
    except PolicyError as error:
        click.echo(refusal(error, path), err=True)
        sys.exit(1)


def is_absent(file: Path) -> bool:
    """Whether there is no such file; False if that can't be determined: reading it then reports why."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def source_name(path: Path) -> str:
    """The name of a policy file in messages."""
    return _SOURCE if path == STDIN else str(path)


_WIDTH: Final = 100  # of the list of schemes if stdout is not a terminal
_LEAST: Final = 40  # characters per line, however narrow the terminal says it is


def print_check(file: Path, *, as_json: bool) -> int:
    """Print a policy as understood, or its mistakes; the exit code is 1 if there are any."""
    policy: Policy | None = None
    problems: tuple[PolicyProblem, ...] = ()
    try:
        policy = load_candidate(file)
    except PolicyError as error:
        problems = error.problems
    if policy is not None and policy.mode == "enforce" and (problems := unit_mistakes(policy)):
        policy = None
    if as_json:
        click.echo(json.dumps(_document(policy, problems), indent=1))
        if problems:
            click.echo(f"{source_name(file)}: not valid; see `mistakes`", err=True)
    elif policy is None:
        for problem in problems:
            click.echo(fitted(str(problem), sys.stderr), err=True)
    else:
        click.echo(fitted(render_policy(policy), sys.stdout))
        for warning in policy.warnings:
            click.echo(fitted(f"{source_name(file)}: warning: {warning}", sys.stderr), err=True)
    return 0 if policy is not None else 1


def fitted(text: str, stream: TextIO, *, otherwise: int | None = None) -> str:
    """Lines wrapped to the width of a terminal, continuations indented; for any other stream to `otherwise`, if set."""
    width = _width(stream) or otherwise
    if width is None:
        return text
    return "\n".join(_wrapped(line, width) for line in text.splitlines())


def _width(stream: TextIO) -> int | None:
    return max(shutil.get_terminal_size().columns, _LEAST) if stream.isatty() else None


def _wrapped(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _document(policy: Policy | None, problems: tuple[PolicyProblem, ...]) -> dict[str, object]:
    return {
        "valid": policy is not None,
        "mistakes": [
            {"source": problem.source, "path": problem.path or None, "line": problem.line, "what": problem.what}
            for problem in problems
        ],
        "warnings": [] if policy is None else list(policy.warnings),
        "policy": None if policy is None else policy_document(policy),
        "declarations": [] if policy is None else declaration_documents(policy.declarations),
    }


def print_schemes(*, as_json: bool) -> None:
    """Print every scheme: what it reads, its unit, whether `*` selects it, and where it is documented."""
    if as_json:
        click.echo(json.dumps({"schemes": [_scheme_document(each) for each in all_schemes().values()]}, indent=1))
    else:
        click.echo(fitted(render_schemes(all_schemes().values()), sys.stdout, otherwise=_WIDTH))


def _scheme_document(scheme: Scheme) -> dict[str, object]:
    return {
        "name": scheme.name,
        "description": scheme.description,
        "source": scheme.source,
        "unambiguous": scheme.unambiguous,
        "by_name_only": scheme.by_name_only,
        "note": scheme.note or None,
        "declarations": list(scheme.tables),
    }
