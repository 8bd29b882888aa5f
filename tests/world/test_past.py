"""What a daemon on a real node records is enough to replay and to recommend by."""

import json
from datetime import datetime
from typing import Any

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.stub import GIB
from tests.world.policies import KILL_AFTER_2S, KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_a_real_kill_is_replayed_and_recommended_by(any_world: Node) -> None:
    """The kill that was done is found again at its time, a milder policy spares, and the peak is what was held."""
    over, within = any_world.single("hog", used=0), any_world.single("calm", declared="8Gi", used=GIB)
    policy = write_policy(any_world.root, KILL_AFTER_2S)
    with run(any_world, policy) as running:
        running.wait_passes(2)
        any_world.use(over, 9 * GIB)
        running.wait(ended)
        running.wait_passes(2)
        assert within.is_alive
    (killed,) = running.events("kill_begun")
    document = _json(any_world, "replay", "--policy", str(policy))
    (only,) = document["actions"]
    assert (only["pod"], only["container"], only["used"]) == ("hog", "main", 9 * GIB)
    assert [each["pid"] for each in only["processes"]] == [over.pid]
    apart_s = datetime.fromisoformat(killed["timestamp"]).timestamp() - datetime.fromisoformat(only["at"]).timestamp()
    assert abs(apart_s) < 1.5
    assert document["then"]["begun"] == 1
    mild = write_policy(any_world.root, KILL_AT_ONCE.replace("100%", "20Gi"), name="mild.toml")
    assert _json(any_world, "replay", "--policy", str(mild))["actions"] == []
    reported = {each["workload"]["name"]: each for each in _json(any_world, "recommend", "--policy", str(policy))}
    assert (reported["hog"]["stand"], reported["hog"]["peak_bytes"]) == ("too_little", 9 * GIB)
    assert (reported["calm"]["stand"], reported["calm"]["p99_bytes"]) == ("too_much", GIB)


def test_the_hour_goes_on_after_a_restart(any_world: Node) -> None:
    """A pod that was killed before the daemon started again is still shown, with what it used and its kill."""
    over = any_world.single("hog", used=0)
    policy = write_policy(any_world.root, KILL_AT_ONCE)
    with run(any_world, policy) as running:
        running.wait_passes(2)
        any_world.use(over, 9 * GIB)
        running.wait(ended)
        running.wait_passes(2)
    with run(any_world, policy) as running:
        running.wait(lambda again: 9 * GIB in _highest(again))
        on_card = json.loads(running.get("/api/history?gpu=0")[1])
        assert [action["do"] for action in on_card["actions"]] == ["kill"]
        (account,) = running.status()["accounts"]
        assert account["hour"]["marks"].endswith("k")
        assert "8" in account["hour"]["levels"]


def _highest(running: Daemon) -> set[int]:
    """The highest use of each point of the pod's hour."""
    status, body = running.get("/api/history?pod=ns/hog")
    return {point["max"] for each in json.loads(body)["series"] for point in each["points"]} if status == 200 else set()


def _json(world: Node, *arguments: str) -> Any:
    result = gpu_watchdog(*arguments, "--journal", str(world.journal), "--json", stub=world.stub_file)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
