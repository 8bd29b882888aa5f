"""Checks of the NVIDIA driver and its library, each with what it says."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import DriverFacts
from watchdog.cli.doctor.finding import Finding, Topic, missing, ok, remedied, warning
from watchdog.core.model import Gap, GapReason

LIBRARY: Final = Topic(
    name="nvml_library",
    means="The NVML library, `libnvidia-ml.so.1`, which comes with the driver, can be loaded.",
    cases={
        "found": ok("libnvidia-ml.so.1 is loaded from {path}"),
        "elsewhere": missing(
            "libnvidia-ml.so.1 is not where the loader looks (LD_LIBRARY_PATH: {searched}), but in {folder}",
            "add {folder} to LD_LIBRARY_PATH",
        ),
        "absent": missing(
            "libnvidia-ml.so.1 is nowhere: neither where the loader looks (LD_LIBRARY_PATH: {searched}) nor in the "
            "folders of the GPU Operator, GKE and WSL",
            "install the NVIDIA driver. In a container: the NVIDIA runtime (runtimeClassName: nvidia) with "
            "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility; or mount the host's folder "
            "(GPU Operator: /run/nvidia/driver, GKE: /home/kubernetes/bin/nvidia) and add it to LD_LIBRARY_PATH",
        ),
        "broken": missing(
            "libnvidia-ml.so.1 can't be loaded: {problem}",
            "it must be of this machine's architecture, and whole: take it from the driver that is installed",
        ),
    },
)
DRIVER: Final = Topic(
    name="nvml_driver",
    means="The driver answers through the library.",
    cases={
        "answers": ok("driver {version} answers"),
        "let_go": warning(
            "{why}: its GPUs are under maintenance, so the driver is not asked", "ask again when that is over"
        ),
        "fails": missing("the driver does not answer: {problem}", "{remedy}"),
        "hangs": missing(
            "{why}: a call into the driver hangs",
            "look for NVRM and Xid in the kernel log (dmesg); drain and reboot the node",
        ),
    },
)
VERSION: Final = Topic(
    name="nvml_version",
    means="Library and driver are of one version; they differ after an upgrade without a reboot or a new container.",
    cases={
        "fits": ok("the library, NVML {library}, fits the driver"),
        "differs": missing("library and driver differ: {problem}", "{remedy}"),
    },
)
GPUS: Final = Topic(
    name="gpus",
    means="The driver shows GPUs.",
    cases={
        "found": ok("GPUs and MIG instances: {count} ({names})"),
        "none": missing(
            "the driver shows no GPU",
            "see that nvidia-smi lists some on the host; in a container set NVIDIA_VISIBLE_DEVICES=all",
        ),
    },
)
UP: Final = Topic(
    name="gpu_up",
    means="Every GPU answers. One that is lost takes nothing from the others; while none answers nothing is known.",
    cases={
        "up": ok("every GPU answers"),
        "one": warning("{gpu} does not answer: {problem}", "{remedy}"),
        "all": missing("{gpu} does not answer, and no other does: {problem}", "{remedy}"),
        "unseen": missing(
            "{gpu} can't be looked at: {problem}. Who is on it is not known, so everybody's use is unknown",
            "{remedy}",
        ),
        "unnamed": warning("{gpu} is not known: {problem}", "{remedy}"),
    },
)
MIG: Final = Topic(
    name="mig",
    means="MIG instances and their processes can be read.",
    cases={
        "read": ok("MIG instances: {instances}, on cards in MIG mode: {cards}"),
        "empty": warning(
            "no MIG instance can be seen on the cards in MIG mode ({cards})",
            "make instances (nvidia-smi mig -cgi), or run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN",
        ),
        "fails": missing(
            "{gpu} can't be read: {problem}",
            "run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together; {remedy}",
        ),
        "no_device": missing(
            "{gpu} can't be read: {problem}. There is no device in /dev/nvidia-caps, by which instances are looked at",
            "in a container: NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together (driver.mig=true), with "
            "NVIDIA's runtime in legacy mode or of version 1.20.1 on (1.18 to 1.20.0 in their default mode jit-cdi put "
            "none there); otherwise a privileged container",
        ),
    },
)
LISTS: Final = Topic(
    name="process_lists",
    means="The driver lists the processes of every GPU. Where it does not, everybody's use is unknown.",
    cases={
        "answer": ok("the processes of every GPU are listed"),
        "fails": missing("{gpu} can't be listed: {problem}", "{remedy}"),
    },
)
ENTRIES: Final = Topic(
    name="process_entries",
    means="What the driver lists makes sense. Drivers of about 535.43 to 535.86 have entries of another size, which is "
    "recognised; a list that contradicts itself all the same is thrown away.",
    cases={
        "usual": ok("entries of process lists have {size} bytes, as they should"),
        "larger": ok(
            "entries of process lists have {size} bytes: a driver of about 535.43 to 535.86, read accordingly"
        ),
        "contradict": missing(
            "{gpu} make no sense: {why}",
            "take a driver that is older than 535.43 or newer than 535.86, or report it with the driver's version",
        ),
    },
)
VIRTUAL: Final = Topic(
    name="virtual_gpu",
    means="The GPUs are this machine's own, or passed through to it whole. A vGPU and a GPU below Windows (WSL) have a "
    "counter of their memory, and their driver may leave out which processes there are and what each uses.",
    cases={
        "whole": ok("no GPU is a vGPU, and this is not WSL"),
        "vgpu": warning(
            "{gpu} is a vGPU, and its driver has not told yet what a process uses; some never do",
            "look again while a process uses it; if process_numbers lacks then, give the virtual machine a whole GPU "
            "(passthrough)",
        ),
        "vgpu_tells": ok("{gpu} is a vGPU, and its driver tells what processes use"),
        "windows": missing(
            "this is WSL ({sign}): the driver of Windows tells no memory of single processes, and need not list all",
            "run on Linux itself. Here the counters of the GPUs work, every pod's use is unknown, and nobody is acted "
            "on",
        ),
        "windows_tells": ok("this looks like WSL ({sign}), but the driver tells what processes use"),
    },
)
NUMBERS: Final = Topic(
    name="process_numbers",
    means="The driver says how much memory each process uses. On WSL2 and in some vGPU guests it never does.",
    cases={
        "given": ok("the driver tells the memory of every process that it lists ({count})"),
        "idle": warning(
            "no process uses a GPU now, so whether the driver tells the memory of each can't be seen",
            "look again when one does",
        ),
        "some": warning(
            "the driver does not tell the memory of some processes ({unknown} of {count}); their accounts are unknown",
            "look again; if it stays, see which processes `gpu-watchdog scan` shows as unknown",
        ),
        "none": missing(
            "the driver tells the memory of none of the processes that it lists ({count})",
            "in a vGPU guest give the virtual machine a whole GPU (passthrough), on WSL run on Linux itself; otherwise "
            "update the driver. Until then the counters of the GPUs work, and nobody is acted on",
        ),
    },
)
MEMORY: Final = Topic(
    name="gpu_memory",
    means="Each GPU has a counter of its memory. Without it processes are still measured, but shares of a card and "
    "what belongs to no process are unknown.",
    cases={
        "counted": ok("every GPU tells its total and used memory"),
        "unified": warning(
            "{gpu} has no memory of its own to count (it shares the host's)",
            "declare in bytes: shares and percentages of this card can't be worked out",
        ),
        "fails": warning("{gpu} can't be counted: {problem}", "{remedy}"),
    },
)
DRIVER_TOPICS: Final = (LIBRARY, DRIVER, VERSION, GPUS, UP, MIG, LISTS, ENTRIES, VIRTUAL, NUMBERS, MEMORY)


_MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_ENTRY: Final = 24


def check_driver(facts: DriverFacts) -> Iterable[Finding]:
    """From the library to the numbers per process; what can't be seen because of what stands before is left out."""
    library, reading = facts.library, facts.reading
    if facts.maintenance is not None:
        yield DRIVER.say("let_go", why=facts.maintenance)
        return
    if library is None:
        yield DRIVER.say("hangs", why=_problem(reading.gaps))
        return
    if library.path is None:
        yield _library(facts)
        return
    yield LIBRARY.say("found", path=library.path)
    if library.failure is not None:
        stale = library.failure.code == _MISMATCH
        where = VERSION if stale else DRIVER
        yield where.say("differs" if stale else "fails", **remedied(library.failure.problem, ""))
        return
    if reading.blind:
        yield DRIVER.say("fails", **_split(reading.gaps[0]))
        return
    yield DRIVER.say("answers", version=reading.driver or "of an unknown version")
    yield VERSION.say("fits", library=library.version)
    yield from _cards(facts)


def _library(facts: DriverFacts) -> Finding:
    assert facts.library is not None
    problem, elsewhere = facts.library.problem, facts.library.elsewhere
    searched = facts.searched or "not set"
    if "cannot open shared object file" not in problem or "libnvidia-ml" not in problem.partition(":")[0]:
        return LIBRARY.say("broken", problem=problem)
    if elsewhere:
        return LIBRARY.say("elsewhere", searched=searched, folder=elsewhere[0])
    return LIBRARY.say("absent", searched=searched)


def _cards(facts: DriverFacts) -> Iterable[Finding]:
    reading = facts.reading
    if not (reading.gpus or reading.parents or reading.unseen or reading.gaps):
        yield GPUS.say("none")
        return
    names = sorted({gpu.name or "without a name" for gpu in reading.gpus})
    yield GPUS.say("found", count=len(reading.gpus), names=", ".join(names) or "none that answers")
    yield from _up(facts)
    yield from _of_gaps(facts, MIG, (GapReason.MIG,), "fails" if facts.has_capability_devices else "no_device")
    if reading.parents and not any(gap.reason is GapReason.MIG for gap in reading.gaps):
        instances = [gpu for gpu in reading.gpus if gpu.parent is not None]
        if instances:
            yield MIG.say("read", instances=len(instances), cards=len(reading.parents))
        else:
            yield MIG.say("empty", cards=len(reading.parents))
    yield from _of_gaps(facts, LISTS, (GapReason.PROCESSES,))
    if not any(gap.reason in (GapReason.PROCESSES, GapReason.MIG) for gap in reading.gaps) and not reading.unseen:
        yield LISTS.say("answer")
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
        yield UP.say(case, gpu=gap.what, **_split(gap))
    if not gaps:
        yield UP.say("up")


def _of_gaps(
    facts: DriverFacts, where: Topic, reasons: tuple[GapReason, ...], case: str = "fails"
) -> Iterable[Finding]:
    for gap in _first_of_each([gap for gap in facts.reading.gaps if gap.reason in reasons]):
        yield where.say(case, gpu=gap.what, **_split(gap))


def _entries(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.CONTRADICTION]
    for gap in _first_of_each(gaps):
        yield ENTRIES.say("contradict", gpu=gap.what, why=gap.problem)
    entry = facts.library.entry if facts.library is not None else None
    if not gaps and entry is not None:
        yield ENTRIES.say("usual" if entry == _ENTRY else "larger", size=entry)


def _numbers(facts: DriverFacts) -> Iterable[Finding]:
    listed = {gpu.uuid for gpu in facts.reading.gpus if gpu.listed}
    uses = [use for use in facts.reading.uses if use.gpu in listed]
    unknown = sum(use.used is None for use in uses)
    yield from _virtual(facts, is_told=unknown < len(uses))
    if uses and unknown == len(uses):
        yield NUMBERS.say("none", count=len(uses))
    elif unknown:
        yield NUMBERS.say("some", unknown=unknown, count=len(uses))
    elif uses:
        yield NUMBERS.say("given", count=len(uses))
    elif listed and not facts.windows:
        yield NUMBERS.say("idle")


def _virtual(facts: DriverFacts, *, is_told: bool) -> Iterable[Finding]:
    """Machines where the driver may leave out what single processes use; one that tells it is as good as any."""
    if facts.windows:
        yield VIRTUAL.say("windows_tells" if is_told else "windows", sign=facts.windows)
    for gpu in facts.vgpus:
        yield VIRTUAL.say("vgpu_tells" if is_told else "vgpu", gpu=gpu)
    if not facts.windows and not facts.vgpus:
        yield VIRTUAL.say("whole")


def _memory(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.MEMORY]
    for gap in _first_of_each(gaps):
        yield MEMORY.say("fails", gpu=gap.what, **_split(gap))
    failed = {gap.gpu for gap in gaps}
    rows = [gpu for gpu in facts.reading.gpus if gpu.up and gpu.uuid not in failed]
    for gpu in rows:
        if gpu.total is None:
            yield MEMORY.say("unified", gpu=gpu.uuid)
    if rows and not gaps and all(gpu.total is not None for gpu in rows):
        yield MEMORY.say("counted")


def _first_of_each(gaps: list[Gap]) -> Iterable[Gap]:
    """One gap a GPU: what follows the first has mostly the same cause."""
    return {gap.gpu or gap.what: gap for gap in reversed(gaps)}.values()


def _split(gap: Gap) -> dict[str, str]:
    return remedied(gap.problem, "it is tried again with every pass")


def _problem(gaps: Iterable[Gap]) -> str:
    return next((gap.problem.cause.partition(":")[0] for gap in gaps), "no answer")
