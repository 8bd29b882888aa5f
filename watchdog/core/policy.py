"""The policy as values: rules with their hours and steps, protection and brakes.

Amounts are bytes, durations seconds, shares exact fractions.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, Literal, NamedTuple, assert_never

from watchdog.core.units import LARGEST, format_percent, format_quantity

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES: Final = 24 * 60
_EPOCH_DAY: Final = DAYS.index("Thu")  # 1 January 1970
# No two changes of a zone's clocks that undo each other lie closer together (tz database: the shortest are weeks).
_STRIDE_S: Final = 3600
# A week, and once more for a zone that leaves a day out (Samoa had no 30 December 2011).
_HORIZON_S: Final = 15 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Days (0 is Monday) and a span of the day in minutes since midnight; over midnight where it ends before it begins.

    A span over midnight belongs to the day on which it begins. Only what the clock shows counts: an hour that is left
    out in spring is in no span, and one that comes twice in autumn is in its span twice. `offset_s` gives the seconds
    that the zone's clocks are ahead of UTC at a Unix time; `text` is as the policy has it, and ends with the zone.
    """

    text: str
    days: frozenset[int]
    begin: int
    end: int
    offset_s: Callable[[float], int] = field(compare=False, repr=False)

    def holds(self, wall_s: float) -> bool:
        """Whether a Unix time lies in them."""
        day, minute = divmod(self._local_s(wall_s) // 60, DAY_MINUTES)
        if self.begin < self.end:
            return self._has(day) and self.begin <= minute < self.end
        return (self._has(day) and minute >= self.begin) or (self._has(day - 1) and minute < self.end)

    def next_change_s(self, wall_s: float) -> float:
        """The first Unix time after this one at which `holds` gives something else; infinity if it never does."""
        now = self.holds(wall_s)
        at = math.floor(wall_s)
        horizon = at + _HORIZON_S
        while at < horizon:
            at = self._next_step_s(at)
            if self.holds(at) is not now:
                return float(at)
        return math.inf

    def say(self, wall_s: float) -> str:
        """A Unix time as people in the zone write it: `Mon 08:00 Europe/Berlin`."""
        day, minute = divmod(self._local_s(wall_s) // 60, DAY_MINUTES)
        zone = self.text.rpartition(" ")[2]
        return f"{DAYS[(day + _EPOCH_DAY) % 7]} {minute // 60:02}:{minute % 60:02} {zone}"

    def _has(self, day: int) -> bool:
        return (day + _EPOCH_DAY) % 7 in self.days

    def _local_s(self, wall_s: float) -> int:
        """What the clock shows, as seconds since it showed the beginning of 1970."""
        whole_s = math.floor(wall_s)
        return whole_s + self.offset_s(whole_s)

    def _next_step_s(self, at: int) -> int:
        """The next second at which something may change: a boundary of the span, or the clock itself."""
        offset_s = self.offset_s(at)
        second = (at + offset_s) % 86400
        bounds = (self.begin * 60, self.end * 60, 86400)
        until = at + min([_STRIDE_S, *(bound - second for bound in bounds if bound > second)])
        if self.offset_s(until) == offset_s:
            return until
        return self._clock_change_s(at, until, offset_s)

    def _clock_change_s(self, at: int, until: int, offset_s: int) -> int:
        """The second in which the clock is put forward or back, known to lie after `at` and not after `until`."""
        while until - at > 1:
            middle = (at + until) // 2
            at, until = (middle, until) if self.offset_s(middle) == offset_s else (at, middle)
        return until


Mode = Literal["observe", "enforce"]
Scope = Literal["process", "container", "pod"]


class Verb(NamedTuple):
    """An action in the forms that sentences need: `kill`, `kills`, `killing`, `killed`, `a kill`."""

    base: str
    does: str
    doing: str
    done: str
    noun: str

    @property
    def an_action(self) -> str:
        """The noun with its article."""
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"


class Do(StrEnum):
    """What a step does."""

    WARN = "warn"
    KILL = "kill"
    EVICT = "evict"

    @property
    def verb(self) -> Verb:
        """How it is called."""
        match self:
            case Do.WARN:
                return Verb("warn", "warns", "warning", "warned", "warning")
            case Do.KILL:
                return Verb("kill", "kills", "killing", "killed", "kill")
            case Do.EVICT:
                return Verb("evict", "evicts", "evicting", "evicted", "eviction")
            case _:
                assert_never(self)

    @property
    def first_effect(self) -> str:
        """What an action begins to take effect with, and its release is counted from."""
        match self:
            case Do.WARN:
                return "the warning"
            case Do.KILL:
                return "the first signal"
            case Do.EVICT:
                return "the eviction was accepted"
            case _:
                assert_never(self)

    @property
    def is_force(self) -> bool:
        """Whether it ends processes."""
        return self is not Do.WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The height above which a step counts: a share of allowed, an amount above allowed, or an amount; one is set."""

    share: Fraction | None = None
    plus: int | None = None
    amount: int | None = None

    def threshold_bytes(self, allowed: int, do: Do) -> int:
        """Bytes of `used_at_least` above which the step counts; for force never below `allowed`."""
        if self.share is not None:
            threshold_bytes = allowed * self.share.numerator // self.share.denominator
        elif self.plus is not None:
            threshold_bytes = allowed + self.plus
        else:
            threshold_bytes = self.amount or 0
        return min(max(threshold_bytes, allowed) if do.is_force else threshold_bytes, LARGEST)

    def __str__(self) -> str:
        if self.share is not None:
            return format_percent(self.share)
        if self.plus is not None:
            return f"+{format_quantity(self.plus)}"
        return format_quantity(self.amount or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a rule's ladder."""

    above: Threshold
    for_s: float
    do: Do
    scope: Scope = "container"
    grace_s: float = 10.0
    repeat_s: float = 3600.0
    under_pressure: bool = False
    unwarned: bool = False

    @property
    def signature(self) -> tuple[Threshold, float, Do, bool]:
        """What a step is known by: `above`, `for` and `do`, and whether it waits for a short card."""
        return (self.above, self.for_s, self.do, self.under_pressure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which pods a rule is for; every field that is set must match, names take `*` and `?`."""

    namespaces: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    owner_kinds: tuple[str, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What holds for the pods that it matches: the first rule that matches a pod is its rule."""

    name: str
    match: Match = field(default_factory=Match)
    account: Literal["pod", "container"] = "pod"
    default: int | None = None
    mode: Mode | None = None
    active: Hours | None = None
    steps: tuple[Step, ...] = ()

    @property
    def minds_pressure(self) -> bool:
        """Whether it matters to this rule that a card is short of memory."""
        return any(step.under_pressure for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What the driver takes, on top of what was declared: bytes a context, at most so many, and a share of declared."""

    per_context: int = 512 * 2**20
    max_contexts: int = 4
    percent: Fraction = Fraction(2, 100)

    def allowed(self, declared: int, contexts: int) -> int:
        """Bytes that an account may use: floor(declared x (1 + percent)) + per_context x contexts."""
        share = declared * self.percent.numerator // self.percent.denominator
        return declared + share + self.per_context * min(contexts, self.max_contexts)


NO_ALLOWANCE = Allowance(per_context=0, max_contexts=0, percent=Fraction(0))

Special = Literal["percent", "fraction", "share", "mig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unless:
    """A resource that, from a number on, makes a declaration not apply (`tencent.com/vcuda-core` of 100)."""

    resource: str
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One place where GPU memory is declared.

    `unit` is the number of bytes that 1 stands for, or the name of a unit that depends on the cards.
    """

    kind: Literal["resource", "annotation", "label"]
    key: str
    unit: int | Special
    per: Literal["total", "gpu"] = "total"
    shares: str | int | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    unless: Unless | None = None
    limit_annotation: str = ""
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protect:
    """Whom the operator spares beyond what is built in."""

    namespaces: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    priority_at_least: int = 2_000_000_000
    annotation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """At most `count` in any `per_s` seconds."""

    count: int
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The wait between two actions on pods of one owner: `first_s`, then `factor` times the last, at most `max_s`."""

    first_s: float = 60.0
    factor: float = 2.0
    max_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Holds all force when the share `offenders` of at least `of_at_least` owners is due at once."""

    offenders: Fraction = Fraction(1, 2)
    of_at_least: int = 3
    hold_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """How much force one node uses at most; None: not bounded in this way."""

    node: Window | None = None
    namespace: Window | None = None
    owner: Window | None = None
    owner_backoff: Backoff | None = None
    breaker: Breaker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """How much of the past the journal keeps."""

    max_age_s: float = 30 * 86400.0
    max_size: int = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What to advertise on the node, in `unit` bytes; `amount` None: what the cards have, less `reserve` on each."""

    resource: str
    amount: int | None = None
    reserve: int = 0
    unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """What the operator allows although it is less safe."""

    foreign_pid_namespace: bool = False
    signal_without_pidfd: bool = False
    signal_mps_clients: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Cheap readings between full ones: how often (0: off), the rise that counts, and how many full ones it brings."""

    every_s: float = 0.05
    rise: int = 16 * 2**20
    looks: Window = field(default_factory=lambda: Window(count=60, per_s=60.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsControl:
    """How MPS clients are drained: the program, the pipe directories of the control daemons, and how long to wait."""

    control: str = "nvidia-cuda-mps-control"
    pipe: tuple[str, ...] = ("/run/nvidia/mps/*/pipe",)
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The whole policy."""

    sha256: str
    source: str
    mode: Mode = "observe"
    interval_s: float = 1.0
    stale_after_s: float = 180.0
    release_timeout_s: float = 30.0
    declarations: tuple[Declaration, ...] = ()
    allowance: Allowance = field(default_factory=Allowance)
    rules: tuple[Rule, ...] = ()
    protect: Protect = field(default_factory=Protect)
    brakes: Brakes = field(default_factory=Brakes)
    free_below: Fraction = Fraction(5, 100)
    journal: JournalLimits = field(default_factory=JournalLimits)
    safety: Safety = field(default_factory=Safety)
    capacity: Capacity | None = None
    events_in_observe: bool = False
    contact: str = ""
    pulse: Pulse | None = None
    mps: MpsControl | None = None
    warnings: tuple[str, ...] = ()

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The sections that are set and have no meaning yet: as long as there is one, the daemon only observes."""
        return ("pulse",) * (self.pulse is not None) + ("mps",) * (self.mps is not None)

    @property
    def reset_after_s(self) -> float:
        """How long without a conclusive reading ends every stretch: three intervals, at least 10 s."""
        return max(3 * self.interval_s, 10.0)

    def counts_like(self, other: "Policy") -> bool:
        """Whether the time that accounts have spent above thresholds means the same under another policy.

        Everything counts but what only holds actions back, and what is only about reporting.
        """
        alike = replace(
            self,
            sha256=other.sha256,
            source=other.source,
            warnings=other.warnings,
            stale_after_s=other.stale_after_s,
            release_timeout_s=other.release_timeout_s,
            protect=other.protect,
            brakes=other.brakes,
            journal=other.journal,
            safety=other.safety,
            capacity=other.capacity,
            events_in_observe=other.events_in_observe,
            contact=other.contact,
            pulse=other.pulse,
            mps=other.mps,
        )
        return alike == other
