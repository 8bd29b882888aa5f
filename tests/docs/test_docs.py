"""What the documentation says is what the program has: names, commands, links, policies."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from tests.report.build import climbing
from tests.worlds import at, parse_policy
from tools.chart_reference import REFERENCE, chart_reference
from tools.cli_reference import cli_reference
from tools.readme import DEMO, README, with_demo
from watchdog.cli.main import main
from watchdog.core.assessment import Reason, Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.core.plan import Result
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.export.web import respond
from watchdog.journal.lock import NodeLock
from watchdog.report.sentences.suspension import REMEDIES

ROOT: Final = Path(__file__).parents[2]
_TOP: Final = tuple(
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md")
)
PAGES: Final = (*_TOP, *sorted(page for page in (ROOT / "docs").rglob("*.md") if "templates" not in page.parts))
TEXTS: Final = {page: page.read_text(encoding="utf-8") for page in PAGES}
CLI, OPERATIONS, TROUBLES = (TEXTS[ROOT / "docs" / f"{name}.md"] for name in ("cli", "operations", "troubleshooting"))
METRICS: Final = TEXTS[ROOT / "docs" / "metrics.md"]

_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"^    .+$", re.MULTILINE)
# What belongs to how the project is made, or to one machine, and not into what users read. The files that are named
# are no part of the repository: what it follows is in docs/rules.md.
_FORBIDDEN: Final = re.compile(
    r"/(?:root|home)/(?!kubernetes/)|\bsession\b|\bissue #?[0-9]|\bhelper\b|pypi\.org|files\.pythonhosted"
    r"|index-url|semantics\.md|facts\.md|design\.md|contract\.md|\bTODO\b|\bFIXME\b",
    re.IGNORECASE,
)

_OTHERS: Final = ("Dockerfile", "Makefile", "config/policy.toml", "deploy/chart/values.yaml", "pyproject.toml")


def _pages() -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_FENCE.sub("", text)))
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", [*(str(page.relative_to(ROOT)) for page in PAGES), *_OTHERS])
def test_pages_speak_of_the_product_alone(name: str) -> None:
    """No page mentions the machine it was written on, an index, or how the work was organised."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if _FORBIDDEN.search(line)]


def test_every_page_is_reachable() -> None:
    """From the README one comes to every page of docs/."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page in TEXTS:
            reached.add(page)
            links = (link.partition("#")[0] for link in _LINK.findall(TEXTS[page]) if "://" not in link)
            waiting += [(page.parent / link).resolve() for link in links if link]
    assert set(PAGES) <= reached


def test_the_front_pages_lead_to_the_same_tasks() -> None:
    """Each page that the README offers for a task is among the index's first choices; both show the architecture."""
    index = TEXTS[ROOT / "docs" / "index.md"]
    offered, first = (
        set(re.findall(r"([\w-]+\.md)", text.partition("| you want to |")[2].partition("\n\n")[0]))
        for text in (TEXTS[README], index)
    )
    assert offered - {"index.md"} <= first
    assert {"examples.md", "replay.md"} <= offered
    assert all("pictures/architecture.svg" in text for text in (TEXTS[README], index))
    assert len(_LINK.findall(index.partition("**Concepts.**")[2].partition("\n\n")[0])) == 2


def test_every_command_and_option_is_documented() -> None:
    """cli.md describes each command, and has each option with its variables, default and meaning as defined."""
    assert cli_reference() == CLI, "python -m tools.cli_reference"
    described = CLI.partition("| command | does |")[2].partition("\n\n")[0]
    assert set(main.commands) <= set(re.findall(r"`([a-z]+)(?: [^`]*)?`", described))


def _commands(text: str) -> list[list[str]]:
    """Every `gpu-watchdog ...` in a code block of a page, as words."""
    blocks = [body for language, body in _FENCE.findall(text) if language in ("", "sh")] + _INDENTED.findall(
        _FENCE.sub("", text)
    )
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    called = (re.split(r"[#|<>]", line)[0] for line in lines)
    found = [re.search(r"(?:^|\s|/)gpu-watchdog ((?:[a-z]|--)\S*.*)$", line.strip()) for line in called]
    return [shlex.split(match[1]) for match in found if match is not None]


@pytest.mark.parametrize("page", _pages())
def test_printed_commands_are_right(page: Path) -> None:
    """A command line of gpu-watchdog that is copied from a page is one that the program understands."""
    for name, *arguments in _commands(TEXTS[page]):
        command = main.commands.get(name)
        assert command is not None or name in ("--version", "--help"), name
        if command is not None:
            command.make_context(name, list(arguments), parent=click.Context(main))
    # In a sentence a command may lack its arguments.
    for words in re.findall(r"`(?:kubectl [^`]+ )?gpu-watchdog ([a-z][^`|]*)", _FENCE.sub("", TEXTS[page])):
        name, *arguments = shlex.split(words)
        command = main.commands[name]
        command.make_parser(click.Context(command)).parse_args(arguments)


def test_printed_targets_are_there() -> None:
    """Every `make` target that a page names is one of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page, text in TEXTS.items():
        named = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"


@pytest.mark.parametrize("page", _pages())
def test_printed_policies_are_valid(page: Path) -> None:
    """Every block of TOML in a page is a policy that `check` accepts."""
    for language, body in _FENCE.findall(TEXTS[page]):
        if language == "toml":
            parse_policy(body, page.name)


def test_every_endpoint_is_documented() -> None:
    """cli.md has each path of the daemon, and each that it has is answered."""
    documented = _rows(CLI, "Endpoints")
    pages = {"/", "/pods/NAMESPACE/NAME", "/gpus/INDEX"}
    further = {"/api/status", "/api/summary", "/api/history", "/api/report"}
    assert documented == pages | {"/metrics", "/healthz", "/readyz"} | further
    for path in (each.replace("NAMESPACE/NAME", "a/b").replace("INDEX", "0") for each in documented):
        head, _ = respond(Endpoints(Metrics(), 1.0), f"GET {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        assert not head.startswith(b"HTTP/1.1 404 "), path


def _rows(text: str, heading: str) -> set[str]:
    """What is in backticks in the first cells of the table below a heading."""
    body = text.partition(f"\n## {heading}\n")[2] or text.partition(f"\n### {heading}\n")[2]
    body = re.split(r"^##", body, maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `([^`]+)` \|", body, re.MULTILINE))


def _unready_lines(tmp_path: Path) -> Iterator[str]:
    """The reasons that the endpoints and the lock give, each made by its own cause."""
    past = at(0)
    endpoints = Endpoints(Metrics(), 1.0, now=lambda: past)
    yield from endpoints.health.readiness().lines
    past = at(60)
    yield from endpoints.health.readiness().lines
    endpoints.publish(climbing())
    past = at(120)
    yield from endpoints.health.readiness().lines
    held, second = NodeLock(tmp_path / "journal.db"), NodeLock(tmp_path / "journal.db")
    assert held.acquire()
    assert not second.acquire()
    held.release()
    (tmp_path / "file").touch()
    nowhere = NodeLock(tmp_path / "file" / "journal.db")
    assert not nowhere.acquire()
    yield from (second.problem, nowhere.problem)


def test_every_reason_for_not_being_ready_is_documented(tmp_path: Path) -> None:
    """Each reason that /readyz gives is in troubleshooting.md word for word, with its remedy."""
    documented = [re.sub(r"\b(N|PATH|CAUSE)\b", ".+", re.escape(line)) for line in _rows(TROUBLES, "Not ready")]
    lines = list(_unready_lines(tmp_path))
    assert len(lines) >= 6
    for line in lines:
        assert any(re.fullmatch(pattern, line) for pattern in documented), line


def test_every_page_lists_its_sections() -> None:
    """The list at the top of these pages leads to every section of theirs."""
    for name, text in (("operations", OPERATIONS), ("troubleshooting", TROUBLES)):
        contents = text.partition("\n## ")[0]
        assert set(re.findall(r"\]\(#([^)]+)\)", contents)) == _anchors(text) - {name}


@pytest.mark.parametrize(
    ("text", "heading", "names"),
    [
        (TROUBLES, "Enforcement is suspended", REMEDIES),
        (TROUBLES, "Gaps", GapReason),
        (TROUBLES, "Unattributed memory", Reason),
        (TEXTS[ROOT / "docs" / "brakes.md"], "The brakes, in order", Brake),
    ],
    ids=["suspensions", "gaps", "unattributed", "brakes"],
)
def test_every_reason_has_its_row(text: str, heading: str, names: Iterable[str]) -> None:
    """The page says of each what it means and what helps; and of no other."""
    assert _rows(text, heading) == set(names)


def test_every_metric_is_documented() -> None:
    """metrics.md has a row for each metric that the code exports, with its labels, and none for any other."""
    metrics = Metrics()
    metrics.update(climbing())
    suffixes = {"counter": "_total", "info": "_info"}
    exported: dict[str, set[str] | None] = {}
    for family in metrics.collect():
        name = family.name.removeprefix("gpu_watchdog_") + suffixes.get(family.type, "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        exported[name] = labels if family.samples else None
    documented = {
        name: {label.strip() for label in labels.split(",")} - {""}
        for name, labels in re.findall(r"^\| `([a-z_]+)` \| ([a-z0-9, ]*)\|", METRICS, re.MULTILINE)
    }
    assert documented.keys() == exported.keys()
    assert documented == {name: documented[name] if labels is None else labels for name, labels in exported.items()}


def test_every_value_of_a_label_is_documented() -> None:
    """metrics.md names each verdict, each result and each brake that a label can have."""
    results = {result.value for result in Result if result is not Result.OBSERVED}
    for word in {*results, *(verdict.value for verdict in Verdict), *(brake.value for brake in Brake)}:
        assert f"`{word}`" in METRICS, word


def test_every_module_is_documented() -> None:
    """architecture.md names each package and each module of the folders that say the flow, once it is there."""
    text = TEXTS[ROOT / "docs" / "architecture.md"]
    package = ROOT / "watchdog"
    folders = (package / name for name in ("cli", "daemon", "core"))
    for path in sorted((*package.iterdir(), *(path for folder in folders for path in folder.glob("*.py")))):
        if path.name.startswith("_"):
            continue
        name = f"{path.name}/" if path.is_dir() else path.stem
        assert f"`{name}`" in text, name


def test_each_column_of_a_table_has_a_title() -> None:
    """A screen reader names each cell by the title of its column, and so does a reader who comes back to it."""
    untitled = [
        f"{path.relative_to(ROOT)}: {header}"
        for path in sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")))
        for header in re.findall(r"^(\|.*\|)\n\|[-|: ]+\|$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if not all(cell.strip() for cell in header.strip("|").split("|"))
    ]
    assert untitled == []


def test_the_demo_is_shown() -> None:
    """The README and the five minutes show what `make demo` prints, as docs/demo.txt has it."""
    demo = DEMO.read_text(encoding="utf-8")
    assert "killed" in TEXTS[README].partition("<!-- demo -->")[2].partition("<!-- /demo -->")[0]
    assert with_demo(TEXTS[README], demo) == TEXTS[README], "python -m tools.readme"
    shown = _INDENTED.findall(
        TEXTS[ROOT / "docs" / "five-minutes.md"].partition("## Read what you see")[2].partition("\n## ")[0]
    )
    assert len(shown) >= 5
    assert {line.strip() for line in shown} <= {line.strip() for line in demo.splitlines()}


def test_the_values_of_the_chart_are_documented() -> None:
    """docs/chart.md has every value with its default and meaning, as values.yaml has them."""
    assert REFERENCE.read_text(encoding="utf-8") == chart_reference(), "python -m tools.chart_reference"
