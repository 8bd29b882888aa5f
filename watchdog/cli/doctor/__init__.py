"""`gpu-watchdog doctor`: what this node and this account lack for observing and for enforcing."""

import json
import shutil
import sys
from typing import Final

import click

from watchdog.cli.doctor.gather import gather
from watchdog.cli.doctor.report import diagnose, diagnosis_text, document, shortcoming
from watchdog.options import Options
from watchdog.report.text import has_colour

PATIENCE_S: Final = 30.0


def run_doctor(options: Options, *, as_json: bool, shows_all: bool = False, patience_s: float = PATIENCE_S) -> int:
    """Run all checks, print the findings, and return the exit code: 1 if something is missing for the policy's mode.

    On a terminal checks that are ok are only counted, unless `shows_all`.
    """
    diagnosis = diagnose(gather(options, patience_s))
    if as_json:
        click.echo(json.dumps(document(diagnosis), indent=1))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        text = diagnosis_text(
            diagnosis, colour=has_colour(sys.stdout), width=width, shows_fine=shows_all or not is_terminal
        )
        click.echo(text, nl=False)
    problem = shortcoming(diagnosis)
    if problem:
        click.echo(f"gpu-watchdog doctor: {problem}", err=True)
    return 1 if problem else 0
