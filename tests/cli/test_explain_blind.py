"""`explain` by a daemon that can't see its node, or whose loop hangs: that comes first, with why and since when."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cli.explain_site import NOW_S, Site, write
from tests.report.build import Story, busy, climbing, quiet, trainer_node
from tests.worlds import at, gpu, snapshot
from watchdog.cli.client import to_run_inside
from watchdog.cli.explain import UnexplainedError, explain_pod
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Snapshot
from watchdog.core.plan import CycleReport

NO_DRIVER = "nvmlInit: Driver Not Loaded (code 9); load the NVIDIA kernel module on the host"
LOST = "nvmlDeviceGetHandleByUUID: GPU is lost (code 15); it fell off the bus: drain and reboot the node"
HANGS = "nvmlDeviceGetComputeRunningProcesses: Timeout (code 10); look for Xid in the kernel log"


def no_driver(second: float) -> Snapshot:
    """A cycle in which NVML does not answer, and the card is remembered."""
    gap = Gap(reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=Problem(NO_DRIVER))
    return snapshot(second=second, gpus=(gpu(up=False, used=None),), gaps=(gap,), blind=True)


def lost(second: float) -> Snapshot:
    """A cycle in which the one card of the trainer is lost."""
    card = gpu(up=False, used=None)
    gap = Gap(reason=GapReason.GPU_LOST, what=card.uuid, problem=Problem(LOST))
    return snapshot(second=second, gpus=(card,), gaps=(gap,), unseen=frozenset({card.uuid}))


def unlisted(second: float) -> Snapshot:
    """A cycle in which the card answers, and does not list its processes."""
    card = gpu()
    gap = Gap(reason=GapReason.PROCESSES, what=f"{card.uuid} processes", problem=Problem(HANGS))
    return snapshot(second=second, gpus=(card,), gaps=(gap,), unseen=frozenset({card.uuid}))


def blind(site: Site, *snapshots: Snapshot) -> None:
    """The daemon has had these cycles, after one in which all was well."""
    site.endpoints.publish(quiet(0))
    for each in snapshots:
        site.endpoints.publish(Story().see(each))


CASES = [
    (no_driver, "NVML has not responded since 08:00:05 UTC", NO_DRIVER),
    (lost, "GPU 0 (GPU-0) has not responded since 08:00:05 UTC", LOST),
    (unlisted, "The list of processes on GPU 0 is incomplete, since 08:00:05 UTC", HANGS),
]


@pytest.mark.parametrize(("made", "says", "why"), CASES)
def test_a_pod_that_is_not_seen_may_still_use_memory(
    site: Site, made: Callable[[float], Snapshot], says: str, why: str
) -> None:
    """For a pod that the daemon does not know: what it can't see, why and since when, then where the pod may be."""
    write(site.journal, quiet())
    blind(site, made(5), made(6))
    first, second, *rest = site.refusal("a/other").split("\n  ")
    assert first == "nothing is known about pod a/other"
    assert (says in second, why in second) == (True, True)
    assert "may still be here" in " ".join(rest)
    assert "neither uses" not in " ".join(rest)


@pytest.mark.parametrize(("made", "says", "why"), CASES[:2])
def test_what_is_not_seen_comes_before_the_pod_itself(
    site: Site, made: Callable[[float], Snapshot], says: str, why: str
) -> None:
    """The same for a pod that the daemon knows, with the reason once."""
    blind(site, made(5), made(6))
    text = site.text()
    assert says in text
    assert text.index(says) < text.index("currently unknown")
    assert text.count(why) == 1


def test_a_card_that_the_pod_does_not_use_is_not_its_concern(site: Site) -> None:
    """A pod whose use is known is explained as ever while another card is lost."""
    seen = trainer_node(4.0, 5)
    other = gpu(1, up=False, used=None)
    gap = Gap(reason=GapReason.GPU_LOST, what=other.uuid, problem=Problem(LOST))
    site.endpoints.publish(quiet(snapshot=replace(seen, gpus=(*seen.gpus, other), gaps=(gap,))))
    assert "not answered" not in site.text()


def test_once_it_sees_again_nothing_of_that_is_left(site: Site) -> None:
    """A later failure has its own beginning."""
    blind(site, no_driver(5))
    site.endpoints.publish(quiet(8))
    assert "not answered" not in site.text()
    site.endpoints.publish(Story().see(no_driver(9)))
    assert "NVML has not responded since 08:00:09 UTC" in site.text()


def test_before_the_first_cycle_nothing_is_known_yet(site: Site) -> None:
    """A daemon that has just started is not one that is away."""
    first, second, *_ = site.refusal().split("\n  ")
    assert first == "nothing is known about pod a/trainer"
    assert f"{site.url}/api/status has no data yet" in second


def test_maintenance_explains_why_a_pod_is_not_known(site: Site) -> None:
    """While NVML is closed no pod's memory is known, and that is no sign that there is none."""
    site.endpoints.publish(quiet(snapshot=snapshot(blind=True), maintenance="the node is being upgraded"))
    assert "(the node is being upgraded): their use is unknown" in site.refusal("a/other")


def test_with_a_url_the_journal_here_is_no_evidence(site: Site) -> None:
    """With --url the journal is another node's: that there is none here does not mean that no daemon has run."""
    site.endpoints.publish(quiet())
    no_past = explain_pod("a/trainer", site.url, site.journal, NOW_S, from_afar=True).no_past
    assert no_past == f"it is in the journal of the daemon's own node: {to_run_inside('explain', 'a/trainer')}"
    with pytest.raises(UnexplainedError) as error:
        explain_pod("a/other", site.url, site.journal, NOW_S, from_afar=True)
    assert "there is no journal" not in str(error.value)


PROMISES = ("UTC, if its use stays", "are being", "is being", "steps of that rule:", "get SIGKILL")
POSTPONED = "No cycle has completed since then: no action starts until one does."
HELD = Story(journal_writable=False).run(12.4, 12)


@pytest.mark.parametrize("report", [climbing(9), climbing(28), climbing(40), HELD, busy(31, 65)])
def test_while_the_loop_hangs_nothing_is_promised(site: Site, report: CycleReport) -> None:
    """The age of all data comes first; the numbers stay, and every step is postponed, until a cycle completes."""
    site.second = report.at.boottime_s - at(0).boottime_s
    site.endpoints.publish(report)
    assert any(promise in site.text() for promise in PROMISES) or report is HELD
    site.second = 600
    first, *rest = site.explain().document["sentences"]
    assert "is hung" in first
    assert not [sentence for sentence in rest if any(promise in sentence for promise in PROMISES)]
    coming = [sentence for sentence in rest if sentence.startswith(("In ", "Due now"))]
    assert (coming != []) is ("were due SIGKILL" not in " ".join(rest))
    assert all(sentence.endswith(POSTPONED) for sentence in coming)
    assert any(sentence.startswith("Pod a/trainer uses 12.4Gi") for sentence in rest)
    site.endpoints.publish(replace(climbing(9), at=at(600)))
    assert "is hung" not in site.text()
