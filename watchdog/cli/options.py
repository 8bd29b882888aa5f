"""The options that several commands share."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from watchdog.options import DEFAULT_JOURNAL, DEFAULT_LISTEN, DEFAULT_POLICY, DEFAULT_PROCFS

Command = TypeVar("Command", bound=Callable[..., object])


def path_option(name: str, default: Path | None, help_: str) -> Callable[[Command], Command]:
    """An option that names a file or folder, also in the environment."""
    return click.option(
        name,
        envvar="GPU_WATCHDOG_" + name.removeprefix("--").replace("-", "_").upper(),
        show_envvar=True,
        default=default,
        show_default=True,
        # A file that can't be read is no wrong use: each command says so in its own words, doctor above all.
        type=click.Path(path_type=Path, readable=False),
        help=help_,
    )


node_option = click.option(
    "--node",
    envvar=["GPU_WATCHDOG_NODE", "NODE_NAME"],
    show_envvar=True,
    default=socket.gethostname,
    show_default="the host's name",
    help="The name of this node.",
)
pod_uid_option = click.option(
    "--pod-uid",
    envvar="GPU_WATCHDOG_POD_UID",
    show_envvar=True,
    default="",
    metavar="UID",
    help="The UID of the pod that it runs in, which is never acted on; needed where its cgroup does not show it.",
)
policy_option = path_option("--policy", DEFAULT_POLICY, "The policy, a TOML file.")
kubeconfig_option = path_option(
    "--kubeconfig", None, "How to reach the Kubernetes API; by default as the pod that it runs in."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
journal_option = path_option(
    "--journal", DEFAULT_JOURNAL, "The journal, an SQLite file; `stop` beside it turns enforcement off."
)
since_week = click.option("--since", default="7d", show_default=True, help="How far back, like 90m or 7d.")
_FILES = (
    ("--namespaces", "`kubectl get namespaces -o json` prints, instead of the API; for namespace_labels."),
    ("--node-object", "`kubectl get node NAME -o json` prints, instead of the API."),
    ("--pods", "`kubectl get pods -A -o json` prints: no call is made to the API then."),
)


def node_options(command: Command) -> Command:
    """The options by which a command finds the node, its processes and its pods."""
    files = (path_option(name, None, f"A file with what {what}") for name, what in _FILES)
    procfs = path_option("--procfs", DEFAULT_PROCFS, "Where the node's /proc is mounted.")
    for option in (*files, pod_uid_option, kubeconfig_option, procfs, node_option, policy_option):
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


listen_option = click.option(
    "--listen",
    envvar="GPU_WATCHDOG_LISTEN",
    show_envvar=True,
    default=DEFAULT_LISTEN,
    show_default=True,
    callback=_listen,
    help="Address and port of /metrics, /healthz, /readyz and the status page.",
)
url_option = click.option(
    "--url",
    envvar="GPU_WATCHDOG_URL",
    show_envvar=True,
    show_default="http:// and the address of --listen",
    callback=_url,
    help="The daemon to ask, like http://127.0.0.1:9837.",
)


def duration(text: str, option: str = "--since") -> float:
    """The seconds of a text like 90m, of an option."""
    from watchdog.core.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
