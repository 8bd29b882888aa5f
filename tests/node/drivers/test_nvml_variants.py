"""Drivers of other generations, each in a process of its own: what their NVML lacks and how its entries lie."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.node.drivers.nvml_world import PID, card, ghost, mig_card
from tests.node.support import REPOSITORY
from tests.stub import GIB, MIB, Stub, StubGpu, Variant, environment
from watchdog.node.drivers.nvml_calls import NvmlCallError, ask


def probe(environ: dict[str, str]) -> dict[str, Any]:
    """Read in a process with this environment."""
    command = [sys.executable, "-m", "tests.node.drivers.nvml_probe"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    reading: dict[str, Any] = json.loads(done.stdout)
    return reading


def read(folder: Path, variant: Variant, *gpus: StubGpu) -> dict[str, Any]:
    """Read a node of a driver generation."""
    return probe(environment(Stub(gpus=gpus).write(folder / "nvml.txt"), variant=variant))


def uses(reading: dict[str, Any]) -> dict[tuple[str, int], int | None]:
    return {(use["gpu"], use["pid"] - PID): use["used"] for use in reading["uses"]}


@pytest.mark.parametrize("variant", ["current", "entry32", "r525", "r470"])
def test_every_driver_generation_is_read_alike(tmp_path: Path, variant: Variant) -> None:
    """Entries of 24 and of 32 bytes, lists with and without `_v3`: the same processes with the same bytes."""
    reading = read(
        tmp_path,
        variant,
        card("a", *(ghost(number, number * MIB, protected=7 * number) for number in range(1, 300)), ghost(300, None)),
        card("b", ghost(1, GIB, lists=("graphics", "mps"))),
        mig_card("m", ghost(2, GIB, gi=1, ci=0), ghost(3, GIB, gi=2, ci=0)),
    )
    assert [(gap["reason"], gap["gpu"]) for gap in reading["gaps"]] == [("process_memory", "GPU-a")]
    assert reading["unseen"] == []
    assert uses(reading) == {
        **{("GPU-a", number): number * MIB for number in range(1, 300)},
        ("GPU-a", 300): None,
        ("GPU-b", 1): GIB,
        ("MIG-m1", 2): GIB,
        ("MIG-m2", 3): GIB,
    }
    has_reserved = variant != "r470"
    assert [gpu["reserved"] for gpu in reading["gpus"][:2]] == [512 * MIB if has_reserved else None] * 2
    assert reading["gpus"][1]["used"] == 512 * MIB + GIB


@pytest.mark.parametrize("protected", [0, 4096, 2**30, 2**64 - 1])
def test_a_driver_that_fools_the_probe_is_caught_by_its_entries(tmp_path: Path, protected: int) -> None:
    """Law 3: unknown input never leads to enforcement. Shifted PIDs mean a wrong kill, so the list is rejected."""
    entries = (ghost(number, GIB, protected=protected) for number in range(1, 4))
    reading = read(tmp_path, "misprobed", card("a", *entries))
    assert (reading["uses"], reading["unseen"]) == ([], ["GPU-a"])
    assert [(gap["reason"], gap["gpu"]) for gap in reading["gaps"]] == [("contradiction", "GPU-a")]


def test_a_driver_too_old_for_process_lists_is_a_gap_with_the_remedy(tmp_path: Path) -> None:
    """Lists without instance ids are not read; the memory of the cards is."""
    reading = read(tmp_path, "ancient", card("a", ghost(1)))
    assert (reading["uses"], reading["unseen"], reading["blind"]) == ([], ["GPU-a"], False)
    assert [gap["reason"] for gap in reading["gaps"]] == ["processes"]
    assert "update to driver 450" in reading["gaps"][0]["problem"]["remedy"]
    assert (reading["gpus"][0]["used"], reading["gpus"][0]["reserved"]) == (GIB + 512 * MIB, None)


def test_a_missing_library_is_blindness_with_the_remedy(tmp_path: Path) -> None:
    """A node without a driver says what to do, and nothing raises."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library\n")  # found before any real one
    reading = probe({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert (reading["blind"], reading["gpus"]) == (True, [])
    assert [gap["reason"] for gap in reading["gaps"]] == ["nvml_unavailable"]
    assert "LD_LIBRARY_PATH" in reading["gaps"][0]["problem"]["remedy"]


def test_a_library_mismatch_is_a_missing_function() -> None:
    """NVMLLibraryMismatchError is no NVMLError, and is translated too."""

    def call() -> None:
        raise pynvml.NVMLLibraryMismatchError

    with pytest.raises(NvmlCallError) as raised:
        ask(call)
    assert raised.value.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
