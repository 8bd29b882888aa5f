"""The command `gpu-watchdog`. Exit codes everywhere: 0, 1 with a reason on stderr, 2 wrong use."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from watchdog import __version__
from watchdog.options import DEFAULT_JOURNAL, DEFAULT_LISTEN, DEFAULT_POLICY, DEFAULT_PROCFS, Options

_COMMANDLINE = click.core.ParameterSource.COMMANDLINE
Command = TypeVar("Command", bound=Callable[..., object])


def _path(name: str, default: Path | None, help_: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        envvar="GPU_WATCHDOG_" + name.removeprefix("--").replace("-", "_").upper(),
        show_envvar=True,
        default=default,
        show_default=True,
        type=click.Path(path_type=Path),
        help=help_,
    )


def _node_options(command: Command) -> Command:
    """The options by which a command finds the node, its processes and its pods."""
    node = click.option(
        "--node",
        envvar=["GPU_WATCHDOG_NODE", "NODE_NAME"],
        show_envvar=True,
        default=socket.gethostname,
        show_default="the host's name",
        help="The name of this node.",
    )
    for option in (
        _path("--namespaces", None, "A file with what `kubectl get namespaces -o json` prints; for namespace_labels."),
        _path("--node-object", None, "A file with what `kubectl get node NAME -o json` prints; for node_labels."),
        _path("--pods", None, "A file with what `kubectl get pods -A -o json` prints; read again when it changes."),
        _path("--procfs", DEFAULT_PROCFS, "Where the node's /proc is mounted."),
        node,
        _path("--policy", DEFAULT_POLICY, "The policy, a TOML file."),
    ):
        command = option(command)
    return command


def _listen(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    from watchdog.export.listen import ListenError, parse_listen

    try:
        parse_listen(value)
    except ListenError as error:
        raise click.BadParameter(str(error), param=parameter) from error
    return value


def _url(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from watchdog.ask import status_url

    try:
        return value if value is None else status_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


_listen_option = click.option(
    "--listen",
    envvar="GPU_WATCHDOG_LISTEN",
    show_envvar=True,
    default=DEFAULT_LISTEN,
    show_default=True,
    callback=_listen,
    help="Address and port of /metrics, /healthz, /readyz and the status page.",
)
_url_option = click.option(
    "--url",
    envvar="GPU_WATCHDOG_URL",
    show_envvar=True,
    show_default="http:// and the address of --listen",
    callback=_url,
    help="The daemon to ask, like http://127.0.0.1:9837.",
)
_journal = _path("--journal", DEFAULT_JOURNAL, "The journal, an SQLite file; `stop` beside it turns enforcement off.")
_since_week = click.option("--since", default="7d", show_default=True, help="How far back, like 90m or 7d.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpu-watchdog")
def main() -> None:
    """Gives declared GPU memory teeth: measures what each pod of this node uses, warns and kills by a policy."""


@main.command()
@_node_options
@_journal
@_listen_option
def run(**options: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT. SIGHUP reads the policy again, and so does a change of the file."""
    from watchdog.daemon import run_daemon

    code = run_daemon(Options(**options))
    sys.stderr.flush()
    # A call into the driver can hang for ever on its thread, and an ordinary exit would wait for it.
    os._exit(code)


@main.command()
@_node_options
@_json
@click.pass_context
def scan(context: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Look once, print what is there and what would follow. Never acts, opens no journal."""
    from watchdog.scan import print_scan

    named = context.get_parameter_source("policy") is not click.core.ParameterSource.DEFAULT
    print_scan(Options(**options), is_policy_named=named, as_json=as_json)
    sys.stdout.flush()
    os._exit(0)


@main.command()
@_node_options
@_journal
@_listen_option
@click.option("--all", "shows_all", is_flag=True, help="Show on a terminal what is fine too.")
@_json
def doctor(*, as_json: bool, shows_all: bool, **options: Any) -> None:
    """Say what this node and this account lack for observing and for enforcing, each with its remedy.

    Give it the options that `run` has. It changes nothing. Exit code 1: something is missing for what the policy asks.
    """
    from watchdog.doctor import run_doctor

    code = run_doctor(Options(**options), as_json=as_json, shows_all=shows_all)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_json
def check(file: Path, *, as_json: bool) -> None:
    """Validate a policy: print it compiled, or every mistake in it, one a line."""
    from watchdog.check import print_check

    sys.exit(print_check(file, as_json=as_json))


@main.command()
@click.option("--pod", metavar="NS/NAME", help="Only what concerns this pod.")
@click.option("--since", default="24h", show_default=True, help="How far back, like 90m or 7d.")
@_journal
@_json
def history(*, pod: str | None, since: str, journal: Path, as_json: bool) -> None:
    """Print what was decided and done, from the journal."""
    from watchdog.history import print_history

    if pod is not None and pod.count("/") != 1:
        raise click.BadParameter(f"{pod!r}: give NAMESPACE/NAME, like jupyter/alice-0", param_hint="--pod")
    print_history(journal, pod, _duration(since), as_json=as_json)


@main.command()
@click.argument("pod", metavar="NS/POD")
@_url_option
@_listen_option
@_journal
@_json
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
    print_explanation(pod, asked, journal, as_json=as_json)


@main.command()
@_path("--policy", DEFAULT_POLICY, "The policy to try, a TOML file.")
@_since_week
@_journal
@_json
def replay(*, policy: Path, since: str, journal: Path, as_json: bool) -> None:
    """Say what another policy would have done with this node's past: the first deed of each incident.

    What would have followed a deed is not claimed. Reads the journal, and writes nothing.
    """
    from watchdog.replay import print_replay

    print_replay(journal, policy, _duration(since), as_json=as_json)


@main.command()
@_path("--policy", DEFAULT_POLICY, "The policy whose declarations and allowances count, a TOML file.")
@_since_week
@_journal
@_json
@click.pass_context
def recommend(context: click.Context, /, *, policy: Path, since: str, journal: Path, as_json: bool) -> None:
    """Say what each workload used, beside what it declares, and what it should declare.

    Reads the journal, and writes nothing.
    """
    from watchdog.recommend import print_recommendation

    named = context.get_parameter_source("policy") is not click.core.ParameterSource.DEFAULT
    print_recommendation(journal, policy, _duration(since), is_policy_named=named, as_json=as_json)


@main.command()
def demo() -> None:
    """Watch a simulated shared card with three tenants, one of which runs away and is really killed."""
    from watchdog.demo import run_demo

    sys.exit(run_demo(sys.stdout))


def _duration(text: str) -> float:
    from watchdog.core.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
