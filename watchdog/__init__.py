"""gpu-memory-watchdog: gives declared GPU memory teeth on Kubernetes."""

__version__ = "0.1.0"
