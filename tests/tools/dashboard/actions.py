"""The ladder and its actions: what was done, to whom, what was held back, what observe mode would have done."""

from tests.tools.dashboard.kinds import bars, table
from tests.tools.dashboard.panels import GREEN, ORANGE, RED, YELLOW, Panel, Query, Row, fixed, override
from tests.tools.dashboard.queries import DEED, OF_PODS, counted, metric

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
        "gone": {"text": "gone: nothing was left to do", "color": GREEN, "index": 4},
    }
    return table(
        "Actions",
        "To which pod what was done in this time range, the newest first: the last time of each action, container and "
        "result. It is kept for 15 minutes after its pod, so it is here even where the pod is long gone. The same is "
        "marked in all graphs (the switches are at the top).",
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
        Query(expr=f"max by ({DEED}) ({seen}) * 1000 >= $__from", instant=True, table=True),
        sort="When",
        none="nothing was done, or unknown",
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
        "How often the ladder acted in each step of the graph, by what came of it. Counts all pods of the chosen "
        "nodes, since the counters have no pod.",
        "short",
        Query(expr=counted("action, result", "actions_total"), legend="{{action}}, {{result}}"),
        none="nothing was done, or unknown",
        overrides=[override(name, {"color": fixed(color)}) for name, color in _COLORS.items()],
    )


def _withheld() -> Panel:
    return bars(
        "Withheld, by brake",
        "Steps that were due and were held back, once an incident and brake: a protected pod, a budget of node, "
        "namespace or owner that is used up, a pod list that is too old, the breaker.",
        "short",
        Query(expr=counted("brake", "withheld_total"), legend="{{brake}}"),
        none="nothing was withheld, or unknown",
    )


def _would() -> Panel:
    return bars(
        "Would have been done",
        "Steps that observe mode would have taken, by rule. This is what enforcing would mean: read it for some days "
        "before you switch.",
        "short",
        Query(expr=counted("rule, action", "would_act_total"), legend="{{action}} by {{rule}}"),
        none="nothing would have been done, or unknown",
    )


def actions() -> Row:
    """Give the row."""
    return Row(title="Ladder and actions", panels=[_table(), _done(), _withheld(), _would()])
