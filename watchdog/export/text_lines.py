"""What the parts of `scan` share: short names of GPUs, lines that fit, and why nothing can be said."""

import textwrap

from watchdog.core.model import GapReason, Gpu
from watchdog.core.plan import CycleReport


def label_of(gpu: Gpu) -> str:
    """The short name of a GPU: its number, of a MIG instance `0/1`."""
    return str(gpu.index) if gpu.gi is None else f"{gpu.index}/{gpu.gi}"


def labels_of(report: CycleReport) -> dict[str, str]:
    """The short names of all GPUs, by UUID."""
    return {gpu.uuid: label_of(gpu) for gpu in report.snapshot.gpus}


def blind(report: CycleReport) -> str:
    """Why nothing is known of any GPU."""
    return "NVML did not answer" if report.maintenance is None else "NVML is let go while that lasts"


def cannot_say(report: CycleReport) -> list[str]:
    """Why nothing can be said of any account, rather than that there is none; nothing where it can."""
    if report.snapshot.blind:
        return [f"Can't say: {blind(report)}."]
    if report.pods.synced is None:
        is_told = any(gap.reason is GapReason.PODS for gap in report.pods.gaps)
        cause = "the reason stands under Not known" if is_told else "give --kubeconfig FILE, or --pods FILE"
        return [f"Can't say: no pod list is known; {cause}."]
    return []


def item(text: str, width: int) -> list[str]:
    """A text as an item of a list, in lines of at most `width` characters."""
    return wrapped(text, width, "- ", "  ")


def wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """A text in lines of at most `width` characters, the first and the later ones indented."""
    # Names have hyphens, and whoever copies one must get it whole.
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)
