"""Whatever call of a driver fails, and however, is a gap with its reason."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pynvml

from tests.node.nvml_world import NvmlWorld, card, ghost, mig_card, nvml_world
from tests.stub import GIB, LISTS, StubReturn
from watchdog.core.model import Gap, GapReason

_NAMES: Final = (
    *("InitWithFlags", "SystemGetDriverVersion", "DeviceGetCount_v2", "DeviceGetHandleByIndex_v2", "DeviceGetUUID"),
    *("DeviceGetName", "DeviceGetMemoryInfo_v2", "DeviceGetMigMode", "DeviceGetMaxMigDeviceCount"),
    *("DeviceGetMigDeviceHandleByIndex", "DeviceGetGpuInstanceId", "DeviceGetComputeInstanceId"),
)
_CODES: Final = (
    *(pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NO_PERMISSION),
    *(pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
    *(pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED),
)
_BY_THE_DRIVER: Final = {
    *(GapReason.NVML_UNAVAILABLE, GapReason.GPU_LOST, GapReason.GPU_ERROR, GapReason.PROCESSES),
    *(GapReason.CONTRADICTION, GapReason.MIG, GapReason.MEMORY, GapReason.PROCESS_MEMORY),
}
_CALLS: Final = (*LISTS, *(f"nvml{name}" for name in _NAMES))


def _gaps(world: NvmlWorld) -> Iterator[Gap]:
    """What a driver can't learn of a node, with each call failing in each of some ways, before and after a success."""
    cards = (card("a", ghost(1)), mig_card("b", ghost(2, gi=1, ci=0)))
    for call in _CALLS:
        for code in _CODES:
            driver = world.driver()
            for returns in ((), (StubReturn(call=call, code=code),)):
                world.show(*cards, returns=returns)
                yield from driver.read().gaps
            driver.close()
    world.show(
        card("d", ghost(4, None)),
        card("a", ghost(1)),
        card("a", ghost(2)),
        card("c", ghost(3, 900 * GIB)),
        mig_card("b", ghost(2, gi=9)),
    )
    yield from world.driver().read().gaps


def test_every_failure_of_the_driver_is_a_gap(tmp_path: Path) -> None:
    """Every reason for a gap that a driver can give is given, and each gap says what is missing and why."""
    with nvml_world(tmp_path) as world:
        gaps = list(_gaps(world))
    assert {gap.reason for gap in gaps} == _BY_THE_DRIVER
    assert all(gap.what and str(gap.problem) for gap in gaps)
    assert len({(gap.what, str(gap.problem)) for gap in gaps}) > 20
