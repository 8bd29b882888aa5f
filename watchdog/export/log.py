"""The log: one line per event, as JSON or text, with repeated messages limited."""

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final, TextIO

from watchdog.core.plan import Result
from watchdog.core.repeats import Repeats, count_repeats
from watchdog.export.libraries import capture
from watchdog.report.changes import BEGUN, BLOCKED, ChangeKind
from watchdog.report.status import ChangeStatus, encode
from watchdog.report.text import RED, YELLOW, has_colour, inert, paint

# structlog.dev imports rich, if that is installed, for coloured tracebacks: 2.9 MiB on every node. structlog.stdlib and
# structlog._native import asyncio for loggers with `await`: 1.3 MiB. (PSS of the daemon's imports, structlog 25.) While
# structlog is being imported, rich counts as not installed (None in sys.modules: The Python Language Reference, 5.3.1)
# and asyncio is an empty module; afterwards both can be imported as usual.
_UNUSED: Final[dict[str, Any]] = {"rich": None, "asyncio": ModuleType("asyncio")}
_replaced = {name: module for name, module in _UNUSED.items() if name not in sys.modules}
sys.modules.update(_replaced)
import structlog  # noqa: E402

for _name in _replaced:
    del sys.modules[_name]

EVERY_S: Final = 60.0

# The fields that a text line shows besides its sentence; a JSON line has all of them.
_SHOWN_FIELDS: Final = ("brake", "action_id", "pids", "victims", "reaction_s", "listen", "logger")


class _Stream:
    """A text stream that ignores write errors: a closed reader or a full disk must not end the daemon."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        # ValueError: the stream was closed; characters that it can't encode were escaped by `inert` before.
        with contextlib.suppress(OSError, ValueError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _render_text(_logger: Any, _method: str, line: structlog.typing.EventDict, *, is_coloured: bool) -> str:
    """A line for a terminal: the time, the event, the sentence, and fields that are not in the sentence."""
    at = str(line.get("timestamp", ""))[:19].replace("T", " ")
    level, event = str(line.get("level", "")), str(line.get("event", ""))
    colour = {"warning": YELLOW, "error": RED}.get(level, "")
    name = f"{event:<14} {level}" if colour and event != level else f"{event:<14}"
    shown = " ".join(f"{key}={_plain(line[key])}" for key in _SHOWN_FIELDS if key in line)
    text = " ".join(part for part in (str(line.get("message", "")), f"({shown})" if shown else "") if part)
    trace = f"\n{line['traceback'].rstrip()}" if "traceback" in line else ""
    return f"{at} UTC {paint(name, colour, is_on=is_coloured)} {text}{trace}"


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def configure(stream: TextIO | None = None) -> None:
    """Configure the log, once: its stream (default: stderr), and its format by that."""
    target = stream if stream is not None else sys.stderr
    renderer: Any = structlog.processors.JSONRenderer(ensure_ascii=False)
    if target.isatty():
        renderer = partial(_render_text, is_coloured=has_colour(target))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _make_inert,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(_Stream(target)),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


def capture_libraries() -> None:
    """Log what libraries log and warn of, and threads that end unexpectedly; `logger` names who reports it."""

    def write(level: int, who: str, text: str, trace: str) -> None:
        event, limit = ("error", logging.ERROR) if level >= logging.ERROR else ("warning", logging.WARNING)
        fields = {"traceback": trace} if trace else {}
        structlog.get_logger().log(limit, event, message=text, logger=who, **fields)

    capture(write)


def _make_inert(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    # A traceback has several lines: JSON escapes the line breaks, and a terminal should show them.
    return {k: inert(v, 4096) if isinstance(v, str) and k != "traceback" else v for k, v in line.items()}


_LEVELS: Final[Mapping[ChangeKind, int]] = {
    ChangeKind.WARNED: logging.WARNING,
    **dict.fromkeys((*BEGUN, *BLOCKED), logging.WARNING),
    ChangeKind.EVICT_DELAYED: logging.WARNING,
    ChangeKind.WITHHELD: logging.WARNING,
    ChangeKind.BREAKER_OPENED: logging.WARNING,
    ChangeKind.MISDECLARED: logging.WARNING,
    ChangeKind.TRANSFERRED: logging.WARNING,
    ChangeKind.IDLE: logging.WARNING,
    ChangeKind.GAP_BEGAN: logging.WARNING,
    ChangeKind.PODS_STALE: logging.WARNING,
    ChangeKind.SUSPENDED: logging.WARNING,
    ChangeKind.POLICY_REFUSED: logging.ERROR,
}


class Log:
    """Writes a line for each change, and for events of the daemon itself."""

    def __init__(self) -> None:
        self._crashes = Repeats(EVERY_S)
        self._logger = structlog.get_logger()

    def log_changes(self, changes: Iterable[ChangeStatus]) -> None:
        """Write a line for each change."""
        for change in changes:
            fields = encode(change)
            del fields["at"]
            event = ChangeKind(fields.pop("event"))
            failed = change.result in (Result.FAILED, Result.BLOCKED)
            self._logger.log(logging.WARNING if failed else _LEVELS.get(event, logging.INFO), event.value, **fields)

    def write(self, event: ChangeKind, message: str, **fields: Any) -> None:
        """Write a line about the daemon itself: `started`, `stopped`, `policy_refused`."""
        self._logger.log(_LEVELS.get(event, logging.INFO), event.value, message=message, **fields)

    def inform(self, message: str) -> None:
        """Write a line that needs no attention."""
        self._logger.info("info", message=message)

    def warn(self, message: str) -> None:
        """Write a line that an operator should see."""
        self._logger.warning("warning", message=message)

    def crash(self, error: Exception, now_s: float, what: str = "a cycle failed unexpectedly and is retried") -> None:
        """Write an unexpected error, with its traceback in one field; at most once per minute from the same place."""
        suppressed = self._crashes.admit(_place(error), now_s)
        if suppressed is None:
            return
        trace = "".join(traceback.format_exception(error))
        message = f"{what}; please report this: {error!r}"
        self._logger.error("error", message=f"{message}{count_repeats(suppressed)}", traceback=trace)

    def error(self, message: str) -> None:
        """Write an error that an operator must see."""
        self._logger.error("error", message=message)


def _place(error: Exception) -> str:
    """The type of an error and where it was raised; its text may differ each time."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__
