"""The ladder and its actions: actions, withheld actions, and those that observe mode would have taken."""

from tools.dashboard.kinds import bars, heads, table
from tools.dashboard.panels import GREEN, ORANGE, RED, YELLOW, Panel, Row, fixed, mapping, override
from tools.dashboard.queries import ACTION_LABELS, OF_PODS, metric

# As the marks in the graphs have them; darker where the action failed.
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
        "done": ("done", GREEN),
        "failed": ("failed", RED),
        "blocked": ("blocked", RED),
        "interrupted": ("interrupted", ORANGE),
        "gone": ("gone: nothing left to act on", GREEN),
    }
    words = {"mappings": mapping(results), "custom.cellOptions": {"type": "color-text"}}
    return table(
        "Actions",
        "What was done to which pod in this time range, newest first: the last time of each action, container and "
        "result. Kept for 15 minutes after the pod is gone. All graphs mark the same (switch them at the top).",
        "dateTimeAsIso",
        {
            "Value": "When",
            **heads("action", "result", "cluster", "node", "namespace", "pod", "container", "rule"),
        },
        f"max by ({ACTION_LABELS}) ({seen}) * 1000 >= $__from",
        sort="When",
        none="no actions, or unknown",
        overrides=[override("Result", words)],
    )


def _counts() -> list[Panel]:
    return [
        bars(
            "Actions over time",
            "Actions in each step of the graph, by result. Counts all pods of the chosen nodes, since counters have no "
            "pod.",
            "action, result",
            "actions_total",
            "{{action}}, {{result}}",
            none="no actions",
            overrides=[override(name, {"color": fixed(color)}) for name, color in _COLORS.items()],
        ),
        bars(
            "Withheld, by brake",
            "Actions that were due and withheld, once per incident and brake: for example a protected pod, the rate "
            "limit of a node, namespace or owner, a stale pod list, or the breaker.",
            "brake",
            "withheld_total",
            "{{brake}}",
            none="nothing was withheld",
        ),
        bars(
            "Would have acted, by rule",
            "Actions that observe mode would have taken, by rule: what enforcing would do. Read it for some days before"
            " you enforce.",
            "rule, action",
            "would_act_total",
            "{{action}} by {{rule}}",
            none="no actions",
        ),
    ]


def actions() -> Row:
    """Give the row."""
    return Row(title="Ladder and actions", panels=[_table(), *_counts()])
