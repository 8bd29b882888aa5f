"""What `top` shows, as values read from the status of a daemon: every text in them is inert already."""

from dataclasses import dataclass
from typing import Final

NO_POD: Final = "unattributed processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Bytes that are known (`known`), or of which a part is not: then they are at least `least`."""

    known: int | None
    least: int = 0

    @property
    def floor(self) -> int:
        """What they are for certain, at the least."""
        return self.least if self.known is None else self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
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
    pods: Amount
    no_pod: Amount
    short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a GPU; `where` is its container, or why it belongs to no pod."""

    pid: int
    name: str
    where: str
    card: str
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next for an account, as of the pass: a deed that is `begun`, or a step that is due in `due_s`.

    `would`: nothing will be done, the step is only worked out. `put_off`: no pass ends, so that nobody does it.
    `held` is the brake, `because` the end of a sentence that says why, `lets_go_s` when it lets go (None: that is no
    matter of time). `left_s` of a deed that is begun is until SIGKILL, or until an eviction is tried again (None:
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
class Account:
    """A row: what an account uses against what it may, and what follows. `key` names it from picture to picture.

    `container` and `card` are what it is about besides the pod; empty: all. `over_since_s` is Unix time. `then` is the
    first force that follows a `next` that only warns.
    """

    key: tuple[str, str, str]
    namespace: str
    pod: str
    container: str
    card: str
    used: Amount
    declared: int | None
    declared_by: str
    allowed: int | None
    verdict: str
    rule: str
    protected: str
    over_since_s: float | None
    next: Next | None
    then: Next | None
    processes: tuple[Process, ...]

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
class Deed:
    """A line of what was done lately: when (Unix time), to whom, what, and what came of it (None: under way)."""

    at_s: float | None
    title: str
    do: str
    result: str | None
    used: Amount
    allowed: int | None
    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A whole picture of a node. `at_s` is when the pass looked, by the node's clock (Unix time).

    The pass ended `ago_s` before the answer came. `counts` is whether time counts: with an old pod list, under
    maintenance, or while no pass ends, no span runs down. `troubles` are sentences about what keeps the watchdog from
    its work, the most important one first.
    """

    node: str
    at: str
    at_s: float | None
    ago_s: float
    mode: str
    force: str
    cards: tuple[Card, ...]
    accounts: tuple[Account, ...]
    no_pod: Account | None
    deeds: tuple[Deed, ...]
    troubles: tuple[str, ...]
    health: str
    counts: bool
