"""The ladder and its actions: what was done, to whom, what was held back, what observe mode would have done."""

from tools.dashboard.kinds import bars, table
from tools.dashboard.panels import GREEN, ORANGE, RED, YELLOW, Panel, Query, Row, fixed, override
from tools.dashboard.queries import ACTION_LABELS, OF_PODS, counted, metric

# As the marks in the graphs have them; darker where it did not come about.
_COLORS = {
    "warn, done": YELLOW,
    "kill, done": RED,
    "kill, failed": "dark-red",
    "evict, done": ORANGE,
    "evict, failed": "dark-orange",
    "evict, blocked": "dark-orange",
}


def _table() -> Panel:
    seen = f"max_over_time({metric('pod_last_action_timestamp_seconds', OF_PODS)}[$__range])"
    results = {
        "done": {"text": "done", "color": GREEN, "index": 0},
        "failed": {"text": "failed", "color": RED, "index": 1},
        "blocked": {"text": "blocked", "color": RED, "index": 2},
        "interrupted": {"text": "interrupted", "color": ORANGE, "index": 3},
        "gone": {"text": "gone: nothing left to act on", "color": GREEN, "index": 4},
    }
    return table(
        "Actions",
        "What was done to which pod in this time range, newest first: the last time of each action, container and "
        "result. Kept for 15 minutes after the pod is gone. All graphs mark the same (switch them at the top).",
        "dateTimeAsIso",
        {
            "Value": "When",
            "action": "Action",
            "result": "Result",
            "cluster": "Cluster",
            "node": "Node",
            "namespace": "Namespace",
            "pod": "Pod",
            "container": "Container",
            "rule": "Rule",
        },
        Query(expr=f"max by ({ACTION_LABELS}) ({seen}) * 1000 >= $__from", instant=True, table=True),
        sort="When",
        none="no actions, or unknown",
        overrides=[
            override(
                "Result",
                {"mappings": [{"type": "value", "options": results}], "custom.cellOptions": {"type": "color-text"}},
            )
        ],
    )


def _done() -> Panel:
    return bars(
        "Actions over time",
        "Actions in each step of the graph, by result. Counts all pods of the chosen nodes, since counters have no "
        "pod.",
        "short",
        Query(expr=counted("action, result", "actions_total"), legend="{{action}}, {{result}}"),
        none="no actions, or unknown",
        overrides=[override(name, {"color": fixed(color)}) for name, color in _COLORS.items()],
    )


def _withheld() -> Panel:
    return bars(
        "Withheld, by brake",
        "Actions that were due and withheld, once per incident and brake: for example a protected pod, the rate limit"
        " of a node, namespace or owner, a stale pod list, or the breaker.",
        "short",
        Query(expr=counted("brake", "withheld_total"), legend="{{brake}}"),
        none="nothing was withheld, or unknown",
    )


def _would() -> Panel:
    return bars(
        "Would have acted, by rule",
        "Actions that observe mode would have taken, by rule: what enforcing would do. Read it for some days before "
        "you enforce.",
        "short",
        Query(expr=counted("rule, action", "would_act_total"), legend="{{action}} by {{rule}}"),
        none="no actions, or unknown",
    )


def actions() -> Row:
    """Give the row."""
    return Row(title="Ladder and actions", panels=[_table(), _done(), _withheld(), _would()])
