"""The input of the status page, and its headline: the state of the node in a sentence, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self
from urllib.parse import parse_qs, quote

from watchdog.core.model import MAINTENANCE, OBJECT_GAPS, GapReason
from watchdog.core.units import format_bytes
from watchdog.export.names import GpuName, PodName, Subject, gpu_names
from watchdog.report.progress import AccountProgress, Level, by_urgency
from watchdog.report.recent import is_action
from watchdog.report.sentences.action import result_short
from watchdog.report.sentences.brakes import suspended_because
from watchdog.report.sentences.node import (
    breaker_open,
    gpu_labels,
    maintenance_clause,
    pods_stale,
    reason_given,
    unlisted,
)
from watchdog.report.status import AccountStatus, GapStatus, GpuStatus, HealthStatus, RecentStatus, Status
from watchdog.report.text import capital, clock_time, count, inert, span

_RECENT_S: Final = 900.0  # how long a kill or eviction stays in the headline
_CHECK_DRIVER: Final = (
    "check the driver on the node: nvidia-smi, and the kernel log for NVRM and Xid. If both are fine, delete the "
    "watchdog's pod: restarting it is safe"
)
SEE_ABOVE: Final = "see above"
_CHECK_API: Final = "run `gpu-watchdog doctor` in the watchdog's pod: it says what keeps the pods from being read"
_FIND_OUT: Final = "find out who stopped enforcement here, and why, before you resume it: the command is below"
_BEFORE_RESUMING: Final = "if that is no longer needed, resume enforcement: the command is below"
_CHECK_LOG: Final = "wait a few seconds; if this does not change, read the watchdog's log"


# Their remedies, with the commands, are in the page's box about stopping enforcement.
STOPPED: Final = ("node_annotation", "stop_file")
_LONGEST_FILTER: Final = 400  # more than any name that Kubernetes gives, so what is cut off could not match
_MOST_FIELDS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """What the reader asks of the page by its address: `/?still&all&pod=alice`."""

    # Whether the page does not refresh itself.
    is_still: bool = False
    # Whether nothing is collapsed or left out.
    shows_all: bool = False
    # The text by which the pods are filtered; empty: they are not.
    pod: str = ""
    # The status page from itself, as pages of pods and GPUs have it.
    root: ClassVar[str] = ""
    path: ClassVar[str] = ""

    @classmethod
    def of(cls, query: str) -> Self:
        """The query of an address; what has no meaning in it is ignored, and the last of repeated fields counts."""
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return cls()
        pod = fields.get("pod", [""])[-1].strip()[:_LONGEST_FILTER]
        return cls(is_still="still" in fields, shows_all="all" in fields, pod=pod)

    def address(self, **changes: object) -> str:
        """The address of the page with this query, after some changes."""
        asked = replace(self, **changes)  # type: ignore[arg-type]
        fields = ["still"] * asked.is_still + ["all"] * asked.shows_all + [f"pod={quote(asked.pod)}"] * bool(asked.pod)
        return f"?{'&'.join(fields)}" if fields else "./"


@dataclass(frozen=True, kw_only=True)
class PageInput:
    """The input of the page."""

    # None until a cycle has finished.
    status: Status | None
    health: HealthStatus
    # Unix time.
    now_s: float
    # The age of the cycle.
    passed_s: float = 0.0
    # The remedy for each reason of suspension.
    remedies: Mapping[str, str] = field(default_factory=dict)
    query: PageQuery = PageQuery()

    @cached_property
    def by_urgency(self) -> tuple[AccountProgress, ...]:
        """All accounts, the most urgent first."""
        return by_urgency(self.status, self.passed_s) if self.status is not None else ()

    @cached_property
    def urgent(self) -> tuple[AccountProgress, ...]:
        """Those that are over their limit or have a next step."""
        return tuple(progress for progress in self.by_urgency if progress.needs_attention)

    @cached_property
    def gpus(self) -> Mapping[str, GpuName]:
        """The name of each GPU by its UUID, in the order of the node."""
        return gpu_names(self.status.gpus if self.status is not None else ())

    def gpu(self, uuid: str) -> GpuName:
        """The name of a GPU; of one that the node does not have, its UUID."""
        return self.gpus.get(uuid) or GpuName(label=inert(uuid), uuid=uuid)

    @cached_property
    def titles(self) -> Mapping[str, PodName]:
        """The pods that have an account, by `namespace/name`."""
        return {progress.account.title: PodName.of(progress.account.title) for progress in self.by_urgency}

    def subjects_beside(self, account: AccountStatus) -> tuple[Subject, ...]:
        """The pods and GPUs that sentences about an account name."""
        others = account.shared_with if isinstance(account.shared_with, tuple) else ()
        ahead = (account.behind_pod,) if isinstance(account.behind_pod, str) else ()
        uuids = dict.fromkeys([account.gpu or "", *(process.gpu for process in account.processes)])
        return *map(PodName.of, (account.title, *others, *ahead)), *map(self.gpu, uuids)

    def subjects_of(self, gap: GapStatus) -> tuple[Subject, ...]:
        """The pods and GPUs that a gap is about."""
        words = dict.fromkeys([gap.gpu or "", *gap.what.replace(",", " ").split()])
        found = (self.gpus.get(word) or self.titles.get(word) for word in words)
        return tuple(subject for subject in found if subject is not None)

    @cached_property
    def as_of(self) -> str:
        """When the figures were read, while no cycle finishes: `as of 08:00:09 UTC`; empty: they are current."""
        return f"as of {self.clock(self.status.at)}" if self.status is not None and not self.health.turns else ""

    @cached_property
    def is_blind(self) -> bool:
        """Whether the driver is not responding."""
        return self.health.blind_since is not None

    @cached_property
    def unlisted(self) -> tuple[GpuStatus, ...]:
        """The GPUs whose processes are unknown."""
        return tuple(gpu for gpu in (self.status.gpus if self.status is not None else ()) if not gpu.listed)

    def clock(self, wall_s: float) -> str:
        """A time of day, with its date unless that is today."""
        return clock_time(wall_s, self.now_s)

    def ago(self, wall_s: float) -> str:
        """How long ago a moment was."""
        return f"{span(self.now_s - wall_s)} ago"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The state in a sentence, further facts, and the remedy if something is wrong."""

    level: Level
    state: str
    rest: str = ""
    remedy: str = ""
    # Those that it names.
    subjects: tuple[Subject, ...] = ()

    def says(self, text: str) -> bool:
        """Whether a text is part of it."""
        return bool(text) and any(text in part for part in (self.state, self.rest, self.remedy))

    def shortened(self, text: str) -> str:
        """A text elsewhere on the page, which refers to the cause and the remedy if it repeats them."""
        if not self.remedy:
            return text
        text, end = text.replace(self.remedy, SEE_ABOVE), f"; {SEE_ABOVE}"
        subject, _, cause = text.removesuffix(end).rpartition(": ")
        is_repeated = text.endswith(end) and bool(cause) and cause in self.state
        return f"{subject}: {SEE_ABOVE}" if is_repeated else text


def headline(seen: PageInput) -> Headline:
    """The state of the node, the worst first."""
    health, status = seen.health, seen.status
    if status is None:
        state = f"no cycle has completed yet, {span(health.uptime_s)} after startup. Nothing is enforced."
        if health.turns:
            return Headline(level=Level.WATCH, state=f"Starting: {state}", remedy=_CHECK_LOG)
        return Headline(level=Level.BAD, state=f"Hung: {state}", remedy=_CHECK_DRIVER)
    if not health.turns:
        state = f"Hung: the last cycle completed {span(health.last_cycle_ago_s or 0.0)} ago. No new action is taken."
        return Headline(level=Level.BAD, state=state, rest=f"Everything below is {seen.as_of}.", remedy=_CHECK_DRIVER)
    if status.maintenance is not None:
        state = f"Under maintenance: {status.interface} is released and nothing is enforced."
        rest = f"{capital(maintenance_clause(status, seen.now_s))}."
        return Headline(level=Level.WATCH, state=state, rest=rest, remedy=seen.remedies.get(MAINTENANCE, ""))
    if seen.is_blind:
        return _blind(seen, status)
    return _responding(seen, status)


def _blind(seen: PageInput, status: Status) -> Headline:
    since_s = seen.health.blind_since
    since = f" since {seen.clock(since_s)}" if since_s is not None else ""
    gap = next((gap for gap in status.gaps if gap.gpu is None and gap.reason not in OBJECT_GAPS), GapStatus())
    state = f"Blind: {status.interface} has not responded{since}. No new action is taken."
    rest = f"{status.interface} error: {gap.why.rstrip('.')}." if gap.why else ""
    return Headline(level=Level.BAD, state=state, rest=rest, remedy=gap.remedy or _CHECK_DRIVER)


def _responding(seen: PageInput, status: Status) -> Headline:
    level, mode, remedy = _mode(seen, status)
    down = [gpu for gpu in status.gpus if not gpu.up]
    missing = f"{gpu_labels(down)} {'is' if len(down) == 1 else 'are'} not responding." if down else ""
    incomplete = unlisted([gpu for gpu in seen.unlisted if gpu.up])
    recent, breaker = _recent_action(seen, status), breaker_open(status, seen.now_s)
    state = [missing, incomplete, "" if seen.urgent else recent, _pods(seen, status)]
    rest = [breaker, recent if seen.urgent else "", _idle(status)]
    if level is not Level.GOOD:  # problems of the watchdog come before problems of pods
        state, rest = [], [*state, *rest]
    levels = {level, *(progress.level for progress in seen.urgent), *((Level.BAD,) if down else ())}
    is_unsure = any(account.verdict == "unknown" for account in status.accounts)
    levels |= {Level.WATCH} if recent or breaker or incomplete or is_unsure else set()
    return Headline(
        level=next(worst for worst in Level if worst in levels),
        state=" ".join(filter(None, [mode, *state])),
        rest=" ".join(filter(None, rest)),
        remedy=remedy,
        subjects=(*_named(seen, status), *(seen.gpu(gpu.uuid) for gpu in (*down, *seen.unlisted))),
    )


def _named(seen: PageInput, status: Status) -> Iterator[PodName]:
    if seen.urgent:
        account = seen.urgent[0].account
        yield PodName(account.namespace, account.pod)
    if (action := _last_action(seen, status)) is not None:
        yield PodName(action.namespace or "", action.pod or "")


def _mode(seen: PageInput, status: Status) -> tuple[Level, str, str]:
    """Whether it enforces, and the remedy if it should but does not."""
    if status.pods_stale:
        gap = next((gap for gap in status.gaps if gap.reason == GapReason.PODS.value), GapStatus())
        state, cause = pods_stale(status, seen.now_s), gap.why.rstrip(".")
        by_file = seen.health.api is None
        usual = "check that whatever writes the pod list is still running" if by_file else _CHECK_API
        return Level.BAD, f"{state} Cause: {cause}." if cause else state, gap.remedy or usual
    if status.suspended:
        given = [f"{capital(reason_given(stop, status.node))}." for stop in status.stops]
        remedies = [seen.remedies.get(reason, _CHECK_LOG) for reason in status.suspended if reason not in STOPPED]
        if len(remedies) < len(status.suspended):
            remedies.insert(0, _BEFORE_RESUMING if all(stop.why for stop in status.stops) else _FIND_OUT)
        state = f"Enforcement is suspended: {suspended_because(status.suspended)}."
        return Level.BAD, " ".join([state, *given]), "; ".join(dict.fromkeys(remedies))
    return Level.GOOD, "Enforcing." if status.enforcing else "Observing: no action is taken.", ""


def _pods(seen: PageInput, status: Status) -> str:
    """Which pods are over their limits, with the name and next step of the most urgent."""
    if not seen.urgent:
        return _calm(status.accounts, is_sure=not seen.unlisted)
    first, pods = seen.urgent[0], {progress.account.title for progress in seen.urgent}
    name, _ = PodName(first.account.namespace, first.account.pod).names
    next_step = first.gravest.short if first.gravest is not None else "no action follows"
    # Thresholds may be below the limit: of warnings, and of steps while a GPU is short of memory.
    is_over = all(progress.account.verdict == "over" for progress in seen.urgent)
    where = f"over {'its limit' if len(pods) == 1 else 'their limits'}" if is_over else "above a threshold"
    most = ":" if len(pods) == 1 else ". Most urgent:"
    return f"{count(len(pods), 'pod')} {where}{most} {name}, {next_step}."


def _calm(accounts: Sequence[AccountStatus], *, is_sure: bool) -> str:
    if unknown := sum(account.verdict in ("unknown", "misdeclared") for account in accounts):
        return f"No pod is known to be over its limit; {count(unknown, 'account')} could not be checked."
    if is_sure:
        return "All pods are within limits." if accounts else "No pod uses or declares GPU memory."
    return "No pod is known to be over its limit." if accounts else "No pod declares GPU memory or is known to use any."


def _idle(status: Status) -> str:
    """How many pods hold how much memory idle."""
    idle = [account for account in status.accounts if account.idle]
    pods = len({account.uid for account in idle})
    held = format_bytes(sum(account.least for account in idle))
    who = f"{pods} pods hold {held} and have" if pods > 1 else f"1 pod holds {held} and has"
    return f"{who} computed nothing for long." if pods else ""


def _recent_action(seen: PageInput, status: Status) -> str:
    """The last kill or eviction, while it is recent and its pod is not named already."""
    action, recent = _last_action(seen, status), _recent(seen, status)
    if action is None:
        return ""
    pod, _ = PodName(action.namespace or "", action.pod or "").names
    more = f" ({len(recent)} in the last 15 minutes)" if len(recent) > 1 else ""
    ago = f"{seen.ago(action.at or 0.0)}{more}."
    is_done = action.result == "done"
    return f"{pod} {result_short(action)} {ago}" if is_done else f"{pod}: {result_short(action)}, started {ago}"


def is_recent(action: RecentStatus, now_s: float) -> bool:
    """Whether this is a kill or an eviction, so recent that it is no usual state."""
    return is_action(action) and now_s - (action.at or 0.0) < _RECENT_S


def _recent(seen: PageInput, status: Status) -> list[RecentStatus]:
    return [action for action in status.recent if is_recent(action, seen.now_s)]


def _last_action(seen: PageInput, status: Status) -> RecentStatus | None:
    named = {progress.account.uid for progress in seen.urgent}
    return next((act for act in _recent(seen, status) if act.uid not in named), None)
