"""The whole daemon on a real node, with a disruption budget in the way: told, tried again, overtaken, stopped."""

import time
from pathlib import Path

import pytest

from tests.cluster import workloads
from tests.cluster.api import Object
from tests.cluster.life import Life, life
from tests.cluster.node import Cluster
from watchdog.journal.read import history

pytestmark = [pytest.mark.node, pytest.mark.slow]

DEEDS = {
    "evict": 'do = "evict"',
    "harsh": 'do = "evict"\n[[rule.step]]\nabove = "100%"\nfor = "6s"\ngrace = "0s"\ndo = "kill"',
}


def budget(least: int) -> Object:
    """A budget over the Deployment's only pod."""
    spec = {"selector": {"matchLabels": {"app": "deployment"}}, "minAvailable": least}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"}, "spec": spec}


def has(of: Life, room: str, action: str, result: str) -> bool:
    """Whether this has come of an action there by now."""
    return bool(of.daemon.metric("actions_total", rule=room, action=action, result=result))


def test_a_budget_in_the_way(cluster: Cluster, tmp_path: Path) -> None:
    """One pod waits for its budget, and goes once that is loosened; another one's kill does not wait for it."""
    with life(cluster, tmp_path / "life", DEEDS) as here:
        for room in DEEDS:
            here.apply(room, budget(1))
        time.sleep(1.0)  # until the disruption controller has seen them
        for room in DEEDS:
            here.apply(room, workloads.deployment())
        here.wait(lambda: all(has(here, room, "evict", "blocked") for room in DEEDS), "both are blocked")
        _is_overtaken(here)
        _waits_and_goes(here)
        _is_stopped(here, tmp_path / "life" / "state" / "journal.db")


def _is_overtaken(here: Life) -> None:
    """Room harsh: six seconds above the mark, and the kill begins although the eviction is still tried."""
    here.wait(lambda: has(here, "harsh", "kill", "done"), "it is killed")
    # A pod whose phase is Pending still is evicted whatever its budget says: of the blocked one we speak.
    (blocked, *_) = [line for line in here.daemon.events("evict_blocked") if line["rule"] == "harsh"]
    (ended, *_) = [line for line in here.daemon.events("evict_ended") if line["uid"] == blocked["uid"]]
    told = (ended["result"], ended.get("reason"))
    assert told == ("interrupted", "rule harsh has begun to kill meanwhile"), ended
    assert blocked["uid"] in {line["uid"] for line in here.daemon.events("kill_begun")}, "killed in its place"


def _waits_and_goes(here: Life) -> None:
    """Room evict: the plan says why and until when; with a looser budget the next try goes through."""

    def is_told() -> bool:
        # While a try is in progress, that is what is told.
        (entry,) = [each for each in here.daemon.status()["plan"] if each["rule"] == "evict"]
        assert entry["withheld_by"] == "pending"
        assert entry["pending"]["blocked"]
        return "the disruption budget all needs 1 healthy pods and has" in entry["held_because"]

    here.wait(is_told, "the plan says what is in the way")
    said = [line["message"] for line in here.daemon.events("evict_blocked") if line["rule"] == "evict"]
    assert len(said) == 1
    assert "25 times within 10m" in said[0]
    here.apply("evict", budget(0))
    here.wait(lambda: has(here, "evict", "evict", "done"), "it is evicted", 300)
    here.apply("evict", budget(1))
    uids = {change.pod["metadata"]["uid"] for change in here.recorder.of(here.rooms["evict"].namespace, "deployment")}
    assert len(uids) >= 2, "its Deployment has put another pod in its place"


def _is_stopped(here: Life, journal: Path) -> None:
    """SIGTERM while one is blocked: at once, and the journal says what became of it; nobody was ever deleted."""
    here.wait(lambda: has_new_block(here), "the next pod is blocked too")
    code, took_s = here.daemon.stop()
    assert code == 0
    assert took_s < 8
    rows = [row for row in history(journal, None, 0.0) if row.do == "evict" and row.rule == "evict"]
    last = [row for row in rows if row.event == "evict_ended"][-1]
    assert (last.result, last.reason) == ("interrupted", "the watchdog was stopped before the eviction was accepted")
    assert [row.event for row in rows if row.action_id == last.action_id][-1] == "released"
    asked = here.cluster.control_plane.requests(user_agent="gpu-memory-watchdog")
    assert not [each for each in asked if each.verb.startswith("delete")]


def has_new_block(here: Life) -> bool:
    """Whether the pod that came after the evicted one waits for its budget."""
    entries = [each for each in here.daemon.status()["plan"] if each["rule"] == "evict"]
    return any(each["pending"] is not None and each["pending"]["blocked"] for each in entries)
