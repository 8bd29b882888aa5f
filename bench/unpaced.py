"""The daemon with its passes one right after the other. `python -m bench.unpaced` has it in a process of its own."""

import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    # structlog loads it where it finds it. It comes with a development tool, and no installation of the daemon has it.
    sys.modules["rich"] = None  # type: ignore[assignment]

from watchdog import clock
from watchdog.cli import main as cli
from watchdog.config.watch import PolicyFile
from watchdog.daemon.main import Daemon
from watchdog.daemon.start import open_processes
from watchdog.node.nvml import NvmlDriver
from watchdog.options import Options


def unpaced(options: Options) -> Daemon:
    """A daemon that begins each cycle as soon as the last one has ended."""
    policy_file = PolicyFile(options.policy)
    policy = replace(policy_file.begin(clock.now()), interval_s=0.0)
    environment, scanner = open_processes(options)
    return Daemon(options, (policy_file, policy), NvmlDriver(), environment, scanner)


def main(procfs: str, pods: str, policy: str, journal: str, listen: str) -> int:
    """Run until a signal comes."""
    options = Options(
        node="bench",
        listen=listen,
        procfs=Path(procfs),
        pods=Path(pods),
        policy=Path(policy),
        journal=Path(journal),
    )
    return unpaced(options).run()


if __name__ == "__main__":
    assert cli.main  # the real command has it in memory too
    sys.exit(main(*sys.argv[1:]))
