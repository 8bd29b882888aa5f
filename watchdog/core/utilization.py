"""Whether the memory is used: how busy cards and the containers on them are, and what computes nothing for long.

Utilisation differs in every reading, so it is no part of a snapshot, and no decision about an account depends on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, Owner
from watchdog.core.policy import Idle

# How often the driver is asked at most. It averages over the time since it was last asked (nvtop#110).
EVERY_S: Final = 10.0


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
