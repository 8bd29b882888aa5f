"""`gpu-watchdog doctor`: what this node and this account lack for observing and for enforcing."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import click

from watchdog.cli.doctor import api, cluster, deployment, driver, guard, journal, limits, mps, system
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Check, Diagnosis, Finding, FindingState, Purpose
from watchdog.cli.doctor.gather import gather
from watchdog.cli.listing import listing, output_style
from watchdog.options import Options
from watchdog.report.text import GREEN, RED, YELLOW, count

_PATIENCE_S: Final = 30.0
# In the order of their modules and their definitions; docs/doctor.md has the same. Some are defined several at a time.
CHECKS: Final = tuple(
    check
    for module in (driver, system, deployment, mps, api, guard, cluster, limits, journal)
    for defined in vars(module).values()
    for check in (defined if isinstance(defined, tuple) else (defined,))
    if isinstance(check, Check)
)


def run_doctor(options: Options, *, as_json: bool, shows_all: bool = False, patience_s: float = _PATIENCE_S) -> int:
    """Run all checks, print the findings, and return the exit code: 1 if something is missing for the policy's mode.

    Checks that are ok are only counted, unless `shows_all`.
    """
    diagnosis = diagnose(gather(options, patience_s))
    if as_json:
        click.echo(json.dumps(document(diagnosis), indent=1))
    else:
        colours, width = output_style(_COLOURS)
        click.echo(diagnosis_text(diagnosis, colours=colours, width=width, shows_fine=shows_all))
    problem = shortcoming(diagnosis)
    if problem:
        click.echo(f"gpu-watchdog doctor: {problem}", err=True)
    return 1 if problem else 0


def diagnose(facts: Facts) -> Diagnosis:
    """All findings about these facts."""
    return Diagnosis(
        findings=tuple(finding for check in CHECKS for finding in check.findings(facts)),
        mode=None if facts.policy.policy is None else facts.policy.policy.mode,
        is_stopped=facts.journal.is_stopped and not facts.journal.stop_problem,
    )


_TITLES: Final = ("STATUS", "FOR", "CHECK", "MESSAGE")
_COLOURS: Final = {
    FindingState.OK.value: GREEN,
    FindingState.WARNING.value: YELLOW,
    FindingState.MISSING.value: RED,
}


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "observe": diagnosis.observe,
        "enforce": diagnosis.enforce,
        "findings": [
            {
                "name": finding.name,
                "state": finding.state.value,
                "for": [purpose.value for purpose in finding.purposes],
                "what": finding.what,
                "remedy": finding.remedy,
            }
            for finding in diagnosis.findings
        ],
    }


def diagnosis_text(
    diagnosis: Diagnosis,
    *,
    colours: Mapping[str, str] = MappingProxyType({}),
    width: int | None = None,
    shows_fine: bool = True,
) -> str:
    """The text for people: a row per finding, blockers last, near the prompt.

    Without `shows_fine` findings that are ok are only counted.
    """
    findings = sorted(diagnosis.findings, key=_urgency)
    fine = 0 if shows_fine else sum(finding.state is FindingState.OK for finding in findings)
    lines = listing(_TITLES, [_row(finding) for finding in findings[fine:]], colours, width) if findings[fine:] else []
    if fine:
        left_out = f"{count(fine, 'check is', 'checks are')} ok (--all shows {'it' if fine == 1 else 'them'})."
        lines += [*([""] if lines else []), left_out]
    policy = diagnosis.mode or "none valid"
    can_observe, can_enforce = ("yes" if able else "no" for able in (diagnosis.observe, diagnosis.enforce))
    return "\n".join([*lines, "", f"Can observe: {can_observe}; can enforce: {can_enforce}. Policy: {policy}"])


def _urgency(finding: Finding) -> tuple[bool, bool, int]:
    """What is ok comes first, then what observing needs, and within each the blockers last."""
    is_bad = finding.state is not FindingState.OK
    return is_bad, is_bad and Purpose.OBSERVE not in finding.purposes, list(FindingState).index(finding.state)


def _row(finding: Finding) -> tuple[str, ...]:
    """Enforcing also needs what observing needs, so that only the first purpose is shown."""
    remedy = f". Remedy: {finding.remedy}" if finding.remedy else ""
    purpose = finding.purposes[0].value if finding.purposes else "-"
    return finding.state.value, purpose, finding.name, f"{finding.what}{remedy}"


def shortcoming(diagnosis: Diagnosis) -> str:
    """Why the node can't do what its policy asks for, in a sentence; empty if it can."""
    if diagnosis.suffices:
        return ""
    observing, enforcing = diagnosis.lacking(Purpose.OBSERVE), diagnosis.lacking(Purpose.ENFORCE)
    more = [name for name in enforcing if name not in observing]
    if diagnosis.mode is None:
        what = "there is no valid policy"
        if any(finding.name == "policy_running" for finding in diagnosis.findings):
            what += ", and the running daemon keeps using its last valid one"
        return f"{what}. Blocked by: {', '.join(enforcing)}"
    if observing:
        rest = f"; for enforcing also: {', '.join(more)}" if more and diagnosis.mode == "enforce" else ""
        return f"this node cannot observe. Blocked by: {', '.join(observing)}{rest}"
    if diagnosis.is_stopped and enforcing == ("stop_file",):
        return "enforcement was switched off on this node; nothing else blocks it: stop_file"
    return f"this node can observe but not enforce. Blocked by: {', '.join(enforcing)}"
