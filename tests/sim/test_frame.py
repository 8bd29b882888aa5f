"""How a scene of the demo is drawn."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.cli.demo.scene import DemoScene, Occurrence, Row, SceneMark
from watchdog.cli.demo.screen import ASCII, BLOCKS, DemoSigns, frame, plain_line, plain_occurrence
from watchdog.core.model import Gpu

GI = 2**30
MARKS = (
    SceneMark(label="warn 100% for 2s", share=1.0),
    SceneMark(label="kill 120% for 4s: SIGTERM, then SIGKILL after 3s", share=1.2),
)
COLOUR = re.compile(r"\x1b\[[0-9]*m")


def row(title: str = "ns/pod", used: int = 4 * GI, verdict: str = "within") -> Row:
    """A tenant that is allowed 8 GiB."""
    return Row(
        title=title,
        used=used,
        declared=7 * GI,
        allowed=8 * GI,
        verdict=verdict,
        marks=MARKS,
        ladder="SIGTERM sent, SIGKILL in 12.2s",
        tone="bad",
        processes="4194304 ended",
    )


def scene(*used: int, lingering: int = 0, occurrences: int = 3) -> DemoScene:
    """Three tenants, and a list of what happened with lines that are too long for any terminal."""
    rows = tuple(row(f"ns/pod-{i}", each) for i, each in enumerate(used or (GI, 9 * GI, 11 * GI)))
    total = sum(each.used for each in rows) + lingering + GI // 2
    card = Gpu(uuid="GPU-1", index=0, name="Sim", total=24 * GI, used=total, reserved=GI // 2)
    long = tuple(Occurrence(second=i, word="started", text=f"{i} {'x' * 200}") for i in range(occurrences))
    return DemoScene(second=12.5, card=card, rows=rows, lingering=lingering, occurrences=long)


def lines_of(drawn: list[str]) -> list[str]:
    """The lines as a terminal shows them."""
    return [COLOUR.sub("", line) for line in drawn]


@pytest.mark.parametrize("signs", [BLOCKS, ASCII])
@pytest.mark.parametrize("width", [71, 79, 99])
@pytest.mark.parametrize("height", [5, 19, 23, 50])
def test_fits(signs: DemoSigns, width: int, height: int) -> None:
    """No line is wider than asked; of the occurrences the newest are shown as far as the height allows."""
    drawn = lines_of(frame(scene(occurrences=20), signs, width, height))
    assert max(map(len, drawn)) <= width
    assert len(drawn) == max(min(height, 14 + 20), 14)
    if height > 14:
        assert drawn[-1].startswith("t=19.0s  started   19 x")


def test_eighty_columns() -> None:
    """On the usual 80 columns nothing but an overlong occurrence is cut."""
    drawn = lines_of(frame(scene(), BLOCKS, 79, 23))
    for text in (
        "SIGKILL in 12.2s",
        "SIGKILL after 3s",
        "4194304 ended",
        "t = 12.5s",
        "signals are real.",
        "24Gi used",
    ):
        assert any(line.endswith(text) for line in drawn), text


def test_marks_stand_below_each_other() -> None:
    """The marks of all gauges and the labels under them are in one column each."""
    drawn = lines_of(frame(scene(), ASCII, 79, 23))
    gauges, ruler = [drawn[i] for i in (7, 9, 11)], drawn[12]
    columns = {tuple(i for i, sign in enumerate(line[:38]) if sign == "|") for line in gauges}
    assert columns == {tuple(i for i, sign in enumerate(ruler) if sign == "^")}


@given(st.lists(st.integers(0, 7 * GI), min_size=3, max_size=3), st.integers(0, 2 * GI))
def test_card_bar(used: list[int], lingering: int) -> None:
    """The card's bar has the same width whatever is on it, and each tenant's part of it is as wide as its use."""
    shown = scene(*used, lingering=lingering)
    line = lines_of(frame(shown, ASCII, 79, 23))[3]
    bar = line.removeprefix("GPU 0  ").partition("  ")[0]
    assert len(bar) == 48
    assert 48 - bar.count(ASCII.free) == round(48 * (shown.card.used or 0) / (24 * GI))
    for amount, sign in zip((*used, lingering), (*ASCII.tenants, ASCII.lingering), strict=True):
        assert abs(bar.count(sign) - 48 * amount / (24 * GI)) <= 1


def test_plain() -> None:
    """A pipe gets whole lines without control codes."""
    text = plain_line(scene()) + plain_occurrence(scene().occurrences[2])
    assert "\x1b" not in text
    assert text.startswith("t=12.5s  card 21.5Gi of 24Gi | pod-0 1Gi/8Gi within | pod-1 9Gi/8Gi within |")
    assert text.endswith("x" * 200)


def test_plain_ladder() -> None:
    """In a pipe an account that is over says where it stands on its ladder."""
    over = scene()
    rows = (row(verdict="over"), *over.rows[1:])
    line = plain_line(DemoScene(second=1, card=over.card, rows=rows, lingering=0, occurrences=()))
    assert "| pod 4Gi/8Gi over, SIGTERM sent, SIGKILL in 12.2s |" in line
