"""Pictures of the status page: `python -m tests.pictures.page FOLDER`, as root on a machine with cgroups and Chromium.

It writes page-NODE-THEME.png: the whole page of a node of one card and four pods and of one of eight cards and a
hundred pods, from the real daemon over the stub of NVML and a real API server, whose program is built if need be, on a
screen with a phone beside it, light and dark; and pods-NODE-THEME.png: its pods, those of the larger node by a filter.
The hour before is in the daemon's journal. pod-THEME.png is the page of a pod after an hour of the real core.
"""

import base64
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from math import sin
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from tests.browser.browsing import Theme, chromium, visit
from tests.browser.full_node import full_node
from tests.browser.states import over
from tests.cli.full_node import FullNode
from tests.export.lived import Watched
from tests.pictures.past import Killed, at_work, earlier_spells, is_drawn, put_to_work, record_hour
from tests.report.build import Story, policy, serving, trainer
from tests.rig import Container, Daemon, Node, Pod
from tests.rig.cluster.rig_pods import RigPods, rig_pods
from tests.worlds import Gi, at, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Owner, Snapshot
from watchdog.core.utilization import CardUtilization, Holder, Utilization
from watchdog.report.sentences.following import note
from watchdog.report.status import Moment, RecentStatus

_THEMES: Final[Mapping[Theme, str]] = {"light": "#fff", "dark": "#0f1215"}  # with the page's own background
_EVALUATION: Final = Pod("eval-nightly-28fz4", "nlp", containers=[Container("main", "e" * 64, "16Gi")])


def _before_small(node: Node, policy: Path) -> None:
    put_to_work(node)
    killed = Killed(pod=_EVALUATION, ago=38)
    spells = {"alice-notebook-0": (31.0, 30.0)}
    record_hour(node.journal, policy, node.shown, node.owners, spells=spells, killed=[killed])


def _before_full(node: FullNode) -> None:
    at_work(node.stub).write(node.stub_file)
    spells = earlier_spells(node.stub, node.owners)
    record_hour(node.root / "journal.db", node.root / "policy.toml", node.stub, node.owners, spells=spells)


_NODES: Final[Mapping[str, Callable[[Path, RigPods], AbstractContextManager[Daemon]]]] = {
    "small": lambda root, api: over(root, cards=1, api=api, before=_before_small),
    "full": lambda root, api: full_node(root, cards=8, pods=100, api=api, before=_before_full),
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
  const tops = [...document.querySelectorAll('section, .urgent > li')].map(e => e.getBoundingClientRect().top - 3);
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
                running.wait(is_drawn)
                url = f"http://127.0.0.1:{running.port}/"
                for theme in _THEMES:
                    yield _beside(browser, url, theme, _whole, folder / f"page-{name}-{theme}.png")
                    yield _beside(browser, url + _FILTERS[name], theme, _pods, folder / f"pods-{name}-{theme}.png")


def draw_pod(folder: Path) -> Iterator[Path]:
    """Draw the page of a pod."""
    with chromium() as browser, serving(_notebook().endpoints) as server:
        for theme in _THEMES:
            url = f"http://127.0.0.1:{server.port}/pods/jupyter/alice-notebook-0"
            yield _beside(browser, url, theme, _whole, folder / f"pod-{theme}.png")


def _notebook() -> Watched:
    """A notebook that was over its limit for a moment, and has been for ten minutes now."""
    ladder = step("100%", 30, "warn", repeat_s=3600), step("110%", 1200, "kill"), step("200%", 0, "kill")
    under = policy(rule(*ladder, name="shared"), interval_s=15.0)
    owner = Owner(kind="StatefulSet", name="alice-notebook")
    holder = trainer(namespace="jupyter", name="alice-notebook-0", owner=owner)
    made = Watched(story=Story(under=under, pods=(holder,)))
    card = gpu(0, name="NVIDIA A100-SXM4-80GB")

    def seen(second: float) -> Snapshot:
        usual = 4.6 + sin(second / 70) * sin(second / 13)
        gib = 9.4 if 1400 <= second < 1460 else 11.2 if second >= 2960 else usual
        return snapshot([use(101, int(gib * Gi))], [process(101, "u1/main")], [card], second)

    for second in range(0, 3601, 5):
        made.utilization = _busy(0.34 + 0.3 * sin(second / 290) + 0.12 * sin(second / 19) * sin(second / 70))
        made.live(seen, second, second)
        for entry in made.report.plan.taken:
            made.mark(second, entry.do, entry.account, ("GPU-0",))
            action = RecentStatus(
                at=Moment(at(second).wall_s), namespace=holder.namespace, pod=holder.name, uid=holder.uid, do=entry.do,
                result="done", why=note(entry, at(second), policy=under),
            )  # fmt: skip
            made.act(action)
    return made


def _busy(ratio: float) -> Utilization:
    """How busy the notebook and its card are."""
    account, holder = AccountKey(uid="u1"), Holder("u1", "main", "GPU-0")
    return Utilization(
        cards={"GPU-0": CardUtilization(gpu="GPU-0", ratio=ratio)},
        by_account={account: ratio}, by_holder={holder: ratio}, holders={account: [holder]},
    )  # fmt: skip


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
