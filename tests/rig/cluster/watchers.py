"""Many daemons on one API server through an outage of it: `python -m tests.rig.cluster.watchers --watchers 1000`.

Each watcher is a pod informer of a node of its own, with its own `Api`, so with its own connection; they run in a few
processes. Requests are counted at the server, from its audit log.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.node.support import REPOSITORY
from tests.rig.cluster.accounts import with_rights
from tests.rig.cluster.audit import Request
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.informer_rig import OBSERVES
from tests.rig.cluster.real_pods import wait_until
from tools import programs
from watchdog import clock
from watchdog.clock import Bell
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer

_EACH: Final = 125  # watchers a process: each is a thread, and threads of one process share one Python
_LIMIT_S: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU seconds so far and resident MiB of the API server."""

    cpu_s: float
    rss_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an outage led to. Times are seconds from the moment at which the server was ready again."""

    watchers: int
    requests: Counter[tuple[str, int]]
    peak_per_s: dict[str, int]
    all_watching_s: float
    all_synced_s: float
    during: int
    usage: dict[str, Usage]

    def show(self) -> None:
        """Print it."""
        print(f"{self.watchers} watchers; {self.during} requests reached the server in the outage")
        peaks = ", ".join(f"{count} {verb}/s" for verb, count in self.peak_per_s.items())
        print(f"after it at most {peaks}; all watch after {self.all_watching_s:.1f} s")
        print(f"and are synced after {self.all_synced_s:.1f} s; in all:")
        for (verb, code), count in sorted(self.requests.items()):
            print(f"  {verb} {code}: {count}")
        for name, usage in self.usage.items():
            print(f"  API server {name}: {usage.cpu_s:.1f} s of CPU so far, {usage.rss_mib:.0f} MiB")


class Followers:
    """Processes of watchers; each prints, on request, how many of its informers have no problem since a moment."""

    def __init__(self, config: Path, watchers: int) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        for first in range(0, watchers, _EACH):
            names = [f"simulated-{number}" for number in range(first, min(first + _EACH, watchers))]
            command = [sys.executable, "-m", "tests.rig.cluster.watchers", "--follow", str(config), *names]
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
            )

    def well(self, since_s: float = 0.0) -> int:
        """How many are without a problem and have heard from the server since a moment of CLOCK_BOOTTIME."""
        for process in self._processes:
            _input(process).write(f"{since_s}\n")
            _input(process).flush()
        return sum(int(_output(process).readline()) for process in self._processes)

    def wait_until_well(self, count: int, since_s: float = 0.0) -> None:
        """Wait until there are this many."""
        wait_until(lambda: self.well(since_s) >= count, f"{count} watchers follow", _LIMIT_S, pause_s=0.25)

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
            _input(process).close()
            _output(process).close()


def _input(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def follow(config: Path, nodes: Sequence[str]) -> None:
    """One of the following processes: runs until its input ends."""
    bell = Bell()
    informers = [PodInformer(Api(config), node, bell) for node in nodes]
    for informer in informers:
        informer.start()
    for line in sys.stdin:
        since_s = float(line)
        well = [informer for informer in informers if informer.view.problem is None and _heard(informer, since_s)]
        print(len(well), flush=True)


def _heard(informer: PodInformer, since_s: float) -> bool:
    synced = informer.read(clock.now()).synced
    return synced is not None and synced.boottime_s >= since_s


@contextmanager
def following(plane: ControlPlane, watchers: int) -> Iterator[Followers]:
    """Watchers, all following."""
    with with_rights(plane, OBSERVES) as account:
        made = Followers(account.kubeconfig, watchers)
        try:
            made.wait_until_well(watchers)
            wait_for_watches(plane, watchers)
            yield made
        finally:
            made.end()


def wait_for_watches(plane: ControlPlane, count: int, since_s: float = 0.0) -> float:
    """Wait until this many watches are open at the server; gives the moment at which the last one was answered."""
    answered_s: list[float] = []

    def are_open() -> bool:
        watches = (each for each in asked(plane, since_s) if each.verb == "watch" and each.open and each.code == 200)
        answered_s[:] = [each.answered_s for each in watches if each.answered_s]
        return len(answered_s) >= count

    wait_until(are_open, lambda: f"{len(answered_s)} of {count} watches are open", _LIMIT_S, pause_s=0.5)
    return max(answered_s)


def asked(plane: ControlPlane, since_s: float) -> tuple[Request, ...]:
    """What the watchers asked."""
    return plane.requests(user_agent="gpu-memory-watchdog/", since=since_s)


def through_an_outage(plane: ControlPlane, watchers: int, outage_s: float, settle_s: float) -> Result:
    """Kill the API server under its watchers, start it again after a while, and see what comes."""
    usage = {}
    with following(plane, watchers) as followers:
        usage["before, with all watchers"] = usage_of(plane)
        down_s, down_boottime_s = time.time(), clock.now().boottime_s
        plane.kill_apiserver()
        time.sleep(outage_s)
        plane.start_apiserver()
        up_s = time.time()
        last_s = wait_for_watches(plane, watchers, down_s)
        followers.wait_until_well(watchers, down_boottime_s)
        synced_s = time.time()
        usage["once all watch again"] = usage_of(plane)
        time.sleep(settle_s)
        usage[f"{settle_s:.0f} s later"] = usage_of(plane)
        seen = asked(plane, down_s)
        return Result(
            watchers=watchers,
            requests=Counter((one.verb, one.code) for one in seen),
            peak_per_s={verb: peak(seen, verb) for verb in ("list", "watch")},
            all_watching_s=last_s - up_s,
            all_synced_s=synced_s - up_s,
            during=sum(1 for one in seen if one.received_s < up_s),
            usage=usage,
        )


def peak(seen: Sequence[Request], verb: str) -> int:
    """The most requests of a verb in a second."""
    return max(Counter(int(one.received_s) for one in seen if one.verb == verb).values(), default=0)


def usage_of(plane: ControlPlane) -> Usage:
    """Of the API server's process."""
    stat = Path(f"/proc/{plane.apiserver.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = int(stat[11]) + int(stat[12])
    pages = int(Path(f"/proc/{plane.apiserver.pid}/statm").read_text(encoding="ascii").split()[1])
    return Usage(cpu_s=ticks / os.sysconf("SC_CLK_TCK"), rss_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def main() -> None:
    """Run it by hand, on a control plane of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--outage", type=float, default=30.0, help="seconds")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds")
    parser.add_argument("--follow", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.follow:
        follow(Path(arguments.follow[0]), arguments.follow[1:])
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        plane = stack.enter_context(ControlPlane(Path(folder) / "plane", programs=programs.programs(), scheduler=False))
        print(f"before any watcher: {usage_of(plane)}")
        through_an_outage(plane, arguments.watchers, arguments.outage, arguments.settle).show()


if __name__ == "__main__":
    main()
