"""The NVIDIA driver: can it be reached, and does it tell what observing needs."""

from collections.abc import Iterable
from typing import Final

import watchdog.doctor.topics_driver as topic
from watchdog.core.model import Gap, GapReason
from watchdog.doctor.facts import DriverFacts
from watchdog.doctor.finding import Finding, Topic

_MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_ENTRY: Final = 24


def check_driver(facts: DriverFacts) -> Iterable[Finding]:
    """From the library to the numbers per process; what can't be seen because of what stands before is left out."""
    library, reading = facts.library, facts.reading
    if facts.maintenance is not None:
        yield topic.DRIVER.say("let_go", why=facts.maintenance)
        return
    if library is None:
        yield topic.DRIVER.say("hangs", why=_problem(reading.gaps))
        return
    if library.path is None:
        yield _library(facts)
        return
    yield topic.LIBRARY.say("found", path=library.path)
    if library.failure is not None:
        stale = library.failure.code == _MISMATCH
        where = topic.VERSION if stale else topic.DRIVER
        yield where.say("differs" if stale else "fails", said=library.failure.said, remedy=library.failure.remedy)
        return
    if reading.blind:
        yield topic.DRIVER.say("fails", **_split(reading.gaps[0]))
        return
    yield topic.DRIVER.say("answers", version=reading.driver or "of an unknown version")
    yield topic.VERSION.say("fits", library=library.version)
    yield from _cards(facts)


def _library(facts: DriverFacts) -> Finding:
    assert facts.library is not None
    problem, elsewhere = facts.library.problem, facts.library.elsewhere
    searched = facts.searched or "not set"
    if "cannot open shared object file" not in problem or "libnvidia-ml" not in problem.partition(":")[0]:
        return topic.LIBRARY.say("broken", problem=problem)
    if elsewhere:
        return topic.LIBRARY.say("elsewhere", searched=searched, folder=elsewhere[0])
    return topic.LIBRARY.say("absent", searched=searched)


def _cards(facts: DriverFacts) -> Iterable[Finding]:
    reading = facts.reading
    if not (reading.gpus or reading.parents or reading.unseen or reading.gaps):
        yield topic.GPUS.say("none")
        return
    names = sorted({gpu.name or "without a name" for gpu in reading.gpus})
    yield topic.GPUS.say("found", count=len(reading.gpus), names=", ".join(names) or "none that answers")
    yield from _up(facts)
    yield from _of_gaps(facts, topic.MIG, (GapReason.MIG,), "fails" if facts.has_capability_devices else "no_device")
    if reading.parents and not any(gap.reason is GapReason.MIG for gap in reading.gaps):
        instances = [gpu for gpu in reading.gpus if gpu.parent is not None]
        if instances:
            yield topic.MIG.say("read", instances=len(instances), cards=len(reading.parents))
        else:
            yield topic.MIG.say("empty", cards=len(reading.parents))
    yield from _of_gaps(facts, topic.LISTS, (GapReason.PROCESSES,))
    if not any(gap.reason in (GapReason.PROCESSES, GapReason.MIG) for gap in reading.gaps) and not reading.unseen:
        yield topic.LISTS.say("answer")
    yield from _entries(facts)
    yield from _numbers(facts)
    yield from _memory(facts)


def _up(facts: DriverFacts) -> Iterable[Finding]:
    reading = facts.reading
    gaps = [gap for gap in reading.gaps if gap.reason in (GapReason.GPU_LOST, GapReason.GPU_ERROR)]
    some = any(gpu.up for gpu in reading.gpus)
    down = {gpu.uuid for gpu in reading.gpus if not gpu.up} | reading.unseen
    for gap in _first_of_each(gaps):
        is_down = (gap.gpu or gap.what) in down or gap.reason is GapReason.GPU_LOST
        # Of a GPU that was never listed nobody knows who is on it, so no account is known as long as it is there.
        case = "unnamed" if not is_down else "unseen" if gap.what in reading.unseen else "one" if some else "all"
        yield topic.UP.say(case, gpu=gap.what, **_split(gap))
    if not gaps:
        yield topic.UP.say("up")


def _of_gaps(
    facts: DriverFacts, where: Topic, reasons: tuple[GapReason, ...], case: str = "fails"
) -> Iterable[Finding]:
    for gap in _first_of_each([gap for gap in facts.reading.gaps if gap.reason in reasons]):
        yield where.say(case, gpu=gap.what, **_split(gap))


def _entries(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.CONTRADICTION]
    for gap in _first_of_each(gaps):
        yield topic.ENTRIES.say("contradict", gpu=gap.what, why=gap.why)
    entry = facts.library.entry if facts.library is not None else None
    if not gaps and entry is not None:
        yield topic.ENTRIES.say("usual" if entry == _ENTRY else "larger", size=entry)


def _numbers(facts: DriverFacts) -> Iterable[Finding]:
    listed = {gpu.uuid for gpu in facts.reading.gpus if gpu.listed}
    uses = [use for use in facts.reading.uses if use.gpu in listed]
    unknown = sum(use.used is None for use in uses)
    yield from _virtual(facts, is_told=unknown < len(uses))
    if uses and unknown == len(uses):
        yield topic.NUMBERS.say("none", count=len(uses))
    elif unknown:
        yield topic.NUMBERS.say("some", unknown=unknown, count=len(uses))
    elif uses:
        yield topic.NUMBERS.say("given", count=len(uses))
    elif listed and not facts.windows:
        yield topic.NUMBERS.say("idle")


def _virtual(facts: DriverFacts, *, is_told: bool) -> Iterable[Finding]:
    """Machines where the driver may leave out what single processes use; one that tells it is as good as any."""
    if facts.windows:
        yield topic.VIRTUAL.say("windows_tells" if is_told else "windows", sign=facts.windows)
    for gpu in facts.vgpus:
        yield topic.VIRTUAL.say("vgpu_tells" if is_told else "vgpu", gpu=gpu)
    if not facts.windows and not facts.vgpus:
        yield topic.VIRTUAL.say("whole")


def _memory(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.MEMORY]
    for gap in _first_of_each(gaps):
        yield topic.MEMORY.say("fails", gpu=gap.what, **_split(gap))
    failed = {gap.gpu for gap in gaps}
    rows = [gpu for gpu in facts.reading.gpus if gpu.up and gpu.uuid not in failed]
    for gpu in rows:
        if gpu.total is None:
            yield topic.MEMORY.say("unified", gpu=gpu.uuid)
    if rows and not gaps and all(gpu.total is not None for gpu in rows):
        yield topic.MEMORY.say("counted")


def _first_of_each(gaps: list[Gap]) -> Iterable[Gap]:
    """One gap a GPU: what follows the first has mostly the same cause."""
    return {gap.gpu or gap.what: gap for gap in reversed(gaps)}.values()


def _split(gap: Gap) -> dict[str, str]:
    said, _, remedy = gap.why.partition("; ")
    return {"said": said, "remedy": remedy or "it is tried again with every pass"}


def _problem(gaps: Iterable[Gap]) -> str:
    return next((gap.why.partition(":")[0] for gap in gaps), "no answer")
