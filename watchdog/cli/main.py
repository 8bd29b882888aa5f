"""The command line: `gpu-watchdog` and its subcommands, each of which loads only what it needs."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from watchdog import __version__
from watchdog.cli.options import (
    duration,
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
    since_week,
    url_option,
)
from watchdog.kube.rights import NAMESPACE, SERVICE_ACCOUNT, ServiceAccount
from watchdog.options import DEFAULT_JOURNAL, DEFAULT_POLICY, Options

if TYPE_CHECKING:
    from watchdog.cli.stop import Stop


# IsDNS1123Label and IsDNS1123Subdomain in k8s.io/apimachinery/pkg/util/validation.
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if _LABEL.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no name of a namespace", param=parameter)
    return value


def _account(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if len(value) > 253 or not all(_LABEL.fullmatch(part) for part in value.split(".")):
        raise click.BadParameter(f"{value!r} is no name of a service account", param=parameter)
    return value


def _resource(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and "/" not in value:
        raise click.BadParameter(f"{value!r} has no domain, so it is none that was advertised", param=parameter)
    return value


@click.command(short_help="Print the rights that the policy needs in the cluster.")
@policy_option
@click.option("--namespace", default=NAMESPACE, show_default=True, callback=_namespace, help="Where the account is.")
@click.option(
    "--service-account", default=SERVICE_ACCOUNT, show_default=True, callback=_account, help="What the daemon runs as."
)
@click.option("--enforce", "enforcing", is_flag=True, help="What the policy needs once its mode is enforce.")
def rights(*, policy: Path, namespace: str, service_account: str, enforcing: bool) -> None:
    """Print the rights that the policy needs in the cluster, as YAML for `kubectl apply -f -`.

    Roles in pieces, each only if the policy uses it; and what RBAC can't say (of nodes the own one, of its status one
    entry, evictions with a UID alone) as admission policies, for Kubernetes 1.30 and later.
    """
    from watchdog.cli.rights import print_rights

    sys.exit(print_rights(policy, ServiceAccount(namespace=namespace, name=service_account), enforcing=enforcing))


@click.command(short_help="Take back what [capacity] advertised on the node.")
@policy_option
@node_option
@kubeconfig_option
@click.option(
    "--resource", metavar="NAME", callback=_resource, help="What to take back, where the policy no longer says so."
)
@click.option("--all-nodes", "everywhere", is_flag=True, help="From every node of the cluster, instead of --node.")
@click.option(
    "--selector",
    "selectors",
    metavar="LABELS",
    multiple=True,
    help="With --all-nodes: from those alone whose labels it matches, as for kubectl; may be repeated, any suffices.",
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
    """Take back what [capacity] advertised on the node: the entry of its capacity. May be repeated.

    Remove [capacity] from the policy first: a daemon that runs with it puts the entry back.
    """
    from watchdog.cli.withdraw import run_withdraw

    if selectors and not everywhere:
        raise click.UsageError("--selector goes with --all-nodes; one node is named with --node")
    sys.exit(run_withdraw(policy, None if everywhere else node, kubeconfig, resource, selectors))


_stop_file_option = path_option(
    "--stop-file",
    None,
    "The file itself, instead of `stop` beside the journal of --journal, for a watchdog that knows this folder by "
    "another name: it looks for `stop` beside its own journal, and for no other file.",
)


@click.command(short_help="Turn enforcement off on this node, at once.")
@click.option(
    "--why", metavar="TEXT", default="", help="The reason, for whoever finds the file: who to ask, until when."
)
@_stop_file_option
@journal_option
@url_option
@listen_option
def stop(*, why: str, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Turn enforcement off on this node, at once: nobody is killed or evicted until `resume`.

    Makes the file `stop` beside the journal, as the daemon has it, and needs neither a policy nor a daemon. May be
    repeated. The daemon goes on measuring. Exit code 0: it has stopped, or only observes and looks for this file. Exit
    code 1: the file could not be made, or the daemon does not see it, or whether it does can't be told (NOT CONFIRMED).
    """
    from watchdog.cli.stop import HaltError, run_stop

    try:
        run_stop(_stop(stop_file, journal), _address(url, listen), why)
    except HaltError as error:
        raise click.ClickException(str(error)) from error


@click.command(short_help="Let enforcement go on after `stop`.")
@_stop_file_option
@journal_option
@url_option
@listen_option
def resume(*, stop_file: Path | None, journal: Path, url: str | None, listen: str) -> None:
    """Let enforcement go on after `stop`: removes the file, and says why nothing is enforced if that is so still.

    All timers begin anew. `gpu-watchdog scan` says beforehand who would be acted on at once. Exit code 1: the file
    could not be removed, or the daemon sees another one, or there was no file and no daemon that could be asked.
    """
    from watchdog.cli.stop import HaltError, run_resume

    try:
        run_resume(_stop(stop_file, journal), _address(url, listen))
    except HaltError as error:
        raise click.ClickException(str(error)) from error


def _stop(path: Path | None, journal: Path) -> "Stop":
    from watchdog.cli.stop import Stop
    from watchdog.daemon.enforcement import stop_file
    from watchdog.journal.lock import lock_path

    found = (path or stop_file(journal)).absolute()
    kept = found.with_name(journal.name)  # the journal of whoever looks for this very file
    lock = lock_path(kept) if stop_file(kept) == found else None
    return Stop(path=found, is_default=found == stop_file(DEFAULT_JOURNAL), lock=lock)


def _address(url: str | None, listen: str) -> str:
    from watchdog.cli.client import listen_url

    return url or listen_url(listen)


_COMMANDLINE: Final = click.core.ParameterSource.COMMANDLINE


@click.command(short_help="Print what was decided and done.")
@click.option("--pod", metavar="NS/NAME", shell_complete=pod_of_journal, help="Only what concerns this pod.")
@click.option("--since", default="24h", show_default=True, help="How far back, like 90m or 7d.")
@journal_option
@json_option
def history(*, pod: str | None, since: str, journal: Path, as_json: bool) -> None:
    """Print what was decided and done, from the journal."""
    from watchdog.cli.history import print_history

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
    from watchdog.cli.client import listen_url
    from watchdog.cli.explain import print_explanation

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
    """Say what another policy would have done with this node's past: the first action of each incident.

    Later effects are not simulated. Reads the journal, and writes nothing.
    """
    from watchdog.cli.replay import print_replay

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
    from watchdog.cli.recommend import print_recommendation

    named = context.get_parameter_source("policy") is not click.core.ParameterSource.DEFAULT
    print_recommendation(journal, policy, duration(since), is_policy_named=named, as_json=as_json)


# Of `top`: what pods can be sorted by, and how often the daemon may be asked (seconds).
SORTS = ("percent", "used", "declared", "time", "verdict", "name")
SHORTEST_S, LONGEST_S = 0.2, 3600.0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpu-watchdog")
def main() -> None:
    """Enforces declared GPU memory: measures what each pod uses, and warns, kills or evicts by a policy."""


@main.command(short_help="Run the daemon on this node until SIGTERM.")
@node_options
@journal_option
@listen_option
def run(**options: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT. SIGHUP reads the policy again, and so does a change of the file."""
    from watchdog.cli.run import run_daemon

    code = run_daemon(Options(**options))
    sys.stderr.flush()
    # A call into the driver can hang for ever on its thread, and an ordinary exit would wait for it.
    os._exit(code)


@main.command(short_help="Look once at what is there and what would happen next; never acts.")
@node_options
@json_option
@click.pass_context
def scan(context: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Look once, print what is there and what would happen next. Never acts, opens no journal.

    Exit code 1: NVML did not answer, so that nothing is known of the GPUs.
    """
    from watchdog.cli.scan import print_scan

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
    from watchdog.cli.doctor import run_doctor

    code = run_doctor(Options(**options), as_json=as_json, shows_all=shows_all)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@main.command(short_help="Validate a policy, and print it as it is understood.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def check(file: Path, *, as_json: bool) -> None:
    """Validate a policy: print it compiled, or every mistake in it, one a line."""
    from watchdog.cli.check import print_check

    sys.exit(print_check(file, as_json=as_json))


@main.command(short_help="Watch a node live: its GPUs, its pods, what happens next.")
@click.option(
    "--once",
    is_flag=True,
    help="Print the status once, in columns for scripts; default when stdout is not a terminal.",
)
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True, help="What to sort pods by.")
@click.option("--interval", default="2s", show_default=True, help="How often to ask the daemon, like 500ms or 10s.")
@click.option("--filter", "text", metavar="TEXT", default="", help="Only pods with this in name, rule or verdict.")
@click.option("--over", is_flag=True, help="Only pods over their limit.")
@url_option
@listen_option
@json_option
def top(*, url: str | None, listen: str, as_json: bool, **options: Any) -> None:
    """Watch a node live: its GPUs, its pods, their limits, and what happens next. `?` lists the keys.

    Asks the daemon of this node or of another. --json prints its status as it is, once and in full.
    """
    from watchdog.cli.client import listen_url
    from watchdog.cli.top import TopOptions, is_live, print_top
    from watchdog.cli.top.state import Choice

    interval_s = duration(options["interval"], "--interval")
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise click.BadParameter("give 200ms to 1h", param_hint="--interval")
    top_options = TopOptions(
        url=url or listen_url(listen),
        choice=Choice(sort=options["sort"], text=options["text"], over=options["over"]),
        interval_s=interval_s,
        once=options["once"],
        as_json=as_json,
    )
    if is_live(top_options):
        from watchdog.cli.top.live import run_live

        run_live(top_options)
    else:
        print_top(top_options)


@main.command(short_help="Watch a simulated node, with a real kill.")
def demo() -> None:
    """Watch a simulated shared card with three tenants, one of which runs away and is really killed."""
    from watchdog.cli.demo import run_demo

    sys.exit(run_demo(sys.stdout))


for _command in (history, explain, replay, recommend, stop, resume, rights, withdraw):
    main.add_command(_command)
