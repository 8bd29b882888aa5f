"""The command `gpu-watchdog`. Exit codes everywhere: 0, 1 with a reason on stderr, 2 wrong use."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from watchdog import __version__
from watchdog.cli.cluster import rights, withdraw
from watchdog.cli.halt import resume, stop
from watchdog.cli.options import duration, journal_option, json_option, listen_option, node_options, url_option
from watchdog.cli.past import explain, history, recommend, replay
from watchdog.options import Options

# Of `top`: what pods can be sorted by, and how often the daemon may be asked (seconds).
SORTS = ("percent", "used", "declared", "time", "verdict", "name")
SHORTEST_S, LONGEST_S = 0.2, 3600.0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpu-watchdog")
def main() -> None:
    """Gives declared GPU memory teeth: measures what each pod of this node uses, warns and kills by a policy."""


@main.command(short_help="Run the daemon on this node until SIGTERM.")
@node_options
@journal_option
@listen_option
def run(**options: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT. SIGHUP reads the policy again, and so does a change of the file."""
    from watchdog.commands.run import run_daemon

    code = run_daemon(Options(**options))
    sys.stderr.flush()
    # A call into the driver can hang for ever on its thread, and an ordinary exit would wait for it.
    os._exit(code)


@main.command(short_help="Look once at what is there and what would follow; never acts.")
@node_options
@json_option
@click.pass_context
def scan(context: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Look once, print what is there and what would follow. Never acts, opens no journal.

    Exit code 1: NVML did not answer, so that nothing is known of the GPUs.
    """
    from watchdog.commands.scan import print_scan

    named = context.get_parameter_source("policy") is not click.core.ParameterSource.DEFAULT
    code = print_scan(Options(**options), is_policy_named=named, as_json=as_json)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@main.command(short_help="Say what this node lacks, each with its remedy.")
@node_options
@journal_option
@listen_option
@click.option("--all", "shows_all", is_flag=True, help="Show on a terminal what is fine too.")
@json_option
def doctor(*, as_json: bool, shows_all: bool, **options: Any) -> None:
    """Say what this node and this account lack for observing and for enforcing, each with its remedy.

    Give it the options that `run` has. It changes nothing. Exit code 1: something is missing for what the policy asks.
    """
    from watchdog.doctor import run_doctor

    code = run_doctor(Options(**options), as_json=as_json, shows_all=shows_all)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@main.command(short_help="Validate a policy, and print it as it is understood.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def check(file: Path, *, as_json: bool) -> None:
    """Validate a policy: print it compiled, or every mistake in it, one a line."""
    from watchdog.commands.check import print_check

    sys.exit(print_check(file, as_json=as_json))


@main.command(short_help="Watch a node live: its GPUs, its pods, what comes next.")
@click.option(
    "--once",
    is_flag=True,
    help="Print the node once, in columns for scripts; so it is done where the output is no terminal.",
)
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True, help="By what pods are sorted.")
@click.option("--interval", default="2s", show_default=True, help="How often the daemon is asked, like 500ms or 10s.")
@click.option("--filter", "text", metavar="TEXT", default="", help="Only pods with this in name, rule or verdict.")
@click.option("--over", is_flag=True, help="Only pods that are over what they are allowed.")
@url_option
@listen_option
@json_option
def top(*, url: str | None, listen: str, as_json: bool, **options: Any) -> None:
    """Watch a node live: its GPUs, its pods, what they may use, and what comes next. `?` names the keys.

    Asks the daemon that runs, of this node or of another. --json prints its status as it is, once and whole.
    """
    from watchdog.ask import listen_url
    from watchdog.top import Wish, is_live, print_top
    from watchdog.top.order import Choice

    interval_s = duration(options["interval"], "--interval")
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise click.BadParameter("give 200ms to 1h", param_hint="--interval")
    wish = Wish(
        url=url or listen_url(listen),
        choice=Choice(sort=options["sort"], text=options["text"], over=options["over"]),
        interval_s=interval_s,
        once=options["once"],
        as_json=as_json,
    )
    if is_live(wish):
        from watchdog.top.live import run_live

        run_live(wish)
    else:
        print_top(wish)


@main.command(short_help="Watch a simulated node, with a real kill.")
def demo() -> None:
    """Watch a simulated shared card with three tenants, one of which runs away and is really killed."""
    from watchdog.demo import run_demo

    sys.exit(run_demo(sys.stdout))


for _command in (history, explain, replay, recommend, stop, resume, rights, withdraw):
    main.add_command(_command)
