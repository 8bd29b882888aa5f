"""`python -m tests.structure`: how large the product is, and how much of it one signal passes through.

Prints files and lines, the modules that exactly one other imports, the class names that stand for several things, and
the files and functions that run in a real daemon from an allocation to the SIGTERM for it (as root).
"""

import ast
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.rig import node
from tests.rig.command import daemon
from tests.stub import GIB, MIB
from tests.world.policies import KILL_AT_ONCE, write_policy

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ROOT / "watchdog"
_WAIT_S: Final = 30.0

# Loaded by the interpreter of the daemon before anything else: what is called from `go` to `stop` counts.
_PROBE: Final = """
import os, sys, threading, time
folder, seen = os.environ["STRUCTURE"], set()
def note(frame, event, argument):
    if event == "call":
        seen.add(frame.f_code)
def wait_for(name):
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.005)
def watch():
    wait_for("go")
    seen.clear()
    wait_for("stop")
    with open(os.path.join(folder, "writing"), "w") as file:
        file.writelines(sorted(f"{code.co_filename}:{code.co_qualname}\\n" for code in tuple(seen)))
    os.rename(os.path.join(folder, "writing"), os.path.join(folder, "calls"))
threading.Thread(target=watch, daemon=True).start()
threading.setprofile(note)
sys.setprofile(note)
"""


def main() -> None:
    """Print all of it."""
    files = sorted(PRODUCT.rglob("*.py"))
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in files}
    longest = sorted(len(each) for each in lines.values())
    print(f"files {len(files)}, lines {sum(longest)}, median {longest[len(longest) // 2]}, longest {longest[-1]}")
    importers, classes = _importers(files), _classes(files)
    single = [module for module, others in importers.items() if len(others) == 1]
    print(f"modules imported by exactly one other: {len(single)}")
    several = sorted(name for name, places in classes.items() if places > 1)
    print(f"class names with more than one meaning: {len(several)}: {', '.join(several)}")
    calls = from_allocation_to_sigterm()
    print(f"from an allocation to its SIGTERM: {len(calls)} functions in {len({file for file, _ in calls})} files")
    for file, count in sorted(Counter(file for file, _ in calls).items()):
        print(f"  {count:>3} {file}")


def _importers(files: list[Path]) -> dict[str, set[str]]:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for each in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(each, ast.ImportFrom) and each.module is not None:
                targets = {each.module, *(f"{each.module}.{alias.name}" for alias in each.names)}
            elif isinstance(each, ast.Import):
                targets = {alias.name for alias in each.names}
            else:
                continue
            for target in targets & names.keys() - {name}:
                found[target].add(name)
    return found


def _classes(files: list[Path]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for path in files:
        for each in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(each, ast.ClassDef):
                found[each.name.lstrip("_")] += 1
    return found


def from_allocation_to_sigterm() -> set[tuple[str, str]]:
    """The functions of the product (file, name) that run from the moment a pod goes over its limit to its SIGTERM."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "sitecustomize.py").write_text(_PROBE, encoding="utf-8")
        with node(root, "cgroup") as world:
            tenant = world.start(world.pod("hog", ("main", "1Gi")), used=512 * MIB)
            world.write()
            policy = write_policy(root, KILL_AT_ONCE)
            arguments = ("--policy", policy, "--pods", world.pods_file, "--journal", world.journal)
            search = os.pathsep.join((folder, str(ROOT)))
            prefix = ("env", f"STRUCTURE={folder}", f"PYTHONPATH={search}")
            with daemon(root, world.stub_file, *arguments, prefix=prefix) as running:
                running.wait_passes(3)
                (root / "go").touch()
                time.sleep(0.1)
                world.use(tenant, 9 * GIB)
                _wait(lambda: bool(tenant.terms))
                (root / "stop").touch()
                _wait((root / "calls").exists)
        lines = (root / "calls").read_text(encoding="utf-8").splitlines()
    called = (line.rpartition(":") for line in lines if line.startswith(f"{PRODUCT}{os.sep}"))
    return {(str(Path(file).relative_to(ROOT)), name) for file, _, name in called}


def _wait(is_there: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _WAIT_S
    while not is_there():
        assert time.monotonic() < until_s
        time.sleep(0.01)


if __name__ == "__main__":
    main()
