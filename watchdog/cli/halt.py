"""The commands that turn enforcement off on this node and on again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchdog.cli.options import journal_option, listen_option, path_option, url_option
from watchdog.options import DEFAULT_JOURNAL

if TYPE_CHECKING:
    from watchdog.halt.file import Stop

_stop_file_option = path_option(
    "--stop-file",
    None,
    "The file itself, instead of `stop` beside the journal of --journal, for a watchdog that knows this folder by "
    "another name: it looks for `stop` beside its own journal, and for no other file.",
)


@click.command(short_help="Turn enforcement off on this node, at once.")
@click.option(
    "--why", metavar="TEXT", default="", help="The reason, for whoever finds the file: who to ask, until when."
)
@_stop_file_option
@journal_option
@url_option
@listen_option
def stop(*, why: str, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Turn enforcement off on this node, at once: nobody is killed or evicted until `resume`.

    Makes the file `stop` beside the journal, as the daemon has it, and needs neither a policy nor a daemon. May be
    repeated. The daemon goes on measuring. Exit code 0: it has stopped, or only observes and looks for this file. Exit
    code 1: the file could not be made, or the daemon does not see it, or whether it does can't be told (NOT CONFIRMED).
    """
    from watchdog.halt import HaltError, run_stop

    try:
        run_stop(_stop(stop_file, journal), _address(url, listen), why)
    except HaltError as error:
        raise click.ClickException(str(error)) from error


@click.command(short_help="Let enforcement go on after `stop`.")
@_stop_file_option
@journal_option
@url_option
@listen_option
def resume(*, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Let enforcement go on after `stop`: removes the file, and says why nothing is enforced if that is so still.

    All timers begin anew. `gpu-watchdog scan` says beforehand who would be acted on at once. Exit code 1: the file
    could not be removed, or the daemon sees another one, or there was no file and no daemon that could be asked.
    """
    from watchdog.halt import HaltError, run_resume

    try:
        run_resume(_stop(stop_file, journal), _address(url, listen))
    except HaltError as error:
        raise click.ClickException(str(error)) from error


def _stop(path: Path | None, journal: Path) -> "Stop":
    from watchdog.daemon.enforcement import stop_file
    from watchdog.export.lock import lock_path
    from watchdog.halt.file import Stop

    found = (path or stop_file(journal)).absolute()
    kept = found.with_name(journal.name)  # the journal of whoever looks for this very file
    lock = lock_path(kept) if stop_file(kept) == found else None
    return Stop(path=found, is_default=found == stop_file(DEFAULT_JOURNAL), lock=lock)


def _address(url: str | None, listen: str) -> str:
    from watchdog.ask import listen_url

    return url or listen_url(listen)
