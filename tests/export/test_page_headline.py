"""The first sentence of the status page: what an operator who was paged reads in five seconds."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.export.page_reader import WELL, action, seen
from tests.report.build import Story, busy, climbing, many_over, policy, quiet, trainer, trainer_node, with_breaker
from tests.worlds import at, gpu, rule, snapshot, step
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, MaintenanceStart, PodList
from watchdog.core.plan import CycleReport, StopNote
from watchdog.export.page_headline import Headline, headline
from watchdog.report.progress import Level
from watchdog.report.status import HealthStatus, Moment

HANGS = structs.replace(WELL, hangs_since=Moment(at(9).wall_s), last_cycle_ago_s=45.0)
LOST = Gap(
    reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=Problem("Unknown Error (code 999)", "create the pod anew")
)
BLIND = quiet(5, snapshot=trainer_node(4.0, 5, blind=True, gaps=(LOST,)))


def reported(report: CycleReport | None, **more: object) -> Headline:
    """The headline of a report."""
    return headline(seen(report, **more))


def early(uptime_s: float, *, turns: bool) -> HealthStatus:
    """The health before the first cycle."""
    return HealthStatus(version="1", uptime_s=uptime_s, hangs_since=None if turns else Moment(0))


@pytest.mark.parametrize(
    ("report", "more", "level", "state"),
    [
        (None, {"health": early(1, turns=True)}, "watch",
         "Starting: no cycle has completed yet, 1s after startup. Nothing is enforced."),
        (None, {"health": early(60, turns=False)}, "bad",
         "Hung: no cycle has completed yet, 1m after startup. Nothing is enforced."),
        (climbing(9), {"health": HANGS}, "bad", "Hung: the last cycle completed 45s ago. No new action is taken."),
        (BLIND, {"health": structs.replace(WELL, blind_since=Moment(at(3).wall_s))}, "bad",
         "Blind: NVML has not responded since 08:00:03 UTC. No new action is taken."),
        (quiet(maintenance="the node is upgraded"), {}, "watch",
         "Under maintenance: NVML is released and nothing is enforced."),
        (quiet(), {}, "good", "Enforcing. All pods are within limits."),
        (quiet(enforcing=False, policy=policy(mode="observe")), {}, "good",
         "Observing: no action is taken. All pods are within limits."),
        (quiet(assessments=()), {}, "good", "Enforcing. No pod uses or declares GPU memory."),
        (climbing(9), {}, "bad", "Enforcing. 1 pod over its limit: a/trainer, kill in 1s."),
        (climbing(9, under=policy(mode="observe")), {}, "watch",
         "Observing: no action is taken. 1 pod over its limit: a/trainer, would kill in 1s."),
        (busy(31, 65), {}, "bad", "Enforcing. 1 pod over its limit: a/trainer, being killed, SIGKILL in 4s."),
        (many_over(3, 4, 1), {}, "bad", "Enforcing. 2 pods over their limits. Most urgent: ns/pod-u1, kill now."),
        (quiet(40), {"recent": (action(),), "now_s": at(40).wall_s}, "watch",
         "Enforcing. a/trainer was killed 40s ago. All pods are within limits."),
        (quiet(40), {"recent": (action(result="failed", do="evict"), action()), "now_s": at(40).wall_s}, "watch",
         ("Enforcing. a/trainer: eviction failed, started 40s ago (2 in the last 15 minutes). "
          "All pods are within limits.")),
        (quiet(40), {"recent": (action(),), "now_s": at(1000).wall_s}, "good",
         "Enforcing. All pods are within limits."),
        (quiet(40), {"recent": (action(do="warn"), action(result="observed")), "now_s": at(40).wall_s}, "good",
         "Enforcing. All pods are within limits."),
        (quiet(snapshot=trainer_node(4.0, gpus=(gpu(0, up=False), gpu(1)))), {}, "bad",
         "Enforcing. GPU 0 is not responding. All pods are within limits."),
        (quiet(snapshot=trainer_node(4.0, gpus=tuple(gpu(n, up=False) for n in range(5)))), {}, "bad",
         "Enforcing. GPU 0, GPU 1, GPU 2 and 2 more are not responding. All pods are within limits."),
        (quiet(snapshot=trainer_node(4.0, gpus=(gpu(0, listed=False), gpu(1)))), {}, "watch",
         "Enforcing. What runs on GPU 0 is not known. No pod is known to be over its limit."),
        (Story().see(snapshot(gpus=(gpu(0, listed=False), gpu(1)))), {}, "watch",
         ("Enforcing. What runs on GPU 0 is not known. No pod is known to be over its limit; "
          "1 account could not be checked.")),
        (quiet(assessments=(), snapshot=trainer_node(4.0, gpus=(gpu(0), gpu(1)), unseen=frozenset({"GPU-1"}))), {},
         "watch", "Enforcing. What runs on GPU 1 is not known. No pod declares GPU memory or is known to use any."),
        (Story().see(trainer_node(None)), {}, "watch",
         "Enforcing. No pod is known to be over its limit; 1 account could not be checked."),
        (quiet(pods=PodList(pods=(trainer(),), synced=at(-300))), {}, "bad",
         ("The pod list is out of date, last updated at 07:55:00 UTC: timers are paused, and no pod is killed "
          "or evicted.")),
        (quiet(pods=PodList()), {}, "bad",
         "The pod list has not been read yet: timers are paused, and no pod is killed or evicted."),
        (quiet(suspended=("stop_file",), enforcing=False), {"remedies": {"stop_file": "remove it"}}, "bad",
         "Enforcement is suspended: a stop file exists on the node."),
    ],
)  # fmt: skip
def test_one_sentence_says_how_things_are(
    report: CycleReport | None, more: dict[str, object], level: str, state: str
) -> None:
    """In every state the reader learns first whether anything is enforced, and which pod is next; and the colour."""
    found = reported(report, **more)
    assert (found.state, found.level) == (state, Level(level))


def test_maintenance_has_its_label_and_its_beginning() -> None:
    """Point 41: what says so, since when, and what to do if it does not end."""
    start = MaintenanceStart(at=at(0), seen=True)
    report = quiet(60, maintenance="the label is pending", maintenance_start=start, suspended=("maintenance",))
    head = reported(report, remedies={"maintenance": "look who set it"})
    assert head.rest == "The label is pending, since 08:00:00 UTC."
    assert head.remedy == "look who set it"


def test_whatever_is_wrong_with_the_watchdog_has_its_remedy() -> None:
    """An operator paged for a watchdog that does not enforce reads what to do, in the next line."""
    assert reported(climbing(9), health=HANGS).remedy.startswith("check the driver on the node: nvidia-smi")
    blind = reported(BLIND)
    assert (blind.rest, blind.remedy) == ("NVML error: Unknown Error (code 999).", "create the pod anew")
    suspended = quiet(
        suspended=("stop_file", "lock", "new_one"), enforcing=False, stops=(StopNote(switch="stop_file"),)
    )
    assert reported(suspended, remedies={"stop_file": "not this", "lock": "stop the other one"}).remedy == (
        "find out who stopped enforcement here, and why, before you resume it: the command is below; stop the other "
        "one; wait a few seconds; if this does not change, read the watchdog's log"
    )
    gap = Gap(reason=GapReason.PODS, what="pods", problem=Problem("refused", "give it the right to list pods"))
    old = quiet(pods=PodList(pods=(trainer(),), synced=at(-300), gaps=(gap,)))
    assert reported(old).state.endswith("no pod is killed or evicted. Cause: refused.")
    assert reported(old).remedy == "give it the right to list pods"
    assert reported(quiet()).remedy == ""


@pytest.mark.parametrize(
    ("api", "remedy"), [(None, "check that whatever writes"), ("refused", "run `gpu-watchdog doc")]
)
def test_the_text_of_a_gap_is_no_remedy(api: str | None, remedy: str) -> None:
    """Where a gap has no remedy of its own, "What to do" has one all the same, and the cause is elsewhere."""
    gap = Gap(reason=GapReason.PODS, what="pods", problem=Problem("what was read before is used: no answer"))
    old = quiet(pods=PodList(pods=(trainer(),), synced=at(-300), gaps=(gap,)))
    found = reported(old, health=structs.replace(WELL, api=api))
    assert found.remedy.startswith(remedy)
    assert found.state.endswith(" Cause: what was read before is used: no answer.")


def test_why_enforcement_was_stopped_is_the_first_thing_to_read() -> None:
    """The reason that `stop --why` has noted is in the headline; the reader needs not find out what it says."""
    stop = StopNote(switch="stop_file", why="driver upgrade", by="root at 2026-01-02 03:04:05 UTC")
    found = reported(quiet(suspended=("stop_file",), enforcing=False, stops=(stop,)))
    assert found.state == (
        "Enforcement is suspended: a stop file exists on the node. Stopped by root at 2026-01-02 03:04:05 UTC: "
        '"driver upgrade".'
    )
    assert found.remedy == "if that is no longer needed, resume enforcement: the command is below"


def test_what_is_wrong_with_the_watchdog_comes_before_who_is_over() -> None:
    """An enforcement that is suspended is the first thing to read; who is over is in the second line."""
    found = reported(replace(climbing(9), enforcing=False, suspended=("lock",)))
    assert found.state == "Enforcement is suspended: another watchdog may hold the lock."
    assert found.rest == "1 pod over its limit: a/trainer, would kill in 1s."


def test_an_open_breaker_is_reported_beside_it() -> None:
    """An open breaker is no state of its own: it is why no action is taken although many are over."""
    assert reported(with_breaker(70, 10)).rest == (
        "The breaker has been open since 08:00:10 UTC, because so many workloads were over their limits at once: "
        "no pod is killed or evicted until 08:10:10 UTC, then one workload at a time."
    )
    assert reported(with_breaker(700, 10)).rest.endswith("at once: one workload at a time is killed or evicted.")
    assert reported(with_breaker(70, 10)).level is Level.WATCH
    observed = replace(with_breaker(70, 10), enforcing=False)
    assert "at once: no pod would be killed or evicted until 08:10:10 UTC, then" in reported(observed).rest


def test_a_pod_that_is_named_already_is_not_named_twice() -> None:
    """A recent kill of a pod that is over again adds nothing to the first sentence."""
    found = reported(climbing(9), recent=(action(),))
    assert (found.state, found.rest) == ("Enforcing. 1 pod over its limit: a/trainer, kill in 1s.", "")


def test_a_pod_above_a_lower_threshold_is_not_called_over() -> None:
    """A warning can have a threshold below what is allowed."""
    early_warning = policy(rule(step("50%", 30, "warn"), step("110%", 10), name="notebooks"))
    found = reported(Story(under=early_warning).run(8.0, 9))
    assert found.state == "Enforcing. 1 pod above a threshold: a/trainer, warning in 21s."


def test_long_names_do_not_fill_a_phone() -> None:
    """In big letters a name has 63 characters at most."""
    long = trainer(namespace="n" * 253, name="p" * 253)
    assert len(reported(Story(pods=(long,)).run(12.4, 9)).state) < 140
