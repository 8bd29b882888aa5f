"""What memory was held for, and who computes nothing: unknown time counts as neither, and accuses nobody."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.worlds import Gi, gpu, pod, snapshot
from watchdog.core.assessment import AccountKey, Assessment, AttributedUse, Verdict
from watchdog.core.meter import UtilizationMeter
from watchdog.core.model import MigParent, MpsSigns, Now, ProcessKey, Snapshot
from watchdog.core.policy import Idle
from watchdog.core.utilization import CardUtilization, Holder, IdleTimes, Utilization, UtilizationReading

CARD: Final = "GPU-0"
SIZE: Final = 80 * Gi
IDLE: Final = Idle(after_s=60.0, above=Gi)
CLIENT: Final = MpsSigns(client=True)


def held(name: str, *amounts: int | None, mps: MpsSigns | None = None, declared: int | None = None) -> Assessment:
    """The account of a pod with one process for each amount on the card; their PIDs are those of its name's letter."""
    first = 100 * (ord(name[0]) - ord("a") + 1)
    uses = tuple(
        AttributedUse(
            key=ProcessKey(pid=first + number, start_ticks=1), uid=name, container="main", gpu=CARD, used=each, mps=mps
        )
        for number, each in enumerate(amounts)
    )
    known = [each for each in amounts if each is not None]
    return Assessment(
        account=AccountKey(uid=name),
        pod=pod(name, namespace=f"ns-{name}", name=name),
        rule=None,
        used=sum(known) if len(known) == len(amounts) else None,
        used_at_least=sum(known),
        declared=declared,
        declared_by=None,
        allowed=None,
        verdict=Verdict.WITHIN,
        protected=None,
        uses=uses,
    )


def answer(at_s: float, ratio: float | None, by_pid: Mapping[int, float] | None, **more: Any) -> UtilizationReading:
    """What the driver says of the card."""
    card = CardUtilization(gpu=CARD, ratio=ratio, by_pid=by_pid, **more)
    return UtilizationReading(at_s=at_s, cards=(card,))


class Watched:
    """A meter whose cycles come every ten seconds, each with a reading, unless that is None."""

    def __init__(self, seen: Snapshot | None = None) -> None:
        self.meter = UtilizationMeter()
        self.at_s = 1000.0
        self.last = Utilization()
        self._seen = seen or snapshot([], [], [replace(gpu(0), total=SIZE, reserved=0)], 0)

    def see(
        self,
        accounts: tuple[Assessment, ...],
        ratio: float | None = None,
        by_pid: Mapping[int, float] | None = None,
        *,
        times: int = 1,
        is_read: bool = True,
        idle: Idle = IDLE,
        **more: Any,
    ) -> Utilization:
        """Let this many cycles pass."""
        for _ in range(times):
            self.at_s += 10.0
            readings = (answer(self.at_s, ratio, by_pid, **more),) if is_read else ()
            self.last = self.meter.add(self.at_s, self._seen, accounts, readings, idle, gap_s=30.0)
        return self.last

    def restore(self, seconds: Mapping[str, float], reported: str = "") -> None:
        """Take over what an earlier daemon has noted of pods."""
        of_before = {AccountKey(uid=name): each for name, each in seconds.items()}
        at = Now(boottime_s=0.0, wall_s=0.0, boot_id="boot")
        keys = frozenset(AccountKey(uid=name) for name in reported)
        self.meter.restore(IdleTimes(at=at, seconds=of_before, reported=keys))

    def idle_s(self, name: str) -> float | None:
        """For how long a pod has been idle; None: it is not, or that is unknown."""
        return self.last.idle_s.get(AccountKey(uid=name))


def test_held_memory_is_split_into_computing_and_idle() -> None:
    """A pod with half of a card that uses a fifth of its time: of its half a card, a fifth of a card was computing."""
    watched = Watched()
    account = held("a", 40 * Gi)
    watched.see((account,), 0.2, {100: 0.2})
    spent = watched.see((account,), 0.2, {100: 0.2}, times=10).by_namespace["ns-a"]
    assert (spent.held, spent.computing, spent.idle) == pytest.approx((50.0, 20.0, 30.0))


def test_four_pods_that_fill_a_card_in_turns_are_all_computing() -> None:
    """Nobody with a quarter of the memory is called idle for getting a quarter of the card's time."""
    watched = Watched()
    accounts = tuple(held(name, 20 * Gi) for name in "abcd")
    by_pid = {100 * number: 0.25 for number in range(1, 5)}
    watched.see(accounts, 1.0, by_pid)
    spent = watched.see(accounts, 1.0, by_pid, times=10).by_namespace
    assert [spent[f"ns-{name}"].idle for name in "abcd"] == pytest.approx([0.0] * 4)
    assert spent["ns-a"].computing == pytest.approx(25.0)


def test_an_instance_is_a_share_of_its_whole_card() -> None:
    """MIG: a full instance of a seventh of a card holds a seventh of a card, and its utilisation is unknown."""
    instance = replace(gpu(0), total=10 * Gi, reserved=0, parent="GPU-P", gi=1, ci=0)
    seen = replace(snapshot([], [], [instance], 0), parents=(MigParent(uuid="GPU-P", index=0, name="", total=70 * Gi),))
    watched = Watched(seen)
    watched.see((held("a", 10 * Gi),), None, None, why="MIG")
    spent = watched.see((held("a", 10 * Gi),), None, None, times=7, why="MIG").by_namespace["ns-a"]
    assert (spent.held, spent.computing, spent.idle) == pytest.approx((10.0, 0.0, 0.0))
    assert watched.last.cards[CARD].why == "MIG"


@pytest.mark.parametrize(
    ("before", "ratio", "by_pid", "more", "expected"),
    [
        # The card was idle: everybody was.
        (None, 0.0, {}, {}, 0.0),
        (None, 0.0, None, {}, 0.0),
        (None, 0.0, {100: 0.0}, {}, 0.0),
        # The card computes, and the driver has never said that a process does: it may be any of them.
        (None, 0.6, {}, {}, None),
        (None, 0.6, {100: 0.0}, {}, None),
        (None, 0.6, None, {}, None),
        # The driver gives numbers of processes, so its 0 is one.
        ({200: 0.5}, 0.6, {200: 0.5}, {}, 0.0),
        ({100: 0.5}, 0.6, {200: 0.5}, {}, 0.0),
        ({999: 0.5}, 0.6, {999: 0.5}, {}, 0.0),
        # But never while the card computes, and nobody does.
        ({100: 0.5}, 0.6, {}, {}, None),
        # What it gives counts at once.
        (None, 0.6, {100: 0.3}, {}, 0.3),
        (None, 0.0, {100: 0.3}, {}, 0.3),
        # An impossible number is no 0.
        ({200: 0.5}, 0.6, {200: 0.5}, {"unclear": frozenset({100})}, None),
        (None, 0.0, {}, {"unclear": frozenset({100})}, None),
        # Nothing is said.
        ({200: 0.5}, None, None, {"why": "not supported"}, None),
    ],
)
def test_a_zero_counts_only_if_it_can_be_trusted(
    before: dict[int, float] | None,
    ratio: float | None,
    by_pid: dict[int, float],
    more: dict[str, Any],
    expected: float,
) -> None:
    """Point 45: a driver that says 0 of everybody while its card computes makes nobody idle."""
    watched = Watched()
    accounts = (held("a", 40 * Gi), held("b", 40 * Gi))
    watched.see(accounts, 0.5, before) if before is not None else watched.see(accounts, is_read=False)
    watched.see(accounts, ratio, by_pid, **more)
    assert watched.last.by_holder[Holder("a", "main", CARD)] == expected
    assert watched.last.by_account[AccountKey(uid="a")] == expected


def test_numbers_of_an_mps_server_say_nothing_of_its_clients() -> None:
    """Where the server is said to compute for its clients, a client's 0 is unknown until some client has more."""
    watched = Watched()
    accounts = (held("a", Gi, mps=MpsSigns(server=True, client=False)), held("b", 2 * Gi, mps=CLIENT), held("c", Gi))
    watched.see(accounts, 0.5, {100: 0.5}, times=2)
    ratios = watched.last.by_account
    assert [ratios[AccountKey(uid=name)] for name in "abc"] == [0.5, None, 0.0]
    clients = (*accounts, held("d", Gi, mps=CLIENT))
    watched.see(clients, 0.5, {100: 0.5, 400: 0.1}, times=2)
    assert watched.last.by_account[AccountKey(uid="b")] == 0.0


def test_what_computes_nothing_for_long_is_found_once() -> None:
    """The incident begins after `after`, is found once, and once more only after the pod has computed."""
    watched, account = Watched(), held("a", 2 * Gi)
    found = [bool(watched.see((account,), 0.0, {}).found_idle) for _ in range(12)]
    assert found == [False] * 6 + [True] + [False] * 5  # the first reading says nothing of the time before it
    assert watched.last.is_idle_holder(AccountKey(uid="a"), IDLE)
    watched.see((account,), 0.1, {100: 0.1})
    assert watched.idle_s("a") is None
    assert watched.last.known_idle_s == {AccountKey(uid="a"): 0.0}
    assert sum(bool(watched.see((account,), 0.0, {}).found_idle) for _ in range(12)) == 1


@pytest.mark.parametrize(
    ("account", "idle"),
    [
        (held("a", Gi // 2), IDLE),
        (held("a", None), IDLE),
        (held("a", 2 * Gi), Idle(after_s=0.0)),
        (held("a", 2 * Gi), Idle(after_s=60.0, above=3 * Gi)),
    ],
)
def test_who_is_no_idle_holder(account: Assessment, idle: Idle) -> None:
    """Who holds little, or an unknown amount, is not found, nor anybody if the policy turns it off."""
    watched = Watched()
    assert not any(watched.see((account,), 0.0, {}, idle=idle).found_idle for _ in range(20))


def test_unknown_time_neither_counts_nor_starts_over() -> None:
    """While the driver says nothing, what was counted stays; the same without any reading."""
    watched, account = Watched(), held("a", 2 * Gi)
    watched.see((account,), 0.0, {}, times=4)
    watched.see((account,), None, None, why="paused", times=20)
    assert watched.idle_s("a") == 30.0
    watched.see((account,), is_read=False, times=20)
    assert (watched.idle_s("a"), watched.last.by_account[AccountKey(uid="a")]) == (30.0, None)
    assert watched.see((account,), 0.0, {}).idle_s[AccountKey(uid="a")] == pytest.approx(
        60.0
    )  # at most three intervals


def test_it_starts_over_where_the_card_computes_for_nobody_knows_whom() -> None:
    """Point 45: with a driver that lies with zeros, a pod that computes now and then never becomes idle."""
    watched, account = Watched(), held("a", 2 * Gi)
    for _ in range(10):
        watched.see((account,), 0.0, {100: 0.0}, times=5)
        watched.see((account,), 0.9, {100: 0.0})
    assert not watched.last.idle_s


def test_a_busy_neighbour_does_not_start_it_over() -> None:
    """With a driver that gives numbers, a pod is found idle beside one that computes, also where these lag behind."""
    watched, accounts = Watched(), (held("a", 2 * Gi), held("b", 2 * Gi))
    watched.see(accounts, 0.9, {200: 0.9})
    watched.see(accounts, 0.9, {200: 0.9}, times=3)
    watched.see(accounts, 0.9, {})
    watched.see(accounts, 0.9, {200: 0.9}, times=2)
    assert (watched.idle_s("a"), watched.idle_s("b")) == (50.0, None)


def test_a_new_pod_has_not_been_idle_before_it_came() -> None:
    """What the driver says of the time since the last reading is not all a new pod's."""
    watched = Watched()
    watched.see((held("a", 2 * Gi),), 0.0, {}, times=3)
    watched.see((held("a", 2 * Gi), held("b", 2 * Gi)), 0.0, {}, times=2)
    assert (watched.idle_s("a"), watched.idle_s("b")) == (40.0, 10.0)


def test_a_restart_goes_on_counting() -> None:
    """What an earlier daemon had counted is added, and what it had reported is not found again."""
    watched, accounts = Watched(), (held("a", 2 * Gi), held("b", 2 * Gi))
    watched.restore({"a": 50.0, "b": 70.0, "gone": 1.0}, reported="b")
    found = [sorted(key.uid for key in watched.see(accounts, 0.0, {}).found_idle) for _ in range(4)]
    assert found == [[], ["a"], [], []]
    assert (watched.idle_s("a"), watched.idle_s("b")) == (80.0, 100.0)


def test_a_restart_does_not_count_before_what_was_seen_to_compute() -> None:
    """If the journal is opened late, what has computed since the start is not made idle by what came before."""
    watched, accounts = Watched(), (held("a", 2 * Gi), held("b", 2 * Gi))
    watched.see(accounts, 0.5, {100: 0.5}, times=2)
    watched.restore({"a": 50.0, "b": 50.0})
    watched.see(accounts, 0.0, {}, times=2)
    assert (watched.idle_s("a"), watched.idle_s("b")) == (20.0, 80.0)


def test_what_a_namespace_held_is_not_lost_with_its_pods() -> None:
    """The counters of a namespace stay for a day after its last pod, so that no scrape misses the end."""
    watched = Watched()
    watched.see((held("a", 80 * Gi),), 1.0, {100: 1.0}, times=3)
    after = watched.see((), 0.0, {}, times=100).by_namespace["ns-a"]
    assert after.held == pytest.approx(30.0)
    assert after.computing == pytest.approx(20.0)  # the last ten seconds ended with a pod of which nothing was said
    others = (held("b", Gi),)
    assert "ns-a" not in watched.see(others, 0.0, {}, times=8641).by_namespace


def test_what_is_declared_and_not_held_is_counted() -> None:
    """Of a card of which a pod declares half and holds a quarter, a quarter is unused; the journal takes it once."""
    watched = Watched()
    account = held("a", 20 * Gi, declared=40 * Gi)
    watched.see((account,), 0.0, {}, times=5)
    ((spender, spent),) = watched.meter.take_spent().items()
    assert (spender[0], spender[1].kind) == ("ns-a", "Pod")
    assert (spent.unused, spent.held) == pytest.approx((10.0, 10.0))
    assert watched.meter.take_spent() == {}


def test_a_long_silence_is_not_counted() -> None:
    """A machine that was suspended for an hour holds nothing in that hour."""
    watched = Watched()
    watched.see((held("a", 80 * Gi),), 1.0, {100: 1.0})
    watched.at_s += 3600.0
    assert watched.see((held("a", 80 * Gi),), 1.0, {100: 1.0}).by_namespace == {}


def test_what_was_said_long_ago_is_not_known_now() -> None:
    """Without a reading for more than three intervals nothing is shown, and the next one does not cover that time."""
    watched, account = Watched(), held("a", 80 * Gi)
    watched.see((account,), 0.5, {100: 0.5}, times=2)
    assert watched.see((account,), is_read=False, times=3).cards
    watched.see((account,), is_read=False)
    assert (watched.last.cards, watched.last.by_account) == ({}, {AccountKey(uid="a"): None})
    spent = watched.see((account,), 0.5, {100: 0.5}).by_namespace["ns-a"]
    assert (spent.held, spent.computing, spent.idle) == pytest.approx((60.0, 5.0, 5.0))


def test_cycles_between_two_readings_are_added_up() -> None:
    """The time of all cycles since the last reading is split by the next one, also if what is held has changed."""
    watched = Watched()
    watched.see((held("a", 40 * Gi),), 0.5, {100: 0.1})
    watched.see((held("a", 80 * Gi),), is_read=False)
    spent = watched.see((held("a", 80 * Gi),), 0.5, {100: 0.5}).by_namespace["ns-a"]
    assert (spent.held, spent.computing, spent.idle) == pytest.approx((15.0, 10.0, 5.0))


def test_a_client_says_nothing_of_other_processes() -> None:
    """A number of an MPS client does not make the 0 of a process that is none a number."""
    watched = Watched()
    watched.see((held("a", Gi, mps=CLIENT), held("b", Gi)), 0.5, {100: 0.5}, times=2)
    assert watched.last.by_account[AccountKey(uid="b")] is None


def test_an_unknown_amount_holds_an_unknown_share() -> None:
    """A container with one process whose amount is unknown is not counted by the others."""
    for amounts in ((40 * Gi, None), (None, 40 * Gi)):
        assert Watched().see((held("a", *amounts),), 0.5, {100: 0.5}, times=3).by_namespace == {}


def test_a_process_that_has_ended_computes_nothing() -> None:
    """Memory that outlives its process: the driver's silence about the dead PID makes nothing unknown."""
    account = held("a", Gi, Gi)
    dead = replace(account.uses[1], ended=True, mps=CLIENT)
    watched = Watched()
    watched.see((replace(account, uses=(account.uses[0], dead)),), 0.5, {100: 0.5}, times=2)
    assert watched.last.by_account[AccountKey(uid="a")] == 0.5


@pytest.mark.parametrize("ratio", [0.9, 0.0])
def test_a_pod_whose_processes_have_ended_is_neither_busy_nor_idle(ratio: float) -> None:
    """What it last was does not stay: it holds nothing now, though it still declares memory."""
    watched = Watched()
    watched.see((held("a", 40 * Gi),), ratio, {100: ratio}, times=8)
    last = watched.see((held("a"),), 0.0, {})
    assert (last.by_account, last.idle_s, last.known_idle_s) == ({}, {}, {})
    assert not last.is_idle_holder(AccountKey(uid="a"), IDLE)


def test_an_account_on_two_cards_has_the_mean_of_both() -> None:
    """Busy on one of its two cards, a pod is half busy."""
    cards = [replace(gpu(number), total=SIZE, reserved=0) for number in range(2)]
    account = held("a", Gi, Gi)
    uses = (account.uses[0], replace(account.uses[1], gpu="GPU-1"))
    watched = Watched(snapshot([], [], cards, 0))
    reading = UtilizationReading(
        at_s=0.0,
        cards=(
            CardUtilization(gpu="GPU-0", ratio=1.0, by_pid={100: 1.0}),
            CardUtilization(gpu="GPU-1", ratio=0.0, by_pid={}),
        ),
    )
    for at_s in (10.0, 20.0):
        both = (replace(account, uses=uses),)
        seen = watched.meter.add(at_s, watched._seen, both, (replace(reading, at_s=at_s),), IDLE, gap_s=30.0)
    assert seen.by_account == {AccountKey(uid="a"): 0.5}
    assert seen.holders == {AccountKey(uid="a"): (Holder("a", "main", "GPU-0"), Holder("a", "main", "GPU-1"))}


def test_memory_that_was_freed_is_held_idle_no_longer() -> None:
    """A pod that lives on without memory, and declares some, is forgotten at once; what it takes later begins at 0."""
    watched = Watched()
    watched.see((held("a", 2 * Gi, declared=4 * Gi),), 0.0, {}, times=10)
    assert watched.last.is_idle_holder(AccountKey(uid="a"), IDLE)
    watched.see((held("a", declared=4 * Gi),), is_read=False)
    assert (watched.last.idle_s, watched.last.by_account, watched.meter.reported) == ({}, {}, frozenset())
    watched.see((held("a", 2 * Gi, declared=4 * Gi),), 0.0, {}, times=2)
    assert watched.idle_s("a") == 10.0


def test_a_new_process_does_not_inherit_what_another_was_idle() -> None:
    """A container that starts again within a cycle, or while no daemon runs, has computed nothing since it started."""
    watched, account = Watched(), held("a", 2 * Gi)
    watched.see((account,), 0.0, {}, times=5)
    began_ticks = int(100 * watched.at_s) + 500
    again = replace(account, uses=(replace(account.uses[0], key=ProcessKey(pid=100, start_ticks=began_ticks)),))
    assert watched.see((again,), 0.0, {}).idle_s[AccountKey(uid="a")] == 5.0
    later = Watched()
    later.restore({"a": 50.0}, reported="a")
    later.see((replace(again, uses=(replace(again.uses[0], key=ProcessKey(pid=100, start_ticks=100_000)),)),), 0.0, {})
    assert (later.idle_s("a"), later.meter.reported) == (10.0, frozenset())


def test_a_process_that_joins_changes_nothing() -> None:
    """A pod of which one process has been idle for long is idle for that long, also if another has just started."""
    watched, account = Watched(), held("a", 2 * Gi, 2 * Gi)
    watched.see((replace(account, uses=account.uses[:1]),), 0.0, {}, times=5)
    joining = replace(account.uses[1], key=ProcessKey(pid=101, start_ticks=int(100 * watched.at_s) + 500))
    watched.see((replace(account, uses=(account.uses[0], joining)),), 0.0, {})
    assert watched.idle_s("a") == 50.0


def test_overlapping_accounts_count_what_is_held_once() -> None:
    """A pod with an account of one card and one of all: both are judged, neither is doubled."""
    whole = held("a", 40 * Gi, declared=60 * Gi)
    part = replace(whole, account=AccountKey(uid="a", gpu=CARD), declared=50 * Gi)
    watched = Watched()
    spent = watched.see((part, whole), 0.0, {}, times=9).by_namespace["ns-a"]
    assert (spent.held, spent.idle, spent.unused) == pytest.approx((40.0, 40.0, 20.0))
    assert watched.last.by_account == {whole.account: 0.0, part.account: 0.0}
    assert watched.last.found_idle | watched.meter.reported == {whole.account, part.account}


def test_a_default_declares_nothing_that_could_stay_unused() -> None:
    """Unused is what a pod's own declaration reserves and its processes don't take."""
    watched = Watched()
    account = replace(held("a", 20 * Gi, declared=40 * Gi), declared_by="default")
    assert watched.see((account,), 0.0, {}, times=5).by_namespace["ns-a"].unused == 0.0


def test_who_may_be_a_client_is_not_cleared_by_a_server_s_number() -> None:
    """A driver without a list of MPS clients: nothing tells a client from another process, so its 0 is unknown."""
    watched = Watched()
    unknown = MpsSigns(client=None)
    accounts = (held("a", Gi, mps=MpsSigns(server=True, client=False)), held("b", 2 * Gi, mps=unknown))
    watched.see(accounts, 0.9, {100: 0.9}, times=10)
    assert (watched.last.by_account[AccountKey(uid="b")], watched.idle_s("b")) == (None, None)


@pytest.mark.parametrize("later", [None, {}, {100: 0.0}])
def test_a_driver_that_falls_silent_accuses_nobody(later: dict[int, float] | None) -> None:
    """It has told before for whom the card computes; once it does not, who is alone there may have."""
    watched, account = Watched(), held("a", 2 * Gi)
    watched.see((account,), 0.9, {100: 0.9}, times=2)
    for _ in range(10):
        watched.see((account,), 0.0, {}, times=5)
        watched.see((account,), 0.9, later)
    assert not watched.last.idle_s


def test_a_driver_that_no_longer_tells_processes_apart_accuses_no_neighbour() -> None:
    """Without figures of processes the card may have computed for any of them."""
    watched, accounts = Watched(), (held("a", 2 * Gi), held("b", 2 * Gi))
    watched.see(accounts, 0.9, {200: 0.9}, times=5)
    watched.see(accounts, 0.9, None)
    assert watched.last.idle_s == {}


def test_two_readings_without_a_computing_process_start_it_over_for_all() -> None:
    """Beside a neighbour one such reading may be of a process that has just ended; the second is not."""
    watched, accounts = Watched(), (held("a", 2 * Gi), held("b", 2 * Gi))
    watched.see(accounts, 0.9, {200: 0.9}, times=5)
    watched.see(accounts, 0.9, {})
    assert watched.idle_s("a") == 40.0
    watched.see(accounts, 0.9, {})
    assert watched.last.idle_s == {}


def test_an_interval_of_a_minute_counts_in_full() -> None:
    """With cycles far apart, a reading says something of all the time since the one before."""
    watched, account = Watched(), held("a", 80 * Gi)
    for number in range(1, 12):
        at_s = watched.at_s + 60.05 * number
        readings = (answer(at_s, 0.5, {100: 0.5}),)
        seen = watched.meter.add(at_s, watched._seen, (account,), readings, IDLE, gap_s=190.0)
    spent = seen.by_namespace["ns-a"]
    assert (spent.held, spent.computing, spent.idle) == pytest.approx((600.5, 300.25, 300.25))


def test_two_readings_in_one_cycle_count_all_their_time() -> None:
    """The loop may take two of them at once."""
    watched, accounts = Watched(), (held("a", 2 * Gi),)
    for _ in range(10):
        watched.at_s += 20.0
        readings = (answer(watched.at_s - 10.0, 0.0, {}), answer(watched.at_s, 0.0, {}))
        watched.last = watched.meter.add(watched.at_s, watched._seen, accounts, readings, IDLE, gap_s=30.0)
    assert watched.idle_s("a") == 180.0


def test_who_holds_little_and_computes_nothing_has_no_idle_time() -> None:
    """The metric's 0 is for those that compute."""
    watched = Watched()
    seen = watched.see((held("a", Gi // 2), held("b", Gi // 2)), 0.5, {200: 0.5}, times=3)
    assert seen.known_idle_s == {AccountKey(uid="b"): 0.0}
