"""Run as a program: what the driver reads in a process of its own, as JSON. The other variants of the stub need one."""

import json
import sys
from dataclasses import asdict

import pynvml

from watchdog.node.nvml import NvmlDriver
from watchdog.node.nvml_calls import NvmlCallError, ask


def bare_lists() -> object:
    """What pynvml's own wrapper makes of the first card's compute list, or the name of what it raises."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        return [process.pid for process in ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)]
    except NvmlCallError as error:
        return type(error.__context__).__name__, error.code
    finally:
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    driver = NvmlDriver()
    driver.read()
    reading = driver.read()
    driver.close()
    bare = None if reading.blind else bare_lists()
    json.dump({**asdict(reading), "bare": bare}, sys.stdout, default=sorted)
