"""The policy that docs/rollout.md makes: the one that ships, with mode, rules and brakes replaced as the page says."""

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "rollout.md"
SHIPPED: Final = _ROOT / "config" / "policy.toml"
_LINES: Final = re.MULTILINE | re.DOTALL
TABLES: Final = re.compile(r"^```toml\n(.*?)^```$", _LINES)
_REPLACED: Final = re.compile(r"^\[\[rule.*?(?=^\[protect)|^\[brakes\].*\Z|^mode .*?$", _LINES)


def stages() -> str:
    """What the page prints."""
    return str(TABLES.findall(PAGE.read_text(encoding="utf-8"))[0])


def staged_policy() -> str:
    """The whole policy, as it is once the page has been followed."""
    mode, rest = stages().split("\n", 1)
    kept = _REPLACED.sub("", SHIPPED.read_text(encoding="utf-8"))
    return f"{mode}\n{kept}\n{rest}"
