"""The live picture around its tables: the selected pod, recent actions, what is wrong, the keys."""

import io
import re

from rich.console import Console

from tests.cli.build import account, crowded, drawn, frame, hostile_pod, node, quiet, replace, status, step, text
from tests.export.build import Story
from tests.worlds import Gi, process, snapshot, use
from watchdog.cli.rows import Choice
from watchdog.cli.top_keys import SORTS, Selection
from watchdog.cli.top_view import HELP, draw
from watchdog.report.status import GapStatus


def test_the_selected_pod() -> None:
    """Below the table are the selected pod's declaration, its next step in full and its processes."""
    selection = Selection(place=1, key=("uid-b", None, None))
    held = step(scope="container", above="110%", withheld_by="protected", held_because="it is a system pod")
    shown = drawn(frame(node(account("a"), (account("b", protected="it is a system pod"), held)), 120, 30, selection))
    at = next(number for number, line in enumerate(shown) if line.startswith("ns/b: "))
    assert 'declares 8Gi by veriff.com/gpu-memory, allowed 8Gi, rule "notebooks"' in shown[at]
    assert shown[at + 1] == "Next: kill container above 110% now, held (protected): it is a system pod"
    (marked,) = (line for line in shown if line.startswith(">"))
    assert "ns/b" in marked


def test_its_processes() -> None:
    """The processes of the selected pod, the largest first, and how many more there are."""
    shown = drawn(frame(status(), 120, 40))
    at = next(number for number, line in enumerate(shown) if line.split()[:2] == ["PID", "NAME"])
    assert shown[at + 1].split() == ["101", "python3", "main", "0", "9.4Gi"]
    (one,) = status().accounts
    many = replace(one, processes=one.processes * 30)
    assert re.search(r"^and 1[12]\d more$", text(frame(replace(status(), accounts=(many,)), 120, 40)), re.MULTILINE)


def test_what_was_done() -> None:
    """The last actions are listed with their result, newest first."""
    action = {"namespace": "a", "pod": "trainer", "container": "main", "do": "kill", "used": 3 * Gi, "allowed": Gi,
            "rule": "notebooks", "threshold": "above 110%"}  # fmt: skip
    recent = [
        {**action, "at": "2027-01-15T07:59:00Z", "result": None},
        {**action, "at": "2027-01-14T07:58:00Z", "result": "failed", "reason": "no such process"},
    ]
    shown = text(frame(status(quiet(), recent=recent), 160, 40))
    assert "Recent actions: 2" in shown
    assert re.search("^TIME +ACTION +RESULT +POD +USED +ALLOWED +RULE +WHY", shown, re.MULTILINE)
    assert re.search(
        r"^07:59:00 +kill +in progress a/trainer \[main\] +3.0Gi +1.0Gi notebooks above 110%", shown, re.MULTILINE
    )
    assert re.search(r"^2027-01-14 07:58:00 +kill +failed .* no such process", shown, re.MULTILINE)


def test_problems_are_told_as_far_as_there_is_room() -> None:
    """The first problem is always shown, with a mark where it is cut, and the number of further ones."""
    gaps = (GapStatus(what="second", why="why"), GapStatus(what="third", why="because"))
    some = status(quiet(), maintenance="a new driver and " + "words and more words " * 20)
    lines = drawn(frame(replace(some, gaps=gaps), 80, 24))
    assert lines[2].startswith("! The GPUs of this node are under maintenance (a new")
    assert lines[3].endswith(("...", "~"))
    assert lines[4] == "! 2 more problems: see `gpu-watchdog top --once`"
    assert "! Unknown: second: why" in text(frame(replace(some, gaps=gaps), 300, 40))
    assert "more problem" not in text(frame(replace(some, maintenance=None, gaps=gaps), 80, 24))


def test_an_old_status_is_marked() -> None:
    """While the daemon is away its last status stays, under a line that says how old it is and what helps."""
    shown = drawn(frame(status(), 80, 24, problem="This data is 12s old: the daemon does not answer: start it"))
    assert shown[2].startswith("This data is 12s old")
    assert any("a/trainer" in line for line in shown)


def test_nothing_to_show() -> None:
    """An empty table says why it is empty."""
    assert "No pod on this node uses or declares GPU memory." in text(frame(node(unattributed=())))
    none = Selection(choice=Choice(text="nobody"))
    assert "No match among 1 account; Esc shows all." in text(frame(status(), selection=none))


def test_numbers_are_never_cut() -> None:
    """A sum that does not fit goes as a whole: half of a number would be another one."""
    whole = drawn(frame(crowded(), 300, 24))[1]
    for width in range(20, 120):
        line = drawn(frame(crowded(), width, 24))[1]
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
    for line in draw(frame(status(Story(pods=(pod,)).see(seen)), 160, 40)):
        console.print(line)
    told = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert all(character.isprintable() or character == "\n" for character in told)
    assert "[red]a[/red]" in told
    assert "[bold]" in told
    assert "link=http" in told
