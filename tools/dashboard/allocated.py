"""What is allocated, that is declared, against what is used: of all cards, by card, and by namespace."""

from typing import Final

from tools.dashboard.kinds import curves, gauges, heads, share_cell, table
from tools.dashboard.panels import BLUE, GREEN, PURPLE, YELLOW, Panel, Query, Row, fixed, override
from tools.dashboard.queries import CARD, CARD_TITLE, HOLDER, OF_PODS, POD, by, declared_by_card, titled

_DECLARED: Final = by(POD, "pod_memory_declared_bytes", OF_PODS)
_USED: Final = by(POD, "pod_memory_used_bytes", OF_PODS)
# Of the pods whose use and declaration are both known, so that one can be taken from the other.
_BOTH_DECLARED: Final = f"sum by (cluster, namespace) ({_DECLARED} and {_USED})"
_BOTH_USED: Final = f"sum by (cluster, namespace) ({_USED} and {_DECLARED})"


def _over_time() -> Panel:
    return curves(
        "Declared, used and size of all cards",
        "What the pods of the chosen nodes declare and use on their cards, and what these cards have. Between declared "
        "and used is memory that is promised and free; above the size more is promised than there is.",
        "bytes",
        Query(expr=f"sum({by(CARD, 'gpu_memory_total_bytes')})", legend="size"),
        Query(expr=f"sum({declared_by_card()})", legend="declared"),
        Query(expr=f"sum({by(HOLDER, 'container_memory_used_bytes')})", legend="used by pods"),
        defaults={"min": 0},
        overrides=[
            override("size", {"color": fixed(PURPLE)}),
            override("declared", {"color": fixed(YELLOW)}),
            override("used by pods", {"color": fixed(BLUE)}),
        ],
        width=16,
    )


def _by_card() -> Panel:
    return gauges(
        "Declared, by card",
        "What the pods on each card declare, as a share of its size. An amount for several cards is divided among "
        "those that the pod uses; beside claims it counts on each. A pod that uses nothing yet is on no card.",
        "percentunit",
        Query(
            expr=titled(f"{declared_by_card()} / {by(CARD, 'gpu_memory_total_bytes')}"), legend=CARD_TITLE, instant=True
        ),
        steps=((None, GREEN), (1.001, YELLOW)),
        defaults={"min": 0, "max": 1.5},
        none="nothing is declared, or unknown",
    )


def _by_namespace() -> Panel:
    return table(
        "Declared and used, by namespace",
        "Pods of which both are known. Not used: what pods declare more than they use now; those that use more take "
        "nothing from it. `gpu-watchdog recommend` on a node says what each workload should declare.",
        "bytes",
        {
            **heads("cluster", "namespace"),
            "Value #A": "Declared",
            "Value #B": "Used",
            "Value #C": "Not used",
            "Value #D": "Used of declared",
        },
        _BOTH_DECLARED,
        _BOTH_USED,
        f"sum by (cluster, namespace) (clamp_min({_DECLARED} - {_USED}, 0))",
        f"{_BOTH_USED} / ({_BOTH_DECLARED} > 0)",
        sort="Not used",
        overrides=[override("Used of declared", share_cell(1.5, ((None, GREEN), (1, YELLOW))))],
    )


def allocated() -> Row:
    """Give the row."""
    return Row(title="Allocated against used", panels=[_over_time(), _by_card(), _by_namespace()])
