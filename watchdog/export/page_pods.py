"""The pods of the status page: which of them a filter leaves, grouped by namespace if they are many."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.units import format_bytes
from watchdog.export.page_cards import account_bar, amount
from watchdog.export.page_headline import PageInput
from watchdog.report.progress import AccountProgress, Level
from watchdog.report.status import AccountStatus
from watchdog.report.text import count, inert

Row = dict[str, object]  # what the template shows of one row, by name
_MOST_IN_ONE_TABLE: Final = 20  # more are grouped by namespace
_MOST_WITHOUT_FILTER: Final = 8
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
    def has_filter(self) -> bool:
        """Whether there are enough pods for a filter to help."""
        return self.total > _MOST_WITHOUT_FILTER


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
    if len(shown) <= _MOST_IN_ONE_TABLE:
        if shown:
            rows = tuple(_row(progress, progress.account.title, seen, names_rule=names_rule) for progress in shown)
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
            rows=tuple(_row(progress, progress.account.pod, seen, names_rule=names_rule) for progress in own),
        )


def _used(accounts: Iterable[AccountProgress]) -> str:
    own = [progress.account for progress in accounts]
    least = sum(account.least for account in own)
    return amount(least if all(account.used is not None for account in own) else None, least)


def _problems(accounts: Iterable[AccountProgress]) -> Iterable[tuple[str, str]]:
    """How many accounts are over, invalid or unknown: `2 over`."""
    verdicts = Counter(progress.account.verdict for progress in accounts)
    for verdict in _URGENT_VERDICTS:
        if verdicts[verdict]:
            css = Level.BAD if verdict == "over" else Level.WATCH
            yield css.value, f"{verdicts[verdict]} {_STATES.get(verdict, verdict)}"


def place(account: AccountStatus, labels: Mapping[str, str]) -> str:
    """The part of a pod that an account covers: `container main, GPU 0`; empty: the whole pod."""
    container, gpu = account.container, account.gpu
    parts = [] if container is None else [f"container {inert(container)}" if container else "an unknown container"]
    return ", ".join([*parts, *([] if gpu is None else [inert(labels.get(gpu, gpu))])])


def _row(progress: AccountProgress, title: str, seen: PageInput, *, names_rule: bool) -> Row:
    """An account as a row of a table."""
    account, gravest = progress.account, progress.gravest
    most, allowed = account.used_at_most, account.allowed
    state = _STATES.get(account.verdict, account.verdict)
    verdict_css = Level.WATCH.value if account.verdict in _URGENT_VERDICTS else ""
    return {
        "title": title,
        "place": place(account, seen.labels),
        "rule": account.rule if names_rule else None,
        "bar": account_bar(account),
        "used": amount(account.used, account.least),
        "most": format_bytes(most) if most is not None else "",
        "allowed": format_bytes(allowed) if allowed is not None else "",
        "declared": amount(account.declared) if allowed is not None and account.declared != allowed else "",
        "state": f"{state}, {gravest.short}" if gravest is not None else state,
        "css": progress.level.value if progress.steps else verdict_css,
        "is_protected": account.protected is not None,
        "why": inert(account.limit_unknown, 200) if account.limit_unknown is not None else "",
    }
