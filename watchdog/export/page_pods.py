"""The pods of the status page: which of them a filter leaves, grouped by namespace if they are many."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from watchdog.core.units import ByteColumn
from watchdog.export.names import GpuName, PodName
from watchdog.export.page_cards import Bar, account_bar, amount
from watchdog.export.page_headline import PageInput
from watchdog.export.page_hour import account_hour
from watchdog.report.progress import AccountProgress, Level
from watchdog.report.sentences.node import MOST_NAMED
from watchdog.report.sentences.usage import idle_card_hours, idle_short
from watchdog.report.status import AccountStatus, Status
from watchdog.report.text import busy, count, inert, span

Row = dict[str, object]  # what the template shows of one row, by name
_MOST_IN_ONE_TABLE: Final = 20  # more are grouped by namespace
_MOST_WITHOUT_FILTER: Final = 8
_MOST_IDLE: Final = 8  # the others are among all pods
_STATES: Final = {"undeclared": "nothing declared", "misdeclared": "invalid declaration"}
_URGENT_VERDICTS: Final = ("over", "misdeclared", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """The rows of a namespace, or of the whole node."""

    # Empty: they are of the whole node.
    namespace: str
    pods: str = ""
    used: str = ""
    # Counts of accounts, as (CSS class, text).
    problems: tuple[tuple[str, str], ...] = ()
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTable:
    """The groups to show."""

    groups: tuple[PodGroup, ...]
    # How many pods the groups have.
    pods: int
    # How many pods there are.
    total: int
    # The rule of all accounts; None: they have none, or several.
    rule: str | None

    @property
    def bars(self) -> Iterable[Bar | None]:
        """The bar of each row."""
        return (cast("Bar | None", row["bar"]) for group in self.groups for row in group.rows)

    @property
    def has_filter(self) -> bool:
        """Whether there are enough pods for a filter to help."""
        return self.total > _MOST_WITHOUT_FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolders:
    """The accounts that hold memory and have computed nothing for long enough to be reported."""

    # How many pods these are, and what they hold in all.
    total: str = ""
    rows: tuple[Row, ...] = ()
    # How many there are besides.
    more: int = 0


def idle_holders(seen: PageInput) -> IdleHolders:
    """What is held idle, the largest first."""
    status = seen.status
    found = [progress for progress in seen.by_urgency if progress.account.idle]
    if status is None or not found:
        return IdleHolders()
    found.sort(key=lambda progress: (-progress.account.least, progress.account.title))
    shown = found if seen.query.shows_all else found[:_MOST_IDLE]
    return IdleHolders(
        total=f"{count(_pods(found), 'pod')}, {_used(found)}",
        rows=tuple(_idle(progress.account, seen, status) for progress in shown),
        more=len(found) - len(shown),
    )


def _idle(account: AccountStatus, seen: PageInput, status: Status) -> Row:
    gpus = _gpus(account, seen)
    return {
        "pod": PodName(account.namespace, account.pod),
        "container": _container(account),
        "held": amount(account.used, account.least),
        "gpus": gpus[:MOST_NAMED],
        "more_gpus": len(gpus) - MOST_NAMED,
        "lasting": span(account.idle_s or 0.0),
        "card_hours": idle_card_hours(account, status),
    }


def pod_table(seen: PageInput) -> PodTable:
    """The pods that match the reader's filter, the most urgent first."""
    text = seen.query.pod.casefold()
    shown = [progress for progress in seen.by_urgency if _matches(progress.account, text)]
    rules = {progress.account.rule for progress in seen.by_urgency}
    rule = rules.pop() if len(rules) == 1 else None
    return PodTable(
        groups=tuple(_groups(shown, seen, names_rule=rule is None)),
        pods=_pods(shown),
        total=_pods(seen.by_urgency),
        rule=rule,
    )


def _matches(account: AccountStatus, text: str) -> bool:
    owner = account.owner
    containers = {account.container, *(process.container for process in account.processes)}
    names = (account.title, f"{owner.kind}/{owner.name}" if owner is not None else "", *filter(None, containers))
    return any(text in name.casefold() for name in names)


def _pods(accounts: Iterable[AccountProgress]) -> int:
    return len({progress.account.uid for progress in accounts})


def _groups(shown: Sequence[AccountProgress], seen: PageInput, *, names_rule: bool) -> Iterable[PodGroup]:
    column = ByteColumn.of(each for progress in shown for each in _amounts(progress.account))
    if len(shown) <= _MOST_IN_ONE_TABLE:
        if shown:
            rows = tuple(_row(progress, seen, column, is_grouped=False, names_rule=names_rule) for progress in shown)
            yield PodGroup(namespace="", rows=rows)
        return
    by_namespace: defaultdict[str, list[AccountProgress]] = defaultdict(list)
    for progress in shown:
        by_namespace[progress.account.namespace].append(progress)
    for namespace, own in by_namespace.items():
        yield PodGroup(
            namespace=namespace,
            pods=count(_pods(own), "pod"),
            used=_used(own),
            problems=tuple(_problems(own)),
            rows=tuple(_row(progress, seen, column, is_grouped=True, names_rule=names_rule) for progress in own),
        )


def _amounts(account: AccountStatus) -> tuple[int | None, ...]:
    """The amounts of a row."""
    return account.least, account.used_at_most, account.allowed, account.declared


def _used(accounts: Iterable[AccountProgress]) -> str:
    own = [progress.account for progress in accounts]
    least = sum(account.least for account in own)
    return amount(least if all(account.used is not None for account in own) else None, least)


def _problems(accounts: Sequence[AccountProgress]) -> Iterable[tuple[str, str]]:
    """How many accounts are over, invalid, unknown or idle: `2 over`."""
    verdicts = Counter(progress.account.verdict for progress in accounts)
    for verdict in _URGENT_VERDICTS:
        if verdicts[verdict]:
            css = Level.BAD if verdict == "over" else Level.WATCH
            yield css.value, f"{verdicts[verdict]} {_STATES.get(verdict, verdict)}"
    if idle := sum(progress.account.idle for progress in accounts):
        yield Level.WATCH.value, f"{idle} idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part of a pod that an account covers; without container and GPU the whole pod."""

    # `container main`, or empty.
    container: str
    # None: all GPUs.
    gpu: GpuName | None

    @property
    def text(self) -> str:
        """The part in words; empty: the whole pod."""
        return ", ".join(filter(None, (self.container, self.gpu.label if self.gpu is not None else "")))


def place(account: AccountStatus, seen: PageInput) -> Place:
    """The part of its pod that an account covers."""
    return Place(container=_container(account), gpu=seen.gpu(account.gpu) if account.gpu is not None else None)


def _container(account: AccountStatus) -> str:
    """The container that an account covers; empty: all of them."""
    container = account.container
    if container is None:
        return ""
    return f"container {inert(container)}" if container else "an unknown container"


def _gpus(account: AccountStatus, seen: PageInput) -> list[GpuName]:
    """The GPUs that an account's memory is on, in the order of the node."""
    used = {process.gpu for process in account.processes} if account.gpu is None else {account.gpu}
    if len(used) == 1:
        return [*map(seen.gpu, used)]
    return [*(gpu for uuid, gpu in seen.gpus.items() if uuid in used), *map(seen.gpu, sorted(used - seen.gpus.keys()))]


def _row(progress: AccountProgress, seen: PageInput, column: ByteColumn, *, is_grouped: bool, names_rule: bool) -> Row:
    """An account as a row of a table, its amounts in the notation of the column."""
    account, gravest = progress.account, progress.gravest
    most, allowed, declared = account.used_at_most, account.allowed, account.declared
    state = _STATES.get(account.verdict, account.verdict)
    verdict_css = Level.WATCH.value if account.verdict in _URGENT_VERDICTS else ""
    gpus = _gpus(account, seen)
    return {
        "pod": PodName(account.namespace, account.pod, is_grouped),
        "container": _container(account),
        "rule": account.rule if names_rule else None,
        "gpus": gpus[:MOST_NAMED],
        "more_gpus": len(gpus) - MOST_NAMED,
        "without_gpus": "unknown" if account.used is None else "none",
        "bar": account_bar(account),
        "hour": account_hour(account),
        "used": amount(account.used, account.least, column.text),
        "most": column.text(most) if most is not None else "",
        "allowed": column.text(allowed) if allowed is not None else "",
        "declared": column.text(declared) if declared is not None else "",
        "busy": busy(account.utilization),
        "state": f"{state}, {gravest.short}" if gravest is not None else state,
        "idle": idle_short(account),
        "css": progress.level.value if progress.steps else verdict_css,
        "is_protected": account.protected is not None,
        "why": inert(account.limit_unknown, 200) if account.limit_unknown is not None else "",
    }
