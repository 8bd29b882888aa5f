"""The status page's cards and its table of accounts: who uses what, and what is not known of it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.export.build import Story, climbing, crowd, policy, quiet, trainer_node
from tests.export.page_reader import read
from tests.worlds import Gi, container, gpu, pod, process, snapshot, use
from watchdog.core.policy import NO_ALLOWANCE


def test_a_card_shows_what_uses_it() -> None:
    """Every part of the bar is below it as text, with what makes it stand out beside the colour."""
    assert read(climbing(9)).text("gpus") == (
        "GPUs 2 Stub, 14.9Gi of 160Gi in use (9%) GPU 0 12.9Gi of 80Gi (16%) 11.4Gi a/trainer over 1Gi unattributed "
        "256Mi residual 256Mi reserved 67.1Gi free "
        "GPU 1 2Gi of 80Gi (2%) 1Gi a/trainer over 768Mi residual 256Mi reserved 78Gi free "
        "Unattributed: used by processes of no listed pod. Residual: in use, but by no process that the driver lists. "
        "Reserved: by the driver itself."
    )


DARK = "unknown residual unknown reserved unknown free"
DUMB: dict[str, Any] = {"total": None, "used": None, "reserved": None}


@pytest.mark.parametrize(
    ("card", "uses", "told"),
    [
        (gpu(used=None, reserved=None), [use(1, Gi)], f"unknown of 80Gi 1Gi ns/pod-a {DARK}"),
        (gpu(0, **DUMB), [use(1, None)], f"unknown of unknown unknown ns/pod-a {DARK}"),
        (
            gpu(used=5 * Gi), [use(1, None), use(2, 2 * Gi)],
            "5Gi of 80Gi (6%) at least 2Gi ns/pod-a 3Gi in use, owner unknown unknown residual 75Gi free",
        ),
        (gpu(used=Gi), [use(1, 2 * Gi)], "1Gi of 80Gi (1%) 2Gi ns/pod-a -1Gi residual 79Gi free"),
        (gpu(up=False), [], "Not responding."),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_card_is_shown_as_unknown(card: object, uses: list[object], told: str) -> None:
    """Unknown is a word, never 0; numbers that contradict each other are shown as they are."""
    report = Story(pods=(pod(),)).see(snapshot(uses, [], [card]))  # type: ignore[list-item,arg-type]
    assert read(report).text("gpus").startswith(f"GPUs Stub GPU 0 {told}")


def test_a_full_card_names_the_largest_and_sums_up_the_rest() -> None:
    """Four by name where there are few cards, two where there are many; of the others, how many are over."""
    few = crowd(*[1.75] * 6, *[1.5] * 3, declared="1.6Gi", under=policy(allowance=NO_ALLOWANCE))
    assert "1.8Gi ns/pod-u0 over" in read(few).text("gpus")
    assert "8Gi 5 more pods (2 over)" in read(few).text("gpus")
    many = Story(pods=few.pods.pods, under=few.policy).see(
        replace(few.snapshot, gpus=tuple(gpu(n, used=18 * Gi) for n in range(9)))
    )
    assert "11.5Gi 7 more pods (4 over)" in read(many).text("gpus")


def test_mig_instances_and_maintenance() -> None:
    """An instance is named by its card and its own number; a card that is let go is not one that fails."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-0", gi=3, ci=0, profile="1g.10gb")
    assert "GPUs Stub 1g.10gb GPU 0, instance 3" in read(Story().see(snapshot(gpus=[slice_]))).text("gpus")
    report = quiet(snapshot=trainer_node(4.0, gpus=(gpu(up=False),)), maintenance="the node is being upgraded")
    assert "Released for maintenance." in read(report).text("gpus")


def test_all_accounts_stand_in_the_table_the_most_urgent_first() -> None:
    """What is over, what is not known, and then by the share of what may be used; who declares nothing comes last."""
    pods = (
        pod("low", container("main", "8Gi", of="low")),
        pod("high", container("main", "8Gi", of="high")),
        pod("over", container("main", "1Gi", of="over")),
        pod("none"),
        pod("odd", container("main", "8Gi", of="odd")),
    )
    ids = {1: ("low", 2 * Gi), 2: ("high", 7 * Gi), 3: ("over", 3 * Gi), 5: ("none", Gi), 6: ("odd", None)}
    seen = snapshot(
        [use(pid, used) for pid, (_, used) in ids.items()],
        [process(pid, f"{uid}/main") for pid, (uid, _) in ids.items()],
        [gpu(used=20 * Gi)],
    )
    told = read(Story(pods=pods).see(seen)).text("pods")
    order = [told.index(f"ns/pod-{uid} ") for uid in ("over", "odd", "high", "low", "none")]
    assert order == sorted(order)
    assert "ns/pod-odd unknown, at most 7Gi of 8.7Gi (declared 8Gi) unknown" in told
    assert "1Gi nothing declared" in told
    assert told.count('rule "notebooks"') == 1, "a rule that all have in common is named once"
