"""Policies of the worlds."""

from pathlib import Path

from tests.rig.volume import mount

HEAD = """
mode = "{mode}"
interval = "1s"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "256Mi"
percent = "2%"
"""
RULE = """
[[rule]]
name = "shared"
match = {{}}
account = "{account}"
"""


def write_policy(
    folder: Path, *steps: str, mode: str = "enforce", account: str = "pod", more: str = "", name: str = "policy.toml"
) -> Path:
    """Write a policy with one rule of these steps, each the inside of a `[[rule.step]]`."""
    text = HEAD.format(mode=mode) + RULE.format(account=account)
    text += "".join(f"\n[[rule.step]]\n{step}\n" for step in steps) + more
    return mount(folder / name, text)


KILL_AT_ONCE = 'above = "100%"\nfor = "0s"\ndo = "kill"\nscope = "container"\ngrace = "2s"'
KILL_AFTER_2S = 'above = "100%"\nfor = "2s"\ndo = "kill"\nscope = "container"\ngrace = "2s"'
WARN_AT_ONCE = 'above = "100%"\nfor = "0s"\ndo = "warn"'
