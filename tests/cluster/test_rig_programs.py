"""Building the programs: once, whole or not at all, and with a clear word where it can't be done.

The `go` of these tests is a script: what is tested is who calls it, when, and what becomes of what it writes.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.node.support import REPOSITORY
from tools.programs import NAMES

GO = """\
#!/bin/sh
echo "$CGO_ENABLED $GOFLAGS $*" >> "$CALLS"
[ -z "$BROKEN" ] || { echo "the reason" >&2; exit 1; }
sleep 0.3
for word in "$@"; do case "$word" in -o=*) out="${word#-o=}" ;; esac; done
case "$out" in
  */) for word in "$@"; do case "$word" in k8s.io/*) : > "$out/${word##*/}" ;; esac; done ;;
  *) : > "$out" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A cache that is empty, and a Go that writes down its calls."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "go").write_text(GO, encoding="utf-8")
    (tools / "go").chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    return {"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CALLS": str(tmp_path / "calls")}


def start(environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.programs"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=pipe, stderr=pipe, text=True)


def build(environment: Mapping[str, str]) -> tuple[int, str, str]:
    with start(environment) as process:
        out, err = process.communicate(timeout=180)
        return process.returncode, out.strip(), err


def calls(environment: Mapping[str, str]) -> list[str]:
    return Path(environment["CALLS"]).read_text(encoding="utf-8").splitlines()


def test_built_once(environment: dict[str, str]) -> None:
    """Two at once build one time, both get the whole folder, and a third finds it there; no C, whatever GOFLAGS say."""
    environment["GOFLAGS"] = "-mod=vendor"
    both = [start(environment) for _ in range(2)]
    folders = {process.communicate(timeout=180)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(folders) == 1
    printed = folders.pop()
    cluster, helm, *_ = map(Path, printed.splitlines())
    assert sorted(path.name for path in cluster.iterdir()) == sorted(NAMES)
    assert sorted(path.name for path in helm.parent.iterdir()) == ["helm"]
    assert len(calls(environment)) == 6
    assert all(line.startswith("0 -mod=vendor build") and " -mod=readonly " in line for line in calls(environment))
    assert "gitVersion=v1." in calls(environment)[1]
    assert build(environment)[:2] == (0, printed)
    assert len(calls(environment)) == 6


def test_a_failed_build_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    """Go's own words and the remedy are told, nothing half-built stays, and the next try starts over."""
    status, _, said = build({**environment, "BROKEN": "1"})
    assert status == 1
    assert "the reason" in said
    assert "Go 1.24" in said
    parent = tmp_path / "cache" / "gpu-memory-watchdog" / "programs"
    assert [path for path in parent.iterdir() if path.is_dir()] == []
    assert build(environment)[0] == 0


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("1", 1)])
def test_without_go(tmp_path: Path, ci: str, status: int) -> None:
    """Without Go it says how to get it; that is a failure in CI alone."""
    found, out, said = build({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "CI": ci})
    assert (found, out) == (status, "")
    assert "apt-get install golang-go" in said


def test_a_folder_of_ones_own(environment: dict[str, str], tmp_path: Path) -> None:
    """GPU_WATCHDOG_CLUSTER_BIN is taken as it is, and what it lacks is told by name."""
    environment["GPU_WATCHDOG_CLUSTER_BIN"] = str(tmp_path)
    for name in NAMES[:-1]:
        (tmp_path / name).touch()
    status, _, said = build(environment)
    assert status == 1
    assert f"lacks {NAMES[-1]}" in said
    (tmp_path / NAMES[-1]).touch()
    status, out, _ = build(environment)
    assert (status, out.splitlines()[0]) == (0, str(tmp_path))
    assert len(calls(environment)) == 4
