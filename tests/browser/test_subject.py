"""The pages of a pod and of a GPU in a real Chromium: in each state of a node, and with what only happens in time."""

import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import PHONE, REACHABLE, WALL, Theme, visit
from tests.browser.test_page import LOOKS, check_alone, check_fits
from tests.export.lived import Watched
from tests.export.page_reader import action
from tests.node.support import cannot_run
from tests.report.build import AT_ONCE, KILL, WARN, Story, activity, policy, serving, trainer, trainer_node
from tests.rig import Daemon
from tests.worlds import Gi, at, container, gpu, pod, process, rule, snapshot, use
from tools.programs import NoProgramsError, vnu
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Owner, Snapshot
from watchdog.core.policy import Declaration, Do
from watchdog.core.utilization import CardUtilization, Holder, Utilization
from watchdog.report.status import Moment

pytestmark = [pytest.mark.slow]
TRAINER: Final = "/pods/a/trainer"
# A pod of the states of `states.py`, and one of its GPUs.
PAGES: Final = ("/pods/jupyter/alice-notebook-0", "/gpus/0")


def _over(until: float = 3600.0) -> Watched:
    made = Watched()
    made.live(lambda second: trainer_node(6.0 if second < 2700 else 12.4, second), until)
    for second, do in ((2720, Do.WARN), (2790, Do.WARN), (3300, Do.WARN)):
        made.mark(second, do, AccountKey(uid="u1"), ("GPU-0", "GPU-1"))
    return made


def _gone() -> Watched:
    made = _over()
    made.mark(3610, Do.KILL, AccountKey(uid="u1"), ("GPU-0",))
    made.act(action(at=Moment(at(3610).wall_s), why="It used too much.", outcome="Its memory is free."))
    made.story = replace(made.story, pods=())
    made.live(lambda second: trainer_node(3.0, second, uses=(use(9, Gi),)), 3900, 3615)
    return made


def _back() -> Watched:
    made = _gone()
    made.story = replace(made.story, pods=(trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),)),))
    again = snapshot([use(5, 6 * Gi)], [process(5, "u2/main")])
    made.live(lambda second: replace(again, at=at(second)), 4500, 3915)
    return made


def _with_gaps() -> Watched:
    made = _over(1500)
    made.live(lambda second: trainer_node(7.0, second), 2400, 1980)
    made.live(lambda second: trainer_node(4.0, second, blind=True, gpus=(), uses=(), processes={}), 3000, 2415)
    return made


def _undeclared() -> Watched:
    made = Watched(story=Story(pods=(trainer(containers=(container("main", of="u1"), container("side", of="u1"))),)))
    made.live(lambda second: trainer_node(5.3, second), 600)
    return made


def _busy() -> Watched:
    made = _over(1500)
    made.utilization = activity(0.35)
    made.live(lambda second: trainer_node(7.0, second), 2700, 1515)
    made.utilization = activity(None, card=CardUtilization(gpu="", why="it does not say"))
    made.live(lambda second: trainer_node(7.0, second), 3000, 2715)
    made.utilization = activity(0.004)
    made.live(lambda second: trainer_node(7.0, second), 3600, 3015)
    return made


def _busy_in_many_parts() -> Watched:
    holders = [Holder("u1", name, uuid) for name in ("main", "side", "third") for uuid in ("GPU-0", "GPU-1")]
    made, key = Watched(), AccountKey(uid="u1")
    made.utilization = Utilization(
        by_account={key: 0.5}, by_holder={each: n / 6 for n, each in enumerate(holders)}, holders={key: holders}
    )
    made.live(lambda second: trainer_node(6.0, second), 3600)
    return made


_WORDS: Final = "training-of-the-large-language-model-for-the-research-group-" * 6
# The longest names that Kubernetes allows, of words, since the checker of HTML guesses the language.
_LONG: Final = (_WORDS[:63], f"{_WORDS[:252]}x")


def _long() -> Watched:
    name = _LONG[0]
    key = f"{'.'.join([_WORDS[:59]] * 4)}/{name}"
    under = policy(rule(WARN, KILL, AT_ONCE, name=name), declarations=(Declaration(resource=key, unit=1),))
    main = replace(container(name, of="u1", resources={key: "8Gi"}), ids=trainer().containers[0].ids)
    holder = trainer(
        namespace=_LONG[0], name=_LONG[1], containers=(main,), owner=Owner(kind="StatefulSet", name=_LONG[1])
    )
    made = Watched(story=Story(under=under, pods=(holder,)))
    made.live(lambda second: trainer_node(12.4, second), 600)
    made.act(action(namespace=_LONG[0], pod=_LONG[1], container=name))
    return made


def _mig() -> Watched:
    cards = [
        gpu(0, 10 * Gi, uuid=f"MIG-{n}", parent="GPU-9", gi=n, ci=0, profile="1g.10gb", used=6 * Gi) for n in (1, 2, 3)
    ]
    made = Watched(story=Story(pods=tuple(pod(f"u{n}", container("main", "4Gi", of=f"u{n}")) for n in range(3))))

    def seen(second: float) -> Snapshot:
        uses = [use(100, 3 * Gi if second < 300 else 5 * Gi), use(101, Gi), use(9, Gi // 2)]
        processes = [process(100, "u0/main"), process(101, "u1/main"), process(9, None, name="Xorg")]
        return snapshot([replace(each, gpu="MIG-1") for each in uses], processes, cards, second)

    made.live(seen, 600)
    made.mark(320, Do.WARN, AccountKey(uid="u0"), ("MIG-1",))
    made.act(action(namespace="ns", pod="pod-u0", do="warn", at=Moment(at(320).wall_s)))
    return made


LIVED: Final[Mapping[str, tuple[Callable[[], Watched], str]]] = {
    "over": (_over, TRAINER),
    "gone": (_gone, TRAINER),
    "back": (_back, TRAINER),
    "with gaps": (_with_gaps, TRAINER),
    "undeclared": (_undeclared, TRAINER),
    "long names": (_long, f"/pods/{_LONG[0]}/{_LONG[1]}"),
    "an instance": (_mig, "/gpus/0/1"),
    "a card": (_gone, "/gpus/0"),
    "busy": (_busy, TRAINER),
    "busy in many parts": (_busy_in_many_parts, TRAINER),
    "a busy card": (_busy, "/gpus/0"),
}


@pytest.fixture(scope="module", params=LIVED)
def lived(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a page after an hour, still."""
    make, path = LIVED[request.param]
    with serving(make().endpoints) as server:
        yield f"http://127.0.0.1:{server.port}{path}?still"


def _check(browser: Browser, url: str, size: tuple[int, int], theme: Theme) -> None:
    with visit(browser, url, size, theme) as seen:
        assert seen.page.locator("h1").count() == 1
        check_fits(seen)
        check_alone(seen, url)
        assert seen.violations() == []
    with visit(browser, url, size, theme, zoom=2.0) as seen:
        check_fits(seen)


@LOOKS
def test_every_hour_is_accessible_and_fits(browser: Browser, lived: str, size: tuple[int, int], theme: Theme) -> None:
    """No request beyond the page, a silent console, nothing for axe to find, and no scrolling to the side."""
    _check(browser, lived, size, theme)


@pytest.mark.node
@LOOKS
@pytest.mark.parametrize("path", PAGES)
def test_every_state_is_accessible_and_fits(
    browser: Browser, state: Daemon, path: str, size: tuple[int, int], theme: Theme
) -> None:
    """The same for a real daemon in each state of the node."""
    _check(browser, f"http://127.0.0.1:{state.port}{path}?still", size, theme)


@LOOKS
@pytest.mark.parametrize("path", ["/", TRAINER, "/gpus/0"])
def test_what_is_idle_is_accessible_and_fits(browser: Browser, path: str, size: tuple[int, int], theme: Theme) -> None:
    """The same for the findings on each kind of page, and for why it isn't known how busy something is."""
    mute = CardUtilization(gpu="", ratio=0.5, why="the driver does not say what its processes do " * 4)
    made = Watched(utilization=activity(0.0, 7800.0, mute))
    made.live(lambda second: trainer_node(4.0, second), 600)
    with serving(made.endpoints) as server:
        _check(browser, f"http://127.0.0.1:{server.port}{path}?still", size, theme)


def test_the_numbers_of_the_hour_can_be_read(browser: Browser, lived: str) -> None:
    """The table opens by keyboard, fits on a phone, and the keyboard reaches everything else too."""
    with visit(browser, lived, PHONE) as seen:
        for details in seen.page.locator("summary").all():
            details.press("Enter")
        check_fits(seen)
        assert seen.page.locator("details:not([open])").count() == 0
    with visit(browser, lived, WALL) as seen:
        passed = seen.tab()
        assert [each["text"] for each in passed] == seen.page.evaluate(REACHABLE)
        assert {each["outline"] for each in passed} == {"solid"}


def test_the_plot_is_drawn(browser: Browser, lived: str) -> None:
    """The lines of what was used and of utilisation have an extent, inside their plots."""
    with visit(browser, lived, WALL) as seen:
        plots = [(".plot:not(.busy)", ".last[d]")]
        if seen.page.locator(".plot.busy").count():
            plots.append((".plot.busy", "path.busy-0:not(.band)"))
        for plot, path in plots:
            box, line = seen.page.locator(plot).bounding_box(), seen.page.locator(path).bounding_box()
            assert box is not None
            assert line is not None
            assert line["width"] > 10
            assert box["x"] - 6 <= line["x"]
            assert line["x"] + line["width"] <= box["x"] + box["width"] + 6
            assert box["y"] - 6 <= line["y"]
            assert line["y"] + line["height"] <= box["y"] + box["height"] + 6


def test_both_plots_have_the_same_axis_of_time(browser: Browser) -> None:
    """What is above each other was at the same time, on a phone too."""
    with serving(_busy().endpoints) as server:
        for size in (PHONE, WALL):
            with visit(browser, f"http://127.0.0.1:{server.port}{TRAINER}?still", size) as seen:
                boxes = [seen.page.locator(plot).bounding_box() for plot in (".plot:not(.busy)", ".plot.busy")]
                (x, width), (other_x, other_width) = [(box["x"], box["width"]) for box in boxes if box is not None]
                assert (x, width) == (other_x, other_width)


def test_the_pages_are_valid_html(lived: str) -> None:
    """The checker finds nothing, not even to warn of."""
    try:
        command = vnu()
    except NoProgramsError as error:
        cannot_run(str(error))
    with urllib.request.urlopen(lived, timeout=30) as answer:
        page: bytes = answer.read()
    done = subprocess.run([*command, "--Werror", "-"], input=page, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
