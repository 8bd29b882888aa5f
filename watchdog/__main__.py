"""Makes `python -m watchdog` the same as `gpu-watchdog`."""

from watchdog.cli.main import main

if __name__ == "__main__":
    main()
