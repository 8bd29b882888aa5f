"""The status page in a real Chromium: in each state of the node, on a phone and on a wall, in both themes."""

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import PHONE, REACHABLE, WALL, WIDTHS, Theme, Visit, visit
from tests.browser.full_node import full_node
from tests.rig import Daemon

pytestmark = [pytest.mark.node, pytest.mark.slow]
SIZES = pytest.mark.parametrize("size", [PHONE, WALL], ids=["phone", "wall"])
THEMES = pytest.mark.parametrize("theme", ["light", "dark"])
# For pages that are as these in another state: what fits depends on the size, what can be read on the theme.
LOOKS = pytest.mark.parametrize(("size", "theme"), [(PHONE, "light"), (WALL, "dark")], ids=["phone", "wall"])
FIRST = {
    "quiet": r"Enforcing\. All pods are within limits\.",
    "over": r"Enforcing\. 1 pod over its limit: jupyter/alice-notebook-0, kill in \d+m( \d+s)?\.",
    "killed": r"Enforcing\. jupyter/alice-notebook-0 was killed [\dms. ]+ ago\. All pods are within limits\.",
    "blind": r"Blind: NVML has not responded since \d\d:\d\d:\d\d UTC\. No new action is taken\.",
}


def page_of(running: Daemon) -> str:
    """Its address, with the refresh paused."""
    return f"http://127.0.0.1:{running.port}/?still"


def check_fits(seen: Visit) -> None:
    """Nothing is cut off at the side, and no reader has to scroll there."""
    widths = seen.page.evaluate(WIDTHS)
    assert widths["page"] <= widths["window"], widths
    assert (widths["beyond"], widths["cut"]) == ([], [])


def check_alone(seen: Visit, url: str) -> None:
    """One request, for the page itself, and not a word on the console: no error, nothing that the policy refused."""
    assert seen.requests == [url]
    assert seen.reported == []


@SIZES
@THEMES
def test_every_state_is_accessible_and_fits(
    browser: Browser, state: Daemon, size: tuple[int, int], theme: Theme
) -> None:
    """No request beyond the page, a silent console, nothing for axe to find, and no scrolling to the side."""
    with visit(browser, page_of(state), size, theme) as seen:
        check_fits(seen)
        check_alone(seen, page_of(state))
        assert seen.violations() == []
    with visit(browser, page_of(state), size, theme, zoom=2.0) as seen:
        check_fits(seen)


def test_the_state_is_the_first_thing_to_read(browser: Browser, state: Daemon, request: pytest.FixtureRequest) -> None:
    """The one heading of the first rank says it, in letters larger than all others, above the fold of a phone."""
    name = request.node.callspec.params["state"]
    with visit(browser, page_of(state)) as seen:
        assert re.fullmatch(FIRST[name], seen.page.inner_text("h1")), seen.page.inner_text("h1")
        sizes = seen.page.evaluate(
            "() => [...document.querySelectorAll('h1, h2, h3, p, td, dd, .next')]"
            ".map(e => [e.tagName, parseFloat(getComputedStyle(e).fontSize)])"
        )
        largest = max(size for _, size in sizes)
        assert [tag for tag, size in sizes if size == largest] == ["H1"]
        box = seen.page.locator("h1").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < PHONE[1]


def test_the_keyboard_reaches_everything(browser: Browser, state: Daemon) -> None:
    """Tab goes through every link in the order of the page, and each shows that it has the focus."""
    with visit(browser, page_of(state), WALL) as seen:
        passed = seen.tab()
        assert [each["text"] for each in passed] == seen.page.evaluate(REACHABLE)
        assert len(passed) >= 10
        assert {each["outline"] for each in passed} == {"solid"}
        assert {each["width"] for each in passed} == {"3px"}


@LOOKS
def test_a_full_node_reads_well(browser: Browser, full: Daemon, size: tuple[int, int], theme: Theme) -> None:
    """16 cards and 200 pods, collapsed or all open: it fits, is accessible, and what is over comes first everywhere."""
    for url in (page_of(full), f"{page_of(full)}&all"):
        with visit(browser, url, size, theme) as seen:
            check_fits(seen)
            check_alone(seen, url)
            assert seen.page.locator(".cards > li").count() == 16
            groups = [group.locator("tbody tr") for group in seen.page.locator(".groups > details").all()]
            assert sum(rows.count() for rows in groups) == 200
            over = [["over" in row for row in rows.all_text_contents()] for rows in groups]
            assert over == [sorted(each, reverse=True) for each in over]
            assert sum(map(sum, over)) == 8
            assert seen.violations() == []
    with visit(browser, page_of(full), size, theme, zoom=2.0) as seen:
        check_fits(seen)


def test_eight_cards_and_a_hundred_pods_fit_on_three_screens(browser: Browser, tmp_path: Path) -> None:
    """Someone who was paged scrolls twice: the cards, who is over, how to stop it, every namespace, the watchdog."""
    with full_node(tmp_path, cards=8, pods=100) as running:
        for size, screens in (((1280, 800), 2.5), ((390, 844), 3)):
            with visit(browser, page_of(running), size) as seen:
                check_fits(seen)
                assert seen.violations() == []
                assert seen.page.evaluate("document.documentElement.scrollHeight") <= screens * size[1], (
                    "as docs/status-page.md has it"
                )
                tops = [seen.page.locator(f"#{each}").bounding_box() for each in ("gpus", "urgent", "stop", "pods")]
                heights = [box["y"] for box in tops if box is not None]
                assert len(heights) == 4
                assert heights[0] < size[1]
                assert heights[0] < heights[1] < heights[3]


def test_the_filter_needs_no_script(browser: Browser, full: Daemon) -> None:
    """Text typed into the form leads to the page of those pods, which stays paused, and back to all of them."""
    with visit(browser, page_of(full), WALL, scripts=False) as seen:
        seen.page.fill("#pod", "Robotics/")
        seen.page.press("#pod", "Enter")
        seen.page.wait_for_url("**/?pod=Robotics%2F&still=#pods")
        assert re.search(r"\d+ of 200 match", seen.page.inner_text("section[aria-labelledby=pods]"))
        assert all("robotics" in each for each in seen.page.locator(".groups > [open] > summary").all_inner_texts())
        assert seen.page.locator(".groups > details").count() == 1
        seen.page.click("text=Show all pods")
        seen.page.wait_for_url("**/?still#pods")
        assert seen.page.locator(".groups > details").count() > 1
        assert seen.reported == []


def test_on_a_wall_the_first_screen_has_what_matters(browser: Browser, full: Daemon) -> None:
    """Nobody scrolls a wall: the state, who is over with the time left, and what was done lie on the first screen."""
    with visit(browser, page_of(full), WALL) as seen:
        for what in ("h1", ".urgent .next >> nth=0", "#recent"):
            box = seen.page.locator(what).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < WALL[1], what


def test_it_refreshes_itself_and_keeps_the_place(browser: Browser, full: Daemon) -> None:
    """The numbers go on by themselves, and a reader who has scrolled down stays there; paused, nothing is loaded."""
    with visit(browser, page_of(full).removesuffix("?still"), PHONE) as seen:
        seen.page.evaluate("window.scrollTo(0, 3000)")
        before = seen.page.inner_text(".where")
        deadline = time.monotonic() + 30
        while len(seen.requests) < 2 and time.monotonic() < deadline:
            seen.page.wait_for_timeout(200)
        seen.page.wait_for_load_state()
        seen.page.wait_for_function("() => window.scrollY === 3000")
        assert seen.page.inner_text(".where") != before
        assert seen.reported == []
        seen.page.click("text=pause refresh")
        seen.page.wait_for_url("**/?still")
        loaded = len(seen.requests)
        seen.page.wait_for_timeout(7000)
        assert len(seen.requests) == loaded
