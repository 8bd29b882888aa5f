"""Puts config/policy.toml into the ConfigMap of deploy/daemonset.yaml."""

import textwrap
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = ROOT / "deploy" / "daemonset.yaml"
POLICY: Final = ROOT / "config" / "policy.toml"
_BEGIN: Final = "  policy.toml: |\n"
_END: Final = "\n---\n"


def with_policy(manifest: str, policy: str) -> str:
    """The text of the manifest with this policy in its ConfigMap."""
    head, begin, rest = manifest.partition(_BEGIN)
    if not begin:
        raise ValueError(f"{MANIFEST.name} has no line {_BEGIN!r}")
    _, end, tail = rest.partition(_END)
    return f"{head}{begin}{textwrap.indent(policy.rstrip(), '    ')}{end}{tail}"


def main() -> None:
    """Write the manifest anew."""
    text = with_policy(MANIFEST.read_text(encoding="utf-8"), POLICY.read_text(encoding="utf-8"))
    MANIFEST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
