"""`explain` by a real daemon whose driver or card is away, or whose first call hangs: what is not known comes first."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import Node, gpu_watchdog
from tests.rig.command import COMMAND, Daemon
from tests.rig.node import GPU
from tests.stub import MIB, StubDelay, StubReturn, environment
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def ask(world: Node, port: int, pod: str) -> tuple[int, str]:
    """The exit code of `explain`, and all that it says, as one line."""
    where = ("--listen", f"127.0.0.1:{port}", "--journal", world.journal)
    done = gpu_watchdog("explain", pod, *where, stub=world.stub_file)
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (StubReturn(call="*", code=9), ("not answered since ", "(code 9)")),
        (StubReturn(call="*", code=15, gpu=GPU), (f"GPU 0 ({GPU})", "(code 15)")),
    ],
)
def test_a_driver_or_a_card_that_goes_away(world_v1: Node, fault: StubReturn, says: tuple[str, str]) -> None:
    """Of the pod that was there, and of one that the daemon has never seen: why nothing is known, and since when."""
    world_v1.start(world_v1.pod("calm", ("main", "1Gi")), used=256 * MIB)
    world_v1.write()
    with run(world_v1, write_policy(world_v1.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        world_v1.stub = replace(world_v1.stub, returns=(fault,))
        world_v1.write()
        running.wait(lambda d: d.metric("gpu_up", gpu=GPU) == 0)
        running.wait_passes(2)
        code, text = ask(world_v1, running.port, "ns/calm")
        assert code == 0
        assert all(each in text for each in says)
        assert text.index(says[0]) < text.index("unknown.")
        code, text = ask(world_v1, running.port, "ns/never-seen")
        assert code == 1
        assert all(each in text for each in (*says, "may still be here"))
        assert "neither uses" not in text


def test_a_daemon_whose_first_call_hangs(world_v1: Node) -> None:
    """It answers, and knows nothing: for how long is said, and that this is no daemon that is away."""
    world_v1.stub = replace(world_v1.stub, delays=(StubDelay(call="nvmlInitWithFlags", ms=60_000),))
    world_v1.write()
    command: list[str | Path] = [
        COMMAND,
        "run",
        "--listen",
        "127.0.0.1:0",
        "--node",
        "n1",
        "--pods",
        world_v1.pods_file,
    ]
    command += ["--journal", world_v1.journal, "--policy", write_policy(world_v1.root, KILL_AT_ONCE)]
    with (world_v1.root / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(world_v1.stub_file), stdout=log, stderr=log)
    try:
        running = Daemon(process, world_v1.root / "log")
        running.wait(Daemon.has_begun)
        code, text = ask(world_v1, running.port, "ns/calm")
        assert code == 1
        assert "has no data yet" in text
        top = gpu_watchdog("top", "--once", "--listen", f"127.0.0.1:{running.port}", stub=world_v1.stub_file)
        assert (top.returncode, "has no data yet" in top.stderr) == (1, True)
    finally:
        process.kill()
        process.wait()
