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
{default}
"""


def write_policy(
    folder: Path,
    *steps: str,
    mode: str = "enforce",
    account: str = "pod",
    default: str = "",
    interval: str = "1s",
    keys: str = "",
    first: str = "",
    more: str = "",
    name: str = "policy.toml",
) -> Path:
    """Write a policy with one rule of these steps, each the inside of a `[[rule.step]]`.

    It begins with `keys`, has the rules `first` before that rule, and ends with the tables of `more`.
    """
    text = keys + HEAD.format(mode=mode).replace('"1s"', f'"{interval}"') + first
    text += RULE.format(account=account, default=f'default = "{default}"' if default else "")
    return mount(folder / name, text + "".join(f"\n[[rule.step]]\n{step}\n" for step in steps) + more)


def kill(for_: str = "0s", grace: str = "2s", scope: str = "container") -> str:
    """A step that kills above 100%."""
    return f'above = "100%"\nfor = "{for_}"\ndo = "kill"\nscope = "{scope}"\ngrace = "{grace}"'


KILL_AT_ONCE = kill()
KILL_AFTER_2S = kill("2s")
WARN_AT_ONCE = 'above = "100%"\nfor = "0s"\ndo = "warn"'
