"""`gpu-watchdog scan`: one pass that never acts, printed."""

import json
import math
import shutil
import sys

import click

from watchdog import clock
from watchdog.config.load import built_in_policy, load_policy
from watchdog.config.problems import PolicyError
from watchdog.core.assess import Setting, assess
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import Conditions, CycleReport
from watchdog.core.policy import Policy
from watchdog.export.status import status_document
from watchdog.export.table import has_colour
from watchdog.export.text import scan_text
from watchdog.node.driver import DriverReading
from watchdog.node.nvml import NvmlDriver
from watchdog.node.nvml_thread import DriverThread
from watchdog.options import Options
from watchdog.sources import is_stale, node_source, pod_source
from watchdog.start import open_processes
from watchdog.waiter import Waiter

_PATIENCE_S = 30.0


def print_scan(options: Options, *, is_policy_named: bool, as_json: bool) -> None:
    """Look once and print it."""
    policy = _policy(options, is_policy_named=is_policy_named)
    report = look(options, policy)
    if options.pods is None:
        click.echo("No source of pods (--pods): every process of a pod counts as unknown_pod.", err=True)
    if as_json:
        click.echo(json.dumps(status_document(report), indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
        click.echo(scan_text(report, colour=has_colour(sys.stdout), width=width), nl=False)


def look(options: Options, policy: Policy) -> CycleReport:
    """One pass over this node, as far as the plan."""
    asked = clock.now()
    reading = _read()
    now = clock.now()
    footing, scanner = open_processes(options)
    snapshot = scanner.snapshot(reading, now)
    pods = pod_source(options).read(now)
    node, gaps = node_source(options).read(now)
    setting = Setting(policy=policy, node=node, own=footing.own)
    attribution = attribute(snapshot, pods.pods)
    assessments = assess(attribution, snapshot, pods.pods, setting)
    conditions = Conditions(pods_stale=is_stale(pods, policy, now))
    plan = decide(assessments, policy, Ledger(), now, conditions)
    return CycleReport(
        node=node,
        at=now,
        policy=policy,
        policy_loaded_at_s=asked.wall_s,
        enforcing=False,
        suspended=(),
        snapshot=snapshot,
        pods=type(pods)(pods=pods.pods, synced=pods.synced, gaps=(*pods.gaps, *gaps)),
        attribution=attribution,
        assessments=assessments,
        plan=plan,
        scan_s=now.boottime_s - asked.boottime_s,
    )


def _policy(options: Options, *, is_policy_named: bool) -> Policy:
    if not is_policy_named and not options.policy.exists():
        click.echo(f"No policy at {options.policy}: using the built-in one, which observes.", err=True)
        return built_in_policy()
    try:
        return load_policy(options.policy)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error


def _read() -> DriverReading:
    """One reading of NVML, on a thread of its own because a call can hang for ever."""
    thread = DriverThread(NvmlDriver())
    waiter = Waiter()
    waiter.watch(thread.fileno())
    thread.request()
    deadline_s = clock.now().boottime_s + _PATIENCE_S
    left_s = _PATIENCE_S
    while left_s > 0 and math.isfinite(left_s):
        waiter.wait(left_s)
        reading = thread.take()
        if reading is not None:
            return reading
        left_s = deadline_s - clock.now().boottime_s
    why = f"no answer within {_PATIENCE_S:.0f} s: a call into the driver hangs; see dmesg for NVRM messages"
    return DriverReading(driver=None, gaps=(Gap(reason=GapReason.NVML_TIMEOUT, what="NVML", why=why),), blind=True)
