"""The command `replay`: what it prints, and what is said where it can't."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.past import runs
from tests.past.life import Life, replayed, tenant
from tests.past.runs import HIGH, LOW, P, passes, recently
from tests.worlds import Gi, owner
from watchdog.cli.client import inside
from watchdog.cli.main import main
from watchdog.cli.replay import ReplayReport, replay_text
from watchdog.cli.tables import UNCUT

POLICY = """
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[[rule]]
name = "everybody"
match = {}
[[rule.step]]
above = "110%"
for = "10s"
do = "kill"
scope = "container"
"""


def call(path: Path, *arguments: str, text: str = POLICY) -> tuple[int, str]:
    """The command on a journal."""
    return runs.call("replay", path, *arguments, policy=text)


def test_the_command_for_people(path: Path) -> None:
    """Each first action has its line, and one sentence sums them up."""
    recently(path, (20, LOW), (60, HIGH), (80, LOW))
    code, text = call(path)
    assert code == 0
    assert "kill 1 process of container main" in text
    assert "everybody: above 110% for 10s" in text
    assert "Under this policy: 1 kill in 1 incident of 1 workload; 0 warnings." in text
    assert "In the journal for that time: 0 actions started" in text


def test_the_command_as_json(path: Path) -> None:
    """Programs get whole numbers, times in UTC, and the counts."""
    recently(path, (20, LOW), (60, HIGH), (80, LOW))
    code, text = call(path, "--json")
    assert code == 0
    document = json.loads(text)
    (only,) = document["actions"]
    assert (only["namespace"], only["pod"], only["do"], only["used"]) == ("ns", "pod-a", "kill", 10 * Gi)
    assert (only["withheld"], only["withheld_by"]) == ([], None)
    assert document["summary"]["kills"] == 1
    assert document["seen_s"] == 79


def test_an_incident_that_goes_on_is_not_reported_as_over(path: Path) -> None:
    """A brake at the end of the recording may still release: only an incident that is over was held to its end."""
    spared = replace(HIGH, pods=(tenant(namespace="kube-system"),))
    recently(path, (60, spared))
    assert "still held when the replay ended" in call(path)[1]
    assert [each["goes_on"] for each in json.loads(call(path, "--json")[1])["actions"]] == [True]
    over = path.with_name("over.db")
    recently(over, (60, spared), (80, replace(LOW, pods=spared.pods)))
    assert "held until the incident ended" in call(over)[1]
    assert [each["goes_on"] for each in json.loads(call(over, "--json")[1])["actions"]] == [False]


@pytest.mark.parametrize("width", [60, 80, 100, UNCUT])
def test_names_and_marks_can_be_read_at_any_width(path: Path, width: int) -> None:
    """Nothing is cut: where the table is too narrow the action and its rule stand below; a pipe gets whole lines."""
    named = replace(tenant(owner=owner("Job", "train")), name="trainer-resnet-7d9f8-00001")
    life = Life(path, P).run(passes((20, replace(LOW, pods=(named,))), (60, replace(HIGH, pods=(named,)))))
    assert life.actions
    counts = {"begun": 0, "would_act": 0, "withheld": 0}
    story = ReplayReport(since_s=0.0, policy=P, replayed=replayed(path, P), journal_counts=counts)
    lines = replay_text(story, width=width).splitlines()
    assert ".." not in "".join(lines)
    assert "ns/trainer-resnet-7d9f8-00001" in "\n".join(lines)
    whole = " ".join(line.strip() for line in lines)
    assert "kill 1 process of container main" in whole
    assert "all: above 110% for 10s" in whole
    assert width == UNCUT or max(map(len, lines)) <= width
    assert width != UNCUT or any(named.title in line and "all: above 110% for 10s" in line for line in lines)


def test_since_leaves_out_what_came_before(path: Path) -> None:
    """The past before the time that is asked for is replayed, and none of its actions is shown."""
    recently(path, (20, LOW), (60, HIGH), (290, LOW))
    assert json.loads(call(path, "--json", "--since", "4m")[1])["actions"] == []


def test_hostile_names_are_made_inert(path: Path) -> None:
    """A tenant's names bring no control codes to the operator's terminal."""
    evil = replace(tenant(), name="a\x1b[2J", namespace="n\u202e")
    recently(path, (60, replace(HIGH, pods=(evil,))))
    text = call(path)[1]
    assert ("\\x1b[2J" in text, "\x1b" in text, "\u202e" in text) == (True, False, False)


def test_a_candidate_comes_on_standard_input(path: Path) -> None:
    """What `kubectl exec -i` hands over: the same answer as from a file, which an image without a shell can't have."""
    recently(path, (20, LOW), (60, HIGH), (80, LOW))
    from_file = json.loads(call(path, "--json")[1])["actions"]
    given = CliRunner().invoke(main, ["replay", "--policy", "-", "--journal", str(path), "--json"], input=POLICY)
    assert (given.exit_code, json.loads(given.output)["actions"]) == (0, from_file)
    assert len(from_file) == 1
    broken = CliRunner().invoke(main, ["replay", "--policy", "-", "--journal", str(path)], input="][")
    assert (broken.exit_code, broken.stderr.startswith("standard input:1: not TOML")) == (1, True)


def test_what_it_cannot_replay(path: Path) -> None:
    """No journal, no recording of that time, a policy with mistakes: exit code 1 and a sentence each."""
    code, text = call(path)
    assert (code, "there is no journal" in text) == (1, True)
    assert inside("replay") in text
    recently(path, (20, LOW))
    code, text = call(path, "--since", "1m")
    assert (code, "has recorded nothing in" in text) == (1, True)
    code, text = call(path, text='mode = "sometimes"')
    assert (code, "policy.toml" in text, "mode" in text) == (1, True, True)
