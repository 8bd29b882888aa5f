"""What memory was held for, added up from cycles and from what the driver says of the utilisation."""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment, AttributedUse, without_parts
from watchdog.core.model import ProcessKey, Snapshot
from watchdog.core.mps import may_be_client
from watchdog.core.policy import Idle
from watchdog.core.utilization import (
    EVERY_S,
    CardSeconds,
    CardUtilization,
    Holder,
    IdleTimes,
    Spender,
    Utilization,
    UtilizationReading,
)

# A reading says nothing of the time before its last three intervals, in which the driver was not asked; of more where
# cycles are further apart.
_SAID_S: Final = 3 * EVERY_S
# A namespace that has held nothing for this long is forgotten: its counters begin again.
_FORGOTTEN_S: Final = 86400.0
_NOTHING: Final = CardSeconds()


class UtilizationMeter:
    """Adds up what memory was held for, from cycles and from what the driver says now and then.

    Unknown time counts neither as computing nor as idle. A process may belong to two accounts of its pod, of one card
    and of all: what it holds counts once.
    """

    def __init__(self) -> None:
        # The CLOCK_BOOTTIME of the last cycle, and of the last reading.
        self._at_s = self._read_s = -math.inf
        # The last cycle's, since when the holdings have not changed; and how much of that time is not added yet.
        self._assessed: tuple[Assessment, ...] | None = None
        self._passed_s = 0.0
        self._holdings = _Holdings(-math.inf)
        self._answers = _Answers()
        # The ratios as of the last reading; None: unknown.
        self._by_holder: dict[Holder, float | None] = {}
        self._by_account: dict[AccountKey, float | None] = {}
        self._idle_clock = _IdleClock()
        self._spent = _Spent()

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
            self._holdings = _Holdings.of(at_s, snapshot, assessments, self._holdings)
            self._forget(idle)
        said_s = max(_SAID_S, gap_s)
        for reading in readings:
            self._add_reading(reading, idle, said_s)
        if at_s - self._read_s > said_s:
            self._answers.cards = {}
            self._by_holder, self._by_account = dict.fromkeys(self._by_holder), dict.fromkeys(self._by_account)
        return Utilization(
            cards=self._answers.cards,
            by_holder=self._by_holder,
            by_account=self._by_account,
            holders=self._holdings.by_account,
            found_idle=self._idle_clock.find(idle),
            idle_s=dict(self._idle_clock.seconds),
            by_namespace=self._spent.by_namespace,
        )

    @property
    def reported(self) -> frozenset[AccountKey]:
        """The accounts that have been found to hold memory idle, and still do."""
        return frozenset(self._idle_clock.reported)

    def restore(self, earlier: IdleTimes) -> None:
        """Take over for how long accounts computed nothing before this daemon; those reported then aren't found again.

        The time between the two is unknown.
        """
        self._idle_clock.restore(earlier, self._holdings.used.keys(), was_read=math.isfinite(self._read_s))

    def take_spent(self) -> Mapping[Spender, CardSeconds]:
        """The card-seconds since this was last called, for the journal."""
        self._pass()
        return self._spent.take_all()

    def _pass(self) -> None:
        """Add the time in which everything was held as it was in the last cycle."""
        passed_s, self._passed_s = self._passed_s, 0.0
        if passed_s:
            self._spent.add(self._holdings.hold_for(passed_s), self._at_s)

    def _forget(self, idle: Idle) -> None:
        """Forget what was known of accounts that are gone, or hold nothing or little for certain."""
        holdings = self._holdings
        self._by_holder = {holder: self._by_holder.get(holder) for holder in holdings.by_holder}
        free = {key for key, used in holdings.used.items() if used is not None and key not in holdings.by_account}
        self._by_account = {
            key: ratio for key, ratio in self._by_account.items() if key in holdings.used and key not in free
        }
        self._idle_clock.forget(holdings.used, idle)
        self._idle_clock.limit(holdings.started_s, self._at_s)

    def _add_reading(self, reading: UtilizationReading, idle: Idle, said_s: float) -> None:
        """Take in what the driver says of the time since its last reading, at most of the last `said_s`."""
        self._pass()
        since_s = max(self._read_s, reading.at_s - said_s) if math.isfinite(self._read_s) else reading.at_s
        self._read_s = reading.at_s
        by_holder = self._holdings.by_holder
        self._answers.add_reading(reading, by_holder)
        # New ones, since other threads read those of earlier cycles.
        self._by_holder, self._by_account = {}, {}
        spent: dict[Spender, CardSeconds] = {}
        for holder, held in by_holder.items():
            ratio = self._by_holder[holder] = self._answers.ratio(holder, held)
            if ratio is not None and held.card_s and held.seconds <= said_s:
                computing = min(held.card_s, ratio * held.seconds)
                part = CardSeconds(computing=computing, idle=held.card_s - computing)
                spent[held.spender] = spent.get(held.spender, _NOTHING) + part
        self._spent.add(spent, self._at_s)
        self._count_idle(since_s, idle)
        for held in by_holder.values():
            held.card_s = held.seconds = 0.0

    def _count_idle(self, since_s: float, idle: Idle) -> None:
        """Count for how long each account has computed nothing; `since_s` is from when on the reading says something.

        It starts over if the account may have computed: its card has, and it is not known for whom.
        """
        by_holder = self._holdings.by_holder
        for account, parts in self._holdings.by_account.items():
            used = self._holdings.used.get(account)
            known = [ratio for holder in parts if (ratio := self._by_holder.get(holder)) is not None]
            is_known = len(known) == len(parts)
            gpus = {holder.gpu for holder in parts}
            self._by_account[account] = min(sum(known) / len(gpus), 1.0) if is_known else None
            unknown = (holder for holder in parts if self._by_holder.get(holder) is None)
            may_compute = any(self._answers.may_compute(holder, by_holder) for holder in unknown)
            if any(known) or may_compute or (used is not None and used < idle.above):
                self._idle_clock.stop(account)
            elif is_known and used is not None:
                first_s = max(since_s, min(by_holder[holder].since_s for holder in parts))
                self._idle_clock.add(account, max(self._read_s - first_s, 0.0))
        self._idle_clock.limit(self._holdings.started_s, self._at_s)


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


@dataclass(slots=True)
class _Holdings:
    """What accounts and containers hold as of a cycle."""

    # The CLOCK_BOOTTIME of the cycle.
    at_s: float
    by_holder: dict[Holder, _Held] = field(default_factory=dict)
    # The containers on cards of which each account consists.
    by_account: Mapping[AccountKey, Sequence[Holder]] = field(default_factory=dict)
    # What each account uses, in bytes; None: unknown.
    used: dict[AccountKey, int | None] = field(default_factory=dict)
    # When the oldest process of each account began (CLOCK_BOOTTIME).
    started_s: dict[AccountKey, float] = field(default_factory=dict)
    # Card-seconds a second: what is held, and what is declared and not held.
    rates: dict[Spender, CardSeconds] = field(default_factory=dict)

    @classmethod
    def of(cls, at_s: float, snapshot: Snapshot, assessments: Sequence[Assessment], before: "_Holdings") -> "_Holdings":
        """What is held as of a cycle, if this was held `before` it."""
        found, sizes = cls(at_s), card_sizes(snapshot)
        holders: dict[AccountKey, dict[Holder, None]] = {}
        counted: set[tuple[ProcessKey, str]] = set()
        for assessment in assessments:
            account, spender = assessment.account, _spender(assessment)
            found.used[account] = assessment.used
            for use in assessment.uses:
                holder = Holder(use.uid, use.container, use.gpu)
                holders.setdefault(account, {})[holder] = None
                if (use.key, use.gpu) not in counted:
                    counted.add((use.key, use.gpu))
                    found._hold(use, holder, spender, sizes, before)
            if running := [use.key.started_s for use in assessment.uses if not use.ended]:
                found.started_s[account] = min(running)
        found.by_account = {account: tuple(parts) for account, parts in holders.items()}
        found._rate(assessments, sizes)
        return found

    def hold_for(self, seconds: float) -> Mapping[Spender, CardSeconds]:
        """Note that all of it was held for these seconds more; returns the card-seconds that this comes to."""
        for held in self.by_holder.values():
            held.card_s += (held.share or 0.0) * seconds
            held.seconds += seconds
        return {spender: rate * seconds for spender, rate in self.rates.items()}

    def _hold(
        self, use: AttributedUse, holder: Holder, spender: Spender, sizes: Mapping[str, int], before: "_Holdings"
    ) -> None:
        held, size = self.by_holder.get(holder), sizes.get(use.gpu)
        if held is None:
            held = self.by_holder[holder] = _Held(spender, self.at_s)
            if (earlier := before.by_holder.get(holder)) is not None:
                held.since_s, held.card_s, held.seconds = earlier.since_s, earlier.card_s, earlier.seconds
        if not use.ended:
            held.pids[use.key.pid] = may_be_client(use)
        is_known = held.share is not None and use.used is not None and size is not None
        held.share = (held.share or 0.0) + (use.used or 0) / (size or 1) if is_known else None

    def _rate(self, assessments: Iterable[Assessment], sizes: Mapping[str, int]) -> None:
        # A rule's default is no declaration.
        for assessment in without_parts(each for each in assessments if each.declared_by != "default"):
            if wasted := _waste(assessment, sizes):
                spender = _spender(assessment)
                self.rates[spender] = self.rates.get(spender, _NOTHING) + CardSeconds(unused=wasted)
        for held in self.by_holder.values():
            if held.share:
                self.rates[held.spender] = self.rates.get(held.spender, _NOTHING) + CardSeconds(held=held.share)


def _spender(assessment: Assessment) -> Spender:
    return assessment.pod.namespace, assessment.pod.workload


def card_sizes(snapshot: Snapshot) -> dict[str, int]:
    """The bytes of the card on which each device is: of a MIG instance, of the card that it is a part of."""
    parents = {parent.uuid: parent.total for parent in snapshot.parents}
    sizes = {gpu.uuid: gpu.size if gpu.parent is None else parents.get(gpu.parent) for gpu in snapshot.gpus}
    return {uuid: size for uuid, size in sizes.items() if size}


def _waste(assessment: Assessment, sizes: Mapping[str, int]) -> float:
    """Which share of its cards an account has declared and doesn't hold; of the node's, if it holds nothing."""
    if assessment.declared is None or assessment.used is None or not sizes:
        return 0.0
    own = [sizes[gpu] for gpu in {use.gpu for use in assessment.uses} if gpu in sizes] or list(sizes.values())
    return max(assessment.declared - assessment.used, 0) * len(own) / sum(own)


class _Answers:
    """What the driver says of cards and processes, and what of that can be believed.

    It may say 0 of processes that compute (HAMi#2015: RTX PRO 6000 Blackwell), so a process's 0 counts only while its
    card's own ratio is 0 too, or once the driver has given a process of the same kind there more than 0; and never
    while the card computes and no process is said to.
    """

    def __init__(self) -> None:
        # By UUID, as of the last reading; empty once that is too old.
        self.cards: dict[str, CardUtilization] = {}
        # Cards on which the driver has given a process, or a client of MPS, more than 0.
        self._truthful: set[tuple[str, bool]] = set()
        # Cards that computed while no process was said to: in the last reading, and in the one before.
        self._doubtful: frozenset[str] = frozenset()
        self._doubtful_before: frozenset[str] = frozenset()

    def add_reading(self, reading: UtilizationReading, by_holder: Mapping[Holder, _Held]) -> None:
        """Take in a reading of the cards on which this is held."""
        self.cards = {card.gpu: card for card in reading.cards}
        doubtful = frozenset(uuid for uuid, card in self.cards.items() if _is_doubtful(card))
        self._doubtful_before, self._doubtful = self._doubtful, doubtful
        self._trust(by_holder)

    def _trust(self, by_holder: Mapping[Holder, _Held]) -> None:
        """Note for which kinds of processes the driver gives numbers on a card."""
        busy = {uuid: {pid for pid, ratio in (card.by_pid or {}).items() if ratio} for uuid, card in self.cards.items()}
        for holder, held in by_holder.items():
            if of_card := busy.get(holder.gpu):
                for pid in of_card & held.pids.keys():
                    self._truthful.add((holder.gpu, held.pids[pid]))
                of_card.difference_update(held.pids)
        self._truthful |= {(uuid, False) for uuid, of_others in busy.items() if of_others}

    def ratio(self, holder: Holder, held: _Held) -> float | None:
        """The ratio of a container on a card, by its processes; None: that of one is unknown."""
        card = self.cards.get(holder.gpu)
        if card is None or not card.unclear.isdisjoint(held.pids):
            return None
        by_pid, total = card.by_pid or {}, 0.0
        is_told = card.by_pid is not None and holder.gpu not in self._doubtful
        for pid, is_client in held.pids.items():
            ratio = by_pid.get(pid, 0.0)
            is_said = is_told and (holder.gpu, is_client) in self._truthful
            if not ratio and card.ratio != 0.0 and not is_said:
                return None
            total += ratio
        return min(total, 1.0)

    def may_compute(self, holder: Holder, by_holder: Mapping[Holder, _Held]) -> bool:
        """Whether the card computes, and it can't be said that another container does.

        A process that has just ended may have, and one that the driver does not list: so a first reading without a
        computing process speaks only against who is alone there.
        """
        card, may_be_clients = self.cards.get(holder.gpu), {*by_holder[holder].pids.values()}
        if card is None or not card.ratio:
            return False
        is_told = {(holder.gpu, each) for each in may_be_clients} <= self._truthful and card.by_pid is not None
        is_alone = not any(each.gpu == holder.gpu and each != holder for each in by_holder)
        is_doubtful = holder.gpu in self._doubtful
        return not is_told or (is_doubtful and (is_alone or holder.gpu in self._doubtful_before))


def _is_doubtful(card: CardUtilization) -> bool:
    """Whether a card computes, and its driver says of no process that it does."""
    return bool(card.ratio) and not any((card.by_pid or {}).values())


class _IdleClock:
    """For how long accounts have computed nothing, and which of them were reported for it."""

    def __init__(self) -> None:
        self.seconds: dict[AccountKey, float] = {}
        self.reported: set[AccountKey] = set()
        # What an earlier daemon had counted for accounts that this one has not seen yet.
        self._restored: dict[AccountKey, float] = {}

    def add(self, account: AccountKey, seconds: float) -> None:
        """Count further seconds in which an account has computed nothing."""
        self.seconds[account] = self.seconds.get(account, 0.0) + seconds

    def stop(self, account: AccountKey) -> None:
        """Count nothing for an account that computes, or may, or holds little."""
        self.seconds.pop(account, None)

    def limit(self, started_s: Mapping[AccountKey, float], now_s: float) -> None:
        """No account has computed nothing for longer than its oldest process runs."""
        for account in self.seconds.keys() & started_s.keys():
            self.seconds[account] = min(self.seconds[account], max(now_s - started_s[account], 0.0))

    def find(self, idle: Idle) -> frozenset[AccountKey]:
        """The accounts that are to be reported now: that were idle for long enough, and were not reported for it."""
        found = {key for key, seconds in self.seconds.items() if idle.after_s and seconds >= idle.after_s}
        # What an earlier daemon has reported may not be in the pod list yet.
        new, self.reported = found - self.reported, found | (self.reported & self._restored.keys())
        return frozenset(new)

    def forget(self, used: Mapping[AccountKey, int | None], idle: Idle) -> None:
        """Forget the accounts that are gone, and those that use little for certain."""
        self.seconds = {key: seconds for key, seconds in self.seconds.items() if key in used}
        self._resume(used.keys())
        for key, size in used.items():
            if size is not None and size < idle.above:
                self.stop(key)

    def restore(self, earlier: IdleTimes, accounts: AbstractSet[AccountKey], *, was_read: bool) -> None:
        """Take over what an earlier daemon has counted; once the driver `was_read`, only for accounts idle since."""
        of_before = earlier.seconds.items()
        self._restored = {key: seconds for key, seconds in of_before if key in self.seconds or not was_read}
        self._resume(accounts)
        self.reported |= earlier.reported

    def _resume(self, accounts: AbstractSet[AccountKey]) -> None:
        """Go on counting where an earlier daemon had come to."""
        for account in self._restored.keys() & accounts:
            self.add(account, self._restored.pop(account))


class _Spent:
    """The card-seconds that were spent: of each namespace, and since the last writing of each spender."""

    def __init__(self) -> None:
        # Since the daemon started; replaced, since other threads read those of earlier cycles.
        self.by_namespace: dict[str, CardSeconds] = {}
        # When each of these last held something, as CLOCK_BOOTTIME.
        self._held_s: dict[str, float] = {}
        # What the journal does not have yet.
        self._by_spender: dict[Spender, CardSeconds] = {}

    def add(self, spent: Mapping[Spender, CardSeconds], at_s: float) -> None:
        """Add what was spent until a CLOCK_BOOTTIME."""
        by_namespace = dict(self.by_namespace)
        for spender, part in spent.items():
            namespace = spender[0]
            self._by_spender[spender] = self._by_spender.get(spender, _NOTHING) + part
            by_namespace[namespace] = by_namespace.get(namespace, _NOTHING) + part
            self._held_s[namespace] = at_s
        for namespace in [each for each, held_s in self._held_s.items() if held_s < at_s - _FORGOTTEN_S]:
            del self._held_s[namespace], by_namespace[namespace]
        self.by_namespace = by_namespace

    def take_all(self) -> Mapping[Spender, CardSeconds]:
        """What each spender has spent since this was last called."""
        spent, self._by_spender = self._by_spender, {}
        return spent
