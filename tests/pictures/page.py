"""Pictures of the status page: `python -m tests.pictures.page FOLDER`, as root on a machine with cgroups and Chromium.

It writes page-NODE-THEME.png: the whole page of a node of one card and four pods and of one of eight cards and a
hundred pods, from the real daemon over the stub of NVML and a real API server, whose program is built if need be, on a
screen with a phone beside it, light and dark; and pods-NODE-THEME.png: its pods, those of the larger node by a filter.
pod-THEME.png is the page of a pod after an hour of the real core.
"""

import base64
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from tests.browser.browsing import Theme, chromium, visit
from tests.browser.full_node import full_node
from tests.browser.states import over
from tests.browser.test_subject import LIVED
from tests.report.build import serving
from tests.rig import Daemon
from tests.rig.cluster.rig_pods import RigPods, rig_pods

_THEMES: Final[Mapping[Theme, str]] = {"light": "#fff", "dark": "#0f1215"}  # with the page's own background
_NODES: Final[Mapping[str, Callable[[Path, RigPods], AbstractContextManager[Daemon]]]] = {
    "small": lambda root, api: over(root, cards=1, api=api),
    "full": lambda root, api: full_node(root, cards=8, pods=100, api=api),
}
_SCREEN: Final = (1280, 820)
_PHONE: Final = (390, 820)
_FILTERS: Final = {"small": "", "full": "?pod=nlp"}
# The daemon of a picture keeps its journal in a folder of its own, which would be named in the command.
_USUAL_STOP: Final = """() => document.querySelectorAll('pre span').forEach(e => {
  if (e.textContent === '--stop-file') { e.nextElementSibling.remove(); e.remove(); }
})"""
# Where a picture of the whole page is cut: that of a phone before the part that begins nearest to its middle.
_CUTS: Final = """() => {
  const height = document.documentElement.scrollHeight;
  const tops = [...document.querySelectorAll('section, .urgent > li')].map(e => e.getBoundingClientRect().top - 8);
  tops.sort((a, b) => Math.abs(a - height / 2) - Math.abs(b - height / 2));
  return [window.innerWidth, window.innerWidth > 640 ? [0, height] : [0, tops[0], height]];
}"""


def draw(folder: Path) -> Iterator[Path]:
    """Draw the pictures of the documents into a folder; their paths, as they are done."""
    with chromium() as browser:
        for name, node in _NODES.items():
            with (
                tempfile.TemporaryDirectory() as root,
                rig_pods(Path(root) / "cluster") as api,
                node(Path(root), api) as running,
            ):
                url = f"http://127.0.0.1:{running.port}/"
                for theme in _THEMES:
                    yield _beside(browser, url, theme, _whole, folder / f"page-{name}-{theme}.png")
                    yield _beside(browser, url + _FILTERS[name], theme, _pods, folder / f"pods-{name}-{theme}.png")


def draw_pod(folder: Path) -> Iterator[Path]:
    """Draw the page of a pod."""
    with chromium() as browser:
        watch, path = LIVED["over"]
        with serving(watch().endpoints) as server:
            for theme in _THEMES:
                url = f"http://127.0.0.1:{server.port}{path}?still"
                yield _beside(browser, url, theme, _whole, folder / f"pod-{theme}.png")


def _whole(page: Page) -> Iterator[bytes]:
    """The whole page, that of a phone in two halves."""
    width, cuts = page.evaluate(_CUTS)
    for top, end in pairwise(cuts):
        yield page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": width, "height": end - top})


def _pods(page: Page) -> Iterator[bytes]:
    yield page.locator("[aria-labelledby=pods]").screenshot()


def _beside(browser: Browser, url: str, theme: Theme, shoot: Callable[[Page], Iterator[bytes]], path: Path) -> Path:
    """Write pictures of a page on a screen and on a phone, side by side."""
    shots: list[bytes] = []
    for size in (_SCREEN, _PHONE):
        with visit(browser, url, size, theme) as seen:
            seen.page.evaluate(_USUAL_STOP)
            shots += shoot(seen.page)
    images = "".join(f"<img src='data:image/png;base64,{base64.b64encode(shot).decode()}'>" for shot in shots)
    layout = "display:inline-flex;align-items:flex-start;gap:20px;padding:20px;background:#8a939f"
    page = browser.new_page(viewport={"width": 2 * _SCREEN[0], "height": _SCREEN[1]})
    try:
        page.set_content(
            f"<style>img{{padding:12px;background:{_THEMES[theme]}}}</style><main style='{layout}'>{images}</main>"
        )
        page.wait_for_function("() => [...document.images].every(image => image.complete)")
        page.locator("main").screenshot(path=path)
    finally:
        page.close()
    return path


def main() -> None:
    """Draw into the folder that is named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*draw_pod(folder), *draw(folder)):
        sys.stdout.write(f"{path} {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
