"""Beginning anew in place: the same command in a new process image, with nothing left of the libraries it had loaded.

The PID stays, and so does the container. Were the process to end, the kubelet would have a new container made. For that
NVIDIA's runtime opens the devices, in the middle of the maintenance; and where there is no driver it can't be made.
"""

import fcntl
import os
import sys
from contextlib import suppress
from typing import Final

from watchdog.node.devices import descriptors

_MARK: Final = "GPU_WATCHDOG_BEGUN_ANEW"


def has_begun_anew() -> bool:
    """Whether this process was begun so; to be asked once, before the driver is opened.

    A device that was opened while the earlier image ended, and came along, is closed.
    """
    if os.environ.pop(_MARK, None) is None:
        return False
    with suppress(OSError):
        for number in descriptors():
            os.close(number)
    return True


def begin_anew() -> None:
    """Begin anew with the same arguments, all other threads ended; comes back, and says why, only where that fails.

    execve(2) waits for a thread that is in the driver and can't be killed; so would the end of the process.
    """
    with suppress(OSError):
        for number in descriptors():
            fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.environ[_MARK] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError as error:
        sys.stderr.write(f"{sys.executable} can't be begun anew, so this process ends: {error.strerror}\n")
