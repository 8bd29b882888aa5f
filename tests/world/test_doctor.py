"""`doctor` on a real node: a good one, and then one thing taken away at a time."""

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.support import need_root, refusing, run_python
from tests.ports import free_port
from tests.rig import Node, gpu_watchdog
from tests.rig.node import GPU
from tests.stub import GIB, LISTS, Stub, StubProcess, StubReturn
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import run
from watchdog.node.drivers.devices import SONAME

pytestmark = pytest.mark.node

KILL_UNWARNED = f"{KILL_AT_ONCE}\nunwarned = true"

BRAKES: Final = """
[brakes]
node = "10 per 10m"
breaker = { offenders = "50%", of_at_least = 3, hold = "10m" }

[protect]
priority_namespaces = ["kube-system"]
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """How to ask: with which options, in which surroundings, after which change of the world."""

    spoil: Callable[[Node], object] = lambda _: None
    options: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def examine(world: Node, case: Case) -> tuple[int, str, dict[str, Any]]:
    """Run `doctor --json` on a node on which all is well but for the case: exit code, stderr, and what it says.

    Not a file changes by that.
    """
    world.journal.parent.mkdir()
    world.single("hog", used=GIB)
    write_policy(world.root, KILL_UNWARNED, more=BRAKES)
    case.spoil(world)
    before = _tree(world.root)
    found = ask(world, case)
    assert _tree(world.root) == before
    return found


def ask(world: Node, case: Case) -> tuple[int, str, dict[str, Any]]:
    """Run `doctor --json` on the node as it is."""
    options = {
        "--node": "n1",
        "--policy": str(world.root / "policy.toml"),
        "--pods": str(world.pods_file),
        "--journal": str(world.journal),
        "--listen": f"127.0.0.1:{free_port()}",
        **{key: text.replace("ROOT", str(world.root)) for key, text in case.options.items()},
    }
    words = [word for pair in options.items() for word in pair]
    around = {key: text.replace("ROOT", str(world.root)) for key, text in case.environment.items()}
    prefix = [word.replace("ROOT", str(world.root)) for word in case.prefix]
    done = gpu_watchdog("doctor", "--json", *words, stub=world.stub_file, prefix=prefix, around=around)
    assert done.stdout, done.stderr
    return done.returncode, done.stderr, json.loads(done.stdout)


def states(reported: Mapping[str, Any]) -> dict[str, str]:
    """The worst state of each name."""
    order = ("ok", "warning", "missing")
    found: dict[str, str] = {}
    for finding in reported["findings"]:
        before = found.get(finding["name"], "ok")
        found[finding["name"]] = max(before, finding["state"], key=order.index)
    return found


def _tree(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


def test_a_good_node(world: Node) -> None:
    """All is well: exit 0, nothing on stderr, every finding ok, both possible; and not a file has changed."""
    code, stderr, reported = examine(world, Case())
    assert [each for each in reported["findings"] if each["state"] != "ok"] == []
    assert (code, stderr, reported["observe"], reported["enforce"]) == (0, "", True, True)
    names = {"nvml_library", "gpu_up", "process_numbers", "cgroups", "pidfd", "pods_known", "listen"}
    assert names <= states(reported).keys()
    assert set(reported["findings"][0]) == {"name", "state", "for", "what", "remedy"}


def _return(call: str, code: int, gpu: str = "") -> Case:
    return Case(spoil=lambda world: world.show(returns=(StubReturn(call=call, code=code, gpu=gpu),)))


def _impossible(world: Node) -> None:
    world.show(gpus=(replace(world.stub.gpus[0], processes=(StubProcess(pid=0, ghost=True),)),))


def _broken_library(world: Node) -> None:
    (world.root / SONAME).write_text("no library", encoding="ascii")


DRIVER: Final = {
    "library broken": ("nvml_library", "missing", Case(spoil=_broken_library, environment={"LD_LIBRARY_PATH": "ROOT"})),
    "driver not loaded": ("nvml_driver", "missing", _return("*", 9)),
    "another version": ("nvml_version", "missing", _return("nvmlInitWithFlags", 18)),
    "no GPU": ("gpus", "missing", Case(spoil=lambda world: Stub().write(world.stub_file))),
    "the only GPU lost": ("gpu_up", "missing", _return("*", 15, GPU)),
    "lists not permitted": ("process_lists", "missing", _return(LISTS[0], 4)),
    "impossible PIDs": ("process_entries", "missing", Case(spoil=_impossible)),
}


SECCOMP: Final = f"{refusing(434, 'EPERM')}\nimport os, sys\nos.execv(sys.argv[1], sys.argv[1:])"
PID_NAMESPACE: Final = ("unshare", "--pid", "--fork", "--kill-child")
# The group of `gid=` sees everything, and so does CAP_SYS_PTRACE.
HIDDEN: Final = "mount -t proc -o hidepid=2,gid=54321 proc ROOT/proc && exec setpriv --bounding-set -sys_ptrace"


def _mounted(script: str) -> tuple[str, ...]:
    """What starts a command in a mount namespace of its own, after this."""
    return ("unshare", "--mount", "sh", "-c", f'{script} "$@"', "sh")


def _hide(world: Node) -> None:
    world.use(world.pods[0].containers[0].tenants[0], 0)
    (world.root / "proc").mkdir()


PLACE: Final = {
    "another PID namespace": ("pid_namespace", "missing", Case(prefix=(*PID_NAMESPACE, "--mount-proc"))),
    "procfs of another PID namespace": ("procfs_own", "missing", Case(prefix=PID_NAMESPACE)),
    "no procfs": ("procfs", "missing", Case(options={"--procfs": "ROOT"})),
    "hidepid": (
        "procfs_open", "missing", Case(spoil=_hide, prefix=_mounted(HIDDEN), options={"--procfs": "ROOT/proc"}),
    ),
    "seccomp": ("pidfd", "missing", Case(prefix=(sys.executable, "-c", SECCOMP))),
    "no CAP_KILL": ("cap_kill", "missing", Case(prefix=("setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill"))),
    "a user namespace": ("cap_kill", "missing", Case(prefix=("unshare", "--user", "--map-root-user"))),
    "few descriptors": ("descriptors", "warning", Case(prefix=("prlimit", "--nofile=128:128"))),
}  # fmt: skip


# Root without these is an ordinary user before the files of others; the worlds of tests lie where no other user gets.
ORDINARY: Final = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
CLOSED: Final = {
    "journal": ("--journal", "ROOT/closed/journal.db", "journal_folder"),
    "journal deeper": ("--journal", "ROOT/closed/a/b/journal.db", "journal_folder"),
    "policy": ("--policy", "ROOT/closed/policy.toml", "policy"),
    "pods": ("--pods", "ROOT/closed/pods.json", "pods"),
    "procfs": ("--procfs", "ROOT/closed/proc", "procfs"),
    "node object": ("--node-object", "ROOT/closed/node.json", "node_object"),
    "namespaces": ("--namespaces", "ROOT/closed/namespaces.json", "namespaces"),
}


def _close_a_folder(world: Node) -> None:
    closed = world.root / "closed"
    closed.mkdir(mode=0o700)
    for name in ("journal.db", "journal.db.lock", "policy.toml", "pods.json"):
        (closed / name).touch()
    os.chown(closed, 65534, 65534)


@pytest.mark.parametrize(("option", "path", "name"), CLOSED.values(), ids=CLOSED.keys())
def test_what_an_ordinary_user_may_not_read(any_world: Node, option: str, path: str, name: str) -> None:
    """A folder of another user's is a finding with its remedy, whatever lies in it, and never a traceback."""
    library = {"LD_LIBRARY_PATH": "ROOT/closed"} if option == "--journal" else {}
    case = Case(spoil=_close_a_folder, options={option: path}, prefix=ORDINARY, environment=library)
    code, stderr, reported = examine(any_world, case)
    assert "Traceback" not in stderr
    found = [each for each in reported["findings"] if each["name"] == name and each["state"] != "ok"]
    assert [each["remedy"] != "" for each in found] == [True]
    assert "ermission denied" in found[0]["what"] + found[0]["remedy"]
    if option == "--journal":
        assert (code, states(reported)["stop_file"], states(reported)["journal_lock"]) == (1, "missing", "missing")


def test_a_library_in_a_folder_of_another_user(tmp_path: Path) -> None:
    """A usual folder that can't be looked into has no library for this account, and the others are looked at."""
    need_root()
    readable, closed = tmp_path / "usr/lib64", tmp_path / "usr/lib/wsl/lib"
    for folder in (readable, closed):
        folder.mkdir(parents=True)
        (folder / SONAME).touch()
    closed.chmod(0o700)
    os.chown(closed, 65534, 65534)
    code = "from pathlib import Path; from watchdog.node.drivers.devices import find_library as find; "
    assert run_python(f"{code} print(*find(Path({str(tmp_path)!r})))", *ORDINARY) == f"{readable}\n"


def _half_written(world: Node) -> None:
    text = world.pods_file.read_bytes()
    world.pods_file.write_bytes(text[: len(text) // 2])


def _old(world: Node) -> None:
    past = time.time() - 3600
    os.utime(world.pods_file, (past, past))


def _broken_policy(world: Node) -> None:
    (world.root / "policy.toml").write_text('mode = "maybe"\ninterval = "soon"\n', encoding="utf-8")


FILES: Final = {
    "pods half written": ("pods", "missing", Case(spoil=_half_written)),
    "pods old": ("pods_fresh", "warning", Case(spoil=_old)),
    "another node's pods": ("pods_node", "warning", Case(options={"--node": "n2"})),
    "policy missing": ("policy", "missing", Case(options={"--policy": "ROOT/nowhere.toml"})),
    "policy invalid": ("policy", "missing", Case(spoil=_broken_policy)),
}


def _database(world: Node, statement: str) -> None:
    with sqlite3.connect(world.journal) as connection:
        connection.executescript(statement)


OURS: Final = "PRAGMA application_id = 0x67707764;CREATE TABLE occurrence (id);"


def _damaged(world: Node) -> None:
    rows = "INSERT INTO occurrence VALUES (1);" * 500
    _database(world, f"{OURS}CREATE INDEX i ON occurrence (id);BEGIN;{rows}COMMIT;")
    data = bytearray(world.journal.read_bytes())
    data[4096:8192] = bytes(b"\x0d" + b"\xff" * 4095)
    world.journal.write_bytes(data)


SMALL: Final = Case(prefix=_mounted("mount -t tmpfs -o size=1m none ROOT/state && exec"))
JOURNAL: Final = {
    "no folder": ("journal_folder", "ok", Case(spoil=lambda world: world.journal.parent.rmdir())),
    "folder a file": ("journal_folder", "missing", Case(options={"--journal": "ROOT/policy.toml/x/journal.db"})),
    "read-only": (
        "journal_folder", "missing", Case(prefix=_mounted("mount -t tmpfs -o ro none ROOT/state && exec")),
    ),
    "in memory": ("journal_disk", "warning", SMALL),
    "no space": ("journal_space", "missing", SMALL),
    "another file": ("journal_file", "missing", Case(spoil=lambda world: world.journal.write_text("mine"))),
    "another database": ("journal_file", "missing", Case(spoil=lambda world: _database(world, "CREATE TABLE x (y)"))),
    "a folder": ("journal_file", "missing", Case(spoil=lambda world: world.journal.mkdir())),
    "a newer one": (
        "journal_file", "missing", Case(spoil=lambda world: _database(world, f"{OURS}PRAGMA user_version = 99")),
    ),
    "damaged": ("journal_file", "warning", Case(spoil=_damaged)),
    "zeros": ("journal_file", "warning", Case(spoil=lambda world: world.journal.write_bytes(bytes(9000)))),
    "stop": ("stop_file", "missing", Case(spoil=lambda world: (world.journal.parent / "stop").touch())),
    "no such address": ("listen", "missing", Case(options={"--listen": "203.0.113.1:1"})),
}  # fmt: skip


def _a_sandbox(world: Node) -> None:
    world.sandbox(world.pods[0], used=GIB)
    world.write()


def _an_outsider(world: Node) -> None:
    world.outsider(world.pods[0], used=GIB)
    world.write()


PODS: Final = {
    "a gVisor sandbox": ("pods_gvisor", "warning", Case(spoil=_a_sandbox)),
    "a container outside its pod's cgroup": ("pods_cgroups", "missing", Case(spoil=_an_outsider)),
}


ROWS: Final = {**DRIVER, **PLACE, **FILES, **JOURNAL, **PODS}


@pytest.mark.parametrize("row", ROWS)
def test_what_is_wrong_is_named(any_world: Node, row: str) -> None:
    """What an enforcing policy lacks is named and fails, without a traceback, and nothing on the node changes."""
    name, state, case = ROWS[row]
    code, stderr, reported = examine(any_world, case)
    assert states(reported)[name] == state, reported
    assert (name in stderr) == (state == "missing")
    assert reported["enforce"] == (code == 0)
    assert not (reported["observe"] and row in DRIVER)
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_beside_a_daemon_that_runs(any_world: Node) -> None:
    """On a node whose daemon runs all is well: it holds the lock, answers on the port, and its journal is sound."""
    any_world.single("hog", used=GIB)
    with run(any_world, write_policy(any_world.root, KILL_UNWARNED, more=BRAKES)) as running:
        running.wait_passes(1)
        code, stderr, reported = ask(any_world, Case(options={"--listen": f"127.0.0.1:{running.port}"}))
        whats = {each["name"]: each["what"] for each in reported["findings"]}
        assert [each for each in reported["findings"] if each["state"] != "ok"] == []
        assert (code, stderr) == (0, "")
        assert f"process {running.pid}" in whats["journal_lock"]
        assert "a gpu-watchdog answers" in whats["listen"]
        assert "intact journal" in whats["journal_file"]
        assert "uses this policy" in whats["policy_running"]
        running.wait_passes(1)
        assert running.metric("enforcing") == 1
        _broken_policy(any_world)
        code, stderr, reported = ask(any_world, Case(options={"--listen": f"127.0.0.1:{running.port}"}))
        assert (code, states(reported)["policy"], states(reported)["policy_running"]) == (1, "missing", "warning")
        assert "last valid one" in stderr
    # After kill -9 its write-ahead log lies there with the shared memory, and can still be looked at.
    assert states(ask(any_world, Case())[2])["journal_file"] == "ok"
