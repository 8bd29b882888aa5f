"""Writes deploy/grafana/gpu-memory-watchdog.json: the Grafana dashboard, from a few dozen short descriptions of panels.

The JSON is some 3,000 lines in which every panel repeats the same forty; written by hand, two panels soon differ where
that was not meant. `queries` has the words of which the PromQL is made, `panels` how a panel looks as JSON, `grid`
its place, and one module each has a row: its queries, and the words that explain them.
"""

from typing import Final

# Events need the API; the dashboard's other numbers of a pod are those of its accounts. What is withheld now is for
# alerts: the dashboard counts what was.
NOT_SHOWN: Final = {
    "gpu_watchdog_events",
    "gpu_watchdog_account_memory_used_beside_bytes",
    "gpu_watchdog_account_withheld",
    "gpu_watchdog_cycle_late",  # "Gaps, by reason" shows it
    "gpu_watchdog_maintenance_alert_after_seconds",
}
