"""The input of the status page, and its headline: the state of the node in a sentence, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from watchdog.core.model import GapReason
from watchdog.report.progress import Level, Standing, standings
from watchdog.report.recent import is_action
from watchdog.report.sentences.action import result_short
from watchdog.report.sentences.brakes import suspended_because
from watchdog.report.sentences.node import breaker_open, gpu_label, gpu_labels, pods_stale, unlisted
from watchdog.report.status import AccountStatus, GapStatus, GpuStatus, HealthStatus, Status
from watchdog.report.text import capital, clock_time, count, inert, span

_LONGEST_TITLE: Final = 63  # of a name in large letters
_FRESH_S: Final = 900.0  # how long a kill or eviction stays in the headline
_CHECK_DRIVER: Final = (
    "check the driver on the node: nvidia-smi, and the kernel log for NVRM and Xid. If both are fine, delete the "
    "watchdog's pod: restarting it is safe"
)
_CHECK_LOG: Final = "wait a few seconds; if this does not change, read the watchdog's log"


@dataclass(frozen=True, kw_only=True)
class PageInput:
    """The input of the page. `status` None: no cycle has finished. `is_still`: the reader has paused the refresh.

    `remedies` gives the remedy for each reason of suspension; `now_s` is Unix time, `passed_s` the age of the cycle.
    """

    status: Status | None
    health: HealthStatus
    now_s: float
    passed_s: float = 0.0
    remedies: Mapping[str, str] = field(default_factory=dict)
    is_still: bool = False

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """All accounts, the most urgent first."""
        return standings(self.status, self.passed_s) if self.status is not None else ()

    @cached_property
    def urgent(self) -> tuple[Standing, ...]:
        """Those that are over their limit or have a next step."""
        return tuple(each for each in self.standings if each.needs_attention)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The short name of each GPU, by its UUID."""
        return {gpu.uuid: gpu_label(gpu) for gpu in (self.status.gpus if self.status is not None else ())}

    @cached_property
    def as_of(self) -> str:
        """When the figures were read, while no cycle finishes: `as of 08:00:09 UTC`; empty: they are current."""
        is_old = self.status is not None and not self.health.turns
        return f"as of {self.clock(self.status.at)}" if is_old and self.status is not None else ""

    @cached_property
    def is_blind(self) -> bool:
        """Whether NVML is not responding."""
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


def headline(seen: PageInput) -> Headline:
    """The state of the node, the worst first."""
    health, status = seen.health, seen.status
    if status is None:
        state = f"no cycle has completed yet, {span(health.uptime_s)} after startup. Nothing is enforced."
        if health.turns:
            return Headline(level=Level.WATCH, state=f"Starting: {state}", remedy=_CHECK_LOG)
        return Headline(level=Level.BAD, state=f"Hung: {state}", remedy=_CHECK_DRIVER)
    if not health.turns:
        state = f"Hung: the last cycle completed {span(health.last_pass_ago_s or 0.0)} ago. No new action is taken."
        return Headline(level=Level.BAD, state=state, rest=f"Everything below is {seen.as_of}.", remedy=_CHECK_DRIVER)
    if status.maintenance is not None:
        state = "Under maintenance: NVML is released and nothing is enforced."
        return Headline(level=Level.WATCH, state=state, rest=f"{capital(status.maintenance)}.")
    if seen.is_blind:
        return _blind(seen, status)
    return _seeing(seen, status)


def _blind(seen: PageInput, status: Status) -> Headline:
    since_s = seen.health.blind_since
    since = f" since {seen.clock(since_s)}" if since_s is not None else ""
    of_pods = (GapReason.PODS.value, GapReason.NODE.value, GapReason.NAMESPACES.value)
    gap = next((gap for gap in status.gaps if gap.gpu is None and gap.reason not in of_pods), GapStatus())
    state = f"Blind: NVML has not responded{since}. No new action is taken."
    rest = f"NVML error: {gap.why.rstrip('.')}." if gap.why else ""
    return Headline(level=Level.BAD, state=state, rest=rest, remedy=gap.remedy or _CHECK_DRIVER)


def _seeing(seen: PageInput, status: Status) -> Headline:
    level, mode, remedy = _mode(seen, status)
    lost = [gpu for gpu in status.gpus if not gpu.up]
    done, breaker = list(_fresh(seen, status)), breaker_open(status, seen.now_s)
    incomplete = unlisted([gpu for gpu in seen.unlisted if gpu.up])
    missing = f"{gpu_labels(lost)} {'is' if len(lost) == 1 else 'are'} not responding." if lost else ""
    who = [*filter(None, (missing, incomplete)), *([] if seen.urgent else done), _who(seen, status)]
    rest = [*filter(None, [breaker]), *(done if seen.urgent else [])]
    if level is not Level.GOOD:  # problems of the watchdog come before problems of pods
        who, rest = [], [*who, *rest]
    levels = {level, *(each.level for each in seen.urgent), *((Level.BAD,) if lost else ())}
    is_unsure = any(each.verdict == "unknown" for each in status.accounts)
    levels |= {Level.WATCH} if done or breaker or incomplete or is_unsure else set()
    worst = next(each for each in Level if each in levels)
    return Headline(level=worst, state=" ".join([mode, *who]), rest=" ".join(rest), remedy=remedy)


def _mode(seen: PageInput, status: Status) -> tuple[Level, str, str]:
    """Whether it enforces, and the remedy if it should but does not."""
    if status.pods_stale:
        why = next((gap.text for gap in status.gaps if gap.reason == GapReason.PODS.value), "")
        return (
            Level.BAD,
            pods_stale(status, seen.now_s),
            why or "check that whatever writes the pod list is still running",
        )
    if status.suspended:
        remedy = "; ".join(seen.remedies.get(each, each) for each in status.suspended)
        return Level.BAD, f"Enforcement is suspended: {suspended_because(status.suspended)}.", remedy
    return Level.GOOD, "Enforcing." if status.enforcing else "Observing: no action is taken.", ""


def _who(seen: PageInput, status: Status) -> str:
    """Which pods are over their limits, with the name and next step of the most urgent; or that none is."""
    if not seen.urgent:
        return _calm(status.accounts, is_sure=not seen.unlisted)
    first, pods = seen.urgent[0], {each.account.title for each in seen.urgent}
    next_step = first.gravest.short if first.gravest is not None else "no action follows"
    # Thresholds may be below the limit: of warnings, and of steps while a GPU is short of memory.
    is_over = all(each.account.verdict == "over" for each in seen.urgent)
    where = f"over {'its limit' if len(pods) == 1 else 'their limits'}" if is_over else "above a threshold"
    most = ":" if len(pods) == 1 else ". Most urgent:"
    return f"{count(len(pods), 'pod')} {where}{most} {inert(first.account.title, _LONGEST_TITLE)}, {next_step}."


def _calm(accounts: Sequence[AccountStatus], *, is_sure: bool) -> str:
    unknown = sum(each.verdict in ("unknown", "misdeclared") for each in accounts)
    if unknown:
        return f"No pod is known to be over its limit; {count(unknown, 'account')} could not be checked."
    if not is_sure:
        return (
            "No pod is known to be over its limit."
            if accounts
            else "No pod declares GPU memory or is known to use any."
        )
    return "All pods are within limits." if accounts else "No pod uses or declares GPU memory."


def _fresh(seen: PageInput, status: Status) -> Iterator[str]:
    """The last kill or eviction, while it is recent and its pod is not named already."""
    named = {each.account.uid for each in seen.urgent}
    fresh = [each for each in status.recent if is_action(each) and seen.now_s - (each.at or 0.0) < _FRESH_S]
    for action in [each for each in fresh if each.uid not in named][:1]:
        pod = inert(f"{action.namespace}/{action.pod}", _LONGEST_TITLE)
        more = f" ({len(fresh)} in the last 15 minutes)" if len(fresh) > 1 else ""
        ago = f"{seen.ago(action.at or 0.0)}{more}"
        is_done = action.result == "done"
        yield f"{pod} {result_short(action)} {ago}." if is_done else f"{pod}: {result_short(action)}, started {ago}."
