"""A process with the daemon in it and nothing else, its passes one right after the other: `python -m bench.unpaced`."""


import sys
sys.modules["rich"]=None
from pathlib import Path

from watchdog.daemon import Daemon
from watchdog.options import Options


def main(policy: str, procfs: str, pods: str, journal: str, listen: str) -> int:
    """Run until a signal comes."""
    from dataclasses import replace

    from watchdog.config.load import load_policy
    from watchdog.node.nvml import NvmlDriver
    from watchdog.start import open_processes

    options = Options(
        node="bench",
        policy=Path(policy),
        procfs=Path(procfs),
        pods=Path(pods),
        journal=Path(journal),
        listen=listen,
    )
    footing, scanner = open_processes(options)
    return Daemon(options, replace(load_policy(options.policy), interval_s=0.0), NvmlDriver(), footing, scanner).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
