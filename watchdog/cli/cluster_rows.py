"""What `top --cluster` shows: a row per node, a row per account of all nodes, and what is the matter with each node."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from watchdog.cli.tables import UNCUT, Cell, Column, Row, printed, table, without, wrapped
from watchdog.cli.views import ASCII, BUSY, HOUR, IDLE, VERDICTS, Choice, Signs, busy_cell, narrow, spark
from watchdog.core.errors import Problem
from watchdog.core.model import Now
from watchdog.report.status import ABSENT
from watchdog.report.summary import AccountSummary, Summary
from watchdog.report.text import byte_cell, count, inert, span

if TYPE_CHECKING:
    from watchdog.kube.daemons import DaemonPod
    from watchdog.kube.routes import Via

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer(Generic[Answer]):
    """What a node's daemon answered last, and why there is no newer answer."""

    node: str
    # Empty where there is only one.
    cluster: str = ""
    # None: there is none on this node, or it was not asked itself.
    daemon: "DaemonPod | None" = None
    answer: Answer | None = None
    # When that came (boot time, seconds), which way, and why not through the API server's proxy.
    at_s: float = 0.0
    via: "Via | Literal['prometheus'] | None" = None
    why: str = ""
    # Why the last question has no answer; None: it has.
    problem: Problem | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Cluster, node, and the namespace and name of its pod: two releases may have a daemon each on a node."""
        daemon = self.daemon
        return self.cluster, self.node, daemon.namespace if daemon else "", daemon.name if daemon else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node, with what is the matter with it."""

    of: NodeAnswer[Summary]
    # What is the matter beside accounts over their limit, each in a few words.
    remarks: tuple[str, ...]

    @property
    def key(self) -> object:
        """What a selection follows."""
        return self.of.key

    @property
    def state(self) -> str:
        """Whether its daemon enforces, in a word or two."""
        node = self.of.answer
        if node is None and self.of.problem is None:
            return "waiting"
        if node is None:
            return "no daemon" if self.of.daemon is None and self.of.via is None else "no answer"
        if self.of.problem is not None:
            return "no answer"
        if node.enforcing:
            return "enforcing"
        return "observing" if node.mode == "observe" else "NOT enforcing"

    @property
    def is_calm(self) -> bool:
        """Whether all is known to be well there."""
        node = self.of.answer
        is_known = node is not None and self.state in ("enforcing", "observing")
        return node is not None and is_known and not self.remarks and not node.verdicts.get("over")

    @property
    def name(self) -> str:
        """The node's name."""
        return inert(self.of.node) or "a pod without a node"

    @property
    def text(self) -> str:
        """What is the matter with it; on one line."""
        return "; ".join(self.remarks) or ("all is well" if self.of.answer is not None else "waiting for its answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """An account of a node."""

    of: NodeAnswer[Summary]
    account: AccountSummary

    @property
    def key(self) -> object:
        """What a selection follows."""
        each = self.account
        return self.of.key, each.namespace, each.pod, each.container, each.gpu

    @property
    def pod(self) -> str:
        """The pod as `namespace/name`, with the container of the account."""
        container = self.account.container
        name = f"{self.account.namespace}/{self.account.pod}"
        return name if container is None else f"{name} [{container or 'unlisted containers'}]"

    @property
    def is_urgent(self) -> bool:
        """Whether it is over its limit, acted on, or a step is due."""
        return self.account.acting or self.account.do is not None or self.account.verdict == "over"

    @property
    def over(self) -> float:
        """Bytes above its limit; negative below it, minus infinite without one."""
        compared, allowed = self.account.compared, self.account.allowed
        return -inf if compared is None or allowed is None else float(compared - allowed)

    @property
    def least(self) -> int:
        """What it certainly uses (bytes)."""
        return (self.account.used if self.account.used is not None else self.account.used_at_least) or 0

    @property
    def busy(self) -> str:
        """How much of the time of its GPUs it used: `35%`, or `-` if that is unknown."""
        ratio = self.account.utilization
        return busy_cell(ratio if isinstance(ratio, (int, float)) else None)

    @property
    def idle(self) -> str:
        """For how long it has held memory idle, if that is reported: `2h10m`; else empty."""
        idle_s = self.account.idle_s
        return narrow(span(idle_s)) if isinstance(idle_s, (int, float)) else ""

    @property
    def next(self) -> str:
        """What happens to it next, in a few words; unknown if its node no longer answers."""
        account = self.account
        if self.of.problem is not None:
            return "unknown"
        if account.acting:
            return "in progress"
        if account.do is None:
            return "-"
        if account.withheld_by:
            return f"{account.do} withheld: {inert(account.withheld_by, 40)}"
        due_s = account.due_in_s or 0
        return f"{account.do} in {span(due_s)}" if due_s > 0 else f"{account.do} now"


def _urgency(row: PodRow) -> tuple[float, ...]:
    account = row.account
    verdict = VERDICTS.index(account.verdict) if account.verdict in VERDICTS else len(VERDICTS)
    due_s = float(account.due_in_s) if account.due_in_s is not None else 0.0
    is_old = row.of.problem is not None
    is_within = account.verdict != "over"
    idle = is_within and not row.idle
    return not row.is_urgent, is_old, not account.acting, account.do is None, due_s, is_within, idle, verdict, -row.over


# The orders of pods; ties by namespace, name and node.
SORTS: Final[Mapping[str, Callable[[PodRow], tuple[object, ...]]]] = {
    "urgency": _urgency,
    "use": lambda row: (-row.least,),
    "over": lambda row: (-row.over,),
    "age": lambda row: (inf if row.account.over_since is None else row.account.over_since,),
    "namespace": lambda row: (row.account.namespace,),
    "node": lambda row: (row.of.node,),
}


def node_rows(answers: Iterable[NodeAnswer[Summary]], now: Now) -> list[NodeRow]:
    """The nodes, those first of which there is something to say; by name."""
    every = list(answers)
    pods: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in every:
        if each.daemon is not None:
            pods[each.cluster, each.node].append(each.daemon.title)
    rows = []
    for each in every:
        names = pods[each.cluster, each.node]
        others = (
            [f"{len(names)} pods are the watchdog's on it: {inert(', '.join(names), 300)}"] if len(names) > 1 else []
        )
        rows.append(NodeRow(of=each, remarks=(*_remarks(each, now), *others)))
    return sorted(rows, key=lambda row: (row.is_calm, row.of.answer is not None, row.key))


def pod_rows(answers: Iterable[NodeAnswer[Summary]], choice: Choice) -> list[PodRow]:
    """The accounts of all nodes that are chosen, in their order."""
    rows = [PodRow(of=each, account=account) for each in answers if each.answer for account in each.answer.accounts]
    words = choice.text.casefold().split()

    def is_chosen(row: PodRow) -> bool:
        if (choice.over and row.account.verdict != "over") or (choice.idle and not row.idle):
            return False
        searched = f"{row.of.node} {row.pod} {row.account.verdict}".casefold() if words else ""
        return all(word in searched for word in words)

    by_name = sorted(filter(is_chosen, rows), key=lambda row: (row.pod, row.of.node))
    return sorted(by_name, key=SORTS[choice.sort], reverse=choice.backwards)


def misnamed(node: str, own: str) -> Problem | None:
    """What is the matter if a daemon says that it is another node than that of its pod."""
    if own == node:
        return None
    remedy = "it watches the pods of that one: see NODE_NAME and --node in its DaemonSet"
    return Problem(f"its daemon says that it is node {own!r}", remedy)


_OLD_S: Final = 30.0


def _remarks(of: NodeAnswer[Summary], now: Now) -> list[str]:
    """What is the matter with a node, each in a few words."""
    problem = inert(str(of.problem), 600) if of.problem is not None else ""
    node = of.answer
    if node is None:
        return [problem] if problem else []
    remarks = [f"no answer since {span(now.boottime_s - of.at_s)}: {problem}"] if problem else []
    other = misnamed(of.node, node.node)
    remarks += [inert(str(other), 600)] if other is not None else []
    down = [gpu.number for gpu in node.gpus if not gpu.up]
    why = f" ({inert(node.stopped_why, 100)})" if node.stopped_why else ""
    remarks += [f"suspended: {inert(', '.join(node.suspended), 200)}{why}"] if node.suspended else []
    remarks += [f"maintenance: {inert(node.maintenance, 100)}"] if node.maintenance and not node.suspended else []
    remarks += ["its loop hangs"] if node.hangs_since is not None else []
    age_s = now.wall_s - node.at
    remarks += [f"last read {span(age_s)} ago"] if age_s > _OLD_S and not problem else []
    remarks += ["its pod list is old"] if node.pods_stale else []
    remarks += ["the breaker is open"] if node.breaker_open else []
    remarks += [f"{'GPU' if len(down) == 1 else 'GPUs'} {', '.join(map(inert, down))} down"] if down else []
    return remarks + ([f"{count(node.gaps, 'data gap')}, first {inert(node.gap or '', 160)}"] if node.gaps else [])


_CLUSTER: Final = "CLUSTER"
NODES: Final = (
    Column(title=_CLUSTER, least=8, is_name=True, rank=6),
    Column(title="NODE", least=12, is_name=True),
    Column(title="GPUS", right=True),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True, rank=3),
    Column(title=BUSY, right=True, rank=2),
    Column(title="ACCOUNTS", right=True, rank=5),
    Column(title="OVER", right=True, rank=1),
    Column(title=IDLE, right=True, rank=4),
    Column(title="STATE"),
)
PODS: Final = (
    Column(title="POD", least=24, is_name=True),
    Column(title=_CLUSTER, least=8, is_name=True, rank=7),
    Column(title="NODE", least=8, is_name=True, rank=1),
    Column(title="GPU", right=True, rank=4),
    Column(title="USED", right=True),
    Column(title="ALLOWED", right=True, rank=3),
    Column(title="VERDICT"),
    Column(title=BUSY, right=True, rank=6),
    Column(title=IDLE, right=True, rank=2),
    Column(title=HOUR, rank=8),
    Column(title="NEXT", least=12, rank=5),
)


def laid_out(
    columns: Sequence[Column], rows: Iterable[Row], answers: Iterable[NodeAnswer[Summary]], *, are_pods: bool
) -> tuple[Sequence[Column], list[Row]]:
    """Columns and rows for a table; without the cluster if there is only one, and without hours if there are none.

    Also without utilisation where nothing is known of it, of nodes or if these `are_pods` of pods, and without what is
    idle where nothing is.
    """
    absent = {_CLUSTER, HOUR, BUSY, IDLE}
    for each in answers:
        absent -= {_CLUSTER} if each.cluster else set()
        if (node := each.answer) is not None:
            absent -= {HOUR} if any(spark(account.hour, ASCII) for account in node.accounts[:1]) else set()
            absent -= {BUSY} if BUSY in absent and _is_busy_known(node, of_pods=are_pods) else set()
            absent -= {IDLE} if node.idle else set()
        if not absent:
            break
    return without(columns, rows, absent)


def _is_busy_known(node: Summary, *, of_pods: bool) -> bool:
    if not of_pods:
        return node.utilization is not None
    return any(account.utilization is not ABSENT for account in node.accounts)


def node_cells(row: NodeRow) -> tuple[str, ...]:
    """The cells of NODES."""
    node = row.of.answer
    if node is None:
        return inert(row.of.cluster), inert(row.of.node) or "(unscheduled)", *["-"] * 7, row.state
    return (
        inert(row.of.cluster),
        inert(row.of.node),
        str(node.gpus_in_all),
        byte_cell(node.used),
        byte_cell(node.total),
        busy_cell(node.utilization),
        str(node.accounts_in_all),
        str(node.verdicts.get("over", 0)),
        str(node.idle),
        row.state,
    )


def pod_cells(row: PodRow, signs: Signs) -> tuple[str, ...]:
    """The cells of PODS."""
    account = row.account
    return (
        inert(row.pod),
        inert(row.of.cluster),
        inert(row.of.node),
        inert(account.gpu or "-"),
        byte_cell(account.used if account.used is not None else account.used_at_least),
        "-" if account.allowed is None else byte_cell(account.allowed),
        inert(account.verdict, 40),
        row.busy,
        row.idle or "-",
        spark(account.hour, signs),
        row.next,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All nodes together."""

    nodes: int
    silent: int
    gpus: int
    # Bytes; None: that of a node is unknown.
    used: int | None
    total: int | None
    # The mean of the nodes of which it is known, by their GPUs; None: of none.
    utilization: float | None
    verdicts: Mapping[str, int]
    # How many accounts hold memory idle.
    idle: int


def totals_of(answers: Sequence[NodeAnswer[Summary]]) -> Totals:
    """The sums over all nodes that have answered."""
    known = [each.answer for each in answers if each.answer is not None]
    verdicts: Counter[str] = Counter()
    for each in known:
        verdicts.update(each.verdicts)
    used, total = [each.used for each in known], [each.total for each in known]
    read = [(each.utilization, each.gpus_in_all) for each in known if each.utilization is not None]
    gpus_read = sum(gpus for _, gpus in read)
    return Totals(
        nodes=len(answers),
        silent=sum(each.answer is None or each.problem is not None for each in answers),
        gpus=sum(each.gpus_in_all for each in known),
        used=None if None in used else sum(each or 0 for each in used),
        total=None if None in total else sum(each or 0 for each in total),
        utilization=sum(ratio * gpus for ratio, gpus in read) / gpus_read if gpus_read else None,
        idle=sum(each.idle for each in known),
        verdicts={verdict: verdicts[verdict] for verdict in VERDICTS if verdicts[verdict]},
    )


_WAYS: Final = {
    "proxy": "through the API server's proxy",
    "port-forward": "by port-forward",
    "prometheus": "by Prometheus",
}


def ways_text(answers: Sequence[NodeAnswer[Summary]]) -> str:
    """How many nodes have answered, which way and why not the usual one, and how many have not."""
    ways = Counter(each.via for each in answers if each.via is not None and each.problem is None)
    parts: list[str] = []
    for way, number in sorted(ways.items(), reverse=True):
        whom = str(number) if parts else count(number, "node")
        parts.append(f"{whom} {'answers' if number == 1 else 'answer'} {_WAYS[way]}")
    if silent := len(answers) - ways.total():
        whom = str(silent) if parts else count(silent, "node")
        parts.append(f"{whom} {'does' if silent == 1 else 'do'} not answer")
    why = why_not_by_proxy(answers)
    return f"{', '.join(parts)}{f' ({why})' if why else ''}"


def ways_short(answers: Sequence[NodeAnswer[Summary]]) -> str:
    """The same in a few words, without the reason."""
    ways = Counter(each.via for each in answers if each.via is not None and each.problem is None)
    parts = [f"{number} by {way}" for way, number in sorted(ways.items(), reverse=True)]
    waiting = sum(each.answer is None and each.problem is None for each in answers)
    silent = len(answers) - ways.total() - waiting
    parts += [f"{number} {what}" for number, what in ((silent, "silent"), (waiting, "waiting")) if number]
    return ", ".join(parts)


def why_not_by_proxy(answers: Sequence[NodeAnswer[Summary]]) -> str:
    """Why some have answered by a port-forward; empty if none has."""
    return inert(next((each.why for each in answers if each.why and each.problem is None), ""), 300)


_MOST_NAMED: Final = 4


def remarks_on(rows: Iterable[NodeRow]) -> list[tuple[str, bool]]:
    """What is the matter with nodes, a line for all with the same; and whether these do not answer at all."""
    alike: dict[tuple[str, bool], list[str]] = {}
    for row in rows:
        if row.remarks:
            alike.setdefault((row.text, row.of.answer is None), []).append(row.name)
    lines = []
    for (words, is_silent), names in alike.items():
        shown = names if len(names) <= _MOST_NAMED + 1 else [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more"]
        lines.append((f"! {', '.join(shown)}: {words}", is_silent))
    return lines


_MOST_PODS: Final = 40


def cluster_text(
    answers: Sequence[NodeAnswer[Summary]],
    choice: Choice,
    now: Now,
    *,
    problem: Problem | None = None,
    width: int = UNCUT,
    signs: Signs = ASCII,
) -> str:
    """All nodes as tables: the nodes, the pods (only the urgent ones, unless others were asked for), and remarks."""
    nodes, pods = node_rows(answers, now), pod_rows(answers, choice)
    is_asked_for = choice.is_filtered or choice.sort != "urgency"
    shown = pods if is_asked_for else [row for row in pods if row.is_urgent][:_MOST_PODS]
    urgent = sum(row.is_urgent for row in pods)
    lines: list[Cell] = [*wrapped(ways_text(answers), width)]
    lines += ["", *table(*laid_out(NODES, map(node_cells, nodes), answers, are_pods=False), width)]
    cells = (pod_cells(row, signs) for row in shown)
    pod_lines = table(*laid_out(PODS, cells, answers, are_pods=True), width)
    lines += ["", *(pod_lines if shown else wrapped(_no_pods(choice, totals_of(answers)), width))]
    lines += [f"and {urgent - len(shown)} more"] if urgent > len(shown) and not is_asked_for else []
    remarks = [line for line, _ in remarks_on(nodes)]
    remarks += [f"! {inert(str(problem), 600)}"] if problem is not None else []
    if remarks:
        lines += ["", *(line for remark in remarks for line in wrapped(remark, width, "", "  "))]
    return printed(lines)


def _no_pods(choice: Choice, totals: Totals) -> str:
    """Why there is no pod to show; what does not answer is not well."""
    if totals.silent == totals.nodes:
        return "No node answers, so nothing is known about any pod."
    where = " on the nodes that answer" if totals.silent else ""
    reasons = (
        "is over its limit" if choice.over else "",
        "is known to hold memory idle" if choice.idle else "",
        f"matches {choice.text!r}" if choice.text else "",
    )
    asked = " and ".join(filter(None, reasons))
    return f"No pod{where} {asked}." if asked else f"No pod{where} is over its limit, and no step is due."
