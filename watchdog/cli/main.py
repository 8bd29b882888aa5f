"""The command line: `gpu-watchdog` and its subcommands, each of which loads only what it needs."""

import atexit
import contextlib
import errno
import gc
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from watchdog import __version__
from watchdog.cli.elsewhere import NodeCommand, is_outside
from watchdog.cli.options import (
    Since,
    all_nodes_option,
    checked,
    cluster_options,
    context_options,
    duration,
    is_pod,
    journal_option,
    json_option,
    kubeconfig_option,
    listen_option,
    node_option,
    node_options,
    path_option,
    pod_of_daemon,
    pod_of_journal,
    policy_option,
    probes_option,
    prometheus_options,
    since_option,
    since_week,
    url_option,
)
from watchdog.cli.program import is_completion, named_as_called, print_completions
from watchdog.options import DEFAULT_NAMESPACE, DEFAULT_POLICY, DEFAULT_SERVICE_ACCOUNT, Options

if TYPE_CHECKING:
    from watchdog.cli.cluster import ClusterChoice
    from watchdog.cli.views import Choice

_UNWRITTEN: Final = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})


class _Commands(click.Group):
    """The subcommands, which end with an error message if their output can't be written."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command; what it writes to a stream that is closed is discarded."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                discarding = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
                setattr(sys, name, discarding)
        streams = sys.stdout, sys.stderr  # click replaces them if a pipe's reader has gone
        try:
            return print_completions(self) if is_completion() else super().main(*args, **{**named_as_called(), **more})
        except OSError as error:
            if error.errno not in _UNWRITTEN or error.filename is not None:
                raise
            _exit_unwritten(error)
        finally:
            # Otherwise the interpreter writes what is buffered, and if that fails, ends with a message and code of its
            # own: 120 (https://docs.python.org/3/library/sys.html#sys.exit).
            try:
                for stream in streams:
                    stream.flush()
            except OSError as error:
                _exit_unwritten(error)


def _exit_unwritten(error: OSError) -> NoReturn:
    """Exit because output can't be written; silently if nobody reads it, or if there is nowhere to write that."""
    with contextlib.suppress(OSError):
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"Error: the output can't be written: {error.strerror}\n")
            sys.stderr.flush()
    _leave(1)  # an ordinary exit would write again what is still buffered


def _leave(code: int) -> NoReturn:
    """Exit without waiting for threads, and without writing what is still buffered."""
    # The official client deletes there what it has written of a kubeconfig, the private key too.
    atexit._run_exitfuncs()
    os._exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpu-watchdog")
def main() -> None:
    """Enforces declared GPU memory: measures what each pod uses, and warns, kills or evicts by a policy."""


def _exit_now(code: int) -> NoReturn:
    """Exit although a driver call may hang on its thread, for which an ordinary exit would wait."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _leave(code)


def _warn(line: str) -> None:
    click.echo(line, err=True)


def _show_library_messages(write: Callable[[str], None] = _warn) -> None:
    """Show what the libraries of the API's client log and warn of as our own warnings."""
    from watchdog.export.libraries import capture
    from watchdog.report.text import inert

    capture(lambda _level, who, text, _trace: write(f"Warning: {who}: {inert(text, 600)}"))


def _is_policy_named(context: click.Context) -> bool:
    return not _is_default(context, "policy")


def _is_default(context: click.Context, *names: str) -> bool:
    return all(context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT for name in names)


def _address(url: str | None, listen: str) -> str:
    from watchdog.cli.client import listen_url

    return url or listen_url(listen)


# IsDNS1123Label and IsDNS1123Subdomain in k8s.io/apimachinery/pkg/util/validation.
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _is_subdomain(name: str) -> bool:
    return len(name) <= 253 and all(_LABEL.fullmatch(part) for part in name.split("."))


@main.command(short_help="Print the rights that the policy needs in the cluster.")
@policy_option
@click.option(
    "--namespace",
    default=DEFAULT_NAMESPACE,
    show_default=True,
    metavar="NAME",
    callback=checked(_LABEL.fullmatch, "{!r} is not a namespace name"),
    help="The namespace of the account.",
)
@click.option(
    "--service-account",
    default=DEFAULT_SERVICE_ACCOUNT,
    show_default=True,
    metavar="NAME",
    callback=checked(_is_subdomain, "{!r} is not a service account name"),
    help="The account of the daemon.",
)
@click.option("--enforce", "enforcing", is_flag=True, help="Include what the policy needs with mode = enforce.")
@click.option(
    "--for-people",
    is_flag=True,
    help="Instead, the roles of people who look from outside the nodes, and of those who also stop and resume.",
)
def rights(*, policy: Path, namespace: str, service_account: str, enforcing: bool, for_people: bool) -> None:
    """Print the rights that the policy needs in the cluster, as YAML for `kubectl apply -f -`.

    One role per purpose, each only if the policy uses it. What RBAC can't express (only its own node, only one entry of
    the status, only evictions with a UID) is added as admission policies, for Kubernetes 1.30 and later.
    """
    from watchdog.cli.rights import print_personal_rights, print_rights
    from watchdog.kube.rights import ServiceAccount

    account = ServiceAccount(namespace=namespace, name=service_account)
    if not for_people:
        print_rights(policy, account, enforcing=enforcing)
    elif enforcing:
        raise click.UsageError("--for-people prints the same for every policy: leave out --enforce")
    else:
        print_personal_rights(account)


@main.command(short_help="Remove what [capacity] advertised on the node.")
@policy_option
@node_option
@kubeconfig_option
@click.option(
    "--resource",
    metavar="NAME",
    callback=checked(lambda name: "/" in name, "{!r} has no domain, so the watchdog never advertised it"),
    help="The resource, if it is no longer in the policy.",
)
@click.option("--all-nodes", "everywhere", is_flag=True, help="On all nodes of the cluster, instead of --node.")
@click.option(
    "--selector",
    "selectors",
    metavar="LABELS",
    multiple=True,
    help="With --all-nodes: only nodes matching this label selector, as in kubectl; repeat it to match any of several.",
)
def withdraw(
    *,
    policy: Path,
    node: str,
    kubeconfig: Path | None,
    resource: str | None,
    everywhere: bool,
    selectors: tuple[str, ...],
) -> None:
    """Remove what [capacity] advertised on the node: the entry in its capacity. Safe to run again.

    Remove [capacity] from the policy first: a daemon that runs with it adds the entry again.
    """
    from watchdog.cli.withdraw import run_withdraw

    _show_library_messages()
    if selectors and not everywhere:
        raise click.UsageError("--selector needs --all-nodes; give a single node with --node")
    sys.exit(run_withdraw(policy, None if everywhere else node, kubeconfig, resource, selectors))


_stop_file_option = path_option(
    "--stop-file",
    None,
    "The file itself, instead of `stop` next to the journal of --journal, if the watchdog sees this folder under "
    "another path: it only checks for `stop` next to its own journal.",
    otherwise="`stop` next to the journal",
)


@main.command(cls=NodeCommand, short_help="Turn enforcement off on a node immediately.")
@click.option(
    "--why", metavar="TEXT", default="", help="The reason, for people who find the file: whom to ask, until when."
)
@_stop_file_option
@journal_option
@url_option
@listen_option
@cluster_options
def stop(*, why: str, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Turn enforcement off on this node, or on NODE, at once: no pod is killed or evicted until `resume`.

    Creates the file `stop` next to the daemon's journal; needs neither a policy nor a running daemon. Safe to run
    again. The daemon keeps measuring. Exit code 0: enforcement is off, or the daemon only observes and checks for this
    file. Exit code 1: the file could not be created, the daemon does not see it, or that is unknown (NOT CONFIRMED).
    """
    from watchdog.cli.stop import Stop, run_stop

    run_stop(Stop.of(stop_file, journal), _address(url, listen), why)


@main.command(cls=NodeCommand, short_help="Turn enforcement on again after `stop`.")
@_stop_file_option
@journal_option
@url_option
@listen_option
@cluster_options
def resume(*, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Turn enforcement on again after `stop`, on this node or on NODE.

    Removes the file, and reports what else prevents enforcement. All timers start again. Run `gpu-watchdog scan` first
    to see which pods would be acted on at once. Exit code 1: the file could not be removed, the daemon sees another
    one, or there was no file and no daemon to ask.
    """
    from watchdog.cli.stop import Stop, run_resume

    run_resume(Stop.of(stop_file, journal), _address(url, listen))


_COMMANDLINE: Final = click.core.ParameterSource.COMMANDLINE

_NO_POD = "{!r}: give NAMESPACE/NAME, like jupyter/alice-0"
# Of `history`: the actions whose rows can be asked for.
ACTIONS = ("warn", "kill", "evict")


@main.command(cls=NodeCommand, pod="pod", short_help="Print past decisions and actions.")
@click.option(
    "--pod", metavar="NS/NAME", callback=checked(is_pod, _NO_POD), shell_complete=pod_of_journal, help="Only this pod."
)
@since_option("24h")
@click.option(
    "--action",
    "actions",
    type=click.Choice(ACTIONS),
    multiple=True,
    help="Only what is about this action; repeat it for any of several.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Also print what happens from now on, until Ctrl-C. With --json, one object per line instead of a list.",
)
@click.option("--until-eof", is_flag=True, hidden=True)
@journal_option
@json_option
@cluster_options
def history(*, pod: str | None, since: Since, actions: tuple[str, ...], journal: Path, **more: bool) -> None:
    """Print past decisions and actions, from the journal; with -f also those to come.

    The journal is that of this node, of NODE, or of the node of --pod, which is found if no daemon is here.
    """
    from watchdog.cli.history import Query, follow_history, print_history

    query = Query(pod=pod, since=since, actions=actions)
    if more["follow"]:
        follow_history(journal, query, as_json=more["as_json"], until_eof=more["until_eof"])
    else:
        print_history(journal, query, as_json=more["as_json"])


@main.command(cls=NodeCommand, pod="pod", short_help="Explain why a pod was or was not acted on.")
@click.argument("pod", metavar="NS/POD", callback=checked(is_pod, _NO_POD), shell_complete=pod_of_daemon)
@url_option
@listen_option
@journal_option
@json_option
@cluster_options
@click.pass_context
def explain(context: click.Context, /, *, pod: str, url: str | None, listen: str, journal: Path, as_json: bool) -> None:
    """Explain why a pod was or was not acted on, from the running daemon or else from the journal.

    Where no daemon is, that of the pod's node is asked, through the API server; give NODE if the pod is gone.
    With --journal on the command line, and neither --url nor --listen, only the journal is read.
    """
    from watchdog.cli.explain import print_explanation

    named = {name for name in ("journal", "listen") if context.get_parameter_source(name) is _COMMANDLINE}
    address = None if url is None and named == {"journal"} else _address(url, listen)
    print_explanation(pod, address, journal, as_json=as_json, from_afar=url is not None and "journal" not in named)


def _is_of_cluster(context: click.Context, *local: str, is_here: bool = False) -> bool:
    """Whether a command is about all nodes; click's error for options of which one would be ignored.

    `local` are those that name something of one node, and `is_here` whether that is on this machine. They override a
    Prometheus that only the environment names.
    """
    options = context.params

    def named(*names: str) -> list[str]:
        found = [name for name in names if context.get_parameter_source(name) is _COMMANDLINE]
        return [f"--{'prometheus-header' if name == 'headers' else name}" for name in found]

    of_one = named(*local)
    asked = (["--cluster"] if options["cluster"] else []) + named(
        "prometheus", "headers", "kubeconfig", "context", "namespace"
    )
    if of_one and asked:
        raise click.UsageError(f"{of_one[0]} is for one node, and {asked[0]} for all")
    if named("headers") and "://" not in options["prometheus"]:
        raise click.UsageError("--prometheus-header is for a --prometheus at a URL")
    if options["prometheus"].startswith("http") and named("context", "namespace", "kubeconfig"):
        raise click.UsageError(
            f"{named('context', 'namespace', 'kubeconfig')[0]} has no effect on a --prometheus at a URL"
        )
    is_meant = bool(asked or (options["prometheus"] and _is_default(context, *local)))
    return is_meant or (not is_here and _is_default(context, *local) and is_outside(options["kubeconfig"]))


def _choice_of_cluster(options: Mapping[str, Any]) -> "ClusterChoice":
    from watchdog.cli.cluster import ClusterChoice

    return ClusterChoice(
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        namespace=options["namespace"],
        prometheus=options["prometheus"],
        headers=dict(options["headers"]),
    )


# Of `report`: a price of a card for an hour, in any currency.
MOST_PRICE: Final = 1e6


@main.command(
    cls=NodeCommand,
    keeps=("kubeconfig", "context", "namespace"),
    of_all=("cluster", "prometheus"),
    short_help="Report what held memory was used for, in card-hours.",
)
@since_week
@click.option(
    "--by",
    type=click.Choice(["owner", "namespace"]),
    show_default="owner; with --prometheus namespace",
    help="A row for each owner (a controller of pods, or a pod), or for each namespace.",
)
@click.option(
    "--price",
    type=float,
    metavar="AMOUNT",
    callback=checked(lambda price: 0.0 <= price <= MOST_PRICE, f"{{!r}} is not an amount from 0 to {MOST_PRICE:.0f}"),
    help="What a card costs for an hour, like 3.06. Adds what the idle card-hours cost: (1 - u) x time x price, where "
    "u is the utilisation of what was held.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, without the total.")
@all_nodes_option
@prometheus_options
@journal_option
@json_option
@cluster_options
@click.pass_context
def report(
    context: click.Context, /, *, since: Since, by: str | None, price: float | None, journal: Path, **options: Any
) -> None:
    """Report what held memory was used for: card-hours by owner, the most idle first.

    The journal is that of this node or of NODE. A card-hour is all memory of a card for an hour.
    """
    from watchdog.cli.report import ReportQuery, report_of_journal

    if options["as_csv"] and options["as_json"]:
        raise click.UsageError("--csv and --json exclude each other")
    if by == "owner" and context.get_parameter_source("prometheus") is click.core.ParameterSource.ENVIRONMENT:
        # It has no owners, and nobody has asked for it now.
        context.params["prometheus"] = options["prometheus"] = ""
    is_cluster = _is_of_cluster(context, "journal", is_here=journal.exists())
    if is_cluster and options["prometheus"] and by == "owner":
        raise click.UsageError("--prometheus has no owners: leave --by out, or --prometheus")
    query = ReportQuery(
        since=since,
        by_namespace=by == "namespace" or bool(is_cluster and options["prometheus"]),
        price=price,
        form="json" if options["as_json"] else "csv" if options["as_csv"] else "table",
    )
    if is_cluster:
        from watchdog.cli.report_cluster import report_of_cluster

        _show_library_messages()
        report_of_cluster(_choice_of_cluster(options), query)
    else:
        report_of_journal(journal, query)


@main.command(short_help="Show what another policy would have done in the past.")
@path_option("--policy", DEFAULT_POLICY, "The policy to try, a TOML file.")
@since_week
@journal_option
@json_option
def replay(*, policy: Path, since: Since, journal: Path, as_json: bool) -> None:
    """Show what another policy would have done in this node's past: the first action of each incident.

    Later effects are not simulated. Only reads the journal.
    """
    from watchdog.cli.replay import print_replay

    print_replay(journal, policy, since.wall_s, as_json=as_json)


@main.command(short_help="Recommend what each workload should declare.")
@path_option("--policy", DEFAULT_POLICY, "The policy with the declarations and allowances, a TOML file.")
@since_week
@journal_option
@json_option
@click.pass_context
def recommend(context: click.Context, /, *, policy: Path, since: Since, journal: Path, as_json: bool) -> None:
    """Show what each workload used and declares, and what it should declare.

    Only reads the journal.
    """
    from watchdog.cli.recommend import print_recommendation

    is_named = _is_policy_named(context)
    print_recommendation(journal, policy, since.wall_s, is_policy_named=is_named, as_json=as_json)


# Of `top`: what pods can be sorted by, and the bounds of the interval (seconds).
SORTS = ("percent", "used", "declared", "time", "verdict", "name")
CLUSTER_SORTS = ("urgency", "use", "over", "age", "namespace", "node")
SHORTEST_S, LONGEST_S = 0.2, 3600.0


@main.command(short_help="Run the daemon on this node until SIGTERM.")
@node_options
@journal_option
@listen_option
@probes_option
def run(**options: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT. It reloads the policy on SIGHUP and when the file changes."""
    from watchdog.cli.run import run_daemon

    code = run_daemon(Options(**options))
    with contextlib.suppress(OSError):  # how the daemon ended does not depend on whether its log can be written
        sys.stderr.flush()
    _leave(code)


@main.command(
    cls=NodeCommand,
    keeps=("kubeconfig",),
    short_help="Print the current state and what would happen next; never acts.",
)
@node_options
@context_options
@json_option
@click.pass_context
def scan(context: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Read the node once, print its state and what would happen next. Never acts, opens no journal.

    With NODE it runs there, in the daemon's pod: paths are those of that pod.

    Exit code 1: the driver is not responding, so nothing is known about the GPUs.
    """
    from watchdog.cli.scan import print_scan

    _show_library_messages()
    _exit_now(print_scan(Options(**options), is_policy_named=_is_policy_named(context), as_json=as_json))


@main.command(cls=NodeCommand, keeps=("kubeconfig",), short_help="Check what this node lacks, with remedies.")
@node_options
@journal_option
@listen_option
@probes_option
@context_options
@click.option("--all", "shows_all", is_flag=True, help="Also show checks that are ok.")
@json_option
def doctor(*, as_json: bool, shows_all: bool, **options: Any) -> None:
    """Check what this node and this account lack for observing and for enforcing, with remedies.

    Takes the options of `run`. With NODE it runs there, in the daemon's pod. Changes nothing.

    Exit code 1: something is missing for the policy's mode.
    """
    from watchdog.cli.doctor import run_doctor

    _show_library_messages()
    _exit_now(run_doctor(Options(**options), as_json=as_json, shows_all=shows_all))


@main.command(short_help="Validate a policy and print it as understood.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--schemes", is_flag=True, help="Instead, list the built-in declaration tables that a policy can select.")
@json_option
def check(file: Path | None, *, schemes: bool, as_json: bool) -> None:
    """Validate a policy: print how it is understood, or every mistake in it, one per line."""
    from watchdog.cli.check import print_check, print_schemes

    if schemes and file is not None:
        raise click.UsageError("--schemes lists what is built in and takes no FILE; `check FILE` shows which apply")
    if schemes:
        print_schemes(as_json=as_json)
    elif file is None:
        raise click.UsageError("give a policy FILE, - for standard input, or --schemes")
    else:
        sys.exit(print_check(file, as_json=as_json))


@main.command(short_help="Watch a node live: its GPUs, its pods, what happens next.")
@click.option(
    "--once",
    is_flag=True,
    help="Print the status once, in columns for scripts; default when stdout is not a terminal.",
)
@click.option(
    "--sort",
    type=click.Choice([*SORTS, *CLUSTER_SORTS]),
    metavar="ORDER",
    show_default=f"{SORTS[0]}; with --cluster {CLUSTER_SORTS[0]}",
    help=f"What to sort pods by: {', '.join(SORTS)}; with --cluster {', '.join(CLUSTER_SORTS)}.",
)
@click.option(
    "--interval",
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="How often to query the daemon, like 500ms or 10s.",
)
@click.option("--filter", "text", metavar="TEXT", default="", help="Only pods with this in name, rule or verdict.")
@click.option("--gpu", metavar="GPU", default="", help="Only pods on this GPU: its number, or its UUID.")
@click.option("--over", is_flag=True, help="Only pods over their limit.")
@click.option("--idle", is_flag=True, help="Only pods that hold memory and have computed nothing for long.")
@all_nodes_option
@prometheus_options
@cluster_options
@url_option
@listen_option
@json_option
@click.pass_context
def top(context: click.Context, /, *, url: str | None, listen: str, as_json: bool, **options: Any) -> None:
    """Watch a node live: its GPUs, its pods, their limits, and what happens next. `?` lists the keys.

    Queries the daemon of this node or of another, or with --cluster those of all nodes; there Enter opens a node or a
    pod. --json prints the full status once, with --cluster that of each node.
    """
    from watchdog.cli.terminal import is_live
    from watchdog.cli.views import Choice

    interval_s = duration(options["interval"], "--interval")
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise click.BadParameter("give 200ms to 1h", param_hint="--interval")
    is_cluster = _is_of_cluster(context, "url", "listen")
    if is_cluster and options["gpu"]:
        raise click.UsageError("--gpu is for one node; with all of them Enter opens one")
    sorts = CLUSTER_SORTS if is_cluster else SORTS
    if options["sort"] not in (None, *sorts):
        raise click.BadParameter(f"give one of {', '.join(sorts)}", param_hint="--sort")
    filters = {name: options[name] for name in ("text", "gpu", "over", "idle")}
    choice = Choice(sort=options["sort"] or sorts[0], **filters)
    is_once = options["once"] or as_json or not is_live()
    if is_cluster:
        _top_of_cluster(_choice_of_cluster(options), choice, None if is_once else interval_s, as_json=as_json)
        return
    from watchdog.cli.top import print_top, run_live

    if is_once:
        print_top(_address(url, listen), choice, as_json=as_json)
    else:
        run_live(_address(url, listen), choice, interval_s)


def _top_of_cluster(which: "ClusterChoice", choice: "Choice", interval_s: float | None, *, as_json: bool) -> None:
    """`top` of all nodes, live unless `interval_s` is None."""
    if interval_s is None:
        from watchdog.cli.cluster import print_cluster

        _show_library_messages()
        if which.prometheus:
            # What is made for one table is in use until the process ends: looking for garbage in it, and in the
            # modules at the end, took a fifth of the command's CPU time with 5,000 nodes. An error of a daemon's answer
            # is garbage that has all that came of it.
            gc.disable()
            gc.freeze()
        print_cluster(which, choice, as_json=as_json)
        return
    from watchdog.cli.cluster_live import watch_cluster

    held: deque[str] = deque(maxlen=20)  # until the screen is as it was
    _show_library_messages(held.append)
    watch_cluster(which, choice, interval_s)
    click.echo("".join(f"{line}\n" for line in held), err=True, nl=False)


@main.command(short_help="Watch a simulated node, with a real kill.")
@click.option(
    "--keep",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Keep the journal in this folder, to try history, explain and replay on it.",
)
def demo(keep: Path | None) -> None:
    """Watch a simulated GPU shared by three pods, one of which keeps growing and is really killed."""
    from watchdog.cli.demo import run_demo

    sys.exit(run_demo(sys.stdout, keep=keep))
