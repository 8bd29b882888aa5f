"""What was done lately, as the status of a real daemon tells it, and the next daemon after it."""

import signal

import pytest

from tests.rig import Daemon, Node
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def latest(running: Daemon) -> dict[str, object]:
    """The last action."""
    recent = running.status()["recent"]
    found: dict[str, object] = recent[0] if recent else {}
    return found


def test_a_kill_is_told_by_the_daemon_and_by_the_next_one(world_v1: Node) -> None:
    """The page of a daemon that was started again has what the one before it did, word by word."""
    hog = world_v1.pod("hog", ("main", "1Gi"))
    tenant = world_v1.start(hog, used=4 * GIB)
    world_v1.write()
    policy = write_policy(world_v1.root, WARN_AT_ONCE, KILL_AT_ONCE)
    with run(world_v1, policy) as running:
        running.wait(lambda d: "free" in str(latest(d).get("outcome")))
        assert not tenant.is_alive
        before = running.status()["recent"]
        assert running.stop()[0] == 0
    told = before[0]
    assert (told["namespace"], told["pod"], told["container"], told["do"]) == ("ns", "hog", "main", "kill")
    assert (told["result"], told["used"], told["declared"]) == ("done", 4 * GIB, GIB)
    assert [(each["signal"], each["processes"]) for each in told["signals"]] == [("SIGTERM", 1)]
    assert "container main" in told["why"]
    with run(world_v1, policy) as again:
        assert again.status()["recent"] == before
        assert again.status()["health"]["cycles"] >= 1


def test_a_kill_that_nobody_saw_the_end_of_is_interrupted(world_v1: Node) -> None:
    """While it is in progress it has no result; after a crash in its grace the next daemon says what became of it."""
    hog = world_v1.pod("hog", ("main", "1Gi"))
    tenant = world_v1.start(hog, used=4 * GIB, behaviour="stubborn")
    world_v1.write()
    step = KILL_AT_ONCE.replace('grace = "2s"', 'grace = "60s"')
    policy = write_policy(world_v1.root, step)
    with run(world_v1, policy) as running:
        running.wait(lambda d: latest(d).get("signals"))
        assert latest(running)["result"] is None
        running.stop(signal.SIGKILL)
    with run(world_v1, write_policy(world_v1.root, step, mode="observe")) as again:
        again.wait(lambda d: any(action["result"] == "interrupted" for action in d.status()["recent"]))
        (left,) = [action for action in again.status()["recent"] if action["result"] == "interrupted"]
        assert left["reason"] == "the watchdog ended before it was over"
        assert tenant.is_alive
