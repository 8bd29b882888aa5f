"""Tables of the command line: which columns give way, what is cut and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.node.support import run_python
from watchdog.cli.tables import Column, cut, printed, table, text, wrapped

TWO = (
    Column(title="N", right=True),
    Column(title="A", least=8, is_name=True),
    Column(title="B", least=8, is_name=True),
)
names = st.text(min_size=1, max_size=300)


def test_a_table() -> None:
    """Titles above their columns, numbers to the right, nothing at the ends of lines."""
    assert printed(table(TWO, [("12", "alice", "x"), ("7", "b", "")])) == " N  A      B\n12  alice  x\n 7  b\n"


def test_without_a_width_nothing_is_cut() -> None:
    """A pipe has one line for each row, however long the names are."""
    row = ("1" * 300, "a" * 3000, "b" * 400)
    (line,) = table(TWO, [row])[1:]
    assert line.plain.split() == list(row)


def test_the_widest_flexible_column_gives_way_first() -> None:
    """Where a line would not fit, names are cut in the middle and numbers are left whole."""
    (line,) = table(TWO, [("123456", "a" * 90, "b" * 20)], 100)[1:]
    assert cell_len(line.plain) == 100
    assert line.plain.startswith("123456  aa")
    assert "a..a" in line.plain
    assert line.plain.endswith("b" * 20)


def test_columns_go_by_their_rank_before_anything_has_less_than_its_least() -> None:
    """The highest rank goes first, and only as many as have to."""
    columns = (
        Column(title="NAME", least=8, is_name=True),
        Column(title="KEPT", right=True),
        Column(title="LAST", rank=1),
        Column(title="FIRST", rank=2),
    )
    rows = [("a-long-name-of-a-pod", "12.4Gi", "last", "first")]
    titles = [table(columns, rows, width)[0].plain.split() for width in (41, 40, 29, 28, 22, 21, 16)]
    assert [len(each) for each in titles] == [4, 4, 4, 3, 3, 2, 2]
    assert titles[-1] == ["NAME", "KEPT"]
    assert "a-l..pod  12.4Gi" in table(columns, rows, 16)[1].plain
    assert "a-long-n..e-of-a-pod" not in table(columns, rows, 40)[1].plain


def test_columns_do_not_jump_when_rows_are_scrolled() -> None:
    """The widths are those of all rows, of the ones that are not shown too."""
    rows = [("1", "a", "b"), ("100000", "a" * 30, "b")]
    first, second = (table(TWO, rows, shown=range(place, place + 1)) for place in (0, 1))
    assert first[0].plain == second[0].plain
    assert (len(first), len(second)) == (2, 2)


def test_what_is_cut_at_its_end_has_a_mark() -> None:
    """Half of a number must not seem to be another."""
    assert [cut(text("12345"), width).plain for width in (5, 4, 1, 0)] == ["12345", "123~", "~", "~"]


@given(names, names, st.integers(min_value=24, max_value=120))
def test_every_line_fits_and_is_inert(first: str, second: str, width: int) -> None:
    """Whatever names there are, a line has the width that was asked for at most, and no control code."""
    cells = ("1", first, second)
    lines = table(TWO, [cells, cells], width)
    assert all(cell_len(line.plain) <= width and line.plain.isprintable() for line in lines)
    lines = wrapped(f"{first} {second}", width, "- ", "  ")
    assert all(cell_len(line.plain) <= width and line.plain.isprintable() for line in lines)


def test_names_are_no_markup() -> None:
    """What looks like markup, an emoji's code or a number is printed as it is, with no colour of its own."""
    row = ("1", "[red]a[/red]", ":smile:")
    assert "[red]a[/red]  :smile:" in printed(table(TWO, [row]))
    assert "\x1b" not in printed(table(TWO, [row])[1:], colour=True)
    sentence = "[red]a[/red] :smile: 12 of 'b'"
    assert printed([sentence], colour=True) == f"{sentence}\n"


def test_colour_is_that_of_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's colour ends where its text does; the caller says whether there is any, not the environment."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    lines = table(TWO, [("1", text("over", "red"), "b")])
    assert printed(lines, colour=True).splitlines()[1] == "1  \x1b[31mover\x1b[0m  b"
    assert printed(lines).splitlines()[1] == "1  over  b"


def test_names_are_wrapped_whole() -> None:
    """A name copied from a sentence is whole: no break at a hyphen."""
    lines = [line.plain for line in wrapped("Pod a/trainer-resnet-7d9f8-00001 is over", 30, "- ", "  ")]
    assert lines == ["- Pod", "  a/trainer-resnet-7d9f8-00001", "  is over"]


def loaded(*modules: str) -> str:
    """What there is of the library for terminals once these modules are imported."""
    found = "sorted(name for name in sys.modules if name.partition('.')[0] in ('rich', 'pygments', 'markdown_it'))"
    return run_python(f"import sys, {', '.join(modules)}; print({found})")


@pytest.mark.slow
def test_who_loads_the_library_for_terminals() -> None:
    """Commands that print tables load it; the daemon does not, since its memory is the node's."""
    others = ("main", "run", "history", "explain", "stop", "doctor", "withdraw")
    assert loaded(*(f"watchdog.cli.{name}" for name in others)) == "[]\n"
    for name in ("scan", "replay", "recommend", "top", "check"):
        found = loaded(f"watchdog.cli.{name}")
        assert "rich.text" in found
        # Colouring of source code and Markdown are the large parts of it.
        assert "pygments" not in found
        assert "markdown_it" not in found
