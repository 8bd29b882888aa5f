"""Where the log goes, and the form of its lines: JSON, or for eyes where stderr is a terminal."""

import contextlib
import logging
import sys
from typing import Any, Final, TextIO

from watchdog.export.phrases import inert
from watchdog.export.structured import structlog
from watchdog.export.table import RED, YELLOW, has_colour, paint

# What a line for eyes has beside its sentence; in JSON all of it stands.
_BESIDE: Final = ("brake", "deed", "pids", "victims", "reaction_s", "listen")


class _Stream:
    """A text stream whose reader may go away, or whose disk may be full: neither ends the daemon."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        # ValueError: the stream was closed; a text that its encoding does not have is escaped by `inert` before.
        with contextlib.suppress(OSError, ValueError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class _ForEyes:
    """A line for a terminal: when, what kind of thing, the sentence, and what the sentence does not say already."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured = is_coloured

    def __call__(self, _logger: Any, _method: str, line: structlog.typing.EventDict) -> str:
        at, level, event = str(line.get("timestamp", ""))[:19], str(line.get("level", "")), str(line.get("event", ""))
        colour = {"warning": YELLOW, "error": RED}.get(level, "")
        name = f"{event:<14}" if event == level else f"{event:<14} {level}" if colour else f"{event:<14}"
        shown = " ".join(f"{key}={_plain(line[key])}" for key in _BESIDE if key in line)
        text = " ".join(part for part in (str(line.get("message", "")), f"({shown})" if shown else "") if part)
        trace = f"\n{line['traceback'].rstrip()}" if "traceback" in line else ""
        return f"{at}Z {paint(name, colour, is_on=self._is_coloured and bool(colour))} {text}{trace}"


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def configure(stream: TextIO | None = None) -> None:
    """Set the log up, once: where it goes (default: stderr) and in which form."""
    target = stream if stream is not None else sys.stderr
    renderer: Any = structlog.processors.JSONRenderer(ensure_ascii=False)
    if target.isatty():
        renderer = _ForEyes(is_coloured=has_colour(target))
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


def _make_inert(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    # A traceback is made of lines; JSON escapes them, and on a terminal they are what one wants to see.
    return {k: inert(v, 4096) if isinstance(v, str) and k != "traceback" else v for k, v in line.items()}
