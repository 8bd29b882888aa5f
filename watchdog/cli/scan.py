"""`gpu-watchdog scan`: one cycle that never acts, printed."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import click

from watchdog import clock
from watchdog.cli.check import is_absent
from watchdog.cli.rows import accounts_unknown, blind_because, chosen, labels_of, none_chosen
from watchdog.cli.status_text import account_table, gpu_table, plain_table, process_table
from watchdog.cli.tables import UNCUT, Cell, Column, notes, output_width, printed, text, wrapped
from watchdog.cli.views import ASCII, Choice, Signs, prepare
from watchdog.clock import Bell
from watchdog.config.load import PolicyError, built_in_policy, load_policy, refusal
from watchdog.core.assess import assess
from watchdog.core.assessment import Reason, Verdict
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import GapReason
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle
from watchdog.core.policy import Policy
from watchdog.daemon.cycle_report import report_of
from watchdog.daemon.enforcement import Enforcement, open_processes
from watchdog.daemon.sampler import read_once
from watchdog.daemon.sources import NO_PODS, Sources, missing_sources, open_cluster, uses_api
from watchdog.node.drivers.opening import open_driver
from watchdog.node.drivers.protocol import released_reading
from watchdog.node.mps_control import known_drains
from watchdog.options import Options
from watchdog.report.sentences.brakes import rule_observes
from watchdog.report.sentences.following import what_follows
from watchdog.report.sentences.node import STRAYS, gap_subject, under_maintenance
from watchdog.report.sentences.usage import unit_suspicion
from watchdog.report.status import AccountStatus, Status, encode
from watchdog.report.status_build import status_of
from watchdog.report.text import byte_cell, count, date_time, has_colour, inert

_PATIENCE_S: Final = 30.0


def print_scan(options: Options, *, is_policy_named: bool, as_json: bool) -> int:
    """Read the node once and print it; the exit code is 1 if the driver is not responding, so that nothing is known."""
    policy = _policy(options, is_policy_named=is_policy_named)
    report = _cycle(options, policy)
    for warning in missing_sources(options, policy):
        click.echo(f"Warning: {warning}.", err=True)
    if options.pods is None and not uses_api(options):
        click.echo(f"Warning: {NO_PODS}.", err=True)
    status = status_of(report)
    if as_json:
        click.echo(json.dumps(encode(status), indent=1))
    else:
        signs, colour, width = prepare(sys.stdout), has_colour(sys.stdout), output_width()
        click.echo(scan_text(status, policy.source, signs=signs, colour=colour, width=width), nl=False)
    # Under maintenance the driver was not queried, and the output says so: that is a complete answer.
    if status.blind is None or status.maintenance is not None:
        return 0
    click.echo(f"Error: nothing is known about the GPUs: {inert(status.blind.text, 600)}", err=True)
    return 1


def _policy(options: Options, *, is_policy_named: bool) -> Policy:
    if not is_policy_named and is_absent(options.policy):
        click.echo(f"No policy at {options.policy}: using the built-in one, which observes.", err=True)
        return built_in_policy()
    try:
        return load_policy(options.policy)
    except PolicyError as error:
        raise click.ClickException(refusal(error, options.policy)) from error


def _cycle(options: Options, policy: Policy) -> CycleReport:
    """One cycle on this node, as far as the plan."""
    begun = clock.now()
    environment, scanner = open_processes(options)
    cluster = open_cluster(options, Bell())
    if cluster is not None:
        cluster.fetch(policy)
    sources = Sources(options, environment.own, cluster)
    # Under maintenance of the GPUs the driver must not be opened, however briefly.
    maintenance = sources.switches(begun).maintenance
    driver = open_driver(options)
    released = None if maintenance is None else released_reading(maintenance, driver.interface)
    reading = released or read_once(driver, _PATIENCE_S)
    now = clock.now()
    snapshot = scanner.snapshot(reading, now)
    inputs = sources.inputs(policy, now)
    attribution = attribute(snapshot, inputs.pods.pods)
    inputs = replace(inputs, drains=known_drains(policy, attribution))
    assessments = assess(attribution, snapshot, inputs)
    plan = decide(assessments, Ledger(), now, inputs)
    opened = OpenCycle(
        inputs=inputs,
        snapshot=snapshot,
        attribution=attribution,
        assessments=assessments,
        plan=plan,
        scan_s=now.boottime_s - begun.boottime_s,
    )
    closed = ClosedCycle(plan=plan, began=(), outcomes=())
    observing = Enforcement(enforcing=False, suspended=())
    return report_of(opened, closed, observing, policy_loaded_s=begun.wall_s, maintenance=maintenance, ended=now)


def _unknown_because(status: Status) -> Sequence[Cell]:
    """Why nothing is known about any account, and what to do about it; empty if they are known."""
    why = accounts_unknown(status)
    if not why or status.blind is not None:
        return [f"{why}."] if why else []
    cause = "see Data gaps for the reason" if _has_pod_gap(status) else "give --kubeconfig FILE or --pods FILE"
    return [f"{why}; {cause}."]


def _has_pod_gap(status: Status) -> bool:
    """Whether a gap has the reason why there is no pod list."""
    return any(gap.reason == GapReason.PODS for gap in status.gaps)


_UNATTRIBUTED: Final = (
    Column(title="PID", right=True),
    Column(title="GPU", least=3),
    Column(title="USED", right=True),
    Column(title="NAME", least=8, is_name=True),
    Column(title="WHY", least=22),
)
_STYLES: Final[Mapping[str, str]] = {
    "lost": "red",
    Verdict.OVER: "red",
    Verdict.WITHIN: "green",
    Verdict.MISDECLARED: "yellow",
    Verdict.UNKNOWN: "yellow",
}


def _gpu_lines(status: Status, signs: Signs, width: int) -> Sequence[Cell]:
    if not status.gpus:
        return [f"Unknown: {blind_because(status)}." if status.blind is not None else "None found."]
    return gpu_table(status, signs, _STYLES, width)


def _unattributed_lines(status: Status, width: int) -> Sequence[Cell]:
    labels = labels_of(status)
    return plain_table(
        _UNATTRIBUTED,
        (
            (str(use.pid), labels.get(use.gpu, use.gpu), byte_cell(use.used), use.name, _why(use.reason, status))
            for use in status.unattributed
        ),
        width=width,
    )


def _why(reason: str, status: Status) -> str:
    if reason == Reason.UNKNOWN_POD and status.pods_synced_at is None:
        return "of a pod (pod list unreadable)" if _has_pod_gap(status) else "of a pod (no pod list: give --pods)"
    return STRAYS[reason].one if reason in STRAYS else reason


def _undeclared(account: AccountStatus) -> Iterator[str]:
    """Of an account that declares no amount, what that means and what it can add."""
    open_share = account.open_share if isinstance(account.open_share, str) else None
    if account.verdict == Verdict.UNDECLARED and account.container != "":
        can_declare = account.declare_by is not None and open_share is None
        how = f"; it can declare some with {account.declare_by}" if can_declare else ""
        yield f"no limit applies: it declares no GPU memory in any way that the policy reads{how}"
    if open_share is not None:
        yield open_share


def _remarks(account: AccountStatus) -> Iterator[str]:
    if account.used_at_most is not None:
        yield f"at most {byte_cell(account.used_at_most)}, by the memory counter of its GPU; no action is based on that"
    if account.protected is not None:
        yield f"protected, no action is taken: {account.protected}"
    if account.rule_unknown is not None:
        yield f"which rule applies is unknown: {account.rule_unknown}"
    yield from _undeclared(account)
    if account.observes:
        active = account.active
        hours = active.hours if active is not None and not active.now else None
        yield f"no action is taken: {rule_observes(hours)}"
    if account.limit_unknown is not None:
        yield f"its limit is unknown: {account.limit_unknown}"
    suspicion = unit_suspicion(account.least, account.declared, account.declared_by)
    if suspicion and account.verdict == Verdict.OVER:
        yield suspicion
    for declaration in account.misdeclarations:
        yield f"{declaration.source} {'is used as written' if declaration.counts else 'is ignored'}: {declaration.why}"
    if account.behind and account.container is None:
        yield "the pod list lacks some of its containers so far: its limit is that of its largest phase"


_FROM_NOW = "Counted from now, without a daemon's timers and brakes; for those use `gpu-watchdog explain NS/POD`."


def scan_text(status: Status, policy: str, *, signs: Signs = ASCII, colour: bool = False, width: int = UNCUT) -> str:
    """A status as tables and sentences of at most `width`, ending with a line break.

    `policy` names the policy's file.
    """
    rows = [row for row in chosen(status, Choice(sort="verdict")) if not row.is_unattributed]
    because = _unknown_because(status)
    remarks = [f"{row.title}: {inert(remark, 600)}" for row in rows for remark in _remarks(row.account)]
    gaps = [f"{gap_subject(gap, status.gpus)}: {inert(gap.text, 600)}" for gap in status.gaps]
    sections: tuple[tuple[str, Sequence[Cell]], ...] = (
        ("GPUs", _gpu_lines(status, signs, width)),
        ("Pods", because or account_table(rows, signs, _STYLES, width) or [f"{none_chosen(status, Choice())}."]),
        ("Processes", process_table(rows, status, width)),
        ("Unattributed processes", _unattributed_lines(status, width)),
        ("Notes", notes(remarks, width)),
        ("Data gaps", notes(gaps, width)),
        ("What would happen next", _plan(status, because, width)),
    )
    lines: list[Cell] = [*_head(status, policy, width)]
    for title, body in sections:
        if body:
            lines += ["", text(title, "bold"), *body]
    return printed(lines, colour=colour)


def _head(status: Status, policy: str, width: int) -> Sequence[Cell]:
    words = f"Node {status.node} at {date_time(status.at)}, policy {inert(policy)}: {status.mode}"
    words += ", takes no action." if status.mode == "observe" else "."
    if status.suspended:
        words += f" Enforcement is suspended: {', '.join(inert(reason) for reason in status.suspended)}."
    if status.maintenance is not None:
        words += f" {under_maintenance(status)}"
    return wrapped(words, width)


def _plan(status: Status, because: Sequence[Cell], width: int) -> Sequence[Cell]:
    if because:
        return because
    unknown = _unknown(status)
    if status.plan:
        steps = notes((entry.sentence for entry in what_follows(status.plan)), width)
        return [*steps, *wrapped(_FROM_NOW + unknown, width)]
    undecided = sum(account.verdict == Verdict.UNKNOWN and account.rule is not None for account in status.accounts)
    also = f" Unknown for {count(undecided, 'account')}." if undecided else ""
    known = "known to be " if undecided else ""
    pods = " of a listed pod" if unknown else ""
    return wrapped(f"Nothing: no account{pods} is {known}above the threshold of a step.{also}{unknown}", width)


def _unknown(status: Status) -> str:
    """That there are processes whose pods are unknown, and so what would happen to them is."""
    unknown = {use.pid for use in status.unattributed if use.reason == Reason.UNKNOWN_POD}
    who = count(len(unknown), "process whose pod is", "processes whose pods are")
    return f" Unknown for {who} not in the pod list." if unknown else ""
