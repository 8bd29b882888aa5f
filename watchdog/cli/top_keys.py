"""The keys of `top`: decoded from the terminal's bytes, and what each changes in the view."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from watchdog.cli.views import Choice

# What terminals send in their normal and in their application mode (xterm's control sequences, "PC-Style Function
# Keys"; the Linux console and rxvt differ in home and end).
_SEQUENCES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "up": (b"\x1b[A", b"\x1bOA"),
    "down": (b"\x1b[B", b"\x1bOB"),
    "pageup": (b"\x1b[5~",),
    "pagedown": (b"\x1b[6~",),
    "home": (b"\x1b[H", b"\x1bOH", b"\x1b[1~", b"\x1b[7~"),
    "end": (b"\x1b[F", b"\x1bOF", b"\x1b[4~", b"\x1b[8~"),
    "ctrl-c": (b"\x03", b"\x04"),  # an end of input ends it too
    "backspace": (b"\x08", b"\x7f"),
    "enter": (b"\n", b"\r"),
    "ctrl-u": (b"\x15",),
    "escape": (b"\x1b",),
}
_KEYS: Final = {sequence: key for key, sequences in _SEQUENCES.items() for sequence in sequences}
_KEY: Final = re.compile(
    rb"""\x1b\[[ -?]{0,29}+(?:[@-~]|(?=.))  # ECMA-48: parameters, and a final byte from @ to ~
    | \x1bO.                                # application mode
    | \x1b(?=[^[O])                         # the escape key, followed by another key
    | [\xc0-\xdf]. | [\xe0-\xef].. | [\xf0-\xff]...  # UTF-8
    | [^\x1b\xc0-\xff]""",
    re.DOTALL | re.VERBOSE,
)


def keys_of(data: bytes, *, is_all: bool = False) -> tuple[tuple[str, ...], bytes]:
    """The keys in these bytes, and the rest, which may be the start of another key; `is_all`: no more bytes follow.

    An unknown escape sequence is skipped whole, so that its letters are not taken for keys.
    """
    keys: list[str] = []
    while data:
        match = _KEY.match(data)
        if match is None and not is_all:
            break
        size = match.end() if match is not None else 1
        typed = data[:size].decode("utf-8", errors="ignore")
        keys.append(_KEYS.get(data[:size]) or (typed if typed.isprintable() else ""))
        data = data[size:]
    return tuple(filter(None, keys)), data


SORTS: Final[Mapping[str, str]] = {
    "u": "used",
    "p": "percent",
    "n": "name",
    "t": "time",
    "d": "declared",
    "v": "verdict",
}
_LONGEST_FILTER: Final = 100


class Row(Protocol):
    """A row that can be selected."""

    @property
    def key(self) -> object:
        """What identifies it, wherever it moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The state of the view."""

    choice: Choice = field(default_factory=Choice)
    # That of the selected row.
    key: object = None
    # Its row.
    place: int = 0
    # The filter being typed; None: none is.
    typed: str | None = None
    # Whether that is by GPU, and not by text.
    types_gpu: bool = False
    paused: bool = False
    help: bool = False
    # Whether the selected row is to be shown alone.
    opened: bool = False
    # Whether all rows are shown, also those that are usually summed up.
    whole: bool = False
    ended: bool = False

    def at(self, rows: Sequence[Row]) -> "Selection":
        """The selection among rows that may have moved: it follows its row, or else keeps its place."""
        if self.key is not None:
            found = next((number for number, row in enumerate(rows) if row.key == self.key), None)
            if found is not None:
                return replace(self, place=found)
        place = min(self.place, max(len(rows) - 1, 0))
        # A selection that was never moved stays at the top, whichever account is there.
        return replace(self, place=place, key=rows[place].key if rows and self.key is not None else None)

    def choose(self, **changes: object) -> "Selection":
        """Show other rows, from the top."""
        return replace(self, choice=replace(self.choice, **changes), key=None, place=0)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """The keys of a view, beside those that move the selection."""

    # The orders, by the key that chooses each; the same key again reverses it.
    sorts: Mapping[str, str]
    actions: Mapping[str, Callable[[Selection], Selection]]


def pressed(state: Selection, key: str, rows: Sequence[Row], bindings: "Bindings | None" = None) -> Selection:
    """The state after a key, one of the view of a node unless others are given; an unknown key changes nothing."""
    bindings = bindings or NODE_KEYS
    if state.typed is not None:
        return _typing(state, state.typed, key)
    if state.help:
        return replace(state, help=False, ended=key in ("q", "ctrl-c"))
    if key in bindings.sorts:
        is_same = state.choice.sort == bindings.sorts[key]
        return state.choose(sort=bindings.sorts[key], backwards=is_same and not state.choice.backwards)
    if key in MOVES:
        place = max(min(state.place + MOVES[key], len(rows) - 1), 0)
        return replace(state, place=place, key=rows[place].key if rows else None)
    return bindings.actions[key](state) if key in bindings.actions else state


def _typing(state: Selection, typed: str, key: str) -> Selection:
    if key == "enter":
        return replace(state.choose(**{"gpu" if state.types_gpu else "text": typed.strip()}), typed=None)
    if key in ("escape", "ctrl-c"):
        return replace(state, typed=None)
    if key == "backspace":
        return replace(state, typed=typed[:-1])
    if key == "ctrl-u":
        return replace(state, typed="")
    return replace(state, typed=(typed + key)[:_LONGEST_FILTER]) if len(key) == 1 else state


# Rows to move by; the place is limited to the rows that there are.
MOVES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("down", "j"), 1),
    **dict.fromkeys(("up", "k"), -1),
    "pagedown": 10,
    "pageup": -10,
    **dict.fromkeys(("home", "g"), -(10**6)),
    **dict.fromkeys(("end", "G"), 10**6),
}
# No filter.
ALL: Final[Mapping[str, object]] = {"text": "", "gpu": "", "over": False, "idle": False}
COMMON: Final[Mapping[str, Callable[[Selection], Selection]]] = {
    **dict.fromkeys(("q", "ctrl-c"), lambda state: replace(state, ended=True)),
    **dict.fromkeys(("f", "/"), lambda state: replace(state, typed=state.choice.text, types_gpu=False)),
    **dict.fromkeys(("?", "h"), lambda state: replace(state, help=True)),
    " ": lambda state: replace(state, paused=not state.paused),
    "escape": lambda state: state.choose(**ALL),
    "i": lambda state: state.choose(idle=not state.choice.idle),
}
NODE_KEYS: Final = Bindings(
    sorts=SORTS,
    actions={
        **COMMON,
        "c": lambda state: replace(state, typed=state.choice.gpu, types_gpu=True),
        "o": lambda state: state.choose(over=not state.choice.over),
    },
)
