"""When the driver is queried and when it is released, with a real library and descriptors that the kernel shows."""

import re
import select
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, nvml_world, row, uses
from tests.node.support import wait_until
from tests.stub import GIB, LISTS, MIB, StubDelay, StubGpu
from tests.worlds import at
from watchdog import clock
from watchdog.core.model import GapReason
from watchdog.core.policy import Pulse, Window
from watchdog.core.quiet import Ticks
from watchdog.core.rules import Switches
from watchdog.daemon.sampler import Sampler, TimedReading
from watchdog.node.drivers.devices import open_devices
from watchdog.node.drivers.thread import PulseState, Rest

FREE = Switches()
UNSEEN = Switches(unseen=True)
PULSE = Pulse(every_s=0.02, rise=100 * MIB, looks=Window(count=2, per_s=60.0))
MIG = Switches(maintenance="the node's label nvidia.com/mig.config.state is pending")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NvmlWorld]:
    (tmp_path / "dev").mkdir()
    with nvml_world(tmp_path) as found:
        show(found)
        yield found


def show(world: NvmlWorld, **more: object) -> str:
    """A card with a process, and a device file that the library opens; its path."""
    device = world.path.with_name("dev") / "nvidia0"
    device.touch()
    world.show(card("a", ghost(1)), device=device, **more)
    return str(device)


@pytest.fixture
def sampler(world: NvmlWorld) -> Iterator[Sampler]:
    found = Sampler(world.driver(), 1.0, at(0))
    yield found
    assert found.thread.close(5.0)


def step(sampler: Sampler, second: float) -> TimedReading | None:
    """What the loop does at this second, and the reading that comes of it; also where the driver is only released."""
    sampler.request_next(at(second))
    if sampler.wake_s(at(second)) > at(second).boottime_s + 60:
        assert select.select([sampler.thread], [], [], 5.0)[0]
    return sampler.pop_reading(at(second))


def reached(sampler: Sampler, second: float, switches: Switches | None = None) -> TimedReading:
    """The reading that comes at this second, with these switches from then on."""
    if switches is not None:
        sampler.note_switches(switches, at(second))
    look = step(sampler, second)
    assert look is not None
    return look


def test_one_more_reading_then_nothing_stays_open(world: NvmlWorld, sampler: Sampler) -> None:
    """Point 34: the last reading says what it spares; from then on readings are empty, with what was there."""
    device = show(world)
    assert uses(reached(sampler, 0, FREE).reading, "GPU-a") == {1: GIB}
    assert open_devices() == (device,)
    assert uses(reached(sampler, 0.2, MIG).reading, "GPU-a") == {1: GIB}
    assert step(sampler, 0.2) is None
    assert (open_devices(), sampler.why_reexec(at(0.2))) == ((), None)
    world.forget_calls()
    for second in (1.2, 2.2):
        reading = reached(sampler, second).reading
        gpu = row(reading, "GPU-a")
        assert (gpu.up, gpu.listed, gpu.total, gpu.used, reading.blind) == (False, False, None, None, True)
        assert uses(reading, "GPU-a") == {1: None}
        (gap,) = reading.gaps
        assert gap.reason is GapReason.MAINTENANCE
        assert str(gap.problem).startswith(f"{MIG.maintenance}: its GPUs are under maintenance")
    assert world.calls() == 0
    sampler.note_switches(FREE, at(3))
    assert uses(reached(sampler, 3.2).reading, "GPU-a") == {1: GIB}
    assert open_devices() == (device,)
    assert reached(sampler, 4, MIG).reading.blind is False
    assert sampler.why_reexec(at(4)) is None  # it is open because it has not been released a second time yet
    assert step(sampler, 4) is None
    assert open_devices() == ()


def test_a_reading_that_is_under_way_is_the_last_one(world: NvmlWorld, sampler: Sampler) -> None:
    """Nothing more is asked of the driver than it takes."""
    sampler.note_switches(FREE, at(0))
    sampler.request_next(at(0))
    assert reached(sampler, 0.1, MIG).reading.blind is False
    wait_until(lambda: bool(sampler.thread.take_utilization()), 60)  # which comes after the reading
    world.forget_calls()
    assert step(sampler, 0.1) is None
    assert (world.calls(), world.calls("nvmlShutdown")) == (1, 1)


def test_a_maintenance_that_is_over_at_once(world: NvmlWorld, sampler: Sampler) -> None:
    """The driver is released and opened again, or kept; whichever comes first, there is a reading afterwards."""
    reached(sampler, 0, FREE)
    sampler.note_switches(MIG, at(0.1))
    sampler.note_switches(FREE, at(0.2))
    assert reached(sampler, 1.1).reading.blind is False
    reached(sampler, 2, MIG)
    sampler.request_next(at(2))
    sampler.note_switches(FREE, at(2.1))
    assert select.select([sampler.thread], [], [], 5.0)[0]
    assert sampler.pop_reading(at(2.2)) is None
    assert reached(sampler, 3.2).reading.blind is False


def test_the_node_is_waited_for_a_little(world: NvmlWorld, sampler: Sampler) -> None:
    """A node whose object has not come yet may be under maintenance; one that can't be had must not end observing."""
    sampler.note_switches(UNSEEN, at(0))
    assert (step(sampler, 0), sampler.wake_s(at(0)), world.calls()) == (None, at(5).boottime_s, 0)
    sampler.note_switches(UNSEEN, at(4.9))
    assert step(sampler, 4.9) is None
    assert reached(sampler, 5, UNSEEN).reading.blind is False
    assert reached(sampler, 6, UNSEEN).reading.blind is False


def test_the_first_list_of_pods_is_waited_for_a_little(world: NvmlWorld, sampler: Sampler) -> None:
    """Without it every process is of an unknown pod, and the daemon would be ready a second later than it could be."""
    sampler.note_switches(FREE, at(0), awaits_pods=True)
    assert (step(sampler, 0), sampler.wake_s(at(0)), world.calls()) == (None, at(5).boottime_s, 0)
    assert reached(sampler, 0.2, FREE).reading.blind is False
    sampler.note_switches(FREE, at(1.3), awaits_pods=True)  # watched again under another policy
    assert reached(sampler, 1.3).reading.blind is False


def test_pods_that_do_not_come_hold_nothing_up(world: NvmlWorld, sampler: Sampler) -> None:
    """An API server that does not answer takes five seconds of observing, no more."""
    sampler.note_switches(FREE, at(4.9), awaits_pods=True)
    sampler.request_next(at(4.95))
    assert world.calls() == 0
    assert reached(sampler, 5).reading.blind is False, "and nothing has to be checked again for that"


def test_after_a_reexec_the_node_is_waited_for(world: NvmlWorld) -> None:
    """Point 34: an earlier process let the driver go; that lasts until the node's object says that it is over."""
    sampler = Sampler(world.driver(), 1.0, at(0), reexecuted=True)
    for second in (0.0, 60.0, 3600.0):
        (gap,) = reached(sampler, second, UNSEEN).reading.gaps
        assert "has not been read again since" in str(gap.problem)
    sampler.note_switches(FREE, at(3601))
    assert reached(sampler, 3602).reading.blind is False
    sampler.note_switches(UNSEEN, at(3603))
    assert reached(sampler, 3604).reading.blind is False
    assert sampler.maintenance is None
    assert sampler.thread.close(5.0)


def test_a_driver_that_hangs_is_given_three_seconds(world: NvmlWorld, sampler: Sampler) -> None:
    """Point 34: whatever hangs, since whenever: three seconds after maintenance was seen a new process is needed."""
    reached(sampler, 0, FREE)
    show(world, delays=(StubDelay(call=LISTS[0], ms=400.0),))
    sampler.request_next(at(1))
    sampler.note_switches(MIG, at(50))
    assert (sampler.why_reexec(at(53)), sampler.pop_reading(at(53))) == (None, None)
    assert sampler.why_reexec(at(53.5)) == f"{MIG.maintenance}, but a call into NVML has not returned for 4 s"
    assert sampler.silence(10.0, at(53.5)) == ("NVML has not responded for 52 s",)
    time.sleep(0.6)


def pulsing(sampler: Sampler, looks: Window = PULSE.looks) -> None:
    """Read once, with a pulse from then on."""
    sampler.note_switches(FREE, at(0))
    sampler.set_pulse(replace(PULSE, looks=looks))
    reached(sampler, 0)


def rise(world: NvmlWorld, sampler: Sampler, used: int, second: float, *others: StubGpu) -> tuple[str, ...]:
    """Have a memory counter rise, and the sampler notice it at this second; who is newly without looks."""
    world.show(card("a", ghost(1, used)), *others)
    assert select.select([sampler.thread], [], [], 5.0)[0]
    assert sampler.pop_reading(at(second)) is None
    return sampler.note_rise(at(second))


def test_a_rise_brings_a_reading_forward(world: NvmlWorld, sampler: Sampler) -> None:
    """However shortly after the last one: what was allocated is to be seen now, and not at the next tick."""
    pulsing(sampler)
    rise(world, sampler, 2 * GIB, 0.05)
    assert sampler.wake_s(at(0.05)) == at(0.05).boottime_s
    assert uses(reached(sampler, 0.05).reading, "GPU-a") == {1: 2 * GIB}
    assert sampler.wake_s(at(0.06)) == at(1).boottime_s, "the tick stays where it was"


def test_the_readings_of_the_pulse_are_limited(world: NvmlWorld, sampler: Sampler) -> None:
    """A pod that allocates without end costs the driver no more lists than the policy has for it; none is lost."""
    sampler.pace.interval_s = 300.0
    pulsing(sampler)
    for number, second in enumerate((0.1, 0.2), start=2):
        rise(world, sampler, number * GIB, second)
        reached(sampler, second)
    rise(world, sampler, 4 * GIB, 0.3)
    assert sampler.wake_s(at(0.3)) == pytest.approx(at(60.1).boottime_s)
    reached(sampler, 60.1)
    rise(world, sampler, 5 * GIB, 60.15)
    assert sampler.wake_s(at(60.15)) == pytest.approx(at(60.2).boottime_s)


def test_readings_that_are_not_needed_are_not_used_up(world: NvmlWorld, sampler: Sampler) -> None:
    """One pod that allocates without end must not take the pulse from the others for minutes after it."""
    pulsing(sampler)
    for number in range(1, 6):
        rise(world, sampler, (number + 1) * GIB, number - 0.5)
        reached(sampler, number - 0.5 if number <= 2 else number)
        reached(sampler, number) if number <= 2 else None
    reached(sampler, 62)
    rise(world, sampler, 10 * GIB, 62.1)
    assert sampler.wake_s(at(62.1)) == at(62.1).boottime_s


def test_a_card_that_spends_its_looks_leaves_the_others_theirs(world: NvmlWorld, sampler: Sampler) -> None:
    """Point 40: a pod that allocates without end delays what is seen of its own card, and of no other."""
    sampler.pace.interval_s = 30.0
    calm = card("b", ghost(2))
    world.show(card("a", ghost(1)), calm)
    pulsing(sampler, Window(count=4, per_s=60.0))
    for number in (1, 2, 3):
        assert rise(world, sampler, (number + 1) * GIB, number, calm) == ()
        reached(sampler, number)
    assert rise(world, sampler, 5 * GIB, 4, calm) == ("GPU-a",)
    assert sampler.wake_s(at(4)) == at(30).boottime_s
    assert sampler.pulse_state == PulseState(is_active=True, looks_spent=1)
    assert rise(world, sampler, 5 * GIB, 5, card("b", ghost(2, 9 * GIB))) == ()
    assert sampler.wake_s(at(5)) == at(5).boottime_s
    reached(sampler, 5)
    assert rise(world, sampler, 6 * GIB, 6, card("b", ghost(2, 9 * GIB))) == (), "that has been reported"
    assert sampler.pulse_state.looks_spent == 2


def test_no_pulse_under_maintenance(world: NvmlWorld, sampler: Sampler) -> None:
    """The GPUs are to be left alone, even for the moment until the driver is released."""
    pulsing(sampler)
    sampler.note_switches(MIG, at(0.1))
    sampler.set_pulse(PULSE)
    time.sleep(0.05)
    world.forget_calls()
    time.sleep(0.1)
    assert world.calls() == 0


def resting(sampler: Sampler, until_s: float = 600.0) -> Rest:
    """A rest that begins with the first reading, by the clock of the machine: its ticks are the thread's."""
    now = clock.now()
    sampler.pace.interval_s = 0.05
    sampler.note_switches(FREE, now)
    sampler.request_next(now)
    assert select.select([sampler.thread], [], [], 5.0)[0]
    look = sampler.pop_reading(clock.now())
    assert look is not None
    return sampler.begin_rest(look.reading, look.asked, look.asked.boottime_s + until_s, lambda: True)


def woken(sampler: Sampler) -> tuple[Ticks | None, TimedReading]:
    """What the loop does once the rest is over: the ticks, and the reading that ended it."""
    assert select.select([sampler.thread], [], [], 5.0)[0]
    now = clock.now()
    ticks, look = sampler.end_rest(now), sampler.pop_reading(now)
    assert look is not None
    return ticks, look


def test_a_change_ends_the_rest(world: NvmlWorld, sampler: Sampler) -> None:
    """The loop sleeps until there is one; the reading is taken as if it had been requested, and the next one is due."""
    rest = resting(sampler)
    wait_until(lambda: rest.ticks is not None)
    now = clock.now()
    assert sampler.wake_s(now) > now.boottime_s + 5
    assert (sampler.end_rest(now), sampler.pop_reading(now), sampler.is_resting) == (None, None, True)
    world.show(card("a", ghost(1, 2 * GIB)))
    ticks, look = woken(sampler)
    assert ticks is not None
    assert ticks.last.boottime_s < look.asked.boottime_s <= now.boottime_s + 5
    assert 0 < sampler.pace.next_reading_s - look.asked.boottime_s <= sampler.pace.interval_s + 0.001
    assert (uses(look.reading, "GPU-a"), sampler.is_resting) == ({1: 2 * GIB}, False)


def test_a_rest_has_an_end(sampler: Sampler) -> None:
    """The loop checks its inputs now and then even if no file, pod or process has changed."""
    rest = resting(sampler, until_s=0.3)
    ticks, look = woken(sampler)
    assert ticks is not None
    assert 3 <= len(ticks.took_s) <= 5
    assert look.reading == rest.reading


def test_a_reading_that_is_wanted_ends_the_rest(world: NvmlWorld, sampler: Sampler) -> None:
    """Other pods, another policy, a step that is due: the loop reads a second after the last tick at the earliest."""
    rest = resting(sampler)
    wait_until(lambda: rest.ticks is not None)
    now = clock.now()
    sampler.bring_forward(now)
    due_s = sampler.wake_s(now)
    assert due_s - rest.last.boottime_s == pytest.approx(1.0, abs=0.06)
    assert sampler.end_rest(now) is None
    later = replace(now, boottime_s=due_s)
    assert sampler.end_rest(later) is not None
    assert not sampler.is_resting


def test_a_driver_that_hangs_in_a_rest_is_noticed(world: NvmlWorld, sampler: Sampler) -> None:
    """The loop wakes when the rest should be over, and the reading in progress is the one that hangs."""
    rest = resting(sampler)
    wait_until(lambda: rest.ticks is not None)
    show(world, delays=(StubDelay(call=LISTS[0], ms=700.0),))
    wait_until(lambda: sampler.thread.busy)
    begun_s = clock.now().boottime_s
    late = replace(rest.last, boottime_s=sampler.wake_s(rest.last))
    assert late.boottime_s - begun_s < 11
    assert sampler.silence(10.0, late) == ()
    sampler.end_rest(late)
    (silence,) = sampler.silence(10.0, replace(late, boottime_s=begun_s + 12))
    assert re.fullmatch(r"NVML has not responded for 1[23] s", silence)


def test_maintenance_ends_the_rest(sampler: Sampler) -> None:
    """Point 34: one more reading, and the driver is released."""
    rest = resting(sampler)
    wait_until(lambda: rest.ticks is not None)
    sampler.note_switches(MIG, clock.now())
    assert sampler.end_rest(clock.now()) is not None
    assert not sampler.is_resting
