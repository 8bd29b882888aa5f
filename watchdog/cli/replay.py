"""`gpu-watchdog replay`: what another policy would have done first in each incident of this node's past."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import click

from watchdog import clock
from watchdog.cli.check import load_candidate, refusal
from watchdog.cli.client import without_journal
from watchdog.config.mistakes import PolicyError
from watchdog.core.policy import Policy
from watchdog.export.table import has_colour
from watchdog.journal.errors import JournalError
from watchdog.journal.read import history
from watchdog.past.read import spans
from watchdog.past.replay import Replay, Replayed
from watchdog.past.story import UNCUT, Story, StoryRecord, story_document, story_text
from watchdog.report.changes import ChangeKind

_FORCE = ("kill", "evict")


def print_replay(journal: Path, policy_file: Path, back_s: float, *, as_json: bool) -> None:
    """Print what a policy would have done in the last `back_s` seconds."""
    since_s = clock.now().wall_s - back_s
    try:
        policy = load_candidate(policy_file)
    except PolicyError as error:
        click.echo(refusal(error, policy_file), err=True)
        sys.exit(1)
    try:
        story = Story(
            since_s=since_s,
            policy=policy,
            replayed=replay_past(journal, policy, since_s),
            record=_record(journal, since_s),
        )
    except JournalError as error:
        raise click.ClickException(without_journal(error, "replay")) from error
    if as_json:
        click.echo(json.dumps(story_document(story), indent=1))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNCUT
    click.echo(story_text(story, colour=has_colour(sys.stdout), width=width), nl=False)


def replay_past(journal: Path, policy: Policy, since_s: float) -> Replayed:
    """The past that a journal has since a Unix time under a policy; JournalError."""
    replay = Replay(policy, since_s)
    for span in spans(journal, since_s):
        replay.run(span.looks)
    replayed = replay.result()
    return replace(replayed, found=tuple(each for each in replayed.found if each.due.wall_s >= since_s))


def _record(journal: Path, since_s: float) -> StoryRecord:
    rows = [row for row in history(journal, None, since_s) if row.do in _FORCE]
    return StoryRecord(
        begun=sum(row.event == "intended" for row in rows),
        observed=sum(row.event == ChangeKind.WOULD_ACT for row in rows),
        withheld=sum(row.event == ChangeKind.WITHHELD for row in rows),
    )
