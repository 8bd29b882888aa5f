"""`gpu-watchdog top`: the GPUs of a node, its pods and what comes next, live in a terminal or once."""

import io
import json
import os
import sys
from dataclasses import dataclass
from typing import TextIO

import click

from watchdog.cli.client import AskError, ask_status
from watchdog.cli.top.asker import ask_view, unreached
from watchdog.cli.top.plain import once
from watchdog.cli.top.state import Choice
from watchdog.cli.top.values import ASCII, BLOCKS, Signs


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """What was asked for: of which daemon, how often, what of it, and in which form."""

    url: str
    choice: Choice
    interval_s: float
    once: bool = False
    as_json: bool = False


def is_live(top_options: TopOptions) -> bool:
    """Whether there is a terminal to draw on, and nothing else is asked for."""
    if top_options.once or top_options.as_json or not sys.stdout.isatty():
        return False
    if os.environ.get("TERM", "") not in ("", "dumb"):
        return True
    click.echo("This terminal can't be drawn on (TERM names none that can), so this is one picture.", err=True)
    return False


def print_top(top_options: TopOptions) -> None:
    """Print the node once."""
    if top_options.as_json:
        _print_document(top_options.url)
    else:
        _print_once(top_options)


def prepare(out: TextIO) -> Signs:
    """Let a stream take names that its encoding does not have; the characters for bars that it does have."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")
    encoding = (out.encoding or "").lower().replace("-", "")
    return BLOCKS if encoding == "utf8" else ASCII


def _print_document(url: str) -> None:
    try:
        document = ask_status(url)
    except AskError as error:
        raise click.ClickException(f"{unreached(error, 'top', '--json')}") from error
    click.echo(json.dumps(document, indent=1))


def _print_once(top_options: TopOptions) -> None:
    answer = ask_view(top_options.url, "--once")
    if answer.view is None:
        raise click.ClickException(answer.problem)
    click.echo(once(answer.view, top_options.choice, prepare(sys.stdout)), nl=False)
