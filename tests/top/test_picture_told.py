"""The live picture: what it tells below its tables: the selected pod, recent actions, what is wrong, the keys."""

import io
import re
from dataclasses import replace

from rich.console import Console

from tests.export.build import Story
from tests.top.build import account, crowded, drawn, hostile_pod, quiet, scene, text, view
from tests.worlds import Gi, process, snapshot, use
from watchdog.cli.top.picture import HELP, picture
from watchdog.cli.top.state import SORTS, Choice, Selection
from watchdog.cli.top.values import NextStep


def test_the_selected_pod() -> None:
    """Below the table stands all about the selected pod: what it declares, the next step whole, its processes."""
    state = Selection(place=1, key=("uid-b", "", ""))
    held = NextStep(do="kill", scope="container", above="110%", held="protected", because="it is a system pod")
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
    """The last actions stand there with their result, newest first."""
    action = {"namespace": "a", "pod": "trainer", "container": "main", "do": "kill", "used": 3 * Gi, "allowed": Gi,
            "rule": "notebooks", "why": "it used too much"}  # fmt: skip
    recent = [
        {**action, "at": "2027-01-15T07:59:00Z", "result": None},
        {**action, "at": "2027-01-14T07:58:00Z", "result": "failed", "reason": "no such process"},
    ]
    shown = text(scene(view(quiet(), recent=recent), 160, 40))
    assert "Recent actions: 2" in shown
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
    none = Selection(choice=Choice(text="nobody"))
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
