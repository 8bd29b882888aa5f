"""Over time: the pods on a card, a pod's use against what it is allowed, accounts by verdict."""

from typing import Any

from tools.dashboard.kinds import curves
from tools.dashboard.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Json,
    Panel,
    Query,
    Row,
    fixed,
    override,
)
from tools.dashboard.pods import ALLOWED, DECLARED, SHARE, USED
from tools.dashboard.queries import ACCOUNT_TITLE, CARD, HOLDER, NODE, ON_NODES, POD, by

_CARD = f'{ON_NODES}, gpu=~"$gpu"'
# Marks of what was done are dashed lines in red, orange and yellow. What bounds use is purple, so that neither is taken
# for the other.
_DASHED = {"fill": "dash", "dash": [8, 6]}
DOTTED = {"fill": "dot", "dash": [2, 6]}
_ALONE = {"mode": "none", "group": "A"}
_LINE = {"color": fixed(PURPLE), "custom.stacking": _ALONE, "custom.fillOpacity": 0, "custom.lineWidth": 2}


def _rest(name: str) -> str:
    return f"sum({by(CARD, f'gpu_memory_{name}_bytes', _CARD)})"


def _on_card() -> Panel:
    held = f"sum by ({POD}) ({by(HOLDER, 'container_memory_used_bytes', _CARD)})"
    return curves(
        "Who is on $gpu",
        "One panel per chosen card: the use of its pods, stacked, then unattributed, residual (if above 0) and "
        "reserved memory. Together they are the memory in use; the line above is the size of the card. All its pods "
        "are shown, whichever pod is chosen above.",
        "bytes",
        Query(expr=held, legend="{{namespace}}/{{pod}}"),
        Query(expr=_rest("unattributed"), legend="unattributed"),
        Query(expr=f"clamp_min({_rest('residual')}, 0)", legend="residual"),
        Query(expr=_rest("reserved"), legend="reserved by the driver"),
        Query(expr=_rest("total"), legend="size of the card"),
        look={"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}},
        defaults={"min": 0},
        overrides=[
            override("unattributed", {"color": fixed(ORANGE)}),
            override("residual", {"color": fixed(GREY)}),
            override("reserved by the driver", {"color": fixed("#5a5a5a")}),
            override("size of the card", _LINE),
        ],
        repeat="gpu",
        height=10,
        width=24,
    )


def against(title: str, **more: Any) -> Panel:
    """A pod's use against what it declares and is allowed."""
    return curves(
        title,
        "The chosen pods: use (solid), limit (dashed), declared (dotted). Choose a single pod above. A gap: a part of"
        " its use was unknown.",
        "bytes",
        Query(expr=USED, legend=f"used: {ACCOUNT_TITLE}"),
        Query(expr=DECLARED, legend=f"declared: {ACCOUNT_TITLE}"),
        Query(expr=ALLOWED, legend=f"allowed: {ACCOUNT_TITLE}"),
        defaults={"min": 0},
        overrides=[
            override("/^declared: /", {"color": fixed(GREY), "custom.lineStyle": DOTTED}),
            override("/^allowed: /", {"color": fixed(PURPLE), "custom.lineStyle": _DASHED}),
            override("/^used: /", {"custom.lineWidth": 2}),
        ],
        height=10,
        **more,
    )


def _share() -> Panel:
    return curves(
        "Used of allowed, over time",
        "Use as a share of the limit. Above the red line an account is over; the thresholds of its rule are at or "
        "above it.",
        "percentunit",
        Query(expr=SHARE, legend=ACCOUNT_TITLE),
        look={"thresholdsStyle": {"mode": "line"}},
        defaults={"min": 0},
        steps=((None, "transparent"), (1, RED)),
        height=10,
    )


def _verdicts() -> Panel:
    colors = {"within": GREEN, "over": RED, "undeclared": YELLOW, "misdeclared": ORANGE, "unknown": BLUE}
    legend: Json = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    return curves(
        "Accounts by verdict, over time",
        "How many accounts of the chosen nodes were within, over, undeclared, misdeclared or unknown.",
        "short",
        Query(expr=f"sum by (verdict) ({by(f'{NODE}, verdict', 'accounts')})", legend="{{verdict}}"),
        look={"fillOpacity": 50, "stacking": {"mode": "normal", "group": "A"}},
        defaults={"min": 0, "decimals": 0},
        legend=legend,
        overrides=[override(name, {"color": fixed(color)}) for name, color in colors.items()],
        width=24,
        height=7,
    )


def over_time() -> Row:
    """Give the row."""
    return Row(
        title="Over time", panels=[_on_card(), against("Use against declared and allowed"), _share(), _verdicts()]
    )
