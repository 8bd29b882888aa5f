"""Pictures of the status page: `python -m tests.pictures.page FOLDER`, as root on a machine with cgroups and Chromium.

It writes page-NODE-THEME.png: the page of a node of one card and four pods and of one of eight cards and a hundred
pods, from the real daemon over the stub of NVML, on a screen with a phone beside it, light and dark; and
pods-THEME.png: the pods of the larger node by a filter.
"""

import base64
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from tests.browser.browsing import Theme, chromium, visit
from tests.browser.crowd import crowd
from tests.browser.states import over
from tests.rig import Daemon

_THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
_NODES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Daemon]]]] = {
    "small": partial(over, cards=1),
    "full": partial(crowd, cards=8, pods=100),
}
_SCREEN: Final = (1280, 820)
_BESIDE: Final = (390, 820)
# The daemon of a picture keeps its journal in a folder of its own, which would be named in the command.
_USUAL_STOP: Final = """() => document.querySelectorAll('pre code').forEach(
  e => { e.textContent = e.textContent.replace(/ --stop-file .*/, ''); })"""


def draw(folder: Path) -> Iterator[Path]:
    """Draw the pictures of the documents into a folder; their paths, as they are done."""
    with chromium() as browser:
        for name, node in _NODES.items():
            with tempfile.TemporaryDirectory() as root, node(Path(root)) as running:
                for theme in _THEMES:
                    shots = [_shot(browser, running, size, theme) for size in (_SCREEN, _BESIDE)]
                    yield _beside(browser, shots, folder / f"page-{name}-{theme}.png")
                    if name == "full":
                        path = folder / f"pods-{theme}.png"
                        path.write_bytes(
                            _shot(browser, running, (1280, 800), theme, "?pod=nlp", "[aria-labelledby=pods]")
                        )
                        yield path


def _shot(
    browser: Browser, running: Daemon, size: tuple[int, int], theme: Theme, query: str = "", part: str = ""
) -> bytes:
    """The first screen of the page, or a part of it, as a PNG."""
    with visit(browser, f"http://127.0.0.1:{running.port}/{query}", size, theme) as seen:
        seen.page.evaluate(_USUAL_STOP)
        return seen.page.locator(part).screenshot() if part else seen.page.screenshot()


def _beside(browser: Browser, shots: list[bytes], path: Path) -> Path:
    """Write pictures side by side."""
    images = "".join(f"<img src='data:image/png;base64,{base64.b64encode(shot).decode()}'>" for shot in shots)
    page = browser.new_page(viewport={"width": _SCREEN[0] + _BESIDE[0] + 60, "height": _SCREEN[1] + 40})
    try:
        page.set_content(f"<body style='margin:20px;display:flex;gap:20px;background:#8a939f'>{images}")
        page.wait_for_function("() => [...document.images].every(image => image.complete)")
        page.screenshot(path=path)
    finally:
        page.close()
    return path


def main() -> int:
    """Draw into the folder that is named on the command line; the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("which folder? python -m tests.pictures.page FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in draw(folder):
        sys.stdout.write(f"{path} {path.stat().st_size // 1024} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
