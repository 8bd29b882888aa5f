"""What a shell completes: the pods that a daemon or a journal knows. Fast, and silent where there is nothing to say."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from watchdog.options import DEFAULT_JOURNAL, DEFAULT_LISTEN

# Somebody waits for the Tab key: a daemon of the same machine answers in a few hundredths of a second.
_PATIENCE_S: Final = 1.5
# Names as Kubernetes takes them (RFC 1123). The shells take what is printed apart by lines, commas and colons.
_TITLE: Final = re.compile(r"[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*")

_WORDS: Final = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE: Final = 'COMP_LINE="${COMP_LINE:0:$COMP_POINT}"'


class LineComplete(BashComplete):
    """Completion for Bash by the line as it was typed.

    Bash takes words apart at colons (COMP_WORDBREAKS), and an address of --url or --listen has some.
    """

    source_template = BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one."""
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        if not words or line[-1].isspace():
            words.append("")
        return words[1:-1], words[-1]


add_completion_class(LineComplete)


def pod_of_daemon(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pods of the node, by the daemon that the other options name."""
    return _items(_by_daemon(context), incomplete)


def pod_of_journal(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pods of which a journal has something, which may be long gone, and those that the daemon knows."""
    return _items([*_by_journal(context), *_by_daemon(context)], incomplete)


def _by_daemon(context: click.Context) -> Iterable[str]:
    from watchdog.ask import ask_status, listen_url
    from watchdog.core.errors import WatchdogError
    from watchdog.export.status_read import Part

    # A command that reads a journal has no such options; the environment may have them all the same.
    url = context.params.get("url") or os.environ.get("GPU_WATCHDOG_URL")
    listen = context.params.get("listen") or os.environ.get("GPU_WATCHDOG_LISTEN") or DEFAULT_LISTEN
    try:
        accounts = Part(ask_status(url or listen_url(listen), _PATIENCE_S), doubts=[]).parts("accounts")
        return [f"{each.text('namespace')}/{each.text('pod')}" for each in accounts]
    except (WatchdogError, ValueError):
        return []


def _by_journal(context: click.Context) -> Iterable[str]:
    from watchdog.export.journal_errors import JournalError
    from watchdog.export.journal_read import pods_in

    try:
        return pods_in(Path(context.params.get("journal") or DEFAULT_JOURNAL))
    except JournalError:
        return []


def _items(titles: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Names in their order; a name that no pod of Kubernetes can have is not for a shell."""
    found = sorted({each for each in titles if each.startswith(incomplete) and _TITLE.fullmatch(each)})
    return [CompletionItem(each) for each in found]
