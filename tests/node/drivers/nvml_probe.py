"""Run as a program: what the driver reads in a process of its own, as JSON. The other variants of the stub need one."""

import json
import sys
from dataclasses import asdict, replace

from watchdog.node.drivers.nvml import NvmlDriver

if __name__ == "__main__":
    driver = NvmlDriver()
    driver.read()
    reading = driver.read()
    utilization = [asdict(each) for each in driver.utilization()]
    driver.close()
    json.dump(asdict(replace(reading, answers={})) | {"utilization": utilization}, sys.stdout, default=sorted)
