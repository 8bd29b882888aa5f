"""Whether the memory is used: how busy cards and the containers on them are, and what computes nothing for long.

Utilisation differs in every reading, so it is no part of a snapshot, and no decision about an account depends on it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from watchdog.core.assessment import AccountKey, Assessment, AttributedUse, without_parts
from watchdog.core.model import Now, Owner, ProcessKey, Snapshot
from watchdog.core.mps import may_be_client
from watchdog.core.policy import Idle

# How often the driver is asked at most. It averages over the time since it was last asked (nvtop#110).
EVERY_S: Final = 10.0
# A reading says nothing of the time before its last three intervals, in which the driver was not asked; of more where
# cycles are further apart.
_SAID_S: Final = 3 * EVERY_S
# A namespace that has held nothing for this long is forgotten: its counters begin again.
_FORGOTTEN_S: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUtilization:
    """How busy a card is, as its driver says."""

    # A UUID.
    gpu: str
    # The share of the time in which it computed or moved memory, from 0 to 1; None: unknown.
    ratio: float | None = None
    # That of each process by its PID, from 0 to 1, of its busiest engine; a process that is missing has been idle, says
    # the driver. None: it says nothing of processes.
    by_pid: Mapping[int, float] | None = None
    # Processes of which it gave an impossible number.
    unclear: frozenset[int] = frozenset()
    # Why something is unknown, as a clause; "": nothing is.
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationReading:
    """What the driver said of all cards at one time; those that can't be asked are in it too."""

    # CLOCK_BOOTTIME.
    at_s: float
    cards: tuple[CardUtilization, ...]


class Holder(NamedTuple):
    """A container that holds memory on a card."""

    # The UID of its pod.
    uid: str
    # Its name.
    container: str
    # A UUID.
    gpu: str


@dataclass(frozen=True, slots=True)
class CardSeconds:
    """Cards times seconds: 1 is a whole card for a second, or half of its memory for two.

    What is neither computing nor idle of what is held is unknown.
    """

    # The share of cards' memory that was held.
    held: float = 0.0
    # The part of it whose share of the cards' time was used.
    computing: float = 0.0
    # The part of it whose share of the cards' time was not.
    idle: float = 0.0
    # The share of cards' memory that was declared and not held.
    unused: float = 0.0

    def __add__(self, other: "CardSeconds") -> "CardSeconds":
        return CardSeconds(
            self.held + other.held, self.computing + other.computing, self.idle + other.idle, self.unused + other.unused
        )

    def __mul__(self, factor: float) -> "CardSeconds":
        return CardSeconds(self.held * factor, self.computing * factor, self.idle * factor, self.unused * factor)


# The states of held memory that are counted; the rest of what is held is unknown.
STATES: Final = ("held", "computing", "idle")
# Whose card-seconds they are: a namespace, and the controller of its pods, or the pod.
Spender = tuple[str, Owner]
# By the Unix hour in which they came.
SpentByHour = Mapping[int, Mapping[Spender, CardSeconds]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTimes:
    """For how many seconds accounts had computed nothing at a moment."""

    at: Now
    seconds: Mapping[AccountKey, float]
    # Those of them that were reported.
    reported: frozenset[AccountKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """How busy the cards of a node and the containers on them are, as of the last reading."""

    # By the UUID of the card.
    cards: Mapping[str, CardUtilization] = field(default_factory=dict)
    # The ratio of each container on each card; None: unknown.
    by_holder: Mapping[Holder, float | None] = field(default_factory=dict)
    # That of each account: the mean of the cards on which it holds memory.
    by_account: Mapping[AccountKey, float | None] = field(default_factory=dict)
    # The containers on cards of which each account consists.
    holders: Mapping[AccountKey, Sequence[Holder]] = field(default_factory=dict)
    # For how long each account that holds enough has computed nothing for certain; without an entry: not at all, or
    # that is unknown.
    idle_s: Mapping[AccountKey, float] = field(default_factory=dict)
    # Accounts that have just been found to hold memory idle for long enough to be reported.
    found_idle: frozenset[AccountKey] = frozenset()
    # Since the daemon started, by namespace.
    by_namespace: Mapping[str, CardSeconds] = field(default_factory=dict)

    @property
    def known_idle_s(self) -> dict[AccountKey, float]:
        """For how long each account has computed nothing, with 0 for those that do; others are unknown, or small."""
        return {account: 0.0 for account, ratio in self.by_account.items() if ratio} | {**self.idle_s}

    def is_idle_holder(self, account: AccountKey, idle: Idle) -> bool:
        """Whether an account holds memory without computing for long enough to be reported."""
        return bool(idle.after_s) and self.idle_s.get(account, 0.0) >= idle.after_s


NO_UTILIZATION: Final = Utilization()


@dataclass(slots=True)
class _Held:
    """What a container holds on a card since the last reading."""

    spender: Spender
    # Since when it is known (CLOCK_BOOTTIME).
    since_s: float
    # The share of the card; None: unknown.
    share: float | None = 0.0
    # Its processes by PID, each with whether it may be an MPS client.
    pids: dict[int, bool] = field(default_factory=dict)
    # The share of the card times seconds, and the seconds, that no reading has covered yet.
    card_s: float = 0.0
    seconds: float = 0.0


def card_sizes(snapshot: Snapshot) -> dict[str, int]:
    """The bytes of the card on which each device is: of a MIG instance, of the card that it is a part of."""
    parents = {parent.uuid: parent.total for parent in snapshot.parents}
    sizes = {gpu.uuid: gpu.size if gpu.parent is None else parents.get(gpu.parent) for gpu in snapshot.gpus}
    return {uuid: size for uuid, size in sizes.items() if size}


class UtilizationMeter:
    """Adds up what memory was held for, from cycles and from what the driver says now and then.

    Unknown time counts neither as computing nor as idle. A driver may say 0 of processes that compute (HAMi#2015: RTX
    PRO 6000 Blackwell), so a process's 0 counts only while its card's own ratio is 0 too, or once the driver has given
    a process of the same kind there more than 0; and never while the card computes and no process is said to.

    A process may belong to two accounts of its pod, of one card and of all: what it holds counts once.
    """

    def __init__(self) -> None:
        # The CLOCK_BOOTTIME of the last cycle, and of the last reading.
        self._at_s = self._read_s = -math.inf
        # The last cycle's, since when nothing of what follows has changed; and how much of that time is not added yet.
        self._assessed: tuple[Assessment, ...] | None = None
        self._passed_s = 0.0
        self._held: dict[Holder, _Held] = {}
        # The containers on cards of which each account consists.
        self._holders: Mapping[AccountKey, Sequence[Holder]] = {}
        # What each account uses, in bytes; None: unknown.
        self._used: dict[AccountKey, int | None] = {}
        # Card-seconds a second: what is held, and what is declared and not held.
        self._rates: dict[Spender, CardSeconds] = {}
        # Cards on which the driver has given a process, or a client of MPS, more than 0.
        self._truthful: set[tuple[str, bool]] = set()
        # Cards that computed in the last reading, while no process was said to.
        self._doubtful: frozenset[str] = frozenset()
        self._cards: dict[str, CardUtilization] = {}
        self._by_holder: dict[Holder, float | None] = {}
        self._by_account: dict[AccountKey, float | None] = {}
        self._idle_s: dict[AccountKey, float] = {}
        self._restored: dict[AccountKey, float] = {}
        self._reported: set[AccountKey] = set()
        # When the oldest process of each account began (CLOCK_BOOTTIME).
        self._started_s: dict[AccountKey, float] = {}
        self._by_namespace: dict[str, CardSeconds] = {}
        # When each of these last held something, as CLOCK_BOOTTIME.
        self._held_s: dict[str, float] = {}
        self._by_spender: dict[Spender, CardSeconds] = {}

    def add(
        self,
        at_s: float,
        snapshot: Snapshot,
        assessments: tuple[Assessment, ...],
        readings: Sequence[UtilizationReading],
        idle: Idle,
        *,
        gap_s: float,
    ) -> Utilization:
        """Add a cycle at a CLOCK_BOOTTIME, and what the driver has said since the last one.

        The time since the last cycle is unknown if that is more than `gap_s`.
        """
        if 0.0 < at_s - self._at_s <= gap_s:
            self._passed_s += at_s - self._at_s
        self._at_s = at_s
        if assessments is not self._assessed:
            self._pass()
            self._assessed = assessments
            self._hold(snapshot, assessments, idle)
        said_s = max(_SAID_S, gap_s)
        for reading in readings:
            self._take(reading, idle, said_s)
        if at_s - self._read_s > said_s:
            self._cards = {}
            self._by_holder, self._by_account = dict.fromkeys(self._by_holder), dict.fromkeys(self._by_account)
        found = {key for key, seconds in self._idle_s.items() if idle.after_s and seconds >= idle.after_s}
        # What an earlier daemon has reported may not be in the pod list yet.
        new, self._reported = found - self._reported, found | (self._reported & self._restored.keys())
        return Utilization(
            cards=self._cards,
            by_holder=self._by_holder,
            by_account=self._by_account,
            holders=self._holders,
            idle_s=dict(self._idle_s),
            found_idle=frozenset(new),
            by_namespace=self._by_namespace,
        )

    @property
    def reported(self) -> frozenset[AccountKey]:
        """The accounts that have been found to hold memory idle, and still do."""
        return frozenset(self._reported)

    def restore(self, earlier: IdleTimes) -> None:
        """Take over for how long accounts computed nothing before this daemon; those reported then aren't found again.

        The time between the two is unknown.
        """
        was_read = math.isfinite(self._read_s)
        of_before = earlier.seconds.items()
        self._restored = {key: seconds for key, seconds in of_before if key in self._idle_s or not was_read}
        self._resume()
        self._reported |= earlier.reported

    def take_spent(self) -> Mapping[Spender, CardSeconds]:
        """The card-seconds since this was last called, for the journal."""
        self._pass()
        spent, self._by_spender = self._by_spender, {}
        return spent

    def _pass(self) -> None:
        """Add the time in which everything was held as it was in the last cycle."""
        passed_s, self._passed_s = self._passed_s, 0.0
        if not passed_s:
            return
        for held in self._held.values():
            held.card_s += (held.share or 0.0) * passed_s
            held.seconds += passed_s
        self._spend({spender: rate * passed_s for spender, rate in self._rates.items()})

    def _spend(self, spent: Mapping[Spender, CardSeconds]) -> None:
        by_namespace = dict(self._by_namespace)
        for spender, part in spent.items():
            namespace = spender[0]
            self._by_spender[spender] = self._by_spender.get(spender, _NOTHING) + part
            by_namespace[namespace] = by_namespace.get(namespace, _NOTHING) + part
            self._held_s[namespace] = self._at_s
        for namespace in [each for each, held_s in self._held_s.items() if held_s < self._at_s - _FORGOTTEN_S]:
            del self._held_s[namespace], by_namespace[namespace]
        self._by_namespace = by_namespace

    def _take(self, reading: UtilizationReading, idle: Idle, said_s: float) -> None:
        """Take in what the driver says of the time since its last reading, at most of the last `said_s`."""
        self._pass()
        since_s = max(self._read_s, reading.at_s - said_s) if math.isfinite(self._read_s) else reading.at_s
        self._read_s = reading.at_s
        self._cards = {card.gpu: card for card in reading.cards}
        # New ones, since other threads read those of earlier cycles.
        self._by_holder, self._by_account = {}, {}
        self._trust()
        spent: dict[Spender, CardSeconds] = {}
        for holder, held in self._held.items():
            ratio = self._by_holder[holder] = self._ratio(holder, held)
            if ratio is not None and held.card_s and held.seconds <= said_s:
                computing = min(held.card_s, ratio * held.seconds)
                part = CardSeconds(computing=computing, idle=held.card_s - computing)
                spent[held.spender] = spent.get(held.spender, _NOTHING) + part
        self._spend(spent)
        self._count_idle(since_s, idle)
        self._doubtful = frozenset(uuid for uuid, card in self._cards.items() if _is_doubtful(card))
        for held in self._held.values():
            held.card_s = held.seconds = 0.0

    def _trust(self) -> None:
        """Note for which kinds of processes the driver gives numbers on a card."""
        busy = {
            uuid: {pid for pid, ratio in (card.by_pid or {}).items() if ratio} for uuid, card in self._cards.items()
        }
        for holder, held in self._held.items():
            if of_card := busy.get(holder.gpu):
                for pid in of_card & held.pids.keys():
                    self._truthful.add((holder.gpu, held.pids[pid]))
                of_card.difference_update(held.pids)
        self._truthful |= {(uuid, False) for uuid, of_others in busy.items() if of_others}

    def _ratio(self, holder: Holder, held: _Held) -> float | None:
        """The ratio of a container on a card, by its processes; None: that of one is unknown."""
        card = self._cards.get(holder.gpu)
        if card is None or not card.unclear.isdisjoint(held.pids):
            return None
        by_pid, total = card.by_pid or {}, 0.0
        is_told = card.by_pid is not None and not _is_doubtful(card)
        for pid, is_client in held.pids.items():
            ratio = by_pid.get(pid, 0.0)
            is_said = is_told and (holder.gpu, is_client) in self._truthful
            if not ratio and card.ratio != 0.0 and not is_said:
                return None
            total += ratio
        return min(total, 1.0)

    def _count_idle(self, since_s: float, idle: Idle) -> None:
        """Count for how long each account has computed nothing; `since_s` is from when on the reading says something.

        It starts over if the account may have computed: its card has, and it is not known for whom.
        """
        for account, parts in self._holders.items():
            used = self._used.get(account)
            known = [ratio for holder in parts if (ratio := self._by_holder.get(holder)) is not None]
            is_known = len(known) == len(parts)
            gpus = {holder.gpu for holder in parts}
            self._by_account[account] = min(sum(known) / len(gpus), 1.0) if is_known else None
            may_compute = any(self._by_holder.get(holder) is None and self._may_compute(holder) for holder in parts)
            if any(known) or may_compute or (used is not None and used < idle.above):
                self._idle_s.pop(account, None)
            elif is_known and used is not None:
                first_s = max(since_s, min(self._held[holder].since_s for holder in parts))
                self._idle_s[account] = self._idle_s.get(account, 0.0) + max(self._read_s - first_s, 0.0)
        self._limit_idle()

    def _may_compute(self, holder: Holder) -> bool:
        """Whether the card computes, and it can't be said that another one does.

        A process that has just ended may have, and one that the driver does not list: so a first reading without a
        computing process speaks only against who is alone there.
        """
        card, may_be_clients = self._cards.get(holder.gpu), {*self._held[holder].pids.values()}
        if card is None or not card.ratio:
            return False
        is_told = {(holder.gpu, each) for each in may_be_clients} <= self._truthful and card.by_pid is not None
        is_alone = not any(each.gpu == holder.gpu and each != holder for each in self._held)
        return not is_told or (_is_doubtful(card) and (is_alone or holder.gpu in self._doubtful))

    def _limit_idle(self) -> None:
        """No account has computed nothing for longer than its oldest process runs."""
        for account in self._idle_s.keys() & self._started_s.keys():
            self._idle_s[account] = min(self._idle_s[account], max(self._at_s - self._started_s[account], 0.0))

    def _hold(self, snapshot: Snapshot, assessments: tuple[Assessment, ...], idle: Idle) -> None:
        """Take over what is held as of a cycle."""
        sizes, before = card_sizes(snapshot), self._held
        self._held, self._used, self._rates, self._started_s = {}, {}, {}, {}
        holders: dict[AccountKey, dict[Holder, None]] = {}
        counted: set[tuple[ProcessKey, str]] = set()
        for assessment in assessments:
            account, spender = assessment.account, (assessment.pod.namespace, assessment.pod.workload)
            self._used[account] = assessment.used
            for use in assessment.uses:
                holder = Holder(use.uid, use.container, use.gpu)
                holders.setdefault(account, {})[holder] = None
                if (use.key, use.gpu) not in counted:
                    counted.add((use.key, use.gpu))
                    self._hold_use(use, holder, spender, sizes, before)
            if running := [use.key.started_s for use in assessment.uses if not use.ended]:
                self._started_s[account] = min(running)
        self._holders = {account: tuple(parts) for account, parts in holders.items()}
        # A rule's default is no declaration.
        for assessment in without_parts(each for each in assessments if each.declared_by != "default"):
            if wasted := _waste(assessment, sizes):
                spender = assessment.pod.namespace, assessment.pod.workload
                self._rates[spender] = self._rates.get(spender, _NOTHING) + CardSeconds(unused=wasted)
        for held in self._held.values():
            if held.share:
                self._rates[held.spender] = self._rates.get(held.spender, _NOTHING) + CardSeconds(held=held.share)
        self._forget(idle)

    def _forget(self, idle: Idle) -> None:
        """Forget what was known of accounts that are gone, or hold nothing or little for certain."""
        self._by_holder = {holder: self._by_holder.get(holder) for holder in self._held}
        free = {key for key, used in self._used.items() if used is not None and key not in self._holders}
        self._by_account = {
            key: ratio for key, ratio in self._by_account.items() if key in self._used and key not in free
        }
        self._idle_s = {key: seconds for key, seconds in self._idle_s.items() if key in self._used}
        self._resume()
        for key, used in self._used.items():
            if used is not None and used < idle.above:
                self._idle_s.pop(key, None)
        self._limit_idle()

    def _hold_use(
        self,
        use: AttributedUse,
        holder: Holder,
        spender: Spender,
        sizes: Mapping[str, int],
        before: Mapping[Holder, _Held],
    ) -> None:
        held, size = self._held.get(holder), sizes.get(use.gpu)
        if held is None:
            held = self._held[holder] = _Held(spender, self._at_s)
            if (earlier := before.get(holder)) is not None:
                held.since_s, held.card_s, held.seconds = earlier.since_s, earlier.card_s, earlier.seconds
        if not use.ended:
            held.pids[use.key.pid] = may_be_client(use)
        is_known = held.share is not None and use.used is not None and size is not None
        held.share = (held.share or 0.0) + (use.used or 0) / (size or 1) if is_known else None

    def _resume(self) -> None:
        """Go on counting where an earlier daemon had come to."""
        for account in self._used.keys() & self._restored.keys():
            self._idle_s[account] = self._idle_s.get(account, 0.0) + self._restored.pop(account)


_NOTHING: Final = CardSeconds()


def _is_doubtful(card: CardUtilization) -> bool:
    """Whether a card computes, and its driver says of no process that it does."""
    return bool(card.ratio) and not any((card.by_pid or {}).values())


def _waste(assessment: Assessment, sizes: Mapping[str, int]) -> float:
    """Which share of its cards an account has declared and doesn't hold; of the node's, if it holds nothing."""
    if assessment.declared is None or assessment.used is None or not sizes:
        return 0.0
    own = [sizes[gpu] for gpu in {use.gpu for use in assessment.uses} if gpu in sizes] or list(sizes.values())
    return max(assessment.declared - assessment.used, 0) * len(own) / sum(own)
