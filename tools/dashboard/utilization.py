"""Utilization and idle memory: what computes, and who holds memory without computing."""

from typing import Final

from tools.dashboard.kinds import curves, heads, history, share_cell, table
from tools.dashboard.panels import BLUE, GREEN, GREY, ORANGE, RED, YELLOW, Panel, Query, Row, fixed, mapping, override
from tools.dashboard.pods import USED
from tools.dashboard.queries import (
    ACCOUNT,
    CARD,
    CARD_TITLE,
    HOLDER,
    NODE,
    OF_PODS,
    ON_NODES,
    PLACE_TITLE,
    by,
    metric,
    titled,
)

_SHADES: Final = ((None, GREY), (0.01, "super-light-blue"), (0.25, "light-blue"), (0.5, BLUE), (0.9, "dark-blue"))
_IDLE: Final = f"{by(ACCOUNT, 'account_idle_seconds', OF_PODS)} > 0"
_UNKNOWN: Final = "A gap: unknown, as on MIG instances, in vGPU guests, and where the driver does not report it."

_TEXT: Final = {"custom.cellOptions": {"type": "color-text"}}
_STATES: Final = 'state=~"computing|idle"'
_HELD: Final = 'state="held"'


def _graphs() -> list[Panel]:
    return [
        history(
            "Utilization, by card",
            f"Share of the time in which each card computed; grey is idle. {_UNKNOWN}",
            "percentunit",
            Query(expr=titled(by(CARD, "gpu_utilization_ratio")), legend=CARD_TITLE),
            steps=_SHADES,
        ),
        curves(
            "Utilization, by container",
            f"Share of a card's time that the processes of each container used. {_UNKNOWN}",
            "percentunit",
            Query(expr=titled(by(HOLDER, "container_gpu_utilization_ratio", OF_PODS)), legend=PLACE_TITLE),
            defaults={"min": 0, "max": 1},
        ),
    ]


def _idle() -> Panel:
    policy = f"({_IDLE}) >= on ({NODE}) group_left () {by(NODE, 'idle_after_seconds')}"
    return table(
        "Idle memory",
        "Accounts that hold memory and have computed nothing for some time, as far as that is known; longest first. "
        "Reported: for as long as the policy says (`[idle] after`), so that there is an Event and an alert. No action "
        "is taken.",
        "bytes",
        {
            **heads("cluster", "node", "namespace", "pod", "container"),
            "gpu": "GPU",
            "rule": "Rule",
            "Value #A": "Idle for",
            "Value #B": "Used",
            "Value #C": "Reported",
        },
        _IDLE,
        f"{USED} and {_IDLE}",
        f"({policy}) * 0 + 1",
        sort="Idle for",
        none="no idle memory, or unknown",
        overrides=[
            override("Idle for", {"unit": "s", "decimals": 0}),
            override(
                "Reported", {"mappings": mapping({"1": ("yes", ORANGE)}), "noValue": "no", "unit": "short", **_TEXT}
            ),
        ],
    )


def _hours(state: str) -> str:
    seconds = metric("namespace_card_seconds_total", f'{ON_NODES}, namespace=~"$namespace"', f'state="{state}"')
    return f"sum by (cluster, namespace) (increase({seconds}[$__range])) / 3600"


def _card_hours() -> Panel:
    hours = {"unit": "short", "decimals": 2}
    share = share_cell(1, ((None, GREEN), (0.5, YELLOW), (0.9, RED)))
    return table(
        "Card-hours, by namespace",
        "Cards times hours in this time range: what pods held, as a share of each card's memory, and how much of that "
        "computed or was idle. The rest is unknown. Times the price of a card-hour, idle is what it cost.",
        "short",
        {
            **heads("cluster", "namespace"),
            "Value #A": "Held",
            "Value #B": "Computing",
            "Value #C": "Idle",
            "Value #D": "Idle, share",
        },
        *(_hours(state) for state in ("held", "computing", "idle")),
        # Both are estimated at the ends of the range.
        f"clamp_max({_hours('idle')} / ({_hours('held')} > 0), 1)",
        sort="Idle",
        none="nothing was held, or unknown",
        overrides=[*(override(name, hours) for name in ("Held", "Computing", "Idle")), override("Idle, share", share)],
    )


def _spent() -> Panel:
    colors = {"computing": BLUE, "idle": ORANGE}
    query = f"sum by (state) (rate({metric('namespace_card_seconds_total', ON_NODES, _STATES)}[$__rate_interval]))"
    return curves(
        "Cards held, computing and idle",
        "How many whole cards the pods of the chosen nodes held between them: computing and idle, stacked. What is "
        "missing to the line is unknown.",
        "short",
        Query(expr=query, legend="{{state}}"),
        Query(
            expr=f"sum(rate({metric('namespace_card_seconds_total', ON_NODES, _HELD)}[$__rate_interval]))",
            legend="held",
        ),
        look={"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}},
        defaults={"min": 0},
        overrides=[
            *(override(name, {"color": fixed(color)}) for name, color in colors.items()),
            override("held", {"custom.stacking": {"mode": "none", "group": "A"}, "custom.fillOpacity": 0}),
        ],
        step="1m",
        width=24,
        height=8,
    )


def utilization() -> Row:
    """Give the row."""
    return Row(title="Utilization and idle memory", panels=[*_graphs(), _idle(), _card_hours(), _spent()])
