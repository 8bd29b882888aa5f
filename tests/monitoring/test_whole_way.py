"""The pod of docs/alerts.md that tests the alerts from end to end: it is over, and `explain` says so."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.monitoring.rules.promtool import ROOT
from tests.rig import Node, gpu_watchdog, node
from tests.stub import GIB, MIB
from tests.world.test_kill import run

PAGE: Final = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
# What a context takes besides, at least and at most, of what we know of NVIDIA's data centre cards.
CONTEXTS: Final = (300 * MIB, 500 * MIB)
# libcuda as far as the program calls it. It says how much is asked for, and gets the types of the real one's header.
_CUDA: Final = """
#include <stdio.h>
int cuInit(unsigned flags) { return flags != 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = context; return flags != 0 || device != 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
    *memory = 1;
    fprintf(stderr, "%zu", bytes);
    return 0;
}
"""


def fenced(language: str) -> str:
    """The one block of this language in that section."""
    _, _, rest = PAGE.partition("### Test from end to end")
    (found,) = re.findall(rf"^   ```{language}\n(.*?)^   ```$", rest, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found)


def manifest() -> dict[str, Any]:
    """The pod."""
    made: dict[str, Any] = yaml.safe_load(fenced("yaml"))
    return made


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Node]:
    """A node."""
    with node(tmp_path) as made:
        yield made


@pytest.mark.node
@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_it_is_over_by_the_shipped_policy(here: Node, context: int) -> None:
    """A card of the pod's own, 2 GiB and what its context takes: over, nothing is done, and the page explains it."""
    spec = manifest()["spec"]["containers"][0]
    pod = here.pod("gpu-memory-test", (spec["name"], None), namespace="NAMESPACE")
    tenant = here.start(pod, used=2 * GIB + context)
    here.write()
    listed = json.loads(here.pods_file.read_text(encoding="utf-8"))
    listed["items"][0]["spec"]["containers"][0]["resources"] = spec["resources"]
    here.pods_file.write_text(json.dumps(listed), encoding="utf-8")
    with run(here, ROOT / "config" / "policy.toml") as running:
        running.wait(lambda d: d.status()["plan"])
        assert running.metric("account_over_limit") == 1
        asked = ("explain", "NAMESPACE/gpu-memory-test", "--url", f"http://127.0.0.1:{running.port}")
        done = gpu_watchdog(*asked, "--journal", here.journal, stub=here.stub_file)
        running.wait_passes(2)
        assert (tenant.is_alive, tenant.terms) == (True, [])
    assert (done.returncode, done.stderr) == (0, "")
    used = f"{(2 * GIB + context) / GIB:.1f}Gi"
    assert used in ("2.3Gi", "2.4Gi", "2.5Gi")
    wanted = " ".join(fenced("text").replace("2.4Gi", used).split())
    assert wanted in " ".join(done.stdout.split())


def test_its_program_takes_what_it_says(tmp_path: Path) -> None:
    """The program is one, and asks the driver for 2 GiB, by functions with the arguments that these have."""
    (tmp_path / "cuda.c").write_text(_CUDA, encoding="utf-8")
    library = ("cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "cuda.c")
    subprocess.run(library, check=True, timeout=60)
    _, option, program = manifest()["spec"]["containers"][0]["command"]
    program = program.replace("time.sleep(3600)", "pass")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = (sys.executable, option, program)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("allocated 2 GiB\n", str(2 * GIB))
