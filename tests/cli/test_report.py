"""The command `report`: a recorded week as a table, CSV and JSON, what is missing in it, and where nothing is."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec import Meta, Struct

from tests.cli.session import on_a_terminal
from tests.docs.test_docs import ROOT
from tests.worlds import at
from watchdog.cli.main import main
from watchdog.cli.report_text import NodeNote, Report, report_csv, report_document, report_text
from watchdog.core.errors import Problem
from watchdog.core.model import Owner
from watchdog.core.policy import JournalLimits
from watchdog.core.utilization import CardSeconds, IdleTimes, Spender
from watchdog.journal.journal import Journal
from watchdog.journal.schema import MIGRATIONS
from watchdog.journal.writer import JournalWriter
from watchdog.report.card_hours import HOUR_S, OwnerHours

MONDAY: Final = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) // HOUR_S
Amount = Annotated[float, Meta(ge=0)]
NOTEBOOK, SERVER = (
    ("jupyter", Owner(kind="StatefulSet", name="alice")),
    ("chat", Owner(kind="ReplicaSet", name="llm-6f9d8c")),
)
TRAINING, FORGOTTEN = ("vision", Owner(kind="Job", name="train-17")), ("vision", Owner(kind="Pod", name="debug"))


class Hours(Struct, forbid_unknown_fields=True):
    """Card-hours as JSON has them."""

    held: Amount
    used: Amount
    idle: Amount
    unknown: Amount
    unused: Amount | None


class Named(Struct, forbid_unknown_fields=True):
    """An owner as JSON has it."""

    kind: str
    name: str


class Row(Struct, forbid_unknown_fields=True):
    """A row as JSON has it."""

    cluster: str | None
    namespace: str
    owner: Named | None
    card_hours: Hours
    idle_cost: Amount | None = None


class Total(Struct, forbid_unknown_fields=True):
    """The total as JSON has it."""

    card_hours: Hours
    idle_cost: Amount | None = None


class Node(Struct, forbid_unknown_fields=True):
    """A node, or a cluster, as JSON has it."""

    cluster: str | None
    node: str | None
    begins: datetime | None
    problem: str | None


class Document(Struct, forbid_unknown_fields=True):
    """The schema of the JSON."""

    since: datetime
    until: datetime
    by: Literal["owner", "namespace"]
    price: Amount | None
    rows: list[Row]
    total: Total
    nodes: list[Node]


def hour_of_week(hour: int) -> dict[Spender, CardSeconds]:
    """What came in an hour of the week that was recorded."""
    day, of_day = divmod(hour, 24)
    is_at_work = day < 5 and 9 <= of_day < 17
    notebook, server = 0.5 * HOUR_S, 1.0 * HOUR_S
    used = 0.2 * notebook if is_at_work else 0.0
    spent = {
        NOTEBOOK: CardSeconds(held=notebook, computing=used, idle=notebook - used, unused=0.25 * HOUR_S),
        SERVER: CardSeconds(held=server, computing=0.6 * server, idle=0.4 * server),
    }
    if 1 <= day < 4:
        held = 4.0 * HOUR_S
        known = held if of_day >= 6 else 0.0  # of a driver that says nothing at first
        spent[TRAINING] = CardSeconds(held=held, computing=0.97 * known, idle=0.03 * known)
    if day >= 5:
        spent[FORGOTTEN] = CardSeconds(held=2.0 * HOUR_S, idle=2.0 * HOUR_S)
    return spent


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a week, written as the daemon writes it: by its thread, every five minutes."""
    path = tmp_path_factory.mktemp("week") / "journal.db"
    writer = JournalWriter()
    writer.use_journal(writer.submit(lambda: Journal.open(path, JournalLimits(), "n1")).result(60))
    for hour in range(7 * 24):
        parts = {spender: spent * (1 / 12) for spender, spent in hour_of_week(hour).items()}
        for _ in range(12):
            writer.add_utilization({MONDAY + hour: parts}, IdleTimes(at=at(0), seconds={}))
    assert writer.close(60)
    return path


def report(*arguments: object) -> Result:
    """Run it."""
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def _example() -> str:
    """The table of the docs."""
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("    gpu-watchdog report --since 2026-01-05 --price 3.06\n\n")
    lines = rest.partition("\n\n###")[0].partition("\n\n`")[0].splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def test_a_recorded_week_is_what_the_docs_show(journal: Path) -> None:
    """On a terminal of 80 columns: the most idle first, the total, the cost, and what the columns mean."""
    text = on_a_terminal(
        "report", "--journal", journal, "--since", "2026-01-05", "--price", "3.06", columns=80, NO_COLOR="1"
    )
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).strip() == _example().strip()


def test_the_same_by_namespace(journal: Path) -> None:
    """In a pipe nothing is cut or wrapped; without a price there is no cost."""
    result = report("--journal", journal, "--since", "2026-01-05", "--by", "namespace")
    assert (result.exit_code, result.stderr) == (0, "")
    table, _, notes = result.stdout.partition("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["NAMESPACE", "HELD", "USED", "IDLE", "UNKNOWN", "UNUSED"],
        ["vision", "384.00", "209.52", "102.48", "72.00", "0.00"],
        ["jupyter", "84.00", "4.00", "80.00", "0.00", "42.00"],
        ["chat", "168.00", "100.80", "67.20", "0.00", "0.00"],
        ["TOTAL", "636.00", "314.32", "249.68", "72.00", "42.00"],
    ]
    assert notes.startswith("- Card-hours since 2026-01-05 00:00 UTC")


def test_csv_is_read_back(journal: Path) -> None:
    """Every row with whole names and exact amounts; their sum is that of the table."""
    result = report("--journal", journal, "--since", "2026-01-05", "--csv", "--price", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["namespace"], row["owner_kind"], row["owner_name"]) for row in rows] == [
        (namespace, owner.kind, owner.name) for namespace, owner in (FORGOTTEN, NOTEBOOK, SERVER, TRAINING)
    ]
    assert sum(float(row["held_card_hours"]) for row in rows) == pytest.approx(636.0)
    assert [float(row["idle_cost"]) for row in rows] == [2 * float(row["idle_card_hours"]) for row in rows]


@pytest.mark.parametrize("more", [(), ("--by", "namespace"), ("--price", "3.06")])
def test_json_fits_its_schema(journal: Path, more: tuple[str, ...]) -> None:
    """The document has all keys and no others, and its parts add up to its total."""
    text = report("--journal", journal, "--since", "2026-01-05T00:00Z", "--json", *more).stdout
    document = msgspec.json.decode(text, type=Document)
    assert document.since == datetime(2026, 1, 5, tzinfo=UTC)
    total = document.total.card_hours
    for part in ("held", "used", "idle", "unknown", "unused"):
        assert sum(getattr(row.card_hours, part) for row in document.rows) == pytest.approx(getattr(total, part))
    assert total.held == pytest.approx(total.used + total.idle + total.unknown)


def test_a_part_of_the_week(journal: Path) -> None:
    """The hour in which --since lies is in it as a whole, and what came before is not."""
    document = json.loads(report("--journal", journal, "--since", "2026-01-10T12:30", "--json").stdout)
    hours = {row["owner"]["name"]: row["card_hours"]["held"] for row in document["rows"]}
    assert hours == {"debug": 72.0, "alice": 18.0, "llm-6f9d8c": 36.0}
    assert document["since"] == "2026-01-10T12:00:00.000Z"


def test_a_beginning_before_the_journal_s_is_said(journal: Path) -> None:
    """A sum of less than was asked for does not pass for all of it: in the table, and beside CSV."""
    message = "The journal has nothing before 2026-01-05 00:00 UTC."
    assert message in report("--journal", journal, "--since", "2026-01-04").stdout
    assert report("--journal", journal, "--since", "2026-01-04", "--csv").stderr == f"{message}\n"
    document = json.loads(report("--journal", journal, "--since", "2026-01-04", "--json").stdout)
    assert document["nodes"] == [{"cluster": None, "node": None, "begins": "2026-01-05T00:00:00.000Z", "problem": None}]


def test_where_nothing_was_held(journal: Path) -> None:
    """That is an answer, and says how to look further back."""
    result = report("--journal", journal, "--since", "2026-01-12")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "No pod held memory of a GPU since 2026-01-12 00:00:00 UTC; an earlier --since looks further back.\n"
    )
    assert json.loads(report("--journal", journal, "--since", "2026-01-12", "--json").stdout)["rows"] == []


def test_journals_that_have_none(tmp_path: Path) -> None:
    """A missing journal, one of an older daemon, and what is no journal: what is the matter, and what to do."""
    missing = report("--journal", tmp_path / "missing.db")
    assert missing.exit_code == 1
    assert "there is no journal" in missing.stderr
    assert "exec POD -- gpu-watchdog report" in missing.stderr
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        scripts = f"PRAGMA application_id = {0x67707764}; {'; '.join(MIGRATIONS[:9])}; PRAGMA user_version = 9;"
        connection.executescript(scripts)
    assert "was written by an older gpu-watchdog, which did not count card-seconds" in report("--journal", old).stderr
    other = tmp_path / "other.db"
    other.write_text("x" * 1000, encoding="ascii")
    assert report("--journal", other).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--csv", "--json"), "exclude each other"),
        (("--price", "-1"), "-1.0 is not an amount from 0 to 1000000"),
        (("--price", "nan"), "nan is not an amount"),
        (("--by", "pod"), "'owner', 'namespace'"),
        (("--cluster", "n7"), "--cluster is about all nodes: leave NODE out"),
        (("--prometheus", "http://p:9090", "n7"), "--prometheus is about all nodes: leave NODE out"),
        (("--prometheus", "http://p:9090", "--by", "owner"), "--prometheus has no owners"),
        (("--cluster", "--journal", "j.db"), "--journal is for one node, and --cluster for all"),
        (("--prometheus-header", "A=b"), "--prometheus-header is for a --prometheus at a URL"),
        (("--since", "2099-01-01"), "is in the future"),
    ],
)
def test_what_can_t_be_asked(arguments: tuple[str, ...], message: str) -> None:
    """A mistake names the option and what to do, and nothing is asked."""
    result = report(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "owners"),
    [
        (("--by", "owner", "--journal", "{journal}"), {}, 4),
        (("--by", "owner"), {"GPU_WATCHDOG_JOURNAL": "{journal}"}, 4),
        ((), {"GPU_WATCHDOG_JOURNAL": "{journal}"}, 4),
        (("--by", "namespace"), {"GPU_WATCHDOG_JOURNAL": "{journal}"}, 3),
    ],
)
def test_a_prometheus_of_the_environment_overrides_nothing_that_is_named(
    journal: Path, arguments: tuple[str, ...], variables: dict[str, str], owners: int
) -> None:
    """Where owners or a journal are asked for, the variable is ignored, and no option is blamed that nobody gave."""
    given = {name: text.format(journal=journal) for name, text in variables.items()}
    named = [each.format(journal=journal) for each in arguments]
    environment = {"GPU_WATCHDOG_PROMETHEUS": "http://127.0.0.1:1", **given}
    command = ["report", "--json", "--since", "2026-01-05", *named]
    result = CliRunner().invoke(main, command, env=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(json.loads(result.stdout)["rows"]) == owners


def test_a_prometheus_of_the_environment_is_asked() -> None:
    """Where nothing else is named, the report is that Prometheus's."""
    result = CliRunner().invoke(main, ["report"], env={"GPU_WATCHDOG_PROMETHEUS": "http://127.0.0.1:1"})
    assert "Prometheus at http://127.0.0.1:1" in result.stderr


HOSTILE: Final = OwnerHours(namespace="a\x1b[2J", kind="=HYPERLINK(1)", name="\u202e\n@x", held=2.0, idle=2.0)


def test_hostile_names_stay_text() -> None:
    """No name draws on a terminal, breaks a line of CSV, or is a formula in a spreadsheet."""
    made = Report(since_s=0.0, until_s=HOUR_S, rows=[("", HOSTILE)], by_namespace=False)
    for text in (report_text(made, width=80), report_csv(made), json.dumps(report_document(made))):
        assert all(line.isprintable() for line in text.splitlines())
    _, row = csv.reader(io.StringIO(report_csv(made)))
    assert row[:3] == ["a\\x1b[2J", "'=HYPERLINK(1)", "\\u202e\\x0a@x"]


def test_nodes_that_do_not_answer_are_named() -> None:
    """Their card-hours are not in the sum, so each is named with the reason; of many the first, and how many more."""
    problem = Problem("its daemon answers 404", "update it")
    nodes = [
        NodeNote(node="n0", begins_s=7200.0),
        *(NodeNote(node=f"n{each}", problem=problem) for each in range(1, 30)),
    ]
    made = Report(since_s=0.0, until_s=HOUR_S, rows=[("", HOSTILE)], by_namespace=False, nodes=nodes)
    text = report_text(made, width=200)
    assert "- Node n1 is missing: its daemon answers 404; update it." in text
    assert "- 9 further nodes are missing; --json names them." in text
    assert "1 of 30 nodes have nothing of the beginning, that of n0 nothing before 1970-01-01 02:00 UTC" in text


def test_where_prometheus_lacks_the_beginning() -> None:
    """A sum over what it still has does not pass for one over the whole time."""
    row = OwnerHours(namespace="a", held=2.0, unused=None)

    def notes(*nodes: NodeNote) -> str:
        made = Report(
            since_s=0.0, until_s=HOUR_S, rows=[("", row)], by_namespace=True, nodes=nodes, is_by_prometheus=True
        )
        return report_text(made, width=200).splitlines()[-1]

    late = NodeNote(cluster="west\x1b", begins_s=7200.0)
    assert notes(NodeNote(begins_s=7200.0)) == "- Prometheus has no card-seconds before 1970-01-01 02:00 UTC."
    ends = "of cluster west\\x1b before 1970-01-01 02:00 UTC"
    assert notes(late, NodeNote(cluster="east", begins_s=0.0)) == f"- Prometheus has no card-seconds {ends}."
    both = notes(late, NodeNote(cluster="east", begins_s=1.0))
    assert both == f"- Prometheus has no card-seconds {ends}, and lacks the beginning of 1 further cluster."
    assert notes(NodeNote(begins_s=0.0)).startswith("- Card-hours since")


def test_rows_of_several_clusters() -> None:
    """A Prometheus of several clusters adds a column, and has nothing of what was declared and not held."""
    row = OwnerHours(namespace="a", held=2.0, used=1.0, idle=1.0, unused=None)
    made = Report(since_s=0.0, until_s=HOUR_S, rows=[("east", row), ("west", row)], by_namespace=True)
    assert [line.split() for line in report_text(made, width=80).splitlines()[:4]] == [
        ["CLUSTER", "NAMESPACE", "HELD", "USED", "IDLE", "UNKNOWN"],
        ["east", "a", "2.00", "1.00", "1.00", "0.00"],
        ["west", "a", "2.00", "1.00", "1.00", "0.00"],
        ["TOTAL", "4.00", "2.00", "2.00", "0.00"],
    ]
    document = report_document(made)
    assert msgspec.convert(document, type=Document).total.card_hours.unused is None
    assert report_csv(made).splitlines()[0].startswith("cluster,namespace,held_card_hours")
