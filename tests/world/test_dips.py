"""Use that dips, or moves within a pod, so that no stretch reaches its `for`: it is acted on all the same."""

from typing import Final

import pytest

from tests.rig import Daemon, Node
from tests.rig.command import gpu_watchdog
from tests.stub import GIB
from tests.world.policies import kill, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

KILL: Final = kill("6s", grace="0s")


def killed(running: Daemon) -> bool:
    """Whether one kill has ended with its memory seen free."""
    return running.metric("actions_total", action="kill", result="done", rule="shared") == 1.0


@pytest.mark.parametrize(
    ("declared", "low"), [("1Gi", GIB // 2), (None, 0)], ids=["to within its limit", "to nothing, by `default`"]
)
def test_who_dips_now_and_then_is_killed(any_world: Node, declared: str | None, low: int) -> None:
    """Point 15: above its limit five sixths of the time; who is above a third of the time lives."""
    over = any_world.single("hog", declared=declared, used=9 * GIB)
    brief = any_world.single("brief", used=GIB // 2)
    with run(any_world, write_policy(any_world.root, KILL, default="1Gi")) as running:
        for _ in range(14):
            running.wait_passes(4)
            any_world.use(over, low)
            any_world.use(brief, 9 * GIB)
            running.wait_passes(1)
            any_world.use(over, 9 * GIB)
            running.wait_passes(1)
            any_world.use(brief, GIB // 2)
            if not over.is_alive:
                break
        assert not over.is_alive, "it dipped fourteen times and was never killed"
        running.wait(killed)
        assert brief.is_alive
        done = gpu_watchdog("history", "--journal", any_world.journal, stub=any_world.stub_file)
        assert "of the last" in " ".join(done.stdout.split())


def test_memory_that_moves_between_two_containers_is_found(any_world: Node) -> None:
    """Point 15: each container is above its limit half of the time, the pod all of the time; the sum is never over."""
    pod = any_world.pod("hog", ("one", "10Gi"), ("two", "10Gi"))
    both = [any_world.start(pod, number, used=GIB) for number in (0, 1)]
    calm = any_world.pod("calm", ("one", "10Gi"), ("two", "10Gi"))
    others = [any_world.start(calm, number, used=9 * GIB) for number in (0, 1)]
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL, account="container")) as running:
        for turn in range(30):
            both[turn % 2].used, both[1 - turn % 2].used = 20 * GIB, 0
            any_world.write(pods=False)
            running.wait_passes(2)
            if not all(each.is_alive for each in both):
                break
        assert sum(each.is_alive for each in both) == 1, "it moved thirty times and was never killed"
        running.wait(killed)
        assert all(each.is_alive for each in others)
        reported = gpu_watchdog("history", "--journal", any_world.journal, stub=any_world.stub_file).stdout
        reported = " ".join(reported.split())
        assert "the pod was above the threshold in one container or another for" in reported, reported


def test_a_wait_that_anybody_can_read_has_whole_intervals(any_world: Node) -> None:
    """Point 15: nobody can time a dip by `due_in_s`, whatever fraction of an interval is left."""
    any_world.single("hog", used=9 * GIB)
    with run(any_world, write_policy(any_world.root, kill("29.7s"))) as running:
        running.wait(lambda d: d.status()["plan"])
        for _ in range(3):
            running.wait_passes(1)
            status = running.status()
            (account,), (entry,) = status["accounts"], status["plan"]
            shown = (entry["due_in_s"], *(account["ladder"][0][key] for key in ("counted_s", "tally_s")))
            assert all(value == int(value) for value in shown)
