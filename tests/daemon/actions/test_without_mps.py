"""A kill on a node without MPS: none of the code that drains clients runs for it."""

import subprocess
import sys
from typing import Final

import pytest

from tools import ROOT

pytestmark = pytest.mark.slow

# What each cycle looks at, to know that there is no MPS: the signs of each process, and whether a daemon has answered.
# All the rest is of actions, of control daemons and of their pipes.
_RECORDS_CALLS: Final = """
import sys, threading
from click.testing import CliRunner
from watchdog.cli.main import main
from watchdog.daemon.actions import mps, mps_clients
from watchdog.node import mps_control, mps_drain, mps_limits, mps_pipes

whole = {module.__file__ for module in (mps_clients, mps_control, mps_limits, mps_pipes)}
called = set()

def on_call(frame, event, _):
    code = frame.f_code
    name = code.co_qualname
    of_actions = code.co_filename == mps.__file__ and name.startswith(("Drain.", "DrainRequest.", "Drains.begin"))
    to_ask = code.co_filename == mps_drain.__file__ and not name.startswith("AskedClients.")
    if event == "call" and (code.co_filename in whole or of_actions or to_ask) and name != "<module>":
        called.add(name)

threading.setprofile(on_call)
sys.setprofile(on_call)
result = CliRunner().invoke(main, ["demo"])
sys.setprofile(None)
assert result.exit_code == 0, result.output
assert "SIGKILL" in result.output
print(*sorted(called))
"""


def test_a_kill_without_mps_runs_no_code_that_drains() -> None:
    """On a node without MPS, a kill from plan to SIGKILL asks for no drain and reads no pipe."""
    command = (sys.executable, "-c", _RECORDS_CALLS)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == []
