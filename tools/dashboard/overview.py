"""The first row: who is over, who was killed, and whether the watchdog does what its policy says."""

from typing import Any, Final

from tools.dashboard.kinds import stat
from tools.dashboard.panels import BLUE, GREEN, ORANGE, RED, YELLOW, Panel, Query, Row, fixed, override
from tools.dashboard.queries import ACCOUNT, CARD, JOB, NODE, OF_PODS, ON_NODES, POD, by, grown, metric, or_none

_VERDICTS: Final = {"within": GREEN, "over": RED, "undeclared": YELLOW, "misdeclared": ORANGE, "unknown": BLUE}
_UNKNOWN: Final = 'verdict="unknown"'
_BAD: Final = ((None, GREEN), (1, RED))
_WARN: Final = ((None, GREEN), (1, YELLOW))


def _count(title: str, description: str, expr: str, **more: Any) -> Panel:
    return stat(title, description, "short", Query(expr=expr, instant=True), **more)


def _nodes() -> list[Panel]:
    return [
        _count(
            "Nodes with a watchdog",
            "Nodes with a watchdog that was scraped just now. A node with a GPU but no watchdog is not counted: the "
            "dashboard knows only nodes that report.",
            f"count({by(NODE, 'build_info')})",
            steps=((None, RED), (1, BLUE)),
        ),
        _count(
            "Watchdogs not answering",
            "Targets that do not answer scrapes. Their nodes are not monitored, and maybe not enforced.",
            f"count(up{{{JOB}, {ON_NODES}}} == 0) or 0 * count(up{{{JOB}, {ON_NODES}}})",
            steps=_BAD,
        ),
        _count(
            "Nodes that enforce",
            "Nodes that enforce; all others only observe. A node whose driver hangs is still counted, although no "
            "action is taken there: see the age of its last cycle.",
            f"sum({by(NODE, 'enforcing')})",
            steps=((None, BLUE),),
        ),
        _count(
            "Set to enforce, but suspended",
            "Nodes whose policy says enforce, but which only observe. The last row has the reasons.",
            or_none(f"count(count by ({NODE}) ({metric('enforcement_suspended')} == 1))", by(NODE, "enforcing")),
            steps=_BAD,
        ),
    ]


def _pods() -> list[Panel]:
    killed = metric("pod_last_action_timestamp_seconds", OF_PODS, 'action="kill"', 'result="done"')
    judged = f"{by(NODE, 'accounts', ON_NODES, _UNKNOWN)} == 0"
    return [
        _count(
            "Over now",
            "Accounts (pods or containers) above their limit, not including undeclared, misdeclared and unknown ones."
            " Empty: no account is known to be over or within, and on no node everything is known.",
            or_none(f"sum({by(ACCOUNT, 'account_over_limit', OF_PODS)})", judged),
            steps=_BAD,
        ),
        _count(
            "Pods killed",
            "Pods of which a container or process was killed in this time range, each counted once.",
            or_none(f"count(count by ({POD}) (max_over_time({killed}[$__range]) >= $__from / 1000))"),
            steps=_BAD,
        ),
        _count(
            "Failed or blocked",
            "Actions in this time range that failed (such as a refused signal) or were blocked by a disruption "
            "budget. Counts all pods of the chosen nodes.",
            grown("actions_total", 'result=~"failed|blocked"'),
            steps=_BAD,
        ),
        _count(
            "Breakers open",
            "Nodes on which so many workloads are over at once that kills and evictions are withheld.",
            f"sum({by(NODE, 'breaker_open')})",
            steps=_BAD,
        ),
    ]


def _cards() -> list[Panel]:
    used = by(CARD, "gpu_memory_used_bytes")
    size = f"{by(CARD, 'gpu_memory_total_bytes')} and {used}"
    return [
        stat(
            "Memory of all cards in use",
            "Share of the memory in use, including what the driver reserves, of all cards whose use is known.",
            "percentunit",
            Query(expr=f"sum({used}) / sum({size})", instant=True),
            steps=((None, GREEN), (0.9, YELLOW), (0.97, RED)),
        ),
        _count(
            "Cards lost",
            "GPUs that do not respond, or that the watchdog has released for maintenance.",
            or_none(f"count({by(CARD, 'gpu_up')} == 0)", by(CARD, "gpu_up")),
            steps=_BAD,
        ),
        stat(
            "Unattributed memory",
            "GPU memory of processes that belong to no known pod: host processes, unknown pods, zombies, MPS servers."
            " Only cards whose processes are all known.",
            "bytes",
            Query(expr=f"sum({by(CARD, 'gpu_memory_unattributed_bytes')})", instant=True),
            steps=((None, GREEN), (1, YELLOW)),
        ),
    ]


def _accounts() -> list[Panel]:
    verdicts = by(f"{NODE}, verdict", "accounts")
    return [
        _count(
            "Withheld",
            "Actions that were due in this time range and withheld by a brake, once per incident and brake. Counts "
            "all pods of the chosen nodes.",
            grown("withheld_total"),
            steps=_WARN,
        ),
        _count(
            "Would have acted",
            "Actions that observe mode would have taken in this time range. Counts all pods of the chosen nodes.",
            grown("would_act_total"),
            steps=((None, BLUE),),
        ),
        _count(
            "Verdict unknown",
            "Accounts of the chosen nodes for which it is unknown whether they are over, because a process or a GPU "
            "does not report. They are not counted in Over now.",
            f"sum({by(NODE, 'accounts', ON_NODES, _UNKNOWN)})",
            steps=_BAD,
        ),
        stat(
            "Accounts by verdict",
            "All accounts of the chosen nodes. Undeclared: it uses GPU memory but declares none. Misdeclared: its "
            "declaration is invalid. Unknown: its use or its declaration can't be determined.",
            "short",
            Query(expr=f"sum by (verdict) ({verdicts})", legend="{{verdict}}", instant=True),
            width=6,
            text="value_and_name",
            steps=((None, BLUE),),
            overrides=[override(name, {"color": fixed(color)}) for name, color in _VERDICTS.items()],
        ),
    ]


def overview() -> Row:
    """Give the row."""
    return Row(title="Overview", panels=[*_nodes(), *_pods(), *_cards(), *_accounts()])
