"""The user's choices, what each key changes in them, and which accounts are shown in which order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from watchdog.cli.top.rows import TopRow, floor, ratio, rows_of, unattributed_row
from watchdog.report.progress import AccountKey
from watchdog.report.status import Status

DEFAULT: Final = "percent"
VERDICTS: Final = ("over", "unknown", "misdeclared", "within", "undeclared")
Key = Callable[[TopRow], tuple[float, ...] | None]


def _verdict(row: TopRow) -> tuple[float, ...]:
    verdict = row.account.verdict
    return (float(VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)), -ratio(row.account))


def _percent(row: TopRow) -> tuple[float, ...] | None:
    return None if row.account.allowed is None else (-ratio(row.account), float(-floor(row.account)))


def _time(row: TopRow) -> tuple[float, ...] | None:
    left_s = row.progress.left_s(0.0)
    return None if left_s is None else (left_s, -ratio(row.account))


def _declared(row: TopRow) -> tuple[float, ...] | None:
    return None if row.account.declared is None else (-float(row.account.declared),)


# None: unknown or not applicable; such accounts come last in either direction.
KEYS: Final[dict[str, Key]] = {
    "used": lambda each: (-float(floor(each.account)),),
    "percent": _percent,
    "name": lambda _: (0.0,),
    "time": _time,
    "declared": _declared,
    "verdict": _verdict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which accounts are shown: `text` occurs in `namespace/name`, the rule or the verdict, ignoring case."""

    sort: str = DEFAULT
    backwards: bool = False
    text: str = ""
    over: bool = False

    def includes(self, row: TopRow) -> bool:
        """Whether an account is shown."""
        if self.over and row.account.verdict != "over":
            return False
        searched = f"{row.title} {row.account.rule or ''} {row.account.verdict}".casefold()
        return all(word in searched for word in self.text.casefold().split())


def chosen(status: Status, choice: Choice) -> tuple[TopRow, ...]:
    """The accounts to show in their order, ties by name; the unattributed processes are the last row."""
    rows = sorted(filter(choice.includes, rows_of(status)), key=lambda each: (each.title, each.account.uid))
    keyed = [(KEYS[choice.sort](each), each) for each in rows]
    known = sorted(((key, each) for key, each in keyed if key is not None), key=lambda pair: pair[0])
    ordered = [each for _, each in known]
    missing = [each for key, each in keyed if key is None]
    missing.sort(key=lambda each: -floor(each.account))
    last = unattributed_row(status)
    rest = (last,) if last is not None and choice.includes(last) else ()
    return (*(reversed(ordered) if choice.backwards else ordered), *missing, *rest)


SORTS: Final[Mapping[str, str]] = MappingProxyType(
    {"u": "used", "p": "percent", "n": "name", "t": "time", "d": "declared", "v": "verdict"}
)
_LONGEST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The state of the view. `key` is the selected account, `place` its row; `typed` is the filter being typed."""

    choice: Choice = field(default_factory=Choice)
    key: AccountKey | None = None
    place: int = 0
    page: int = 10
    typed: str | None = None
    paused: bool = False
    help: bool = False
    ended: bool = False

    def at(self, rows: tuple[TopRow, ...]) -> "Selection":
        """The selection among rows that may have moved: it follows its account, or else keeps its place."""
        keys = [row.key for row in rows]
        if self.key is not None and self.key in keys:
            return replace(self, place=keys.index(self.key))
        place = min(self.place, max(len(rows) - 1, 0))
        # A selection that was never moved stays at the top, whichever account is there.
        return replace(self, place=place, key=keys[place] if rows and self.key is not None else None)


def pressed(state: Selection, key: str, rows: tuple[TopRow, ...]) -> Selection:
    """The state after a key; an unknown key changes nothing."""
    if state.typed is not None:
        return _typing(state, key)
    if state.help:
        return replace(state, help=False, ended=key in ("q", "ctrl-c"))
    if key in SORTS:
        is_same = state.choice.sort == SORTS[key]
        backwards = is_same and not state.choice.backwards
        choice = replace(state.choice, sort=SORTS[key], backwards=backwards)
        return replace(state, choice=choice, key=None, place=0)
    if key in _MOVES:
        place = max(min(_MOVES[key](state, len(rows)), len(rows) - 1), 0)
        return replace(state, place=place, key=rows[place].key if rows else None)
    act = _ACTS.get(key)
    return act(state) if act is not None else state


def _typing(state: Selection, key: str) -> Selection:
    typed = state.typed or ""
    if key == "enter":
        return replace(state, typed=None, choice=replace(state.choice, text=typed.strip()), key=None, place=0)
    if key in ("escape", "ctrl-c"):
        return replace(state, typed=None)
    if key == "backspace":
        return replace(state, typed=typed[:-1])
    if key == "ctrl-u":
        return replace(state, typed="")
    return replace(state, typed=(typed + key)[:_LONGEST]) if len(key) == 1 and key.isprintable() else state


def _escape(state: Selection) -> Selection:
    """Show everything again, from the top."""
    return replace(state, choice=replace(state.choice, text="", over=False), key=None, place=0)


_MOVES: Final[Mapping[str, Callable[[Selection, int], int]]] = {
    "down": lambda state, _: state.place + 1,
    "j": lambda state, _: state.place + 1,
    "up": lambda state, _: state.place - 1,
    "k": lambda state, _: state.place - 1,
    "pagedown": lambda state, _: state.place + state.page,
    "pageup": lambda state, _: state.place - state.page,
    "home": lambda _, __: 0,
    "g": lambda _, __: 0,
    "end": lambda _, count: count - 1,
    "G": lambda _, count: count - 1,
}
_ACTS: Final[Mapping[str, Callable[[Selection], Selection]]] = {
    "q": lambda state: replace(state, ended=True),
    "ctrl-c": lambda state: replace(state, ended=True),
    "f": lambda state: replace(state, typed=state.choice.text),
    "/": lambda state: replace(state, typed=state.choice.text),
    "o": lambda state: replace(state, choice=replace(state.choice, over=not state.choice.over), key=None, place=0),
    " ": lambda state: replace(state, paused=not state.paused),
    "?": lambda state: replace(state, help=True),
    "h": lambda state: replace(state, help=True),
    "escape": _escape,
}
