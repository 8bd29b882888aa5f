"""The daemon's own steps, one at a time: when the driver is read again after a cycle, and between two."""

import json
import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.support import sleeper, wait_until
from tests.worlds import Gi, assessed, container, gpu, inputs, planned, pod, policy, rule, snapshot, step, use
from watchdog import clock
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import Attribution
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now, Use
from watchdog.core.plan import CycleReport, OpenCycle, Outcome, Result
from watchdog.core.policy import Pulse
from watchdog.core.quiet import Ticks
from watchdog.core.utilization import CardUtilization
from watchdog.daemon.enforcement import Environment
from watchdog.daemon.main import Daemon
from watchdog.daemon.sampler import TimedReading
from watchdog.export.log import configure
from watchdog.export.metrics import render
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.drivers.thread import ReadCost
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options
from watchdog.report.changes import Change

INTERVAL_S = 600.0
FOR_S = 30.0


class NoGpus:
    """A driver of a node without GPUs."""

    interface = "NVML"
    needs_new_process = None

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """Nothing, at once."""
        return DriverReading(driver="0", interface="NVML")

    def used(self) -> Mapping[str, int]:
        """None."""
        return {}

    def utilization(self) -> tuple[CardUtilization, ...]:
        """None is reported."""
        return ()

    def close(self) -> None:
        """There is nothing to release."""


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """The file of pods: none."""
    found = tmp_path / "pods.json"
    found.write_text(json.dumps({"kind": "PodList", "items": []}), encoding="utf-8")
    return found


@pytest.fixture
def daemon(tmp_path: Path, pods: Path) -> Iterator[Daemon]:
    """A daemon that reads the driver every ten minutes, and has found nothing new."""
    path = tmp_path / "policy.toml"
    path.write_text('mode = "observe"\n', encoding="utf-8")
    options = Options(node="n1", policy=path, listen="127.0.0.1:0", journal=tmp_path / "journal.db", pods=pods)
    file = PolicyFile(path)
    file.load()
    scanner = Scanner(ProcessTable(Procfs(), pidfds=True))
    environment = Environment(in_host_pid_namespace=True, pidfd_missing=None)
    under = policy(rule(step(for_s=FOR_S)), mode="observe", interval_s=INTERVAL_S)
    made = Daemon(options, (file, under), NoGpus(), environment, scanner)
    made._sources.inputs(under, clock.now())
    wait_until(lambda: _keeps_journal(made))
    yield made
    made._end(clock.now())
    assert made._sinks._server is not None
    made._sinks._server.close()


def _keeps_journal(daemon: Daemon) -> bool:
    """Whether the journal is open, which a busy disk delays, after another check."""
    daemon._beat(clock.now())
    return daemon._sinks.has_journal


def begin_to_read(daemon: Daemon) -> Now:
    """Note that the daemon begins to read the driver; when that is."""
    now = clock.now()
    daemon._sampler.pace.begin(now)
    return now


def next_reading_s(daemon: Daemon) -> float:
    """When it reads the driver next, on CLOCK_BOOTTIME."""
    return daemon._sampler.pace.next_reading_s


def test_other_pods_are_a_reason_to_read_soon(daemon: Daemon, pods: Path) -> None:
    """Nothing new is none, however often it is checked; a changed list brings the next reading forward to a second."""
    now = begin_to_read(daemon)
    daemon._beat(now)
    assert next_reading_s(daemon) == now.boottime_s + INTERVAL_S
    pods.write_text(json.dumps({"kind": "PodList", "items": [], "metadata": {}}), encoding="utf-8")
    daemon._beat(now)
    assert next_reading_s(daemon) == now.boottime_s + 1


def test_sighup_loads_the_policy_once(daemon: Daemon) -> None:
    """Point 20: SIGHUP loads it at once, and nothing loads it again after that; every load is a new policy."""
    loaded = [daemon._policy]
    daemon._want_reload()
    for _ in range(2):
        daemon._beat(clock.now())
        loaded.append(daemon._policy)
    assert [each is loaded[1] for each in loaded] == [False, True, True]


def test_a_disk_that_can_be_written_again_is_a_reason_to_read_soon(daemon: Daemon) -> None:
    """Promise 3: a kill that waits for the journal alone waits no longer once the disk has room again."""
    daemon._beat(clock.now())
    daemon._is_writable = False
    now = begin_to_read(daemon)
    daemon._beat(now)
    assert next_reading_s(daemon) == now.boottime_s + 1


@pytest.mark.parametrize(("stale", "in_s"), [(False, FOR_S), (True, INTERVAL_S)], ids=["fresh", "stale"])
def test_a_step_that_comes_due_is_read_in_time(daemon: Daemon, *, stale: bool, in_s: float) -> None:
    """Promise 3: the loop is there when a step's `for` is over; by a stale list no timer runs."""
    now, tenants = begin_to_read(daemon), [pod("a", container(declared="1Gi"))]
    under, seen = policy(rule(step(for_s=FOR_S))), snapshot([use(5, 2 * Gi)])
    opened = OpenCycle(
        inputs=inputs(under, tenants, pods_stale=stale),
        snapshot=seen,
        attribution=Attribution(),
        assessments=assessed(seen, tenants, under),
        plan=planned(seen, tenants, under),
        scan_s=0.0,
    )
    daemon._finish(opened)
    assert now.boottime_s + in_s <= next_reading_s(daemon) <= clock.now().boottime_s + in_s


def repeats(
    daemon: Daemon, reading: DriverReading, after_s: float, *, stepped_s: float = 0.0, took_s: float = 0.0
) -> bool | None:
    """Take a reading `after_s` from now: whether it repeated the last cycle; None: no reading may repeat this one.

    The wall clock has been set forward by `stepped_s`; the driver `took_s` for its answer.
    """
    now, fresh = clock.now(), replace(reading)
    asked = replace(now, boottime_s=now.boottime_s + after_s, wall_s=now.wall_s + after_s + stepped_s)
    daemon._sampler.end_rest(asked, at_once=True)
    daemon._sampler.pace.begin(asked)  # or the driver's thread would read at once in the rest that follows
    answered = replace(asked, boottime_s=asked.boottime_s + took_s)
    daemon._run_cycle(TimedReading(reading=fresh, asked=asked, took_s=took_s, only=None), answered)
    last = daemon._quiet_ticks._last
    return None if last is None else last.reading is not fresh


def test_equal_readings_repeat_a_quiet_cycle(daemon: Daemon) -> None:
    """Promise 4: nothing is computed again, and every tick counts as a cycle all the same, in the metrics too."""
    reading = DriverReading(driver="0", interface="NVML")
    assert repeats(daemon, reading, 0.0) is False
    for after_s in (1.0, 2.0, 9.5, 30.0):
        assert repeats(daemon, reading, after_s) is True
        last = daemon._cycle.ledger.last_cycle
        assert last is not None
        assert last.boottime_s - clock.now().boottime_s == pytest.approx(after_s, abs=0.5)
    assert daemon._sinks._endpoints.health.status.cycles == 5
    assert b"gpu_watchdog_cycle_duration_seconds_count 5" in render(daemon._sinks._metrics.registry, openmetrics=False)
    assert repeats(daemon, reading, 30.0 + daemon._policy.reset_after_s) is False


class Flaky:
    """A sink that fails as often as a test wants."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Fail, or take it."""
        self.left -= 1
        if self.left >= 0:
            raise ZeroDivisionError("a bug")

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Nothing is left to do."""


@pytest.mark.parametrize(("failures", "code"), [(9, None), (10, 1)])
def test_a_sink_that_fails_ten_times_in_a_row_ends_the_daemon(daemon: Daemon, failures: int, code: int | None) -> None:
    """It must not run on without its journal: each cycle is published everywhere else, and the tenth is the last."""
    daemon._sinks._sinks.insert(0, Flaky(failures))
    reading = DriverReading(driver="0", interface="NVML")
    for number in range(10):
        repeats(daemon, reading, float(number))
        assert daemon._sinks._endpoints.health.status.cycles == number + 1
    assert daemon._ending.code == code
    assert daemon._ending.failures == (10 if code else 0)


def test_a_slow_cycle_is_repeated_and_no_longer_late(daemon: Daemon) -> None:
    """Promise 4: a node whose cycles take longer than the interval rests too once nothing changes."""
    daemon._policy = replace(daemon._policy, interval_s=1e-6)
    reading = DriverReading(driver="0", interface="NVML")
    assert repeats(daemon, reading, 0.0) is False
    assert _late(daemon) == 1
    assert [repeats(daemon, reading, after_s) for after_s in (0.5, 1.0)] == [True, True]
    assert _late(daemon) == 0


def test_a_driver_slower_than_the_interval_makes_every_cycle_late(daemon: Daemon) -> None:
    """Point 39: that limits are checked too rarely is reported as long as it is so."""
    daemon._policy = replace(daemon._policy, interval_s=1.0)
    reading = DriverReading(driver="0", interface="NVML")
    assert [repeats(daemon, reading, after_s, took_s=1.5) for after_s in (0.0, 2.0)] == [None, None]
    assert repeats(daemon, reading, 4.0) is False
    assert repeats(daemon, reading, 6.0, took_s=1.5) is None


def test_quiet_readings_do_not_hide_that_much_memory_belongs_to_no_process(daemon: Daemon) -> None:
    """Point 10: a residual that lasts for a minute is a gap, also where nothing else ever changes."""
    leaking = gpu(0, 16 * Gi, used=9 * Gi)
    reading = DriverReading(driver="0", interface="NVML", gpus=(leaking,))
    assert [repeats(daemon, reading, after_s) for after_s in (0.0, 30.0, 59.0)] == [False, True, True]
    assert repeats(daemon, reading, 61.0) is False
    report = daemon._sinks._endpoints.report
    assert report is not None
    assert [gap.reason for gap in report.pods.gaps] == [GapReason.RESIDUAL]


def _late(daemon: Daemon) -> int:
    """In how many gaps of the last report a cycle was late."""
    report = daemon._sinks._endpoints.report
    assert report is not None
    return sum(gap.reason is GapReason.CYCLE_LATE for gap in report.snapshot.gaps)


def test_a_rest_ends_when_the_pod_list_becomes_too_old(daemon: Daemon) -> None:
    """Law 3: from then on nothing may be acted on, which the next reading finds."""
    reading = DriverReading(driver="0", interface="NVML")
    assert [repeats(daemon, reading, after_s) for after_s in (0.0, 1.0)] == [False, True]
    last = daemon._quiet_ticks._last
    assert last is not None
    assert last.inputs.pods.synced is not None
    policy = replace(last.inputs.policy, stale_after_s=4.0)
    daemon._quiet_ticks._begin_rest(replace(last, inputs=replace(last.inputs, policy=policy)))
    assert daemon._sampler._rest is not None
    assert daemon._sampler._rest.until_s == last.inputs.pods.synced.boottime_s + 4.0


def test_whatever_differs_ends_the_quiet(daemon: Daemon, pods: Path) -> None:
    """The reading, the ledger or the pods; and nothing rests before the end of a gap that is gone has been reported."""
    reading = DriverReading(driver="0", interface="NVML")
    readings = (reading, replace(reading, driver="1"), reading)
    assert [repeats(daemon, each, after_s) for after_s, each in enumerate(readings)] == [False] * 3
    daemon._cycle.ledger = daemon._cycle.ledger.reset()
    assert repeats(daemon, reading, 3.0) is False
    item = {"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"containers": []}}
    pods.write_text(json.dumps({"kind": "PodList", "items": [item]}), encoding="utf-8")
    assert repeats(daemon, reading, 4.0) is False
    gap = Gap(reason=GapReason.GPU_ERROR, what="GPU-0", problem=Problem("x"))
    assert repeats(daemon, replace(reading, gaps=(gap,)), 5.0) is None
    for after_s, is_repeated, rests in (
        (6.0, False, False),
        (14.0, False, False),
        (15.1, False, True),
        (15.2, True, True),
    ):
        assert (repeats(daemon, reading, after_s), daemon._sampler._rest is not None) == (is_repeated, rests)


def test_the_end_of_a_process_that_is_still_listed_ends_the_quiet(daemon: Daemon) -> None:
    """A driver lists the memory of a dead process for a while: what waits for its end must not wait for the list."""
    with sleeper() as process:
        wait_until(lambda: Procfs().stat(process.pid).comm == b"sleep")
        listed = Use(gpu="GPU-0", pid=process.pid, used=Gi, client=False)
        reading = DriverReading(driver="0", interface="NVML", gpus=(gpu(0, 16 * Gi),), uses=(listed,))
        assert [repeats(daemon, reading, after_s) for after_s in (0.0, 1.0)] == [False, True]
        process.kill()
        wait_until(lambda: Procfs().stat(process.pid).state == "Z")
        assert repeats(daemon, reading, 2.0) is not True


def test_a_step_of_the_wall_clock_ends_the_quiet(daemon: Daemon) -> None:
    """The hours of a rule begin by the wall clock, also one that is corrected, or runs slow for a long time."""
    reading = DriverReading(driver="0", interface="NVML")
    steps = (0.0, 0.6, 1.2, 1.3, -3600.0, -3600.0)
    found = [repeats(daemon, reading, float(number), stepped_s=step_s) for number, step_s in enumerate(steps)]
    assert found == [False, True, False, True, False, True]


def test_an_outcome_between_two_cycles_ends_the_quiet(daemon: Daemon) -> None:
    """An intention that was late on disk is withdrawn while nothing else happens: the next cycle has to report that."""
    reading = DriverReading(driver="0", interface="NVML")
    assert [repeats(daemon, reading, after_s) for after_s in (0.0, 1.0)] == [False, True]
    tenants, under = [pod("a", container(declared="1Gi"))], policy(rule(step()))
    entry = planned(snapshot([use(5, 2 * Gi)]), tenants, under).entries[0]
    daemon._actions._ended.append(Outcome(entry=entry, result=Result.WITHDRAWN, at=clock.now(), number=1))
    now = clock.now()
    daemon._step(now)
    assert daemon._sampler.wake_s(now) - now.boottime_s < 2.0, "it is not left to the tick in ten minutes"
    assert repeats(daemon, reading, 2.0) is None


def test_a_reason_not_to_enforce_ends_the_quiet(daemon: Daemon, tmp_path: Path) -> None:
    """The reasons are in the metrics and on the page, also the second one, which decides nothing."""
    daemon._policy = replace(daemon._policy, mode="enforce")
    assert repeats(daemon, DriverReading(driver="0", interface="NVML"), 0.0) is False
    assert repeats(daemon, DriverReading(driver="0", interface="NVML"), 1.0) is True
    (tmp_path / "stop").touch()
    assert repeats(daemon, DriverReading(driver="0", interface="NVML"), 2.0) is False


def test_sigterm_ends_a_daemon_that_would_reexec_in_the_same_step(daemon: Daemon) -> None:
    """It would come back under the same PID, and be killed once the kubelet's patience is over."""
    daemon._last_beat_s = clock.now().boottime_s  # the next beat would end the maintenance
    daemon._sampler.maintenance, daemon._sampler._left_open = "a MIG change", ("/dev/nvidia0",)
    daemon.stop()
    daemon._step(clock.now())
    assert (daemon._ending.code, daemon._ending.reexecutes) == (0, False)


def test_an_expensive_pulse_is_logged_once(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """It is measured again whenever enforcement is switched off and on, which is not worth a line each time."""
    expensive, cheap = ReadCost(seconds=0.003, is_expensive=True), ReadCost(seconds=0.0001, is_expensive=False)
    configure()
    for cost in (None, cheap, expensive, None, expensive, None, cheap, cheap):
        daemon._sinks.note_pulse(cost)
        assert daemon._sinks._endpoints.health.status.pulse_s == (None if cost is None else cost.seconds)
    messages = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert [text.partition(":")[0].partition(" takes")[0] for text in messages] == [
        "the pulse pauses, since reading the memory counters",
        "the pulse is on again",
    ]


def test_looks_that_are_spent_are_logged(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """The card is named, with the key of the policy that decides it; with nothing spent there is no line."""
    configure()
    for cards in ((), ("GPU-a", "GPU-b")):
        daemon._sinks.note_spent_looks(cards, replace(daemon._policy, pulse=Pulse()))
    (line,) = capsys.readouterr().err.splitlines()
    assert "GPU-a, GPU-b" in json.loads(line)["message"]
    assert "[pulse] looks, 60 per 1m" in json.loads(line)["message"]


def test_a_stop_wakes_the_loop(daemon: Daemon) -> None:
    """Another thread can end a daemon that would sleep until its next reading, minutes from now."""
    daemon._bell.silence()
    stopping = threading.Thread(target=daemon.stop)
    stopping.start()
    stopping.join()
    assert select.select([daemon._bell.fileno()], [], [], 0)[0]
