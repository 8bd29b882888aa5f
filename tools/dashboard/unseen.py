"""Memory of no pod, and missing data: unattributed memory, residual memory, gaps."""

from tools.dashboard.kinds import bars, curves
from tools.dashboard.panels import Query, Row
from tools.dashboard.queries import CARD, CARD_TITLE, by, titled


def unseen() -> Row:
    """Give the row."""
    panels = [
        curves(
            "Unattributed, by card",
            "Memory of processes that belong to no known pod. `gpu-watchdog scan` on the node lists them. A gap: not "
            "all processes of the card were known.",
            "bytes",
            Query(expr=titled(by(CARD, "gpu_memory_unattributed_bytes")), legend=CARD_TITLE),
            defaults={"min": 0},
            width=8,
        ),
        curves(
            "Residual, by card",
            "In use by no listed process: managed memory, contexts being destroyed. Slightly negative is normal, since "
            "two readings are subtracted. Investigate what grows and stays.",
            "bytes",
            Query(expr=titled(by(CARD, "gpu_memory_residual_bytes")), legend=CARD_TITLE),
            width=8,
        ),
        bars(
            "Gaps, by reason",
            "Data that could not be determined in a cycle. No action is taken on what a gap leaves unknown. "
            "docs/troubleshooting.md has each reason with its remedy.",
            "reason",
            "scan_gaps_total",
            "{{reason}}",
            none="no gaps",
        ),
    ]
    return Row(title="Unattributed memory and gaps", panels=panels)
