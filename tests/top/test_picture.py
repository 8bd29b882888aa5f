"""The live picture: what stands on it at which size."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.export.build import Story, trainer_node
from tests.top.build import account, climbing, crowded, hostile_pod, quiet, scene, view
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.top.amounts import ASCII
from watchdog.top.head import HELP
from watchdog.top.order import Choice
from watchdog.top.picture import picture
from watchdog.top.scene import Scene
from watchdog.top.state import SORTS, State
from watchdog.top.values import Amount, Next, View

SIZES = [(80, 24), (200, 60), (120, 36), (60, 20), (40, 12), (20, 6), (10, 3), (1, 1), (300, 100)]


def drawn(of: Scene) -> list[str]:
    """The lines as a terminal without colour gets them."""
    return [line.plain for line in picture(of)]


def text(of: Scene) -> str:
    """The same as one text."""
    return "\n".join(drawn(of))


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("which", ["crowded", "one pod", "none", "troubled", "help", "typing", "waiting"])
def test_it_fits(columns: int, rows: int, which: str) -> None:
    """At no size is there a line that is too wide, or one too many, and the keys stand on the last one."""
    state = State(help=which == "help", typed="x" * 90 if which == "typing" else None)
    shown: View | None = {"crowded": crowded(), "one pod": view(), "none": replace(view(), accounts=(), cards=())}.get(
        which, crowded()
    )
    shown = None if which == "waiting" else shown
    if which == "troubled":
        shown = replace(crowded(), troubles=("Not known: " + "word " * 60,) * 9)
    made = scene(shown, columns, rows, state, old="nobody answers: start it " * 5 if which == "waiting" else "")
    lines = picture(made)
    assert len(lines) <= rows
    assert all(line.cell_len <= columns for line in lines)
    if rows >= 6 and which != "help":
        assert lines[-1].plain.startswith(("q quit", "show only:"))
        assert which == "waiting" or len(lines) == rows


@pytest.mark.parametrize(
    ("columns", "rows", "least"), [(80, 24, 7), (120, 36, 12), (200, 60, 26), (60, 20, 5), (40, 12, 4)]
)
def test_sixteen_cards_and_two_hundred_pods(columns: int, rows: int, least: int) -> None:
    """However small the terminal, the table of pods keeps room, and no card is left out where there is some."""
    shown = text(scene(crowded(), columns, rows))
    assert len(re.findall(r"^[> ] ns/fin", shown, re.MULTILINE)) >= least
    if columns >= 80:
        assert all(re.search(rf"(^| ){number} +[█▓▒░]", shown, re.MULTILINE) for number in range(16))
    assert re.search(r"Pods: 1-\d+ of 201, by percent", shown)


def test_a_row() -> None:
    """Used, declared, allowed, the share of it, verdict, since when, rule, next: each in its column."""
    lines = drawn(scene(view(climbing(5)), 140, 30))
    (heading,) = (line for line in lines if "POD" in line and "NEXT" in line)
    (row,) = (line for line in lines if line.startswith("> a/trainer"))
    words = ("12.4Gi", "8.0Gi", "10.2Gi", "122%", "over", "5s", "notebooks", "kill in 5s")
    assert all(word in row for word in words), row
    for title, word in (("VERDICT", "over"), ("RULE", "notebooks"), ("NEXT", "kill in 5s")):
        assert heading.index(title) == row.index(word)
    for title, word in (("USED", "12.4Gi"), ("DECLARED", "8.0Gi"), ("ALLOWED", "10.2Gi"), ("%", "122%")):
        assert heading.index(title) + len(title) == row.index(word) + len(word)


@pytest.mark.parametrize(
    ("columns", "there", "gone"),
    [
        (140, ("DECLARED", "ALLOWED", "RULE", "OVER FOR", "NEXT", "VERDICT"), ()),
        (80, ("ALLOWED", "NEXT", "VERDICT"), ("DECLARED", "RULE", "OVER FOR")),
        (40, ("POD", "USED", "%"), ("ALLOWED", "VERDICT", "NEXT")),
    ],
)
def test_columns_give_way(columns: int, there: tuple[str, ...], gone: tuple[str, ...]) -> None:
    """A narrow terminal has fewer columns, never half of one."""
    (heading,) = (line for line in drawn(scene(crowded(), columns, 40)) if " POD " in line)
    assert all(title in heading for title in there)
    assert not any(title in heading for title in gone)


def test_the_time_runs_down() -> None:
    """Between two answers the spans run down by themselves."""
    shown = replace(scene(view(climbing(5)), 120, 30), elapsed_s=3.0)
    assert "kill in 2s" in text(shown)
    assert "over for 8s" in text(shown)
    assert "kill now" in text(replace(shown, elapsed_s=60.0))


def test_unknown_is_never_zero() -> None:
    """What is not known is `unknown`, or at least so much; what is nothing is a dash."""
    seen = text(scene(view(Story().see(trainer_node(None))), 140, 30))
    (row,) = (line for line in seen.splitlines() if line.startswith("> a/trainer"))
    assert "≥3.0Gi" in row
    assert "≥29%" in row
    assert " unknown " in row
    blind = account(used=None, declared=None, allowed=None, verdict="unknown")
    (row,) = (
        line
        for line in drawn(scene(replace(view(), accounts=(blind,), no_pod=None), 140, 30))
        if line.startswith("> ns/p")
    )
    assert row.split()[2:6] == ["unknown", "unknown", "unknown", "unknown"]
    free = replace(blind, used=Amount(known=Gi), verdict="undeclared")
    (row,) = (
        line
        for line in drawn(scene(replace(view(), accounts=(free,), no_pod=None), 140, 30))
        if line.startswith("> ns/p")
    )
    assert row.split()[2:6] == ["1.0Gi", "-", "-", "-"]


@pytest.mark.parametrize(
    ("used", "allowed", "percent"),
    [
        (Amount(known=0), 8 * Gi, "0%"),
        (Amount(known=4 * Gi), 8 * Gi, "50%"),
        (Amount(known=8 * Gi), 8 * Gi, "100%"),
        (Amount(known=8 * Gi + 1), 8 * Gi, "101%"),
        (Amount(known=8 * Gi - 1), 8 * Gi, "99%"),
        (Amount(known=None, least=12 * Gi), 8 * Gi, "≥150%"),
        (Amount(known=None), 8 * Gi, "unknown"),
        (Amount(known=Gi), 0, ">9999%"),
        (Amount(known=0), 0, "0%"),
        (Amount(known=Gi), 1, ">9999%"),
    ],
)
def test_percent(used: Amount, allowed: int, percent: str) -> None:
    """The share of what is allowed: a hair above it is not 100%."""
    from watchdog.top.amounts import BLOCKS
    from watchdog.top.amounts import percent as told

    assert told(account(used=used.known, least=used.least, allowed=allowed), BLOCKS) == percent


def test_a_card() -> None:
    """A card's bar has what pods use, what nobody's pod does, the rest, and what is free."""
    cards = (gpu(0, used=40 * Gi, reserved=Gi), gpu(1, used=None), gpu(2, up=False))
    seen = snapshot([use(101, 20 * Gi), use(9, 10 * Gi)], [process(101, "u1/main"), process(9, None)], cards)
    lines = drawn(scene(view(Story().see(seen)), 100, 40))
    (first,) = (line for line in lines if line.startswith("0 "))
    assert first.split()[1] == "█" * 5 + "▓" * 3 + "▒" * 2 + "░" * 10  # of 80Gi in 20 cells
    assert first.split()[2:6] == ["40.0Gi", "80.0Gi", "10.0Gi", "9.0Gi"]
    (second,) = (line for line in lines if line.startswith("1 "))
    assert second.split()[1:3] == ["?" * 20, "unknown"]
    (third,) = (line for line in lines if line.startswith("2 "))
    assert "lost" in third


def test_ascii() -> None:
    """Where the terminal has no other characters, bars are made of ASCII ones and `≥` is written out."""
    shown = text(scene(view(Story().see(trainer_node(None))), 140, 30, signs=ASCII))
    assert shown.isascii()
    assert ">=3.0Gi" in shown


def test_the_selected_pod() -> None:
    """Below the table stands all about the selected pod: what it declares, the next step whole, its processes."""
    state = State(place=1, key=("uid-b", "", ""))
    held = Next(do="kill", scope="container", above="110%", held="protected", because="it is a system pod")
    rows = (account("a"), account("b", next=held, protected="it is a system pod"))
    shown = drawn(scene(replace(view(), accounts=rows), 120, 30, state))
    at = next(number for number, line in enumerate(shown) if line.startswith("ns/b: "))
    assert "declares 8Gi by veriff.com/gpu-memory, may use 8Gi, rule notebooks" in shown[at]
    assert shown[at + 1] == "Next: kill container above 110% now, held back (protected): it is a system pod"
    (marked,) = (line for line in shown if line.startswith(">"))
    assert "ns/b" in marked


def test_its_processes() -> None:
    """The processes of the selected pod, the largest first, and how many more there are."""
    shown = drawn(scene(view(), 120, 40))
    at = next(number for number, line in enumerate(shown) if line.split()[:2] == ["PID", "NAME"])
    assert shown[at + 1].split() == ["101", "python3", "main", "0", "9.4Gi"]
    many = replace(view().accounts[0], processes=view().accounts[0].processes * 30)
    assert re.search(r"^and 1[12]\d more$", text(scene(replace(view(), accounts=(many,)), 120, 40)), re.MULTILINE)


def test_what_was_done() -> None:
    """The last deeds stand there with their result, newest first."""
    deed = {"namespace": "a", "pod": "trainer", "container": "main", "do": "kill", "used": 3 * Gi, "allowed": Gi,
            "rule": "notebooks", "why": "it used too much"}  # fmt: skip
    recent = [
        {**deed, "at": "2027-01-15T07:59:00Z", "result": None},
        {**deed, "at": "2027-01-14T07:58:00Z", "result": "failed", "reason": "no such process"},
    ]
    shown = text(scene(view(quiet(), recent=recent), 160, 40))
    assert "Done lately: 2" in shown
    assert re.search(
        r"^07:59:00 +kill under way a/trainer \[main\] +3.0Gi +1.0Gi notebooks it used", shown, re.MULTILINE
    )
    assert re.search(r"^2027-01-14 07:58:00 +kill failed .* no such process", shown, re.MULTILINE)


def test_troubles_are_told_as_far_as_there_is_room() -> None:
    """The first trouble always stands there, with a mark where it is cut; how many more there are is said."""
    some = replace(view(), troubles=("The breaker is open: " + "words and more words " * 20, "second", "third"))
    lines = drawn(scene(some, 80, 24))
    assert lines[2].startswith("! The breaker is open: ")
    assert lines[3].endswith(("...", "~"))
    assert lines[4] == "! 2 more things are wrong: `gpu-watchdog top --once` tells all"
    assert "! second" in text(scene(some, 300, 40))
    assert "more thing" not in text(scene(replace(some, troubles=some.troubles[1:]), 80, 24))


def test_an_old_picture_is_marked() -> None:
    """While the daemon is away its last picture stays, under a line that says how old it is and what helps."""
    shown = drawn(scene(view(), 80, 24, old="This picture is 12s old: the daemon does not answer: start it"))
    assert shown[2].startswith("This picture is 12s old")
    assert any("a/trainer" in line for line in shown)


def test_nothing_to_show() -> None:
    """An empty table says why it is empty."""
    assert "No pod uses GPU memory here or declares any." in text(scene(replace(view(), accounts=(), no_pod=None)))
    none = State(choice=Choice(text="nobody"))
    assert "None of 1 account is such a one; Esc shows all." in text(scene(view(), state=none))


def test_numbers_are_never_cut() -> None:
    """A sum that does not fit goes as a whole: half of a number would be another one."""
    whole = drawn(scene(crowded(), 300, 24))[1]
    for width in range(20, 120):
        line = drawn(scene(crowded(), width, 24))[1]
        assert whole.startswith(line.removesuffix("~"))
        assert width < 30 or not line.endswith("~")
        assert line.endswith("~") or whole[len(line) : len(line) + 1] in ("", " ", ",")


def test_help_names_every_key() -> None:
    """The help has each key of sorting, and the last line the ones that matter."""
    told = {key for keys, _ in HELP for key in keys.split(", ")}
    assert set(SORTS) | {"q", "f", "/", "o", "space", "?", "escape", "j", "k", "up", "down"} <= told


def test_hostile_names_bring_no_control_codes() -> None:
    """Names that try to speak to the terminal come out as text, also such as look like markup of the library."""
    pod = hostile_pod(uid="u1", namespace="[red]a[/red]\x1b[2J", name="\x9b31mp\u202e[link=http://x]\x07")
    seen = snapshot([use(1, Gi)], [process(1, "u1/c\x07\r", name="\x1b]52;c;cm0=\x07[bold]")])
    out = io.StringIO()
    console = Console(file=out, width=160, height=40, no_color=True, force_terminal=True, markup=True)
    for line in picture(scene(view(Story(pods=(pod,)).see(seen)), 160, 40)):
        console.print(line)
    told = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert all(character.isprintable() or character == "\n" for character in told)
    assert "[red]a[/red]" in told
    assert "[bold]" in told
    assert "link=http" in told
