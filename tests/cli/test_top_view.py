"""The live picture: its tables at every size, the selected pod, recent actions, problems."""

import re

import pytest
from msgspec.structs import replace

from tests.cli.build import account, busy, drawn, frame, full, node, row, status, step, text
from tests.report.build import Story, climbing, quiet, trainer_node
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.cli.top_keys import Selection
from watchdog.cli.top_view import BAD, PLAIN, WARN, draw, spark_text
from watchdog.cli.views import BLOCKS, Choice, spark
from watchdog.report.status import AccountStatus, GapStatus, HourStatus, ProcessStatus, Status

SIZES = [(80, 24), (200, 60), (120, 36), (60, 20), (40, 12), (20, 6), (10, 3), (1, 1), (300, 100)]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("which", ["full", "busy", "one pod", "none", "troubled", "help", "typing", "waiting"])
def test_it_fits(columns: int, rows: int, which: str) -> None:
    """At no size is there a line that is too wide, or one too many, and the keys stand on the last one."""
    selection = Selection(help=which == "help", typed="x" * 90 if which == "typing" else None)
    shown: Status | None = {
        "full": full(),
        "busy": busy(),
        "one pod": status(),
        "none": replace(status(), accounts=(), gpus=()),
    }.get(which, full())
    shown = None if which == "waiting" else shown
    if which == "troubled":
        gaps = tuple(GapStatus(what=f"thing {number}", why=f"{number} {'word ' * 60}") for number in range(9))
        shown = replace(full(), gaps=gaps)
    problem = "no answer: start it " * 5 if which == "waiting" else ""
    made = frame(shown, columns, rows, selection, problem=problem)
    lines = draw(made)
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
    shown = text(frame(full(), columns, rows))
    assert len(re.findall(r"^[> ] ns/fin", shown, re.MULTILINE)) >= least
    if columns >= 80:
        assert all(re.search(rf"(^| ){number} +[█▓▒░]", shown, re.MULTILINE) for number in range(16))
    assert re.search(r"Pods: 1-\d+ of 200, sorted by percent", shown)


def test_a_row() -> None:
    """Used, declared, allowed, the share of it, verdict, since when, rule, next: each in its column."""
    lines = drawn(frame(status(climbing(6)), 140, 30))
    assert any(line.startswith("Pods: 1, ") for line in lines)  # unattributed processes are a row, and no pod
    (heading,) = (line for line in lines if "POD" in line and "NEXT" in line)
    (row,) = (line for line in lines if line.startswith("> a/trainer"))
    words = ("12.4Gi", "8Gi", "10.2Gi", "122%", "over", "6s", "notebooks", "kill in 4s")
    assert all(word in row for word in words), row
    for title, word in (("VERDICT", "over"), ("RULE", "notebooks"), ("NEXT", "kill in 4s")):
        assert heading.index(title) == row.index(word)
    for title, word in (("USED", "12.4Gi"), ("DECLARED", "8Gi"), ("ALLOWED", "10.2Gi"), ("%", "122%")):
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
    (heading,) = (line for line in drawn(frame(full(), columns, 40)) if " POD " in line)
    assert all(title in heading for title in there)
    assert not any(title in heading for title in gone)


def test_the_time_runs_down() -> None:
    """Between two answers the spans run down by themselves."""
    shown = text(frame(status(climbing(6)), 120, 30, elapsed_s=3.0))
    assert "kill in 1s" in shown
    assert "over for 9s" in shown
    assert "kill now" in text(frame(status(climbing(6)), 120, 30, elapsed_s=60.0))


def test_unknown_is_never_zero() -> None:
    """What is not known is `unknown`, or at least so much; what is nothing is a dash."""
    seen = text(frame(status(Story().see(trainer_node(None))), 140, 30))
    (row,) = (line for line in seen.splitlines() if line.startswith("> a/trainer"))
    assert "≥3Gi" in row
    assert "≥29%" in row
    assert " unknown " in row
    blind = account(used=None, declared=None, allowed=None, verdict="unknown")
    assert _row(blind).split()[2:7] == ["-", "unknown", "unknown", "unknown", "unknown"]
    free = replace(blind, used=Gi, verdict="undeclared")
    assert _row(free).split()[2:7] == ["-", "1Gi", "-", "-", "-"]


def test_bars_go_on_beyond_the_limit() -> None:
    """173% looks like more than 113%, and 101% like more than 99%: there is a mark at 100%, and cells beyond it."""
    bars = [
        _row(account(used=share * 8 * Gi // 100)).split("│") for share in (0, 50, 99, 100, 101, 113, 173, 200, 5000)
    ]
    assert [(before.count("█"), after.count("█")) for before, after in bars] == [
        (0, 0), (3, 0), (5, 0), (6, 0), (6, 1), (6, 1), (6, 2), (6, 2), (6, 2),
    ]  # fmt: skip
    assert "│█ 101%" in _row(account(used=8 * Gi * 101 // 100)).replace("  ", " ")


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_whole_width_is_used_and_names_get_it(columns: int) -> None:
    """The columns after the names end at the right edge, and a name is cut only if there is no room for it."""
    name = "finetune-llama3-70b-0123456789"
    lines = drawn(
        frame(node((account(name, used=9 * Gi, verdict="over"), step(due_in_s=4.0)), unattributed=()), columns)
    )
    (row,) = (line for line in lines if line.startswith("> ns/"))
    assert len(row) in range(columns - 19, columns + 1)
    assert (name in row) is (columns > 80)


@pytest.mark.parametrize(
    ("used", "shown"),
    [((), "-"), ((3,), "3"), ((0, 1), "0,1"), ((0, 1, 2, 3), "0-3"), ((0, 1, 2, 5, 7, 8), "0-2,5,7,8")],
)
def test_the_gpus_of_a_pod(used: tuple[int, ...], shown: str) -> None:
    """A column names the cards that its processes use, and a filter shows the pods of one card."""
    processes = tuple(ProcessStatus(pid=n, gpu=f"GPU-{n}", used=Gi) for n in used)
    made = replace(full(2, 12), accounts=(account(processes=processes),), unattributed=())
    (row,) = (line for line in drawn(frame(made, 140)) if line.startswith("> ns/p"))
    assert row.split()[2] == shown
    for number in range(12):
        for wanted in (str(number), f"gpu-{number}"):
            on_it = text(frame(made, 140, selection=Selection(choice=Choice(gpu=wanted))))
            is_shown = number in used or (wanted == "gpu-1" and any(n >= 10 for n in used))
            assert ("> ns/p" in on_it) is is_shown
            assert f", on GPU {wanted}" in on_it
    nowhere = text(frame(made, 140, selection=Selection(choice=Choice(gpu="12"))))
    assert "This node has no GPU 12; Esc shows all." in nowhere


def _row(of: AccountStatus) -> str:
    (line,) = (line for line in drawn(frame(node(of, unattributed=()), 140, 30)) if line.startswith("> ns/p"))
    return line


@pytest.mark.parametrize(
    ("used", "least", "allowed", "percent"),
    [
        *(
            (0, 0, 8 * Gi, "0%"),
            (4 * Gi, 0, 8 * Gi, "50%"),
            (8 * Gi, 0, 8 * Gi, "100%"),
            (8 * Gi + 1, 0, 8 * Gi, "101%"),
        ),
        *((8 * Gi - 1, 0, 8 * Gi, "99%"), (None, 12 * Gi, 8 * Gi, "≥150%"), (None, 0, 8 * Gi, "unknown")),
        *((Gi, 0, 0, ">9999%"), (0, 0, 0, "0%"), (Gi, 0, 1, ">9999%"), (4 * Gi, None, 8 * Gi, "50%")),
    ],
)
def test_percent(used: int | None, least: int | None, allowed: int, percent: str) -> None:
    """The share of what is allowed: a hair above it is not 100%."""
    shown = replace(
        account(used=used, least=least or 0, allowed=allowed), **({"used_at_least": None} if least is None else {})
    )
    assert row(shown).percent(BLOCKS) == percent


def test_a_card() -> None:
    """A card's bar has what pods use, what unattributed processes do, the rest, and what is free."""
    cards = (gpu(0, used=40 * Gi, reserved=Gi), gpu(1, used=None), gpu(2, up=False))
    seen = snapshot([use(101, 20 * Gi), use(9, 10 * Gi)], [process(101, "u1/main"), process(9, None)], cards)
    lines = drawn(frame(status(Story().see(seen)), 100, 40))
    (first,) = (line for line in lines if line.startswith("0 "))
    assert first.split()[1] == "█" * 5 + "▓" * 3 + "▒" * 2 + "░" * 10  # of 80Gi in 20 cells
    assert first.split()[2:6] == ["40Gi", "80Gi", "10Gi", "9Gi"]
    (second,) = (line for line in lines if line.startswith("1 "))
    assert second.split()[1:3] == ["?" * 20, "unknown"]
    (third,) = (line for line in lines if line.startswith("2 "))
    assert "lost" in third


def test_how_busy_cards_and_pods_are() -> None:
    """Of each its share of the time, `-` where it is unknown; idle is only what is reported as idle, with how long."""
    lines = drawn(frame(busy(), 120, 40))
    assert lines[1] == "1 GPU: 12.9Gi of 80Gi, 35% busy, 1 pod idle  4 pods: 4 within"
    cards = next(number for number, line in enumerate(lines) if line.startswith("GPU MEMORY"))
    assert lines[cards + 1].split()[lines[cards].split().index("BUSY")] == "35%"
    (heading,) = (line for line in lines if " POD " in line and "BUSY" in line)
    cells = {}
    for line in (line for line in lines if line[2:].startswith("ns/") and ":" not in line):
        ends = [heading.index(title) + len(title) for title in ("BUSY", "IDLE")]
        cells[line.split("ns/")[1].split()[0]] = [line[:end].split()[-1] for end in ends]
    assert cells == {"computes": ["35%", "-"], "idle": ["0%", "2h10m"], "soon": ["0%", "-"], "unknown": ["-", "-"]}
    assert "IDLE" not in text(frame(replace(busy(), accounts=busy().accounts[:1]), 120, 40))
    assert "BUSY" not in text(frame(status(), 160, 40))


@pytest.mark.parametrize(
    ("place", "reason", "words"),
    [
        (0, None, "ns/computes: 35% busy, declares 8Gi"),
        (1, None, "ns/idle: idle for 2h 10m, declares 8Gi"),
        (2, None, "ns/soon: 0% busy, declares 8Gi"),
        (3, None, "isn't known: the driver does not reliably say which processes keep GPU 0 busy"),
        (3, "a card\x1b[2J without", "How busy it is isn't known: a card\\x1b[2J without"),
    ],
)
def test_how_busy_the_selected_pod_is(place: int, reason: str | None, words: str) -> None:
    """Below the table, and why it is unknown, as far as there is room."""
    assert words in text(frame(busy(reason=reason), 120, 40, Selection(place=place, choice=Choice(sort="name"))))


def test_only_what_is_idle() -> None:
    """The key `i` leaves what is reported as idle, at any width with for how long."""
    only = Selection(choice=Choice(idle=True))
    for width in (60, 80, 120):
        shown = drawn(frame(busy(), width, 24, only))
        assert "Pods: 1, sorted by percent, idle only" in shown
        assert [line for line in shown if line.startswith("> ns/idle") and "2h10m" in line]
        assert not any("ns/soon" in line for line in shown)
    none = text(frame(status(), selection=only))
    assert "No pod is known to hold memory idle; Esc shows all." in none


def test_the_selected_pod() -> None:
    """Below the table are the selected pod's declaration, its next step in full and its processes."""
    selection = Selection(place=1, key=("uid-b", None, None))
    held = step(
        container="main", scope="container", above="110%", withheld_by="protected", held_because="it is a system pod"
    )
    shown = drawn(frame(node(account("a"), (account("b", protected="it is a system pod"), held)), 120, 30, selection))
    at = next(number for number, line in enumerate(shown) if line.startswith("ns/b: "))
    assert 'declares 8Gi by veriff.com/gpu-memory, allowed 8Gi, rule "notebooks"' in shown[at]
    following = "kill all processes of container main above 110% now, withheld (protected): it is a system pod"
    assert shown[at + 1] == f"Next: {following}"
    (marked,) = (line for line in shown if line.startswith(">"))
    assert "ns/b" in marked


def test_its_processes() -> None:
    """The processes of the selected pod, the largest first, and how many more there are."""
    shown = drawn(frame(status(), 120, 40))
    at = next(number for number, line in enumerate(shown) if line.split()[:2] == ["PID", "NAME"])
    assert shown[at + 1].split() == ["101", "python3", "main", "0", "9.4Gi"]
    (one,) = status().accounts
    many = replace(one, processes=one.processes * 30)
    assert re.search(r"^and 9\d more$", text(frame(replace(status(), accounts=(many,)), 120, 40)), re.MULTILINE)


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
        r"^07:59:00 +kill +in progress a/trainer \[main\] +3Gi +1Gi notebooks above 110%", shown, re.MULTILINE
    )
    assert re.search(r"^2027-01-14 07:58:00 +kill +failed .* no such process", shown, re.MULTILINE)


def test_problems_are_shown_as_far_as_there_is_room() -> None:
    """The first problem is always shown, with a mark where it is cut, and the number of further ones."""
    gaps = (GapStatus(what="second", why="why"), GapStatus(what="third", why="because"))
    some = status(quiet(), maintenance="a new driver and " + "words and more words " * 20)
    crowded = replace(some, gaps=gaps, accounts=full().accounts)
    lines = drawn(frame(crowded, 80, 24))
    assert lines[2].startswith("! The GPUs of this node are under maintenance (a new")
    assert lines[3].endswith(("...", "~"))
    assert lines[4] == "! 2 more problems: see `gpu-watchdog top --once`"
    assert "! Unknown: second: why" in text(frame(replace(some, gaps=gaps), 300, 40))
    assert "more problem" not in text(frame(replace(some, maintenance=None, gaps=gaps), 80, 24))


def crowded(pods: int, processes: int = 3) -> Status:
    """A node with few pods, and more problems, recent actions and processes than a usual terminal has room for."""
    done = {"do": "kill", "result": "done", "namespace": "ns", "used": Gi, "allowed": Gi, "rule": "notebooks"}
    recent = [{**done, "at": f"2027-01-15T07:{59 - n}:00Z", "pod": f"gone-{n}"} for n in range(20)]
    uses = [
        tuple(
            ProcessStatus(pid=100 * n + k, gpu="GPU-0", used=k * Gi, container="main", name="python3")
            for k in range(processes)
        )
        for n in range(pods)
    ]
    accounts = tuple(account(f"pod-{n}", processes=each) for n, each in enumerate(uses))
    gaps = tuple(GapStatus(what=f"thing {n}", why=f"because {n}") for n in range(9))
    return replace(status(quiet(), recent=recent), accounts=accounts, unattributed=(), gaps=gaps)


def test_a_tall_terminal_hides_nothing() -> None:
    """Lines that few pods leave have all problems, all recent actions, and the processes of all pods."""
    shown = text(frame(crowded(4), 120, 80))
    assert all(f"thing {number}: because {number}" in shown for number in range(9))
    assert all(f"ns/gone-{number} " in shown for number in range(20))
    assert "Processes: 12" in shown
    assert re.search(r"^POD +PID +NAME +CONTAINER +GPU +USED$", shown, re.MULTILINE)
    rows = re.findall(r"^ns/pod-(\d) +\d+ python3 main +0 +(\S+)$", shown, re.MULTILINE)
    assert [used for _, used in rows] == ["2Gi"] * 4 + ["1Gi"] * 4 + ["0"] * 4
    assert " more" not in shown


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("height", [16, 24, 31, 32, 40, 60, 90])
def test_free_lines_take_nothing_away(width: int, height: int) -> None:
    """What is shown beside many pods is shown beside few, and each of those; no line is free while one is hidden."""
    few = crowded(5, 12)
    many = replace(few, accounts=(*few.accounts, *(account(f"z{number}", used=0) for number in range(90))))
    usual, filled = (drawn(frame(each, width, height)) for each in (many, few))
    counted = re.compile(r"and \d+ more|! \d+ more problem|GPU|Pods:|  POD|\d GPUs:|[ >] ns/")
    assert {line for line in usual if not counted.match(line)} <= set(filled)
    pods = [line for line in filled if re.match("[ >] ns/pod", line)]
    assert (len(filled), len(pods)) == (height, min(5, len([line for line in usual if re.match("[ >] ns/", line)])))
    if any(re.match(r"and \d+ more|! \d+ more", line) for line in filled):
        assert filled[-2]


def test_no_table_of_processes_that_the_selected_pod_has_already() -> None:
    """With one pod on the node its processes are listed once."""
    assert "Processes: " not in text(frame(crowded(1), 120, 80))
    assert "Processes: 6" in text(frame(crowded(2), 120, 80))


def test_nothing_to_show() -> None:
    """An empty table says why it is empty."""
    assert "No pod on this node uses or declares GPU memory." in text(frame(node(unattributed=())))
    none = Selection(choice=Choice(text="missing"))
    assert "No pod matches the filter 'missing'; Esc shows all." in text(frame(status(), selection=none))


def test_numbers_are_never_cut() -> None:
    """A sum that does not fit goes as a whole: half of a number would be another one."""
    whole = drawn(frame(full(), 300, 24))[1]
    for width in range(20, 120, 3):
        line = drawn(frame(full(), width, 24))[1]
        assert whole.startswith(line.removesuffix("~"))
        assert width < 30 or not line.endswith("~")
        assert line.endswith("~") or whole[len(line) : len(line) + 1] in ("", " ", ",")


def _with_hours(levels: str, marks: str = "") -> Status:
    """One pod and one card with this hour."""
    hour = HourStatus(levels=levels, marks=marks)
    made = status(climbing(6))
    gpus = tuple(replace(gpu, hour=hour) for gpu in made.gpus)
    return replace(made, gpus=gpus, accounts=tuple(replace(each, hour=hour) for each in made.accounts))


def test_the_last_hour_is_a_column_of_both_tables() -> None:
    """Where there is room, cards and pods have their hour; of an older daemon there is no empty column."""
    with_hour = drawn(frame(_with_hours(f"{' ' * 20}0123456788", f"{' ' * 27}w"), 160, 30))
    assert [line.split().count("HOUR") for line in with_hour if " POD " in line or "MEMORY" in line] == [1, 1]
    assert sum("..........▁▃▅w█" in line for line in with_hour) == 3
    assert not any("HOUR" in line for line in drawn(frame(status(climbing(6)), 160, 30)))
    assert not any("HOUR" in line for line in drawn(frame(_with_hours("0" * 30), 60, 30)))


@pytest.mark.parametrize(
    ("levels", "marks", "shown"),
    [
        ("08", "", "▁█"),
        ("0077", "", "▁▁▇▇"),
        ("  ", "", ".."),
        ("0" * 28 + "08", "", "▁" * 14 + "█"),
        ("0" * 30, f"{' ' * 28}wk", "▁" * 14 + "k"),
        ("0" * 30, f"{' ' * 28}kw", "▁" * 14 + "k"),
        ("0" * 30, "w", "w" + "▁" * 14),
        (" " * 28 + " 3", "", "." * 14 + "▃"),
    ],
)
def test_a_sparkline(levels: str, marks: str, shown: str) -> None:
    """The highest of each four minutes; an action takes its place, rather a kill than a warning."""
    assert spark(HourStatus(levels=levels, marks=marks), BLOCKS) == shown


def test_what_is_above_its_limit_and_what_was_done_stand_out() -> None:
    """Colours tell them apart at a glance, and without colour they are the tallest block and letters."""
    line = spark_text(HourStatus(levels="78" + "0" * 4, marks="   wk"), BLOCKS)
    found = [(line.plain[span.start : span.end], span.style) for span in line.spans if span.style != PLAIN]
    assert found == [("█", BAD), ("w", WARN), ("k", BAD)]
