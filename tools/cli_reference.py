"""Writes docs/cli.md: docs/templates/cli.md with a table of every option, from the commands' definitions."""

import re
from collections.abc import Iterator
from typing import Final

import click

from tools import ROOT
from watchdog.cli.main import main as program

TEMPLATE: Final = ROOT / "docs" / "templates" / "cli.md"
REFERENCE: Final = ROOT / "docs" / "cli.md"
_SHARED: Final = ("| option | variable | default | commands | meaning |", "|---|---|---|---|---|")
_OWN: Final = ("| command | option | default | meaning |", "|---|---|---|---|")


def cli_reference() -> str:
    """The whole text of docs/cli.md."""
    users: dict[tuple[str, str | None], list[tuple[str, click.Option]]] = {}
    for name, command in program.commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                users.setdefault(_identity(option), []).append((name, option))
    shared = (_shared(uses) for uses in users.values() if uses[0][1].envvar)
    own = (row for uses in users.values() if not uses[0][1].envvar for row in _own(uses))
    text = TEMPLATE.read_text(encoding="utf-8").replace("{shared}", "\n".join((*_SHARED, *shared)))
    return text.replace("{own}", "\n".join((*_OWN, *sorted(own))))


def _identity(option: click.Option) -> tuple[str, str | None]:
    """What options of several commands have in common that share a row: the name, and what it means."""
    return option.opts[0], option.help


def _shared(uses: list[tuple[str, click.Option]]) -> str:
    option = uses[0][1]
    variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
    named = ", ".join(f"`{each}`" for each in variables)
    return f"| {_usage(option)} | {named} | {_default(option)} | {_names(uses)} | {_text(option.help)} |"


def _own(uses: list[tuple[str, click.Option]]) -> Iterator[str]:
    """A row for each meaning of an option: commands that share one share a row."""
    for meaning, default in dict.fromkeys((option.help, _default(option)) for _, option in uses):
        same = [(name, option) for name, option in uses if (option.help, _default(option)) == (meaning, default)]
        yield f"| {_names(same)} | {_usage(same[0][1])} | {default} | {_text(meaning)} |"


def _names(uses: list[tuple[str, click.Option]]) -> str:
    return ", ".join(f"`{name}`" for name, _ in uses)


def _usage(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(program))}"
    short = "".join(f", `{name}`" for name in option.opts[1:])
    return f"`{option.opts[0]}{value}`{short}".replace("|", "\\|")


def _text(text: str | None) -> str:
    """With options as code, so that no page turns two hyphens into a dash."""
    return re.sub(r"--[a-z][a-z-]+", r"`\g<0>`", text or "")


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return _text(option.show_default)
    return f"`{option.default}`" if option.show_default and option.default is not None else ""


if __name__ == "__main__":
    REFERENCE.write_text(cli_reference(), encoding="utf-8")
