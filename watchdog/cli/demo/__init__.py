"""`gpu-watchdog demo`: the daemon on a simulated GPU shared by three pods, one of which is really killed."""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final, TextIO

from watchdog import clock
from watchdog.cli.demo.pods import CARD, NODE, PODS, POLICY, pod_list
from watchdog.cli.demo.screen import OutputError, Screen, screen_for
from watchdog.cli.demo.sim import RunningPod, SimDriver, SimNode, SimProcfs
from watchdog.cli.demo.story import Story
from watchdog.cli.program import program_name
from watchdog.config.watch import PolicyFile
from watchdog.daemon.enforcement import Environment
from watchdog.daemon.main import Daemon
from watchdog.export.log import configure
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.node.process import pidfd_supported
from watchdog.node.process_table import ProcessTable
from watchdog.node.scan import Scanner
from watchdog.options import Options
from watchdog.report.sentences.suspension import REMEDIES

_FRAME_S: Final = 0.1
_NEXT: Final = (
    "`{command} scan` shows what uses the GPUs of this machine and what would follow; it never acts. "
    "docs/five-minutes.md explains how to run the watchdog on a node: it only observes until you tell it to enforce."
)
_KEPT: Final = (
    "`{command} history --journal {kept}` lists what happened, `explain training/finetune --journal {kept}` says why, "
    "and `replay --policy POLICY --journal {kept}` what another policy would have done."
)


def run_demo(out: TextIO, *, keep: Path | None = None) -> int:
    """Run the demo; the exit code. `keep` is a folder in which its journal is left.

    Call it on the main thread of a separate process: it handles the signals that end a program, and adopts what its
    children leave behind. OutputError if `out` can't be written; its processes are ended then too.
    """
    problem = _find_problem()
    if problem:
        return _fail(problem)
    try:
        return _run(out, _EndSignals(), keep)
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


class _EndSignals:
    """Notes SIGINT, SIGTERM and SIGHUP until the daemon handles them."""

    def __init__(self) -> None:
        # A program started by nohup(1) or in a shell's background keeps ignoring what it ignores.
        ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self.heeded = tuple(number for number in ending if signal.getsignal(number) is not signal.SIG_IGN)
        self.have_come = False
        for number in self.heeded:
            signal.signal(number, lambda _number, _frame: self._note())

    def _note(self) -> None:
        self.have_come = True


def _run(out: TextIO, signals: _EndSignals, keep: Path | None) -> int:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):  # the journal of a daemon must not get the demo's actions
            return _fail(f"{keep} is not empty: name a new folder for --keep")
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-demo-") as folder, SimNode() as node:
        running = [node.start(pod) for pod in PODS]
        pods = Path(folder, "pods.json")
        pods.write_text(json.dumps(pod_list(PODS)), encoding="utf-8")
        journal = (keep or Path(folder)) / "journal.db"
        options = Options(node=NODE, policy=POLICY, journal=journal, pods=pods, serves=False)
        code = _observe(out, options, running, signals, is_kept=keep is not None)
    return _fail("the demo was stopped; all of its processes have been ended") if code is None else code


def _observe(
    out: TextIO, options: Options, running: list[RunningPod], signals: _EndSignals, *, is_kept: bool
) -> int | None:
    """Run the daemon on these pods and show what it does; the exit code of the demo, or None if it was stopped."""
    log = io.StringIO()
    configure(log)
    file = PolicyFile(options.policy)
    policy = file.begin(clock.now())
    # A daemon without a journal would not act, and go on trying: the demo has a reason to show instead.
    Journal.open(options.journal, policy.journal, NODE, REMEDIES).close()
    story = Story(policy, running, clock.now())
    driver, scanner = _simulate(running)
    # Only children of this process are ever signalled, as its /proc shows no others. That needs neither the host's PID
    # namespace nor a pidfd: none of them is reaped before the demo ends, so their PIDs stay theirs.
    environment = Environment(in_host_pid_namespace=True, pidfd_missing=None)
    daemon = Daemon(options, (file, policy), driver, environment, scanner, further=(story,))
    screen = screen_for(out)
    with contextlib.closing(screen):
        drawing = _Drawing(screen, story, daemon, signals)
        drawing.start()
        code = daemon.run(signals.heeded)
        drawing.join()
        if drawing.error is not None:
            raise drawing.error
        if code == 0 and not story.is_over:
            return None
        return _finish(screen, story, log.getvalue(), options.journal if is_kept else None)


def _simulate(running: list[RunningPod]) -> tuple[SimDriver, Scanner]:
    """The driver and the scanner of the simulated node."""
    driver, procfs = SimDriver(CARD), SimProcfs()
    for pod in running:
        procfs.admit(pod.session, pod.spec.cgroup)
        for process, key in zip(pod.spec.processes, pod.keys, strict=True):
            driver.allocate(key, process.curve)
    return driver, Scanner(ProcessTable(procfs, pidfds=pidfd_supported() is None))


class _Drawing(threading.Thread):
    """Shows the story on its own, so that no terminal holds up the daemon, and ends the daemon with it."""

    def __init__(self, screen: Screen, story: Story, daemon: Daemon, signals: _EndSignals) -> None:
        super().__init__(name="screen", daemon=True)
        self.error: OutputError | None = None
        self._screen = screen
        self._story = story
        self._daemon = daemon
        self._signals = signals

    def run(self) -> None:
        """Draw until the story is over, the daemon has ended, or the screen's reader has gone."""
        try:
            while not (self._story.is_over or self._signals.have_come):
                view = self._story.view
                if view is not None:
                    self._screen.show(view)
                if self._story.has_ended.wait(_FRAME_S):
                    return
        except OutputError as error:
            self.error = error
        finally:
            self._daemon.stop()


def _finish(screen: Screen, story: Story, log: str, kept: Path | None) -> int:
    """Show how it ended, the Events for the owner of the killed pod, and what can be done with the `kept` journal."""
    is_as_expected = story.end()
    if (view := story.view) is not None:
        screen.finish(view)
    for event in story.victim_events:
        screen.say(f"Event {event.reason} on pod {event.namespace}/{event.pod}, for its owner:", event.note)
    if not is_as_expected:
        errors = [line["message"] for line in map(json.loads, log.splitlines()) if line["level"] == "error"]
        return _fail("\n".join((*errors, "the demo did not end as expected; what happened is shown above")))
    screen.say("Next:", (_NEXT if kept is None else _KEPT).format(command=program_name(), kept=kept))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1
