"""The bars of the status page: what uses each card, which cards there are, and the marks of limits."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.export.page_reader import Read, read
from tests.report.build import Story, activity, climbing, many_over, policy, quiet, trainer_node
from tests.worlds import Gi, container, gpu, pod, process, snapshot, use
from watchdog.core.policy import NO_ALLOWANCE
from watchdog.core.utilization import CardUtilization
from watchdog.export import page_cards

STYLE: Final = Path(page_cards.__file__).with_name("page.css").read_text(encoding="utf-8")


def test_a_card_shows_what_uses_it() -> None:
    """Every part of the bar is below it as text, with what makes it stand out beside the colour."""
    assert read(climbing(9)).text("gpus") == (
        "GPUs 2 Stub, 14.9Gi of 160Gi in use (9%) GPU 0 12.9Gi of 80Gi (16%) 11.4Gi a/trainer over 1Gi unattributed "
        "256Mi residual 256Mi reserved 67.1Gi free "
        "GPU 1 2Gi of 80Gi (2%) 1Gi a/trainer over 768Mi residual 256Mi reserved 78Gi free "
        "Unattributed: used by processes of no listed pod. Residual: in use, but by no process that the driver lists. "
        "Reserved: by the driver itself."
    )


def test_how_busy_each_card_is() -> None:
    """Beside its memory; where that is unknown there is no number, and among the pods is why, which stays text."""
    shown = read(quiet(utilization=activity(0.35))).text("gpus")
    assert "2 Stub, 6.5Gi of 160Gi in use (4%), 50% busy" in shown
    assert "GPU 1 2Gi of 80Gi (2%), 50% busy" in shown
    dark = read(quiet(utilization=activity(None, card=CardUtilization(gpu="", why="no \x1b[2J utilisation"))))
    assert "busy" not in dark.text("gpus")
    assert "How busy GPU 0 and GPU 1 are isn't known: no \\x1b[2J utilisation." in dark.text("pods")
    part = read(quiet(utilization=activity(None, card=CardUtilization(gpu="", ratio=0.5, why="it does not say"))))
    assert "How busy processes on GPU 0 and GPU 1 are isn't known: it does not say." in part.text("pods")


DARK = "unknown residual unknown reserved unknown free"
DUMB: dict[str, Any] = {"total": None, "used": None, "reserved": None}


@pytest.mark.parametrize(
    ("card", "uses", "reported"),
    [
        (gpu(used=None, reserved=None), [use(1, Gi)], f"Use unknown, 80Gi in total 1Gi ns/pod-a {DARK}"),
        (gpu(0, **DUMB), [use(1, None)], f"Use unknown, total unknown unknown ns/pod-a {DARK}"),
        (
            gpu(used=5 * Gi), [use(1, None), use(2, 2 * Gi)],
            "5Gi of 80Gi (6%) at least 2Gi ns/pod-a 3Gi in use, owner unknown unknown residual 75Gi free",
        ),
        (gpu(used=Gi), [use(1, 2 * Gi)], "1Gi of 80Gi (1%) 2Gi ns/pod-a -1Gi residual 79Gi free"),
        (gpu(up=False), [], "Not responding."),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_card_is_shown_as_unknown(card: object, uses: list[object], reported: str) -> None:
    """Unknown is a word, never 0; numbers that contradict each other are shown as they are."""
    report = Story(pods=(pod(),)).see(snapshot(uses, [], [card]))  # type: ignore[list-item,arg-type]
    assert read(report).text("gpus").startswith(f"GPUs Stub GPU 0 {reported}")


def test_a_full_card_names_the_largest_and_sums_up_the_rest() -> None:
    """Four by name where there are few cards, two where there are many; of the others, how many are over."""
    few = many_over(*[1.75] * 6, *[1.5] * 3, declared="1.6Gi", under=policy(allowance=NO_ALLOWANCE))
    assert "1.8Gi ns/pod-u0 over" in read(few).text("gpus")
    assert "8Gi 5 more pods (2 over)" in read(few).text("gpus")
    many = Story(pods=few.pods.pods, under=few.policy).see(
        replace(few.snapshot, gpus=tuple(gpu(n, used=18 * Gi) for n in range(9)))
    )
    assert "11.5Gi 7 more pods (4 over)" in read(many).text("gpus")


def test_mig_instances_and_maintenance() -> None:
    """An instance is named by its profile and place on its card; a card that is let go is not one that fails."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-0", gi=3, ci=0, profile="1g.10gb")
    assert "GPUs Stub GPU 0 1g.10gb instance 3 0 of" in read(Story().see(snapshot(gpus=[slice_]))).text("gpus")
    report = quiet(snapshot=trainer_node(4.0, gpus=(gpu(up=False),)), maintenance="the node is being upgraded")
    assert "Released for maintenance." in read(report).text("gpus")


def test_a_lost_card_stays_where_it_was() -> None:
    """The cards are in the order of their numbers, although the driver names a lost one after all others."""
    cards = read(quiet(snapshot=trainer_node(4.0, gpus=(gpu(0), gpu(2), gpu(1, up=False))))).text("gpus")
    assert re.findall(r"GPU \d(?: Not responding.)?", cards) == ["GPU 0", "GPU 1 Not responding.", "GPU 2"]


def test_instances_have_the_title_of_their_card_once() -> None:
    """A heading for the card; its instances by profile and place, also where the driver repeats the model for each."""
    model = "NVIDIA H100 80GB HBM3"
    instances = [
        gpu(
            0, 10 * Gi, uuid=f"MIG-{n}", parent="GPU-0", gi=7 + n, ci=0, profile="1g.10gb", placement=(19, n),
            name=f"{model} MIG 1g.10gb",
        )
        for n in range(7)
    ]  # fmt: skip
    parts = (replace(instances[0], profile="1c.3g.40gb", ci=1), replace(instances[1], profile=None, placement=None))
    other = gpu(1, name=model)
    shown = read(Story().see(snapshot(gpus=[*instances, other]))).text("gpus")
    assert shown.startswith(f"GPUs 2 {model} with 7 MIG instances, 0 of 150Gi in use (0%) GPU 0 1g.10gb instance 7, ")
    assert (shown.count(model), shown.count("GPU 0"), shown.count("1g.10gb")) == (1, 1, 7)
    assert "1g.10gb instance 13, slice 6 0 of 10Gi (0%) 10Gi free GPU 1 0 of 80Gi" in shown
    mixed = read(Story().see(snapshot(gpus=[*parts, replace(other, name="NVIDIA L4")]))).text("gpus")
    assert f"GPU 0 {model} MIG instance instance 8 0 of 10Gi" in mixed
    assert "1c.3g.40gb instance 7, compute instance 1, slice 0 0 of 10Gi" in mixed
    assert "GPU 1 NVIDIA L4 0 of" in mixed


def bar_terms(page: Read) -> dict[str, str]:
    """What each section explains of the bars."""
    texts = {section: re.findall(r"In each bar: ([^.]*)[.]", page.text(section)) for section in ("urgent", "pods")}
    return {section: " ".join(found) for section, found in texts.items()}


def test_the_marks_of_a_bar_are_explained_where_they_first_appear() -> None:
    """The limit, the declared amount and each hatching, once, and none that is in no bar."""
    limits = "limit, declared amount"
    assert bar_terms(read(quiet())) == {"urgent": "", "pods": limits}
    assert bar_terms(read(climbing(9))) == {"urgent": f"{limits}, use of a pod over its limit", "pods": ""}
    pods = (pod("u1", container("main", "1Gi", of="u1")), pod("u2", container("main", "8Gi", of="u2")))
    uses = [use(1, 3 * Gi), use(2, Gi), use(3, None)]
    listed = [process(1, "u1/main"), process(2, "u2/main"), process(3, "u2/main")]
    page = read(Story(pods=pods, under=policy(allowance=NO_ALLOWANCE)).see(snapshot(uses, listed, [gpu(used=9 * Gi)])))
    assert bar_terms(page) == {"urgent": "limit, use of a pod over its limit", "pods": "perhaps in use (unknown)"}
    row = next(row for row in page.rows["pods"] if row[0] == "ns/pod-u2")
    assert row[2:4] == ["at least 1.0Gi, at most 6.0Gi", "8.0Gi"]
    widths = [
        (values["class"], values["width"]) for tag, values in page.elements if tag == "rect" and "class" in values
    ]
    assert ("unknown", "59.5%") in widths, "5 of 8.4Gi, hatched"


THEMES = {
    name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block))
    for name, block in zip(("light", "dark"), re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL), strict=True)
}


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(each * 2 for each in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES)
def test_the_mark_of_a_limit_is_visible_on_any_filling(theme: str) -> None:
    """Its edge has the page's own colour, and against that the mark has ten times the luminance, light and dark."""
    colours = THEMES["light"] | THEMES[theme]
    low, high = sorted(luminance(colours[name]) for name in ("mark", "bg"))
    assert (high + 0.05) / (low + 0.05) > 10
    (mark,) = re.findall(r"\.bar rect\.allowed, [^{]*\{([^}]*)\}", STYLE.partition("@media (forced")[0])
    assert re.search(r"stroke: var\(--bg\); stroke-width: 2px;", mark)
    drawn = [values for tag, values in read(climbing(9)).elements if values.get("class") == "allowed"]
    assert [each["width"] for each in drawn] == ["6"] * 3, (
        "in two bars, and where they are explained: 4 without the edge"
    )
