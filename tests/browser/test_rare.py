"""Rare nodes in a real Chromium, by reports made by hand: MIG, data gaps, long names, a stop, many actions."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import Theme, visit
from tests.browser.test_page import LOOKS, SIZES, THEMES, check_fits
from tests.export.page_reader import action
from tests.report.build import Story, climbing, policy
from tests.worlds import Gi, Mi, container, gpu, pod, process, snapshot, use
from watchdog.clock import now
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import CycleReport, StopNote
from watchdog.core.policy import NO_ALLOWANCE
from watchdog.export.endpoints import Endpoints
from watchdog.report.status import Moment, RecentStatus

pytestmark = [pytest.mark.slow]


def _tenants(number: int, namespace: str = "team", name: str = "notebook", *, gpus: int = 1) -> CycleReport:
    """Tenants on cards of their own, the first one far over its limit, the last one of unknown use."""
    pods = tuple(
        pod(f"u{n}", container("main", "4Gi", of=f"u{n}"), namespace=namespace, name=f"{name}-{n}")
        for n in range(number)
    )
    used = [9 * Gi, *[(n + 1) * 300 * Mi for n in range(1, number - 1)], None]
    uses = [use(100 + n, amount, n % gpus) for n, amount in enumerate(used)]
    cards = [gpu(n, used=40 * Gi, reserved=600 * Mi, name="NVIDIA A100-SXM4-80GB") for n in range(gpus)]
    listed = [process(100 + n, f"u{n}/main") for n in range(number)]
    return Story(pods=pods, under=policy(allowance=NO_ALLOWANCE)).see(snapshot(uses, listed, cards))


def _mig() -> CycleReport:
    """A card with seven instances, one of which is over, and a card that was lost."""
    instances = [
        gpu(
            0, 10 * Gi, uuid=f"GPU-{n}", parent="GPU-p", gi=7 + n, ci=0, profile="1g.10gb", placement=(19, n),
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", used=9 * Gi,
        )
        for n in range(7)
    ]  # fmt: skip
    lost = gpu(1, uuid="GPU-7", name="NVIDIA H100 80GB HBM3", up=False)
    report = _tenants(8, gpus=8)
    return replace(report, snapshot=replace(report.snapshot, gpus=(*instances, lost)))


def _gaps() -> CycleReport:
    gaps = tuple(
        Gap(reason=GapReason.CGROUP, what=f"process {n}", problem=Problem(f"{n}: Permission denied " * 6, f"fix {n}"))
        for n in range(6)
    )
    report = _tenants(5)
    return replace(report, snapshot=replace(report.snapshot, gaps=gaps))


def _stopped() -> CycleReport:
    stop = StopNote(switch="stop_file", why="driver upgrade; " * 12, by="root at 2026-01-02 03:04:05 UTC")
    return replace(climbing(9), enforcing=False, suspended=("stop_file",), stops=(stop,))


RARE: Final[Mapping[str, CycleReport]] = {
    "mig": _mig(),
    "gaps": _gaps(),
    "names": _tenants(30, "n" * 63, "p" * 250, gpus=16),
    "stopped": _stopped(),
}


# How wide the parts and marks of the bars in sight are.
_WIDTHS: Final = """() => [...document.querySelectorAll('.bar')].filter(e => e.checkVisibility())
  .flatMap(e => [...e.children]).map(e => e.getBoundingClientRect().width)"""


def acted(namespace: str = "team", name: str = "notebook") -> Iterator[RecentStatus]:
    """Twenty actions, a minute apart."""
    for n in range(20):
        yield action(
            at=Moment(now().wall_s - 60 * n), namespace=namespace, pod=f"{name}-{n}", uid=f"gone-{n}",
            used=(n + 1) * 600 * Mi, allowed=4 * Gi, why="It was over. " * 20, do=("kill", "evict", "warn")[n % 3],
        )  # fmt: skip


@pytest.mark.parametrize("kind", RARE)
@LOOKS
def test_a_rare_node_is_accessible_and_fits(
    browser: Browser, endpoints: tuple[Endpoints, str], kind: str, size: tuple[int, int], theme: Theme
) -> None:
    """With twenty actions, collapsed or all open: nothing for axe to find, no scrolling to the side, also enlarged."""
    made, url = endpoints
    made.publish(RARE[kind])
    made.set_journal("", tuple(acted(*(("n" * 63, "p" * 250) if kind == "names" else ()))))
    for address in (url, f"{url}&all"):
        with visit(browser, address, size, theme) as seen:
            check_fits(seen)
            assert 0 not in seen.page.evaluate(_WIDTHS)
            assert seen.reported == []
            assert seen.violations() == []
        with visit(browser, address, size, theme, zoom=2.0) as seen:
            check_fits(seen)


def test_the_sentences_of_actions_open_without_a_script(browser: Browser, endpoints: tuple[Endpoints, str]) -> None:
    """Why an action was taken is not in sight at first; a click on the line below the rows shows it."""
    made, url = endpoints
    made.publish(climbing(9))
    made.set_journal("", (action(at=Moment(now().wall_s)),))
    with visit(browser, url, scripts=False) as seen:
        sentence = seen.page.get_by_text("It was over.")
        assert not sentence.is_visible()
        seen.page.click("text=Why, and what came of it")
        assert sentence.is_visible()


# The colours of a bar's middle row, a pixel each, drawn from a picture of it.
_COLOURS: Final = """async png => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  return [...canvas.getImageData(0, image.height >> 1, image.width, 1).data];
}"""


@THEMES
@SIZES
@pytest.mark.parametrize("filling", ["over", "unknown"])
def test_the_mark_of_a_limit_stands_out_from_hatching(
    browser: Browser, endpoints: tuple[Endpoints, str], filling: str, size: tuple[int, int], theme: Theme
) -> None:
    """On a bar that is hatched on both sides of it, the mark is as it is on an empty one: its colour and its edge."""
    made, url = endpoints
    made.publish(_tenants(2))
    with visit(browser, url, size, theme) as seen:
        bar = seen.page.locator(f".pods .bar:has(.{filling})").first
        assert bar.locator(".allowed").count() == 1
        shot = bar.screenshot()
        box, mark = bar.bounding_box(), bar.locator(".allowed").bounding_box()
        assert box is not None
        assert mark is not None
        flat = seen.page.evaluate(_COLOURS, base64.b64encode(shot).decode())
        row = [tuple(flat[n : n + 3]) for n in range(0, len(flat), 4)]
        middle = round(mark["x"] + mark["width"] / 2 - box["x"])
        ink, paper = ((22, 25, 29), (255, 255, 255)) if theme == "light" else ((255, 255, 255), (15, 18, 21))
        assert row[middle - 1 : middle + 1] == [ink] * 2
        assert near(row[middle - 6 : middle - 2], paper)
        assert near(row[middle + 2 : middle + 6], paper)


def near(pixels: list[tuple[int, ...]], colour: tuple[int, ...]) -> bool:
    """Whether one of the pixels has this colour, or nearly: an edge may lie between two."""
    return any(max(abs(a - b) for a, b in zip(pixel, colour, strict=True)) < 40 for pixel in pixels)
