"""Writes what all runbooks have in common, from docs/templates/runbook.md: where to look first, how to stop it now."""

import re
import sys
from typing import Final

from tools import ROOT

TEMPLATE: Final = ROOT / "docs" / "templates" / "runbook.md"
PAGES: Final = ROOT / "docs" / "runbooks"
_PART: Final = re.compile(r"^<!-- ([a-z: ]+) -->\n(.*?)(?=^<!-- )", re.MULTILINE | re.DOTALL)
_COPY: Final = re.compile(r"^<!-- ([a-z: ]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def parts() -> dict[str, str]:
    """The common parts by their names."""
    return {name: text.strip() for name, text in _PART.findall(TEMPLATE.read_text(encoding="utf-8"))}


def written(page: str) -> str:
    """A runbook with its common parts as the template has them. KeyError: one that the template lacks."""
    common = parts()
    return _COPY.sub(lambda copy: f"<!-- {copy[1]} -->\n{common[copy[1]]}\n<!-- end -->", page)


def names(page: str) -> list[str]:
    """Which common parts a runbook has, in their order."""
    return [copy[1] for copy in _COPY.finditer(page)]


def main() -> int:
    """Write them; with `--check` say which are stale, and end with 1 if one is."""
    stale = []
    for page in sorted(PAGES.iterdir()):
        text = page.read_text(encoding="utf-8")
        if written(text) != text:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(written(text), encoding="utf-8")
    if "--check" in sys.argv[1:] and stale:
        print(f"stale: {', '.join(stale)}; write them anew with: python -m tools.runbooks")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
