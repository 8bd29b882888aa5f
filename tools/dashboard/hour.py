"""The last hour of one pod, whatever time range is chosen: its memory, what it computed, and who was on its cards."""

from typing import Final

from tools.dashboard.kinds import curves
from tools.dashboard.over_time import DOTTED, against
from tools.dashboard.panels import GREY, Panel, Query, Row, fixed, override
from tools.dashboard.queries import CARD, CARD_TITLE, HOLDER, OF_PODS, PLACE_TITLE, POD, by, metric, titled

_LAST: Final = "1h"
_ITS_CARDS: Final = f"group by ({CARD}) ({metric('container_memory_used_bytes', OF_PODS)})"


def _on_its_cards(series: str) -> str:
    return f"{series} and on ({CARD}) {_ITS_CARDS}"


def _computed() -> Panel:
    return curves(
        "Utilization in the last hour",
        "Share of each card's time that the containers of the chosen pods used, and that of the whole cards (dotted). "
        "Choose a single pod above. A gap: it was unknown.",
        "percentunit",
        Query(expr=titled(by(HOLDER, "container_gpu_utilization_ratio", OF_PODS)), legend=PLACE_TITLE),
        Query(expr=titled(_on_its_cards(by(CARD, "gpu_utilization_ratio"))), legend=f"whole card: {CARD_TITLE}"),
        defaults={"min": 0, "max": 1},
        overrides=[override("/^whole card: /", {"color": fixed(GREY), "custom.lineStyle": DOTTED})],
        height=10,
        last=_LAST,
    )


def _neighbors() -> Panel:
    held = f"sum by ({POD}, gpu) ({by(HOLDER, 'container_memory_used_bytes')})"
    free = f"{by(CARD, 'gpu_memory_total_bytes')} - {by(CARD, 'gpu_memory_used_bytes')}"
    return curves(
        "Everyone on its cards in the last hour",
        "The use of every pod on the cards that the chosen pods use now, and what was free there (dotted). Choose a "
        "single pod above.",
        "bytes",
        Query(expr=titled(_on_its_cards(held)), legend=PLACE_TITLE),
        Query(expr=titled(_on_its_cards(free)), legend=f"free: {CARD_TITLE}"),
        defaults={"min": 0},
        overrides=[override("/^free: /", {"color": fixed(GREY), "custom.lineStyle": DOTTED})],
        width=24,
        last=_LAST,
    )


def hour() -> Row:
    """Give the row."""
    panels = [against("Use, declared and allowed in the last hour", last=_LAST), _computed(), _neighbors()]
    return Row(title="The last hour of one pod", panels=panels)
