"""Which accounts are shown, and in which order."""

import pytest

from tests.cli.build import account, node, status, step
from tests.worlds import Gi
from watchdog.cli.rows import KEYS, Choice, TopRow, chosen
from watchdog.core.policy import Do
from watchdog.report.status import Status, UnderWayStatus


def kinds() -> Status:
    """Six accounts, each of another kind, and unattributed processes."""
    assert status().unattributed
    begun = UnderWayStatus(do=Do.KILL)
    return node(
        account("calm", used=2 * Gi),
        (account("over", used=9 * Gi, verdict="over"), step(due_in_s=5.0)),
        (account("held", used=12 * Gi, verdict="over"), step(withheld_by="protected")),
        account("blind", used=None, least=7 * Gi, verdict="unknown"),
        account("free", used=20 * Gi, verdict="undeclared", declared=None, allowed=None),
        account("forbidden", used=Gi, verdict="over", declared=0, allowed=0, under_way=begun),
    )


def names(rows: tuple[TopRow, ...]) -> list[str]:
    """Their pods; the row of the unattributed processes is `-`."""
    return [row.account.pod or "-" for row in rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        # At least 7Gi of 8Gi, and something where nothing is allowed, have their place; without a limit there is none.
        ("percent", ["forbidden", "held", "over", "blind", "calm", "free"]),
        ("used", ["free", "held", "over", "blind", "calm", "forbidden"]),
        ("name", ["blind", "calm", "forbidden", "free", "held", "over"]),
        # What is in progress, what comes, what a brake holds for ever, what has nothing to come.
        ("time", ["forbidden", "over", "held", "free", "blind", "calm"]),
        ("declared", ["blind", "calm", "held", "over", "forbidden", "free"]),
        ("verdict", ["forbidden", "held", "over", "blind", "calm", "free"]),
    ],
)
def test_order(sort: str, expected: list[str]) -> None:
    """Each way to sort, with what is not known or does not apply at the end, and unattributed memory last."""
    assert names(chosen(kinds(), Choice(sort=sort))) == [*expected, "-"]


@pytest.mark.parametrize("sort", sorted(KEYS))
def test_reversed(sort: str) -> None:
    """Reversed, the known ones are the other way about; what is not known stays at the end."""
    forwards, backwards = (names(chosen(kinds(), Choice(sort=sort, backwards=each)))[:-1] for each in (False, True))
    unknown = [each.account.pod for each in chosen(kinds(), Choice()) if KEYS[sort](each) is None]
    known = [name for name in forwards if name not in unknown]
    assert backwards == [*reversed(known), *forwards[len(known) :]]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(sort="name", over=True), ["forbidden", "held", "over"]),
        (Choice(sort="name", text="NS/C"), ["calm"]),
        (Choice(sort="name", text="undeclared"), ["free"]),
        (Choice(sort="name", text="over held"), ["held"]),
        (Choice(sort="name", text="notebooks", over=True), ["forbidden", "held", "over"]),
        (Choice(sort="name", text="unattributed"), ["-"]),
        (Choice(sort="name", text="nobody"), []),
    ],
)
def test_filter(choice: Choice, expected: list[str]) -> None:
    """A filter takes words of the name, the rule and the verdict, in any case; all of them must be there."""
    assert names(chosen(kinds(), choice)) == expected


def test_the_command_offers_every_order() -> None:
    """What the option offers is what there is."""
    from watchdog.cli.main import SORTS

    assert sorted(SORTS) == sorted(KEYS)
