"""The dashboard's queries, asked as Grafana would ask them, of a real Prometheus that scraped real daemons."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.monitoring.grafana import Viewer, panels_of
from tests.monitoring.prometheus import Sample, Series
from tests.monitoring.shared_node import GPU, INSTANCE, INTERVAL_S, SECOND, SharedNode, shared_node
from tests.stub import GIB, MIB
from tools.dashboard.written import FILE

pytestmark = [pytest.mark.slow, pytest.mark.node]

DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = {panel["title"]: panel for panel in panels_of(DOCUMENT)}
# Empty without a maintenance or a [pulse]: tests/monitoring/test_queries.py has these metrics from a daemon with both.
SELDOM = {"Age of the maintenance", "Pulse", "Rises without a look"}
QUERIES = [
    (title, target["refId"]) for title, panel in PANELS.items() if title not in SELDOM for target in panel["targets"]
]
MARKS = {each["name"]: each for each in DOCUMENT["annotations"]["list"] if not each.get("builtIn")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNode]:
    """What happened on two nodes."""
    with shared_node(tmp_path_factory.mktemp("shared")) as happened:
        yield happened


@pytest.fixture(scope="module")
def viewer(world: SharedNode) -> Viewer:
    """A viewer who has chosen everything."""
    return looking(world)


def looking(world: SharedNode, **chosen: str) -> Viewer:
    """A viewer who has chosen one value of some variables."""
    return Viewer(
        prometheus=world.prometheus,
        document=DOCUMENT,
        start=world.start,
        end=world.end,
        interval_s=INTERVAL_S,
        chosen={name: [value] for name, value in chosen.items()},
    )


def numbers(found: list[Sample] | list[Series]) -> list[float]:
    """All values of an answer."""
    return [
        value
        for each in found
        for value in ([each.value] if isinstance(each, Sample) else [value for _, value in each.points])
    ]


def one(viewer: Viewer, title: str) -> float:
    """The one number that a panel shows."""
    (value,) = numbers(viewer.ask(title))
    return value


def rows(viewer: Viewer, title: str, letter: str) -> dict[str, float]:
    """A column of a table, by pod."""
    found: list[Any] = viewer.ask(title, letter)
    return {each.labels["pod"]: each.value for each in found}


@pytest.mark.parametrize(("title", "letter"), QUERIES)
def test_each_query_gives_data(viewer: Viewer, title: str, letter: str) -> None:
    """Every query of every panel finds its metrics, its labels and its joins in what a daemon really exposes."""
    found = numbers(viewer.ask(title, letter))
    assert found
    assert all(map(math.isfinite, found)), found


def test_each_variable_offers_what_there_is(viewer: Viewer) -> None:
    """Each variable has its values, pods that are gone by now among them; a cluster only where there is the label."""
    assert list(viewer.options("cluster")) == ["east"]
    assert list(viewer.options("node")) == ["n1", "n2"]
    assert list(viewer.options("namespace")) == ["batch", "infra", "jupyter", "lab", "speech", "vision"]
    assert {"trainer", "nb-7", "greedy", "stranger"} <= set(viewer.options("pod"))
    cards = viewer.options("gpu")
    assert [cards[each] for each in (GPU, SECOND, INSTANCE)] == ["n1 GPU 0", "n1 GPU 1", "n1 GPU 2 3g.20gb"]


def test_the_overview_is_right(viewer: Viewer) -> None:
    """The first row's numbers are what happened."""
    expected = {
        "Nodes with a watchdog": 2,
        "Watchdogs not answering": 0,
        "Nodes that enforce": 1,
        "Set to enforce, but suspended": 1,
        "Over now": 4,
        "Verdict unknown": 0,
        "Pods killed": 1,
        "Breakers open": 0,
        "Cards lost": 0,
        "Unattributed memory": 700 * MIB,
    }
    assert {title: one(viewer, title) for title in expected} == expected
    # An eviction that failed is tried again.
    assert one(viewer, "Failed or blocked") >= 1
    assert one(viewer, "Withheld") == 1
    assert one(viewer, "Would have acted") >= 1


def test_the_pods_table_is_right(viewer: Viewer) -> None:
    """Use, declared, allowed and verdict of each pod stand in one row; who declares nothing has no verdict."""
    title = "Pods against what they declared"
    used, declared, over = (rows(viewer, title, letter) for letter in "ABF")
    assert used["trainer"] == 10 * GIB
    assert (used["creeper"], declared["creeper"], over["creeper"]) == (4 * GIB, 2 * GIB, 1)
    assert (over["trainer"], over["small"], over["greedy"]) == (0, 0, 1)
    assert "stranger" in used
    assert not {"stranger"} & (declared.keys() | over.keys())
    assert rows(viewer, title, "E")["trainer"] == 10 * GIB
    assert rows(viewer, title, "D")["creeper"] > 1
    assert rows(viewer, "Used and not declared", "A") == {"stranger": GIB}


def column(viewer: Viewer, title: str, letter: str, *labels: str) -> dict[tuple[str, ...], float]:
    """A column of a table, by some of its labels."""
    found: list[Any] = viewer.ask(title, letter)
    return {tuple(each.labels[label] for label in labels): each.value for each in found}


def test_the_kinds_of_cards_are_right(viewer: Viewer) -> None:
    """Cards of both nodes are added up by model and by how they are shared, with what pods hold and declare there."""
    title, kind = "Cards by model and sharing", ("sharing",)
    expected = {
        "A": {("whole",): 3, ("mig",): 1},
        "B": {("whole",): 120 * GIB, ("mig",): 20 * GIB},
        # Pods, 300MiB and 700MiB of no pod, and 512MiB that the driver reserves on each card.
        "C": {("whole",): (18 + 4 + 8) * GIB + (300 + 700 + 3 * 512) * MIB, ("mig",): 3 * GIB},
        # trainer's 16Gi are divided among two cards of one kind; who declares nothing counts for nothing.
        "E": {("whole",): (16 + 3 + 2 + 0.5 + 4) * GIB, ("mig",): 4 * GIB},
        "G": {("whole",): 0.3},  # of the two that report it
        "H": {("whole",): 6, ("mig",): 1},
        "I": {("whole",): 5, ("mig",): 1},
    }
    assert {letter: column(viewer, title, letter, *kind) for letter in expected} == expected


def test_what_is_allocated_and_not_used_is_right(viewer: Viewer) -> None:
    """By namespace, who uses more than it declares does not hide what others leave unused; by card, a share of it."""
    title = "Declared and used, by namespace"
    unused = column(viewer, title, "C", "namespace")
    assert (unused[("vision",)], unused[("lab",)], unused[("speech",)]) == (7 * GIB, 0, 0)
    by_card = column(viewer, "Declared, by card", "A", "gpu")
    assert (by_card[(SECOND,)], by_card[(INSTANCE,)]) == (8 / 40, 4 / 20)


def test_who_computes_and_who_is_idle_is_right(viewer: Viewer) -> None:
    """Who computes is not in the table of idle memory, nor is who holds little or is on a card that does not say."""
    last: list[Any] = viewer.ask("Utilization, by container")
    ratios = {(each.labels["pod"], each.labels["gpu"]): each.points[-1][1] for each in last}
    assert (ratios[("trainer", GPU)], ratios[("trainer", SECOND)], ratios[("creeper", GPU)]) == (0.35, 0, 0.2)
    assert ratios[("stranger", GPU)] == 0
    assert not {pod for pod, _ in ratios} & {"small", "greedy"}
    idle, reported = (rows(viewer, "Idle memory", letter) for letter in "AC")
    assert "stranger" in idle
    assert idle["stranger"] >= 10
    assert "stranger" in reported
    assert not idle.keys() & {"trainer", "creeper", "small", "greedy"}
    shares = column(viewer, "Card-hours, by namespace", "D", "namespace")
    assert 0 <= shares[("vision",)] < shares[("infra",)] <= 1


def test_the_hour_of_a_pod_is_of_its_cards(world: SharedNode) -> None:
    """With one pod chosen, its neighbors are those on its own cards, and the time is the last hour."""
    of_small = looking(world, pod="small")
    title = "Everyone on its cards in the last hour"
    found: list[Any] = of_small.ask(title)
    assert {(each.labels["pod"], each.labels["gpu"]) for each in found} == {("small", INSTANCE)}
    neighbors: list[Any] = looking(world, pod="creeper").ask(title)
    assert {"trainer", "creeper", "stranger"} <= {each.labels["pod"] for each in neighbors}
    row = next(each for each in DOCUMENT["panels"] if each["title"] == "The last hour of one pod")
    assert {panel["timeFrom"] for panel in row["panels"]} == {"1h"}


def test_bars_count_each_action_once(world: SharedNode, viewer: Viewer) -> None:
    """The bars of a graph are whole numbers that add up to what was counted: nothing is estimated, or counted twice."""
    for title, counter in (
        ("Actions over time", "actions"),
        ("Withheld, by brake", "withheld"),
        ("Would have acted, by rule", "would_act"),
        ("Gaps, by reason", "scan_gaps"),
    ):
        bars: list[Any] = viewer.ask(title)
        # What happened since the last whole step has no bar yet.
        step_s = viewer.step_s(PANELS[title])
        until = world.start + (world.end - world.start) // step_s * step_s
        (total,) = world.prometheus.query(f"sum(gpu_watchdog_{counter}_total)", at=until)
        assert all(each == int(each) for each in numbers(bars)), title
        assert sum(numbers(bars)) == total.value, title


def test_what_is_chosen_narrows_what_is_asked(world: SharedNode) -> None:
    """A namespace, a pod, a node and a cluster each leave the rest out; a pod's name is no regular expression."""
    assert one(looking(world, namespace="lab"), "Over now") == 1
    assert one(looking(world, node="n2"), "Over now") == 1
    assert one(looking(world, cluster="east"), "Nodes with a watchdog") == 1
    assert one(looking(world, pod="creeper"), "Over now") == 1
    assert one(looking(world, pod="cre.per"), "Over now") == 0
    assert one(looking(world, pod="trainer"), "Pods killed") == 0


def test_zero_is_only_shown_where_a_watchdog_counted(world: SharedNode) -> None:
    """Of a node from which nothing was scraped nothing is shown, rather than a zero that looks fine."""
    nowhere = looking(world, node="n9")
    for title in ("Over now", "Pods killed", "Set to enforce, but suspended", "Cards lost", "Nodes with a watchdog"):
        assert numbers(nowhere.ask(title)) == [], title


def test_a_card_is_filled_by_its_pods_and_the_rest(world: SharedNode) -> None:
    """The stack of a card adds up to what is in use of it, and the chosen card is the only one in it."""
    on_card = looking(world, gpu=GPU)
    stacked: list[Any] = [series for letter in "ABCD" for series in on_card.ask("Who is on $gpu", letter)]
    shown = [series.points[-1][1] for series in stacked if series.points[-1][0] > world.end - 2 * INTERVAL_S]
    (in_use,) = world.prometheus.query(f'gpu_watchdog_gpu_memory_used_bytes{{gpu="{GPU}"}}', at=world.end)
    assert sum(shown) == in_use.value
    found: list[Any] = looking(world, gpu=INSTANCE).ask("Who is on $gpu")
    (pod,) = found
    assert pod.labels["pod"] == "small"


@pytest.mark.parametrize(
    ("name", "title", "pod"),
    [
        ("Kills", "Kill: done", "jupyter/nb-7 main, rule notebooks"),
        ("Evictions", "Evict: failed", "batch/sweep-3"),
        ("Warnings", "Warn: done", "lab/creeper"),
    ],
)
def test_actions_are_marked_at_their_times(world: SharedNode, viewer: Viewer, name: str, title: str, pod: str) -> None:
    """An action is marked at its own time, not the scrape's: the gauge's value is a time, in ms for Grafana."""
    marks = viewer.marks(MARKS[name])
    assert [title] == sorted({each.title for each in marks})
    assert any(pod in each.text for each in marks), marks
    if name == "Kills":
        (kill,) = marks
        found = world.prometheus.query('gpu_watchdog_pod_last_action_timestamp_seconds{action="kill"}', at=world.end)
        assert [each.value for each in found] == [pytest.approx(kill.at, abs=0.001)]


def test_the_other_marks_have_data(viewer: Viewer, world: SharedNode) -> None:
    """Starts and new policies are before the range here: their queries give times that lie there."""
    early = replace(viewer, start=world.start - 120)
    for name in ("Starts of the watchdog", "New policies"):
        assert sorted(each.text for each in early.marks(MARKS[name])) == ["n1", "n2"], name
