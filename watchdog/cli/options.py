"""Options that several commands share, and shell completion."""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click
from click.shell_completion import BashComplete, add_completion_class, split_arg_string

from watchdog.options import (
    DEFAULT_JOURNAL,
    DEFAULT_LISTEN,
    DEFAULT_POLICY,
    DEFAULT_PROCFS,
    OBJECTS_OPTIONS,
    ListenError,
    ObjectsOption,
    flag,
    parse_listen,
)

Command = TypeVar("Command", bound=Callable[..., object])


def path_option(
    name: str, default: Path | None, help_: str, *, metavar: str = "FILE", otherwise: str = ""
) -> Callable[[Command], Command]:
    """An option that names a file or folder; `otherwise` describes the default if it is no path."""
    return click.option(
        name,
        envvar="GPU_WATCHDOG_" + name.removeprefix("--").replace("-", "_").upper(),
        show_envvar=True,
        default=default,
        show_default=otherwise or True,
        metavar=metavar,
        # An unreadable file is not a usage error: each command reports it in its own way, doctor above all.
        type=click.Path(path_type=Path, readable=False),
        help=help_,
    )


node_option = click.option(
    "--node",
    envvar=["GPU_WATCHDOG_NODE", "NODE_NAME"],
    show_envvar=True,
    # The kubelet names the node after its host in lower case (GetHostname in k8s.io/component-helpers/node/util).
    default=lambda: socket.gethostname().strip().lower(),
    show_default="the host's name in lower case",
    metavar="NAME",
    help="The name of this node.",
)
pod_uid_option = click.option(
    "--pod-uid",
    envvar="GPU_WATCHDOG_POD_UID",
    show_envvar=True,
    default="",
    show_default="from its cgroup",
    metavar="UID",
    help="The UID of the pod that this runs in, which is never acted on.",
)
policy_option = path_option("--policy", DEFAULT_POLICY, "The policy, a TOML file.")
kubeconfig_option = path_option(
    "--kubeconfig",
    None,
    "The kubeconfig for the Kubernetes API.",
    otherwise="the service account of the pod that this runs in",
)
_PERSONAL: Final = (
    path_option(
        "--kubeconfig",
        None,
        "From outside a node: the kubeconfig of a person.",
        otherwise="the files of `KUBECONFIG` or ~/.kube/config, else the service account of the pod",
    ),
    click.option(
        "--context",
        envvar="GPU_WATCHDOG_CONTEXT",
        show_envvar=True,
        default="",
        show_default="the current one",
        metavar="NAME",
        help="From outside a node: the context of the kubeconfig.",
    ),
    click.option(
        "--namespace",
        "-n",
        envvar="GPU_WATCHDOG_NAMESPACE",
        show_envvar=True,
        default="",
        show_default="all",
        metavar="NAME",
        help="From outside a node: look for the watchdog's pods in this namespace alone.",
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
journal_option = path_option(
    "--journal", DEFAULT_JOURNAL, "The journal, an SQLite file; `stop` next to it turns enforcement off."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The beginning of the past that a command is asked for."""

    # Unix time.
    wall_s: float
    # As it was given.
    text: str

    @property
    def phrase(self) -> str:
        """For a sentence: `in the last 90m`, `since 2026-01-31 00:00:00 UTC`."""
        from watchdog.report.text import date_time, parse_moment

        is_moment = parse_moment(self.text) is not None
        return f"since {date_time(self.wall_s)}" if is_moment else f"in the last {self.text}"


_FORMS: Final = (
    'a duration like "90m" or "7d", a date like 2026-01-31, or a time like 2026-01-31T14:05 or 2026-01-31T14:05:10Z, '
    "in UTC unless it ends with an offset like +01:00"
)


def _since(_context: click.Context, parameter: click.Parameter, value: str) -> Since:
    """How far back, or since when."""
    from watchdog import clock
    from watchdog.core.units import brief, parse_duration
    from watchdog.report.text import date_time, parse_moment

    now_s = clock.now().wall_s
    try:
        moment_s = parse_moment(value)
        wall_s = now_s - parse_duration(value) if moment_s is None else moment_s
    except ValueError as error:
        raise click.BadParameter(f"{brief(value)!r} is none of these: {_FORMS}", param=parameter) from error
    if wall_s > now_s:
        raise click.BadParameter(f"{value!r} is in the future: it is {date_time(now_s)} now", param=parameter)
    return Since(wall_s=max(wall_s, 0.0), text=value)


def since_option(default: str) -> Callable[[Command], Command]:
    """How far back to look, or since when."""
    return click.option(
        "--since",
        default=default,
        show_default=True,
        metavar="WHEN",
        callback=_since,
        help="How far back, like 90m or 7d, or since when: a date like 2026-01-31 or a time like 2026-01-31T14:05, in "
        "UTC unless it ends with an offset like +01:00.",
    )


since_week = since_option("7d")


def _objects_option(name: str, option: ObjectsOption) -> Callable[[Command], Command]:
    what = f"A file with the output of `kubectl {option.command} -o json`{option.note}"
    return path_option(flag(name), None, what, otherwise="the API")


def node_options(command: Command) -> Command:
    """The options by which a command finds the node, its processes and its pods."""
    files = [_objects_option(*option) for option in OBJECTS_OPTIONS.items()]
    procfs = path_option("--procfs", DEFAULT_PROCFS, "Where the node's /proc is mounted.", metavar="DIR")
    for option in (*reversed(files), pod_uid_option, kubeconfig_option, procfs, node_option, policy_option):
        command = option(command)
    return command


def cluster_options(command: Command) -> Command:
    """The options by which a person's command finds the daemons of a cluster: kubeconfig, context and namespace."""
    return _PERSONAL[0](context_options(command))


def context_options(command: Command) -> Command:
    """The same for a command that has a --kubeconfig already."""
    for option in reversed(_PERSONAL[1:]):
        command = option(command)
    return command


def checked(is_valid: Callable[[Any], object], message: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that refuses an option's value with a message, `{!r}` in it being the value."""

    def check(_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is not None and not is_valid(value):
            raise click.BadParameter(message.format(value), param=parameter)
        return value

    return check


def _listen(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        if value != parameter.default:  # which is no address where it means none
            parse_listen(value)
    except ListenError as error:
        raise click.BadParameter(str(error), param=parameter) from error
    return value


def _url(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from watchdog.cli.client import status_url

    try:
        return value if value is None else status_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_SERVICE: Final = re.compile(r"[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(?::[a-z0-9-]+)?")


def is_prometheus(text: str) -> bool:
    """Whether it names a Prometheus: nothing, a URL without a password, or a service with its namespace."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    return not text or is_url or bool(_SERVICE.fullmatch(text))


class HeaderType(click.ParamType[tuple[str, str]]):
    """A header like NAME=VALUE; several in a variable are lines."""

    name = "header"
    envvar_list_splitter = "\n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and value; a value may be a secret, so no message has it."""
        if isinstance(value, tuple):
            return value
        name, equals, content = str(value).strip().partition("=")
        if not equals or not _HEADER.fullmatch(name) or not content.isprintable() or not content.isascii():
            self.fail("write NAME=VALUE, in plain characters on one line", param, ctx)
        return name, content


def is_pod(text: str) -> bool:
    """Whether it is a pod as NAMESPACE/NAME."""
    return text.count("/") == 1 and all(text.split("/"))


all_nodes_option = click.option(
    "--cluster",
    is_flag=True,
    help="All nodes of a Kubernetes cluster, through its API server; default where a kubeconfig is, and no daemon.",
)
_PROMETHEUS: Final = (
    click.option(
        "--prometheus",
        envvar="GPU_WATCHDOG_PROMETHEUS",
        show_envvar=True,
        default="",
        show_default="the daemons themselves",
        metavar="URL",
        callback=checked(
            is_prometheus,
            "write http://HOST:PORT, or NAMESPACE/SERVICE:PORT for one in the cluster; a password goes into "
            "--prometheus-header",
        ),
        help="With --cluster: ask this Prometheus once instead of each daemon, or Thanos or Mimir for several "
        "clusters; NAMESPACE/SERVICE:PORT is asked through the API server.",
    ),
    click.option(
        "--prometheus-header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        envvar="GPU_WATCHDOG_PROMETHEUS_HEADER",
        show_envvar=True,
        type=HeaderType(),
        help='A header for --prometheus, like Authorization="Bearer ..." or X-Scope-OrgID=TENANT; may be repeated.',
    ),
)


def prometheus_options(command: Command) -> Command:
    """The options by which a person's command asks a Prometheus instead of the daemons."""
    for option in reversed(_PROMETHEUS):
        command = option(command)
    return command


listen_option = click.option(
    "--listen",
    envvar="GPU_WATCHDOG_LISTEN",
    show_envvar=True,
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="ADDR:PORT",
    callback=_listen,
    help="Address and port of /metrics, /healthz, /readyz and the status page.",
)
probes_option = click.option(
    "--probes",
    envvar="GPU_WATCHDOG_PROBES",
    show_envvar=True,
    default="",
    show_default="none",
    metavar="ADDR:PORT",
    callback=_listen,
    help="A further address and port, at which only /healthz and /readyz answer: for a --listen behind a proxy that "
    "asks for credentials, which the kubelet does not have.",
)
url_option = click.option(
    "--url",
    envvar="GPU_WATCHDOG_URL",
    show_envvar=True,
    show_default="http:// and the address of --listen",
    metavar="URL",
    callback=_url,
    help="The daemon to query, like http://127.0.0.1:9837.",
)


def duration(text: str, option: str) -> float:
    """The seconds of an option's text like 90m."""
    from watchdog.core.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


# The user waits after pressing Tab: a daemon on the same machine answers within a few hundredths of a second.
_PATIENCE_S: Final = 1.5
# Names as Kubernetes allows them (RFC 1123). Shells split the output at lines, commas and colons.
_TITLE: Final = re.compile(r"[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*")

_WORDS: Final = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE: Final = 'COMP_LINE="${COMP_LINE:0:$COMP_POINT}"'


class LineComplete(BashComplete):
    """Completion for Bash from the line as typed.

    Bash splits words at colons (COMP_WORDBREAKS), which addresses for --url and --listen contain.
    """

    source_template = BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one."""
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        if not words or line[-1].isspace():
            words.append("")
        return words[1:-1], words[-1]


add_completion_class(LineComplete)


def pod_of_daemon(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pods of the node, from the daemon given by the other options."""
    return _matching(_by_daemon(context), incomplete)


def pod_of_journal(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pods in the journal, which may be long gone, and those that the daemon knows."""
    return _matching([*_by_journal(context), *_by_daemon(context)], incomplete)


def _by_daemon(context: click.Context) -> Iterable[str]:
    from watchdog.cli.client import listen_url, query_status
    from watchdog.core.errors import WatchdogError

    # Commands that read a journal have no such options; the environment may set them anyway.
    url = context.params.get("url") or os.environ.get("GPU_WATCHDOG_URL")
    listen = context.params.get("listen") or os.environ.get("GPU_WATCHDOG_LISTEN") or DEFAULT_LISTEN
    with contextlib.suppress(WatchdogError, ValueError):
        return [account.title for account in query_status(url or listen_url(listen), _PATIENCE_S).accounts]
    return []


def _by_journal(context: click.Context) -> Iterable[str]:
    from watchdog.journal.errors import JournalError
    from watchdog.journal.read import pods_in

    with contextlib.suppress(JournalError):
        return pods_in(Path(context.params.get("journal") or DEFAULT_JOURNAL))
    return []


def _matching(titles: Iterable[str], incomplete: str) -> list[str]:
    """Names in order, without any that no Kubernetes pod can have."""
    return sorted({title for title in titles if title.startswith(incomplete) and _TITLE.fullmatch(title)})
