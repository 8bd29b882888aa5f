"""Python, the kernel, and this process's place and rights."""

from collections.abc import Iterable
from typing import Final

import watchdog.doctor.topics_system as topic
from watchdog.core.model import Gap, GapReason, PlaceKind
from watchdog.core.policy import Safety
from watchdog.doctor.facts import ProcessFacts, SystemFacts
from watchdog.doctor.finding import Finding
from watchdog.export.phrases import rfc3339

_LEAST_PYTHON: Final = (3, 11)
_LEAST_SQLITE: Final = (3, 37)
_EARLIEST_S: Final = 1735689600.0  # 2025-01-01, before the first version
# What the daemon keeps for everything else (node/processes.py), and pods that come in the meantime.
_SPARE: Final = 512


def check_system(facts: SystemFacts) -> Iterable[Finding]:
    """What Python and the kernel give to any process."""
    version = f"{facts.python[0]}.{facts.python[1]}"
    yield topic.PYTHON.say("new" if facts.python >= _LEAST_PYTHON else "old", version=version)
    sqlite = tuple(int(part) for part in facts.sqlite.split(".")[:2])
    yield topic.SQLITE.say("new" if sqlite >= _LEAST_SQLITE else "old", version=facts.sqlite)
    yield topic.CLOCK.say("there" if facts.has_boot_clock else "lacking")
    yield topic.BOOT_ID.say("there" if facts.boot_id else "lacking", boot_id=facts.boot_id)
    yield topic.WALL_CLOCK.say("sane" if facts.wall_s >= _EARLIEST_S else "wrong", now=rfc3339(facts.wall_s))
    yield topic.TIME_ZONES.say("there" if facts.has_time_zones else "lacking")


def check_processes(facts: ProcessFacts, safety: Safety, descriptors: int) -> Iterable[Finding]:
    """What this process sees of others, and may do to them."""
    foreign = "allowed" if safety.foreign_pid_namespace else "foreign"
    path = facts.procfs
    if facts.procfs_problem:
        yield topic.PROCFS.say("lacking", path=path, problem=facts.procfs_problem)
    else:
        yield topic.PROCFS.say("there", path=path)
        if facts.footing.procfs_is_own:
            yield topic.PID_NAMESPACE.say("host" if facts.footing.in_host_pid_namespace else foreign)
        yield topic.PROCFS_OWN.say("own" if facts.footing.procfs_is_own else "foreign", path=path)
        yield from _open(facts)
        yield from _cgroups(facts)
    yield from _signals(facts, safety)
    wanted = len(facts.listed) + _SPARE
    enough = descriptors >= wanted
    yield topic.DESCRIPTORS.say(
        "enough" if enough else "few", limit=descriptors, count=len(facts.listed), wanted=wanted
    )


def _open(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.PROCFS]
    for gap in gaps:
        yield topic.PROCFS_OPEN.say("gap", what=gap.what, **_split(gap))
    if facts.init_problem:
        yield topic.PROCFS_OPEN.say("hidden", path=facts.procfs, problem=facts.init_problem)
    elif not gaps:
        yield topic.PROCFS_OPEN.say("open", path=facts.procfs)


def _cgroups(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.CGROUP]
    for gap in gaps:
        yield topic.CGROUPS.say("gap", what=gap.what, **_split(gap))
    strange = [process for process in facts.listed.values() if process.place.kind is PlaceKind.CONTRADICTORY]
    for process in strange:
        yield topic.CGROUPS.say("strange", pid=process.pid)
    placed = [each for each in facts.listed.values() if each.place.kind in (PlaceKind.POD, PlaceKind.HOST)]
    pods = sum(process.place.kind is PlaceKind.POD for process in placed)
    if pods:
        yield topic.CGROUPS.say("pods", pods=pods, hosts=len(placed) - pods)
    elif placed:
        yield topic.CGROUPS.say("none", count=len(placed), pid=min(process.pid for process in placed))


def _signals(facts: ProcessFacts, safety: Safety) -> Iterable[Finding]:
    missing = facts.footing.pidfd_missing
    if missing is None:
        yield topic.PIDFD.say("there")
    else:
        said, _, remedy = missing.partition("; ")
        case = "allowed" if safety.signal_without_pidfd else "lacking"
        yield topic.PIDFD.say(case, said=said, remedy=remedy or "look at the kernel and its sandbox")
    if not facts.footing.may_signal_others:
        yield topic.CAP_KILL.say("lacking")
    else:
        yield topic.CAP_KILL.say("there" if facts.in_first_user_namespace else "namespaced")


def _split(gap: Gap) -> dict[str, str]:
    said, _, remedy = gap.why.partition("; ")
    return {"said": said, "remedy": remedy or "run as root"}
