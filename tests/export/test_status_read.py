"""Reading a status back: whoever wrote it, nothing but a clear error comes of what is not as it should be."""

import re
from collections.abc import Callable

import pytest

from watchdog.report.status_read import Part, StatusError, doubts_of

PART = Part(
    {
        "text": "a", "whole": 3, "number": 2.5, "flag": True, "moment": "2027-01-15T08:00:00.000Z",
        "part": {"inner": 1}, "parts": [{"inner": 2}], "texts": ["a", "b"], "null": None,
    }
)  # fmt: skip


def test_what_is_there_is_read() -> None:
    """Each kind of value is given as it is, tables with their path."""
    assert (PART.text("text"), PART.whole("whole"), PART.number("number"), PART.flag("flag")) == ("a", 3, 2.5, True)
    assert PART.moment("moment") == 1_800_000_000.0
    assert PART.number("whole") == 3
    inner, listed = PART.part("part"), PART.parts("parts")
    assert inner is not None
    assert (inner.whole("inner"), inner.path) == (1, "part")
    assert (listed[0].whole("inner"), listed[0].path) == (2, "parts[0]")
    assert PART.texts("texts") == ("a", "b")


@pytest.mark.parametrize("key", ["missing", "null"])
def test_what_an_older_daemon_does_not_write_is_none(key: str) -> None:
    """A status of another version is read as far as it goes."""
    assert (PART.text(key), PART.whole(key), PART.number(key), PART.moment(key), PART.part(key)) == (None,) * 5
    assert (PART.flag("missing"), PART.parts("missing"), PART.texts("missing")) == (False, (), ())


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda part: part.text("x"), 1),
        (lambda part: part.whole("x"), 1.5),
        (lambda part: part.whole("x"), True),
        (lambda part: part.whole("x"), "1"),
        (lambda part: part.whole("x"), 2**63),
        (lambda part: part.number("x"), "1"),
        (lambda part: part.number("x"), False),
        (lambda part: part.number("x"), float("nan")),
        (lambda part: part.number("x"), float("inf")),
        (lambda part: part.number("x"), 10**400),
        (lambda part: part.flag("x"), 1),
        (lambda part: part.moment("x"), "yesterday"),
        (lambda part: part.moment("x"), "2027-01-15T08:00:00"),
        (lambda part: part.moment("x"), "9999-12-31T23:59:59Z"),
        (lambda part: part.moment("x"), 5),
        (lambda part: part.part("x"), []),
        (lambda part: part.parts("x"), {}),
        (lambda part: part.parts("x"), [1]),
        (lambda part: part.texts("x"), [1]),
        (lambda part: part.texts("x"), "text"),
    ],
)
def test_what_is_of_another_kind_is_named_with_its_place(read: Callable[[Part], object], value: object) -> None:
    """A number that is none, a time beyond the calendar, a table that is a list: an error, or a doubt and no value."""
    says = r"^accounts\[0\]\.x(\[0\])? of its status is not "
    with pytest.raises(StatusError, match=says):
        read(Part({"x": value}, "accounts[0]"))
    doubts: list[str] = []
    for _ in range(2):
        assert not read(Part({"x": value}, "accounts[0]", doubts))
    (said,) = doubts
    assert re.match(says, said)


def test_a_list_that_is_none_is_no_value_among_others() -> None:
    """What has no list of accounts is not the status of a gpu-watchdog, and no picture is made of it."""
    with pytest.raises(StatusError, match=r"^accounts of its status is not a list"):
        Part({"accounts": 1}, doubts=[]).parts("accounts")


def test_doubts_are_told_by_their_first_few() -> None:
    """Many bad values make one sentence that names some of them."""
    status = Part({"accounts": [{"used": "1"} for _ in range(5)]}, doubts=[])
    assert doubts_of(status) == ""
    assert [each.whole("used") for each in status.parts("accounts")] == [None] * 5
    assert doubts_of(status).endswith("accounts[2].used of its status is not a whole number, and 2 more")
