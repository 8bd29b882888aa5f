"""Writes docs/messages.md: every text of the program that people can meet, found in the code, in a place for each."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.tools.message_code import Module, load_modules
from tests.tools.message_finder import Found, find
from tests.tools.message_reader import Reader
from tests.tools.message_remarks import CAUGHT, FRAGMENTS, REMARKS
from tests.tools.message_scope import Piece
from tests.tools.message_text import EMPTY, variants, write

ROOT: Final = Path(__file__).parents[2]
TEMPLATE: Final = ROOT / "docs" / "templates" / "messages.md"
PAGE: Final = ROOT / "docs" / "messages.md"

# Which section of the template the texts of a module stand in; what is below it goes along, unless it is named too.
# A module that is in none has a section of its own, named after what it says of itself.
SECTIONS: Final[Mapping[str, str]] = {
    "watchdog.config": "mistakes",
    "watchdog.core.units": "mistakes",
    "watchdog.config.advice": "warnings",
    "watchdog.config.load": "warnings",
    "watchdog.config.render": "render",
    "watchdog.commands.check": "render",
    "watchdog.daemon": "log",
    "watchdog.loop.reporter": "log",
    "watchdog.loop.keeper": "log",
    "watchdog.loop.sources": "log",
    "watchdog.loop.start": "log",
    "watchdog.export": "log",
    "watchdog.kube.acts.event": "log",
    "watchdog.kube.acts.events": "log",
    "watchdog.loop.surroundings": "gaps",
    "watchdog.node": "gaps",
    "watchdog.kube": "gaps",
    "watchdog.kube.access.admission": "cli",
    "watchdog.kube.api.answers": "api",
    "watchdog.kube.acts.capacity": "log",
    "watchdog.kube.api.client": "api",
    "watchdog.kube.api.clocks": "api",
    "watchdog.kube.access.manifests": "cli",
    "watchdog.kube.api.no_way": "api",
    "watchdog.kube.access.rights": "cli",
    "watchdog.kube.api.unreachable": "api",
    "watchdog.kube.api.way": "api",
    "watchdog.cycle.late": "gaps",
    "watchdog.loop.glance": "gaps",
    "watchdog.core.rules": "gaps",
    "watchdog.loop.enforcement": "suspended",
    "watchdog.export.board": "http",
    "watchdog.export.http_handler": "http",
    "watchdog.export.words": "due",
    "watchdog.export.note_words": "due",
    "watchdog.export.outcome_words": "due",
    "watchdog.export.clauses": "due",
    "watchdog.export.brake_words": "due",
    "watchdog.export.eviction_words": "due",
    "watchdog.export.phrases": "due",
    "watchdog.core": "declarations",
    "watchdog.core.protect": "protected",
    "watchdog.act.kills": "deeds",
    "watchdog.core.eviction": "deeds",
    "watchdog.core.objection": "deeds",
    "watchdog.cycle.cycle": "deeds",
    "watchdog.act.deed": "deeds",
    "watchdog.act.eviction": "deeds",
    "watchdog.act.evictions": "deeds",
    "watchdog.kube.acts.evict": "deeds",
    "watchdog.kube.acts.evictor": "deeds",
    "watchdog.cycle.leftovers": "deeds",
    "watchdog.cycle.second_look": "deeds",
    "watchdog.export.explanation": "owner",
    "watchdog.export.tiding": "owner",
    "watchdog.export.advice": "owner",
    "watchdog.commands.history": "history",
    "watchdog.export.journal": "history",
    "watchdog.export.text": "scan",
    "watchdog.export.page": "scan",
    "watchdog.export.table": "scan",
    "watchdog.core.findings": "scan",
    "watchdog.commands.scan": "scan",
    "watchdog.explain": "explain",
    "watchdog.ask": "explain",
    "watchdog.unreached": "explain",
    "watchdog.export.why": "explain",
    "watchdog.export.status": "explain",
    "watchdog.doctor": "doctor",
    "watchdog.past": "past",
    "watchdog.commands.replay": "past",
    "watchdog.commands.recommend": "past",
    "watchdog.cli.group": "cli",
    "watchdog.options": "cli",
    "watchdog.commands.rights": "cli",
    "watchdog.commands.run": "cli",
    "watchdog.commands.candidate": "cli",
    "watchdog.halt": "cli",
    "watchdog.commands.withdraw": "cli",
    "watchdog.demo": "demo",
    "watchdog.sim": "demo",
}
# What other pages list, and what speaks to nobody but browsers and collectors.
ELSEWHERE: Final = re.compile(
    r"watchdog\.(?:doctor\.topics\w*|export\.(?:families|metrics|exposition)|kube\.(?:admission|manifests|rights)"
    r"|export\.page(?:\.(?:bars|cards|frame|html|lately|table|told|wellness))?)"
)


@cache
def gather() -> tuple[list[Found], list[Piece], dict[str, Module]]:
    """Every text that is found, the pieces that several have within them, and the modules."""
    modules = load_modules()
    reader = Reader(modules)
    found = find(reader, modules)
    return found, list(reader.pieces.values()), modules


def messages_page() -> str:
    """The whole text of docs/messages.md."""
    found, pieces, modules = gather()
    found = [each for each in found if not ELSEWHERE.fullmatch(each.module)]
    text = TEMPLATE.read_text(encoding="utf-8")
    for section in dict.fromkeys(SECTIONS.values()):
        text = text.replace(f"{{{section}}}", "\n".join(_section(section, found, pieces)))
    homeless = dict.fromkeys(each.module for each in found if not section_of(each.module))
    others = [line for module in homeless for line in _own_section(module, modules, found, pieces)]
    contents = "".join(f",\n  [{module}](#{module.lower().replace('.', '')})" for module in homeless)
    return text.replace("{contents}", contents).replace("{others}", "\n".join(others)).rstrip() + "\n"


@cache
def section_of(module: str) -> str:
    """The section of the template for a module; empty where there is none."""
    fitting = [name for name in SECTIONS if re.match(rf"{re.escape(name)}(?:$|[._])", module)]
    return SECTIONS[max(fitting, key=len)] if fitting else ""


def _own_section(name: str, modules: Mapping[str, Module], found: list[Found], pieces: list[Piece]) -> list[str]:
    own = [each for each in found if each.module == name]
    parts = [piece for piece in pieces if piece.module == name]
    return ["", f"## {name}", "", modules[name].doc.partition("\n")[0], "", *_lines(own, parts)]


def _section(section: str, found: list[Found], pieces: list[Piece]) -> list[str]:
    own = [each for each in found if section_of(each.module) == section]
    here = [each for each in pieces if section_of(each.module) == section and not ELSEWHERE.fullmatch(each.module)]
    return list(_lines(own, here)) or ["(None.)"]


def _lines(found: Iterable[Found], pieces: Iterable[Piece]) -> Iterator[str]:
    lists: dict[str, dict[str, None]] = {"": {}}
    for each in found:
        name, label = (each.label, "") if each.label.startswith("<") else ("", each.label)
        lists.setdefault(name, {}).update(dict.fromkeys(_items(each, label)))
    for piece in pieces:
        lists[f"<{piece.label}>"] = dict.fromkeys(f"- {code(text)}{_remark(text)}" for text in _written(piece))
    is_first = True
    for name, lines in lists.items():
        if lines:
            yield from () if is_first else ("",)
            yield from (f"**{code(name)}**", "") if name else ()
            yield from lines
            is_first = False


def _items(found: Found, label: str) -> Iterator[str]:
    labelled = f"{code(label)}: " if label else ""
    remedy = f" → {code(write(found.remedy))}" if found.remedy != EMPTY else ""
    for text in variants(found.text):
        written = write(text).strip()
        if written in FRAGMENTS | CAUGHT and not found.label:
            continue
        yield f"- {labelled}{code(written)}{remedy}{_remark(written)}"


def _written(piece: Piece) -> Iterator[str]:
    for text in variants(piece.text):
        if text != EMPTY:
            yield write(text).strip()


def _remark(written: str) -> str:
    remark = REMARKS.get(written, "")
    return f" → {remark}{'' if remark.endswith('?') else '.'}" if remark else ""


def code(text: str) -> str:
    """A text as code, whatever stands in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = messages_page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
