"""Says which worlds differ from what is stored, or stores them again (`--write`); with names, only these."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.table import EXPECTED, ROWS, difference, observed


def main(arguments: list[str]) -> int:
    """Go through the worlds."""
    write = "--write" in arguments
    names = [each for each in arguments if not each.startswith("-")]
    if unknown := set(names) - set(ROWS):
        sys.exit(f"no such world: {', '.join(sorted(unknown))}")
    found = False
    with ThreadPoolExecutor(4) as pool:
        for name, got in zip(names or ROWS, pool.map(_observed, names or ROWS), strict=True):
            differs = difference(name, got)
            if write and differs:
                (EXPECTED / f"{name}.json").write_text(got, encoding="utf-8")
            found = found or bool(differs)
            print(differs or f"{name}: the same", flush=True)
    if write and not names:
        for stale in {path for path in EXPECTED.glob("*.json") if path.stem not in ROWS}:
            stale.unlink()
    return int(found and not write)


def _observed(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return observed(ROWS[name], Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
