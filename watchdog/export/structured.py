"""structlog, imported without two libraries that it would load and that nothing here uses.

structlog.dev imports rich, if that is installed, for coloured tracebacks: 2.9 MiB on every node. structlog.stdlib and
structlog._native import asyncio for loggers with `await`: 1.3 MiB. (PSS of the daemon's imports, structlog 25.) While
structlog is being imported, rich counts as not installed (None in sys.modules: The Python Language Reference, 5.3.1)
and asyncio is an empty module; afterwards both can be imported as usual.
"""

import sys
from types import ModuleType
from typing import Any

_UNUSED: dict[str, Any] = {"rich": None, "asyncio": ModuleType("asyncio")}
_replaced = {name: module for name, module in _UNUSED.items() if name not in sys.modules}
sys.modules.update(_replaced)
import structlog  # noqa: E402

for _name in _replaced:
    del sys.modules[_name]

__all__ = ["structlog"]
