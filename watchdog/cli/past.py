"""The commands about what was done and why: of one pod or all, and what another policy would have done."""

from pathlib import Path
from typing import Final

import click

from watchdog.cli.complete import pod_of_daemon, pod_of_journal
from watchdog.cli.options import (
    duration,
    journal_option,
    json_option,
    listen_option,
    path_option,
    since_week,
    url_option,
)
from watchdog.options import DEFAULT_POLICY

_COMMANDLINE: Final = click.core.ParameterSource.COMMANDLINE


@click.command(short_help="Print what was decided and done.")
@click.option("--pod", metavar="NS/NAME", shell_complete=pod_of_journal, help="Only what concerns this pod.")
@click.option("--since", default="24h", show_default=True, help="How far back, like 90m or 7d.")
@journal_option
@json_option
def history(*, pod: str | None, since: str, journal: Path, as_json: bool) -> None:
    """Print what was decided and done, from the journal."""
    from watchdog.commands.history import print_history

    if pod is not None and pod.count("/") != 1:
        raise click.BadParameter(f"{pod!r}: give NAMESPACE/NAME, like jupyter/alice-0", param_hint="--pod")
    print_history(journal, pod, duration(since), as_json=as_json)


@click.command(short_help="Say why a pod was or was not acted on.")
@click.argument("pod", metavar="NS/POD", shell_complete=pod_of_daemon)
@url_option
@listen_option
@journal_option
@json_option
@click.pass_context
def explain(context: click.Context, /, *, pod: str, url: str | None, listen: str, journal: Path, as_json: bool) -> None:
    """Say why a pod was or was not acted on: by the daemon that runs, or else by the journal.

    With --journal on the command line, and neither --url nor --listen beside it, the journal alone is read.
    """
    from watchdog.ask import listen_url
    from watchdog.explain import print_explanation

    if pod.count("/") != 1 or not all(pod.split("/")):
        raise click.BadParameter(f"{pod!r}: give NAMESPACE/NAME, like jupyter/alice-0", param_hint="NS/POD")
    meant = {name for name in ("journal", "listen") if context.get_parameter_source(name) is _COMMANDLINE}
    asked = url or (None if meant == {"journal"} else listen_url(listen))
    print_explanation(pod, asked, journal, as_json=as_json, from_afar=url is not None and "journal" not in meant)


@click.command(short_help="Say what another policy would have done in the past.")
@path_option("--policy", DEFAULT_POLICY, "The policy to try, a TOML file.")
@since_week
@journal_option
@json_option
def replay(*, policy: Path, since: str, journal: Path, as_json: bool) -> None:
    """Say what another policy would have done with this node's past: the first deed of each incident.

    What would have followed a deed is not claimed. Reads the journal, and writes nothing.
    """
    from watchdog.commands.replay import print_replay

    print_replay(journal, policy, duration(since), as_json=as_json)


@click.command(short_help="Say what each workload should declare.")
@path_option("--policy", DEFAULT_POLICY, "The policy whose declarations and allowances count, a TOML file.")
@since_week
@journal_option
@json_option
@click.pass_context
def recommend(context: click.Context, /, *, policy: Path, since: str, journal: Path, as_json: bool) -> None:
    """Say what each workload used, beside what it declares, and what it should declare.

    Reads the journal, and writes nothing.
    """
    from watchdog.commands.recommend import print_recommendation

    named = context.get_parameter_source("policy") is not click.core.ParameterSource.DEFAULT
    print_recommendation(journal, policy, duration(since), is_policy_named=named, as_json=as_json)
