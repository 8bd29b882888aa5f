"""`gpu-watchdog recommend`: what each workload used, beside what it declares: what to declare."""

import json
import shutil
import sys
from pathlib import Path

import click

from watchdog import clock
from watchdog.cli.check import load_candidate, refusal
from watchdog.cli.client import without_journal
from watchdog.config.load import built_in_policy
from watchdog.config.mistakes import PolicyError
from watchdog.core.policy import Policy
from watchdog.export.table import has_colour
from watchdog.journal.errors import JournalError
from watchdog.past.meter import Meter
from watchdog.past.read import NothingRecordedError, spans
from watchdog.past.recommendation import Known, advised, recommendation_document, recommendation_text, told
from watchdog.past.story import UNCUT


def print_recommendation(
    journal: Path, policy_file: Path, back_s: float, *, is_policy_named: bool, as_json: bool
) -> None:
    """Print what the workloads of the last `back_s` seconds should declare, by the declarations of a policy."""
    policy = _policy(policy_file, is_named=is_policy_named)
    try:
        known = used(journal, policy, clock.now().wall_s - back_s)
    except NothingRecordedError as error:
        # As `history` takes it: that nothing was seen is an answer.
        click.echo(f"{error}; so there is nothing to recommend", err=True)
        known = []
    except JournalError as error:
        raise click.ClickException(without_journal(error, "recommend")) from error
    if as_json:
        click.echo(json.dumps(recommendation_document(known), indent=1))
        return
    if known:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNCUT
        click.echo(recommendation_text(known, colour=has_colour(sys.stdout), width=width))
        click.echo(told(known))


def used(journal: Path, policy: Policy, since_s: float) -> list[Known]:
    """The workloads since a Unix time, each with its advice; JournalError."""
    meter = Meter(policy, since_s)
    for span in spans(journal, since_s):
        meter.run(span.looks)
    return advised(meter.usages)


def _policy(file: Path, *, is_named: bool) -> Policy:
    if not is_named and _is_absent(file):
        click.echo(f"No policy at {file}: reading declarations as the built-in one does.", err=True)
        return built_in_policy()
    try:
        return load_candidate(file)
    except PolicyError as error:
        click.echo(refusal(error, file), err=True)
        sys.exit(1)


def _is_absent(file: Path) -> bool:
    """Whether there is no such file; what can't be seen is left to whoever reads it to complain about."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
