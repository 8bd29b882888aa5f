"""What a run has met: a table of the situations, since a law that was never put to the test holds for nothing."""

from collections.abc import Iterable
from typing import Final

from tests.soak.run import Tally

# What the simulation does to the daemon, so that even a run of some minutes must have met it, as `Book.seen` counts it.
INJECTED: Final = (
    *("daemon started", "daemon stopped", "kill -9 between", "kill -9 in the middle", "reboot"),
    *("policy changed", "policy is being written", "policy written slowly", "started by half a policy"),
    *("stop file made", "driver speed", "wall clock jumped", "suspended"),
    *("disk full", "disk speed", "disk stalled", "disk stalled too long"),
    *(f"journal {how} under the daemon" for how in ("removed", "removed with its lock", "emptied", "replaced")),
    *(f"journal {how} between daemons" for how in ("damaged", "missing", "emptied", "removed with its lock")),
    *("pod came", "pod went", "pod went by force", "pod came back", "pod terminates", "pod changed", "drained"),
    *("pod requests what the node does not list", "node dropped its resources", "node lists its resources again"),
    *("pods linger", "container restarted", "stampede", "the list lacks a pod", "dips", "memory moves"),
    *("pod was hidden by force", "fat pods came"),
    *("labels and annotations toggle", "label toggled", "annotation toggled"),
    *("node labels disappeared", "node labels are back", "pod list frozen"),
    *("container got a new ID", "phase turned to main", "phase turned to init", "ephemeral container came"),
    *("container not in the list", "container overdue", "containers became known"),
    *("memory went to another process", "PID recycled", "lie", "saver forked", "SIGTERM to one that joined"),
    *("NVML blind", "card silent of one process"),
    *("card well", "card unlisted", "card contradictory", "card numberless", "card lost"),
    *("card lost across a restart", "daemon started without a card"),
    *("MPS server on the host", "MPS server in a DaemonSet's pod", "MPS server for its own pod", "MPS server ended"),
    "a tenant's MPS server looks like the system's",
)
# What a long run must have met at least once.
SITUATIONS: Final = (
    *INJECTED,
    *("cycle", "bright reading", "last look", "last look too late", "intended", "withdrawn"),
    *("action", "SIGTERM", "SIGKILL", "grace ran out", "hastened", "interrupted", "failed", "not released"),
    *("scope process", "scope container", "scope pod", "killed before its deadline"),
    "killed after it left",
    *("warn done", "warn observed", "kill done", "kill failed", "kill withdrawn", "kill interrupted", "kill observed"),
    *("evict failed", "evict observed"),
    *("withheld protected", "withheld pending", "withheld stale", "withheld owner", "withheld owner_backoff"),
    *("withheld namespace", "withheld node", "withheld breaker", "withheld journal", "withheld unknown_container"),
    *("memory changed hands", "scope process of one that ended"),
    *("client drained", "drained client signalled", "worker replaced"),
    *("withheld mps", "own client signalled", "neighbours broke", "breaker opened", "enforcement began"),
    *("policy written", "stop file removed", "disk has room", "pod list fresh", "pod allowed more", "NVML sees"),
    *("race: look", "race: members", "race: signal", "race: intend", "race: intended", "race: between the looks"),
)


def missing(total: Tally, situations: Iterable[str] = SITUATIONS) -> list[str]:
    return [name for name in situations if not total.seen[name]]


def table(total: Tally) -> str:
    rate = 1000 * total.seconds / max(total.steps, 1)
    head = f"{total.steps} steps in {total.episodes} episodes, {total.seconds:.0f} s of CPU, {rate:.2f} ms a step"
    names = [*SITUATIONS, *sorted(total.seen.keys() - set(SITUATIONS))]
    return "\n".join([head, *(f"{total.seen[name]:>9}  {name}" for name in names)])
