"""What a run has met: a table of the situations, since a law that was never put to the test holds for nothing."""

from typing import Final

from tests.soak.run import Tally

# What a long run must have met at least once, as `Book.seen` counts it.
SITUATIONS: Final = (
    *("pass", "bright reading", "last look", "last look too late", "intended", "withdrawn"),
    *("deed", "SIGTERM", "SIGKILL", "grace ran out", "hastened", "interrupted", "failed", "not released"),
    *("scope process", "scope container", "scope pod"),
    *("warn done", "warn observed", "kill done", "kill failed", "kill withdrawn", "kill interrupted", "kill observed"),
    *("evict failed", "evict observed"),
    *("withheld protected", "withheld pending", "withheld stale", "withheld owner", "withheld owner_backoff"),
    *("withheld namespace", "withheld node", "withheld breaker", "withheld journal", "withheld unknown_container"),
    *("withheld mps", "MPS server started", "MPS server ended"),
    *("breaker opened", "enforcement began"),
    *("daemon started", "daemon stopped", "kill -9 between", "kill -9 in the middle", "reboot"),
    *(
        "policy changed",
        "policy is being written",
        "policy written",
        "started by half a policy",
        "stop file made",
        "stop file removed",
        "disk full",
        "disk has room",
        "driver speed",
        "disk speed",
    ),
    *("wall clock jumped", "suspended"),
    *("saver forked", "killed before its deadline"),
    *(
        "pod came",
        "pod went",
        "pod came back",
        "pod terminates",
        "pod changed",
        "labels and annotations toggle",
        "container restarted",
        "drained",
        "pods linger",
    ),
    *("containers became known", "pod list frozen", "pod list fresh", "stampede"),
    *("PID recycled", "lie", "NVML blind", "NVML sees", "card silent of one process"),
    *("card well", "card unlisted", "card contradictory", "card numberless", "card lost"),
    *("race: look", "race: members", "race: signal", "race: intend", "race: intended", "race: between the looks"),
)


def missing(total: Tally) -> list[str]:
    """The situations that were never met."""
    return [name for name in SITUATIONS if not total.seen[name]]


def table(total: Tally) -> str:
    """The run in figures."""
    rate = 1000 * total.seconds / max(total.steps, 1)
    head = f"{total.steps} steps in {total.episodes} episodes, {total.seconds:.0f} s of CPU, {rate:.2f} ms a step"
    names = [*SITUATIONS, *sorted(total.seen.keys() - set(SITUATIONS))]
    return "\n".join([head, *(f"{total.seen[name]:>9}  {name}" for name in names)])
