"""`gpu-watchdog demo`: a simulated GPU shared by three pods, one of which is really killed."""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final, TextIO

from watchdog.cli.client import program_name
from watchdog.cli.demo.daemon import DemoDaemon, FastClock
from watchdog.cli.demo.screen import OutputError, Screen, screen_for
from watchdog.cli.demo.sim import SimNode
from watchdog.clock import Waiter
from watchdog.journal.errors import JournalError

_FRAME_S: Final = 0.1
_NEXT: Final = (
    "`{command} scan` shows what uses the GPUs of this machine and what would follow; it never acts. "
    "docs/five-minutes.md explains how to run the watchdog on a node: it only observes until you tell it to enforce."
)
_KEPT: Final = (
    "`{command} history --journal {kept}` lists what happened, `explain training/finetune --journal {kept}` says why, "
    "and `replay --policy POLICY --journal {kept}` what another policy would have done."
)


def run_demo(out: TextIO, *, speed: float = 1.0, keep: Path | None = None) -> int:
    """Run the demo; the exit code. `speed` makes its clock faster, `keep` is a folder in which its journal is left.

    Call it on the main thread of a separate process: it handles the signals that end a program, and adopts what its
    children leave behind. OutputError if `out` can't be written; its processes are ended then too.
    """
    problem = _find_problem()
    if problem:
        return _fail(problem)
    try:
        with contextlib.closing(_EndSignals()) as signals:
            return _run(out, FastClock(speed), signals, keep)
    except OutputError:
        raise
    except (OSError, JournalError) as error:
        return _fail(f"the demo can't run here: {error}")


def _find_problem() -> str | None:
    """Why the demo can't run on this machine, with the remedy."""
    if not sys.executable:
        return "the demo can't find its Python interpreter; run it from the virtual environment of `make setup`"
    try:
        own = os.readlink("/proc/self")  # noqa: PTH115 - a path object resolves nothing here
    except OSError:
        own = ""
    if own != str(os.getpid()):
        return "the demo needs the /proc of its own PID namespace; run it where ps shows its own processes"
    return None


def _run(out: TextIO, clock: FastClock, signals: "_EndSignals", keep: Path | None) -> int:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):  # the journal of a daemon must not get the demo's actions
            return _fail(f"{keep} is not empty: name a new folder for --keep")
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-demo-") as folder, SimNode() as node:
        journal = (keep or Path(folder)) / "journal.db"
        daemon, screen = DemoDaemon(Path(folder), journal, node, clock), screen_for(out)
        with contextlib.closing(daemon), contextlib.closing(screen):
            _show(daemon, screen, clock, signals)
            if not signals.has_ended:
                return _finish(daemon, screen, journal if keep is not None else None)
    return _fail("the demo was stopped; all of its processes have been ended")


def _show(daemon: DemoDaemon, screen: Screen, clock: FastClock, signals: "_EndSignals") -> None:
    next_frame_s = 0.0
    while not daemon.is_over and not signals.has_ended:
        daemon.advance()
        left_s = next_frame_s - clock.elapsed_s() / clock.speed
        if left_s <= 0:
            next_frame_s = clock.elapsed_s() / clock.speed + _FRAME_S
            screen.show(daemon.view())
            left_s = _FRAME_S
        signals.wait(min(max(daemon.next_wake_s / clock.speed, 0.0), left_s))


def _finish(daemon: DemoDaemon, screen: Screen, kept: Path | None) -> int:
    """Show how it ended, the Events for the owner of the killed pod, and what can be done with the `kept` journal."""
    is_as_expected = daemon.end()
    screen.finish(daemon.view())
    for event in daemon.victim_events:
        screen.say(f"Event {event.reason} on pod {event.namespace}/{event.pod}, for its owner:", event.note)
    if not is_as_expected:
        return _fail("the demo did not end as expected; what happened is shown above")
    screen.say("Next:", (_NEXT if kept is None else _KEPT).format(command=program_name(), kept=kept))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1


class _EndSignals:
    """Makes SIGINT, SIGTERM and SIGHUP end a `wait`."""

    def __init__(self) -> None:
        self.has_ended = False
        self._waiter = Waiter()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A program started by nohup(1) or in a shell's background keeps ignoring what it ignores.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._waiter.on(number, self._end)

    def wait(self, seconds: float) -> None:
        """Sleep for at most this long, less if a signal arrives."""
        if not self.has_ended:
            self._waiter.wait(seconds)

    def close(self) -> None:
        """Close the waiter."""
        self._waiter.close()

    def _end(self) -> None:
        self.has_ended = True
