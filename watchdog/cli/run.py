"""`gpu-watchdog run`: opens what the daemon needs, and runs it."""

import sys
from pathlib import Path

from watchdog import clock
from watchdog.config.load import PolicyError, load_in_child, refusal
from watchdog.config.watch import PolicyFile
from watchdog.core.policy import Policy
from watchdog.options import ListenError, Options


def run_daemon(options: Options, policy_file: PolicyFile | None = None) -> int:
    """Run the daemon on this node's GPUs; the exit code. `policy_file`: one with timing other than the default."""
    policy_file = policy_file or PolicyFile(options.policy)
    try:
        policy = policy_file.begin(clock.now(), _load)
    except PolicyError as error:
        sys.stderr.write(f"{refusal(error, options.policy)}\n")
        return 1
    from watchdog.daemon.enforcement import open_processes
    from watchdog.daemon.main import Daemon
    from watchdog.export.log import capture_libraries, configure
    from watchdog.node.drivers.opening import open_driver

    configure()
    capture_libraries()
    environment, scanner = open_processes(options)
    try:
        daemon = Daemon(options, (policy_file, policy), open_driver(options), environment, scanner)
    except ListenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return daemon.run()


def _load(path: Path) -> Policy:
    wait = load_in_child(path)
    import watchdog.daemon.main  # noqa: F401 - while the child works, which takes less time

    return wait()
