"""Builds the stub's libnvidia-ml.so.1 and puts it where pynvml finds it."""

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Literal

import pytest

Variant = Literal["current", "entry32", "misprobed", "r525", "r470", "ancient"]
Read = Literal["once", "changed", "always"]

# What NVML of a driver lacks, as macros of nvml.c. "misprobed" has the 32-byte entries, and symbols that hide it.
_MACROS: Final[dict[Variant, tuple[str, ...]]] = {
    "current": (),
    "entry32": ("ENTRY32", "NO_DETAIL"),
    "misprobed": ("ENTRY32",),
    "r525": ("NO_CONF", "NO_DETAIL", "WITH_RESERVED", "NO_UTIL_INFO"),
    "r470": ("NO_CONF", "NO_DETAIL", "NO_MEMORY_V2", "NO_LISTS_V3", "NO_UTIL_INFO"),
    "ancient": (
        "NO_CONF",
        "NO_DETAIL",
        "NO_MEMORY_V2",
        "NO_LISTS_V3",
        "NO_LISTS_V2",
        "NO_MPS",
        "NO_MIG",
        "NO_UTIL_INFO",
        "NO_UTIL",
    ),
}
_SOURCE: Final = Path(__file__).with_name("nvml.c")
_CACHE: Final = Path(__file__).parents[2] / "build" / "nvml-stub"
_COUNTER: Final = struct.Struct("56sQ")  # `struct counter` of nvml.c
SONAME: Final = "libnvidia-ml.so.1"


class NoCompilerError(RuntimeError):
    """There is no C compiler to build the stub with."""


def build(variant: Variant = "current") -> Path:
    """Build the library, unless it is in build/ already, and give the folder that holds `libnvidia-ml.so.1`.

    Raises NoCompilerError without a C compiler, and CalledProcessError with the compiler's own words.
    """
    flags = f"-std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -pthread -Wl,-soname,{SONAME}".split()
    flags += [f"-D{macro}" for macro in _MACROS[variant]]
    key = hashlib.sha256(_SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    folder = _CACHE / f"{variant}-{key}"
    if (folder / SONAME).exists():
        return folder
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoCompilerError("the NVML stub needs a C compiler, `cc` or what CC names (Debian: apt-get install gcc)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / SONAME
        subprocess.run([compiler, *flags, "-o", str(made), str(_SOURCE)], check=True)
        made.rename(folder / SONAME)
    return folder


def build_or_skip(variant: Variant = "current") -> Path:
    """Build for a test: without a compiler the test is skipped with the reason, and fails where CI is set."""
    try:
        return build(variant)
    except NoCompilerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def preload(variant: Variant = "current") -> ctypes.CDLL:
    """Load the library into this process, where pynvml then finds it: dlopen takes a loaded library by its SONAME.

    Only one variant fits into a process; another one needs a process of its own (`environment`).
    """
    library = ctypes.CDLL(str(build_or_skip(variant) / SONAME))
    library.nvmlStubCalls.restype = ctypes.c_ulong
    return library


def environment(
    file: Path, *, variant: Variant = "current", read: Read = "changed", calls: Path | None = None
) -> dict[str, str]:
    """Give the environment of a process that shall find the stub, steered by `file`, where it looks for NVML.

    `read`: when the stub reads the file. Benchmarks read it once, so that a call takes no time, or always. `calls` is
    a file for the number of calls, which `read_calls` reads.
    """
    paths = [str(build_or_skip(variant)), os.environ.get("LD_LIBRARY_PATH", "")]
    found = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), "NVML_STUB_FILE": str(file)}
    found["NVML_STUB_READ"] = read
    if calls is not None:
        found["NVML_STUB_CALLS"] = str(calls)
    return found


def read_calls(file: Path) -> dict[str, int]:
    """How often a process has called each function so far, by C names; empty before its nvmlInit."""
    counters = _COUNTER.iter_unpack(file.read_bytes()) if file.exists() else ()
    return {name.rstrip(b"\0").decode(): count for name, count in counters}
