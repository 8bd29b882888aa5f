"""Each return code of NVML, from each call in use: no exception, a gap that names it, the other GPUs go on."""

from dataclasses import replace
from typing import Final

import pynvml
import pytest

from tests.node.drivers.nvml_world import PID, NvmlWorld, card, ghost, mig_card
from tests.stub import GIB, LISTS, StubReturn
from watchdog.core.model import GapReason, Use
from watchdog.node.drivers.protocol import DriverReading

CODES: Final = [*sorted({value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}), 12345]
LACKING: Final = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
_, GRAPHICS, CLIENTS = LISTS

# The gap that one process of the node below always is.
UNTOLD: Final = GapReason.PROCESS_MEMORY
# Where a code is an answer and not a failure, so that no gap is due: from the first reading on.
ANSWERS: Final[dict[str, set[int]]] = {
    GRAPHICS: LACKING,
    CLIENTS: LACKING,
    "nvmlDeviceGetMemoryInfo_v2": LACKING | {pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
    "nvmlDeviceGetMigMode": LACKING,
    "nvmlDeviceGetMigDeviceHandleByIndex": {pynvml.NVML_ERROR_NOT_FOUND},
}
# Calls about one card (GPU-a or the card in MIG mode GPU-m), and the devices that the failure may touch.
CARD_CALLS: Final = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMemoryInfo_v2",
    *LISTS,
)
MIG_CALLS: Final = (
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)
NODE: Final = (
    card("a", ghost(1, GIB), ghost(2, None)),
    card("b", ghost(3, 2 * GIB)),
    mig_card("m", ghost(4, GIB, gi=1, ci=0), ghost(5, GIB, gi=2, ci=0)),
)


def untouched(reading: DriverReading, *touched: str) -> set[Use]:
    """The uses on all other rows."""
    return {use for use in reading.uses if use.gpu not in touched}


def check(world: NvmlWorld, call: str, code: int, broken: tuple[str, ...], *, fresh: bool) -> None:
    """Read a node on which a call fails for some devices, from the start or after a good reading."""
    world.show(*NODE)
    driver = world.driver()
    healthy = driver.read()
    if fresh:
        driver = world.driver()
    world.show(*NODE, returns=tuple(StubReturn(call=call, code=code, gpu=gpu) for gpu in broken))
    world.forget_calls()
    reading = driver.read()
    about = f"{call} gives {code}, {'from the start' if fresh else 'after a good reading'}: {reading}"
    assert not reading.blind, about
    assert untouched(reading, *broken) == untouched(healthy, *broken), about
    assert {gpu.uuid for gpu in reading.gpus} >= {gpu.uuid for gpu in healthy.gpus} - set(broken), about
    listed = {gpu.uuid for gpu in reading.gpus if gpu.listed}
    for use in reading.uses:
        is_same = use in healthy.uses or (call == CLIENTS and replace(use, client=False) in healthy.uses)
        assert use.used is None or (is_same and use.gpu in listed), about
    if code not in ANSWERS.get(call, set()) and world.calls(call):  # a name, once known, is not asked for again
        names = (*broken, "GPU at index 0")
        assert any(
            call.removesuffix("_v2") in str(gap.problem) and gap.what.startswith(names) for gap in reading.gaps
        ), about
    driver.close()


@pytest.mark.parametrize("fresh", [True, False], ids=["from the start", "after a good reading"])
@pytest.mark.parametrize("call", CARD_CALLS)
def test_each_code_of_each_call_about_a_card(world: NvmlWorld, call: str, fresh: bool) -> None:
    """Law 3: unknown input never leads to enforcement. What one card fails to say is a gap, and only its own."""
    kept = {GRAPHICS, CLIENTS}  # lists that have answered do not become "not supported" without a gap
    for code in CODES:
        if call in kept and not fresh and code in LACKING:
            continue
        check(world, call, code, ("GPU-a",), fresh=fresh)


@pytest.mark.parametrize("fresh", [True, False], ids=["from the start", "after a good reading"])
@pytest.mark.parametrize("call", MIG_CALLS)
def test_each_code_of_each_call_about_instances(world: NvmlWorld, call: str, fresh: bool) -> None:
    """Law 3: unknown input never leads to enforcement. A card in MIG mode in trouble leaves the others alone."""
    for code in CODES:
        check(world, call, code, ("GPU-m", "MIG-m1", "MIG-m2"), fresh=fresh)


@pytest.mark.parametrize("code", CODES)
def test_each_code_of_a_new_handle(world: NvmlWorld, code: int) -> None:
    """A device that had an error gets its new handle by UUID; that can fail too."""
    driver = world.driver(layout_every_s=3600.0)
    healthy = world.read(*NODE)
    world.show(*NODE, returns=(StubReturn(call="*", code=code, gpu="GPU-a"),))
    for _ in range(2):
        reading = driver.read()
        assert not reading.blind
        assert untouched(reading, "GPU-a") == untouched(healthy, "GPU-a")
        assert {use for use in reading.uses if use.gpu == "GPU-a"} == {
            Use(gpu="GPU-a", pid=PID + number, used=None, client=None) for number in (1, 2)
        }
        assert [gpu.up for gpu in reading.gpus if gpu.uuid == "GPU-a"] == [False]
        assert any(gap.gpu == "GPU-a" for gap in reading.gaps)
    assert "nvmlDeviceGetHandleByUUID" in "".join(str(gap.problem) for gap in reading.gaps)


@pytest.mark.parametrize("code", CODES)
def test_each_code_of_a_profile(world: NvmlWorld, code: int) -> None:
    """A MIG device of which neither name nor attributes can be read has no profile, and its processes are known."""
    calls = ("nvmlDeviceGetName", "nvmlDeviceGetAttributes_v2")
    reading = world.read(*NODE, returns=tuple(StubReturn(call=call, code=code, gpu="MIG-m1") for call in calls))
    assert {gpu.uuid: gpu.profile for gpu in reading.gpus} == {
        "GPU-a": None,
        "GPU-b": None,
        "MIG-m1": None,
        "MIG-m2": "1g.5gb",
    }
    assert len([use for use in reading.uses if use.used is not None]) == 4
    assert {gap.gpu for gap in reading.gaps if gap.reason is not UNTOLD} == {"GPU-m"}
    for call in calls:
        assert any(call.removesuffix("_v2") in str(gap.problem) for gap in reading.gaps)


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
@pytest.mark.parametrize("code", CODES)
def test_each_code_of_each_call_about_the_node(world: NvmlWorld, call: str, code: int) -> None:
    """A start without the number of GPUs is blind: nothing is known, and one gap says why and what to do."""
    reading = world.read(*NODE, returns=(StubReturn(call=call, code=code),))
    assert (reading.blind, reading.gpus, reading.uses) == (True, (), ())
    assert [gap.what for gap in reading.gaps] == ["NVML"]
    assert f"(code {code})" in str(reading.gaps[0].problem)
    assert call.removesuffix("_v2").removesuffix("WithFlags") in str(reading.gaps[0].problem)


@pytest.mark.parametrize("call", ["nvmlSystemGetDriverVersion", "nvmlShutdown"])
@pytest.mark.parametrize("code", CODES)
def test_each_code_of_calls_that_nothing_hangs_on(world: NvmlWorld, call: str, code: int) -> None:
    """A driver without a version, or one that cannot be shut down, costs no reading."""
    world.show(*NODE, returns=(StubReturn(call=call, code=code),))
    driver = world.driver()
    for _ in range(2):
        reading = driver.read()
        assert (len(reading.gpus), len(reading.uses), reading.blind) == (4, 5, False)
        assert (reading.driver is None) == (call == "nvmlSystemGetDriverVersion")
        assert sum(gap.reason is not UNTOLD for gap in reading.gaps) == (1 if reading.driver is None else 0)
    driver.close()
    world.show(*NODE)
    while world.library.nvmlStubInitialized():
        pynvml.nvmlShutdown()
