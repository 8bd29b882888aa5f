"""The policies that are installed: a rule for each action, by the names of namespaces."""

from collections.abc import Mapping
from typing import Final

from tests.rig.cluster.real_pods import MEMORY

# No allowance, so that what is declared is the limit.
_HEAD: Final = f"""
mode = "{{mode}}"
interval = "1s"
stale_after = "{{stale_after}}"
[[declaration]]
resource = "{MEMORY}"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
"""
_RULE: Final = """
[[rule]]
name = "{name}"
match = {{ namespaces = ["{name}-*"] }}
account = "{account}"
[[rule.step]]
above = "100%"
for = "{after}"
grace = "1s"
{action}
"""
CAPACITY: Final = f"""
[capacity]
resource = "{MEMORY}"
"""
KILL: Final = 'do = "kill"\nscope = "container"'
EVICT: Final = 'do = "evict"'


def policy_text(
    mode: str,
    actions: Mapping[str, str],
    *,
    stale_after: str = "3m",
    more: str = CAPACITY,
    account: str = "container",
    after: str = "1s",
) -> str:
    """A policy that does this in namespaces of these names, with a dash and more behind."""
    given = {"account": account, "after": after}
    rules = "".join(_RULE.format(name=name, action=action, **given) for name, action in actions.items())
    return _HEAD.format(mode=mode, stale_after=stale_after) + rules + more
