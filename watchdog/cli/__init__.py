"""The command line: options, exit codes, and what a shell completes."""

from watchdog.cli.group import main

__all__ = ["main"]
