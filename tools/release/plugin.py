"""The program for people's own machines, `kubectl gpu-watchdog`: one file for any Python 3.11 and newer.

`python -m tools.release.plugin FOLDER` writes it. It is a zip archive that Python runs (zipapp), behind a few lines of
shell that choose the Python. It has the program and its dependencies, with the compiled modules of each platform and
Python, and unpacks what it needs into the user's cache (plugin_start.py). One archive for all is half as large as one
for each platform together, and nobody can take a wrong one.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools import ROOT
from tools.release.checkout import NotReleasableError
from tools.release.python import Distribution, locked, normal

NAME: Final = "kubectl-gpu_watchdog"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_LIMIT_S: Final = 600.0
# The earliest time that a zip archive can name.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
# What parts of the official client need that nothing imports (watchdog/kube/official.py), and what rich needs to colour
# source text. Without them a token of `auth-provider: oidc` is not renewed.
LEFT_OUT: Final = frozenset(
    {
        "aiohappyeyeballs",
        "aiohttp",
        "aiohttp-retry",
        "aiosignal",
        "annotated-types",
        "frozenlist",
        "markdown-it-py",
        "mdurl",
        "multidict",
        "oauthlib",
        "propcache",
        "pydantic",
        "pydantic-core",
        "pygments",
        "requests-oauthlib",
        "typing-inspection",
        "yarl",
    }
)
# Their compiled modules only make them faster.
_PURE_TOO: Final = frozenset({"charset-normalizer", "markupsafe", "pyyaml"})
_UNUSED: Final = re.compile(
    r"kubernetes/(aio|client/(api|models)|dynamic|leaderelection|watch|test|e2e_test)/.*"
    r"|.+/tests/.*|.+(_test\.py|/test_\w+\.py|\.pyi|\.pyx|\.c|\.h|/py\.typed)|example\.py"
)
_LICENCE: Final = re.compile(r"[^/]+\.dist-info/(licenses/.+|LICEN[CS]E[^/]*|NOTICE[^/]*|COPYING[^/]*)")
# The first Python that is new enough: macOS' own python3 is not. -I: nothing of the user's environment gets in.
_SHELL: Final = f"""\
#!/bin/sh
for python in python3 {" ".join(f"python{each}" for each in reversed(PYTHONS))}; do
  "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && exec "$python" -I "$0" "$@"
done
echo "gpu-watchdog needs Python 3.11 or newer, as python3 or under its own name, such as python3.13" >&2
exit 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform as Go and krew call it, as Python does (sys.platform and the machine), and whose wheels it takes."""

    name: str
    python: str
    # From the newest that is taken to the oldest.
    tags: tuple[str, ...]


PLATFORMS: Final = (
    Platform(
        name="linux-amd64",
        python="linux-x86_64",
        tags=("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    ),
    Platform(
        name="linux-arm64",
        python="linux-aarch64",
        tags=("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    ),
    Platform(name="darwin-amd64", python="darwin-x86_64", tags=("macosx_11_0_x86_64",)),
    Platform(name="darwin-arm64", python="darwin-arm64", tags=("macosx_11_0_arm64",)),
)


def build_plugin(tree: Path, to: Path) -> Path:
    """Write the program of a source tree into a folder; the same tree gives the same bytes."""
    pins = locked((tree / "requirements" / "run.txt").read_text(encoding="utf-8"))
    kept = {name: pin for name, pin in pins.items() if name not in LEFT_OUT}
    files = dict(_wheel_files(kept))
    package = tree / "watchdog"
    own = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files |= {f"program/{path.relative_to(tree).as_posix()}": path.read_bytes() for path in own}
    files["licenses/gpu-memory-watchdog/LICENSE"] = (tree / "LICENSE").read_bytes()
    path = to / NAME
    with path.open("wb") as file:
        file.write(_SHELL.encode())
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted({**files, "__main__.py": _start(files)}.items()):
                archive.writestr(_entry(name), content)
    path.chmod(0o755)
    return path


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return info


def _start(files: Mapping[str, bytes]) -> bytes:
    """The beginning of the program, which knows what the archive has."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    native = sorted({"/".join(name.split("/")[:3]) + "/" for name in files if name.startswith("native/")})
    text = Path(__file__).with_name("plugin_start.py").read_text(encoding="utf-8")
    for line, value in (
        ('DIGEST = ""', f"DIGEST = {digest.hexdigest()[:32]!r}"),
        ('NATIVE: "frozenset[str]" = frozenset()', f'NATIVE: "frozenset[str]" = frozenset({native!r})'),
    ):
        assert text.count(f"\n{line}\n") == 1, line
        text = text.replace(f"\n{line}\n", f"\n{value}\n")
    return text.encode()


def _wheel_files(pins: Mapping[str, Distribution]) -> Iterator[tuple[str, bytes]]:
    """What the archive gets of the wheels; compiled modules below the platform and Python that they are for."""
    first = _wheels(pins, PLATFORMS[0], PYTHONS[0])
    compiled = {name for name, wheel in first.items() if not wheel.stem.endswith("-none-any")} - _PURE_TOO
    seen: dict[str, bytes] = {}
    for platform in PLATFORMS:
        for python in PYTHONS:
            again = {name: pin for name, pin in pins.items() if name in compiled}
            wheels = _wheels(again, platform, python)
            for name, wheel in {**first, **wheels}.items():
                for path, content in _files_of(wheel, name, platform):
                    assert seen.setdefault(path, content) == content, f"{path} differs between platforms"
    yield from seen.items()


def _files_of(wheel: Path, name: str, platform: Platform) -> Iterator[tuple[str, bytes]]:
    abi = wheel.stem.split("-")[-2]
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            if path.endswith("/"):
                continue
            if match := _LICENCE.fullmatch(path):
                yield f"licenses/{name}/{match[1].removeprefix('licenses/')}", archive.read(path)
            elif ".dist-info/" in path or ".data/" in path or _UNUSED.fullmatch(path):
                continue
            elif not path.endswith(".so"):
                yield f"program/{path}", archive.read(path)
            elif name not in _PURE_TOO:
                yield f"native/{platform.python}/{abi}/{path}", archive.read(path)


def _wheels(pins: Mapping[str, Distribution], platform: Platform, python: str) -> dict[str, Path]:
    """The wheels of these distributions, by name, each with a hash of the lock file; downloaded once.

    A release needs seventeen sets of them, and pip takes two seconds for each even if it has all of them.
    """
    lines = [
        f"{pin.name}=={pin.version} {' '.join(f'--hash=sha256:{each}' for each in pin.hashes)}\n"
        for pin in pins.values()
    ]
    digest = hashlib.sha256(f"{platform}\0{python}\0{''.join(lines)}".encode()).hexdigest()[:16]
    folder = wheels_folder() / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{digest}-", dir=folder.parent) as scratch:
            _download(lines, platform, python, Path(scratch) / digest)
            try:
                (Path(scratch) / digest).rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    wheels = {normal(wheel.name.partition("-")[0]): wheel for wheel in folder.glob("*.whl")}
    for name, pin in pins.items():
        if name not in wheels or hashlib.sha256(wheels[name].read_bytes()).hexdigest() not in pin.hashes:
            raise NotReleasableError(f"{folder} lacks the locked wheel of {name}: remove the folder")
    return wheels


def wheels_folder() -> Path:
    """Where wheels are kept that were downloaded."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-memory-watchdog" / "wheels"


def _download(lines: Iterable[str], platform: Platform, python: str, folder: Path) -> None:
    folder.mkdir()
    lock = folder / "requirements.txt"
    lock.write_text("".join(lines), encoding="utf-8")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--python-version={python}"]
    tags = [f"--platform={tag}" for tag in platform.tags]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", *options, *tags]
    ended = subprocess.run(
        [*command, f"--dest={folder}", f"--requirement={lock}"],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, f"wheels of {platform.name} for Python {python}:\n{ended.stderr[-3000:]}"


def main() -> None:
    """Write the program of this checkout."""
    parser = argparse.ArgumentParser(prog="python -m tools.release.plugin", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it")
    try:
        print(build_plugin(ROOT, parser.parse_args().folder))
    except NotReleasableError as error:
        sys.exit(f"plugin: {error}")


if __name__ == "__main__":
    main()
