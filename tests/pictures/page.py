"""Pictures of the status page: `python -m tests.pictures.page FOLDER`, as root on a machine with cgroups and Chromium.

It writes page-STATE-WIDTH-THEME.png: each state of a node on a phone and on a wall, light and dark, from the real
daemon over the stub of NVML. They are as high as the page, but for the full node's, which shows a screen.
`python -m tests.pictures.page --few docs/pictures` writes the few that the documents show.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from tests.browser.browsing import PHONE, WALL, Theme, chromium, visit
from tests.browser.crowd import crowd
from tests.browser.states import STATES
from tests.rig import Daemon

_THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
_SIZES: Final = (PHONE, WALL)
_FULL: Final = "full"
# What the documents show: a node on which all is well, and one with a notebook that is over.
_FEW: Final = {"quiet": {"page-quiet": (1200, 820)}, "over": {"page": (1200, 820), "page-phone": (390, 820)}}


def draw(folder: Path) -> Iterator[Path]:
    """Draw every picture into a folder; their paths, as they are done."""
    everything: Mapping[str, Callable[[Path], AbstractContextManager[Daemon]]] = {**STATES, _FULL: crowd}
    with chromium() as browser:
        for name, state in everything.items():
            with tempfile.TemporaryDirectory() as root, state(Path(root)) as running:
                yield from _draw_state(browser, running, name, folder)


def draw_few(folder: Path) -> Iterator[Path]:
    """Draw the pictures of the documents, by the width of a page and of a phone."""
    with chromium() as browser:
        for state, sizes in _FEW.items():
            with tempfile.TemporaryDirectory() as root, STATES[state](Path(root)) as running:
                yield from _draw_sizes(browser, running, sizes, folder)


def _draw_sizes(
    browser: Browser, running: Daemon, sizes: Mapping[str, tuple[int, int]], folder: Path
) -> Iterator[Path]:
    for theme in _THEMES:
        for name, size in sizes.items():
            path = folder / f"{name}-{theme}.png"
            with visit(browser, f"http://127.0.0.1:{running.port}/", size, theme) as seen:
                seen.page.screenshot(path=path)
            yield path


def _draw_state(browser: Browser, running: Daemon, name: str, folder: Path) -> Iterator[Path]:
    for size in _SIZES:
        for theme in _THEMES:
            path = folder / f"page-{name}-{size[0]}-{theme}.png"
            with visit(browser, f"http://127.0.0.1:{running.port}/?still", size, theme) as seen:
                seen.page.screenshot(path=path, full_page=name != _FULL)
            yield path


def main() -> int:
    """Draw into the folder that is named on the command line; the exit code."""
    *options, where = sys.argv[1:] or [""]
    if not where or options not in ([], ["--few"]):
        sys.stderr.write("which folder? python -m tests.pictures.page [--few] FOLDER\n")
        return 2
    folder = Path(where)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (draw_few if options else draw)(folder):
        sys.stdout.write(f"{path} {path.stat().st_size // 1024} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
