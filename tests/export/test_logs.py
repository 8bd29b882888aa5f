"""The log: one line for each decision, nothing at rest."""

import errno
import gzip
import io
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.report.build import (
    ReportLog,
    Story,
    climbing,
    entry,
    hostile_pod,
    killed,
    outcome,
    policy,
    quiet,
    with_breaker,
    withheld,
)
from tests.report.notes import misdeclaring
from tests.worlds import Gi, at, process, snapshot, use
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport, Result
from watchdog.export.endpoints import Endpoints
from watchdog.export.log import Log, configure
from watchdog.report.changes import ChangeKind, Changes
from watchdog.report.status import decode, encode
from watchdog.report.status_build import changes_status
from watchdog.report.text import rfc3339

GAP = Gap(reason=GapReason.GPU_LOST, what="GPU-1", problem=Problem("the card fell off the bus"))


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines, read as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def news(*reports: CycleReport) -> list[str]:
    """The events of reports, one after the other, without that of the policy at the beginning."""
    changes = Changes()
    loaded, *found = [item.event.value for report in reports for item in changes.since(report)]
    assert loaded == "policy_loaded"
    return found


def test_a_line_has_what_a_search_needs(stream: io.StringIO) -> None:
    """A decision's line has the event's name, the labels as the metrics have them, the numbers and the sentence."""
    ReportLog().log_report(quiet(1, began=(killed(reaction_s=0.0123456),)))
    line = lines(stream)[1]
    assert datetime.fromisoformat(line.pop("timestamp")).utcoffset() is not None
    assert "SIGTERM" in line.pop("message")
    assert line == {
        "event": "kill_begun", "level": "warning", "namespace": "a", "pod": "trainer", "uid": "u1", "container": "main",
        "gpu": "", "rule": "notebooks", "used": 13314398617, "declared": 8589934592, "allowed": 10909216931,
        "action": "kill", "step": 1, "action_id": 1, "pids": [101, 102, 103], "reaction_s": 0.012,
    }  # fmt: skip
    interrupted = outcome(result=Result.INTERRUPTED, reason="enforcement was withdrawn", at=at(2))
    ReportLog().log_report(quiet(2, outcomes=(interrupted,)))
    ended = lines(stream)[-1]
    assert (ended["result"], ended["reason"]) == ("interrupted", "enforcement was withdrawn")


def test_the_status_has_the_last_lines_of_the_log(stream: io.StringIO, endpoints: Endpoints) -> None:
    """Who can't read the log finds its last lines in /api/status, newest first, in the same words and fields."""
    log, changes = Log(), Changes()
    reports = [quiet(0), *(quiet(second, outcomes=(killed(release_s=2.0),)) for second in range(1, 9))]
    for report in [*reports, with_gaps(9, GAP)]:
        shown = changes_status(changes.since(report))
        endpoints.publish(report, shown)
        log.log_changes(shown)
    found = decode(gzip.decompress(endpoints.status() or b"")).changes
    assert len(found) == 20
    for change, line in zip(found, reversed(lines(stream)), strict=False):
        fields = json.loads(json.dumps(encode(change)))
        assert rfc3339(change.at) == fields.pop("at")
        assert fields == {key: value for key, value in line.items() if key not in ("timestamp", "level")}


BEGAN = quiet(0, began=(killed(),))
WARNED = entry(climbing(5), "warn")


@pytest.mark.parametrize(
    ("reports", "events"),
    [
        ([quiet(second) for second in range(50)], []),
        ([quiet(1, outcomes=(outcome(WARNED),))], ["warned"]),
        ([quiet(1, outcomes=(outcome(result=Result.OBSERVED),))], ["would_act"]),
        ([quiet(1, outcomes=(outcome(WARNED, Result.OBSERVED),))], ["would_act"]),
        ([quiet(1, outcomes=(outcome(result=Result.GONE),))], ["kill_ended"]),
        ([quiet(1, outcomes=(replace(outcome(result=Result.WITHDRAWN), number=1),))], ["kill_ended"]),
        ([BEGAN, quiet(1, outcomes=(killed(),))], ["kill_begun", "kill_ended", "explained"]),
        ([quiet(1, outcomes=(killed(),))], ["kill_begun", "kill_ended", "explained"]),
        ([BEGAN, quiet(1, outcomes=(killed(release_s=2.0),))], ["kill_begun", "kill_ended", "released", "explained"]),
        *(([BEGAN, quiet(1, outcomes=(killed(result=result),))], ["kill_begun", "kill_ended", "explained"])
          for result in (Result.INTERRUPTED, Result.FAILED)),
    ],
)  # fmt: skip
def test_each_occurrence_has_its_event(reports: list[CycleReport], events: list[str]) -> None:
    """A search for an event's name finds all of its kind and nothing else; what never began has no explanation."""
    assert news(*reports) == events


def test_the_explanation_is_for_the_journal_alone(stream: io.StringIO) -> None:
    """The log has the decision in short; the long text would be there twice."""
    ReportLog().log_report(quiet(1, outcomes=(killed(),)))
    assert [line["event"] for line in lines(stream)] == ["policy_loaded", "kill_begun", "kill_ended"]


def test_a_declaration_reported_while_observing_is_not_logged_again(stream: io.StringIO) -> None:
    """When enforcement begins its owner gets an Event; log and journal have had it since it was first seen."""
    log, seen = ReportLog(), misdeclaring("900 GB")
    for report in (replace(seen, enforcing=False), seen, seen):
        log.log_report(report)
    assert [line["event"] for line in lines(stream)].count("misdeclared") == 1


def test_a_withheld_step_is_logged_once(stream: io.StringIO) -> None:
    """Point 29: a withholding is reported once per incident and brake: only what the plan marks as new."""
    log, first, held = ReportLog(), climbing(), withheld(Brake.PROTECTED)
    for each in (held, replace(held, is_new=False)):
        log.log_report(replace(first, plan=replace(first.plan, entries=(each,))))
    found = [line for line in lines(stream) if line["event"] == "withheld"]
    assert [(line["brake"], line["action"], line["pod"]) for line in found] == [("protected", "kill", "trainer")]


def with_gaps(second: float, *gaps: Gap) -> CycleReport:
    """A quiet cycle with these gaps."""
    report = quiet(second)
    return replace(report, snapshot=replace(report.snapshot, gaps=gaps))


def test_a_gap_that_flaps_is_one_gap() -> None:
    """A gap is reported when it begins, and its end once it has stayed away, however often it flickers."""
    flapping = [with_gaps(second, *((GAP,) if second % 2 else ())) for second in range(20)]
    assert news(*flapping, *(quiet(second) for second in range(20, 40))) == ["gap_began", "gap_ended"]


def test_a_gap_is_reported_again_when_its_remedy_is_known() -> None:
    """That something has not come yet is reported at once, why it does not come once that is known; each once."""
    early = replace(GAP, problem=Problem("it has not come yet"))
    known = replace(GAP, problem=Problem("Connection refused", "look at it"))
    assert news(with_gaps(0, early), with_gaps(1, early)) == ["gap_began"]
    flapping = [with_gaps(second, early if second % 3 else known) for second in range(1, 20)]
    assert news(*flapping) == ["gap_began", "gap_began"]
    assert news(with_gaps(0, known), with_gaps(1, early), with_gaps(2, known)) == ["gap_began"]


def test_suspension_and_its_end(stream: io.StringIO) -> None:
    """Why a daemon that is set to enforce does not, and when it does again, has a line with the remedy."""
    log = ReportLog({"lock": "another watchdog holds the lock"})
    log.log_report(quiet(0, suspended=("lock", "journal"), enforcing=False))
    log.log_report(quiet(1, suspended=("journal",), enforcing=False))
    log.log_report(quiet(2))
    found = [(line["event"], line["reason"], line["message"]) for line in lines(stream) if "reason" in line]
    assert found == [
        ("suspended", "journal", "Enforcement is suspended: journal."),
        ("suspended", "lock", "Enforcement is suspended: another watchdog holds the lock."),
        ("resumed", "lock", "Reason for suspension resolved: lock. Still not enforcing."),
        ("resumed", "journal", "Reason for suspension resolved: journal. Enforcing again."),
    ]


@pytest.mark.parametrize(("by_file", "until"), [(False, "the API server answers again"), (True, "it is written again")])
def test_an_old_pod_list_is_reported_once_each_way(by_file: bool, until: str) -> None:
    """That enforcement stops because nothing vouches for the pods has a line of its own, and so has its end."""
    changes, listed = Changes(), replace(quiet().pods, by_file=by_file)
    reports = [quiet(second, pods=replace(listed, synced=at(0))) for second in (0, 180, 181, 182, 440)]
    reports += [quiet(second, pods=replace(listed, synced=at(second))) for second in (441, 442)]
    _, *items = [item for report in reports for item in changes.since(report)]
    assert [(item.event.value, item.at.boottime_s - at(0).boottime_s, item.sentence) for item in items] == [
        ("pods_stale", 181,
         f"The pod list is older than 3m: timers are paused and no action is taken until {until}."),
        ("pods_fresh", 441, "The pod list is up to date again and timers run. It was too old for 4m 20s."),
    ]  # fmt: skip


def test_a_pod_list_that_has_never_come_is_not_called_old() -> None:
    """At a start the gaps say what has not come yet; there is nothing that has grown old."""
    assert news(*(quiet(second, pods=PodList()) for second in (0, 300)), quiet(301)) == []


def test_a_reloaded_policy_is_logged(stream: io.StringIO) -> None:
    """Each change of the policy is a line with its hash; the same policy again is none."""
    log, other = ReportLog(), policy(sha256="cd" * 32, mode="observe")
    for report in (quiet(0), quiet(1, policy=other), quiet(2, policy=other)):
        log.log_report(report)
    assert [(line["sha256"], line["message"]) for line in lines(stream)] == [
        (sha256, f"Policy /etc/gpu-watchdog/policy.toml is in effect: mode {mode}, 1 rule.")
        for sha256, mode in (("ab" * 32, "enforce"), ("cd" * 32, "observe"))
    ]


def test_each_line_has_its_level(stream: io.StringIO) -> None:
    """A log filtered by level shows what went wrong, and that no action is taken any more."""
    log = ReportLog()
    log.write(ChangeKind.STARTED, "gpu-watchdog 0.1.0 on n1", node="n1")
    log.write(ChangeKind.POLICY_REFUSED, "policy.toml: rule[0].step: is missing")
    log.error("the journal is damaged")
    log.log_report(quiet(181, pods=replace(quiet().pods, synced=at(0))))
    log.log_report(with_breaker(182, 182))
    assert [(line["event"], line["level"]) for line in lines(stream) if line["event"] != "policy_loaded"] == [
        ("started", "info"), ("policy_refused", "error"), ("error", "error"), ("pods_stale", "warning"),
        ("pods_fresh", "info"), ("breaker_opened", "warning"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("second", "enforcing", "says"),
    [
        (60, True, "no pod is killed or evicted until 08:10:10 UTC, then one workload is killed or evicted every 10m"),
        (700, True, "one workload is killed or evicted every 10m"),
        (700, False, "one workload would be killed or evicted every 10m"),
    ],
)
def test_a_breaker_that_was_open_before_is_still_open(
    stream: io.StringIO, second: int, enforcing: bool, says: str
) -> None:
    """A daemon that finds it open in the journal says since when and until when, and counts nothing for it."""
    ReportLog().log_report(replace(with_breaker(second, 10), enforcing=enforcing))
    assert lines(stream)[1]["message"].startswith(f"The breaker has been open since 08:00:10 UTC: {says} until fewer")


def test_a_breaker_that_opens_now_and_closes(stream: io.StringIO) -> None:
    """It is reported once each time."""
    log = ReportLog()
    for report in (with_breaker(1, None), with_breaker(2, 2), with_breaker(3, 2), with_breaker(4, None)):
        log.log_report(report)
    assert [line["message"].partition(".")[0] for line in lines(stream)[1:]] == [
        "The breaker is open (it opens at 50% of at least 3)",
        "The breaker has closed: it no longer withholds kills and evictions",
    ]


def hostile_report() -> CycleReport:
    """A report in which every name is hostile."""
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x")], second=3)
    report = Story(pods=(hostile_pod(name="p\u2028\u202e\x1b[31m\n{}\udc80"),), under=policy()).see(seen)
    made = replace(entry(), assessment=report.assessments[0], victim="c\x07\r")
    return replace(report, outcomes=(outcome(made, reason="\x1b[2J\n"),))


def test_hostile_names_stay_in_their_line(stream: io.StringIO) -> None:
    """A name with line breaks or escape sequences neither makes a line of its own nor speaks to a terminal."""
    ReportLog().log_report(hostile_report())
    text = stream.getvalue()
    assert text.count("\n") == len(lines(stream)) == 2
    assert all(line.isprintable() for line in text.splitlines())
    assert text.encode()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("stream")  # which undoes what is configured
def test_on_a_terminal_it_is_for_eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the lines are for eyes, plain where NO_COLOR is set; hostile names stay inert there too."""
    monkeypatch.setenv("NO_COLOR", "1")
    configure(terminal := Terminal())
    ReportLog().log_report(hostile_report())
    found = terminal.getvalue().splitlines()
    assert "kill_ended" in found[1]
    assert len(found) == 2
    assert all(line.isprintable() and not line.startswith("{") for line in found)


@pytest.mark.usefixtures("stream")
def test_on_a_terminal_the_sentence_comes_first() -> None:
    """A reader sees the sentence first, and beside it only what it does not say."""
    configure(terminal := Terminal())
    ReportLog().log_report(quiet(1, began=(killed(reaction_s=0.5),)))
    ReportLog().warn("look at this")
    ReportLog().crash(ValueError("x"), 0.0)
    first, second, third, fourth, *rest = terminal.getvalue().splitlines()
    assert " policy_loaded  Policy /etc/gpu-watchdog/policy.toml is in effect: " in first
    assert "Pod a/trainer used 12.4Gi" in second
    assert second.endswith(" (action_id=1 pids=101,102,103 reaction_s=0.5)")
    assert "namespace" not in second
    assert third.endswith("look at this")
    assert "please report this: ValueError('x')" in fourth
    assert "ValueError: x" in rest[-1]


class Broken(io.StringIO):
    """A stream whose reader has gone, or whose disk is full."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("stream")
def test_a_log_that_can_not_be_written_does_not_end_the_daemon() -> None:
    """A full disk or a closed stderr costs lines, not the loop."""
    configure(Broken())
    ReportLog().log_report(quiet(0))
    configure(closed := io.StringIO())
    closed.close()
    ReportLog().log_report(quiet(0))
