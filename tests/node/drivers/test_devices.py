"""Which device files of the driver are open: what the kernel shows of this very process."""

import ctypes
import mmap
from pathlib import Path

import pytest

from watchdog.node.drivers.devices import descriptors, open_devices


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A file where the driver's devices are, below a root of its own."""
    path = tmp_path / "driver" / "dev" / "nvidia-caps" / "nvidia-cap1"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    return path


def test_descriptors_and_mappings_count(device: Path) -> None:
    """Either keeps the device busy; a mapping goes on when its descriptor has been closed."""
    assert open_devices() == ()
    libc = ctypes.CDLL(None, use_errno=True)  # the module mmap keeps a descriptor of its own
    libc.mmap.restype = ctypes.c_void_p
    with device.open("rb") as file:
        assert descriptors() == {file.fileno(): str(device)}
        size = ctypes.c_size_t(mmap.PAGESIZE)
        mapped = ctypes.c_void_p(
            libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
        )
        assert open_devices() == (str(device),)
    assert (descriptors(), open_devices()) == ({}, (str(device),))
    assert libc.munmap(mapped, size) == 0
    assert open_devices() == ()


def test_what_has_been_deleted_is_still_open(device: Path) -> None:
    """The device nodes of a driver that goes are removed while they are open."""
    with device.open("rb"):
        device.unlink()
        assert open_devices() == (f"{device} (deleted)",)


def test_other_files_do_not_count(tmp_path: Path) -> None:
    """The library itself stays mapped, and is no device."""
    library = tmp_path / "libnvidia-ml.so.1"
    library.touch()
    with library.open("rb"):
        assert open_devices() == ()


def test_where_it_cannot_be_seen_that_is_an_error(tmp_path: Path) -> None:
    """No proc file system is no proof that nothing is open."""
    with pytest.raises(OSError, match="No such file"):
        open_devices(tmp_path)
