"""vGPU guests and WSL: where the driver does not tell what single processes use, nothing reads as "uses nothing"."""

from pathlib import Path

import pynvml
import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, mig_card, uses
from tests.stub import GIB, LISTS, MIB, StubReturn
from watchdog.core.model import GapReason
from watchdog.node.drivers.devices import windows_sign

WSL = "the kernel is 5.15.167.4-microsoft-standard-WSL2"
VGPU = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
PASSTHROUGH = pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH
MODE = "nvmlDeviceGetVirtualizationMode"


def root(folder: Path, release: str, *, dxg: bool = False) -> Path:
    """A file system with this kernel release, and the device of Windows' GPUs or none."""
    kernel = folder / "proc" / "sys" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / "osrelease").write_text(f"{release}\n", encoding="ascii")
    (folder / "dev").mkdir()
    if dxg:
        (folder / "dev" / "dxg").touch()
    return folder


@pytest.mark.parametrize(
    ("release", "dxg", "sign"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", True, WSL),
        ("4.19.84-Microsoft", False, "the kernel is 4.19.84-Microsoft"),
        ("6.6.0-my-own", True, "there is a /dev/dxg"),
        ("6.8.0-1015-azure", False, ""),
        ("6.1.0-28-amd64", False, ""),
    ],
)
def test_windows_below_is_recognised(tmp_path: Path, release: str, dxg: bool, sign: str) -> None:
    """WSL's own kernel, one that somebody has built for it, and none of the clouds' kernels."""
    assert windows_sign(root(tmp_path, release, dxg=dxg)) == sign


def test_without_a_proc_file_system_the_device_tells(tmp_path: Path) -> None:
    """What can't be read is no sign."""
    assert windows_sign(tmp_path) == ""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "dxg").touch()
    assert windows_sign(tmp_path) == "there is a /dev/dxg"


def test_on_wsl_an_empty_list_does_not_mean_that_nobody_uses_anything(world: NvmlWorld) -> None:
    """The counter goes on; who it is, is unknown, with the reason and what helps."""
    world.show(card("a", used=14 * GIB), card("b"))
    reading = world.driver(windows=WSL).read()
    assert reading.unseen == {"GPU-a", "GPU-b"}
    assert [gpu.used for gpu in reading.gpus] == [14 * GIB, 512 * MIB]
    assert [(gap.reason, gap.what) for gap in reading.gaps] == [
        (GapReason.PROCESS_MEMORY, "GPU-a memory of processes"),
        (GapReason.PROCESS_MEMORY, "GPU-b memory of processes"),
    ]
    assert f"this is WSL ({WSL})" in str(reading.gaps[0].problem)
    assert "run on Linux itself" in str(reading.gaps[0].problem)


def test_on_wsl_processes_without_amounts_are_one_gap(world: NvmlWorld) -> None:
    """Listed or not: what is not listed may be there too."""
    world.show(card("a", ghost(1, None), used=14 * GIB))
    reading = world.driver(windows=WSL).read()
    assert uses(reading, "GPU-a") == {1: None}
    assert reading.unseen == {"GPU-a"}
    assert len(reading.gaps) == 1


def test_a_driver_that_tells_an_amount_is_believed_for_good(world: NvmlWorld) -> None:
    """A machine that only looks like WSL has a driver of Linux: from the first number on it is read like any other."""
    world.show(card("a", ghost(1, GIB)))
    driver = world.driver(windows="there is a /dev/dxg")
    assert (driver.read().unseen, driver.read().gaps) == (frozenset(), ())
    world.show(card("a", used=14 * GIB))
    assert (driver.read().unseen, driver.read().gaps) == (frozenset(), ())


@pytest.mark.parametrize("used", [514 * MIB, GIB])
def test_an_idle_vgpu_is_idle(world: NvmlWorld, used: int) -> None:
    """What the driver keeps for itself is nobody's, and an empty list is believed then."""
    reading = world.read(card("a", virtualization=VGPU, used=used))
    assert (reading.unseen, reading.gaps) == (frozenset(), ())


@pytest.mark.parametrize("reserved", [512 * MIB, None])
def test_a_vgpu_in_use_without_a_process_is_no_idle_one(world: NvmlWorld, reserved: int | None) -> None:
    """All of a vGPU's memory is this machine's: where some is in use somebody uses it, listed or not."""
    old = () if reserved is not None else (StubReturn(call="nvmlDeviceGetMemoryInfo_v2", code=3),)
    driver = world.driver()
    reading = world.read(card("a", virtualization=VGPU, used=14 * GIB), card("b", used=14 * GIB), returns=old)
    assert reading.unseen == {"GPU-a"}
    (gap,) = reading.gaps
    assert (gap.reason, gap.what) == (GapReason.PROCESSES, "GPU-a processes")
    assert "this is a vGPU with memory in use, and its driver lists no process" in str(gap.problem)
    world.show(card("a", ghost(1, 13 * GIB), virtualization=VGPU), card("b"))
    assert (driver.read().unseen, driver.read().gaps) == (frozenset(), ())


def test_whose_processes_are_listed_without_amounts_is_reported_once(world: NvmlWorld) -> None:
    """A vGPU guest whose driver lists processes and no amounts: these are unknown, and nobody else is."""
    reading = world.read(card("a", ghost(1, None), virtualization=VGPU, used=14 * GIB))
    assert uses(reading, "GPU-a") == {1: None}
    assert reading.unseen == frozenset()
    assert [gap.reason for gap in reading.gaps] == [GapReason.PROCESS_MEMORY]


def test_a_device_without_process_lists_says_what_helps(world: NvmlWorld) -> None:
    """Not Supported for ever is no passing failure: the remedy is another machine."""
    returns = tuple(StubReturn(call=call, code=pynvml.NVML_ERROR_NOT_SUPPORTED) for call in LISTS)
    reading = world.read(card("a", used=14 * GIB), returns=returns)
    (gap,) = reading.gaps
    assert gap.reason is GapReason.PROCESSES
    assert reading.unseen == {"GPU-a"}
    assert "run on Linux itself, or give the virtual machine a whole GPU (passthrough)" in str(gap.problem)
    assert "retried" not in str(gap.problem)


@pytest.mark.parametrize("mode", [None, 0, PASSTHROUGH])
def test_any_other_gpu_is_asked_once(world: NvmlWorld, mode: int | None) -> None:
    """One call for each card in the life of the daemon; whole cards are believed as ever."""
    world.show(card("a", virtualization=mode, used=14 * GIB), mig_card("m"))
    driver = world.driver()
    for _ in range(3):
        reading = driver.read()
        assert (reading.unseen, reading.gaps) == (frozenset(), ())
    assert world.calls(MODE) == 2


def test_a_gap_for_missing_numbers_ends_with_them(world: NvmlWorld) -> None:
    """Once the driver reports amounts, or lists no process, there is no gap any more."""
    for processes in ((ghost(1, GIB),), ()):
        assert [gap.reason for gap in world.read(card("a", ghost(1, None))).gaps] == [GapReason.PROCESS_MEMORY]
        assert world.read(card("a", *processes)).gaps == ()


def test_a_process_that_one_list_knows_is_known(world: NvmlWorld) -> None:
    """A number in one of the lists is a number: only what no list has is a gap, also in MIG instances."""
    two = (ghost(1, None, lists=("compute",)), ghost(1, GIB, lists=("graphics",)))
    reading = world.read(card("a", *two), mig_card("m", ghost(2, None, gi=2, ci=0)))
    assert [gap.gpu for gap in reading.gaps] == ["GPU-m"]
    assert {(use.gpu, use.used) for use in reading.uses} == {("GPU-a", GIB), ("MIG-m2", None)}
