"""`gpu-watchdog doctor`: what this node and this account lack for observing and for enforcing."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import click

from watchdog.cli.doctor import api, cluster, deployment, driver, journal, mps, system
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Check, Diagnosis, Finding, FindingState, Purpose
from watchdog.cli.doctor.gather import gather
from watchdog.options import Options
from watchdog.report.text import BOLD, GREEN, RED, YELLOW, count, has_colour, inert, paint

_PATIENCE_S: Final = 30.0
# In the order of their modules and their definitions; docs/doctor.md has the same.
CHECKS: Final = tuple(
    check
    for module in (driver, system, deployment, mps, api, cluster, journal)
    for check in vars(module).values()
    if isinstance(check, Check)
)


def run_doctor(options: Options, *, as_json: bool, shows_all: bool = False, patience_s: float = _PATIENCE_S) -> int:
    """Run all checks, print the findings, and return the exit code: 1 if something is missing for the policy's mode.

    On a terminal checks that are ok are only counted, unless `shows_all`.
    """
    diagnosis = diagnose(gather(options, patience_s))
    if as_json:
        click.echo(json.dumps(document(diagnosis), indent=1))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        text = diagnosis_text(
            diagnosis, colour=has_colour(sys.stdout), width=width, shows_fine=shows_all or not is_terminal
        )
        click.echo(text, nl=False)
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


# From the best to the worst state.
_MARKS: Final = {FindingState.OK: "ok", FindingState.WARNING: "warning", FindingState.MISSING: "lacks"}
_COLOURS: Final = {FindingState.OK: GREEN, FindingState.WARNING: YELLOW, FindingState.MISSING: RED}
_LONGEST: Final = 2000
_MARK_WIDTH: Final = max(map(len, _MARKS.values()))
_INDENT: Final = " " * (_MARK_WIDTH + 2)


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
    diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None, shows_fine: bool = True
) -> str:
    """The text for people: a line per finding unless a width is given; blockers are last, near the prompt.

    Without `shows_fine` findings that are ok are only counted.
    """
    groups: dict[str, list[Finding]] = {"fine": [], "observing": [], "enforcing": []}
    for finding in diagnosis.findings:
        is_fine = finding.state is FindingState.OK
        group = "fine" if is_fine else "observing" if Purpose.OBSERVE in finding.purposes else "enforcing"
        groups[group].append(finding)
    lines = []
    if groups["fine"] and not shows_fine:
        fine = len(groups.pop("fine"))
        lines += [
            f"{count(fine, 'check is', 'checks are')} fine (--all shows {'it' if fine == 1 else 'them'})",
            "",
        ]
    for title, findings in groups.items():
        if findings:
            lines.append(paint(title, BOLD, is_on=colour))
            for finding in sorted(findings, key=lambda finding: list(_MARKS).index(finding.state)):
                lines += _lines(finding, colour=colour, width=width)
            lines.append("")
    policy = diagnosis.mode or "none valid"
    can_observe, can_enforce = ("yes" if able else "no" for able in (diagnosis.observe, diagnosis.enforce))
    headline = f"Can observe: {can_observe}; can enforce: {can_enforce}. Policy: {policy}"
    return "\n".join([*lines, *_wrapped(headline, "", width)]) + "\n"


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


def _lines(finding: Finding, *, colour: bool, width: int | None) -> Iterator[str]:
    mark = paint(_MARKS[finding.state].ljust(_MARK_WIDTH), _COLOURS[finding.state], is_on=colour)
    text, remedy = f"{finding.name}: {inert(finding.what, _LONGEST)}", inert(finding.remedy, _LONGEST)
    if width is None:
        text += f". Remedy: {remedy}" if remedy else ""
    lines = _wrapped(text, _INDENT, width)
    yield f"{mark}  {lines[0].removeprefix(_INDENT)}"
    yield from lines[1:]
    if remedy and width is not None:
        yield from _wrapped(f"-> {remedy}", _INDENT, width, more="   ")


def _wrapped(text: str, indent: str, width: int | None, more: str = "") -> list[str]:
    if width is None:
        return [f"{indent}{text}"]
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_long_words=False,
        break_on_hyphens=False,
    )
