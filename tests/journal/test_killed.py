"""The journal of a daemon that is killed at any moment."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.journal.rig import LIMITS, events, sound
from watchdog.journal.journal import Journal

KILLED_CHILD = """
import sys
from pathlib import Path
from tests.export.build import entry
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.core.model import ProcessKey
from watchdog.journal.journal import Journal
limits = JournalLimits(max_size=300_000)
made = entry()
journal = Journal.open(Path(sys.argv[1]), limits, "n1")
for number in range(1_000_000):
    action = journal.intend(made, [ProcessKey(pid=5, start_ticks=number)], at(number))
    print(action, number, flush=True)
    if number % 3:
        journal.signalled(action, at(number), "SIGTERM", [ProcessKey(pid=5, start_ticks=number)])
    if number % 10 == 0:
        journal.end(action, Result.FAILED, "x" * 300, at(number))
    if number % 50 == 49:
        journal.prune(at(number))
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_it_whole(path: Path) -> None:
    """Point 31: killed at random moments, the file is sound and has every intention that was reported as committed."""
    dice = random.Random(7)
    reported: dict[int, int] = {}
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED_CHILD, str(path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(dice.randint(1, 20))]
            time.sleep(dice.uniform(0, 0.005))  # somewhere within the next commit
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.readlines()
        whole = [line.split() for line in lines if line.endswith("\n")]
        reported |= {int(action): int(number) for action, number in whole}
        assert len(events(path)) >= len(whole), "other processes read it before a daemon has opened it again"
        assert sound(path)
    journal = Journal.open(path, LIMITS, "n1")
    assert journal.notices == ()
    left = {action.number: action.targets[0].start_ticks for action in journal.unfinished()}
    journal.close()
    expected = {action: number for action, number in reported.items() if number % 10}
    assert len(expected) > 20
    missing = {action for action in expected if left.get(action) != expected[action]}
    assert missing == set()
