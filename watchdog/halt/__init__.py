"""`gpu-watchdog stop` and `resume`: the file that turns enforcement off, made and removed without a shell."""

from typing import Final

import click

from watchdog.called import called
from watchdog.core.errors import WatchdogError
from watchdog.export.phrases import inert
from watchdog.halt.file import Stop, StopError
from watchdog.halt.seen import Seen, confirm

_BY_API: Final = (
    "Where the watchdog follows the API, this does the same without the file: "
    "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite"
)


class HaltError(WatchdogError):
    """It was not done, or it does not help; the text says what holds now and what else can be done."""


def run_stop(stop: Stop, url: str, why: str) -> None:
    """Turn enforcement off at once, and say what that stops and what it does not; HaltError."""
    try:
        is_new = stop.put(why)
    except StopError as error:
        raise HaltError(f"NOT STOPPED: {error}. {_BY_API}") from error
    answer = confirm(url, stop, stopped=True)
    made = "File made" if is_new else f"File there already{_said(stop.note())}"
    back = f"{called()} resume{_option(stop)}"
    # Whether anybody is spared by it comes first: who stops it in a hurry reads no further.
    match answer.seen:
        case Seen.YES:
            click.echo(f"Stopped: {answer.text}")
            if not is_new:
                click.echo(f"{made}: {stop.path}. Nothing was changed.")
        case Seen.IDLE:
            click.echo(f"{made}: {answer.text}")
            click.echo(_TOLD_IDLE.format(resume=back))
            return
        case Seen.NO:
            raise HaltError(f"{made}; NOT STOPPED: {answer.text} To take the file away: {back}")
        case Seen.UNKNOWN:
            raise HaltError(
                f"{made}; NOT CONFIRMED: {stop.path} is there, a watchdog looks for `stop` beside its own journal "
                f"alone, and {answer.text} {_BY_API}. To take the file away: {back}"
            )
    click.echo(_TOLD.format(resume=back))


def run_resume(stop: Stop, url: str) -> None:
    """Take the file away, and say what follows; HaltError."""
    note = stop.note()
    try:
        was_there = stop.take_away()
    except StopError as error:
        raise HaltError(f"STILL STOPPED: {error}") from error
    if was_there:
        click.echo(f"{stop.path} is gone. It was there{_said(note)}.")
        click.echo("All timers begin anew. A step whose `for` is 0s has none: it is due at the first reading.")
    else:
        click.echo(f"There was no {stop.path}: it is not this file that keeps a watchdog from enforcing.")
    answer = confirm(url, stop, stopped=False)
    if answer.seen is Seen.NO:
        raise HaltError(f"STILL STOPPED: {answer.text}")
    if answer.seen is Seen.UNKNOWN and not was_there:
        raise HaltError(f"NOT CONFIRMED: nothing was changed, and {answer.text}")
    click.echo(f"{answer.text[:1].upper()}{answer.text[1:]}")


_TOLD = """
What ends: kills, evictions and warnings, within two seconds. Also in a grace period:
  no SIGKILL follows, and an eviction that was refused is not tried again.
What does not: a process that has got SIGTERM may still end by it, and a pod whose
  eviction the API server has accepted goes. The watchdog goes on measuring.
How long: until it is taken back, over restarts; for this node alone.
To see it: `/readyz` has the line `not enforcing: stop_file`, `top` says so at its head,
  and gpu_watchdog_enforcement_suspended{{reason="stop_file"}} is 1.
To enforce again: {resume}
"""
_TOLD_IDLE = """
What it changes: nothing now. If the policy is changed to enforce, nothing is enforced
  while the file is there, over restarts; for this node alone.
To see it: until then only by the file. `/readyz`, `top` and the metrics show it once
  the policy says enforce.
To take it away: {resume}
"""


def _said(note: str) -> str:
    return f" since {inert(note, 1200)}" if note else ""


def _option(stop: Stop) -> str:
    return "" if stop.is_default else f" --stop-file {stop.path}"
