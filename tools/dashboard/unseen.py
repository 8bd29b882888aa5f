"""What is not seen, and what belongs to nobody: unattributed memory, residual memory, gaps."""

from tools.dashboard.kinds import bars, curves
from tools.dashboard.panels import Panel, Query, Row
from tools.dashboard.queries import CARD, CARD_TITLE, by, counted, titled


def _unattributed() -> Panel:
    return curves(
        "Unattributed, by card",
        "Memory of processes that belong to no known pod. `gpu-watchdog scan` on the node lists them. A gap: not all "
        "processes of the card were known.",
        "bytes",
        Query(expr=titled(by(CARD, "gpu_memory_unattributed_bytes")), legend=CARD_TITLE),
        defaults={"min": 0},
        width=8,
    )


def _residual() -> Panel:
    return curves(
        "Residual, by card",
        "In use by no listed process: managed memory, contexts being destroyed. Slightly negative is normal, since "
        "two readings are subtracted. Investigate what grows and stays.",
        "bytes",
        Query(expr=titled(by(CARD, "gpu_memory_residual_bytes")), legend=CARD_TITLE),
        width=8,
    )


def _gaps() -> Panel:
    return bars(
        "Gaps, by reason",
        "Data that could not be determined in a cycle. No action is taken on what a gap leaves unknown. "
        "docs/troubleshooting.md has each reason with its remedy.",
        "short",
        Query(expr=counted("reason", "scan_gaps_total"), legend="{{reason}}"),
        none="no gaps, or unknown",
    )


def unseen() -> Row:
    """Give the row."""
    return Row(title="Unattributed memory and gaps", panels=[_unattributed(), _residual(), _gaps()])
