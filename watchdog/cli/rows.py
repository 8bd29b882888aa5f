"""What `top` shows of a status: a row per account with what happens to it next, sums per GPU, and problems."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from watchdog.cli.views import BUSY, HOUR, IDLE, VERDICTS, Choice, Signs, amount, narrow
from watchdog.core.residual import Sum
from watchdog.report.progress import brake_short, due_short, planned_short, steps_by_account, under_way_short
from watchdog.report.sentences.action import planned_victims
from watchdog.report.sentences.following import is_enforced
from watchdog.report.sentences.node import (
    breaker_open,
    gap_subject,
    hung,
    pods_stale,
    unanswered,
    under_maintenance,
    unlisted,
    without_unanswered,
)
from watchdog.report.sentences.suspension import remedy_on
from watchdog.report.sentences.usage import idle_short
from watchdog.report.status import (
    AccountStatus,
    GpuMemory,
    GpuStatus,
    HourStatus,
    PlanStatus,
    ProcessStatus,
    RecentStatus,
    Status,
)
from watchdog.report.text import busy, byte_cell, clock_time, inert, span

UNATTRIBUTED: Final = "unattributed processes"
_LONGEST_PROBLEM: Final = 2000
_MOST_PERCENT: Final = 9999
_LEAST_OF_UUID: Final = len("GPU-0")


def absent(status: Status) -> frozenset[str]:
    """The titles of columns that are empty: nothing is held idle, or the daemon is an older one without hours."""
    hours = (*(gpu.hour for gpu in status.gpus), *(account.hour for account in status.accounts))
    has_hours = any(isinstance(hour, HourStatus) for hour in hours)
    is_read = any(gpu.utilization is not None or gpu.utilization_unknown is not None for gpu in status.gpus)
    there = {HOUR: has_hours, BUSY: is_read, IDLE: any(account.idle for account in status.accounts)}
    return frozenset(title for title, is_there in there.items() if not is_there)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """An account and its steps of the plan.

    The last row may be the unattributed processes: an account without a pod. Its methods get `elapsed_s`, the time
    since the cycle.
    """

    account: AccountStatus
    status: Status
    # The short name of its GPU; empty: all of them.
    gpu: str = ""
    # In the order of the plan.
    steps: tuple[PlanStatus, ...] = ()
    is_unattributed: bool = False

    @property
    def key(self) -> object:
        """What a selection follows."""
        return self.account.key

    @property
    def name(self) -> str:
        """The pod as `namespace/name`, with the container of the account."""
        if self.is_unattributed:
            return UNATTRIBUTED
        return f"{self.account.title}{f' [{self.container}]' if self.container else ''}"

    @property
    def title(self) -> str:
        """The name with the GPU of the account."""
        return f"{self.name}{f' on GPU {self.gpu}' if self.gpu else ''}"

    @property
    def gpus(self) -> str:
        """The GPUs that its processes use, or the one of the account: `0,3`, `0-7`; empty: none."""
        return self.gpu or _ranges([gpu.number for gpu in self.status.gpus if gpu.uuid in self._used_gpus])

    def is_on(self, wanted: str) -> bool:
        """Whether the account is one of a GPU, or uses it, by the GPU's number or UUID."""
        return any(is_gpu(gpu, wanted) for gpu in self.status.gpus if gpu.uuid in self._used_gpus)

    @property
    def _used_gpus(self) -> set[str]:
        return {self.account.gpu or "", *(process.gpu for process in self.account.processes)}

    @property
    def container(self) -> str:
        """The container of the account; empty: the whole pod."""
        return "unlisted containers" if self.account.container == "" else self.account.container or ""

    def used(self, signs: Signs) -> str:
        """What the account uses."""
        return amount(self.account.used, self.account.used_at_least, signs)

    @property
    def declared(self) -> str:
        """What the account declares; `-` for nothing, which is not the same as unknown."""
        return self._limit(self.account.declared)

    @property
    def allowed(self) -> str:
        """What the account is allowed; `-` if there is no limit, which is not the same as an unknown one."""
        return self._limit(self.account.allowed)

    @property
    def ratio(self) -> float:
        """The share of its limit that it certainly uses; infinite for any use of a limit of 0."""
        allowed, least = self.account.allowed, self.account.least
        if not allowed:
            return inf if allowed == 0 and least else 0.0
        return least / allowed

    def percent(self, signs: Signs) -> str:
        """The share of its limit that it uses: `87%`, `≥87%`, `unknown`, or `-` without a limit."""
        if self.account.allowed is None:
            return self.allowed
        is_exact, share = self.account.used is not None, self.ratio
        if not is_exact and not self.account.least:
            return "unknown"
        if share > _MOST_PERCENT / 100:
            return f">{_MOST_PERCENT}%"
        whole = round(100 * share) if is_exact else int(100 * share)
        # A hair above or below the limit must not read as exactly 100%.
        if whole == 100 and share != 1:
            whole = 101 if share > 1 else 99
        return f"{'' if is_exact else signs.least}{whole}%"

    @property
    def idle(self) -> str:
        """For how long it has held memory idle, if that is reported: `2h10m`; else empty."""
        account = self.account
        return narrow(span(account.idle_s)) if account.idle and account.idle_s is not None else ""

    @property
    def activity(self) -> str:
        """How busy it is, or for how long it has held memory idle: `35% busy`; empty if that is unknown."""
        return idle_short(self.account) or busy(self.account.utilization)

    @property
    def next(self) -> PlanStatus | None:
        """The next step, if there is one."""
        return self.steps[0] if self.steps else None

    @property
    def is_acting(self) -> bool:
        """Whether an action is in progress."""
        is_pending = self.next is not None and self.next.pending is not None and not self._is_hung
        return self.account.under_way is not None or is_pending

    @property
    def is_waiting(self) -> bool:
        """Whether the next step waits for something other than its time, or is hypothetical."""
        return self.next is not None and bool(self.next.withheld_by or self._would or self._is_hung)

    @property
    def left_s(self) -> float | None:
        """Seconds until something happens: 0 if it does now, infinite if unknown; None if nothing will."""
        if self.is_acting:
            return 0.0
        if self.next is None:
            return None
        release_s = self.next.releases_in_s if self.next.withheld_by else 0.0
        return inf if self._is_hung or release_s is None else max(self.next.due_in_s, release_s, 0.0)

    def next_short(self, elapsed_s: float = 0.0) -> str:
        """What happens next, in a few words: `kill in 4s`, `kill withheld: owner, 3m`; `-` for nothing."""
        if self.account.under_way is not None:
            words = under_way_short(self.account.under_way, self.status, elapsed_s)
        elif self.next is not None:
            words = planned_short(self.next, self.account, self.status, elapsed_s)
        else:
            return "-"
        return narrow(words)

    def next_full(self, elapsed_s: float = 0.0) -> str:
        """The next step with the threshold, what withholds it and why, and what follows a warning."""
        if self.is_acting:
            return self.next_short(elapsed_s)
        if self.next is None:
            protected, unknown = self.account.protected, self.account.limit_unknown
            if protected:
                return f"protected, no action is taken: {protected}"
            return f"limit unknown: {unknown}" if unknown else "-"
        shown = [self.next]
        if not self.next.do.enforces:
            shown += [step for step in self.steps if step.do.enforces][:1]
        return "; then ".join(self._step(step, elapsed_s) for step in shown)

    def _limit(self, value: int | None) -> str:
        has_none = value is None and self.account.verdict in ("undeclared", "misdeclared", "")
        return "-" if has_none else byte_cell(value)

    @property
    def _is_hung(self) -> bool:
        return self.status.hangs_since is not None

    @property
    def _would(self) -> str:
        return "" if is_enforced(self.account, self.status) else "would "

    def _step(self, step: PlanStatus, elapsed_s: float) -> str:
        whom = planned_victims(step.scope, step.container) if step.do.ends_processes else ""
        what = " ".join(filter(None, (step.do, whom, f"above {step.above}" if step.above else "")))
        if self._is_hung:
            return f"{what}, withheld until the daemon completes a cycle"
        due = f"{self._would}{what} {due_short(step, elapsed_s)}"
        if not step.withheld_by:
            return due
        will_be = "will be " if step.due_in_s > elapsed_s else ""
        reason = f": {step.held_because}" if step.held_because else ""
        return f"{due}, {will_be}withheld ({brake_short(step, elapsed_s)}){reason}"


def _ranges(numbers: Sequence[str]) -> str:
    """Numbers of GPUs in short: `0-3,5`."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number.isdigit() and runs[-1][-1].isdigit() and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}" for run in runs)


def is_gpu(gpu: GpuStatus, wanted: str) -> bool:
    """Whether a GPU is meant by its number, that of its card, or its UUID or the beginning of one."""
    is_number = wanted in (gpu.number, gpu.number.partition("/")[0])
    return is_number or (len(wanted) >= _LEAST_OF_UUID and gpu.uuid.casefold().startswith(wanted.casefold()))


def rows_of(status: Status) -> list[TopRow]:
    """A row for each account, in the order of the status."""
    steps, labels = steps_by_account(status), labels_of(status)
    return [
        TopRow(
            account=account,
            status=status,
            gpu="" if account.gpu is None else labels.get(account.gpu) or account.gpu,
            steps=steps.get(account.key, ()),
        )
        for account in status.accounts
    ]


def unattributed_row(status: Status) -> TopRow | None:
    """The row of processes that belong to no pod, each with its reason as its container; None if there are none."""
    uses = status.unattributed
    if not uses:
        return None
    total = summed((use.used for use in uses), is_whole=all(gpu.listed for gpu in status.gpus))
    account = AccountStatus(
        used=total.total,
        used_at_least=total.at_least,
        verdict="",
        processes=tuple(ProcessStatus(pid=use.pid, gpu=use.gpu, used=use.used, container=use.reason) for use in uses),
    )
    return TopRow(account=account, status=status, is_unattributed=True)


def _by_verdict(row: TopRow) -> tuple[float, ...]:
    verdict = row.account.verdict
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS), -row.ratio


def _by_percent(row: TopRow) -> tuple[float, ...] | None:
    return None if row.account.allowed is None else (-row.ratio, -row.account.least)


# The sort orders. None: unknown or not applicable; such accounts come last in either direction.
KEYS: Final[Mapping[str, Callable[[TopRow], tuple[float, ...] | None]]] = {
    "used": lambda row: (-row.account.least,),
    "percent": _by_percent,
    "name": lambda _: (),
    "time": lambda row: None if row.left_s is None else (row.left_s, -row.ratio),
    "declared": lambda row: None if row.account.declared is None else (-row.account.declared,),
    "verdict": _by_verdict,
}


def _is_chosen(choice: Choice, row: TopRow) -> bool:
    if (choice.over and row.account.verdict != "over") or (choice.gpu and not row.is_on(choice.gpu)):
        return False
    if choice.idle and not row.account.idle:
        return False
    searched = f"{row.title} {row.account.rule or ''} {row.account.verdict}".casefold()
    return all(word in searched for word in choice.text.casefold().split())


def chosen(status: Status, choice: Choice) -> tuple[TopRow, ...]:
    """The accounts to show in their order, ties by name; the unattributed processes are the last row."""
    rows = sorted(
        (row for row in rows_of(status) if _is_chosen(choice, row)), key=lambda row: (row.title, row.account.uid)
    )
    keyed = [(KEYS[choice.sort](row), row) for row in rows]
    known = sorted(((key, row) for key, row in keyed if key is not None), key=lambda pair: pair[0])
    ordered = [row for _, row in known]
    missing = sorted((row for key, row in keyed if key is None), key=lambda row: -row.account.least)
    last = unattributed_row(status)
    rest = (last,) if last is not None and _is_chosen(choice, last) else ()
    return (*(reversed(ordered) if choice.backwards else ordered), *missing, *rest)


def none_chosen(status: Status, choice: Choice) -> str:
    """Why no account is shown, without a full stop."""
    if choice.gpu and not any(is_gpu(gpu, choice.gpu) for gpu in status.gpus):
        return f"This node has no GPU {choice.gpu}"
    if not status.accounts:
        return accounts_unknown(status) or "No pod on this node uses or declares GPU memory"
    reasons = (
        f"uses GPU {choice.gpu}" if choice.gpu else "",
        "is over its limit" if choice.over else "",
        "is known to hold memory idle" if choice.idle else "",
        f"matches the filter {choice.text!r}" if choice.text else "",
    )
    return f"No pod {' and '.join(filter(None, reasons))}"


def accounts_unknown(status: Status) -> str:
    """Why nothing is known about any account, as opposed to there being none; empty if they are known."""
    if status.blind is not None:
        return f"Unknown: {blind_because(status)}"
    return "Unknown: there is no pod list" if status.pods_synced_at is None else ""


def blind_because(status: Status) -> str:
    """Why nothing is known about any GPU."""
    return f"{status.interface} is {'not responding' if status.maintenance is None else 'closed during maintenance'}"


def labels_of(status: Status) -> Mapping[str, str]:
    """The short name of each GPU by its UUID."""
    return {gpu.uuid: gpu.number for gpu in status.gpus}


def summed(parts: Iterable[int | None], *, is_whole: bool = True) -> Sum:
    """The sum of the parts; unknown if `is_whole` is False, since parts may then be missing."""
    total = Sum(known=is_whole)
    for part in parts:
        total.add(part)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A GPU."""

    gpu: GpuStatus
    # What processes of pods use of it.
    pods: Sum
    # What unattributed processes use of it.
    unattributed: Sum
    # Whether less of it is free than the policy asks.
    is_short: bool


def gpu_rows(status: Status) -> Sequence[GpuRow]:
    """A row for each GPU."""
    rows = {
        gpu.uuid: GpuRow(
            gpu=gpu,
            pods=Sum(known=gpu.listed),
            unattributed=Sum(known=gpu.listed),
            is_short=_is_short(gpu.memory, status.free_share),
        )
        for gpu in status.gpus
    }
    for process in (process for account in status.accounts for process in account.processes):
        if process.gpu in rows:
            rows[process.gpu].pods.add(process.used)
    for use in status.unattributed:
        if use.gpu in rows:
            rows[use.gpu].unattributed.add(use.used)
    return list(rows.values())


def _is_short(memory: GpuMemory, free_share: float) -> bool:
    if not memory.total or memory.used is None:
        return False
    return memory.total - memory.used < free_share * memory.total


def action_cells(recent: RecentStatus, at: float, signs: Signs) -> tuple[str, ...]:
    """A recent action: when, what, its result, the pod, its use and limit then, the rule, and why."""
    container = f" [{recent.container}]" if recent.container else ""
    return (
        "now" if recent.at is None else clock_time(recent.at, at).removesuffix(" UTC"),
        recent.do,
        recent.result or "in progress",
        f"{recent.namespace or ''}/{recent.pod or ''}{container}",
        amount(recent.used, recent.used_at_least, signs),
        byte_cell(recent.allowed),
        recent.rule or "-",
        _why(recent) or "-",
    )


def _why(recent: RecentStatus) -> str:
    """What an action was taken for, what hindered it, and when its memory was free."""
    freed = ""
    if recent.unreleased is not None:
        freed = f"memory not seen free: {recent.unreleased}"
    elif recent.effect_at is not None and recent.released_at is not None:
        freed = f"memory free after {span(recent.released_at - recent.effect_at)}"
    return "; ".join(filter(None, (recent.threshold, recent.reason, freed)))


def timers_run(status: Status) -> bool:
    """Whether the timers of steps are running: not while the pod list is stale, during maintenance or in a hang."""
    return not status.pods_stale and status.maintenance is None and status.hangs_since is None


def enforcement(status: Status) -> str:
    """Whether the watchdog enforces now, in two words."""
    if status.hangs_since is not None:
        return "daemon hung"
    if status.enforcing:
        return "enforcing"
    if status.suspended:
        return "enforcement suspended" if status.switched_off_by else "under maintenance"
    return "only observing"


def daemon_health(status: Status) -> str:
    """Version, uptime, readiness and cycle time of the daemon; empty if it is too old to report them."""
    health = status.health
    if health is None:
        return ""
    parts = (
        f"version {health.version}" if health.version else "",
        f"up {span(health.uptime_s)}" if health.uptime_s else "",
        "ready" if health.ready else "not ready",
        f"cycles take {health.cycle_p99_s * 1000:.0f}ms" if health.cycle_p99_s is not None else "",
    )
    return ", ".join(filter(None, parts))


def problems(status: Status) -> tuple[str, ...]:
    """Sentences about what is wrong; those about the whole node come first."""
    return tuple(inert(problem, _LONGEST_PROBLEM).rstrip(".") for problem in _problems(status) if problem)


def _problems(status: Status) -> Iterator[str]:
    now_s, health = status.at, status.health
    yield hung(status, now_s)
    for reason in status.switched_off_by:
        yield f"Enforcement is suspended, no action is taken: {remedy_on(reason, status) or reason}"
    yield under_maintenance(status)
    yield pods_stale(status, now_s)
    yield breaker_open(status, now_s)
    if health is not None:
        yield from (f"Not ready: {reason}" for reason in health.unready)
        yield f"The policy file on disk is not in effect: {health.policy_error}" if health.policy_error else ""
    yield from unanswered(status, now_s)
    yield unlisted([gpu for gpu in status.gpus if gpu.up and not gpu.listed])
    gaps: defaultdict[str, list[str]] = defaultdict(list)
    for gap in without_unanswered(status).gaps:
        gaps[gap.text].append(gap_subject(gap, status.gpus))
    for reason, things in gaps.items():
        more = f", and {len(things) - 1} more" if len(things) > 1 else ""
        yield f"Unknown: {things[0]}{more}: {reason}"
