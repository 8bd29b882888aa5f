"""The command line: options, exit codes, what a shell completes, and each command."""
