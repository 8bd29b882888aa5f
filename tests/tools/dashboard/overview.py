"""The first row: who is over, who was killed, and whether the watchdog does what it was told to do."""

from typing import Any, Final

from tests.tools.dashboard.kinds import stat
from tests.tools.dashboard.panels import BLUE, GREEN, ORANGE, RED, YELLOW, Panel, Query, Row, fixed, override
from tests.tools.dashboard.queries import ACCOUNT, CARD, JOB, NODE, OF_PODS, ON_NODES, POD, by, grown, metric, or_none

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
            "Nodes from which a watchdog was scraped just now. A node with a GPU and without one is not counted here: "
            "this dashboard only knows the nodes that it hears of.",
            f"count({by(NODE, 'build_info')})",
            steps=((None, RED), (1, BLUE)),
        ),
        _count(
            "Watchdogs not answering",
            "Targets of the scrape that gave no answer. Their nodes are not watched, or nobody knows whether they are.",
            f"count(up{{{JOB}, {ON_NODES}}} == 0) or 0 * count(up{{{JOB}, {ON_NODES}}})",
            steps=_BAD,
        ),
        _count(
            "Nodes that enforce",
            "Nodes on which force is used. All others only observe: look at the next number for whether they should. A "
            "node whose driver hangs stays in it, although nothing is done there: the age of its last pass tells.",
            f"sum({by(NODE, 'enforcing')})",
            steps=((None, BLUE),),
        ),
        _count(
            "Told to enforce, and not",
            "Nodes whose policy says enforce and which only observe all the same. The reasons are in the last row.",
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
            "Accounts (pods or containers) that use more than they are allowed. Those of which this can't be said "
            "(undeclared, misdeclared, unknown) are not among them. No number: nobody is known to be over or within, "
            "and there is no node of which all is known.",
            or_none(f"sum({by(ACCOUNT, 'account_over_limit', OF_PODS)})", judged),
            steps=_BAD,
        ),
        _count(
            "Pods killed",
            "Pods of which a container or a process was killed in this time range, each counted once.",
            or_none(f"count(count by ({POD}) (max_over_time({killed}[$__range]) >= $__from / 1000))"),
            steps=_BAD,
        ),
        _count(
            "Failed or blocked",
            "Steps in this time range that did not come about: a signal that was refused, an eviction that a "
            "disruption budget forbids or for which there is no API. Counts all pods of the chosen nodes.",
            grown("actions_total", 'result=~"failed|blocked"'),
            steps=_BAD,
        ),
        _count(
            "Breakers open",
            "Nodes on which so many are over at once that kills and evictions are held back.",
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
            "What is in use of the memory of all cards whose use is known, what the driver reserves included.",
            "percentunit",
            Query(expr=f"sum({used}) / sum({size})", instant=True),
            steps=((None, GREEN), (0.9, YELLOW), (0.97, RED)),
        ),
        _count(
            "Cards lost",
            "GPUs that have stopped answering, or that the watchdog let go for maintenance.",
            or_none(f"count({by(CARD, 'gpu_up')} == 0)", by(CARD, "gpu_up")),
            steps=_BAD,
        ),
        stat(
            "Unattributed memory",
            "GPU memory of processes that are in no pod: of the host, of pods that the list does not have, zombies, "
            "MPS servers. Nobody's declaration covers it. Of the cards whose processes are all known.",
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
            "Steps that were due in this time range and were held back by a brake, once an incident and brake. Counts "
            "all pods of the chosen nodes.",
            grown("withheld_total"),
            steps=_WARN,
        ),
        _count(
            "Would have acted",
            "Steps that observe mode would have taken in this time range. Counts all pods of the chosen nodes.",
            grown("would_act_total"),
            steps=((None, BLUE),),
        ),
        _count(
            "Not known",
            "Accounts of the chosen nodes of which it is not known whether they are over: a process, a card or all of "
            "them do not answer. Nobody of them is among Over now.",
            f"sum({by(NODE, 'accounts', ON_NODES, _UNKNOWN)})",
            steps=_BAD,
        ),
        stat(
            "Accounts by verdict",
            "How all accounts of the chosen nodes stand. Undeclared: it uses GPU memory and declares none. "
            "Misdeclared: its declaration can't be read. Unknown: not all of its processes are known.",
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
