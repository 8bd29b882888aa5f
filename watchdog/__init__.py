"""gpu-memory-watchdog: enforces declared GPU memory on Kubernetes."""

__version__ = "0.1.0"
