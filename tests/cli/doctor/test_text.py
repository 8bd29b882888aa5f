"""Doctor's output: for people, for programs, and on stderr."""

from dataclasses import replace

from tests.cli.doctor.build import GOOD, gap, read, running, spoilt
from tools.doctor_reference import REFERENCE, doctor_reference
from watchdog.cli.doctor import CHECKS, diagnose, diagnosis_text, document, shortcoming
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Diagnosis, Finding, FindingState
from watchdog.config.load import PolicyProblem
from watchdog.core.model import GapReason
from watchdog.core.plan import StopNote
from watchdog.report.text import RED

NOTE = StopNote(switch="stop_file", why="driver upgrade", by="root at 2026-01-02 03:04:05 UTC")
STOPPED = spoilt("journal", is_stopped=True, stop=NOTE)


def _bad(facts: Facts) -> Diagnosis:
    """Without the findings that are ok, except one."""
    diagnosis = diagnose(facts)
    kept = [each for each in diagnosis.findings if each.state is not FindingState.OK or each.name == "python"]
    return replace(diagnosis, findings=tuple(kept))


def test_a_row_a_finding() -> None:
    """A table with titles has each finding in one row with its remedy; blockers come last, near the prompt."""
    assert diagnosis_text(_bad(STOPPED)) == (
        "STATUS   FOR      CHECK      MESSAGE\n"
        "ok       observe  python     Python 3.11\n"
        "missing  enforce  stop_file  the file /var/lib/gpu-watchdog/stop turns enforcement off (stopped by root at "
        '2026-01-02 03:04:05 UTC: "driver upgrade"). Remedy: if that is no longer needed, run `gpu-watchdog resume`'
        "\n\n"
        "Can observe: yes; can enforce: no. Policy: enforce"
    )


def test_lines_fit_a_terminal() -> None:
    """On a terminal the same table fits the width, with messages wrapped in their column."""
    lines = diagnosis_text(_bad(STOPPED), width=70).splitlines()
    assert lines[2:4] == [
        "missing  enforce  stop_file  the file /var/lib/gpu-watchdog/stop turns",
        "                             enforcement off (stopped by root at",
    ]
    assert max(map(len, lines)) <= 70


def test_warnings_come_before_blockers() -> None:
    """What is worst comes last; what observing needs is not repeated for enforcing."""
    facts = read(gaps=(gap(GapReason.MEMORY, "GPU-0 memory"), gap(GapReason.PROCESSES)))
    text = diagnosis_text(_bad(facts))
    rows = [line.split()[:3] for line in text.splitlines()[1:4]]
    assert rows[1:] == [["warning", "observe", "gpu_memory"], ["missing", "observe", "process_lists"]]


def test_colour_is_optional() -> None:
    """Only colour adds escape sequences; those in a finding's text are escaped."""
    hostile = Finding(name="x", state=FindingState.MISSING, purposes=(), what="\x1b[2J", remedy="\x1b[31m")
    diagnosis = Diagnosis(findings=(hostile,), mode="observe")
    assert "\x1b" not in diagnosis_text(diagnosis)
    coloured = diagnosis_text(diagnosis, colours={"missing": RED}, width=80)
    assert ("\x1b[2J" in coloured, "\x1b[31mmissing\x1b[0m" in coloured) == (False, True)


def test_shortcoming() -> None:
    """The sentence on stderr names each blocker of the policy's mode once; it is empty if there is none."""
    assert shortcoming(diagnose(GOOD)) == ""
    unseen = spoilt("journal", is_stopped=True, stop_problem="Permission denied")
    assert shortcoming(diagnose(unseen)) == "this node can observe but not enforce. Blocked by: stop_file"
    two = read(gaps=(gap(GapReason.PROCESSES), gap(GapReason.PROCESSES, "GPU-1 x", on="GPU-1")))
    assert shortcoming(diagnose(two)) == "this node cannot observe. Blocked by: process_lists"
    both = replace(two, journal=STOPPED.journal)
    assert shortcoming(diagnose(both)).endswith(". Blocked by: process_lists; for enforcing also: stop_file")
    none = spoilt("policy", policy=None, is_there=False)
    assert shortcoming(diagnose(none)) == "there is no valid policy. Blocked by: policy"


def test_a_deliberate_switch_is_no_fault() -> None:
    """A stop file is reported as a deliberate switch, and a daemon that keeps its last valid policy is mentioned."""
    reported = "enforcement was switched off on this node; nothing else blocks it: stop_file"
    assert shortcoming(diagnose(STOPPED)) == reported
    broken = replace(
        spoilt("policy", policy=None, problems=(PolicyProblem(source="policy.toml", what="is odd"),)),
        listen=replace(GOOD.listen, state="ours", status=running("f00")),
    )
    assert shortcoming(diagnose(broken)) == (
        "there is no valid policy, and the running daemon keeps using its last valid one. Blocked by: policy"
    )


def test_findings_that_are_ok_can_be_counted() -> None:
    """Findings that are ok can be shown as a number, with the option that lists them."""
    lines = diagnosis_text(diagnose(STOPPED), width=100, shows_fine=False).splitlines()
    fine = sum(each.state is FindingState.OK for each in diagnose(STOPPED).findings)
    assert f"{fine} checks are ok (--all shows them)." in lines
    assert [line.split()[0] for line in lines[:2]] == ["STATUS", "missing"]
    assert not [line for line in lines if line.startswith("ok ")]
    assert len(diagnosis_text(diagnose(STOPPED), width=100).splitlines()) > fine


def test_the_json() -> None:
    """Exactly the documented keys."""
    reported = document(_bad(STOPPED))
    assert reported == {
        "observe": True,
        "enforce": False,
        "findings": [
            {"name": "python", "state": "ok", "for": ["observe", "enforce"], "what": "Python 3.11", "remedy": ""},
            {
                "name": "stop_file",
                "state": "missing",
                "for": ["enforce"],
                "what": "the file /var/lib/gpu-watchdog/stop turns enforcement off (stopped by root at 2026-01-02 "
                '03:04:05 UTC: "driver upgrade")',
                "remedy": "if that is no longer needed, run `gpu-watchdog resume`",
            },
        ],
    }


def test_the_committed_page_is_current() -> None:
    """A finding that is added or reworded changes docs/doctor.md in the same commit."""
    committed = REFERENCE.read_text(encoding="utf-8")
    assert committed == doctor_reference(), "regenerate it with: python -m tools.doctor_reference"
    assert all(f"\n## `{check.name}`\n" in committed for check in CHECKS)
