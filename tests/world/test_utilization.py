"""Pods that hold memory and compute nothing, on a driver that gives numbers and on one that says 0 of everybody."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.rig import Daemon, Node
from tests.stub import GIB, StubSamples
from tests.world.policies import kill, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]
IDLE = '[idle]\nafter = "15s"\nabove = "1Gi"\n'


def accounts(running: Daemon) -> dict[str, dict[str, Any]]:
    """The accounts in the status, by pod."""
    return {each["pod"]: each for each in running.status()["accounts"]}


def show(world: Node, utilization: int, *kept: int) -> None:
    """Let the card itself report this, and keep samples of these per cent, six a second."""
    samples = (StubSamples(percents=kept),) if kept else None
    world.show(gpus=(replace(world.stub.gpus[0], utilization=utilization, samples=samples),))


def test_who_holds_memory_and_computes_nothing_is_reported_and_left_alone(any_world: Node) -> None:
    """A notebook stopped by SIGSTOP, a model server without requests, a crashed loop that keeps its memory."""
    notebook = any_world.single("notebook", used=4 * GIB, declared="8Gi")
    any_world.single("model-server", used=4 * GIB, declared="8Gi")
    any_world.single("crashed-loop", used=4 * GIB, declared="8Gi", behaviour="forker")
    small = any_world.single("small", used=GIB // 2, declared="8Gi")
    trainer = any_world.single("trainer", used=4 * GIB, declared="8Gi")
    trainer.utilization, small.utilization = 60, None
    os.kill(notebook.pid, signal.SIGSTOP)
    show(any_world, 60)
    any_world.write()
    policy = write_policy(any_world.root, kill("3s"), more=IDLE)
    with run(any_world, policy) as running:
        idle = {"notebook", "model-server", "crashed-loop"}
        running.wait(lambda _: idle <= {name for name, each in accounts(running).items() if each["idle"]})
        found = accounts(running)
        assert (found["trainer"]["idle"], found["trainer"]["idle_s"], found["trainer"]["utilization"]) == (
            False,
            None,
            0.6,
        )
        assert (found["small"]["idle"], found["small"]["utilization"]) == (False, 0.0)
        assert found["notebook"]["containers"][0]["utilization"] == 0.0
        (hour,) = json.loads(running.get("/api/history?pod=ns/trainer")[1])["series"]
        (main,) = hour["containers"]
        assert (main["container"], main["points"][-1]["utilization"]) == ("main", 0.6)
        running.wait(lambda _: len(running.events("idle")) == 3)
        page = running.get("/metrics")[1]
        assert 'gpu_watchdog_container_gpu_utilization_ratio{container="main"' in page
        assert 'gpu_watchdog_namespace_card_seconds_total{namespace="ns",state="idle"}' in page
        running.wait_passes(12)
        assert len(running.events("idle")) == 3
        assert running.events("kill_begun") == []
        assert all(each.is_alive for each in (notebook, small, trainer))


def test_a_driver_that_says_zero_of_everybody_accuses_nobody(any_world: Node) -> None:
    """Point 45: while the card computes, every process's 0 is unknown: in the status, in the metrics, and for good."""
    for name in ("a", "b"):
        any_world.single(name, used=4 * GIB, declared="8Gi").utilization = 0
    show(any_world, 80)
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill("3s"), more=IDLE)) as running:
        running.wait(lambda _: running.status()["gpus"][0]["utilization"] == 0.8)
        running.wait_passes(30)
        found = accounts(running)
        assert [(found[name]["utilization"], found[name]["idle_s"]) for name in "ab"] == [(None, None)] * 2
        assert running.events("idle") == []
        page = running.get("/metrics")[1]
        assert "gpu_watchdog_gpu_utilization_ratio" in page
        assert "gpu_watchdog_container_gpu_utilization_ratio{" not in page
        assert 'state="held"' in page


def test_short_requests_between_two_readings_are_seen(any_world: Node) -> None:
    """Point 45: a server that computes for a second is not idle, on a driver that tells nothing of processes."""
    any_world.single("server", used=4 * GIB, declared="8Gi")
    show(any_world, 0, *(0,) * 30, *(100,) * 6, *(0,) * 24)
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill("3s"), more=IDLE)) as running:
        running.wait(lambda _: running.status()["gpus"][0]["utilization"])
        running.wait_passes(30)
        assert (accounts(running)["server"]["utilization"], accounts(running)["server"]["idle_s"]) == (None, None)
        assert running.events("idle") == []
        show(any_world, 0, *(0,) * 60)
        any_world.write()
        running.wait(lambda _: running.events("idle"))
