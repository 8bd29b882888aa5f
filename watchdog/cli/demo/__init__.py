"""`gpu-watchdog demo`: a shared card with three tenants, in the terminal, one of whom is really killed."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Final, TextIO

from watchdog.cli.client import called
from watchdog.cli.demo.screen import Screen, screen_for
from watchdog.cli.demo.stage import Ending, Stage, StoryClock
from watchdog.cli.demo.tenants import SimNode
from watchdog.report.explanation import explanation

_FRAME_S: Final = 0.1
_NEXT: Final = (
    "`{command} scan` shows what uses the GPUs of this machine and what would follow, and never acts. "
    "README.md says how to let it watch a node: it only observes until you tell it to enforce."
)


def run_demo(out: TextIO, *, speed: float = 1.0, contact: str = "") -> int:
    """Show the demo; the exit code. `speed` makes its clock run faster, `contact` is whom a tenant should ask.

    To be called on the main thread of a process of its own: it takes the signals that end a program, and adopts what
    its children leave behind. BrokenPipeError where whoever read it has gone; its processes are ended then too.
    """
    problem = _find_problem()
    if problem:
        return _fail(problem)
    try:
        with Ending() as ending:
            return _perform(out, StoryClock(speed), ending, contact)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(f"the demo can't run here: {error}")


def _find_problem() -> str | None:
    """What stands in the way of it on this machine, with the remedy."""
    if not sys.executable:
        return "the demo needs to know its Python; run it from the virtual environment that `make setup` makes"
    try:
        own = os.readlink("/proc/self")  # noqa: PTH115 - a path object resolves nothing here
    except OSError:
        own = ""
    if own != str(os.getpid()):
        return "the demo needs the /proc of its own PID namespace; start it where ps shows its own processes"
    return None


def _perform(out: TextIO, clock: StoryClock, ending: Ending, contact: str) -> int:
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-demo-") as folder, SimNode() as company:
        stage = Stage(Path(folder), company, clock, contact)
        screen = screen_for(out)
        with contextlib.closing(stage), contextlib.closing(screen):
            _play(stage, screen, clock, ending)
            if not ending.is_wanted:
                return _end(stage, screen)
    return _fail("the demo was stopped; all of its processes have been ended")


def _play(stage: Stage, screen: Screen, clock: StoryClock, ending: Ending) -> None:
    next_frame_s = 0.0
    while not stage.is_over and not ending.is_wanted:
        stage.turn()
        left_s = next_frame_s - clock.elapsed_s() / clock.speed
        if left_s <= 0:
            next_frame_s = clock.elapsed_s() / clock.speed + _FRAME_S
            screen.show(stage.scene())
            left_s = _FRAME_S
        ending.wait(min(max(stage.next_wake_s / clock.speed, 0.0), left_s))


def _end(stage: Stage, screen: Screen) -> int:
    """Show how it ended, and tell the victim's owner."""
    is_well = stage.end()
    screen.finish(stage.scene())
    outcome = stage.killing
    if outcome is not None:
        title = f"What the owner of {outcome.entry.assessment.pod.title} can read:"
        screen.say(title, explanation(outcome, stage.policy))
    if not is_well:
        return _fail("the demo did not come to its proper end; what happened stands above")
    screen.say("Next:", _NEXT.format(command=called()))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1
