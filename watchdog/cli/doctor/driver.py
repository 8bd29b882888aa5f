"""Checks of the NVIDIA driver and its library."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_observe, warning
from watchdog.core.model import Gap, GapReason
from watchdog.node.drivers.protocol import DriverReading
from watchdog.report.sentences.node import maintenance_clause

_RETRIED: Final = "it is retried every cycle"
_VERSION_MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_USUAL_ENTRY: Final = 24  # bytes


def _lists_gpus(facts: Facts) -> bool:
    answer = facts.driver.answer
    return answer is not None and bool(answer.gpus or answer.parents or answer.unseen or answer.gaps)


def _gaps(facts: Facts, *reasons: GapReason) -> list[Gap]:
    """One gap of these reasons per GPU: further ones mostly have the same cause."""
    gaps = [gap for gap in facts.driver.reading.gaps if gap.reason in reasons]
    return list({gap.gpu or gap.what: gap for gap in reversed(gaps)}.values())


def _used(reading: DriverReading) -> list[int | None]:
    """The memory of each process of a GPU whose processes are listed."""
    listed = {gpu.uuid for gpu in reading.gpus if gpu.listed}
    return [use.used for use in reading.uses if use.gpu in listed]


@to_observe()
def nvml_library(facts: Facts) -> Iterator[CheckResult]:
    """The NVML library, `libnvidia-ml.so.1`, which is part of the driver, can be loaded."""
    library, searched = facts.driver.library, facts.driver.searched or "not set"
    if library is None:
        return
    if library.path is not None:
        yield ok(f"libnvidia-ml.so.1 is loaded from {library.path}")
        return
    problem = library.problem
    if "cannot open shared object file" not in problem or "libnvidia-ml" not in problem.partition(":")[0]:
        yield missing(
            f"libnvidia-ml.so.1 can't be loaded: {problem}",
            "it must be complete and match this machine's architecture: use the one of the installed driver",
        )
    elif library.elsewhere:
        folder = library.elsewhere[0]
        yield missing(
            f"libnvidia-ml.so.1 is not on the loader's path (LD_LIBRARY_PATH: {searched}), but in {folder}",
            f"add {folder} to LD_LIBRARY_PATH",
        )
    else:
        yield missing(
            f"libnvidia-ml.so.1 was not found: neither on the loader's path (LD_LIBRARY_PATH: {searched}) nor in the "
            "folders of the GPU Operator, GKE and WSL",
            "install the NVIDIA driver (on a Jetson: JetPack 6 or newer). In a container: use the NVIDIA runtime "
            "(runtimeClassName: nvidia) with NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility; or "
            "mount the host's folder (GPU Operator: /run/nvidia/driver, GKE: /home/kubernetes/bin/nvidia) and add it "
            "to LD_LIBRARY_PATH",
        )


def _with_since(maintenance: str, facts: Facts) -> str:
    """Why the GPUs are under maintenance, with since when, if the daemon that answers has the same reason."""
    status = facts.listen.status
    if status is None or status.maintenance != maintenance:
        return maintenance
    return maintenance_clause(status, facts.system.wall_s)


@to_observe()
def nvml_driver(facts: Facts) -> Iterator[CheckResult]:
    """The driver responds through the library."""
    maintenance, library, reading = facts.driver.maintenance, facts.driver.library, facts.driver.reading
    if maintenance is not None:
        maintenance = _with_since(maintenance, facts)
        yield warning(
            f"{maintenance}: its GPUs are under maintenance, so the driver was not queried",
            "run doctor again afterwards; if it does not end, find out what set it: "
            f"`kubectl get node {facts.options.node} -o yaml --show-managed-fields`",
        )
    elif library is None:
        timeout = next((gap.problem.cause.partition(":")[0] for gap in reading.gaps), "no answer")
        yield missing(
            f"{timeout}: a driver call hangs",
            "look for NVRM and Xid in the kernel log (dmesg); drain and reboot the node",
        )
    elif (answer := facts.driver.answer) is not None:
        version = answer.driver or "of an unknown version"
        yield ok(f"driver {version} responds")
    elif library.path is not None and (library.failure is None or library.failure.code != _VERSION_MISMATCH):
        problem = reading.gaps[0].problem if library.failure is None else library.failure.problem
        yield missing(f"the driver is not responding: {problem.cause}", problem.remedy or _RETRIED)


@to_observe()
def nvml_version(facts: Facts) -> Iterator[CheckResult]:
    """Library and driver have the same version. They differ after an upgrade without a reboot or a new container."""
    library = facts.driver.library
    if library is None:
        return
    if library.failure is not None and library.failure.code == _VERSION_MISMATCH:
        problem = library.failure.problem
        yield missing(f"library and driver do not match: {problem.cause}", problem.remedy)
    elif facts.driver.answer is not None:
        yield ok(f"the library, NVML {library.version}, matches the driver")


@to_observe(given=lambda facts: facts.driver.answer is not None)
def gpus(facts: Facts) -> Iterator[CheckResult]:
    """The driver lists GPUs."""
    if not _lists_gpus(facts):
        yield missing(
            "the driver lists no GPU",
            "check that nvidia-smi lists GPUs on the host; in a container set NVIDIA_VISIBLE_DEVICES=all",
        )
        return
    listed = facts.driver.reading.gpus
    count, names = len(listed), ", ".join(sorted({gpu.name or "without a name" for gpu in listed}))
    names = names or "none that answers"
    yield ok(f"GPUs and MIG instances: {count} ({names})")


@to_observe(given=_lists_gpus)
def gpu_up(facts: Facts) -> Iterator[CheckResult]:
    """Every GPU responds. A lost GPU does not affect the others; while none responds nothing is known."""
    reading = facts.driver.reading
    is_any_up = any(gpu.up for gpu in reading.gpus)
    down = {gpu.uuid for gpu in reading.gpus if not gpu.up} | reading.unseen
    gaps = _gaps(facts, GapReason.GPU_LOST, GapReason.GPU_ERROR)
    for gap in gaps:
        gpu, cause, remedy = gap.what, gap.problem.cause, gap.problem.remedy or _RETRIED
        if (gap.gpu or gpu) not in down and gap.reason is not GapReason.GPU_LOST:
            yield warning(f"{gpu} can't be identified: {cause}", remedy)
        elif gpu in reading.unseen:
            # What runs on a GPU that was never listed is unknown, so no account is known while it is there.
            yield missing(
                f"{gpu} can't be read: {cause}. What runs on it is unknown, and so is the use of every pod", remedy
            )
        elif is_any_up:
            yield warning(f"{gpu} is not responding: {cause}", remedy)
        else:
            yield missing(f"{gpu} is not responding, nor is any other: {cause}", remedy)
    if not gaps:
        yield ok("every GPU responds")


@to_observe(given=_lists_gpus)
def mig(facts: Facts) -> Iterator[CheckResult]:
    """MIG instances and their processes can be read."""
    reading = facts.driver.reading
    gaps = _gaps(facts, GapReason.MIG)
    for gap in gaps:
        gpu, cause, remedy = gap.what, gap.problem.cause, gap.problem.remedy or _RETRIED
        if facts.driver.has_capability_devices:
            yield missing(
                f"{gpu} can't be read: {cause}",
                f"run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together; {remedy}",
            )
        else:
            yield missing(
                f"{gpu} can't be read: {cause}. /dev/nvidia-caps has no device, and instances are read through those",
                "in a container: NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together (driver.mig=true), "
                "with NVIDIA's runtime in legacy mode or of version 1.20.1 or newer (1.18 to 1.20.0 create none in "
                "their default mode, jit-cdi); otherwise a privileged container",
            )
    if reading.parents and not gaps:
        cards, instances = len(reading.parents), sum(gpu.parent is not None for gpu in reading.gpus)
        if instances:
            yield ok(f"MIG instances: {instances}, on cards in MIG mode: {cards}")
        else:
            yield warning(
                f"no MIG instance is visible on the cards in MIG mode ({cards})",
                "create instances (nvidia-smi mig -cgi), or run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN",
            )


@to_observe(given=_lists_gpus)
def process_lists(facts: Facts) -> Iterator[CheckResult]:
    """The driver lists the processes of every GPU. If it does not, the use of every pod is unknown."""
    for gap in _gaps(facts, GapReason.PROCESSES):
        yield missing(f"{gap.what} can't be read: {gap.problem.cause}", gap.problem.remedy or _RETRIED)
    if not _gaps(facts, GapReason.PROCESSES, GapReason.MIG) and not facts.driver.reading.unseen:
        yield ok("the processes of every GPU are listed")


@to_observe(given=_lists_gpus)
def process_entries(facts: Facts) -> Iterator[CheckResult]:
    """Process lists are consistent.

    Drivers of about 535.43 to 535.86 use entries of another size, which is recognised; any other inconsistent list is
    discarded.
    """
    gaps = _gaps(facts, GapReason.CONTRADICTION)
    for gap in gaps:
        yield missing(
            f"{gap.what} are inconsistent: {gap.problem}",
            "use a driver older than 535.43 or newer than 535.86, or report this with the driver's version",
        )
    size = None if facts.driver.library is None else facts.driver.library.entry
    if not gaps and size == _USUAL_ENTRY:
        yield ok(f"entries of process lists have {size} bytes, as expected")
    elif not gaps and size is not None:
        yield ok(f"entries of process lists have {size} bytes: a driver of about 535.43 to 535.86, read accordingly")


@to_observe(given=_lists_gpus)
def virtual_gpu(facts: Facts) -> Iterator[CheckResult]:
    """The GPUs belong to this machine, or are passed through to it whole.

    A vGPU, or a GPU under Windows (WSL), has a memory counter, but its driver may not report which processes there are
    and what each uses.
    """
    sign = facts.driver.windows
    # A driver that reports the memory of a process is as good as any.
    is_reported = any(used is not None for used in _used(facts.driver.reading))
    if sign and is_reported:
        yield ok(f"this looks like WSL ({sign}), but the driver reports the memory of processes")
    elif sign:
        yield missing(
            f"this is WSL ({sign}): the Windows driver does not report the memory of processes and may not list all",
            "run on Linux itself. Here the GPU counters work, but the use of every pod is unknown and no action is "
            "taken",
        )
    for gpu in facts.driver.vgpus:
        if is_reported:
            yield ok(f"{gpu} is a vGPU, and its driver reports the memory of processes")
        else:
            yield warning(
                f"{gpu} is a vGPU, and its driver has not reported the memory of a process yet; some never do",
                "run doctor again while a process uses it; if process_numbers then says lacks, give the virtual "
                "machine a whole GPU (passthrough)",
            )
    if not sign and not facts.driver.vgpus:
        yield ok("no GPU is a vGPU, and this is not WSL")


@to_observe(given=_lists_gpus)
def process_numbers(facts: Facts) -> Iterator[CheckResult]:
    """The driver reports how much memory each process uses. On WSL2 and in some vGPU guests it never does."""
    used = _used(facts.driver.reading)
    count, unknown = len(used), used.count(None)
    if count and unknown == count:
        yield missing(
            f"the driver does not report the memory of any process that it lists ({count})",
            "in a vGPU guest give the virtual machine a whole GPU (passthrough), on WSL run on Linux itself; otherwise "
            "update the driver. Until then the GPU counters work, but no action is taken",
        )
    elif unknown:
        yield warning(
            f"the driver does not report the memory of {unknown} of {count} processes; their accounts are unknown",
            "run doctor again; if this persists, see which processes `gpu-watchdog scan` shows as unknown",
        )
    elif count:
        yield ok(f"the driver reports the memory of every process that it lists ({count})")
    elif any(gpu.listed for gpu in facts.driver.reading.gpus) and not facts.driver.windows:
        yield warning(
            "no process uses a GPU now, so whether the driver reports the memory of processes can't be checked",
            "run doctor again when one does",
        )


@to_observe(given=_lists_gpus)
def gpu_memory(facts: Facts) -> Iterator[CheckResult]:
    """Each GPU has a memory counter.

    Without it processes are still measured, but shares of a card and memory that belongs to no process are unknown.
    """
    gaps = _gaps(facts, GapReason.MEMORY)
    for gap in gaps:
        yield warning(f"{gap.what} can't be read: {gap.problem.cause}", gap.problem.remedy or _RETRIED)
    failed = {gap.gpu for gap in gaps}
    read = [gpu for gpu in facts.driver.reading.gpus if gpu.up and gpu.uuid not in failed]
    for gpu in (gpu.uuid for gpu in read if gpu.total is None):
        yield warning(
            f"{gpu} has no memory of its own (it shares the host's)",
            "declare in bytes: shares and percentages of this card can't be calculated",
        )
    if read and not gaps and all(gpu.total is not None for gpu in read):
        yield ok("every GPU reports its total and used memory")
