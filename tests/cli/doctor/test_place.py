"""Mounts as the kubelet creates them, on the real kernel: doctor recognises those that belong to a pod."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.node.support import ENDS_WITH_US, need_root
from tests.rig.command import COMMAND

pytestmark = pytest.mark.node


def doctor(script: str, folder: Path, **more: str) -> dict[str, dict[str, Any]]:
    """The findings of doctor by name, in a separate mount namespace after a script has mounted something."""
    journal = ("--journal", str(folder / "state" / "journal.db"))
    given = ("--policy", str(folder / "policy.toml"), "--pods", str(folder / "pods.json"))
    command = [str(COMMAND), "doctor", "--json", "--node", "n1", *journal, *given]
    inside = [*ENDS_WITH_US, "unshare", "--mount", "sh", "-c", f'{script}\nexec "$@"', "sh", *command]
    own = {**os.environ, **more}
    done = subprocess.run(inside, capture_output=True, text=True, timeout=120, check=False, env=own)
    assert done.stdout.startswith("{"), done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["findings"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the journal, and a volume of each kind."""
    need_root()
    for name in ("state", "pod/volumes/kubernetes.io~empty-dir/state", "pod/volumes/host/state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "policy.toml").write_text('mode = "enforce"\n', encoding="utf-8")
    (tmp_path / "pods.json").write_text('{"kind": "PodList", "items": []}', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("volume", "is_of_pod"), [("kubernetes.io~empty-dir", True), ("host", False)])
def test_a_journal_on_an_empty_dir(folder: Path, volume: str, *, is_of_pod: bool) -> None:
    """A journal on an emptyDir blocks enforcing; another folder of the same disk does not."""
    mount = f"mount --bind {folder}/pod/volumes/{volume}/state {folder}/state"
    found = doctor(mount, folder)["journal_disk"]
    assert ("is an emptyDir" in found["what"]) is is_of_pod
    if is_of_pod:
        assert (found["state"], found["for"]) == ("missing", ["enforce"])


def test_no_folder_for_temporary_files(folder: Path) -> None:
    """Doctor warns if /tmp, /var/tmp and the working directory are read-only."""
    places = " ".join(each for each in ("/tmp", "/var/tmp", "/usr/tmp") if Path(each).is_dir())
    readable = f"for each in {places}; do mount --bind $each $each && mount -o remount,bind,ro $each; done; cd /proc"
    inside = {"TMPDIR": "", "TEMP": "", "TMP": ""}
    assert doctor(readable, folder, **inside)["temporary_folder"]["state"] == "warning"
    assert doctor("true", folder)["temporary_folder"]["state"] == "ok"
