"""The demo's frames and lines, and which terminal gets which."""

import os

import pytest

from tests.cli.build import account, node, step
from tests.cli.demo.showing import open_terminal
from tests.worlds import Gi
from watchdog.cli.demo.screen import (
    DemoEvent,
    DemoView,
    FrameScreen,
    LineScreen,
    event_line,
    frame,
    plain_line,
    screen_for,
)
from watchdog.cli.views import ASCII, BLOCKS, Signs


@pytest.mark.parametrize(
    ("columns", "rows", "environment", "kind"),
    [
        (80, 24, {}, FrameScreen),
        (72, 20, {}, FrameScreen),
        (0, 0, {}, FrameScreen),  # a terminal that does not know its size: serial lines, some tools
        (71, 24, {}, LineScreen),
        (80, 19, {}, LineScreen),
        (80, 24, {"NO_COLOR": "1"}, LineScreen),
        (80, 24, {"TERM": "dumb"}, LineScreen),
        (80, 24, {"TERM": ""}, LineScreen),
    ],
)
def test_which(
    columns: int, rows: int, environment: dict[str, str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminals that are large enough and have colour get frames; all others get lines without control codes."""
    for name, value in ({"NO_COLOR": "", "TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    master, slave = open_terminal(columns, rows)
    with open(slave, "w", encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor, not a path
        screen = screen_for(terminal)
        screen.close()
    assert type(screen) is kind
    os.close(master)


RULE = 'Rule "shared card": warn above 100% for 2s, kill above 120% for 4s'


def view(events: int = 3) -> DemoView:
    """Three pods, one of which will be killed, and events with lines too long for any terminal."""
    shown = node(
        account("detector", used=4 * Gi),
        account("jupyter-7", used=9 * Gi, verdict="over"),
        (account("finetune", used=11 * Gi, verdict="over"), step(due_in_s=4.0)),
        enforcing=True,
        unattributed=(),
    )
    long = tuple(DemoEvent(second=i, word="started", text=f"{i} {'x' * 200}") for i in range(events))
    return DemoView(second=12.5, status=shown, elapsed_s=1.5, rule=RULE, events=long)


def drawn(shown: DemoView, width: int = 79, height: int = 23, signs: Signs = BLOCKS) -> list[str]:
    """The lines as a terminal without colour shows them."""
    return [line.plain for line in frame(shown, signs, width, height)]


@pytest.mark.parametrize("signs", [BLOCKS, ASCII])
@pytest.mark.parametrize("width", [71, 79, 119])
@pytest.mark.parametrize("height", [5, 19, 23, 50])
def test_fits(signs: Signs, width: int, height: int) -> None:
    """No line is wider than asked; of the events the newest are shown as far as the height allows."""
    lines = drawn(view(events=20), width, height, signs)
    assert max(map(len, lines)) <= width
    assert len(lines) == max(min(height, 14 + 20), 14)
    if height > 14:
        assert lines[-1].startswith("t=19.0s  started   19 x")


def test_plain() -> None:
    """A pipe gets whole lines without control codes."""
    shown = view()
    assert plain_line(shown).partition("| ")[2] == (
        "detector 4Gi/8Gi within | finetune 11Gi/8Gi over, kill in 3s | jupyter-7 9Gi/8Gi over"
    )
    assert plain_line(shown).startswith("t=12.5s  card ")
    assert str(event_line(shown.events[2])).endswith("x" * 200)


def test_ascii() -> None:
    """A terminal whose encoding is not UTF-8 gets bars of ASCII characters."""
    master, slave = open_terminal(80, 24)
    with open(slave, "w", encoding="latin-1") as terminal:  # noqa: PTH123 - a descriptor, not a path
        screen = FrameScreen(terminal)
        screen.show(view())
        screen.close()
        assert os.read(master, 65536).isascii()
    os.close(master)
