"""`python -m tests.cluster.warden ARGUMENTS`: runs pytest, and is the parent of whatever that leaves behind."""

import ctypes
import json
import os
import subprocess
import sys
import time
from typing import Final

import psutil

_PR_SET_CHILD_SUBREAPER: Final = 36  # include/uapi/linux/prctl.h
_LIMIT_S: Final = 120.0


def main() -> None:
    """Tell the PID of pytest, wait for its end, and tell its exit code and who runs on two minutes later."""
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    child = subprocess.Popen([sys.executable, "-m", "pytest", "-q", *sys.argv[1:]], stdout=sys.stderr)
    print(json.dumps({"pid": child.pid}), flush=True)
    code = child.wait()
    deadline = time.monotonic() + _LIMIT_S
    while (left := _descendants()) and time.monotonic() < deadline:
        time.sleep(0.1)
    print(json.dumps({"code": code, "left": left}), flush=True)


def _descendants() -> list[str]:
    """The command lines of those below this process that have not ended."""
    found = []
    for each in psutil.Process().children(recursive=True):
        try:
            if each.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(each.pid, os.WNOHANG)
            else:
                found.append(" ".join(each.cmdline())[:200])
        except (psutil.Error, ChildProcessError):
            continue  # it has ended, or its parent is yet to see that
    return found


if __name__ == "__main__":
    main()
