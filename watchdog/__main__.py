"""Makes `python -m watchdog` the same as `gpu-watchdog`."""

from watchdog.cli.group import main

if __name__ == "__main__":
    main()
