"""Keys, from the bytes to what they change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.build import account, row
from watchdog.cli.top_keys import SORTS, Selection, keys_of, pressed
from watchdog.cli.views import Choice

ROWS = tuple(row(account(name)) for name in "abcdef")


@pytest.mark.parametrize(
    ("data", "keys", "rest"),
    [
        (b"", (), b""),
        (b"qj ", ("q", "j", " "), b""),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ("up", "down", "pageup", "pagedown"), b""),
        (b"\x1b[H\x1b[1~\x1bOH\x1b[F\x1b[4~", ("home", "home", "home", "end", "end"), b""),
        (b"\x03\x04\x7f\x08\r\n\x15", ("ctrl-c", "ctrl-c", "backspace", "backspace", "enter", "enter", "ctrl-u"), b""),
        # The beginning of a sequence: its rest may be on its way.
        (b"j\x1b", ("j",), b"\x1b"),
        (b"\x1b[", (), b"\x1b["),
        (b"\x1b[1;5", (), b"\x1b[1;5"),
        # Sequences without a meaning here are skipped, with all their letters: q must not be found in them.
        (b"\x1b[1;5Aj\x1b[<0;1;1Mq", ("j", "q"), b""),
        (b"\x1b[200~", (), b""),
        (b"\x1bq", ("escape", "q"), b""),
        (b"\x1b\x1b[A", ("escape", "up"), b""),
        ("é日".encode(), ("é", "日"), b""),
        ("日".encode()[:2], (), "日".encode()[:2]),
        (b"\xff\xfej", (), b"\xff\xfej"),
        (b"\x80j", ("j",), b""),
        (b"\x00\x01", (), b""),
    ],
)
def test_keys_of_bytes(data: bytes, keys: tuple[str, ...], rest: bytes) -> None:
    """Whole keys are found, and the beginning of one is kept for later."""
    assert keys_of(data) == (keys, rest)


@pytest.mark.parametrize(
    ("data", "keys"),
    [(b"\x1b", ("escape",)), (b"\x1b[", ("escape", "[")), ("日".encode()[:2], ()), (b"\x1bO", ("escape", "O"))],
)
def test_what_is_left_over_is_taken_as_it_is(data: bytes, keys: tuple[str, ...]) -> None:
    """When nothing more comes, the escape key was pressed alone."""
    assert keys_of(data, is_all=True) == (keys, b"")


@given(st.binary(max_size=200))
def test_any_bytes_end(data: bytes) -> None:
    """Any pasted bytes are read to their end, as keys or as nothing."""
    keys, rest = keys_of(data, is_all=True)
    assert rest == b""
    assert all(keys)


def after(*keys: str, state: Selection | None = None) -> Selection:
    """What keys make of a state, among six rows."""
    state = state or Selection()
    for key in keys:
        state = pressed(state.at(ROWS), key, ROWS)
    return state


@pytest.mark.parametrize(
    ("keys", "place"),
    [(("down",), 1), (("j", "j", "up"), 1), (("k",), 0), (("end",), 5), (("G", "j"), 5), (("G", "home"), 0),
     (("pagedown",), 5), (("G", "pageup"), 0)],
)  # fmt: skip
def test_moving(keys: tuple[str, ...], place: int) -> None:
    """The selection moves within the rows, and not beyond."""
    assert after(*keys).place == place


def test_the_selection_stays_with_its_pod() -> None:
    """When rows change places the selected pod stays selected; when it goes, its place is."""
    state = after("j", "j")
    assert state.at(tuple(reversed(ROWS))).place == 3
    assert state.at(tuple(each for each in ROWS if each.account.pod != "c")).place == 2
    assert state.at(ROWS[:1]).place == 0
    assert state.at(()).place == 0
    assert Selection().at(tuple(reversed(ROWS))).place == 0


@pytest.mark.parametrize(("key", "sort"), sorted(SORTS.items()))
def test_sorting(key: str, sort: str) -> None:
    """Each key sorts, the same once more turns it round, and another starts over from the top."""
    state = after("j", key, state=Selection(choice=Choice(sort="none", backwards=True)))
    assert (state.choice, state.place) == (Choice(sort=sort), 0)
    assert after(key, state=state).choice == Choice(sort=sort, backwards=True)
    other = "n" if key != "n" else "u"
    assert after(key, other, state=state).choice.backwards is False


def test_filtering() -> None:
    """What is typed after f is text and no command; Enter takes it, Esc leaves what was."""
    state = after("f", *"qo x", "backspace", "backspace")
    assert (state.typed, state.ended) == ("qo", False)
    assert after("enter", state=state).choice.text == "qo"
    assert after("escape", state=state) == after("escape", state=replace(state, typed="other"))
    taken = after("enter", state=state)
    assert after("f", state=taken).typed == "qo"
    assert after("f", "ctrl-u", "enter", state=taken).choice.text == ""
    assert after("escape", state=taken).choice.text == ""
    assert len(after("f", *"x" * 500).typed or "") == 100
    both = after("c", "3", "enter", state=taken)
    assert (both.choice.text, both.choice.gpu) == ("qo", "3")
    assert after("c", state=both).typed == "3"
    assert after("f", state=both).typed == "qo"
    assert after("escape", state=both).choice == Choice()


def test_the_other_keys() -> None:
    """Quit, pause, only over, only idle, help."""
    assert all(after(*keys).ended for keys in (("q",), ("ctrl-c",), ("?", "q")))
    assert (after(" ").paused, after(" ", " ").paused) == (True, False)
    assert (after("o").choice.over, after("o", "o").choice.over) == (True, False)
    assert (after("i").choice.idle, after("i", "i").choice.idle) == (True, False)
    assert after("o", "i", "escape").choice == Choice()
    assert (after("?").help, after("?", "j").help) == (True, False)
    assert after("x", "7", "pageleft") == Selection()
