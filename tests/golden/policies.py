"""Policies of the worlds."""

from typing import Final

VERIFF: Final = '[[declaration]]\nresource = "veriff.com/gpu-memory"\nunit = "1"\n'
ALLOWANCE: Final = '[allowance]\nper_context = "256Mi"\npercent = "2%"\n'
NO_ALLOWANCE: Final = '[allowance]\nper_context = "0"\npercent = "0%"\n'
WARN: Final = 'above = "100%"\nfor = "0s"\ndo = "warn"'
EVICT: Final = 'above = "100%"\nfor = "0s"\ndo = "evict"\ngrace = "2s"'


def kill(scope: str = "container", grace: str = "1s", after: str = "0s", above: str = "100%", more: str = "") -> str:
    """A step that kills."""
    return f'above = "{above}"\nfor = "{after}"\ndo = "kill"\nscope = "{scope}"\ngrace = "{grace}"\n{more}'


def rule(*steps: str, name: str = "all", match: str = "{}", account: str = "pod", more: str = "") -> str:
    """A rule with these steps."""
    head = f'[[rule]]\nname = "{name}"\nmatch = {match}\naccount = "{account}"\n{more}'
    return head + "".join(f"\n[[rule.step]]\n{step}\n" for step in steps)


def declared(line: str, unit: str = "1", more: str = "") -> str:
    """A declaration by a line such as `annotation = "vram"`."""
    return f'[[declaration]]\n{line}\nunit = "{unit}"\n{more}\n'


def policy(
    *rules: str,
    mode: str = "enforce",
    top: str = "",
    declarations: str = VERIFF,
    allowance: str = ALLOWANCE,
    more: str = "",
) -> str:
    """A policy of these rules, looks 1 s apart."""
    return "\n".join([f'mode = "{mode}"\ninterval = "1s"\n{top}', declarations, allowance, *rules, more])
