"""The watchdog itself: whether it enforces and keeps up, how fast it is, what it takes of the node."""

from typing import Final

from tools.dashboard.kinds import bars, curves, heads, stat, states, table
from tools.dashboard.panels import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Json,
    Panel,
    Query,
    Row,
    limits,
    mapping,
    override,
)
from tools.dashboard.queries import JOB, NODE, ON_NODES, by, metric, quantile

_TEXT: Final = {"custom.cellOptions": {"type": "color-text"}}
_COLUMNS: Final = {
    **heads("cluster", "node", "version", "mode"),
    "Value #C": "Enforcement",
    "Value #D": "Suspended",
    "Value #E": "Breaker",
    "Value #F": "Age of the last cycle",
    "Value #G": "Age of the pod list",
    "Value #H": "Policy file",
    "Value #I": "Age of the loaded policy",
}
_NO_ACTION: Final = "none in this time range, or unknown"


def _words(values: dict[str, tuple[str, str]]) -> Json:
    return {**_TEXT, "mappings": mapping(values), "unit": "short"}


def _seconds(*steps: tuple[float | None, str]) -> Json:
    return {**_TEXT, "unit": "s", "decimals": 0, "thresholds": limits(*steps)}


def _age(name: str) -> str:
    return f"time() - {by(NODE, name)}"


def _exprs() -> tuple[str, ...]:
    suspended = f"count by ({NODE}) ({metric('enforcement_suspended')} == 1) or 0 * {by(NODE, 'enforcing')}"
    return (
        by(f"{NODE}, version", "build_info"),
        by(f"{NODE}, mode", "policy_info"),
        by(NODE, "enforcing"),
        suspended,
        by(NODE, "breaker_open"),
        _age("last_cycle_timestamp_seconds"),
        _age("pods_last_sync_timestamp_seconds"),
        by(NODE, "policy_last_reload_successful"),
        _age("policy_last_reload_success_timestamp_seconds"),
    )


def _nodes() -> Panel:
    return table(
        "Watchdogs",
        "One row per node. Mode is what the policy says, Enforcement what is done. Suspended: how many reasons "
        "prevent enforcement (listed below). While a call into the driver hangs, Enforcement keeps its value although"
        " no action is taken, and the age of the last cycle grows. On a pod list older than stale_after (3 minutes by"
        " default) nothing is enforced.",
        "short",
        _COLUMNS,
        *_exprs(),
        hidden=("Value #A", "Value #B"),
        sort="Age of the last cycle",
        overrides=[
            override("Enforcement", _words({"0": ("observes", BLUE), "1": ("enforces", GREEN)})),
            override("Suspended", {**_TEXT, "thresholds": limits((None, GREEN), (1, RED))}),
            override("Breaker", _words({"0": ("closed", GREEN), "1": ("open", RED)})),
            override("Age of the last cycle", _seconds((None, GREEN), (15, YELLOW), (60, RED))),
            override("Age of the pod list", _seconds((None, GREEN), (60, YELLOW), (180, RED))),
            override("Policy file", _words({"0": ("not in effect", RED), "1": ("good", GREEN)})),
            override("Age of the loaded policy", _seconds((None, "text"))),
        ],
    )


def _states() -> list[Panel]:
    return [
        states(
            "Enforcement and the breaker",
            "Whether a node was enforcing, and whether its breaker was open. Both keep their value while a call into "
            "the driver hangs, although no action is taken then: see the age of the last cycle.",
            {"0": ("observes", BLUE), "1": ("enforces", GREEN), "2": ("closed", "dark-green"), "3": ("open", RED)},
            Query(expr=by(NODE, "enforcing"), legend="{{node}} enforcement"),
            Query(expr=f"2 + {by(NODE, 'breaker_open')}", legend="{{node}} breaker"),
        ),
        states(
            "Why enforcement is suspended",
            "Why a node did not enforce although its policy says so. docs/troubleshooting.md has each reason with "
            "its remedy.",
            {"1": ("suspended", RED)},
            Query(expr=by(f"{NODE}, reason", "enforcement_suspended"), legend="{{node}}: {{reason}}"),
            none="not suspended, or unknown",
        ),
    ]


def _ages() -> list[Panel]:
    ages = (
        (
            "Age of the last cycle",
            "Time since the last completed cycle. It grows while a watchdog hangs; if it is gone, the line ends.",
            "last_cycle_timestamp_seconds",
            60,
        ),
        (
            "Age of the pod list",
            "Time since the pod list was last confirmed. Beyond stale_after (180 s, the red line) nothing is enforced.",
            "pods_last_sync_timestamp_seconds",
            180,
        ),
        (
            "Age of the maintenance",
            "How long the GPUs of a node have been under maintenance. The line is the default of alert_after.",
            "maintenance_since_timestamp_seconds",
            3600,
        ),
    )
    return [
        *(
            curves(
                title,
                description,
                "s",
                Query(expr=_age(name), legend="{{node}}"),
                look={"thresholdsStyle": {"mode": "line"}},
                steps=((None, "transparent"), (limit_s, RED)),
                defaults={"min": 0},
                width=8,
            )
            for title, description, name, limit_s in ages
        ),
        curves(
            "Policy file",
            "1 if the policy file is valid; 0 while it has errors or is still being written, and the previous version"
            " stays in effect.",
            "short",
            Query(expr=by(NODE, "policy_last_reload_successful"), legend="{{node}}"),
            defaults={"min": 0, "max": 1, "decimals": 0},
            look={"lineInterpolation": "stepAfter"},
            width=8,
        ),
    ]


def _pulse() -> list[Panel]:
    return [
        curves(
            "Pulse",
            "1 while memory counters are read between readings; 0 while they are not although the policy has [pulse], "
            "as where nothing is enforced, or where reading them takes too long.",
            "short",
            Query(expr=by(NODE, "pulse_active"), legend="{{node}}"),
            defaults={"min": 0, "max": 1, "decimals": 0},
            look={"lineInterpolation": "stepAfter"},
            width=8,
            none="no [pulse], or unknown",
        ),
        bars(
            "Rises without a look",
            "Rises of memory counters that brought no reading forward at once, since the looks of their cards were "
            "spent. The log names the cards.",
            NODE,
            "pulse_looks_spent_total",
            "{{node}}",
            none="no rise had to wait",
        ),
    ]


def _speed() -> list[Panel]:
    look: Json = {"width": 6, "height": 9, "text": "value_and_name", "none": _NO_ACTION}
    return [
        curves(
            "Duration of a cycle",
            "99th percentile: the whole cycle, and the reading of the node as a part of it.",
            "s",
            Query(expr=quantile("0.99", NODE, "cycle_duration_seconds"), legend="{{node}} cycle"),
            Query(expr=quantile("0.99", NODE, "scan_duration_seconds"), legend="{{node}} reading"),
            defaults={"min": 0},
        ),
        stat(
            "Reaction, p99",
            "99th percentile by action over the time range: from the last reading not above the threshold, plus the "
            "step's `for`, to the action. An upper bound, since the threshold was crossed somewhere in between.",
            "s",
            Query(expr=quantile("0.99", "action", "reaction_seconds", "$__range"), legend="{{action}}", instant=True),
            steps=((None, GREEN), (5, YELLOW), (30, RED)),
            **look,
        ),
        stat(
            "Release, p50 and p99",
            "From the first signal until the memory is free, including the grace period. Over the time range.",
            "s",
            Query(expr=quantile("0.5", "", "release_seconds", "$__range"), legend="p50", instant=True),
            Query(expr=quantile("0.99", "", "release_seconds", "$__range"), legend="p99", instant=True),
            steps=((None, GREEN), (15, YELLOW), (60, ORANGE)),
            **look,
        ),
    ]


def _own() -> list[Panel]:
    where = f"{{{JOB}, {ON_NODES}}}"
    cpu = f"max by ({NODE}) (rate(process_cpu_seconds_total{where}[$__rate_interval]))"
    return [
        curves(
            "Memory of the watchdog",
            "Resident memory of the daemon's process.",
            "bytes",
            Query(expr=f"max by ({NODE}) (process_resident_memory_bytes{where})", legend="{{node}}"),
            defaults={"min": 0},
            width=8,
        ),
        curves(
            "CPU of the watchdog",
            "Share of one core that the daemon's process uses.",
            "percentunit",
            Query(expr=cpu, legend="{{node}}"),
            defaults={"min": 0},
            width=8,
        ),
        table(
            "Policies in effect",
            "Nodes by policy. More than one row per mode: not every node has the same policy.",
            "short",
            {"mode": "Mode", "sha256": "Policy (SHA-256)", "Value": "Nodes"},
            f"count by (mode, sha256) ({by(f'{NODE}, mode, sha256', 'policy_info')})",
            sort="Nodes",
            width=8,
        ),
    ]


def health() -> Row:
    """Give the row."""
    return Row(title="Health of the watchdog", panels=[_nodes(), *_states(), *_ages(), *_pulse(), *_speed(), *_own()])
