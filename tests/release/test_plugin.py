"""The program for people's own machines: what is in it, where it runs, and how krew installs it."""

import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.node.support import REPOSITORY, cannot_run
from tests.ports import free_port
from tests.rig.command import COMMAND
from tests.rig.kubectl import kubectl  # noqa: F401 - pytest finds fixtures by their names in here
from tools import programs
from tools.release.checkout import Checkout
from tools.release.krew import MANIFEST, filled, pack_plugin
from tools.release.plugin import LEFT_OUT, NAME, PLATFORMS, PYTHONS, wheels_folder
from tools.release.python import locked
from watchdog import __version__

pytestmark = pytest.mark.slow

URL: Final = "https://git.test/team/gpu-memory-watchdog"
# What the modules of Linux have that those of macOS lack, as far as the program or a library could use it (typeshed).
LINUX_ALONE: Final = {
    "os": ("eventfd", "eventfd_read", "eventfd_write", "pidfd_open", "pipe2", "memfd_create", "O_PATH"),
    "time": ("CLOCK_BOOTTIME",),
    "select": ("epoll", "EPOLLIN"),
    "signal": ("pidfd_send_signal", "SIGPWR", "SIGSTKFLT"),
    "socket": ("SO_PEERCRED", "SO_PASSCRED", "AF_NETLINK"),
    "fcntl": ("F_SETSIG", "F_NOTIFY"),
}
_MAC: Final = f"""
import runpy, sys
for module, names in {LINUX_ALONE!r}.items():
    for name in names:
        vars(__import__(module)).pop(name, None)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """The file, and the folder with what is released of it."""

    program: Path
    released: Path

    @property
    def archive(self) -> Path:
        """What krew downloads."""
        (found,) = self.released.glob("*.tar.gz")
        return found


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    """The plugin of this working tree."""
    folder = tmp_path_factory.mktemp("plugin")
    released = folder / "released"
    released.mkdir()
    checkout = Checkout(
        folder=REPOSITORY, base_version=__version__, revision="0" * 40, epoch=1_700_000_000, tagged=True
    )
    pack_plugin(REPOSITORY, released, folder, checkout, URL)
    yield Plugin(program=folder / NAME, released=released)
    shutil.rmtree(folder)


def pythons() -> list[str]:
    """Every Python of this machine, old ones too, by path."""
    others = (f"python3.{minor}" for minor in range(6, 16))
    installed = (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3")
    found = [sys.executable, *filter(None, map(shutil.which, others)), *map(str, installed)]
    return list(dict.fromkeys(str(Path(each).absolute()) for each in found))


def run(folder: Path, *command: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """How a command ends with an empty environment and this folder as its home."""
    own = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **more}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=120
    )


def test_it_runs_on_every_python_that_it_is_for(plugin: Plugin, tmp_path: Path) -> None:
    """On each Python from 3.11 on it prints the same as the installed command; an older one is told what is needed."""
    expected = subprocess.run([COMMAND, "rights", "--for-people"], capture_output=True, text=True, check=True).stdout
    ran = 0
    for python in pythons():
        asked = run(tmp_path, python, "-c", "import sys; print(*sys.version_info[:2])")
        if asked.returncode:  # a shim of a version that is not chosen
            continue
        version = tuple(map(int, asked.stdout.split()))
        done = run(tmp_path, python, "-I", plugin.program, "rights", "--for-people")
        if version >= (3, 11):
            assert (done.returncode, done.stdout) == (0, expected), f"{python}: {done.stderr}"
            ran += 1
        else:
            assert done.returncode == 1
            assert done.stderr.startswith("gpu-watchdog needs Python 3.11 or newer; ")
    assert ran


_EACH_MODULE: Final = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import watchdog
for found in pkgutil.walk_packages(watchdog.__path__, "watchdog."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def test_every_module_finds_what_it_imports(plugin: Plugin, tmp_path: Path) -> None:
    """No library is left out that a command could need: each module is imported with nothing else installed."""
    assert run(tmp_path, sys.executable, "-I", plugin.program, "--version").returncode == 0
    (unpacked,) = (tmp_path / ".cache" / "gpu-memory-watchdog" / "plugin").iterdir()
    done = run(tmp_path, sys.executable, "-I", "-S", "-c", _EACH_MODULE, unpacked)
    assert done.returncode == 0, done.stderr
    streams = "import sys; sys.path.insert(0, sys.argv[1]); import watchdog.kube.streams"
    assert run(tmp_path, sys.executable, "-I", "-S", "-c", streams, unpacked).returncode == 0


def test_it_chooses_a_python_that_is_new_enough(plugin: Plugin, tmp_path: Path) -> None:
    """MacOS' own python3 is too old: one further along is taken, and without any the message says which is needed."""
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    path = f"{tmp_path / 'bin'}"
    assert "needs Python 3.11 or newer, as python3" in run(tmp_path, "/bin/sh", plugin.program, PATH=path).stderr
    (tmp_path / "bin" / "python3.11").symlink_to(sys.executable)
    done = run(tmp_path, "/bin/sh", plugin.program, "--version", PATH=path)
    assert done.stdout == f"gpu-watchdog, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("top", "--cluster"), "the API server"),
        (("top", "--once"), "the daemon does not answer"),
        (("explain", "a/b", "--url", "http://127.0.0.1:1"), "the daemon does not answer"),
        (("history",), "no watchdog is here: name a NODE or a pod"),
        (("history", "--journal", "none"), "there is no journal none"),
        (("stop",), "NOT STOPPED"),
        (("stop", "n1"), "the API server"),
        (("history", "n1"), "the API server"),
        (("check", str(REPOSITORY / "config" / "policy.toml")), ""),
        (("check", "--schemes"), ""),
    ],
)
def test_a_person_s_commands_run_without_what_only_linux_has(
    plugin: Plugin, tmp_path: Path, arguments: tuple[str, ...], reported: str
) -> None:
    """Where Python lacks what macOS lacks, each command gets as far as saying what it can't reach."""
    user = {"name": "x", "user": {"token": "t"}}
    server = {"name": "x", "cluster": {"server": f"https://127.0.0.1:{free_port()}"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    found = {"clusters": [server], "users": [user], "contexts": [context], "current-context": "x"}
    (tmp_path / "config").write_text(yaml.safe_dump(found))
    listen = f"127.0.0.1:{free_port()}"
    more = {"KUBECONFIG": str(tmp_path / "config"), "GPU_WATCHDOG_LISTEN": listen}
    done = run(tmp_path, sys.executable, "-I", "-c", _MAC, plugin.program, *arguments, **more)
    assert "Traceback" not in done.stderr
    assert reported in done.stderr
    assert (done.returncode == 0) == (not reported), done.stderr


def test_a_kept_wheel_that_was_changed_is_not_passed_on(plugin: Plugin, tmp_path: Path) -> None:
    """What was downloaded earlier is compared with the lock file each time; the folder to remove is named."""
    assert plugin.program.is_file()
    kept = tmp_path / "gpu-memory-watchdog" / "wheels"
    shutil.copytree(wheels_folder(), kept, copy_function=os.symlink)
    changed = max(kept.glob("*/msgspec-*.whl"))
    changed.unlink()
    changed.write_bytes(b"another")
    command = (sys.executable, "-m", "tools.release.plugin", tmp_path)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"plugin: {changed.parent} lacks the locked wheel of msgspec: remove the folder\n")
    assert not (tmp_path / NAME).exists()


def test_only_what_runs_on_nodes_is_written_for_linux_alone(tmp_path: Path) -> None:
    """mypy, told that this is macOS, finds nothing missing but where the node itself is read."""
    command = (
        sys.executable,
        "-m",
        "mypy",
        "--platform=darwin",
        f"--cache-dir={tmp_path}",
        "--no-error-summary",
        "watchdog",
    )
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    found = {line.partition(":")[0] for line in done.stdout.splitlines()}
    of_nodes = ("watchdog/node/", "watchdog/cli/doctor/", "watchdog/config/watch.py")
    assert {each for each in found if not each.startswith(of_nodes)} == set()
    assert found, "mypy has checked for macOS"


def test_two_that_start_at_once_unpack_one(plugin: Plugin, tmp_path: Path) -> None:
    """On an empty cache both run, and one whole folder is left, which the next start uses as it is."""
    own = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-I", str(plugin.program), "--version"]
    started = [subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {each.communicate(timeout=120)[0] for each in started} == {f"gpu-watchdog, version {__version__}\n"}
    (left,) = (tmp_path / ".cache" / "gpu-memory-watchdog" / "plugin").iterdir()
    before = left.stat().st_ino
    assert run(tmp_path, *command).returncode == 0
    assert left.stat().st_ino == before
    assert left.stat().st_mode & 0o777 == 0o700


def test_what_others_may_write_is_not_run(plugin: Plugin, tmp_path: Path) -> None:
    """A cache that another account can change would let it run commands as this person."""
    command = (sys.executable, "-I", plugin.program, "--version")
    assert run(tmp_path, *command).returncode == 0
    (left,) = (tmp_path / ".cache" / "gpu-memory-watchdog" / "plugin").iterdir()
    left.chmod(0o777)
    refused = run(tmp_path, *command)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"others may write to {left}: ")
    (tmp_path / "file").touch()
    lost = run(tmp_path, *command, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert lost.returncode == 1
    assert lost.stderr.startswith(f"gpu-watchdog can't be unpacked to {tmp_path}/file/")
    assert "set XDG_CACHE_HOME" in lost.stderr


_MACHINES: Final = {"linux-x86_64": 62, "linux-aarch64": 183, "darwin-x86_64": 0x01000007, "darwin-arm64": 0x0100000C}


def machines(content: bytes) -> set[int]:
    """The machines that a compiled module is for, as ELF or Mach-O numbers them (elf.h, mach-o/fat.h)."""
    if content[:4] == b"\x7fELF":
        return {struct.unpack_from("<H", content, 18)[0]}
    if content[:4] == b"\xca\xfe\xba\xbe":
        count = struct.unpack_from(">I", content, 4)[0]
        return {struct.unpack_from(">I", content, 8 + 20 * each)[0] for each in range(count)}
    assert content[:4] == b"\xcf\xfa\xed\xfe"
    return {struct.unpack_from("<I", content, 4)[0]}


def test_each_platform_and_python_has_its_modules(plugin: Plugin) -> None:
    """What this machine can't run is at least there: msgspec for each Python, psutil for all, built for the machine."""
    with zipfile.ZipFile(plugin.program) as archive:
        native = {name: archive.read(name) for name in archive.namelist() if name.startswith("native/")}
    for platform in PLATFORMS:
        own = {name: content for name, content in native.items() if name.startswith(f"native/{platform.python}/")}
        modules = {tuple(name.split("/")[2:4]) for name in own}
        versions = {(f"cp{each.replace('.', '')}", "msgspec") for each in PYTHONS}
        assert modules == versions | {("abi3", "psutil")}
        for name, content in own.items():
            assert _MACHINES[platform.python] in machines(content), name


def test_nothing_is_in_it_without_its_licence(plugin: Plugin) -> None:
    """Each distribution that is passed on comes with the text that allows it."""
    with zipfile.ZipFile(plugin.program) as archive:
        licensed = {name.split("/")[1] for name in archive.namelist() if name.startswith("licenses/")}
        assert b"Redistributions in binary form" in archive.read("program/pynvml.py")
    pins = locked((REPOSITORY / "requirements" / "run.txt").read_text(encoding="utf-8"))
    assert pins.keys() >= LEFT_OUT
    assert licensed | {"nvidia-ml-py"} == {"gpu-memory-watchdog", *pins} - LEFT_OUT


def test_the_manifest_is_of_this_archive(plugin: Plugin) -> None:
    """The address is that of the release's file, and what krew is to copy is in it; the hash is krew's to check."""
    manifest = yaml.safe_load((plugin.released / MANIFEST).read_text(encoding="utf-8"))
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"] == f"{URL}/releases/download/v{__version__}/{plugin.archive.name}"
    assert f"{manifest['metadata']['name']}.yaml" == MANIFEST
    with tarfile.open(plugin.archive) as tar:
        modes = {member.name: member.mode for member in tar}
    assert modes == {NAME: 0o755, "LICENSE": 0o644}
    assert platform["bin"] == NAME
    assert {each["from"] for each in platform["files"]} == modes.keys()
    wanted = {each["key"]: each["values"] for each in platform["selector"]["matchExpressions"]}
    assert {f"{system}-{arch}" for system in wanted["os"] for arch in wanted["arch"]} == {p.name for p in PLATFORMS}


@pytest.fixture(scope="session")
def krew() -> Path:
    """The real krew."""
    try:
        return programs.krew()
    except programs.NoProgramsError as error:
        cannot_run(str(error))


@pytest.mark.cluster
def test_krew_installs_it(plugin: Plugin, krew: Path, kubectl: Path, tmp_path: Path) -> None:  # noqa: F811
    """The real krew takes manifest and archive, the real kubectl runs it; completion works after what krew shows."""
    root = tmp_path / "krew"
    more = {"KREW_ROOT": str(root), "PATH": f"{root / 'bin'}:{kubectl.parent}:{os.environ['PATH']}"}
    manifest = plugin.released / MANIFEST
    installed = run(tmp_path, krew, "install", f"--manifest={manifest}", f"--archive={plugin.archive}", **more)
    assert installed.returncode == 0, installed.stderr
    assert (
        run(tmp_path, kubectl, "gpu-watchdog", "--version", **more).stdout == f"gpu-watchdog, version {__version__}\n"
    )
    refused = run(tmp_path, kubectl, "gpu-watchdog", "tpo", **more)
    assert "Try 'kubectl gpu-watchdog --help' for help." in refused.stderr
    caveats = yaml.safe_load(manifest.read_text(encoding="utf-8"))["spec"]["caveats"]
    command = caveats.partition("completion of its arguments:\n")[2]
    assert run(tmp_path, "/bin/sh", "-c", command, **more).returncode == 0
    offered = run(tmp_path, kubectl, "__complete", "gpu-watchdog", "top", "--so", **more).stdout
    assert [line.partition("\t")[0] for line in offered.splitlines()] == ["--sort", ":4"]


@pytest.mark.cluster
@pytest.mark.parametrize("change", ["hash", "bin", "version"])
def test_krew_refuses_another(plugin: Plugin, krew: Path, tmp_path: Path, change: str) -> None:
    """What the test before shows is krew's own check: with another hash, program or version it installs nothing."""
    text = (plugin.released / MANIFEST).read_text(encoding="utf-8")
    (digest,) = (each["sha256"] for each in yaml.safe_load(text)["spec"]["platforms"])
    changed = {
        "hash": text.replace(digest, "0" * 64),
        "bin": text.replace(f"bin: {NAME}", "bin: other"),
        "version": text.replace("version: v", "version: "),
    }[change]
    assert changed != text
    path = tmp_path / MANIFEST
    path.write_text(changed, encoding="utf-8")
    command = (krew, "install", f"--manifest={path}", f"--archive={plugin.archive}")
    assert run(tmp_path, *command, KREW_ROOT=str(tmp_path / "krew"), PATH=os.environ["PATH"]).returncode == 1
    assert not (tmp_path / "krew" / "bin" / NAME).exists()


def test_the_template_has_a_place_for_each_value() -> None:
    """A release can't be published with a placeholder of the template in its manifest."""
    template = (REPOSITORY / "deploy" / "krew" / MANIFEST).read_text(encoding="utf-8")
    text = filled(template, version="1.2.3", archive="https://a.test/b.tar.gz", digest="d" * 64)
    for placeholder in ("VERSION", "ARCHIVE", "SHA256"):
        assert placeholder not in text
    with pytest.raises(AssertionError, match="has no single"):
        filled(text, version="1.2.3", archive="x", digest="y")
