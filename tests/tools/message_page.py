"""Reads docs/messages.md back: the templates on it, and which texts are one of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tests.tools.message_text import EMPTY, Alt, Hole, Lit, Many, Seq, Text, alt, seq

_SPAN: Final = re.compile(r"`` (.+?) ``|`([^`]+)`")
_PIECE: Final = re.compile(r"\*\*(?:`` <(.+?)> ``|`<([^`]+)>`)\*\*")
_TOKEN: Final = re.compile(r"<([A-Za-z][^<>«»|]*)>|([«»|]\*?)|([^<«»|]+|<)")
_LEAST_LETTERS: Final = 8
_MOST_OF_A_PART: Final = 0.6
_END: Final = "\n"  # of a sentence: nothing that differs goes on beyond it
_DEEPEST: Final = 8

# Where a text can go on after what has been matched of it, each place with the most letters of fixed words up to it.
_Places = Mapping[int, int]


def parse_template(written: str) -> Text:
    """Read a template as the page has it."""
    tokens = [match.groups() for match in _TOKEN.finditer(written)]
    text, _ = _parse(tokens, 0)
    return text


def _parse(tokens: list[tuple[str | None, ...]], at: int) -> tuple[Text, int]:
    """The text up to the end of its group, and the place behind that."""
    choices: list[list[Text]] = [[]]
    closed = "»"
    while at < len(tokens):
        hole, sign, literal = tokens[at]
        at += 1
        if hole is not None:
            choices[-1].append(Hole(hole))
        elif sign == "«":
            inner, at = _parse(tokens, at)
            choices[-1].append(inner)
        elif sign == "|" and at:
            choices.append([])
        elif sign in ("»", "»*"):
            closed = sign
            break
        elif literal is not None:
            choices[-1].append(Lit(literal))
    is_group = at <= len(tokens) and tokens[at - 1][1] in ("»", "»*")
    texts = [seq(each) for each in choices]
    if not is_group:
        return seq(part for index, text in enumerate(texts) for part in ((Lit("|"), text) if index else (text,))), at
    if closed == "»*":
        return Many(alt(texts)), at
    return alt((*texts, EMPTY)) if len(texts) == 1 else alt(texts), at


@dataclass(frozen=True)
class Page:
    """The templates of the page, and those that stand under the name of a piece."""

    templates: tuple[str, ...]
    pieces: Mapping[str, tuple[str, ...]]
    _read: dict[str, Text] = field(default_factory=dict, compare=False)

    def tells(self, text: str) -> bool:
        """Whether a text is one of those on the page, by some fixed words of it and not by names alone."""
        return next(self.fitting(text), None) is not None

    def fitting(self, text: str) -> Iterator[str]:
        """The templates that a text is one of."""
        bare = _bare(text)
        letters = sum(map(str.isalpha, bare))
        parts = {template for written in self.pieces.values() for template in written}
        for template in self.templates:
            if all(fixed in bare.replace(_END, "") for fixed in _always(template)):
                fixed = self._match(self._template(template), {0: 0}, bare, 0).get(len(bare), -1)
                # A part of a sentence is one by itself only where most of it is fixed.
                least = letters * _MOST_OF_A_PART if template in parts else min(letters, _LEAST_LETTERS)
                if bare and fixed >= least:
                    yield template

    def _template(self, written: str) -> Text:
        if written not in self._read:
            self._read[written] = parse_template(written)
        return self._read[written]

    def _match(self, text: Text, places: _Places, bare: str, depth: int) -> _Places:
        match text:
            case Lit():
                return _after_literal(_bare(text.text), places, bare)
            case Seq():
                for part in text.parts:
                    places = self._match(part, places, bare, depth)
                return places
            case Alt():
                return _best(self._match(choice, places, bare, depth) for choice in text.choices)
            case Many():
                return _after_anything(self._match(text.item, places, bare, depth), bare)
        if text.name not in self.pieces or depth >= _DEEPEST or not places:
            return _after_anything(places, bare)
        written = self.pieces[text.name]
        return _best(self._match(self._template(each), places, bare, depth + 1) for each in written)


def _after_literal(fixed: str, places: _Places, bare: str) -> _Places:
    letters, pattern = sum(map(str.isalpha, fixed)), _pattern(fixed)
    found = ((pattern.match(bare, at), most) for at, most in places.items())
    return {match.end(): most + letters for match, most in found if match is not None}


@cache
def _pattern(fixed: str) -> re.Pattern[str]:
    """A fixed text that may begin with the end of a sentence and have some in it."""
    return re.compile(_END + "?" + re.escape(fixed.replace(_END, "")).replace(r"\.", rf"\.{_END}?"))


def _after_anything(places: _Places, bare: str) -> _Places:
    found: dict[int, int] = {}
    most = -1
    for at in range(min(places, default=len(bare)), len(bare) + 1):
        most = max(most, places.get(at, -1))
        if most >= 0:
            found[at] = most
        if bare[at : at + 1] == _END:
            most = -1
    return found


def _best(ways: Iterator[_Places]) -> _Places:
    found: dict[int, int] = {}
    for way in ways:
        for at, most in way.items():
            found[at] = max(most, found.get(at, -1))
    return found


@cache
def _bare(text: str) -> str:
    """A text without blanks and capitals: where a sentence is made of parts, neither is fixed. Its sentences end."""
    return _END.join("".join(part.split()) for part in re.split(r"(?<=\.)\s+(?=[A-Z])", text)).lower()


@cache
def _always(template: str) -> tuple[str, ...]:
    """What stands in every text of a template."""
    depth, found = 0, []
    for _, sign, literal in _TOKEN.findall(template):
        depth += (sign == "«") - sign.startswith("»")
        if literal and not depth:
            found.append(_bare(literal).replace(_END, ""))
    return tuple(found)


def read_page(text: str) -> Page:
    """The templates of the page: what stands as code at the beginning of its list items."""
    templates: list[str] = []
    pieces: dict[str, list[str]] = {}
    piece = ""
    for line in text.splitlines():
        if line.startswith("#"):
            piece = ""
        elif (named := _PIECE.fullmatch(line)) is not None:
            piece = named[1] or named[2]
        elif line.startswith("- `"):
            spans = [ticked or plain for ticked, plain in _SPAN.findall(line)]
            is_labelled = re.match(r"- (?:`[^`]+`|`` .+? ``): ", line) is not None
            if spans:
                templates.append(spans[1] if is_labelled and len(spans) > 1 else spans[0])
                pieces.setdefault(piece, []).append(templates[-1])
    pieces.pop("", None)
    return Page(tuple(templates), {name: tuple(found) for name, found in pieces.items()})
