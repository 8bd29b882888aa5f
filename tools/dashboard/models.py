"""The cards by model and by how they are shared: how many there are, how full, and how many pods are on each."""

from typing import Final

from tools.dashboard.kinds import curves, heads, share_cell, table
from tools.dashboard.panels import GREEN, RED, YELLOW, Panel, Query, Row, override
from tools.dashboard.queries import CARD, PLACES, POD, by, declared_by_card, of_kind

_KIND: Final = "model, sharing"
_SIZE: Final = by(CARD, "gpu_memory_total_bytes")
_USED: Final = by(CARD, "gpu_memory_used_bytes")
_FULL: Final = ((None, GREEN), (0.9, YELLOW), (0.97, RED))
_COLUMNS: Final = {
    **heads("model", "sharing"),
    "Value #A": "Cards",
    "Value #B": "Total",
    "Value #C": "In use",
    "Value #D": "In use, share",
    "Value #E": "Declared",
    "Value #F": "Declared, share",
    "Value #G": "Utilization",
    "Value #H": "Pods",
    "Value #I": "Most pods on a card",
}


def _sum(per_card: str, labels: str = _KIND) -> str:
    return f"sum by ({labels}) ({of_kind(per_card)})"


def _full(labels: str) -> str:
    """The share in use, of the cards whose use is known."""
    return f"{_sum(_USED, labels)} / {_sum(f'{_SIZE} and {_USED}', labels)}"


def _exprs() -> tuple[str, ...]:
    on_kind = of_kind(PLACES)
    return (
        f"count by ({_KIND}) ({of_kind(by(CARD, 'gpu_up'))})",
        _sum(_SIZE),
        _sum(_USED),
        _full(_KIND),
        _sum(declared_by_card()),
        f"{_sum(declared_by_card())} / {_sum(_SIZE)}",
        f"avg by ({_KIND}) ({of_kind(by(CARD, 'gpu_utilization_ratio'))})",
        f"count by ({_KIND}) (group by ({POD}, {_KIND}) ({on_kind}))",
        f"max by ({_KIND}) ({of_kind(f'count by ({CARD}) ({PLACES})')})",
    )


def _table() -> Panel:
    short = {"unit": "short"}
    return table(
        "Cards by model and sharing",
        "How many cards (or MIG instances) of each model are shared in which way, and what they hold. Whole: nothing "
        "shows that they are shared; where the last column is above 1 they are, such as by HAMi or a memory resource. "
        "Declared: by the pods that use them. Utilization: the mean of the cards that report it.",
        "bytes",
        _COLUMNS,
        *_exprs(),
        sort="Total",
        height=8,
        overrides=[
            override("Cards", short),
            override("In use, share", share_cell(1, _FULL)),
            override("Declared, share", share_cell(1.5, ((None, GREEN), (1.001, YELLOW)))),
            override("Utilization", share_cell(1, ((None, GREEN),))),
            override("Pods", short),
            override("Most pods on a card", short),
        ],
    )


def _over_time(by_label: str, title: str) -> Panel:
    return curves(
        title,
        "Share of their memory in use, of those cards whose use is known.",
        "percentunit",
        Query(expr=_full(by_label), legend=f"{{{{{by_label}}}}}"),
        defaults={"min": 0, "max": 1},
        height=8,
    )


def models() -> Row:
    """Give the row."""
    panels = [_table(), _over_time("model", "In use, by model"), _over_time("sharing", "In use, by sharing")]
    return Row(title="Card models and sharing", panels=panels)
