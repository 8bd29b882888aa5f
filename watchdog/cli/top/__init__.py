"""`gpu-watchdog top`: the GPUs of a node, its pods and what comes next, live in a terminal or once."""

import io
import json
import os
import sys
from dataclasses import dataclass
from typing import TextIO

import click

from watchdog.cli.client import AskError, ask_json, ask_status, help_lines
from watchdog.cli.top.rows import ASCII, BLOCKS, Signs
from watchdog.cli.top.state import Choice


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
    click.echo("TERM names no terminal that can be drawn on, so the status is printed once.", err=True)
    return False


def print_top(top_options: TopOptions) -> None:
    """Print the node once."""
    if top_options.as_json:
        try:
            click.echo(json.dumps(ask_json(top_options.url), indent=1))
        except AskError as error:
            raise click.ClickException(unreached(error, "top", "--json")) from error
        return
    from watchdog.cli.top.once import once

    try:
        status = ask_status(top_options.url)
    except AskError as error:
        raise click.ClickException(unreached(error, "top", "--once")) from error
    click.echo(once(status, top_options.choice, prepare(sys.stdout)), nl=False)


def unreached(error: AskError, *arguments: str) -> str:
    """Why a daemon can't be shown by a command with these arguments, and what helps, in lines."""
    return "\n  ".join([str(error), *help_lines(error, *arguments, terminal=arguments == ("top",))])


def prepare(out: TextIO) -> Signs:
    """Let a stream take names that its encoding does not have; the characters for bars that it does have."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")
    encoding = (out.encoding or "").lower().replace("-", "")
    return BLOCKS if encoding == "utf8" else ASCII
