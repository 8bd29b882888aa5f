"""Which screen the demo uses."""

import os

import pytest

from tests.cli.demo.showing import open_terminal
from tests.cli.demo.test_frame import view
from watchdog.cli.demo.screen import FrameScreen, LineScreen, screen_for


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


def test_ascii() -> None:
    """A terminal whose encoding is not UTF-8 gets bars of ASCII characters."""
    master, slave = open_terminal(80, 24)
    with open(slave, "w", encoding="latin-1") as terminal:  # noqa: PTH123 - a descriptor, not a path
        screen = FrameScreen(terminal)
        screen.show(view())
        screen.close()
        assert os.read(master, 65536).isascii()
    os.close(master)
