"""What libraries log and warn of, and threads that end unexpectedly: handed on, instead of printed as it is.

Python prints such messages to stderr in the libraries' own words and formats; in the log of the daemon each line is to
be JSON, and the same message not to appear with each request.
"""

import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Final

from watchdog import clock
from watchdog.core.repeats import Repeats, count_repeats

EVERY_S: Final = 3600.0
_NUMBERS: Final = re.compile(r"[0-9]+")

# The level by its number in `logging`, who says it, the message, and a traceback, empty if there is none.
Write = Callable[[int, str, str, str], None]


class _Output(logging.Handler):
    """Hands on each message once per hour; numbers do not make it another one."""

    def __init__(self, write: Write) -> None:
        super().__init__(logging.WARNING)
        self._write = write
        self._repeats = Repeats(EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on what a library has logged."""
        try:
            text = record.getMessage()
        except Exception:  # its arguments do not fit, or can't be shown
            text = str(record.msg)
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.tell(record.levelno, record.name, text, trace)

    def tell(self, level: int, who: str, text: str, trace: str = "") -> None:
        """Hand on a message, unless the same one was handed on within the hour: then it is only counted."""
        self.acquire()  # may be taken again: an error in a finalizer is reported in the middle of anything
        try:
            suppressed = self._repeats.admit(f"{who} {level} {_NUMBERS.sub('0', text)}", clock.now().boottime_s)
        finally:
            self.release()
        if suppressed is not None:
            self._write(level, who, f"{' '.join(text.split())}{count_repeats(suppressed)}", trace)


def capture(write: Write) -> None:
    """Have everything handed to `write`, from any thread, for the rest of the process."""
    output = _Output(write)
    root = logging.getLogger()
    root.handlers[:] = [output]

    def warn(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
    ) -> None:
        output.tell(logging.WARNING, category.__module__.partition(".")[0], f"{category.__name__}: {message}")

    def thread_ended(ended: threading.ExceptHookArgs) -> None:
        name = ended.thread.name if ended.thread is not None else "?"
        _tell_of_defect(output, f"the thread {name} has ended unexpectedly", ended.exc_value)

    def ignored(ignored: "sys.UnraisableHookArgs") -> None:
        _tell_of_defect(output, "an error was ignored", ignored.exc_value)

    warnings.showwarning = warn
    threading.excepthook = thread_ended
    sys.unraisablehook = ignored


def _tell_of_defect(output: _Output, what: str, error: BaseException | None) -> None:
    trace = "" if error is None else "".join(traceback.format_exception(error))
    output.tell(logging.ERROR, "python", f"{what}; please report this: {error!r}", trace)
