"""The library that writes the log, without what it would load by itself and nothing here uses.

structlog/dev.py imports rich where that is installed, for coloured tracebacks: 4 MiB of every node's memory. `None` in
sys.modules makes an import fail as if the module were not installed (The Python Language Reference, 5.3.1, The module
cache). structlog/stdlib.py and _native.py import asyncio for loggers with `await`: 1.4 MiB; they get an empty module.
"""

import sys
from types import ModuleType
from typing import Any

_stand_ins: dict[str, Any] = {"rich": None, "asyncio": ModuleType("asyncio")}
_added = {name: module for name, module in _stand_ins.items() if name not in sys.modules}
sys.modules.update(_added)
import structlog  # noqa: E402

for _name in _added:
    del sys.modules[_name]

__all__ = ["structlog"]
