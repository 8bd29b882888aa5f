"""The log: one line for each decision, nothing at rest."""

import errno
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import structlog

from tests.export.build import (
    ReportLog,
    Story,
    climbing,
    entry,
    hostile_pod,
    killed,
    outcome,
    policy,
    quiet,
    trainer,
    withheld,
)
from tests.export.occurrences import misdeclaring
from tests.worlds import at, process, snapshot, use
from watchdog.core.assessment import MOST_MISDECLARED
from watchdog.core.brakes import Begun, Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Brakes, Breaker
from watchdog.export.endpoints import Endpoints
from watchdog.export.log import Log, configure
from watchdog.export.metrics import Metrics
from watchdog.report.changes import ChangeKind, Changes
from watchdog.report.status import decode, encode
from watchdog.report.status_build import changes_status
from watchdog.report.text import rfc3339

GAP = Gap(reason=GapReason.GPU_LOST, what="GPU-1", problem=Problem("the card fell off the bus"))


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines, read as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def news(*reports: CycleReport) -> list[str]:
    """The events of reports, one after the other."""
    told = Changes()
    return [item.event.value for report in reports for item in told.since(report)]


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


def test_the_status_has_the_last_lines_of_the_log(stream: io.StringIO) -> None:
    """Who can't read the log finds in /api/status what it said last, newest first, in the same words and fields."""
    endpoints, log, changes = Endpoints(Metrics(), 1.0), Log(), Changes()
    reports = [quiet(0), *(quiet(second, outcomes=(killed(release_s=2.0),)) for second in range(1, 9))]
    for report in [*reports, replace(quiet(9), snapshot=replace(quiet(9).snapshot, gaps=(GAP,)))]:
        shown = changes_status(changes.since(report))
        endpoints.publish(report, shown)
        log.log_changes(shown)
    told = decode(gzip.decompress(endpoints.status() or b"")).changes
    assert len(told) == 20
    for change, line in zip(told, reversed(lines(stream)), strict=False):
        fields = json.loads(json.dumps(encode(change)))
        assert rfc3339(change.at) == fields.pop("at")
        assert fields == {key: value for key, value in line.items() if key not in ("timestamp", "level")}


def test_at_rest_nothing_is_said(stream: io.StringIO) -> None:
    """A quiet node has a quiet log: the policy once, then nothing."""
    log = ReportLog()
    for second in range(50):
        log.log_report(quiet(second))
    assert [line["event"] for line in lines(stream)] == ["policy_loaded"]


@pytest.mark.parametrize(
    ("made", "event"),
    [
        (outcome(entry(climbing(5), "warn")), "warned"),
        (outcome(result=Result.OBSERVED), "would_act"),
        (outcome(entry(climbing(5), "warn"), Result.OBSERVED), "would_act"),
        (outcome(result=Result.FAILED), "kill_ended"),
        (outcome(result=Result.INTERRUPTED), "kill_ended"),
    ],
)
def test_each_outcome_has_its_event(made: Outcome, event: str) -> None:
    """A search for an event's name finds all of its kind and nothing else."""
    assert news(quiet(0), quiet(1, outcomes=(made,))) == ["policy_loaded", event]


def test_a_declaration_reported_while_observing_is_not_logged_again(stream: io.StringIO) -> None:
    """When enforcement begins its owner gets an Event; log and journal have had it since it was first seen."""
    log, seen = ReportLog(), misdeclaring("900 GB")
    for report in (replace(seen, enforcing=False), seen, seen):
        log.log_report(report)
    assert [line["event"] for line in lines(stream)].count("misdeclared") == 1


def test_a_release_is_an_event_of_its_own() -> None:
    """The end of a kill and the memory's return are two things to look for; what its owner should read comes last."""
    begins = quiet(0, began=(killed(),))
    assert news(begins, quiet(1, outcomes=(killed(),)))[2:] == ["kill_ended", "explained"]
    assert news(begins, quiet(1, outcomes=(killed(release_s=2.0),)))[2:] == ["kill_ended", "released", "explained"]
    assert news(quiet(1, outcomes=(killed(),)))[1:] == ["kill_begun", "kill_ended", "explained"], "both at once"


def test_the_explanation_is_for_the_journal_alone(stream: io.StringIO) -> None:
    """The log has the decision in short; the long text would stand there twice."""
    ReportLog().log_report(quiet(1, outcomes=(killed(),)))
    assert [line["event"] for line in lines(stream)] == ["policy_loaded", "kill_begun", "kill_ended"]


def test_a_withheld_step_is_told_once(stream: io.StringIO) -> None:
    """Point 29: a withholding is reported once an incident and brake: only what the plan marks as news."""
    log = ReportLog()
    first = climbing()
    held = withheld(Brake.PROTECTED)
    log.log_report(replace(first, plan=replace(first.plan, entries=(held,))))
    log.log_report(replace(first, plan=replace(first.plan, entries=(replace(held, is_new=False),))))
    told = [line for line in lines(stream) if line["event"] == "withheld"]
    assert [(line["brake"], line["action"], line["pod"]) for line in told] == [("protected", "kill", "trainer")]


def with_gaps(second: float, *gaps: Gap) -> CycleReport:
    """A quiet pass with these gaps."""
    report = quiet(second)
    return replace(report, snapshot=replace(report.snapshot, gaps=gaps))


def test_a_gap_that_flaps_is_one_gap() -> None:
    """A gap is told when it begins, and its end once it has stayed away, however often it flickers."""
    flapping = [with_gaps(second, *((GAP,) if second % 2 else ())) for second in range(20)]
    calm = [quiet(second) for second in range(20, 40)]
    assert news(*flapping, *calm) == ["policy_loaded", "gap_began", "gap_ended"]


def test_a_gap_is_told_again_when_its_remedy_is_known() -> None:
    """That something has not come yet is told at once, why it does not come as soon as that is known; each once."""
    early, known = (
        replace(GAP, problem=Problem("it has not come yet")),
        replace(GAP, problem=Problem("Connection refused", "look at it")),
    )
    assert news(with_gaps(0, early), with_gaps(1, early)) == ["policy_loaded", "gap_began"]
    flapping = [with_gaps(second, early if second % 3 else known) for second in range(1, 20)]
    assert news(*flapping) == ["policy_loaded", "gap_began", "gap_began"]
    assert news(with_gaps(0, known), with_gaps(1, early), with_gaps(2, known)) == ["policy_loaded", "gap_began"]


def test_many_gaps_of_one_kind_do_not_flood_the_log() -> None:
    """Gaps that carry PIDs can be new at every cycle; of one kind only so many are told at a time."""
    storm = [
        with_gaps(second, *(replace(GAP, what=f"process {second}{number}") for number in range(50)))
        for second in range(20)
    ]
    assert 10 <= news(*storm).count("gap_began") <= 20


def test_a_misdeclaration_is_told_once_a_pod() -> None:
    """A skipped declaration is told when it is first seen, and again for another pod or another mistake."""
    spoiled = replace(trainer().containers[0], resources={"veriff.com/gpu-memory": "8 GB"})
    seen = snapshot([use(101, 1)], [process(101, "u1/main")])
    first = Story(pods=(trainer(containers=(spoiled,)),)).see(seen)
    other = Story(pods=(trainer(uid="u2", containers=(spoiled,)),)).see(seen)
    assert news(first, first, other, other) == ["policy_loaded", "misdeclared", "misdeclared"]


def test_misdeclarations_without_end_do_not_flood_the_log() -> None:
    """Whoever may annotate a pod could write another mistake each second; of one pod only so many are told."""
    assert news(*(misdeclaring(f"{number} GB") for number in range(MOST_MISDECLARED + 8))).count("misdeclared") == (
        MOST_MISDECLARED
    )


def test_suspension_and_its_end(stream: io.StringIO) -> None:
    """Why a daemon that was told to enforce does not, and when it does again, is told with the remedy."""
    log = ReportLog({"lock": "another watchdog holds the lock"})
    log.log_report(quiet(0, suspended=("lock", "journal"), enforcing=False))
    log.log_report(quiet(1, suspended=("journal",), enforcing=False))
    log.log_report(quiet(2))
    told = [(line["event"], line["reason"], line["message"]) for line in lines(stream) if "reason" in line]
    assert told == [
        ("suspended", "journal", "Enforcement is suspended: journal."),
        ("suspended", "lock", "Enforcement is suspended: another watchdog holds the lock."),
        ("resumed", "lock", "Reason for suspension resolved: lock. Still not enforcing."),
        ("resumed", "journal", "Reason for suspension resolved: journal. Enforcing again."),
    ]


@pytest.mark.parametrize(("by_file", "until"), [(False, "the API server answers again"), (True, "it is written again")])
def test_an_old_pod_list_is_told_once_each_way(by_file: bool, until: str) -> None:
    """That force stops because nobody vouches for the pods is a line of its own, and so is that it is over."""
    told = Changes()
    listed = replace(quiet().pods, by_file=by_file)
    reports = [quiet(second, pods=replace(listed, synced=at(0))) for second in (0, 180, 181, 182, 440)]
    reports += [quiet(second, pods=replace(listed, synced=at(second))) for second in (441, 442)]
    items = [item for report in reports for item in told.since(report) if item.event is not ChangeKind.POLICY_LOADED]
    assert [(item.event.value, item.at.boottime_s - at(0).boottime_s, item.sentence) for item in items] == [
        (
            "pods_stale",
            181,
            f"The pod list is older than 3m: timers are paused and no action is taken until {until}.",
        ),
        ("pods_fresh", 441, "The pod list is up to date again and timers run. It was too old for 4m 20s."),
    ]


def test_a_pod_list_that_has_never_come_is_not_called_old() -> None:
    """At a start the gaps say what has not come yet; there is nothing that has grown old."""
    assert news(*(quiet(second, pods=PodList()) for second in (0, 300)), quiet(301)) == ["policy_loaded"]


def test_an_old_pod_list_is_a_warning(stream: io.StringIO) -> None:
    """Whoever filters the log by its level finds that nobody is acted on any more."""
    log = ReportLog()
    log.log_report(quiet(181, pods=replace(quiet().pods, synced=at(0))))
    log.log_report(quiet(182))
    assert [(line["event"], line["level"]) for line in lines(stream)[1:]] == [
        ("pods_stale", "warning"),
        ("pods_fresh", "info"),
    ]


def test_a_reloaded_policy_is_told(stream: io.StringIO) -> None:
    """Each change of the policy is a line with its hash; the same policy again is none."""
    log = ReportLog()
    log.log_report(quiet(0))
    log.log_report(quiet(1, policy=policy(sha256="cd" * 32, mode="observe")))
    log.log_report(quiet(2, policy=policy(sha256="cd" * 32, mode="observe")))
    assert [(line["event"], line["sha256"]) for line in lines(stream)] == [
        ("policy_loaded", "ab" * 32),
        ("policy_loaded", "cd" * 32),
    ]
    assert lines(stream)[1]["message"] == ("Policy /etc/gpu-watchdog/policy.toml is in effect: mode observe, 1 rule.")


def test_the_daemons_own_life(stream: io.StringIO) -> None:
    """Start, stop and a refused policy are lines of the same form."""
    log = ReportLog()
    log.write(ChangeKind.STARTED, "gpu-watchdog 0.1.0 on n1", node="n1")
    log.write(ChangeKind.POLICY_REFUSED, "policy.toml: rule[0].step: is missing")
    log.error("the journal is damaged")
    assert [(line["event"], line["level"]) for line in lines(stream)] == [
        ("started", "info"), ("policy_refused", "error"), ("error", "error"),
    ]  # fmt: skip


def with_breaker(second: float, opened: float | None, **more: object) -> CycleReport:
    """A quiet pass with a breaker that was opened at this second."""
    report = quiet(second, policy=policy(brakes=Brakes(breaker=Breaker(hold_s=600))), **more)
    begun = Begun(at(opened).boottime_s) if opened is not None else None
    ledger = replace(report.plan.ledger, brakes=replace(report.plan.ledger.brakes, opened=begun))
    return replace(report, plan=replace(report.plan, ledger=ledger))


def test_a_breaker_that_was_open_before_is_still_open(stream: io.StringIO) -> None:
    """A daemon that finds it open in the journal says since when and until when, and counts nobody for it."""
    ReportLog().log_report(with_breaker(60, 10))
    line = lines(stream)[1]
    assert (line["event"], line["level"]) == ("breaker_opened", "warning")
    assert line["message"].startswith("The breaker has been open since 08:00:10 UTC: no pod is killed or evicted until")
    assert (
        "evicted until 08:10:10 UTC, then one workload is killed or evicted every 10m until fewer are over"
        in line["message"]
    )
    ReportLog().log_report(with_breaker(700, 10))
    assert "since 08:00:10 UTC: one workload is killed or evicted every 10m" in lines(stream)[-1]["message"]


def test_a_breaker_that_opens_now_and_closes(stream: io.StringIO) -> None:
    """It is told once each time, and once more where another life of the daemon has opened it meanwhile."""
    log = ReportLog()
    for report in (with_breaker(1, None), with_breaker(2, 2), with_breaker(3, 2), with_breaker(4, None)):
        log.log_report(report)
    told = [line["message"] for line in lines(stream) if line["event"].startswith("breaker")]
    assert [text.partition(".")[0] for text in told] == [
        "The breaker is open (it opens at 50% of at least 3)",
        "The breaker has closed: it no longer holds back kills and evictions",
    ]


def test_a_kill_that_ended_half_way_is_explained_too() -> None:
    """Interrupted and failed kills have the record for the owner; what never began, or was only observed, has none."""
    for result in (Result.INTERRUPTED, Result.FAILED):
        ended = quiet(1, outcomes=(killed(result=result),))
        assert news(quiet(0, began=(killed(),)), ended)[2:] == ["kill_ended", "explained"]
    assert news(quiet(0), quiet(1, outcomes=(outcome(result=Result.GONE),)))[1:] == ["kill_ended"]


def hostile_report() -> CycleReport:
    """A report in which every name is hostile."""
    seen = snapshot([use(5, 2 * 2**30)], [process(5, "evil/c\x07\r", name="\x1b]0;x")], second=3)
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


def test_on_a_terminal_it_is_for_eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the lines are for eyes, plain where NO_COLOR is set; hostile names stay inert there too."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure(stream)
    ReportLog().log_report(hostile_report())
    structlog.reset_defaults()
    text = stream.getvalue()
    assert "kill_ended" in text
    assert not text.startswith("{")
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == 2


def test_on_a_terminal_the_sentence_comes_first() -> None:
    """Whoever watches reads the sentence, and beside it only what it does not say."""
    stream = Terminal()
    configure(stream)
    ReportLog().log_report(quiet(1, began=(killed(reaction_s=0.5),)))
    ReportLog().warn("look at this")
    ReportLog().crash(ValueError("x"), 0.0)
    structlog.reset_defaults()
    first, second, third, fourth = stream.getvalue().splitlines()[:4]
    assert " policy_loaded  Policy /etc/gpu-watchdog/policy.toml is in effect: mode enforce, 1 rule." in first
    assert "Pod a/trainer used 12.4Gi" in second
    assert second.endswith(" (action_id=1 pids=101,102,103 reaction_s=0.5)")
    assert "namespace" not in second
    assert third.endswith("look at this")
    assert "please report this: ValueError('x')" in fourth
    assert "ValueError: x" in stream.getvalue().splitlines()[-1]


class Broken(io.StringIO):
    """A stream whose reader has gone, or whose disk is full."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_nobody_takes_does_not_end_the_daemon() -> None:
    """A full disk or a closed stderr costs lines, not the loop."""
    configure(Broken())
    ReportLog().log_report(quiet(0))
    closed = io.StringIO()
    configure(closed)
    closed.close()
    ReportLog().log_report(quiet(0))
    structlog.reset_defaults()


def test_a_deed_interrupted_by_a_new_policy_is_told_with_its_reason(stream: io.StringIO) -> None:
    """Whoever looks for why a kill stopped half-way finds the reason in the line."""
    ReportLog().log_report(quiet(1, outcomes=(killed(),)))
    ReportLog().log_report(
        quiet(2, outcomes=(outcome(result=Result.INTERRUPTED, reason="enforcement was withdrawn", at=at(2)),))
    )
    assert lines(stream)[-1]["reason"] == "enforcement was withdrawn"
