"""`gpu-watchdog scan`: one cycle that never acts, printed."""

import json
import shutil
import sys
from pathlib import Path

import click

from watchdog import clock
from watchdog.cli.check import refusal
from watchdog.cli.scan_text import WIDTH, scan_text
from watchdog.clock import Bell
from watchdog.config.load import PolicyError, built_in_policy, load_policy
from watchdog.core.assess import assess
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Policy
from watchdog.daemon.enforcement import open_processes
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import NO_PODS, Sources, missing_sources, open_cluster, uses_api, with_gaps
from watchdog.export.colour import has_colour
from watchdog.node.driver import released_reading
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
    status = status_of(report)
    if as_json:
        click.echo(json.dumps(encode(status), indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        click.echo(scan_text(status, policy.source, colour=has_colour(sys.stdout), width=width), nl=False)
    # Under maintenance it was not asked, and what was printed says so: that is what was to be found out.
    if status.blind is None or status.maintenance is not None:
        return 0
    click.echo(f"Error: nothing was seen of the GPUs: {inert(status.blind.text, 600)}", err=True)
    return 1


def look(options: Options, policy: Policy) -> CycleReport:
    """One pass over this node, as far as the plan."""
    asked = clock.now()
    environment, scanner = open_processes(options)
    cluster = open_cluster(options, Bell())
    if cluster is not None:
        cluster.fetch(policy)
    sources = Sources(options, environment.own, cluster)
    # Under maintenance of the GPUs nobody should open the driver, however briefly.
    maintenance = sources.switches(asked).maintenance
    reading = read_once(NvmlDriver(), _PATIENCE_S) if maintenance is None else released_reading(maintenance)
    now = clock.now()
    snapshot = scanner.snapshot(reading, now)
    inputs = sources.inputs(policy, now)
    attribution = attribute(snapshot, inputs.pods.pods)
    assessments = assess(attribution, snapshot, inputs)
    plan = decide(assessments, Ledger(), now, inputs)
    return CycleReport(
        node=inputs.node,
        at=now,
        policy=policy,
        policy_loaded_at_s=asked.wall_s,
        enforcing=False,
        suspended=(),
        snapshot=snapshot,
        pods=with_gaps(inputs.pods, assessments),
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
