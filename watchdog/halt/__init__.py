"""`gpu-watchdog stop` and `resume`: the file that turns enforcement off, made and removed without a shell."""

from typing import Final

import click

from watchdog.called import called
from watchdog.core.errors import WatchdogError
from watchdog.export.phrases import inert
from watchdog.halt.file import Stop, StopError
from watchdog.halt.seen import Answer, confirm

_BY_API: Final = "kubectl annotate node NODE gpu-memory-watchdog/mode=observe"


class HaltError(WatchdogError):
    """It was not done, or it does not help; the text says what holds now and what else can be done."""


def run_stop(stop: Stop, url: str, why: str) -> None:
    """Turn enforcement off at once, and say what that stops and what it does not; HaltError."""
    try:
        is_new = stop.put(why)
    except StopError as error:
        raise HaltError(f"NOT STOPPED: {error}. The API does the same without this file: {_BY_API}") from error
    if is_new:
        click.echo(f"Stopped: {stop.path} is there now. While it is, nobody on this node is killed, evicted or warned.")
    else:
        click.echo(f"Stopped already: {stop.path} has been there{_said(stop.note())}. Nothing was changed.")
    answer = confirm(url, stop.path, stopped=True)
    click.echo(_TOLD.format(resume=f"{called()} resume{_option(stop)}"))
    _conclude(answer)


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
    _conclude(confirm(url, stop.path, stopped=False))


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


def _conclude(answer: Answer) -> None:
    if not answer.is_well:
        raise HaltError(answer.text)
    click.echo(answer.text)


def _said(note: str) -> str:
    return f" since {inert(note, 1200)}" if note else ""


def _option(stop: Stop) -> str:
    return "" if stop.is_default else f" --stop-file {stop.path}"
