"""Time zones of a test's own, for rules with hours: one whose clocks show noon at a moment of the test's choice."""

import math
import struct
from pathlib import Path


def write_zone(folder: Path, name: str, noon_s: float) -> Path:
    """Make a zone without changes of its clocks that show 12:00 at this whole second (Unix time); gives its file.

    A daemon finds it with `PYTHONTZPATH` set to the folder. (The format: RFC 8536, section 3, version 1.)
    """
    offset_s = (12 * 3600 - math.ceil(noon_s) + 43200) % 86400 - 43200
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, len(b"XXX\0"))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"TZif" + bytes(16) + counts + struct.pack(">lbb", offset_s, 0, 0) + b"XXX\0")
    return path
