"""What belongs to no pod, and what could not be learned, each with what to look at."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from watchdog.core.assessment import Reason, Unattributed
from watchdog.core.model import Gap
from watchdog.core.plan import CycleReport
from watchdog.export.page.html import amount, at_least, items, name, section, sentence, tag, text
from watchdog.export.page.sight import Sight, not_known
from watchdog.report.figures import Sum, all_gaps
from watchdog.report.text import count

_NAMED: Final = 4
_MOST_GAPS: Final = 8
_MEANS: Final[Mapping[Reason, tuple[str, str]]] = {
    Reason.HOST: ("of the host", "look what runs on the node beside Kubernetes"),
    Reason.UNKNOWN_POD: (
        "of a pod that the list does not have",
        "a young pod stands here for some seconds; otherwise look at the pod list",
    ),
    Reason.SPOOFED: ("in a cgroup of another pod", "look what these are: no runtime does that by itself"),
    Reason.MPS_SERVER: ("of the MPS server", "its clients' memory may be in it"),
    Reason.ZOMBIE: ("zombies", "their parents have not waited for them"),
    Reason.GONE: ("gone, and still listed by the driver", "if it stays, drain the node and reset the GPU"),
}


def unattributed(sight: Sight, report: CycleReport) -> str:
    """The section of memory that no pod can be charged for."""
    by_reason: defaultdict[Reason, list[Unattributed]] = defaultdict(list)
    for use in report.attribution.unattributed:
        by_reason[use.reason].append(use)
    lines = [_group(reason, by_reason[reason], sight) for reason in Reason if by_reason[reason]]
    dark = "NVML does not answer." if report.snapshot.blind else not_known(sight.unlisted)
    rest = tag("p", text(f"Not known: {dark}" if report.snapshot.blind else dark), "watch") if dark else ""
    return section("unattributed", "Unattributed memory", (items(lines) + rest) or tag("p", "None."))


def _group(reason: Reason, uses: list[Unattributed], sight: Sight) -> str:
    sums, pids = Sum(), dict.fromkeys(use.pid for use in uses)
    for use in uses:
        sums.add(use.used)
    means, look = _MEANS[reason]
    total = at_least(sums.total, sums.at_least) if sums.known or sums.at_least else "An unknown amount"
    largest = sorted(uses, key=lambda use: -(use.used or 0))[:_NAMED]
    who = "; ".join(
        f"{name(use.name or 'unnamed', 40)} (PID {use.pid}) {amount(use.used)} on {_gpu(use, sight)}" for use in largest
    )
    more = f"; {len(uses) - _NAMED} more" if len(uses) > _NAMED else ""
    return (
        f"<b>{total}</b> by {count(len(pids), 'process', 'processes')} {means}: {who}{more}. "
        f"<small>Nobody acts on them; {look}.</small>"
    )


def _gpu(use: Unattributed, sight: Sight) -> str:
    return text(sight.labels.get(use.gpu, use.gpu))


def gaps(sight: Sight, report: CycleReport) -> str:
    """The section of what could not be learned: what has one remedy stands together, with that remedy once."""
    by_remedy: defaultdict[str, list[str]] = defaultdict(list)
    found = all_gaps(report)
    for gap in found:
        by_remedy[gap.problem.remedy].append(f"<b>{name(_named(gap, sight))}</b>: {sentence(gap.problem.cause)}")
    lines = [_gaps(remedy, lines) for remedy, lines in list(by_remedy.items())[:_MOST_GAPS]]
    if len(by_remedy) > _MOST_GAPS:
        lines.append('There are more: <a href="/api/status">the status</a> has them all.')
    return section("gaps", "Not known", items(lines) or tag("p", "Nothing is missing."))


def _named(gap: Gap, sight: Sight) -> str:
    """What a gap is about, by the short name of its GPU."""
    label = sight.labels.get(gap.gpu or "")
    return gap.what if label is None or gap.gpu is None else gap.what.replace(gap.gpu, label)


def _gaps(remedy: str, lines: list[str]) -> str:
    more = f" And {len(lines) - _NAMED} more like these." if len(lines) > _NAMED else ""
    do = tag("p", f"<b>Do:</b> {sentence(remedy)}.") if remedy else ""
    return f"{'<br>'.join(lines[:_NAMED])}{more}{do}"
