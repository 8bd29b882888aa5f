"""A real Chromium on the page: what it loads, what it says, what it runs, and what axe finds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.monitoring.programs import find

Theme = Literal["light", "dark"]
PHONE: Final = (360, 740)
WALL: Final = (1920, 1080)
_LONGEST_MS: Final = 30_000.0
# Each element that takes the keyboard, by its text; a focus that can't be seen has no outline.
_FOCUSED: Final = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  return {text: e.textContent, outline: getComputedStyle(e).outlineStyle, width: getComputedStyle(e).outlineWidth};
}"""
# What is collapsed can't be reached until it is opened.
REACHABLE: Final = """() => [...document.querySelectorAll(
  'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]')]
  .filter(e => e.matches('summary') || !e.closest('details:not([open])')).map(e => e.textContent)"""
# What sticks out to the right, be it hidden by its parent or not.
WIDTHS: Final = """() => ({page: document.documentElement.scrollWidth, window: window.innerWidth,
  beyond: [...document.querySelectorAll('body *')].filter(e => !e.closest('.defs, thead')
    && e.getBoundingClientRect().right > window.innerWidth + 0.5).map(e => e.outerHTML.slice(0, 120)),
  cut: [...document.querySelectorAll('body *')].filter(e => !e.closest('svg, thead')
    && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
    .map(e => e.outerHTML.slice(0, 120))})"""


@dataclass
class Visit:
    """A page as it was loaded, with everything that went with it: requests, the console's lines, dialogs."""

    page: Page
    requests: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)

    def refuse(self, dialog: Dialog) -> None:
        """Note that a script has opened a dialog, and close it."""
        self.reported.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def violations(self) -> list[str]:
        """What axe finds, a line each; contrast must be that of level AAA (WCAG 2, 1.4.6)."""
        options = {"rules": {"color-contrast-enhanced": {"enabled": True}}}
        found = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{each['id']}: {node['html'][:160]} {node['failureSummary']}" for each in found for node in each["nodes"]
        ]

    def tab(self) -> list[dict[str, str]]:
        """What the Tab key goes through, in its order, until it comes back to the start."""
        found: list[dict[str, str]] = []
        for _ in range(60):
            self.page.keyboard.press("Tab")
            focused = self.page.evaluate(_FOCUSED)
            if focused is None:
                break
            found.append(focused)
        return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium; ended at the end."""
    with sync_playwright() as playwright:
        # A sandbox needs user namespaces, which a container has not; all that is visited is our own.
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Browser,
    url: str,
    size: tuple[int, int] = PHONE,
    theme: Theme = "light",
    *,
    zoom: float = 1.0,
    scripts: bool = True,
) -> Iterator[Visit]:
    """Load a page in a window of this many pixels; a zoom leaves it fewer pixels of CSS, as that of a browser does."""
    context = browser.new_context(
        viewport={"width": round(size[0] / zoom), "height": round(size[1] / zoom)},
        device_scale_factor=zoom,
        color_scheme=theme,
        java_script_enabled=scripts,
    )
    context.set_default_timeout(_LONGEST_MS)
    try:
        page = context.new_page()
        made = Visit(page=page)
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("console", lambda message: made.reported.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: made.reported.append(f"error: {error}"))
        page.on("dialog", made.refuse)
        page.goto(url)
        yield made
    finally:
        context.close()
