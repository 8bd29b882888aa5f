"""The status page where something is not known: a cycle that never ends, and cards without a list of processes."""

import pytest
from msgspec.structs import replace

from tests.export.build import Story, climbing, policy, quiet, trainer_node
from tests.export.page_reader import WELL, Read, read
from tests.worlds import Gi, at, container, gpu, pod, process, snapshot, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import CycleReport
from watchdog.report.status import Moment

SINCE = "as of 08:00:09 UTC"
HANGS = replace(WELL, hangs_since=Moment(at(9).wall_s), last_cycle_ago_s=60.0)
GAP = Gap(reason=GapReason.PROCESSES, what="GPU-0 processes", problem=Problem("Not Supported (code 3)"), gpu="GPU-0")
DARK = "What runs on GPU 0 is not known."


def later(report: CycleReport) -> Read:
    """The page a minute after a cycle since which none has ended."""
    return read(report, health=HANGS, passed_s=60.0, now_s=report.at.wall_s + 60.0)


def test_while_the_loop_hangs_numbers_are_marked_as_old() -> None:
    """Nothing is promised, no time runs on by itself, and each card, each span and the table name their moment."""
    page = later(climbing(9))
    assert "Kill postponed" in page.text("urgent")
    assert f"over the limit for 9s {SINCE}" in page.text("urgent")
    assert page.text("gpus").count(SINCE) == 2
    assert f"These figures are {SINCE}." in page.text("pods")
    assert "over, kill postponed" in page.text("pods")
    assert SINCE not in "".join(read(climbing(9)).text(part) for part in ("urgent", "gpus", "pods"))


def unlisted(*, declares: bool) -> Read:
    """The page of a vGPU: 60Gi in use, and no list of who uses them."""
    pods = (pod("u9", container("main", "8Gi", of="u9") if declares else container("main", of="u9")),)
    return read(Story(pods=pods).see(snapshot(gpus=(gpu(0, used=60 * Gi, listed=False),), gaps=(GAP,))))


@pytest.mark.parametrize("declares", [True, False])
def test_a_card_without_a_list_is_not_an_idle_card(declares: bool) -> None:
    """Nowhere does it read as if nothing used it: the headline, the table, the bar, unattributed memory."""
    page = unlisted(declares=declares)
    for part in ("", "pods", "unattributed"):
        assert DARK in page.text(part), part
    assert "None." not in page.text("unattributed")
    assert "No pod uses" not in page.text()
    assert ("div", "state watch") in [(tag, values.get("class")) for tag, values in page.elements]
    assert "unknown unattributed 60Gi in use, owner unknown" in page.text("gpus")
    drawn = [values for tag, values in page.elements if tag == "rect" and values["width"] != "100%"]
    assert [each["width"] for each in drawn if each["class"] == "unknown"] == ["75%"]


def test_what_is_known_of_a_card_in_part_is_shown_as_such() -> None:
    """Known parts stand for themselves, and the unknown segment is the rest less the driver's reserve."""
    pods = (pod("u1", container("main", "8Gi", of="u1")),)
    seen = snapshot(
        [use(1, 3 * Gi), use(2, 2 * Gi), use(3, None)],
        [process(1, "u1/main"), process(2, None), process(3, None)],
        (gpu(0, used=20 * Gi, reserved=Gi),),
    )
    told = read(Story(pods=pods, under=policy()).see(seen)).text("gpus")
    assert "3Gi ns/pod-u1 at least 2Gi unattributed 14Gi in use, owner unknown" in told
    assert "14Gi" not in read(Story(pods=pods).see(snapshot(gpus=(gpu(0, used=14 * Gi),)))).text("pods")


def test_a_lost_card_is_no_idle_card_either() -> None:
    """The page of a card that fell off the bus does not claim that it has no unattributed memory."""
    lost = quiet(snapshot=trainer_node(4.0, gpus=(gpu(0, up=False, listed=False), gpu(1))))
    assert DARK in read(lost).text("unattributed")
