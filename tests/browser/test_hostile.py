"""Hostile names in a real Chromium: whatever tenants call things stays text, in its place."""

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import PHONE, WALL, visit
from tests.browser.test_page import check_fits
from tests.export.page_reader import action
from tests.export.test_page_hostile import HOSTILE, hostile
from watchdog.export.endpoints import Endpoints
from watchdog.report.status import Moment, RecentStatus

pytestmark = [pytest.mark.slow]
_BOXES = """() => [...document.querySelectorAll('bdi')].map(e => getComputedStyle(e).unicodeBidi)"""


def done(name: str) -> tuple[RecentStatus, ...]:
    """An action in which everything has this name."""
    made = action(at=Moment(4e9), namespace=name, pod=name, container=name, why=name, outcome=name, reason=name)
    return (made,)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("size", [PHONE, WALL], ids=["phone", "wall"])
def test_nothing_of_it_is_run_or_loaded(
    browser: Browser, endpoints: tuple[Endpoints, str], name: str, size: tuple[int, int]
) -> None:
    """No dialog, no request, no element beyond those of a tame page, no scrolling to the side, nothing for axe."""
    made, url = endpoints
    made.publish(hostile("tame"))
    made.set_journal("", done("tame"))
    with visit(browser, url, size) as tame:
        kinds = set(tame.page.evaluate("() => [...document.querySelectorAll('*')].map(e => e.tagName)"))
    made.publish(hostile(name))
    made.set_journal("", done(name))
    with visit(browser, url, size) as seen:
        assert (seen.requests, seen.reported) == ([url], [])
        assert set(seen.page.evaluate("() => [...document.querySelectorAll('*')].map(e => e.tagName)")) <= kinds
        assert set(seen.page.evaluate(_BOXES)) == {"isolate"}
        check_fits(seen)
        assert seen.violations() == []
