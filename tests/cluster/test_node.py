"""The real node: nothing is left of it if tests are killed."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.node.support import REPOSITORY, need_root
from tests.rig.cluster.real_pods import wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow]

_KILLED = """
    import os, signal, subprocess
    from pathlib import Path
    from tests.rig.cluster.netns import Namespaces
    from tests.rig.cluster.node_cgroups import CgroupRoot
    from tests.rig.cluster.processes import Server
    namespaces = Namespaces()
    cgroups = CgroupRoot(namespaces.name)
    quiet = {"start_new_session": True, "stdout": subprocess.DEVNULL}
    inside = subprocess.Popen([*namespaces.machine, "sleep", "60"], **quiet)
    below = subprocess.Popen(["sleep", "60"], **quiet)
    for folder in Path("/sys/fs/cgroup").glob(f"*/{cgroups.name}"):
        (folder / "cgroup.procs").write_text(str(below.pid))
    server = Server("sleep", ["sleep", "60"], log=Path("/dev/null"))
    server.start()
    server.wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text() == "sleep\\n")
    print(namespaces.name, namespaces.pid, inside.pid, below.pid, server.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_tests_that_were_killed() -> None:
    """Servers die with the process that started them, and the namespaces' own process ends all else and its cgroups."""
    need_root()
    command = [sys.executable, "-c", textwrap.dedent(_KILLED)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=180, check=False)
    name, *pids = done.stdout.split()
    assert len(pids) == 4

    def is_gone() -> bool:
        # A zombie has no `exe`.
        left = [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
        return not left and not [*Path("/sys/fs/cgroup").glob(f"*/{name}")]

    wait_until(is_gone, "the processes and the cgroups are gone")
