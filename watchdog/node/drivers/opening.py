"""The door to the driver: the commands get theirs here."""

from watchdog.node.drivers.nvml import NvmlDriver
from watchdog.node.drivers.protocol import Driver
from watchdog.options import Options


def open_driver(options: Options) -> Driver:
    """The driver of this node's GPUs; nothing is opened before its first reading."""
    return NvmlDriver()
