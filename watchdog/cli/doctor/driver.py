"""Checks of the NVIDIA driver and its library, with their texts."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import DriverFacts
from watchdog.cli.doctor.finding import Finding, Topic, missing, ok, remedied, warning
from watchdog.core.model import Gap, GapReason

LIBRARY: Final = Topic(
    name="nvml_library",
    means="The NVML library, `libnvidia-ml.so.1`, which is part of the driver, can be loaded.",
    cases={
        "found": ok("libnvidia-ml.so.1 is loaded from {path}"),
        "elsewhere": missing(
            "libnvidia-ml.so.1 is not on the loader's path (LD_LIBRARY_PATH: {searched}), but in {folder}",
            "add {folder} to LD_LIBRARY_PATH",
        ),
        "absent": missing(
            "libnvidia-ml.so.1 was not found: neither on the loader's path (LD_LIBRARY_PATH: {searched}) nor in the "
            "folders of the GPU Operator, GKE and WSL",
            "install the NVIDIA driver. In a container: use the NVIDIA runtime (runtimeClassName: nvidia) with "
            "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility; or mount the host's folder "
            "(GPU Operator: /run/nvidia/driver, GKE: /home/kubernetes/bin/nvidia) and add it to LD_LIBRARY_PATH",
        ),
        "broken": missing(
            "libnvidia-ml.so.1 can't be loaded: {problem}",
            "it must be complete and match this machine's architecture: use the one of the installed driver",
        ),
    },
)
DRIVER: Final = Topic(
    name="nvml_driver",
    means="The driver responds through the library.",
    cases={
        "answers": ok("driver {version} responds"),
        "maintenance": warning(
            "{why}: its GPUs are under maintenance, so the driver was not queried", "run doctor again afterwards"
        ),
        "fails": missing("the driver does not respond: {problem}", "{remedy}"),
        "hangs": missing(
            "{why}: a driver call hangs",
            "look for NVRM and Xid in the kernel log (dmesg); drain and reboot the node",
        ),
    },
)
VERSION: Final = Topic(
    name="nvml_version",
    means="Library and driver have the same version. They differ after an upgrade without a reboot or a new container.",
    cases={
        "fits": ok("the library, NVML {library}, matches the driver"),
        "differs": missing("library and driver do not match: {problem}", "{remedy}"),
    },
)
GPUS: Final = Topic(
    name="gpus",
    means="The driver lists GPUs.",
    cases={
        "found": ok("GPUs and MIG instances: {count} ({names})"),
        "none": missing(
            "the driver lists no GPU",
            "check that nvidia-smi lists GPUs on the host; in a container set NVIDIA_VISIBLE_DEVICES=all",
        ),
    },
)
UP: Final = Topic(
    name="gpu_up",
    means="Every GPU responds. A lost GPU does not affect the others; while none responds nothing is known.",
    cases={
        "up": ok("every GPU responds"),
        "one": warning("{gpu} is not responding: {problem}", "{remedy}"),
        "all": missing("{gpu} is not responding, nor is any other: {problem}", "{remedy}"),
        "unseen": missing(
            "{gpu} can't be read: {problem}. What runs on it is unknown, and so is the use of every pod",
            "{remedy}",
        ),
        "unnamed": warning("{gpu} can't be identified: {problem}", "{remedy}"),
    },
)
MIG: Final = Topic(
    name="mig",
    means="MIG instances and their processes can be read.",
    cases={
        "read": ok("MIG instances: {instances}, on cards in MIG mode: {cards}"),
        "empty": warning(
            "no MIG instance is visible on the cards in MIG mode ({cards})",
            "create instances (nvidia-smi mig -cgi), or run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN",
        ),
        "fails": missing(
            "{gpu} can't be read: {problem}",
            "run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together; {remedy}",
        ),
        "no_device": missing(
            "{gpu} can't be read: {problem}. /dev/nvidia-caps has no device, and instances are read through those",
            "in a container: NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together (driver.mig=true), with "
            "NVIDIA's runtime in legacy mode or from version 1.20.1 on (1.18 to 1.20.0 create none in their default "
            "mode, jit-cdi); otherwise a privileged container",
        ),
    },
)
LISTS: Final = Topic(
    name="process_lists",
    means="The driver lists the processes of every GPU. If it does not, the use of every pod is unknown.",
    cases={
        "answer": ok("the processes of every GPU are listed"),
        "fails": missing("{gpu} can't be read: {problem}", "{remedy}"),
    },
)
ENTRIES: Final = Topic(
    name="process_entries",
    means="Process lists are consistent. Drivers of about 535.43 to 535.86 use entries of another size, which is "
    "recognised; a list that is inconsistent nevertheless is discarded.",
    cases={
        "usual": ok("entries of process lists have {size} bytes, as expected"),
        "larger": ok(
            "entries of process lists have {size} bytes: a driver of about 535.43 to 535.86, read accordingly"
        ),
        "contradict": missing(
            "{gpu} are inconsistent: {why}",
            "use a driver older than 535.43 or newer than 535.86, or report this with the driver's version",
        ),
    },
)
VIRTUAL: Final = Topic(
    name="virtual_gpu",
    means="The GPUs belong to this machine, or are passed through to it whole. A vGPU, or a GPU under Windows (WSL), "
    "has a memory counter, but its driver may not report which processes there are and what each uses.",
    cases={
        "whole": ok("no GPU is a vGPU, and this is not WSL"),
        "vgpu": warning(
            "{gpu} is a vGPU, and its driver has not reported the memory of a process yet; some never do",
            "run doctor again while a process uses it; if process_numbers is missing then, give the virtual machine a "
            "whole GPU (passthrough)",
        ),
        "vgpu_tells": ok("{gpu} is a vGPU, and its driver reports the memory of processes"),
        "windows": missing(
            "this is WSL ({sign}): the Windows driver does not report the memory of processes and may not list all",
            "run on Linux itself. Here the GPU counters work, but the use of every pod is unknown and no action is "
            "taken",
        ),
        "windows_tells": ok("this looks like WSL ({sign}), but the driver reports the memory of processes"),
    },
)
NUMBERS: Final = Topic(
    name="process_numbers",
    means="The driver reports how much memory each process uses. On WSL2 and in some vGPU guests it never does.",
    cases={
        "given": ok("the driver reports the memory of every process that it lists ({count})"),
        "idle": warning(
            "no process uses a GPU now, so whether the driver reports the memory of processes can't be checked",
            "run doctor again when one does",
        ),
        "some": warning(
            "the driver does not report the memory of {unknown} of {count} processes; their accounts are unknown",
            "run doctor again; if this persists, see which processes `gpu-watchdog scan` shows as unknown",
        ),
        "none": missing(
            "the driver does not report the memory of any process that it lists ({count})",
            "in a vGPU guest give the virtual machine a whole GPU (passthrough), on WSL run on Linux itself; otherwise "
            "update the driver. Until then the GPU counters work, but no action is taken",
        ),
    },
)
MEMORY: Final = Topic(
    name="gpu_memory",
    means="Each GPU has a memory counter. Without it processes are still measured, but shares of a card and memory "
    "that belongs to no process are unknown.",
    cases={
        "counted": ok("every GPU reports its total and used memory"),
        "unified": warning(
            "{gpu} has no memory of its own (it shares the host's)",
            "declare in bytes: shares and percentages of this card can't be calculated",
        ),
        "fails": warning("{gpu} can't be read: {problem}", "{remedy}"),
    },
)
DRIVER_TOPICS: Final = (LIBRARY, DRIVER, VERSION, GPUS, UP, MIG, LISTS, ENTRIES, VIRTUAL, NUMBERS, MEMORY)


_MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_ENTRY: Final = 24


def check_driver(facts: DriverFacts) -> Iterable[Finding]:
    """From the library to the memory per process; checks that depend on a failed one are left out."""
    library, reading = facts.library, facts.reading
    if facts.maintenance is not None:
        yield DRIVER.finding("maintenance", why=facts.maintenance)
        return
    if library is None:
        yield DRIVER.finding("hangs", why=_problem(reading.gaps))
        return
    if library.path is None:
        yield _library(facts)
        return
    yield LIBRARY.finding("found", path=library.path)
    if library.failure is not None:
        stale = library.failure.code == _MISMATCH
        where = VERSION if stale else DRIVER
        yield where.finding("differs" if stale else "fails", **remedied(library.failure.problem, ""))
        return
    if reading.blind:
        yield DRIVER.finding("fails", **_split(reading.gaps[0]))
        return
    yield DRIVER.finding("answers", version=reading.driver or "of an unknown version")
    yield VERSION.finding("fits", library=library.version)
    yield from _cards(facts)


def _library(facts: DriverFacts) -> Finding:
    assert facts.library is not None
    problem, elsewhere = facts.library.problem, facts.library.elsewhere
    searched = facts.searched or "not set"
    if "cannot open shared object file" not in problem or "libnvidia-ml" not in problem.partition(":")[0]:
        return LIBRARY.finding("broken", problem=problem)
    if elsewhere:
        return LIBRARY.finding("elsewhere", searched=searched, folder=elsewhere[0])
    return LIBRARY.finding("absent", searched=searched)


def _cards(facts: DriverFacts) -> Iterable[Finding]:
    reading = facts.reading
    if not (reading.gpus or reading.parents or reading.unseen or reading.gaps):
        yield GPUS.finding("none")
        return
    names = sorted({gpu.name or "without a name" for gpu in reading.gpus})
    yield GPUS.finding("found", count=len(reading.gpus), names=", ".join(names) or "none that answers")
    yield from _up(facts)
    yield from _of_gaps(facts, MIG, (GapReason.MIG,), "fails" if facts.has_capability_devices else "no_device")
    if reading.parents and not any(gap.reason is GapReason.MIG for gap in reading.gaps):
        instances = [gpu for gpu in reading.gpus if gpu.parent is not None]
        if instances:
            yield MIG.finding("read", instances=len(instances), cards=len(reading.parents))
        else:
            yield MIG.finding("empty", cards=len(reading.parents))
    yield from _of_gaps(facts, LISTS, (GapReason.PROCESSES,))
    if not any(gap.reason in (GapReason.PROCESSES, GapReason.MIG) for gap in reading.gaps) and not reading.unseen:
        yield LISTS.finding("answer")
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
        # What runs on a GPU that was never listed is unknown, so no account is known while it is there.
        case = "unnamed" if not is_down else "unseen" if gap.what in reading.unseen else "one" if some else "all"
        yield UP.finding(case, gpu=gap.what, **_split(gap))
    if not gaps:
        yield UP.finding("up")


def _of_gaps(
    facts: DriverFacts, where: Topic, reasons: tuple[GapReason, ...], case: str = "fails"
) -> Iterable[Finding]:
    for gap in _first_of_each([gap for gap in facts.reading.gaps if gap.reason in reasons]):
        yield where.finding(case, gpu=gap.what, **_split(gap))


def _entries(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.CONTRADICTION]
    for gap in _first_of_each(gaps):
        yield ENTRIES.finding("contradict", gpu=gap.what, why=gap.problem)
    entry = facts.library.entry if facts.library is not None else None
    if not gaps and entry is not None:
        yield ENTRIES.finding("usual" if entry == _ENTRY else "larger", size=entry)


def _numbers(facts: DriverFacts) -> Iterable[Finding]:
    listed = {gpu.uuid for gpu in facts.reading.gpus if gpu.listed}
    uses = [use for use in facts.reading.uses if use.gpu in listed]
    unknown = sum(use.used is None for use in uses)
    yield from _virtual(facts, is_reported=unknown < len(uses))
    if uses and unknown == len(uses):
        yield NUMBERS.finding("none", count=len(uses))
    elif unknown:
        yield NUMBERS.finding("some", unknown=unknown, count=len(uses))
    elif uses:
        yield NUMBERS.finding("given", count=len(uses))
    elif listed and not facts.windows:
        yield NUMBERS.finding("idle")


def _virtual(facts: DriverFacts, *, is_reported: bool) -> Iterable[Finding]:
    """Machines whose driver may not report the memory of processes; one that does is as good as any."""
    if facts.windows:
        yield VIRTUAL.finding("windows_tells" if is_reported else "windows", sign=facts.windows)
    for gpu in facts.vgpus:
        yield VIRTUAL.finding("vgpu_tells" if is_reported else "vgpu", gpu=gpu)
    if not facts.windows and not facts.vgpus:
        yield VIRTUAL.finding("whole")


def _memory(facts: DriverFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.reading.gaps if gap.reason is GapReason.MEMORY]
    for gap in _first_of_each(gaps):
        yield MEMORY.finding("fails", gpu=gap.what, **_split(gap))
    failed = {gap.gpu for gap in gaps}
    rows = [gpu for gpu in facts.reading.gpus if gpu.up and gpu.uuid not in failed]
    for gpu in rows:
        if gpu.total is None:
            yield MEMORY.finding("unified", gpu=gpu.uuid)
    if rows and not gaps and all(gpu.total is not None for gpu in rows):
        yield MEMORY.finding("counted")


def _first_of_each(gaps: list[Gap]) -> Iterable[Gap]:
    """One gap per GPU: further ones mostly have the same cause."""
    return {gap.gpu or gap.what: gap for gap in reversed(gaps)}.values()


def _split(gap: Gap) -> dict[str, str]:
    return remedied(gap.problem, "it is retried every cycle")


def _problem(gaps: Iterable[Gap]) -> str:
    return next((gap.problem.cause.partition(":")[0] for gap in gaps), "no answer")
