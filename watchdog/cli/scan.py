"""`gpu-watchdog scan`: one cycle that never acts, printed."""

import json
import shutil
import sys
from pathlib import Path

import click

from watchdog import clock
from watchdog.cli.check import refusal
from watchdog.cli.scan_text import scan_text
from watchdog.clock import Bell
from watchdog.config.load import built_in_policy, load_policy
from watchdog.config.mistakes import PolicyError
from watchdog.core.assess import assess
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import GapReason
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Policy
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import NO_PODS, Surroundings, missing_sources, open_cluster, uses_api, with_gaps
from watchdog.daemon.start import open_processes
from watchdog.export.colour import has_colour
from watchdog.node.driver import let_go
from watchdog.node.nvml import NvmlDriver
from watchdog.options import Options
from watchdog.report.status import encode
from watchdog.report.status_build import status_of
from watchdog.report.text import inert

_PATIENCE_S = 30.0


def print_scan(options: Options, *, is_policy_named: bool, as_json: bool) -> int:
    """Look once and print it; the exit code, 1 where NVML did not answer, so that nothing was seen."""
    policy = _policy(options, is_policy_named=is_policy_named)
    report = look(options, policy)
    for warning in missing_sources(options, policy):
        click.echo(f"Warning: {warning}.", err=True)
    if options.pods is None and not uses_api(options):
        click.echo(f"Warning: {NO_PODS}.", err=True)
    if as_json:
        click.echo(json.dumps(encode(status_of(report)), indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
        click.echo(scan_text(report, colour=has_colour(sys.stdout), width=width), nl=False)
    # Under maintenance it was not asked, and what was printed says so: that is what was to be found out.
    if not report.snapshot.blind or report.maintenance is not None:
        return 0
    why = next((str(gap.problem) for gap in report.snapshot.gaps if gap.reason is GapReason.NVML_UNAVAILABLE), "")
    click.echo(f"Error: nothing was seen of the GPUs: {inert(why, 600) or 'NVML did not answer'}", err=True)
    return 1


def look(options: Options, policy: Policy) -> CycleReport:
    """One pass over this node, as far as the plan."""
    asked = clock.now()
    footing, scanner = open_processes(options)
    cluster = open_cluster(options, Bell())
    if cluster is not None:
        cluster.fetch(policy)
    surroundings = Surroundings(options, footing.own, cluster)
    # Under maintenance of the GPUs nobody should open the driver, however briefly.
    maintenance = surroundings.switches(asked).maintenance
    reading = read_once(NvmlDriver(), _PATIENCE_S) if maintenance is None else let_go(maintenance)
    now = clock.now()
    snapshot = scanner.snapshot(reading, now)
    view = surroundings.view(policy, now)
    attribution = attribute(snapshot, view.pods.pods)
    assessments = assess(attribution, snapshot, view.pods.pods, view.setting)
    plan = decide(assessments, policy, Ledger(), now, view.conditions)
    return CycleReport(
        node=view.setting.node,
        at=now,
        policy=policy,
        policy_loaded_at_s=asked.wall_s,
        enforcing=False,
        suspended=(),
        snapshot=snapshot,
        pods=with_gaps(view.pods, assessments),
        attribution=attribution,
        assessments=assessments,
        plan=plan,
        maintenance=maintenance,
        scan_s=now.boottime_s - asked.boottime_s,
    )


def _is_there(path: Path) -> bool:
    """Whether a file is there, or may be: why it can't be seen is said by whoever reads it."""
    try:
        return path.exists()
    except OSError:
        return True


def _policy(options: Options, *, is_policy_named: bool) -> Policy:
    if not is_policy_named and not _is_there(options.policy):
        click.echo(f"No policy at {options.policy}: using the built-in one, which observes.", err=True)
        return built_in_policy()
    try:
        return load_policy(options.policy)
    except PolicyError as error:
        raise click.ClickException(refusal(error, options.policy)) from error
