"""`gpu-watchdog run`: opens what the daemon needs, and runs it."""

import sys

from watchdog import clock
from watchdog.cli.check import refusal
from watchdog.config.load import PolicyError
from watchdog.config.watch import PolicyFile
from watchdog.daemon.main import Daemon
from watchdog.daemon.start import open_processes
from watchdog.node.nvml import NvmlDriver
from watchdog.options import ListenError, Options


def run_daemon(options: Options, policy_file: PolicyFile | None = None) -> int:
    """Run the daemon on this node's GPUs; the exit code. `policy_file` has other times than the usual ones."""
    policy_file = policy_file or PolicyFile(options.policy)
    try:
        policy = policy_file.begin(clock.now())
    except PolicyError as error:
        sys.stderr.write(f"{refusal(error, options.policy)}\n")
        return 1
    environment, scanner = open_processes(options)
    try:
        daemon = Daemon(options, (policy_file, policy), NvmlDriver(), environment, scanner)
    except ListenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return daemon.run()
