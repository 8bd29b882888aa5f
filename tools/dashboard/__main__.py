"""`python -m tools.dashboard` writes the file; with `--check` it says whether it is as it would be written."""

import sys

from tools.dashboard.written import FILE, text


def main() -> int:
    """Write the file, or check it."""
    if "--check" in sys.argv[1:]:
        return 0 if FILE.read_text(encoding="utf-8") == text() else 1
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
