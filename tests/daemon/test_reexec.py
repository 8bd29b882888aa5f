"""Re-exec: the same command and PID, and none of the driver's devices stays open."""

import os
import subprocess
import sys
from pathlib import Path

from tests.node.support import REPOSITORY

PROGRAM = """
import os, sys, threading, time
from watchdog.daemon.sampler import reexec, was_reexecuted
from watchdog.node.drivers.devices import open_devices
is_new = was_reexecuted()
print("new" if is_new else "old", os.getpid(), len(open_devices()), sys.argv[2:], len(os.environ), flush=True)
if not is_new:
    device = os.open(sys.argv[1], os.O_RDONLY)
    os.set_inheritable(device, True)
    print(len(open_devices()), flush=True)
    {more}
    reexec()
    print("it has come back", was_reexecuted(), flush=True)
"""


def begin(tmp_path: Path, more: str = "") -> tuple[list[str], str, int]:
    """What such a program prints (who it is, its devices, arguments and environment), its stderr, and its PID."""
    device = tmp_path / "dev" / "nvidia0"
    device.parent.mkdir()
    device.touch()
    program = [sys.executable, "-c", PROGRAM.format(more=more or "pass"), str(device), "--more"]
    paths = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(program, env=paths, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed, reported = process.communicate(timeout=30)
    return printed.splitlines(), reported, process.pid


def test_the_same_command_goes_on_under_the_same_pid(tmp_path: Path) -> None:
    """A device that the library opened without close-on-exec is closed; arguments and environment are the same."""
    printed, reported, pid = begin(tmp_path)
    old, opened, new = printed
    assert (old, opened, reported) == (f"old {pid} 0 {old.split(maxsplit=3)[3]}", "1", "")
    assert new == old.replace("old", "new")
    assert "['--more']" in new


LAST = """
    def hang():
        for _ in range(500):
            os.set_inheritable(os.open(sys.argv[1], os.O_RDONLY), True)
            time.sleep(0)
    threading.Thread(target=hang, daemon=True).start()
"""


def test_a_device_opened_in_the_last_moment_is_closed_too(tmp_path: Path) -> None:
    """A call that hung may go on to open devices while the process ends; the new one closes whatever came along."""
    printed, _, pid = begin(tmp_path, more=LAST.strip())
    assert printed[-1].startswith(f"new {pid} 0 ")


def test_where_it_fails_the_process_ends_instead(tmp_path: Path) -> None:
    """The caller gets control back, to end with an exit code; why is on stderr."""
    printed, reported, _ = begin(tmp_path, more="sys.executable = '/nowhere/python'")
    assert printed[-1].startswith("it has come back")
    assert reported == "/nowhere/python can't be re-executed, so this process ends: No such file or directory\n"


def test_a_log_that_cannot_be_written_does_not_prevent_it(tmp_path: Path) -> None:
    """A line that waits for room on a full disk is lost, and the same command goes on."""
    printed, _, pid = begin(tmp_path, more="sys.stderr = open('/dev/full', 'w'); sys.stderr.write('a line')")
    assert printed[-1].startswith(f"new {pid} 0 ")
