"""The stage of the demo, without a screen."""

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from watchdog.cli.demo.stage import Stage, StoryClock
from watchdog.cli.demo.tenants import SimNode
from watchdog.core.plan import Result

pytestmark = pytest.mark.slow


def test_journal(tmp_path: Path) -> None:
    """Point 31: what the demo does is in a real journal, the intention before the first signal, then all that came."""
    clock = StoryClock(5.0)
    with SimNode() as company, contextlib.closing(Stage(tmp_path, company, clock)) as stage:
        deadline_s = time.monotonic() + 30
        while not stage.is_over and time.monotonic() < deadline_s:
            stage.turn()
            time.sleep(0.01)
        assert stage.end()
        killing = stage.killing
        assert killing is not None
        assert killing.result is Result.DONE
        assert len(killing.signalled) == 3
        assert stage.scene().rows[2].verdict == "killed"
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
        assert journal.execute("SELECT result, release_s > 3 FROM deed").fetchall() == [("done", 1)]
