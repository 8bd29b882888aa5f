"""The library that writes the log, without what it would load by itself.

structlog/dev.py imports rich where that is installed, for coloured tracebacks that nobody asks for here: 4 MiB of
every node's memory. `None` in sys.modules makes an import fail as if the module were not installed (The Python Language
Reference, 5.3.1, The module cache).
"""

import sys

_is_out = "rich" not in sys.modules
if _is_out:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if _is_out:
    del sys.modules["rich"]

__all__ = ["structlog"]
