"""A node for tests: real processes in real cgroups, the stub of NVML, a pod list, and the real command."""

from tests.rig.command import Daemon, gpu_watchdog
from tests.rig.node import Container, Node, Pod, Tenant, node

__all__ = ["Container", "Daemon", "Node", "Pod", "Tenant", "gpu_watchdog", "node"]
