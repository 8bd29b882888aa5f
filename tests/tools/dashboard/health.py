"""The watchdog itself: whether it enforces and keeps up, how fast it is, what it takes of the node."""

from typing import Final

from tests.tools.dashboard.kinds import curves, stat, states, table
from tests.tools.dashboard.panels import (
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
from tests.tools.dashboard.queries import JOB, NODE, ON_NODES, by, metric, quantile

_TEXT: Final = {"custom.cellOptions": {"type": "color-text"}}
_COLUMNS: Final = {
    "cluster": "Cluster",
    "node": "Node",
    "version": "Version",
    "mode": "Mode",
    "Value #C": "Force",
    "Value #D": "Suspended",
    "Value #E": "Breaker",
    "Value #F": "Last pass, age",
    "Value #G": "Pod list, age",
    "Value #H": "Policy on disk",
    "Value #I": "Policy in force, age",
}
_NO_DEED: Final = "none in this time range, or unknown"


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
        "A row for each node. Mode is what the policy says, Force is what is done. Suspended: how many reasons keep "
        "it from enforcing (the graph below names them). Force stays as it was while a call into the driver hangs: "
        "nothing is done then, and the age of the last pass grows. The ages say when the last pass looked and when "
        "the pod list was last true; no force is used on a list older than stale_after (3 minutes unless the policy "
        "says otherwise).",
        "short",
        _COLUMNS,
        *(Query(expr=expr, instant=True, table=True) for expr in _exprs()),
        hidden=("Value #A", "Value #B"),
        sort="Last pass, age",
        overrides=[
            override("Force", _words({"0": ("observes", BLUE), "1": ("enforces", GREEN)})),
            override("Suspended", {**_TEXT, "thresholds": limits((None, GREEN), (1, RED))}),
            override("Breaker", _words({"0": ("closed", GREEN), "1": ("open", RED)})),
            override("Last pass, age", _seconds((None, GREEN), (15, YELLOW), (60, RED))),
            override("Pod list, age", _seconds((None, GREEN), (60, YELLOW), (180, RED))),
            override("Policy on disk", _words({"0": ("not in effect", RED), "1": ("good", GREEN)})),
            override("Policy in force, age", _seconds((None, "text"))),
        ],
    )


def _states() -> list[Panel]:
    return [
        states(
            "Enforcement and the breaker",
            "Whether a node was enforcing, and whether the breaker held it back. It stays as it was while "
            "a call into the driver hangs, when no action is taken: look at the age of the last pass beside "
            "it.",
            {"0": ("observes", BLUE), "1": ("enforces", GREEN), "2": ("closed", "dark-green"), "3": ("open", RED)},
            Query(expr=by(NODE, "enforcing"), legend="{{node}} force"),
            Query(expr=f"2 + {by(NODE, 'breaker_open')}", legend="{{node}} breaker"),
        ),
        states(
            "Told to enforce, and not: why",
            "The reasons that kept a node from enforcing although its policy says so. docs/operations.md has each with "
            "its remedy.",
            {"1": ("suspended", RED)},
            Query(expr=by(f"{NODE}, reason", "enforcement_suspended"), legend="{{node}}: {{reason}}"),
            none="nothing is suspended, or unknown",
        ),
    ]


def _ages() -> list[Panel]:
    line = {"thresholdsStyle": {"mode": "line"}}
    return [
        curves(
            "Last pass, age",
            "How long ago the last finished pass looked. It grows where a watchdog hangs or where it is gone: then the "
            "line ends.",
            "s",
            Query(expr=_age("last_cycle_timestamp_seconds"), legend="{{node}}"),
            look=line,
            steps=((None, "transparent"), (60, RED)),
            defaults={"min": 0},
            width=8,
        ),
        curves(
            "Pod list, age",
            "How long ago the pod list was last known to be true. Beyond stale_after (180 s, the red line) no force is "
            "used.",
            "s",
            Query(expr=_age("pods_last_sync_timestamp_seconds"), legend="{{node}}"),
            look=line,
            steps=((None, "transparent"), (180, RED)),
            defaults={"min": 0},
            width=8,
        ),
        curves(
            "Policy on disk",
            "1 while the policy file, when last read, was good; 0 while it has errors or has not settled, and the one "
            "before it stays in force.",
            "short",
            Query(expr=by(NODE, "policy_last_reload_successful"), legend="{{node}}"),
            defaults={"min": 0, "max": 1, "decimals": 0},
            look={"lineInterpolation": "stepAfter"},
            width=8,
        ),
    ]


def _speed() -> list[Panel]:
    actions = "$__range"
    return [
        curves(
            "Duration of a pass",
            "99 of 100 passes took no longer: the whole pass, and of it the reading of the node.",
            "s",
            Query(expr=quantile("0.99", NODE, "cycle_duration_seconds"), legend="{{node}} pass"),
            Query(expr=quantile("0.99", NODE, "scan_duration_seconds"), legend="{{node}} reading"),
            defaults={"min": 0},
        ),
        stat(
            "Reaction, p99",
            "From the last reading that was not above the mark, plus the step's `for`, to the act: 99 of 100 were no "
            "slower. An upper bound, since the mark was crossed somewhere in between. Over the time range, by action.",
            "s",
            Query(expr=quantile("0.99", "action", "reaction_seconds", actions), legend="{{action}}", instant=True),
            width=6,
            height=9,
            text="value_and_name",
            none=_NO_DEED,
            steps=((None, GREEN), (5, YELLOW), (30, RED)),
        ),
        stat(
            "Release, p50 and p99",
            "From the first signal to the memory seen free, the grace included. Over the time range.",
            "s",
            Query(expr=quantile("0.5", "", "release_seconds", actions), legend="p50", instant=True),
            Query(expr=quantile("0.99", "", "release_seconds", actions), legend="p99", instant=True),
            width=6,
            height=9,
            text="value_and_name",
            none=_NO_DEED,
            steps=((None, GREEN), (15, YELLOW), (60, ORANGE)),
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
            "Share of one core that the daemon's process takes.",
            "percentunit",
            Query(expr=cpu, legend="{{node}}"),
            defaults={"min": 0},
            width=8,
        ),
        table(
            "Policies in force",
            "How many nodes run which policy. More than one row of a mode means that not every node has the same text.",
            "short",
            {"mode": "Mode", "sha256": "Policy (SHA-256)", "Value": "Nodes"},
            Query(
                expr=f"count by (mode, sha256) ({by(f'{NODE}, mode, sha256', 'policy_info')})", instant=True, table=True
            ),
            sort="Nodes",
            width=8,
        ),
    ]


def health() -> Row:
    """Give the row."""
    return Row(title="Health of the watchdog", panels=[_nodes(), *_states(), *_ages(), *_speed(), *_own()])
