"""How long a pod has held memory and computed nothing goes on in the daemon after a restart."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.stub import GIB
from tests.world.policies import write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]
AFTER_S = 20


def idle_s(running: Daemon) -> float:
    """For how long the only account has been idle."""
    return running.metric("account_idle_seconds") or 0.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_idle_time_goes_on_and_is_reported_once(any_world: Node, number: signal.Signals) -> None:
    """A holder that was reported as idle still is after a restart and a kill -9, and is not reported again."""
    (card,) = any_world.stub.gpus
    any_world.single("notebook", used=9 * GIB, declared="10Gi", behaviour="plain")
    any_world.show(gpus=(replace(card, utilization=0),))
    policy = _policy(any_world.root)
    with run(any_world, policy) as running:
        running.wait(lambda each: each.events("idle"))
        before_s = idle_s(running)
        assert before_s >= AFTER_S
        running.stop(number)
    with run(any_world, policy) as running:
        running.wait(lambda each: idle_s(each) >= before_s + 5)
        (account,) = running.status()["accounts"]
        assert account["idle"]
        assert running.events("idle") == []
        _check_report(any_world, running)


def _check_report(world: Node, running: Daemon) -> None:
    """What the first daemon wrote is in the report of the running one, by its port and by its journal."""
    status, body = running.get("/api/report?since=1h")
    (owner,) = json.loads(body)["owners"]
    assert (status, owner["namespace"], owner["kind"], owner["name"]) == (200, "ns", "Pod", "notebook")
    assert owner["held"] == pytest.approx(owner["idle"], rel=0.6)
    assert owner["held"] >= AFTER_S / 3600 * 9 / 40
    told = gpu_watchdog("report", "--journal", str(world.journal), "--json", stub=world.stub_file)
    (row,) = json.loads(told.stdout)["rows"]
    assert row["card_hours"]["held"] >= owner["held"]


def _policy(folder: Path) -> Path:
    return write_policy(folder, mode="observe", more=f'[idle]\nafter = "{AFTER_S}s"\n')
