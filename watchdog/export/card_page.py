"""The page of a GPU: its last hour, its memory, who uses it, and what is not known about it."""

from collections.abc import Iterable, Iterator
from typing import Final

from watchdog.core.plan import Result
from watchdog.core.residual import Sum
from watchdog.core.units import format_bytes
from watchdog.export.documentation import Document, runbook
from watchdog.export.names import GpuName, PodName
from watchdog.export.page import stop_enforcement, template
from watchdog.export.page_cards import amount, cards
from watchdog.export.page_headline import headline
from watchdog.export.page_pods import Row, place
from watchdog.export.subject_page import REFRESH_S, SUBJECT_STYLE, SubjectInput, action_row
from watchdog.report.hour import HOUR_S, Mark, card
from watchdog.report.progress import Level as Urgency
from watchdog.report.sentences.node import STRAYS, StrayWords, gap_subject, gpu_label, unlisted, utilization_gaps
from watchdog.report.sentences.usage import idle_short
from watchdog.report.status import AccountStatus, GapStatus, GpuStatus, RecentStatus
from watchdog.report.text import busy, byte_cell, percent

_MOST_ACCOUNTS: Final = 100
_MOST_STRAYS: Final = 20
_MOST_GAPS: Final = 12
_MOST_ACTIONS: Final = 12
_UNATTRIBUTED: Final = Document(title="Unattributed memory", path="troubleshooting.md#unattributed-memory")
_GAPS: Final = Document(title="Data gaps", path="troubleshooting.md#gaps")
_SHARING: Final = Document(title="How GPUs are shared", path="sharing.md")
_STATES: Final = {"undeclared": "nothing declared", "misdeclared": "invalid declaration"}


def found_gpu(seen: SubjectInput) -> GpuStatus | None:
    """The GPU that is asked for; None: the node has none of that name, or several."""
    found = seen.query.gpus_of(seen.status)
    return found[0] if len(found) == 1 else None


def card_page(seen: SubjectInput, gpu: GpuStatus) -> str:
    """The page of a GPU or a MIG instance."""
    series = seen.hour.get(card(gpu.uuid))
    drawn = seen.draw([series] if series is not None else [], ())
    marks = series.marks if series is not None else ()
    accounts, strays = list(_accounts(seen, gpu)), list(_strays(seen, gpu))
    gaps = [gap for gap in seen.status.gaps if _concerns(gap, gpu, seen)]
    head = headline(seen.seen)
    actions = list(_marked(seen, marks))
    bars = next((each for each in cards(seen.status, names_all=False).bars_in_order if each.uuid == gpu.uuid), None)
    levels = {Urgency.GOOD if gpu.up and gpu.listed else Urgency.BAD if not gpu.up else Urgency.WATCH}
    levels |= {Urgency.WATCH} if any(row["css"] for row in accounts) else set()
    levels |= {head.level} if head.remedy else set()
    return template("card.html").render(
        style=SUBJECT_STYLE,
        seen=seen.seen,
        query=seen.query,
        refresh_s=REFRESH_S,
        node=seen.status.node,
        level=next(worst for worst in Urgency if worst in levels),
        title=gpu_label(gpu),
        state=_state(seen, gpu),
        node_state=head if head.remedy else None,
        plot=drawn,
        card=bars,
        facts=list(_facts(seen, gpu)),
        siblings=list(_siblings(seen, gpu)),
        accounts=accounts[:_MOST_ACCOUNTS],
        more_accounts=max(len(accounts) - _MOST_ACCOUNTS, 0),
        strays=strays[:_MOST_STRAYS],
        more_strays=max(len(strays) - _MOST_STRAYS, 0),
        unread=list(utilization_gaps([gpu])),
        unlisted=unlisted([gpu]) if gpu.up and not gpu.listed else "",
        gaps=[_gap(gap, seen) for gap in gaps[:_MOST_GAPS]],
        more_gaps=max(len(gaps) - _MOST_GAPS, 0),
        done=[action_row(action, seen.seen) for action in actions[:_MOST_ACTIONS]],
        stop=stop_enforcement(seen.status),
        documents_found=list(_documents(gpu)),
    )


def _state(seen: SubjectInput, gpu: GpuStatus) -> str:
    if not gpu.up:
        return "released for maintenance" if seen.status.maintenance is not None else "not responding"
    used, total = gpu.memory.used, gpu.memory.total
    return ", ".join(filter(None, (f"{amount(used)} used of {amount(total)}", busy(gpu.utilization))))


def _facts(seen: SubjectInput, gpu: GpuStatus) -> Iterator[tuple[str, str]]:
    """What it is, and the parts of its memory."""
    memory = gpu.memory
    yield "Model", gpu.model or "unknown"
    yield "UUID", gpu.uuid
    if gpu.parent is not None:
        yield "MIG instance of", gpu.parent
    yield "Total", byte_cell(memory.total)
    yield "Used", byte_cell(memory.used)
    yield "Reserved by the driver", byte_cell(memory.reserved)
    yield "Residual", byte_cell(memory.residual)
    yield "Unattributed", byte_cell(gpu.unattributed)
    if memory.total is not None and memory.used is not None:
        yield "Free", format_bytes(memory.total - memory.used)
    if gpu.utilization is not None:
        yield "Busy", f"{percent(gpu.utilization)} of the last ten seconds or so"
    elif gpu.up:
        yield "Busy", "unknown"


def _siblings(seen: SubjectInput, gpu: GpuStatus) -> Iterator[tuple[GpuName, str]]:
    """The other MIG instances of its card, each with its UUID if only that tells it apart."""
    for other in seen.status.gpus:
        if gpu.parent is not None and other.parent == gpu.parent and other is not gpu:
            is_same = (other.index, other.gi) == (gpu.index, gpu.gi)
            yield seen.seen.gpu(other.uuid), other.uuid if is_same else ""


def _accounts(seen: SubjectInput, gpu: GpuStatus) -> Iterator[Row]:
    """The accounts that have memory on it, those with the most first."""
    rows: list[tuple[int, str, Row]] = []
    for progress in seen.seen.by_urgency:
        account, here = progress.account, Sum()
        for process in account.processes:
            if process.gpu == gpu.uuid:
                here.add(process.used)
        if all(process.gpu != gpu.uuid for process in account.processes):
            continue
        state = _STATES.get(account.verdict, account.verdict)
        rows.append(
            (
                -here.at_least,
                account.title,
                {
                    "pod": PodName(account.namespace, account.pod),
                    "place": place(account, seen.seen),
                    "here": amount(here.total, here.at_least),
                    "used": amount(account.used, account.least),
                    "allowed": format_bytes(account.allowed) if account.allowed is not None else "",
                    "state": f"{state}, {progress.gravest.short}" if progress.gravest is not None else state,
                    "css": progress.level.value if progress.needs_attention else "",
                    "busy": busy(_share(account, gpu)),
                    "idle": idle_short(account),
                },
            )
        )
    yield from (row for _, _, row in sorted(rows, key=lambda row: row[:2]))


def _share(account: AccountStatus, gpu: GpuStatus) -> float | None:
    """How much of a GPU's time an account used; None: unknown."""
    own = [each.utilization for each in account.containers if each.gpu == gpu.uuid]
    return None if None in own or not own else min(sum(ratio or 0.0 for ratio in own), 1.0)


def _strays(seen: SubjectInput, gpu: GpuStatus) -> Iterator[Row]:
    """The processes on it that belong to no pod, the largest first."""
    for use in sorted(seen.status.unattributed, key=lambda use: -(use.used or 0)):
        if use.gpu == gpu.uuid:
            words = STRAYS.get(use.reason, StrayWords("", use.reason, ""))
            yield {"name": use.name or "unnamed", "pid": use.pid, "used": amount(use.used), "why": words.one}


def _concerns(gap: GapStatus, gpu: GpuStatus, seen: SubjectInput) -> bool:
    """Whether a gap is about it, its card, or the driver as a whole."""
    return gpu.uuid in (gap.gpu, gap.what.split(" ", 1)[0]) or gap.what in (gpu.parent, seen.status.interface)


def _gap(gap: GapStatus, seen: SubjectInput) -> Row:
    since = f"since {seen.seen.clock(gap.since)}" if gap.since is not None else ""
    return {
        "what": gap_subject(gap, seen.status.gpus),
        "subjects": seen.seen.subjects_of(gap),
        "why": gap.why,
        "remedy": gap.remedy or "",
        "since": since,
    }


def _marked(seen: SubjectInput, marks: Iterable[Mark]) -> Iterator[RecentStatus]:
    """The actions of the letters of the plot: of each, that on the same account with the nearest effect.

    A mark has the time of its cycle, an action that of its first signal, and the wall clock may be set in between.
    """
    boot_s, found = seen.now.boottime_s - seen.now.wall_s, set[int]()
    for mark in marks:
        if mark.at_s < seen.now.boottime_s - HOUR_S:
            continue
        same = [number for number, action in enumerate(seen.status.recent) if _has_effect(action, mark)]
        apart_s = {number: abs((seen.status.recent[number].effect_at or 0.0) + boot_s - mark.at_s) for number in same}
        found |= {min(same, key=lambda number: apart_s[number])} if same else set()
    yield from (seen.status.recent[number] for number in sorted(found))


def _has_effect(action: RecentStatus, mark: Mark) -> bool:
    """Whether an action could be the one of a mark: on the same account, and it had an effect."""
    account, container = mark.account, mark.account.container
    if (action.do, action.uid, action.gpu) != (mark.do, account.uid, account.gpu):
        return False
    # A kill names its victim also where the account is of the whole pod.
    is_same = container is None or action.container == container
    return is_same and (action.result == Result.DONE or (action.do.ends_processes and action.result != Result.OBSERVED))


def _documents(gpu: GpuStatus) -> Iterator[Document]:
    if not gpu.up:
        yield runbook("GPUMemoryCardLost")
    if gpu.unattributed:
        yield runbook("GPUMemoryUnattributed")
    if gpu.memory.residual:
        yield runbook("GPUMemoryResidual")
    yield _UNATTRIBUTED
    yield _GAPS
    yield _SHARING
