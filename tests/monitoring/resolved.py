"""A pod is told as over its limit, then killed: until the end of the first is told, with everything real.

`python -m tests.monitoring.resolved` goes it at the pace that ships and prints when what was told: 13 minutes. Only the
five minutes that GPUMemoryOverLimit waits are cut. Prometheus tells an end for 15 minutes of real time, so nothing is
gained by a quicker pace; tests/monitoring/test_resolved.py has what can be had quickly.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.monitoring.chain import AS_SHIPPED, Chain, Link, chain, go_over, table
from tests.monitoring.notifying import told_for_s
from tests.stub import GIB

_PACE: Final = replace(AS_SHIPPED, waits={"GPUMemoryOverLimit": "10s"})
_DEED: Final = 'gpu_watchdog_pod_last_action_timestamp_seconds{action="kill", result="done"}'
# An evaluation, and what one group of alerts waits for its next message (group_interval).
_LATE_S: Final = 60.0 + 300.0


def go_resolved(run: Chain, name: str) -> list[Link]:
    """Let a pod be told as over its limit, then be killed, until the end of the first is told: when what was."""
    pod, tenant, over, _ = go_over(run, name, limit_s=240)
    run.allocate(tenant, 2 * GIB)
    killed = run.wait_told("GPUMemoryPodKilled", pod, limit_s=240)
    at = run.prometheus.value(_DEED)
    limit_s = told_for_s("GPUMemoryPodKilled") + _LATE_S
    resolved = run.wait_told("GPUMemoryOverLimit", pod, status="resolved", limit_s=limit_s)
    assert resolved.labels == over.labels
    return [
        Link(name="over told to kill", took_s=at - over.at),
        Link(name="kill to kill told", took_s=killed.at - at),
        Link(name="kill told to end told", took_s=resolved.at - killed.at),
    ]


def main() -> int:
    """The way at the pace that ships."""
    with tempfile.TemporaryDirectory(prefix="resolved-") as folder, chain(Path(folder), _PACE) as run:
        print(table("over its limit, then killed, at the pace that ships", go_resolved(run, "batch")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
