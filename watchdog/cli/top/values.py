"""What `top` shows as values read from the status of a daemon, in cells: every text in them is inert already."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from watchdog.report.status import AccountStatus, PlanStatus, Status, UnderWayStatus
from watchdog.report.text import byte_cell, inert, span

NO_POD: Final = "unattributed processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedAmount:
    """Bytes that are known (`known`), or of which a part is not: then they are at least `least`."""

    known: int | None
    least: int = 0

    @property
    def floor(self) -> int:
        """What they are for certain, at the least."""
        return self.least if self.known is None else self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    """A GPU: a card, or a MIG instance. Bytes; None: not known.

    `pods` is what the processes of pods use on it, `no_pod` what those of no pod do: not known where the driver gives
    no whole list of them.
    """

    uuid: str
    label: str
    name: str
    up: bool
    total: int | None
    used: int | None
    reserved: int | None
    residual: int | None
    pods: UsedAmount
    no_pod: UsedAmount
    short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A process on a GPU; `where` is its container, or why it belongs to no pod."""

    pid: int
    name: str
    where: str
    card: str
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What comes next for an account, as of the cycle: an action that is `begun`, or a step that is due in `due_s`.

    `would`: nothing will be done, the step is only worked out. `put_off`: no cycle ends, so that nobody does it.
    `held` is the brake, `because` the end of a sentence that says why, `lets_go_s` when it lets go (None: that is no
    matter of time). `left_s` of an action that is begun is until SIGKILL, or until an eviction is tried again (None:
    nothing is waited for but its end).
    """

    do: str
    scope: str = ""
    above: str = ""
    due_s: float = 0.0
    would: bool = False
    put_off: bool = False
    held: str = ""
    because: str = ""
    lets_go_s: float | None = None
    begun: bool = False
    left_s: float | None = None
    tries: int = 0
    blocked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """A row: what an account uses against what it may, and what follows. `key` names it from picture to picture.

    `container` and `card` are what it is about besides the pod; empty: all. `over_since_s` is Unix time. `then` is the
    first force that follows a `next` that only warns.
    """

    key: tuple[str, str, str]
    namespace: str
    pod: str
    container: str
    card: str
    used: UsedAmount
    declared: int | None
    declared_by: str
    allowed: int | None
    verdict: str
    rule: str
    protected: str
    over_since_s: float | None
    next: NextStep | None
    then: NextStep | None
    processes: tuple[ProcessView, ...]

    @property
    def is_no_pod(self) -> bool:
        """Whether this is the row of the processes of no pod."""
        return not any(self.key)

    @property
    def title(self) -> str:
        """The pod as `namespace/name`, with the container and the GPU that the account is about."""
        if self.is_no_pod:
            return NO_POD
        container = f" [{self.container}]" if self.container else ""
        return f"{self.namespace}/{self.pod}{container}{f' on {self.card}' if self.card else ''}"

    @property
    def share(self) -> float | None:
        """What it uses of what it is allowed, at the least; None where nothing or not a known amount is allowed."""
        return self.used.floor / self.allowed if self.allowed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """A line of what was done lately: when (Unix time), to whom, what, and what came of it (None: in progress)."""

    at_s: float | None
    title: str
    do: str
    result: str | None
    used: UsedAmount
    allowed: int | None
    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A whole picture of a node. `at_s` is when the cycle looked, by the node's clock (Unix time).

    The cycle ended `ago_s` before the answer came. `counts` is whether time counts: with an old pod list, under
    maintenance, or while no cycle ends, no span runs down. `troubles` are sentences about what keeps the watchdog from
    its work, the most important one first.
    """

    node: str
    at: str
    at_s: float | None
    ago_s: float
    mode: str
    force: str
    cards: tuple[CardView, ...]
    accounts: tuple[AccountView, ...]
    no_pod: AccountView | None
    actions: tuple[ActionView, ...]
    troubles: tuple[str, ...]
    health: str
    counts: bool


_MOST_PERCENT: Final = 9999


class Signs(NamedTuple):
    """The characters that bars are made of, in the order in which they stand; `least` is `at least`."""

    pods: str
    no_pod: str
    rest: str
    free: str
    least: str
    cut: str


BLOCKS: Final = Signs("█", "▓", "▒", "░", "≥", "│")
ASCII: Final = Signs("#", "=", "-", ".", ">=", "|")


def amount(value: UsedAmount, signs: Signs) -> str:
    """Bytes: `7.0Gi`, `≥7.0Gi`, or `unknown`."""
    if value.known is not None or not value.least:
        return byte_cell(value.known)
    return f"{signs.least}{byte_cell(value.least)}"


def declared(account: AccountView) -> str:
    """What an account declares; `-` where that is nothing, rather than not known."""
    if account.declared is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(account.declared)


def allowed(account: AccountView) -> str:
    """What it may use; `-` where no limit holds for it."""
    if account.allowed is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(account.allowed)


def percent(account: AccountView, signs: Signs) -> str:
    """What it uses of what it is allowed: `87%`, `≥87%`, `unknown`, or `-` where there is no limit."""
    if account.allowed is None:
        return allowed(account)
    if account.used.known is None and not account.used.least:
        return "unknown"
    least = "" if account.used.known is not None else signs.least
    ratio = account.used.floor / account.allowed if account.allowed else float(_MOST_PERCENT) * account.used.floor
    exact = 100 * min(ratio, float(_MOST_PERCENT))
    whole = int(exact) if least else round(exact)
    if whole > _MOST_PERCENT:
        return f">{_MOST_PERCENT}%"
    # What is a hair above the limit is not shown as 100%, nor what is a hair below it.
    if whole == 100 and ratio != 1:
        whole = 101 if ratio > 1 else 99
    return f"{least}{whole}%"


def card_bar(card: CardView, width: int, signs: Signs) -> tuple[tuple[str, str], ...]:
    """A bar of a card's memory: the processes of pods, those of no pod, the rest of what is used, what is free.

    Pairs of what a piece is (`pods`, `no_pod`, `rest`, `free`, `unknown`) and its characters.
    """
    if not card.up or not card.total or card.used is None:
        return (("unknown", "?" * width),)
    pieces, filled, upto = [], 0, 0
    # What is known of the parts may exceed the whole: the lists and the sum are read one after the other.
    for kind, part in (("pods", card.pods.floor), ("no_pod", card.no_pod.floor), ("rest", card.used)):
        upto = min(part if kind == "rest" else upto + part, card.used)
        cells = max(min(round(width * upto / card.total), width) - filled, 0)
        filled += cells
        pieces.append((kind, getattr(signs, kind) * cells))
    return (*pieces, ("free", signs.free * (width - filled)))


def share_bar(account: AccountView, width: int, signs: Signs) -> str:
    """A bar that is full where an account uses all that it is allowed; empty of marks where that is not known."""
    if account.share is None:
        return (" " if account.allowed is None else signs.pods if account.used.floor else signs.free) * width
    if account.used.known is None and not account.used.least:
        return "?" * width
    filled = min(max(int(width * account.share), 1 if account.used.floor else 0), width)
    return signs.pods * filled + signs.free * (width - filled)


# Spans are told in whole seconds: tenths would only flicker.
_DONE: Final = {"kill": "kill", "evict": "eviction", "warn": "warning"}


def coming(account: AccountStatus, status: Status) -> tuple[NextStep | None, NextStep | None]:
    """What comes first for an account, and the first force behind it where that only warns."""
    idle = account.observes or not status.enforcing
    hangs = status.hangs_since is not None
    entries = [_planned(entry, would=idle, hangs=hangs) for entry in status.plan if entry.is_of(account)]
    under_way = account.under_way
    if under_way is not None:
        return _begun(under_way, status), None
    if not entries:
        return None, None
    force = next((each for each in entries[1:] if each.do != "warn"), None)
    return entries[0], force if entries[0].do == "warn" else None


def _begun(under_way: UnderWayStatus, status: Status) -> NextStep:
    killed, at = under_way.sigkill_at, status.at
    left_s = killed - at if killed is not None and at is not None and killed > at else None
    if status.hangs_since is not None:
        left_s = None  # nobody is there to send it
    return NextStep(do=inert(under_way.do or "", 20), begun=True, left_s=left_s)


def _planned(entry: PlanStatus, *, would: bool, hangs: bool) -> NextStep:
    trying = entry.trying
    return NextStep(
        do=inert(entry.do or "", 20),
        scope=inert(entry.scope or "", 20),
        above=inert(entry.above or "", 40),
        due_s=max(entry.due_in_s or 0.0, 0.0),
        would=would,
        put_off=hangs,
        held=inert(entry.withheld_by or "", 40),
        because=inert(entry.held_because or "", 600),
        lets_go_s=entry.lets_go_in_s,
        begun=trying is not None and not hangs,
        left_s=trying.next_in_s if trying is not None else None,
        tries=(trying.tries or 0) if trying is not None else 0,
        blocked=trying is not None and trying.blocked,
    )


def left_s(account: AccountView, elapsed_s: float) -> float | None:
    """Seconds until something happens to an account: 0 where it does now; None: nothing is to come."""
    step = account.next
    if step is None:
        return None
    if step.begun:
        return 0.0
    if step.put_off:
        return float("inf")
    held_s = 0.0 if not step.held else step.lets_go_s if step.lets_go_s is not None else float("inf")
    return max(max(step.due_s, held_s) - elapsed_s, 0.0)


def short(step: NextStep | None, elapsed_s: float) -> str:
    """A step in few words, so many seconds after the cycle: `kill in 4s`, `kill held: owner, 3m`; `-` for none."""
    if step is None:
        return "-"
    if step.begun:
        return _progress(step, elapsed_s)
    if step.put_off:
        return f"{step.do} put off"
    would = "would " if step.would else ""
    due_s = step.due_s - elapsed_s
    if step.held and due_s <= 0:
        return f"{step.do} held: {step.held}{_letting_go(step, elapsed_s, ', ').replace('m ', 'm')}"
    return f"{would}{step.do} {_in(due_s)}".replace("m ", "m").replace("h ", "h")


def long(account: AccountView, elapsed_s: float) -> str:
    """The same with the mark, with what holds it back and why, and with what follows a warning."""
    step, then = account.next, account.then
    if step is None:
        return f"never acted on: {account.protected}" if account.protected else "-"
    if step.begun:
        return _progress(step, elapsed_s)
    told = _step(step, elapsed_s)
    return f"{told}; then {_step(then, elapsed_s)}" if then is not None else told


def _step(step: NextStep, elapsed_s: float) -> str:
    would = "would " if step.would else ""
    what = " ".join(filter(None, (step.do, step.scope, f"above {step.above}" if step.above else "")))
    if step.put_off:
        return f"{what}, put off until a pass ends again"
    told = f"{would}{what} {_in(step.due_s - elapsed_s)}"
    if not step.held:
        return told
    then = " then" if step.due_s - elapsed_s > 0 else ""
    why = f": {step.because}" if step.because else ""
    return f"{told}, held back{then} ({step.held}{_letting_go(step, elapsed_s, ', ')}){why}"


def _progress(step: NextStep, elapsed_s: float) -> str:
    what = _DONE.get(step.do, step.do) or "deed"
    left = step.left_s - elapsed_s if step.left_s is not None else 0.0
    if step.tries:
        state = "blocked" if step.blocked else "refused"
        again = f", again in {_span(left)}" if left > 0 else ""
        return f"{what} {state}, try {step.tries}{again}"
    return f"{what} begun, SIGKILL in {_span(left)}" if left > 0 else f"{what} under way"


def _letting_go(step: NextStep, elapsed_s: float, before: str) -> str:
    if step.lets_go_s is None:
        return ""
    return f"{before}{_span(step.lets_go_s - elapsed_s)}" if step.lets_go_s > elapsed_s else ""


def _in(seconds: float) -> str:
    return f"in {_span(seconds)}" if seconds > 0 else "now"


def _span(seconds: float) -> str:
    """A span that runs down, in whole seconds, rounded up: at 0 it is over."""
    return span(float(-(-seconds // 1)))
