"""What is not seen, and what belongs to nobody: unattributed memory, residual memory, gaps."""

from tests.tools.dashboard.kinds import bars, curves
from tests.tools.dashboard.panels import Panel, Query, Row
from tests.tools.dashboard.queries import CARD, CARD_TITLE, by, counted, titled


def _unattributed() -> Panel:
    return curves(
        "Unattributed, by card",
        "Memory of processes that are in no pod of the list. `gpu-watchdog scan` on the node names the processes. A "
        "gap: the card's processes were not all known.",
        "bytes",
        Query(expr=titled(by(CARD, "gpu_memory_unattributed_bytes")), legend=CARD_TITLE),
        defaults={"min": 0},
        width=8,
    )


def _residual() -> Panel:
    return curves(
        "Residual, by card",
        "In use, and held by no listed process: managed memory, contexts on their way out. A little below zero is "
        "normal, since two readings are subtracted; what grows and stays is worth a look.",
        "bytes",
        Query(expr=titled(by(CARD, "gpu_memory_residual_bytes")), legend=CARD_TITLE),
        width=8,
    )


def _gaps() -> Panel:
    return bars(
        "Gaps, by reason",
        "Things that could not be learned in a pass. While there is a gap, whatever it leaves unknown is not acted on. "
        "docs/operations.md has each reason with its remedy.",
        "short",
        Query(expr=counted("reason", "scan_gaps_total"), legend="{{reason}}"),
        none="no gaps, or unknown",
    )


def unseen() -> Row:
    """Give the row."""
    return Row(title="Unattributed memory and gaps", panels=[_unattributed(), _residual(), _gaps()])
