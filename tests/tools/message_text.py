"""Templates of texts: what is fixed in a message, and what differs from one time to the next.

Written down, `<path>` stands for what differs, `«text»` for what may be missing, `«a|b»` for one of several (`«a|b|»`:
or none of them), and `«text»*` for what may come several times.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_MOST_CHOICES: Final = 4
_LONGEST_PIECE: Final = 110


@dataclass(frozen=True, slots=True)
class Lit:
    """Fixed text."""

    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """What differs. `is_piece`: it is itself one of several texts, which are listed under this name."""

    name: str
    is_piece: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    parts: tuple["Text", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several; an empty text among them means that it may be missing."""

    choices: tuple["Text", ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A text that may come several times."""

    item: "Text"


Text = Lit | Hole | Seq | Alt | Many
EMPTY: Final = Lit("")


def seq(parts: Iterable[Text]) -> Text:
    """Put texts one after the other; fixed ones are joined."""
    joined: list[Text] = []
    for part in _flat(parts):
        if isinstance(part, Lit) and joined and isinstance(joined[-1], Lit):
            joined[-1] = Lit(joined[-1].text + part.text)
        elif part != EMPTY:
            joined.append(part)
    if not joined:
        return EMPTY
    return joined[0] if len(joined) == 1 else Seq(tuple(joined))


def _flat(parts: Iterable[Text]) -> Iterator[Text]:
    for part in parts:
        if isinstance(part, Seq):
            yield from part.parts
        else:
            yield part


def alt(choices: Iterable[Text]) -> Text:
    """One of several texts, each once."""
    found: dict[Text, None] = {}
    for choice in choices:
        found.update(dict.fromkeys(choice.choices if isinstance(choice, Alt) else (choice,)))
    if len(found) == 2:
        first, second = found
        return _factored(first, second)
    return next(iter(found)) if len(found) == 1 else Alt(tuple(found))


def _factored(first: Text, second: Text) -> Text:
    """One of two texts, with what both begin with before it: `<n> process«es»`."""
    for shorter, longer in ((first, second), (second, first)):
        *head, end = shorter.parts if isinstance(shorter, Seq) else (shorter,)
        parts = longer.parts if isinstance(longer, Seq) else (longer,)
        if head and len(parts) >= len(head) + 1 and list(parts[: len(head)]) == head:
            tail = parts[len(head)]
            if isinstance(end, Lit) and isinstance(tail, Lit) and tail.text.startswith(end.text):
                rest = seq((Lit(tail.text.removeprefix(end.text)), *parts[len(head) + 1 :]))
                return seq((shorter, Alt((rest, EMPTY))))
    return Alt((first, second))


def count_words(text: Text) -> int:
    """How many words of a text are fixed, of its longest choice."""
    match text:
        case Lit():
            return len(_WORD.findall(text.text))
        case Hole():
            return 0
        case Seq():
            return sum(map(count_words, text.parts))
        case Alt():
            return max(map(count_words, text.choices), default=0)
        case Many():
            return count_words(text.item)


def has_piece(text: Text) -> bool:
    """Whether a part of it is listed elsewhere."""
    match text:
        case Hole():
            return text.is_piece
        case Seq():
            return any(map(has_piece, text.parts))
        case Alt():
            return any(map(has_piece, text.choices))
        case Many():
            return has_piece(text.item)
    return False


def has_blank(text: Text) -> bool:
    """Whether a blank stands in it: names and keys have none."""
    match text:
        case Lit():
            return " " in text.text.strip()
        case Seq():
            return any(isinstance(part, Lit) and " " in part.text for part in text.parts) or any(
                map(has_blank, text.parts)
            )
        case Alt():
            return any(map(has_blank, text.choices))
        case Many():
            return has_blank(text.item)
    return False


def is_small(text: Text) -> bool:
    """Whether a text is short enough to be written out within another one."""
    return _choices(text) <= _MOST_CHOICES and len(write(text)) <= _LONGEST_PIECE


def _choices(text: Text) -> int:
    match text:
        case Seq():
            return sum(_choices(part) - 1 for part in text.parts) + 1
        case Alt():
            return sum(map(_choices, text.choices))
        case Many():
            return _choices(text.item)
    return 1


def write(text: Text) -> str:
    """Write a template down, as above."""
    match text:
        case Lit():
            return re.sub(r"\s*\n\s*", " ", text.text)
        case Hole():
            return f"<{text.name}>"
        case Seq():
            return "".join(map(write, text.parts))
        case Many():
            item = write(text.item)
            return f"{item}*" if isinstance(text.item, Alt) else f"«{item}»*"
        case Alt():
            written = [write(choice) for choice in text.choices if choice != EMPTY]
            if EMPTY in text.choices and len(written) > 1:
                written.append("")
            return f"«{'|'.join(written)}»" if written else ""


def variants(text: Text) -> tuple[Text, ...]:
    """The texts that a template is one of, at its outermost."""
    return tuple(choice for choice in text.choices if choice != EMPTY) if isinstance(text, Alt) else (text,)


def after(separator: Text, text: Text) -> Text:
    """A text with what separates it from the one before it; where it may be missing, so may that."""
    if isinstance(text, Alt) and EMPTY in text.choices:
        return alt((*(seq((separator, choice)) for choice in text.choices if choice != EMPTY), EMPTY))
    return seq((separator, text))
