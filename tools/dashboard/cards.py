"""The cards: how full each is, with what, and how much is left."""

from typing import Final

from tools.dashboard.kinds import curves, gauges, heads, history, share_cell, table
from tools.dashboard.panels import GREEN, RED, YELLOW, Panel, Query, Row, mapping, override
from tools.dashboard.queries import CARD, CARD_TITLE, by, titled

_FULL: Final = ((None, GREEN), (0.9, YELLOW), (0.97, RED))
_USED: Final = f"{by(CARD, 'gpu_memory_used_bytes')} / {by(CARD, 'gpu_memory_total_bytes')}"
_FREE: Final = f"{by(CARD, 'gpu_memory_total_bytes')} - {by(CARD, 'gpu_memory_used_bytes')}"
_COLUMNS: Final = {
    **heads("cluster", "node"),
    "index": "GPU",
    "profile": "MIG profile",
    "model": "Model",
    "Value #A": "Responds",
    "Value #B": "Total",
    "Value #C": "In use",
    "Value #D": "In use, share",
    "Value #E": "Reserved",
    "Value #F": "Residual",
    "Value #G": "Unattributed",
    "Value #H": "Headroom",
    "gpu": "UUID",
}
_SHADES: Final = (
    (None, "super-light-green"),
    (0.25, GREEN),
    (0.5, "super-light-yellow"),
    (0.75, YELLOW),
    (0.9, "orange"),
    (0.97, RED),
)


def _graphs() -> list[Panel]:
    return [
        gauges(
            "In use, by card",
            "Memory in use on each card or MIG instance now. A card whose use is unknown is missing here, and has an "
            "empty cell in the table.",
            "percentunit",
            Query(expr=titled(_USED), legend=CARD_TITLE, instant=True),
            steps=_FULL,
            defaults={"min": 0, "max": 1},
        ),
        history(
            "In use, by card, over time",
            "One line per card, one cell per interval. A gap: its use was unknown.",
            "percentunit",
            Query(expr=titled(_USED), legend=CARD_TITLE),
            steps=_SHADES,
            width=16,
        ),
    ]


def _headroom() -> Panel:
    return curves(
        "Headroom, by card",
        "Free memory of each card: total minus in use. This is not what is left to declare.",
        "bytes",
        Query(expr=titled(_FREE), legend=CARD_TITLE),
        defaults={"min": 0},
        width=24,
        height=8,
    )


def _table() -> Panel:
    info = by(f"{CARD}, index, profile, model", "gpu_info")
    numbers = ("total_bytes", "used_bytes", None, "reserved_bytes", "residual_bytes", "unattributed_bytes")
    exprs = [_USED if name is None else by(CARD, f"gpu_memory_{name}") for name in numbers]
    up = f"{by(CARD, 'gpu_up')} * on ({CARD}) group_left (index, profile, model) {info}"
    answers = mapping({"0": ("lost", RED), "1": ("yes", GREEN)})
    return table(
        "Cards",
        "One row per card or MIG instance; a card in MIG mode is shown by its instances. Reserved: by the driver. "
        "Residual: in use by no listed process (managed memory, contexts being destroyed); it can be negative, since "
        "two readings are subtracted. An empty cell means unknown, not 0.",
        "bytes",
        _COLUMNS,
        up,
        *exprs,
        _FREE,
        sort="In use, share",
        overrides=[
            override("Responds", {"mappings": answers, "unit": "short", "custom.cellOptions": {"type": "color-text"}}),
            override("In use, share", share_cell(1, _FULL)),
            override("UUID", {"custom.width": 320}),
            override("GPU", {"custom.width": 60}),
        ],
    )


def cards() -> Row:
    """Give the row."""
    return Row(title="Cards", panels=[*_graphs(), _table(), _headroom()])
