"""All checks in order, and their findings as text and as JSON."""

import textwrap
from collections.abc import Iterable
from typing import Any, Final

from watchdog.cli.doctor.api import API_TOPICS, RIGHT_TOPICS, SWITCHES_TOPICS, check_api, check_rights, check_switches
from watchdog.cli.doctor.cluster import (
    CLUSTER_TOPICS,
    PLACE,
    check_capacity,
    check_namespaces,
    check_node_name,
    check_node_object,
    check_pods,
)
from watchdog.cli.doctor.driver import DRIVER_TOPICS, check_driver
from watchdog.cli.doctor.facts import DEFAULTS, Facts
from watchdog.cli.doctor.finding import Diagnosis, Finding, FindingState, Purpose, Topic
from watchdog.cli.doctor.journal import JOURNAL_TOPICS, STOP, check_journal, check_listen
from watchdog.cli.doctor.policy import POLICY_TOPICS, RUNNING, check_mps, check_policy, check_running
from watchdog.cli.doctor.system import CONTAINER_TOPICS, SYSTEM_TOPICS, check_container, check_processes, check_system
from watchdog.core.policy import Policy
from watchdog.export.colour import BOLD, GREEN, RED, YELLOW, paint
from watchdog.report.text import count, inert

TOPICS: Final[tuple[Topic, ...]] = (
    *DRIVER_TOPICS,
    *SYSTEM_TOPICS,
    *CONTAINER_TOPICS,
    *POLICY_TOPICS,
    *API_TOPICS,
    *RIGHT_TOPICS,
    *PLACE,
    *CLUSTER_TOPICS,
    *SWITCHES_TOPICS,
    *JOURNAL_TOPICS,
)


def diagnose(facts: Facts) -> Diagnosis:
    """All findings about these facts."""
    policy = facts.policy.policy
    return Diagnosis(findings=tuple(_findings(facts, policy)), mode=None if policy is None else policy.mode)


def _findings(facts: Facts, policy: Policy | None) -> Iterable[Finding]:
    yield from check_driver(facts.driver)
    yield from check_system(facts.system)
    known = policy or DEFAULTS
    yield from check_processes(facts.processes, known.safety, facts.system.descriptors)
    yield from check_container(facts.container, facts.policy, facts.processes.environment.own)
    yield from check_policy(facts.policy)
    yield from check_mps(facts.driver.reading, known)
    yield from check_running(facts.policy, facts.listen)
    yield from check_api(facts.api)
    yield from check_rights(facts.api, facts.policy.path)
    named = tuple(check_node_name(facts.api, facts.cluster, facts.processes.environment.own))
    yield from named
    if facts.api is None or facts.api.ended == "asked":
        if all(finding.state is not FindingState.MISSING for finding in named):
            yield from check_pods(facts.cluster, facts.processes, known.stale_after_s)
            yield from check_node_object(facts.cluster, known)
            yield from check_capacity(facts.cluster, known)
            yield from check_switches(facts.cluster, known)
        yield from check_namespaces(facts.cluster, known)
    yield from check_journal(facts.journal, known.journal.max_size)
    yield from check_listen(facts.listen)


_MARKS: Final = {FindingState.OK: "ok", FindingState.WARNING: "warning", FindingState.MISSING: "lacks"}
_COLOURS: Final = {FindingState.OK: GREEN, FindingState.WARNING: YELLOW, FindingState.MISSING: RED}
_ORDER: Final = (FindingState.OK, FindingState.WARNING, FindingState.MISSING)
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
        fine = groups.pop("fine")
        lines += [
            f"{count(len(fine), 'check is', 'checks are')} fine (--all shows {'it' if len(fine) == 1 else 'them'})",
            "",
        ]
    for title, findings in groups.items():
        if findings:
            lines.append(paint(title, BOLD, is_on=colour))
            for finding in sorted(findings, key=lambda each: _ORDER.index(each.state)):
                lines += _lines(finding, colour=colour, width=width)
            lines.append("")
    return "\n".join([*lines, *_wrapped(_headline(diagnosis), "", width)]) + "\n"


def shortcoming(diagnosis: Diagnosis) -> str:
    """Why the node can't do what its policy asks for, in a sentence; empty if it can."""
    if diagnosis.suffices:
        return ""
    observing, enforcing = diagnosis.lacking(Purpose.OBSERVE), diagnosis.lacking(Purpose.ENFORCE)
    more = [name for name in enforcing if name not in observing]
    if diagnosis.mode is None:
        what = "there is no valid policy"
        if any(finding.name == RUNNING.name for finding in diagnosis.findings):
            what += ", and the running daemon keeps using its last valid one"
        return f"{what}. Blocked by: {', '.join(enforcing)}"
    if observing:
        rest = f"; for enforcing also: {', '.join(more)}" if more and diagnosis.mode == "enforce" else ""
        return f"this node cannot observe. Blocked by: {', '.join(observing)}{rest}"
    if {(each.name, each.case) for each in diagnosis.findings if each.blocks(Purpose.ENFORCE)} == {
        (STOP.name, "present")
    }:
        return f"enforcement was switched off on this node; nothing else blocks it: {STOP.name}"
    return f"this node can observe but not enforce. Blocked by: {', '.join(enforcing)}"


def _headline(diagnosis: Diagnosis) -> str:
    asked = {"observe": "observe", "enforce": "enforce", None: "no valid policy"}[diagnosis.mode]
    can = {True: "yes", False: "no"}
    return f"can observe: {can[diagnosis.observe]}; can enforce: {can[diagnosis.enforce]}; the policy asks for: {asked}"


def _lines(finding: Finding, *, colour: bool, width: int | None) -> Iterable[str]:
    mark = paint(_MARKS[finding.state].ljust(_MARK_WIDTH), _COLOURS[finding.state], is_on=colour)
    text = f"{finding.name}: {inert(finding.what, _LONGEST)}"
    if not finding.remedy:
        text_lines = _wrapped(text, _INDENT, width)
    elif width is None:
        text_lines = [f"{_INDENT}{text}. Remedy: {inert(finding.remedy, _LONGEST)}"]
    else:
        text_lines = [
            *_wrapped(text, _INDENT, width),
            *_wrapped(f"-> {inert(finding.remedy, _LONGEST)}", _INDENT, width, more="   "),
        ]
    yield f"{mark}  {text_lines[0].removeprefix(_INDENT)}"
    yield from text_lines[1:]


def _wrapped(text: str, indent: str, width: int | None, more: str = "") -> list[str]:
    if width is None:
        return [f"{indent}{text}"] if text else []
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_long_words=False,
        break_on_hyphens=False,
    )
