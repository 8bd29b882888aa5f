"""docs/messages.md has every text that people can meet, and each of them can be understood without the code."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.docs import met, told
from tests.tools.message_code import Module, load_modules
from tests.tools.message_page import Page, read_page
from tests.tools.message_quality import REMEDY, class_names, complaints, shown_errors
from tests.tools.message_remarks import CAUGHT, FRAGMENTS, REMARKS, SELF_EVIDENT
from tests.tools.message_text import EMPTY, has_piece, variants, write
from tests.tools.messages import PAGE, ROOT, SECTIONS, TEMPLATE, gather, messages_page, section_of
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.export.news_item import Event
from watchdog.loop.enforcement import REMEDIES

# Told by the daemon itself and not by a pass; the tests of whole worlds see them.
# Reading all of the program's texts takes some seconds.
pytestmark = pytest.mark.slow
_BY_THE_DAEMON: Final = {
    *(Event.STARTED, Event.STOPPED, Event.POLICY_REFUSED),
    *(Event.JOURNAL_RESTORED, Event.BRAKES_PRESUMED),
}


@cache
def page() -> Page:
    """The page as it is committed."""
    return read_page(PAGE.read_text(encoding="utf-8"))


def assert_told(texts: Iterable[str]) -> None:
    """Each of the texts matches one of the page."""
    missing = [text for text in dict.fromkeys(texts) if not page().tells(text)]
    assert not missing, missing


def test_the_committed_page_is_what_the_code_gives() -> None:
    """A message that is added or reworded changes the page in the same commit."""
    committed = PAGE.read_text(encoding="utf-8")
    assert committed == messages_page(), "write it anew with: python -m tests.tools.messages"


@pytest.mark.slow
def test_the_tool_says_that_the_page_is_up_to_date() -> None:
    """The tool runs as the documentation of the project says, from the root of a checkout."""
    command = [sys.executable, "-m", "tests.tools.messages", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 0


def test_a_made_up_sentence_is_not_told() -> None:
    """The page is no net that holds everything: what the code does not say does not match."""
    for text in (
        "hello world of nothing",
        "the watchdog is a teapot and serves coffee at four",
        "pod a/b: nothing to see here",
        "Pod a/b uses 3Gi of GPU memory and is very sorry.",
        "must be a duck",
        "",
    ):
        assert not page().tells(text), list(page().fitting(text))


def test_every_mistake_of_a_policy_is_told(tmp_path: Path) -> None:
    """Whoever gets a line of `check` finds it on the page: of every broken policy of the tests, and of broken files."""
    found = list(met.mistakes(tmp_path))
    assert len(set(found)) > 200
    assert_told(found)


def test_every_warning_of_a_policy_is_told() -> None:
    """So does whoever gets a warning."""
    found = list(met.warnings())
    assert len(set(found)) > 15
    assert_told(found)


def test_every_gap_is_told(tmp_path: Path) -> None:
    """What can't be learned of files, processes, rules and the driver is on the page, with its remedy."""
    found = list(met.gaps(tmp_path))
    assert {gap.reason for gap in found} == set(GapReason) - met.BY_THE_DRIVER
    for gap in found:
        assert page().tells(gap.why) or page().tells(f"{gap.what}: {gap.why}"), gap
    assert_told(met.driver_errors())


def test_every_event_has_its_sentence_on_the_page() -> None:
    """What the log and the journal say of a pass, of every kind of news that there is."""
    found = list(told.news())
    assert {event for event, _ in found} == set(Event) - _BY_THE_DAEMON
    assert_told(sentence for event, sentence in found if event is not Event.GAP_BEGAN)


def test_every_brake_is_told() -> None:
    """Why a step is held back, for each brake, for a time and for good, with and without the policy's numbers."""
    assert {made.withheld_by for made in told.withheld()} == set(Brake)
    assert_told(told.held_sentences())


def test_every_suspension_and_protection_is_told() -> None:
    """Why a daemon that was told to enforce does not, and why a pod is never acted on."""
    assert_told(REMEDIES.values())
    assert_told(told.protections())


def test_what_explain_says_is_told() -> None:
    """Each sentence that the owner of a pod is answered is on the page."""
    assert_told(told.explained())


def test_the_sentences_of_the_journal_are_told(tmp_path: Path) -> None:
    """What `history` prints of a deed is on the page."""
    assert_told(told.recorded(tmp_path / "journal.db"))


def test_wrong_use_and_bad_places_are_told(tmp_path: Path) -> None:
    """So is what a command says of a wrong option, and the daemon of a lock, a journal or an address."""
    assert_told(met.wrong_use())
    assert_told(met.places(tmp_path))


class Written(NamedTuple):
    """A template as the page would have it; whether a remedy goes with it, or another text that has one."""

    section: str
    text: str
    has_remedy: bool


@cache
def written() -> tuple[Written, ...]:
    """Every template of the code, those of other pages too."""
    return tuple(_written())


def _written() -> Iterator[Written]:
    found, pieces, _ = gather()
    for each in found:
        for text in variants(each.text):
            has_remedy = each.remedy != EMPTY or bool(each.label) or has_piece(text) or write(text).endswith("<why>")
            yield Written(section_of(each.module), write(text).strip(), has_remedy)
    for piece in pieces:
        yield from (Written(section_of(piece.module), write(text).strip(), True) for text in variants(piece.text))


@cache
def modules() -> dict[str, Module]:
    """The code of the program."""
    return load_modules()


def test_every_message_can_be_read() -> None:
    """No message names a class, an exception or a part of the code, is too long, or has a flaw that a rule can see."""
    names = class_names(modules())
    wrong = {each.text: found for each in written() if (found := list(complaints(each.text, names)))}
    assert not wrong


def test_no_error_is_shown_as_python_writes_it() -> None:
    """`KeyError('x')` helps nobody but who wrote the code: it is shown only where people are asked to report it."""
    assert not list(shown_errors(modules()))


def test_whatever_is_wrong_says_what_to_do() -> None:
    """A mistake, a gap, a reason against enforcing or a deed that went wrong has a remedy: in it, or beside it."""
    told_already = REMARKS.keys() | FRAGMENTS | CAUGHT | SELF_EVIDENT
    lacking = [
        each.text
        for each in written()
        if each.section in ("mistakes", "gaps", "suspended", "deeds")
        and not each.has_remedy
        and each.text not in told_already
        and not REMEDY.search(each.text)
    ]
    assert not lacking, "say what to do, or add it to tests/tools/message_remarks.py"


def test_what_stands_beside_the_messages_is_about_messages() -> None:
    """A remark on a message that has changed is lost on the page without a word: it has to go along."""
    texts = {each.text for each in written()}
    assert not [text for text in (*REMARKS, *FRAGMENTS, *CAUGHT, *SELF_EVIDENT) if text not in texts]


def test_every_section_has_its_place() -> None:
    """Each section that messages belong to stands in the template, and every module that is named there exists."""
    template = TEMPLATE.read_text(encoding="utf-8")
    assert not [section for section in SECTIONS.values() if f"\n{{{section}}}\n" not in template]
    names = modules().keys()
    assert not [name for name in SECTIONS if not any(each == name or each.startswith(name) for each in names)]
