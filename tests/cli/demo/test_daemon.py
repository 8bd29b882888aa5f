"""The daemon of the demo, without a screen."""

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from watchdog.cli.demo.daemon import DemoDaemon, FastClock
from watchdog.cli.demo.sim import SimNode
from watchdog.core.plan import Result

pytestmark = pytest.mark.slow


def test_journal(tmp_path: Path) -> None:
    """The demo's actions are in a real journal: the intention before the first signal, then everything after it."""
    clock = FastClock(5.0)
    with SimNode() as node, contextlib.closing(DemoDaemon(tmp_path, node, clock)) as demo:
        deadline_s = time.monotonic() + 30
        while not demo.is_over and time.monotonic() < deadline_s:
            demo.advance()
            time.sleep(0.01)
        assert demo.end()
        outcome = demo.outcome
        assert outcome is not None
        assert outcome.result is Result.DONE
        assert len(outcome.signalled) == 3
        assert [(each.pod, each.used) for each in demo.view().status.accounts if not each.used] == [("finetune", 0)]
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
        rows = journal.execute("SELECT event, pod, result, detail FROM occurrence ORDER BY id").fetchall()
        # While a kill is in progress the same step is due again, and held back as pending.
        told = [(event, pod) for event, pod, _, _ in rows if pod is not None and event != "withheld"]
        assert told == [
            ("warned", "jupyter-7"),
            ("warned", "finetune"),
            *[(event, "finetune") for event in ("intended", "signalled", "signalled", "kill_ended", "released")],
            ("explained", "finetune"),
        ]
        assert [detail.split()[0] for event, _, _, detail in rows if event == "signalled"] == ["SIGTERM", "SIGKILL"]
        assert journal.execute("SELECT result, release_s > 3 FROM action").fetchall() == [("done", 1)]
