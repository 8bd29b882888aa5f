"""How long a pod has held memory and computed nothing goes on in the daemon after a restart."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.stub import GIB
from tests.world.policies import write_policy
from tests.world.test_kill import run
from watchdog.report.card_hours import HOUR_S

pytestmark = [pytest.mark.node, pytest.mark.slow]
AFTER_S = 20
# Of the card, that the pod holds: 9 GiB of what is left of 40 GiB besides the driver's own.
SHARE = 9 / 39.5
# Card-seconds that are lost by rounding.
NEXT_TO_NOTHING = 0.02


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
    began_s = time.monotonic()
    with run(any_world, policy) as running:
        running.wait(lambda each: each.events("idle"))
        running.wait(_reported)
        before_s = idle_s(running)
        assert before_s >= AFTER_S
        counted = _counted(running)
        running.stop(number)
    lived_s, written = time.monotonic() - began_s, _written(any_world)
    unknown = counted["held"] - counted["idle"]
    if number is signal.SIGTERM:
        # All that was counted is written at the end, with what has come since.
        assert all(written[state] >= counted[state] - NEXT_TO_NOTHING for state in written)
        assert written["held"] <= lived_s * SHARE
    else:
        # What was written when it was reported is what readings had covered by then, a cycle more or less.
        assert written["held"] - written["idle"] <= unknown + NEXT_TO_NOTHING
        assert written["idle"] >= 0.9 * AFTER_S * SHARE - unknown
    with run(any_world, policy) as running:
        running.wait(lambda each: idle_s(each) >= before_s + 5)
        (account,) = running.status()["accounts"]
        assert account["idle"]
        assert running.events("idle") == []
        (owner,) = _reported(running)
        assert (owner["namespace"], owner["kind"], owner["name"]) == ("ns", "Pod", "notebook")
        assert all(owner[state] * HOUR_S >= spent - NEXT_TO_NOTHING for state, spent in written.items())


def _counted(running: Daemon) -> dict[str, float]:
    """The card-seconds that the daemon has counted."""
    found = running.metrics()
    return {
        state: found["namespace_card_seconds_total", frozenset({("namespace", "ns"), ("state", state)})]
        for state in ("held", "idle")
    }


def _reported(running: Daemon) -> list[dict[str, Any]]:
    """The owners that the daemon reports, from its journal; none until it has written."""
    status, body = running.get("/api/report?since=1h")
    owners: list[dict[str, Any]] = json.loads(body)["owners"] if status == 200 else []
    return owners


def _written(world: Node) -> dict[str, float]:
    """The card-seconds in the journal, as the command reports them."""
    result = gpu_watchdog("report", "--journal", str(world.journal), "--json", stub=world.stub_file)
    (row,) = json.loads(result.stdout)["rows"]
    return {state: row["card_hours"][state] * HOUR_S for state in ("held", "idle")}


def _policy(folder: Path) -> Path:
    return write_policy(folder, mode="observe", more=f'[idle]\nafter = "{AFTER_S}s"\n')
